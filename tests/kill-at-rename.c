/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into a program: kills it in front of the rename whose number, from 1, is in KILL_AT_RENAME. With
 * NO_EXCHANGE the file system seems to be one that cannot exchange two names. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void count_rename(void)
{
	static int number;
	const char *last = getenv("KILL_AT_RENAME");
	if (last && ++number == atoi(last))
		raise(SIGKILL);
}

int rename(const char *from, const char *to)
{
	count_rename();
	return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned int flags)
{
	if (getenv("NO_EXCHANGE")) {
		errno = EINVAL;
		return -1;
	}
	count_rename();
	return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}
