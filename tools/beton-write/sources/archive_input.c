/* SPDX-License-Identifier: Apache-2.0 */
#include "archive_input.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/error.h"

#define BLOCK_SIZE (UINT32_C(1) << 18)
#define TAR_END_MARK 512
/* Interval, in milliseconds, at which a wait for a pipe checks for a stop. */
#define LOOK_INTERVAL 200

struct archive_input {
	struct archive *handle;
	struct archive_entry *entry;
	archive_kind kind;
	const char *name; /* for messages; the caller's path */
	int fd;
	const atomic_int *interrupt;
	bool looked;   /* at the first bytes */
	bool gzip;     /* that is what they are */
	bool complete; /* the gzip member that was read last */
	z_stream unpacker;
	uint8_t file[BLOCK_SIZE];
	uint8_t block[BLOCK_SIZE]; /* unpacked */
};

/* Reads at most size bytes of the file; 0: its end, -1: failure, with libarchive's message set. */
static ssize_t read_file(archive_input *self, uint8_t *to, size_t size)
{
	for (;;) {
		if (*self->interrupt) {
			archive_set_error(self->handle, ECANCELED, "interrupted");
			return -1;
		}
		struct pollfd readable = {.fd = self->fd, .events = POLLIN};
		int ready = poll(&readable, 1, LOOK_INTERVAL);
		if (ready == 0 || (ready < 0 && errno == EINTR))
			continue;
		ssize_t got = ready < 0 ? -1 : read(self->fd, to, size);
		if (got >= 0)
			return got;
		if (errno == EINTR || errno == EAGAIN)
			continue;
		archive_set_error(self->handle, EIO, "cannot read: %s", strerror(errno));
		return -1;
	}
}

/* The next member of several, which gzip allows: begins where the last one ended. */
static bool begin_member(archive_input *self)
{
	self->complete = false;
	if (*self->unpacker.next_in == 0x1f && inflateReset(&self->unpacker) == Z_OK)
		return true;
	archive_set_error(self->handle, EILSEQ, "there is something else after the gzip data");
	return false;
}

/* libarchive's own gzip filter does not look at the checksum (3.6). */
static la_ssize_t read_gzip(archive_input *self)
{
	self->unpacker.next_out = self->block;
	self->unpacker.avail_out = sizeof(self->block);
	while (self->unpacker.avail_out == sizeof(self->block)) {
		if (self->unpacker.avail_in == 0) {
			ssize_t got = read_file(self, self->file, sizeof(self->file));
			if (got < 0)
				return ARCHIVE_FATAL;
			if (got == 0 && self->complete)
				return 0;
			if (got == 0) {
				archive_set_error(self->handle, EILSEQ, "the gzip data is cut off");
				return ARCHIVE_FATAL;
			}
			self->unpacker.next_in = self->file;
			self->unpacker.avail_in = (uInt)got;
		}
		if (self->complete && !begin_member(self))
			return ARCHIVE_FATAL;
		int outcome = inflate(&self->unpacker, Z_NO_FLUSH);
		if (outcome != Z_OK && outcome != Z_STREAM_END && outcome != Z_BUF_ERROR) {
			archive_set_error(self->handle, outcome == Z_MEM_ERROR ? ENOMEM : EILSEQ, "gzip: %s",
					  self->unpacker.msg ? self->unpacker.msg : "damaged data");
			return ARCHIVE_FATAL;
		}
		self->complete = outcome == Z_STREAM_END;
	}
	return (la_ssize_t)(sizeof(self->block) - self->unpacker.avail_out);
}

