/* SPDX-License-Identifier: Apache-2.0 */
#include "engine_files.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "common/error.h"

#ifdef __SANITIZE_ADDRESS__
#define BT_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BT_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef BT_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

enum {
	ERRORS_RETRIED = 3,       /* errors of the device, for one read: they may be transient */
	INTERRUPTIONS_MAX = 1000, /* in a row, without a byte: more is a fault of the kernel */
	PIECE_MAX = 1 << 30,      /* the kernel reads at most 2 GiB less a page at once */
};

static uint64_t round_down(uint64_t n, uint64_t alignment)
{
	return n - n % alignment;
}

static uint64_t round_up(uint64_t n, uint64_t alignment)
{
	return round_down(n + alignment - 1, alignment);
}

size_t bt_read_footprint(const bt_files *files, uint64_t offset, uint64_t size)
{
	uint64_t alignment = files->direct ? BT_ARENA_ALIGNMENT : 1;
	uint64_t length = round_up(offset + size, alignment) - round_down(offset, alignment);
	return (size_t)round_up(length, BT_ARENA_ALIGNMENT);
}

/* Sanitizers do not see the kernel's writes, so a buffer that is too small would go unnoticed. */
static bool is_poisoned(const bt_read *read)
{
#ifdef BT_ADDRESS_SANITIZER
	return __asan_region_is_poisoned(read->buffer, read->length);
#else
	(void)read;
	return false;
#endif
}

bool bt_read_begin(bt_read *read, void *buffer, bool direct)
{
	direct = direct && !atomic_load_explicit(&read->file->descriptors.direct_failed, memory_order_relaxed) &&
		 (uintptr_t)buffer % BT_ARENA_ALIGNMENT == 0;
	uint32_t alignment = direct ? BT_ARENA_ALIGNMENT : 1;
	read->buffer = buffer;
	read->start = round_down(read->offset, alignment);
	read->length = round_up(read->offset + read->size, alignment) - read->start;
	read->done = 0;
	read->missed = read->waited = false;
	read->fault = is_poisoned(read) ? EFAULT : 0;
	read->ended = false;
	read->direct = direct;
	read->fixed = false;
	read->failed = false;
	read->errors = 0;
	read->retries = 0;
	return read->size > 0 && !read->fault;
}

bt_piece bt_read_piece(const bt_read *read)
{
	uint64_t size = read->length - read->done;
	return (bt_piece){.fd = read->direct ? read->lease.direct_fd : read->lease.fd,
			  .offset = read->start + read->done,
			  .to = read->buffer + read->done,
			  .size = size < PIECE_MAX ? (size_t)size : PIECE_MAX};
}

/* Continues with buffered reads, and keeps the bytes read so far. */
static bool give_up_direct(bt_read *read)
{
	read->direct = false;
	read->length = read->offset + read->size - read->start;
	return true;
}

void bt_read_lend(bt_read *read, bt_lease lease)
{
	read->lease = lease;
	/* The file turned out to have no direct reads. */
	if (read->direct && lease.direct_fd < 0)
		give_up_direct(read);
}

static bool advance_after_error(bt_read *read, int fault)
{
	switch (fault) {
	case EINTR:
	case EAGAIN:
	case EBUSY:
	case ECANCELED:
		if (++read->retries <= INTERRUPTIONS_MAX)
			return true;
		break;
	case EINVAL:
	case EOPNOTSUPP:
		if (!read->direct)
			break;
		if (!atomic_exchange(&read->file->descriptors.direct_failed, true))
			bt_files_tell(read->file,
				      "a direct read of %llu bytes at offset %llu is refused: reading "
				      "through the page cache",
				      (unsigned long long)(read->length - read->done),
				      (unsigned long long)(read->start + read->done));
		return give_up_direct(read);
	case EIO:
		if (++read->errors <= ERRORS_RETRIED)
			return true;
		break;
	}
	read->fault = fault;
	return false;
}

bool bt_read_advance(bt_read *read, ssize_t answer)
{
	if (answer < 0)
		return advance_after_error(read, (int)-answer);
	read->retries = 0;
	uint64_t needed = read->offset + read->size - read->start;
	uint64_t done = read->done + (uint64_t)answer;
	if (done >= needed) {
		read->done = done;
		return false;
	}
	if (read->direct) {
		/* A direct read must continue at an aligned offset. If that makes no progress, the file ends here, or
		 * its file system reads this part only through the page cache. */
		done = round_down(done, BT_ARENA_ALIGNMENT);
		if (done == read->done)
			return give_up_direct(read);
	} else if (answer == 0) {
		read->ended = true;
		return false;
	}
	read->done = done;
	return true;
}

void bt_read_rest(bt_read *read)
{
	ssize_t answer;
	do {
		bt_piece piece = bt_read_piece(read);
		struct iovec part = {.iov_base = piece.to, .iov_len = piece.size};
		answer = read->file->files->io->preadv2(piece.fd, &part, 1, (off_t)piece.offset, 0);
		if (answer < 0)
			answer = -errno;
		if (answer == -EAGAIN || answer == -EBUSY)
			sched_yield();
	} while (bt_read_advance(read, answer));
}

int bt_read_outcome(bt_read *read, beton_error *err)
{
	/* An empty read has no buffer. */
	read->bytes = read->size > 0 ? read->buffer + (read->offset - read->start) : read->buffer;
	if (!read->fault && !read->ended)
		return BETON_OK;
	const char *path = read->file->path;
	unsigned long long size = read->size, offset = read->offset;
	if (read->ended && read->done == 0)
		return bt_fail(err, BETON_FILE_CHANGED,
			       "%s: has nothing of the %llu bytes at offset %llu: it shrank while it was open", path,
			       size, offset);
	if (read->ended)
		return bt_fail(err, BETON_FILE_CHANGED,
			       "%s: ends at byte %llu, in the %llu bytes at offset %llu: it shrank while it was open",
			       path, (unsigned long long)(read->start + read->done), size, offset);
	/* The code is always IO: EINVAL here must not become the caller's INVALID_ARGUMENT. */
	int result = bt_fail_errno(err, read->fault, "%s: cannot read %llu bytes at offset %llu (%u retries)", path,
				   size, offset, (unsigned)(read->errors ? read->errors - 1 : read->retries));
	if (result == BETON_NO_MEMORY)
		return result;
	if (err)
		err->code = BETON_IO;
	return BETON_IO;
}

struct bt_failure {
	const bt_read *read;
	int result;
	beton_error error;
	bt_failure *next;
};

bt_failure *bt_failure_make(bt_read *read, int result, const beton_error *why)
{
	bt_failure *failure = malloc(sizeof(*failure));
	read->failed = failure;
	if (failure)
		*failure = (bt_failure){.read = read, .result = result, .error = *why};
	else
		read->fault = ENOMEM;
	return failure;
}

void bt_failure_note(bt_failure **list, bt_failure *failure)
{
	if (!failure)
		return;
	failure->next = *list;
	*list = failure;
}

bt_failure *bt_failure_take(bt_failure **list, const bt_read *read)
{
	while (*list && (*list)->read != read)
		list = &(*list)->next;
	bt_failure *found = *list;
	if (found)
		*list = found->next;
	return found;
}

int bt_failure_tell(const bt_failure *failure, beton_error *err)
{
	if (err)
		*err = failure->error;
	return failure->result;
}

void bt_failures_free(bt_failure **list)
{
	for (bt_failure *failure = *list, *next; failure; failure = next) {
		next = failure->next;
		free(failure);
	}
	*list = NULL;
}
