/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs by their data sheets, for plans of machines that are not there.
 */
#ifndef PROGRAMS_PLAN_GPUS_H
#define PROGRAMS_PLAN_GPUS_H

#include <stdint.h>

/* Products of each type without sparsity, 2 operations for each multiply-add; 0: the GPU does not compute in the type.
 */
typedef struct dtrain__gpu {
	const char *name;    /* "a100" */
	const char *product; /* "NVIDIA A100 SXM, 80 GB" */
	double memory;       /* bytes */
	double bandwidth;    /* of its memory, bytes a second */
	double f32, tf32, f16, bf16;
	/* Bytes a second that a GPU sends to the others of its host, and to other hosts, where each has its part of the
	 * network, and the GPUs of such a host. */
	double link, network;
	int32_t host_gpus;
} dtrain__gpu;

/* NULL past the end. */
const dtrain__gpu *dtrain__gpu_at(int index);
/* NULL: there is none of that name. */
const dtrain__gpu *dtrain__gpu_find(const char *name);

#endif
