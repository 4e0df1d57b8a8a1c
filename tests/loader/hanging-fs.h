/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_LOADER_HANGING_FS_H
#define TESTS_LOADER_HANGING_FS_H

#include <stdatomic.h>
#include <sys/types.h>

/* What the file system shares with the test, in a file that both map. */
typedef struct hanging_control {
	atomic_int hangs; /* requests for data, and the closing of the file, are not answered */
	atomic_int held;  /* how many are not, at the moment */
	pid_t test;       /* the process without which there is no file system */
} hanging_control;

/* The one file that is there. */
#define HANGING_NAME "data.beton"

#endif
