/* SPDX-License-Identifier: Apache-2.0 */
#include "io.h"

#include <fcntl.h>
#include <sys/stat.h>

#ifdef BT_HAVE_URING
#include <liburing.h>

static int peek_cqe(struct io_uring *ring, struct io_uring_cqe **cqe)
{
	return io_uring_peek_cqe(ring, cqe);
}

static int wait_cqe(struct io_uring *ring, struct io_uring_cqe **cqe)
{
	return io_uring_wait_cqe(ring, cqe);
}
#endif

static int open_file(int folder, const char *path, int flags)
{
	return openat(folder, path, flags);
}

const bt_io bt_io_system = {
	.preadv2 = preadv2,
	.openat = open_file,
	.statx = statx,
	.fadvise = posix_fadvise,
#ifdef BT_HAVE_URING
	.queue_init_params = io_uring_queue_init_params,
	.register_buffers = io_uring_register_buffers,
	.register_files = io_uring_register_files,
	.submit_and_wait = io_uring_submit_and_wait,
	.wait_cqe = wait_cqe,
	.peek_cqe = peek_cqe,
#endif
};
