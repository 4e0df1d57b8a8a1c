/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_LOADER_HANGING_FS_H
#define TESTS_LOADER_HANGING_FS_H

#include <stdatomic.h>
#include <sys/types.h>

/* Shared by the file system and the test, in a file that both map. */
typedef struct hanging_control {
	atomic_int hangs; /* requests for data, and the closing of the file, are not answered */
	atomic_int held;  /* how many are not, at the moment */
	pid_t test;       /* the file system ends with this process */
} hanging_control;

/* The one file that is there. */
#define HANGING_NAME "data.beton"

#endif
