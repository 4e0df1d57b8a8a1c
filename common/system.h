/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the operating system that more than one library needs.
 */
#ifndef BT_SYSTEM_H
#define BT_SYSTEM_H

#include <stdbool.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "error.h"

/* Monotonic time in nanoseconds; the wall clock may jump. */
uint64_t bt_now_ns(void);

/* Initialises a condition for bt_wait_ns, with the monotonic clock. */
void bt_condition_init(pthread_cond_t *condition);
/* Waits for the condition, whose mutex the caller holds. False: no signal within this time. */
bool bt_wait_ns(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t nanoseconds);

/* Cores that this thread may run on (its affinity mask), limited by its control group; at least 1. */
int bt_available_cores(void);

/* Memory that can still be had, in bytes: of the system, swap included, of the process's control groups and of its
 * address space. UINT64_MAX: not known. */
uint64_t bt_available_memory(void);

/* Blocks signals before a library starts a thread, so that the application's threads get them. Signals that a thread
 * causes itself stay unblocked, because the application's handler must get them, and so does a profiler's. SIGPIPE is
 * blocked, because an error code says the same. The caller restores the old mask with pthread_sigmask. */
void bt_block_signals(sigset_t *before);

/* Raises the limit of open files (RLIMIT_NOFILE) to the hard limit, and returns it. Child processes inherit it. */
uint64_t bt_raise_open_files(void);

/* pread until size bytes or the end of the file; retries EINTR. Returns the bytes read, or -1 with errno. */
ssize_t bt_pread_full(int fd, void *buffer, size_t size, uint64_t offset);

/* bt_pread_full with a function instead of pread, which gets context; NULL: pread. */
typedef int64_t bt_read_function(void *context, int fd, void *buffer, size_t size, uint64_t offset);
ssize_t bt_read_full(bt_read_function *read, void *context, int fd, void *buffer, size_t size, uint64_t offset);

/* The size of the mark that some editors put at the beginning of UTF-8; 0: there is none. */
size_t bt_byte_order_mark(const char *text, size_t size);

/* Reads a regular file of text into new memory, which the caller frees; a NUL ends the text, and a byte order mark is
 * left out. Errors: NO_MEMORY, NOT_FOUND, IO; INVALID_ARGUMENT: it is not a regular file, or has more than `most` bytes
 * or a NUL. */
int bt_read_text(const char *path, size_t most, char **out, beton_error *err);

/* Write all bytes; retry EINTR and short writes. Returns 0, or -1 with errno. */
int bt_write_full(int fd, const void *buffer, size_t size);
int bt_pwrite_full(int fd, const void *buffer, size_t size, uint64_t offset);

/* A file that appears at its final name only when it is complete: a temporary name in the same folder, fsync, rename,
 * fsync of the folder. Zero-initialise. Either commit or abandon it once; both release everything. */
typedef struct bt_atomic_file {
	int fd; /* to write to; -1 when not open */
	char *path;
	char *temporary;
	bool created;
} bt_atomic_file;

int bt_atomic_open(bt_atomic_file *file, const char *path, beton_error *err);
int bt_atomic_commit(bt_atomic_file *file, beton_error *err);
void bt_atomic_abandon(bt_atomic_file *file);

/* Creates the folders that path is in, if they are missing. */
int bt_make_parents(const char *path, beton_error *err);

/* fsync of the folder that holds path, which makes a rename or creation in it durable. */
int bt_sync_parent(const char *path, beton_error *err);

/* Parse integers and reals of the command line or the environment. The whole text must be a number in the range, else
 * INVALID_ARGUMENT, whose message has `what`, the text and the range. */
int bt_parse_u64(const char *what, const char *text, uint64_t least, uint64_t most, uint64_t *out, beton_error *err);
int bt_parse_double(const char *what, const char *text, double least, double most, double *out, beton_error *err);

/* A number of bytes, at least `least`, or one with a unit and, if one likes, a decimal fraction: kB, MB, GB and TB are
 * powers of 1000, K, M, G and T, alone or with iB, powers of 1024. Errors: INVALID_ARGUMENT naming `what` and the
 * text. */
int bt_parse_size(const char *what, const char *text, uint64_t least, uint64_t *out, beton_error *err);

/* The ending of a noun after the count: "1 sample", "2 samples". */
static inline const char *bt_plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

/* Whether the text ends so, and has something before that. */
bool bt_ends_with(const char *text, const char *ending);

/* printf into new memory, which the caller frees. NULL: out of memory. */
BETON_PRINTF(1, 2) char *bt_format(const char *format, ...);

/* Appends to the text, as far as its size bytes have room; always NUL terminated. */
BETON_PRINTF(3, 4) void bt_append(char *text, size_t size, const char *format, ...);

#endif
