/* SPDX-License-Identifier: Apache-2.0
 *
 * The system calls of the I/O engines as a table, so that tests can inject faults, io_uring's too.
 */
#ifndef BT_LOADER_IO_H
#define BT_LOADER_IO_H

#include <sys/types.h>
#include <sys/uio.h>

struct io_uring;
struct io_uring_cqe;
struct io_uring_params;
struct statx;

/* Each member behaves like the function of its name in libc (-1 and errno) or liburing (-errno). */
typedef struct bt_io {
	ssize_t (*preadv2)(int fd, const struct iovec *parts, int count, off_t offset, int flags);
	int (*openat)(int folder, const char *path, int flags);
	int (*statx)(int folder, const char *path, int flags, unsigned mask, struct statx *out);
	int (*fadvise)(int fd, off_t offset, off_t size, int advice); /* returns the error number */

	/* NULL in builds without liburing. */
	int (*queue_init_params)(unsigned entries, struct io_uring *ring, struct io_uring_params *params);
	int (*register_buffers)(struct io_uring *ring, const struct iovec *parts, unsigned count);
	int (*register_files)(struct io_uring *ring, const int *files, unsigned count);
	int (*submit_and_wait)(struct io_uring *ring, unsigned count);
	int (*wait_cqe)(struct io_uring *ring, struct io_uring_cqe **cqe);
	int (*peek_cqe)(struct io_uring *ring, struct io_uring_cqe **cqe);
} bt_io;

extern const bt_io bt_io_system;

/* io may be NULL. */
static inline const bt_io *bt_io_or_system(const bt_io *io)
{
	return io ? io : &bt_io_system;
}

#endif
