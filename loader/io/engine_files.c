/* SPDX-License-Identifier: Apache-2.0 */
#include "engine_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

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
	ALIGNMENT_MAX = BT_ARENA_ALIGNMENT,
	PIECE_MAX = 1 << 30, /* the kernel reads at most 2 GiB less a page at once */
};

static uint64_t round_down(uint64_t n, uint64_t alignment)
{
	return n - n % alignment;
}

static uint64_t round_up(uint64_t n, uint64_t alignment)
{
	return round_down(n + alignment - 1, alignment);
}

void bt_engine_file_tell(bt_engine_file *file, const char *format, ...)
{
	if (!file->log || atomic_exchange(&file->was_told, true))
		return;
	beton_error line;
	va_list arguments;
	va_start(arguments, format);
	char text[256];
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	bt_fail(&line, BETON_SYSTEM, "%s: %s", file->file->path, text);
	file->log(file->log_context, BETON_LOG_WARNING, line.message);
}

/* The alignment of offsets and memory that direct reads of the file need; 0: the file has none. */
static uint32_t direct_alignment(const bt_io *io, int fd)
{
#ifdef STATX_DIOALIGN
	struct statx status;
	if (io->statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && status.stx_mask & STATX_DIOALIGN) {
		uint32_t place = status.stx_dio_offset_align, memory = status.stx_dio_mem_align;
		return place == 0 || ALIGNMENT_MAX % place != 0 || memory > ALIGNMENT_MAX ? 0 : place;
	}
#else
	(void)io, (void)fd;
#endif
	return ALIGNMENT_MAX; /* the largest common block size; Linux before 6.1 does not report it */
}

/* Opens the file again through its descriptor, because its name may mean another file by now. */
static int open_direct(const bt_io *io, int fd)
{
	char path[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return io->open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
}

void bt_engine_file_open(bt_engine_file *file, const bt_engine_config *config)
{
	*file = (bt_engine_file){.file = config->file,
				 .io = bt_io_or_system(config->io),
				 .log = config->log,
				 .log_context = config->log_context,
				 .fd = config->file->fd,
				 .direct_fd = -1,
				 .alignment = 1};
	if (!config->direct)
		return;
	uint32_t alignment = direct_alignment(file->io, file->fd);
	errno = EOPNOTSUPP;
	if (alignment)
		file->direct_fd = open_direct(file->io, file->fd);
	if (file->direct_fd < 0) {
		char text[128];
		bt_engine_file_tell(file, "no direct reads here (%s): reading through the page cache",
				    strerror_r(errno, text, sizeof(text)));
		return;
	}
	file->alignment = alignment;
	atomic_store(&file->direct, true);
}

void bt_engine_file_close(bt_engine_file *file)
{
	if (file->direct_fd >= 0)
		close(file->direct_fd); /* opened for reading: an error loses nothing */
	file->direct_fd = -1;
}

size_t bt_engine_file_footprint(const bt_engine_file *file, uint64_t offset, uint64_t size)
{
	uint64_t length = round_up(offset + size, file->alignment) - round_down(offset, file->alignment);
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

bool bt_read_begin(bt_engine_file *file, bt_read *read, void *buffer)
{
	bool direct = atomic_load_explicit(&file->direct, memory_order_relaxed) &&
		      (uintptr_t)buffer % BT_ARENA_ALIGNMENT == 0;
	uint32_t alignment = direct ? file->alignment : 1;
	read->buffer = buffer;
	read->start = round_down(read->offset, alignment);
	read->length = round_up(read->offset + read->size, alignment) - read->start;
	read->done = 0;
	read->missed = read->waited = false;
	read->fault = is_poisoned(read) ? EFAULT : 0;
	read->ended = false;
	read->direct = direct;
	read->fixed = false;
	read->errors = 0;
	read->retries = 0;
	return read->size > 0 && !read->fault;
}

bt_piece bt_read_piece(const bt_engine_file *file, const bt_read *read)
{
	uint64_t size = read->length - read->done;
	return (bt_piece){.fd = read->direct ? file->direct_fd : file->fd,
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

static bool advance_after_error(bt_engine_file *file, bt_read *read, int fault)
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
		if (atomic_exchange(&file->direct, false))
			bt_engine_file_tell(file,
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

bool bt_read_advance(bt_engine_file *file, bt_read *read, ssize_t answer)
{
	if (answer < 0)
		return advance_after_error(file, read, (int)-answer);
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
		done = round_down(done, file->alignment);
		if (done == read->done)
			return give_up_direct(read);
	} else if (answer == 0) {
		read->ended = true;
		return false;
	}
	read->done = done;
	return true;
}

void bt_read_rest(bt_engine_file *file, bt_read *read)
{
	ssize_t answer;
	do {
		bt_piece piece = bt_read_piece(file, read);
		struct iovec part = {.iov_base = piece.to, .iov_len = piece.size};
		answer = file->io->preadv2(piece.fd, &part, 1, (off_t)piece.offset, 0);
		if (answer < 0)
			answer = -errno;
		if (answer == -EAGAIN || answer == -EBUSY)
			sched_yield();
	} while (bt_read_advance(file, read, answer));
}

int bt_read_outcome(const bt_engine_file *file, bt_read *read, beton_error *err)
{
	/* An empty read has no buffer. */
	read->bytes = read->size > 0 ? read->buffer + (read->offset - read->start) : read->buffer;
	if (!read->fault && !read->ended)
		return BETON_OK;
	const char *path = file->file->path;
	unsigned long long size = read->size, offset = read->offset;
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
