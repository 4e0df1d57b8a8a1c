/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REPORT_RESIDENT_MEMORY_H
#define REPORT_RESIDENT_MEMORY_H

#include <stdint.h>

/* Resident memory of this process. */
typedef struct run_memory {
	uint64_t now_bytes, peak_bytes;
} run_memory;

/* 0: the system does not tell. */
run_memory run_memory_read(void);

#endif
