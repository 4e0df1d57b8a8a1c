/* SPDX-License-Identifier: Apache-2.0
 *
 * A temporary folder for a test program. */
#ifndef TESTS_SUPPORT_TEMPORARY_H
#define TESTS_SUPPORT_TEMPORARY_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline int temporary_remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

/* Makes a folder below $TMPDIR (or /tmp) and goes into it; path holds at least 256 bytes. */
static inline int temporary_enter(char *path)
{
	const char *base = getenv("TMPDIR");
	snprintf(path, 256, "%s/dtrain-test-XXXXXX", base && *base ? base : "/tmp");
	return mkdtemp(path) && chdir(path) == 0 ? 0 : -1;
}

/* With all that is in it; it need not be there. */
static inline void temporary_remove(const char *path)
{
	nftw(path, temporary_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void temporary_leave(const char *path)
{
	if (chdir("/") == 0)
		temporary_remove(path);
}

#endif
