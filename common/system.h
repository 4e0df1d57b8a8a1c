/* SPDX-License-Identifier: Apache-2.0
 *
 * Small things of the operating system that more than one library needs. */
#ifndef BT_SYSTEM_H
#define BT_SYSTEM_H

#include <stdbool.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "error.h"

/* Monotonic time in nanoseconds: never the wall clock, which may jump. */
uint64_t bt_now_ns(void);

/* A condition for bt_wait_ns: its clock is the monotonic one. */
void bt_condition_init(pthread_cond_t *condition);
/* Waits for the condition, whose mutex the caller holds. False: nobody called within so many nanoseconds. */
bool bt_wait_ns(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t nanoseconds);

/* Cores that this thread may run on (its affinity mask), or as many as its control group leaves it, at least 1. */
int bt_available_cores(void);

/* Around the start of a thread of a library: signals are the application's business, its own threads get them. Not
 * those that a thread brings upon itself, which end the process or reach the application's handler only where they are
 * not blocked, nor a profiler's; but SIGPIPE, which says what an error code says too. The caller gives the old mask
 * back with pthread_sigmask. */
void bt_block_signals(sigset_t *before);

/* Raises the number of files that this process may have open (RLIMIT_NOFILE) to the most that it may ask for, and
 * returns it. Programs that it starts get the same. */
uint64_t bt_raise_open_files(void);

/* pread until size bytes or the end of the file; retries EINTR. Returns the bytes read, or -1 with errno. */
ssize_t bt_pread_full(int fd, void *buffer, size_t size, uint64_t offset);

/* The same by a function in the place of pread, which gets context; NULL: pread. */
typedef int64_t bt_read_function(void *context, int fd, void *buffer, size_t size, uint64_t offset);
ssize_t bt_read_full(bt_read_function *read, void *context, int fd, void *buffer, size_t size, uint64_t offset);

/* write / pwrite everything; retries EINTR and short writes. Returns 0, or -1 with errno. */
int bt_write_full(int fd, const void *buffer, size_t size);
int bt_pwrite_full(int fd, const void *buffer, size_t size, uint64_t offset);

/* A file that appears at its final name only when it is complete: a temporary name in the same folder, fsync, rename,
 * fsync of the folder. Zero-initialise; commit or abandon it once, both of which release everything. */
typedef struct bt_atomic_file {
	int fd; /* to write to; -1 when not open */
	char *path;
	char *temporary;
	bool created;
} bt_atomic_file;

int bt_atomic_open(bt_atomic_file *file, const char *path, beton_error *err);
int bt_atomic_commit(bt_atomic_file *file, beton_error *err);
void bt_atomic_abandon(bt_atomic_file *file);

/* fsync of the folder that holds path: makes a rename or creation in it durable. */
int bt_sync_parent(const char *path, beton_error *err);

/* Whole numbers and reals from the command line or the environment: the whole text must parse and lie in the range,
 * else INVALID_ARGUMENT naming `what`, the text and the range. */
int bt_parse_u64(const char *what, const char *text, uint64_t least, uint64_t most, uint64_t *out, beton_error *err);
int bt_parse_double(const char *what, const char *text, double least, double most, double *out, beton_error *err);

/* printf into new memory; NULL when there is none. The caller frees it. */
BETON_PRINTF(1, 2) char *bt_format(const char *format, ...);

/* printf behind the text that is in `text` already, as far as its size bytes have room; NUL terminated in any case. */
BETON_PRINTF(3, 4) void bt_append(char *text, size_t size, const char *format, ...);

#endif
