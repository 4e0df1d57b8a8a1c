/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into a program: kills it before the rename whose number, from 1, is in KILL_AT_RENAME, or before the fsync
 * whose number is in KILL_AT_FSYNC. With KILL_RANK only the process with that RANK, or with that number by another
 * launcher, is killed. With KILL_HOLDS it makes that file instead, and goes no further. With STUCK_AT_FSYNC no fsync
 * returns from the one with that number on, as on a disk that hangs. With NO_EXCHANGE the file system seems to be one
 * that cannot exchange two names. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_victim(void)
{
	static const char *const names[] = {"RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"};
	const char *victim = getenv("KILL_RANK"), *rank = NULL;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !rank; i++)
		rank = getenv(names[i]);
	return !victim || (rank && strcmp(victim, rank) == 0);
}

static void count(const char *variable, atomic_int *number)
{
	const char *last = getenv(variable), *file = getenv("KILL_HOLDS");
	if (!last || !is_victim() || ++*number != atoi(last))
		return;
	if (!file)
		raise(SIGKILL);
	close(creat(file, 0600));
	for (;;)
		pause();
}

static void count_rename(void)
{
	static atomic_int number;
	count("KILL_AT_RENAME", &number);
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

int fsync(int fd)
{
	static atomic_int number, all;
	const char *stuck = getenv("STUCK_AT_FSYNC");
	count("KILL_AT_FSYNC", &number);
	if (stuck && ++all >= atoi(stuck))
		for (;;)
			pause();
	return (int)syscall(SYS_fsync, fd);
}