/* Reads the first bytes, and sees whether they are gzip's. */
static la_ssize_t read_first(archive_input *self)
{
	size_t size = 0;
	ssize_t got;
	do {
		got = read_file(self, self->file + size, sizeof(self->file) - size);
		if (got < 0)
			return ARCHIVE_FATAL;
		size += (size_t)got;
	} while (got > 0 && size < 2);
	self->looked = true;
	self->gzip = self->kind != ARCHIVE_ZIP && size >= 2 && self->file[0] == 0x1f && self->file[1] == 0x8b;
	if (!self->gzip) {
		memcpy(self->block, self->file, size);
		return (la_ssize_t)size;
	}
	/* 16: the gzip format. */
	if (inflateInit2(&self->unpacker, 16 + MAX_WBITS) != Z_OK) {
		archive_set_error(self->handle, ENOMEM, "out of memory");
		return ARCHIVE_FATAL;
	}
	self->unpacker.next_in = self->file;
	self->unpacker.avail_in = (uInt)size;
	return read_gzip(self);
}

static la_ssize_t read_block(struct archive *handle, void *data, const void **block)
{
	(void)handle;
	archive_input *self = data;
	*block = self->block;
	if (!self->looked)
		return read_first(self);
	if (self->gzip)
		return read_gzip(self);
	ssize_t got = read_file(self, self->block, sizeof(self->block));
	return got < 0 ? ARCHIVE_FATAL : (la_ssize_t)got;
}

/* Skips bytes of a plain tar file that are not needed, such as contents of members whose names are enough. Never skips
 * beyond the end of the file, which would hide a truncation. libarchive reads bytes that are not skipped. */
