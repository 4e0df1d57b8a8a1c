/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for CUDA's runtime and for the start of cuDNN and cuBLASLt, for tests of the module's host side without a
 * GPU. A program that it is linked into, with its symbols exported, comes first when the module is loaded, so that the
 * module's own file runs against it. Written from CUDA's public headers.
 *
 * Device memory is host memory that only copies may touch; work is done inside the call; kernels do nothing. Captures
 * are recorded, replayed, and refused as CUDA refuses them.
 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_STANDIN_STANDIN_H
#define TESTS_TRAIN_DEVICES_CUDA_STANDIN_STANDIN_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda_runtime_api.h>

struct standin {
	/* The machine. A test changes it while no device is open. */
	int devices;
	int driver_version;
	int capability;
	size_t memory;
	bool apart;        /* no GPU reaches another's memory */
	void *gpu;         /* a finished CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR; NULL: cuDNN plans nothing */
	long broken_plans; /* cuDNN's plans that fail when they are run, the next so many */
	/* cuDNN's plans that a capture refuses, the next so many; and loaded plans that fail when they are run, unlike
	 * compiled ones. */
	long uncapturable, refused;
	bool has_clock; /* events take the time from clock_ns, which a test moves */
	long long clock_ns;
	/* The number of the fallible call that fails so; 0: none. */
	long fail_at;
	cudaError_t failure;
	/* Counts. */
	long calls;    /* that can fail */
	long launches; /* of kernels, captured or not */
	long plans;    /* that cuDNN was asked to make with a handle, from a configuration or from text */
	long loaded;   /* of all plans, those from text */
	long made;     /* of all plans, those from a configuration */
	long strays;   /* calls from threads that had not set a device */
	long peers;    /* accesses to another device that were asked for */
	long staged;   /* copies between devices without access, both ways, to each other */
	long live;     /* allocations, streams, events, graphs and handles that exist */
	long flags;    /* that the last graph was instantiated with */
};

extern struct standin standin;

/* One device as new, and nothing that fails. */
void standin_reset(void);

/* For the stand-in's own files: counts a call, and says what it is to return. */
cudaError_t standin_enter(bool needs_device);
void standin_count(long change);
void standin_note(long *count); /* one more; from any thread */
bool standin_is_capturing(void);
long long standin_now_ns(void);

/* Memory of the device. Inside: all of the bytes are in one allocation. */
cudaError_t standin_allocate(void **out, size_t bytes, bool device);
bool standin_is_inside(const void *memory, size_t bytes);
/* Which device an address is memory of; -1: of none. */
int standin_owner(const void *memory);
bool standin_reaches(int device, int peer);

/* Sets the error of the thread that cudaGetLastError gives. */
cudaError_t standin_return(cudaError_t status);

#endif
