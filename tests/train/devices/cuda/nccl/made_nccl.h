/* SPDX-License-Identifier: Apache-2.0
 *
 * An NCCL and a CUDA that are made up, for tests of the cuda module's use of NCCL.
 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_NCCL_MADE_NCCL_H
#define TESTS_TRAIN_DEVICES_CUDA_NCCL_MADE_NCCL_H

#include "train/devices/cuda/nccl/nccl_comm.h"

/* Compiled with HAS_ALL_TO_ALL, HAS_WINDOWS and HAS_REGISTRATIONS for an NCCL that has calls for these, which came with
 * 2.28, 2.27 and 2.19.1. One with windows also has registrations, which must then stay unused. */
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 0)
#undef HAS_ALL_TO_ALL
#endif
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0)
#undef HAS_WINDOWS
#endif
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 19, 1)
#undef HAS_REGISTRATIONS
#endif

enum { FOR_EVER = 1 << 30, UNTIL_ASLEEP = -1, NO_POLICY = -1 };

/* The calls of the made-up NCCL, one letter each, and its behaviour. */
extern char called[400];
extern int polls_left;         /* so many questions are answered with "in progress" */
extern int polls_of_a_call;    /* each call sets polls_left to this; UNTIL_ASLEEP: in progress until somebody sleeps */
extern int yields, sleeps;     /* between polls */
extern struct cuda_comm *seen; /* no thread waits with its mutex */
extern ncclResult_t outcome;   /* of what was in progress */
extern ncclResult_t next_call; /* what the next operation returns */
extern int version;
extern bool capturing;
extern _Atomic bool abort_hangs; /* read by the thread that aborts */
extern cudaError_t event_state, clearing;
extern char last_error[200];
extern int split_policy; /* of the last split; NO_POLICY: the parent's */
extern ncclRedOp_t last_reduction;
extern ncclDataType_t last_type;
extern int fake;                  /* its address stands for handles */
extern _Thread_local int entered; /* the device that is current */
#ifdef HAS_REGISTRATIONS
extern void *registration; /* what a registration gives */
#endif
#ifdef HAS_WINDOWS
extern ncclWindow_t window;   /* what a registration gives: NULL where GPUs do not reach each other */
extern ncclWindow_t *written; /* where it is written, when the registration has ended */
#endif
/* By rank: the memory that was given to the last sends, receives and all-to-all (index 0). */
extern const char *sent_from[8], *received_at[8];

#endif