static la_int64_t skip_file(struct archive *handle, void *data, la_int64_t request)
{
	(void)handle;
	const archive_input *self = data;
	struct stat status;
	off_t at = self->kind == ARCHIVE_TAR && self->looked && !self->gzip ? lseek(self->fd, 0, SEEK_CUR) : -1;
	if (at < 0 || fstat(self->fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size - at < request)
		return 0;
	return lseek(self->fd, request, SEEK_CUR) < 0 ? 0 : request;
}

static la_int64_t seek_file(struct archive *handle, void *data, la_int64_t offset, int whence)
{
	const archive_input *self = data;
	off_t position = lseek(self->fd, offset, whence);
	if (position >= 0)
		return position;
	archive_set_error(handle, errno, "cannot seek");
	return ARCHIVE_FATAL;
}

/* libarchive's message; its numbers are errno's where the cause was a system call. */
static int fail(const archive_input *self, beton_error *err)
{
	int number = archive_errno(self->handle);
	const char *text = archive_error_string(self->handle);
	if (number == ECANCELED)
		return bt_fail(err, BETON_CANCELLED, "%s: interrupted", self->name);
	if (number == ENOMEM)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
	if (number == EIO)
		return bt_fail(err, BETON_IO, "%s: %s", self->name, text ? text : "cannot read");
	return bt_fail(err, BETON_FORMAT, "%s: damaged archive: %s", self->name, text ? text : "unknown fault");
}

/* Enables only the requested formats, because each is one more parser for hostile bytes. Filters that would start
 * another program (ARCHIVE_WARN) are not used. */
static bool enable_formats(archive_input *self)
{
	static int (*const filters[])(struct archive *) = {
		archive_read_support_filter_bzip2,
		archive_read_support_filter_xz,
		archive_read_support_filter_zstd,
	};
	struct archive *handle = self->handle;
	if (self->kind == ARCHIVE_ZIP)
		return archive_read_support_format_zip(handle) == ARCHIVE_OK;
	for (size_t i = 0; i < sizeof(filters) / sizeof(*filters); i++)
		if (filters[i](handle) < ARCHIVE_WARN)
			return false;
	/* Without the option the rest of the input, checksums and further archives in it, would not be looked at. */
	if (self->kind == ARCHIVE_TAR)
		return archive_read_support_format_tar(handle) == ARCHIVE_OK &&
		       archive_read_set_options(handle, "tar:read_concatenated_archives=1") == ARCHIVE_OK;
	return archive_read_support_format_raw(handle) == ARCHIVE_OK &&
	       archive_read_support_format_empty(handle) == ARCHIVE_OK;
}

static int open_archive(archive_input *self, const char *path, beton_error *err)
{
	bool standard_input = strcmp(path, "-") == 0;
	self->name = standard_input ? "standard input" : path;
	self->fd = standard_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct stat status;
	if (self->fd < 0 || fstat(self->fd, &status) != 0)
		return bt_fail_errno(err, errno, "%s: cannot open", self->name);
	if (S_ISDIR(status.st_mode))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: a folder, not an archive", self->name);
	self->handle = archive_read_new();
	self->entry = archive_entry_new();
	if (!self->handle || !self->entry)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
	if (!enable_formats(self))
		return bt_fail(err, BETON_UNSUPPORTED, "%s: libarchive lacks what this needs: %s", self->name,
			       archive_error_string(self->handle));
	archive_read_set_callback_data(self->handle, self);
	archive_read_set_read_callback(self->handle, read_block);
	archive_read_set_skip_callback(self->handle, skip_file);
	if (self->kind == ARCHIVE_ZIP && S_ISREG(status.st_mode))
		archive_read_set_seek_callback(self->handle, seek_file);
	return archive_read_open1(self->handle) == ARCHIVE_OK ? BETON_OK : fail(self, err);
}

int archive_input_open(archive_input **out, const char *path, archive_kind kind, const atomic_int *interrupt,
		       beton_error *err)
{
	archive_input *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	self->kind = kind;
	self->fd = -1;
	self->interrupt = interrupt;
	int result = open_archive(self, path, err);
	*out = self;
	if (result != BETON_OK)
		archive_input_close(out);
	return result;
}

void archive_input_close(archive_input **self)
{
	archive_input *closing = *self;
	*self = NULL;
	if (!closing)
		return;
	if (closing->handle)
		archive_read_free(closing->handle);
	archive_entry_free(closing->entry);
	if (closing->gzip)
		inflateEnd(&closing->unpacker);
	if (closing->fd > STDIN_FILENO)
		close(closing->fd);
	free(closing);
}

/* A tar ends with a block of zeros. Without it the rest was lost, at the very end of a member or not. */
static int check_end(archive_input *self, beton_error *err)
{
	if (self->kind != ARCHIVE_TAR)
		return BETON_END;
	int64_t last = archive_read_header_position(self->handle);
	if (archive_filter_bytes(self->handle, 0) - last < TAR_END_MARK)
		return bt_fail(err, BETON_TRUNCATED, "%s: the archive has no end mark; it was cut off", self->name);
	return BETON_END;
}

int archive_input_next(archive_input *self, archive_member *member, beton_error *err)
{
	int outcome = archive_read_next_header2(self->handle, self->entry);
	if (outcome == ARCHIVE_EOF)
		return check_end(self, err);
	if (outcome != ARCHIVE_OK && outcome != ARCHIVE_WARN)
		return fail(self, err);
	const char *name = archive_entry_pathname(self->entry);
	if (!name)
		name = archive_entry_pathname_utf8(self->entry);
	if (!name || outcome == ARCHIVE_WARN)
		return bt_fail(err, BETON_FORMAT, "%s: %s: a member that cannot be read: %s", self->name,
			       name ? name : "(no name)", archive_error_string(self->handle));
	const char *hard_link = archive_entry_hardlink(self->entry);
	*member = (archive_member){.name = name,
				   .regular = archive_entry_filetype(self->entry) == AE_IFREG && !hard_link,
				   .folder = archive_entry_filetype(self->entry) == AE_IFDIR,
				   .hard_link = hard_link,
				   .soft_link = hard_link ? NULL : archive_entry_symlink(self->entry)};
	return BETON_OK;
}

int archive_input_read(archive_input *self, void *data, size_t size, size_t *got, beton_error *err)
{
	la_ssize_t outcome = archive_read_data(self->handle, data, size);
	*got = outcome > 0 ? (size_t)outcome : 0;
	return outcome >= 0 ? BETON_OK : fail(self, err);
}
