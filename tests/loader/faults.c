/* SPDX-License-Identifier: Apache-2.0 */
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#ifdef BT_HAVE_URING
#include <liburing.h>
#endif

#include "loader/io/engine.h"

fault_table faults;
sem_t gate;
atomic_bool short_of_memory;

/* Calls that are over. Threads of a loader that are never joined have looked at the table in them. */
static atomic_uint ended_calls;

void no_faults(void)
{
	atomic_load(&ended_calls);
	memset(&faults, 0, sizeof(faults));
}

void open_gate(void)
{
	atomic_store(&faults.block, false);
	for (int i = 0; i < 1000; i++)
		sem_post(&gate);
}

void close_gate(void)
{
	while (sem_trywait(&gate) == 0)
		;
}

void find_values(const char *path, off_t *from, off_t *to)
{
	beton_reader *reader = NULL;
	assert_ok(beton_reader_open(&reader, path, err));
	const beton_file_info *info = beton_reader_info(reader);
	*from = (off_t)(info->metadata_offset + info->num_samples * info->record_size);
	*to = (off_t)info->data_end;
	beton_reader_close(&reader);
}

static bool is_behind_gate(off_t offset)
{
	return faults.block && (faults.gate_to == 0 || (offset >= faults.gate_from && offset < faults.gate_to));
}

static void count_metadata(off_t offset)
{
	if (faults.values_to > 0 && (offset < faults.values_from || offset >= faults.values_to))
		atomic_fetch_add(&faults.metadata, 1);
}

static bool hits(int call)
{
	call -= faults.from;
	if (!faults.fault || call < 0)
		return false;
	return faults.every ? call % faults.every == 0 && call / faults.every < faults.count : call < faults.count;
}

static int direct_descriptor(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	return flags >= 0 && flags & O_DIRECT;
}

static ssize_t refuse(int number)
{
	errno = number;
	return -1;
}

static ssize_t answer_preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
	assert_int_equal(count, 1);
	count_metadata(offset);
	if (flags & RWF_NOWAIT) {
		if (faults.cold)
			return refuse(EAGAIN);
	} else if (is_behind_gate(offset)) {
		atomic_fetch_add(&faults.blocked, 1);
		sem_wait(&gate);
	}
	if (faults.misaligned && direct_descriptor(fd))
		return refuse(EINVAL);
	bool spared = faults.only_gate && (offset < faults.gate_from || offset >= faults.gate_to);
	if (!spared && !faults.submit_fault && !faults.only_fixed && hits(atomic_fetch_add(&faults.calls, 1)))
		return refuse(faults.fault);
	struct iovec part = *parts;
	ssize_t result = preadv2(fd, &part, 1, offset, flags);
	/* After the call: a direct read of an odd number of bytes would be refused. */
	return faults.most && result > (ssize_t)faults.most ? (ssize_t)faults.most : result;
}

static ssize_t fault_preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
	ssize_t result = answer_preadv2(fd, parts, count, offset, flags);
	atomic_fetch_add(&ended_calls, 1);
	return result;
}

static int fault_open(int folder, const char *name, int flags)
{
	return faults.open_fault && flags & O_DIRECT ? (int)refuse(faults.open_fault) : openat(folder, name, flags);
}

#ifdef BT_HAVE_URING
static int fault_queue_init(unsigned entries, struct io_uring *ring, struct io_uring_params *params)
{
	if (faults.setup_fault && (!faults.setup_entries || entries > faults.setup_entries))
		return -faults.setup_fault;
	/* A smaller one than was asked for, so that completions overflow. */
	if (!faults.setup_fault && faults.setup_entries)
		entries = faults.setup_entries;
	int result = io_uring_queue_init_params(entries, ring, params);
	if (result == -ENOMEM)
		atomic_store(&short_of_memory, true);
	return result;
}

static int fault_register_buffers(struct io_uring *ring, const struct iovec *parts, unsigned count)
{
	return faults.register_fault ? -faults.register_fault : io_uring_register_buffers(ring, parts, count);
}

static int fault_register_files(struct io_uring *ring, const int *files, unsigned count)
{
	return faults.register_fault ? -faults.register_fault : io_uring_register_files(ring, files, count);
}

static bool hides_completions(void)
{
	return faults.block && faults.cold;
}

static int fault_submit_and_wait(struct io_uring *ring, unsigned count)
{
	if (faults.block && count) {
		atomic_fetch_add(&faults.blocked, 1);
		sem_wait(&gate);
	}
	if (faults.submit_fault && hits(atomic_fetch_add(&faults.calls, 1)))
		return -faults.submit_fault;
	return io_uring_submit_and_wait(ring, count);
}

static int fault_wait(struct io_uring *ring, struct io_uring_cqe **cqe)
{
	if (hides_completions())
		sem_wait(&gate);
	return io_uring_wait_cqe(ring, cqe);
}

static void swap_completions(struct io_uring *ring)
{
	struct io_uring_cqe *ready[2];
	if (io_uring_peek_batch_cqe(ring, ready, 2) < 2)
		return;
	struct io_uring_cqe first = *ready[0];
	*ready[0] = *ready[1];
	*ready[1] = first;
}

static int answer_peek(struct io_uring *ring, struct io_uring_cqe **cqe)
{
	int result = hides_completions() ? -EAGAIN : io_uring_peek_cqe(ring, cqe);
	if (result != 0)
		return result;
	if (faults.swap)
		swap_completions(ring);
	const bt_read *read = io_uring_cqe_get_data(*cqe);
	if (faults.misaligned && read->direct)
		(*cqe)->res = -EINVAL;
	else if (!faults.submit_fault && (!faults.only_fixed || read->fixed) &&
		 hits(atomic_fetch_add(&faults.calls, 1)))
		(*cqe)->res = -faults.fault;
	else if (faults.most && (*cqe)->res > (int)faults.most)
		(*cqe)->res = (int)faults.most;
	return 0;
}

static int fault_peek(struct io_uring *ring, struct io_uring_cqe **cqe)
{
	int result = answer_peek(ring, cqe);
	atomic_fetch_add(&ended_calls, 1);
	return result;
}
#endif

const bt_io fault_io = {
	.preadv2 = fault_preadv2,
	.openat = fault_open,
	.statx = statx,
	.fadvise = posix_fadvise,
#ifdef BT_HAVE_URING
	.queue_init_params = fault_queue_init,
	.register_buffers = fault_register_buffers,
	.register_files = fault_register_files,
	.submit_and_wait = fault_submit_and_wait,
	.wait_cqe = fault_wait,
	.peek_cqe = fault_peek,
#endif
};

void count_line(void *context, beton_log_level level, const char *line)
{
	(void)level;
	(void)context;
	if (atomic_fetch_add(&faults.lines, 1) == 0)
		snprintf(faults.line, sizeof(faults.line), "%s", line);
}
