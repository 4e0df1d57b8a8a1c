/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#include "common/error.h"
#include "common/system.h"
#include "target.h"

typedef struct tar_target {
	extract_target base;
	struct archive *archive;
	struct archive_entry *entry;
	bt_atomic_file file; /* unless it is the standard output */
	bool standard;
	bool dropping; /* what libarchive still writes goes nowhere */
	int number;    /* errno of the write that failed, or 0 */
	char *path;
} tar_target;

/* libarchive calls this to write. After a failed write libarchive does not free its memory, so failures are stored
 * instead, and the caller checks the stored number. */
static la_ssize_t write_block(struct archive *archive, void *context, const void *block, size_t size)
{
	(void)archive;
	tar_target *self = context;
	if (!self->dropping && bt_write_full(self->file.fd, block, size) != 0) {
		self->number = errno;
		self->dropping = true;
	}
	return (la_ssize_t)size;
}

static int fail(const tar_target *self, const char *what, beton_error *err)
{
	const char *text = archive_error_string(self->archive);
	if (self->number)
		return bt_fail_errno(err, self->number, "%s: %s", self->path, what);
	return bt_fail(err, BETON_IO, "%s: %s: %s", self->path, what, text ? text : "unknown error");
}

static int add(extract_target *base, const char *group, const char *name, const void *data, size_t size,
	       beton_error *err)
{
	tar_target *self = (tar_target *)base;
	char *path = group ? bt_format("%s/%s", group, name) : strdup(name);
	if (!path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
	archive_entry_clear(self->entry);
	archive_entry_set_pathname(self->entry, path);
	archive_entry_set_filetype(self->entry, AE_IFREG);
	archive_entry_set_perm(self->entry, 0644);
	archive_entry_set_mtime(self->entry, 0, 0);
	archive_entry_set_size(self->entry, (la_int64_t)size);
	free(path);
	if (archive_write_header(self->archive, self->entry) != ARCHIVE_OK || self->number)
		return fail(self, "cannot write", err);
	const char *bytes = data;
	while (size) {
		la_ssize_t put = archive_write_data(self->archive, bytes, size);
		if (put <= 0 || self->number)
			return fail(self, "cannot write", err);
		bytes += put;
		size -= (size_t)put;
	}
	return BETON_OK;
}

static int finish(extract_target *base, beton_error *err)
{
	tar_target *self = (tar_target *)base;
	if (archive_write_close(self->archive) != ARCHIVE_OK || self->number)
		return fail(self, "cannot write", err);
	return self->standard ? BETON_OK : bt_atomic_commit(&self->file, err);
}

static void close_tar(extract_target *base)
{
	tar_target *self = (tar_target *)base;
	/* Freeing writes the mark that ends a good archive, unless finish did. */
	self->dropping = true;
	archive_write_free(self->archive);
	archive_entry_free(self->entry);
	if (!self->standard && self->file.path)
		bt_atomic_abandon(&self->file);
	free(self->path);
	free(self);
}

/* Sets the format from the name. GNU tar stores names unchanged; pax would convert them from the locale's encoding. */
static int set_format(const tar_target *self)
{
	struct archive *archive = self->archive;
	int result = archive_write_set_format_gnutar(archive);
	/* No padding for tapes, which a pipe would get and a file not. */
	if (result == ARCHIVE_OK)
		result = archive_write_set_bytes_in_last_block(archive, 1);
	if (result != ARCHIVE_OK)
		return result;
	if (bt_ends_with(self->path, ".tar.gz") || bt_ends_with(self->path, ".tgz")) {
		result = archive_write_add_filter_gzip(archive);
		/* No value: no time in the header, so that the same files give the same bytes. */
		return result == ARCHIVE_OK ? archive_write_set_filter_option(archive, "gzip", "timestamp", NULL)
					    : result;
	}
	if (bt_ends_with(self->path, ".tar.zst"))
		return archive_write_add_filter_zstd(archive);
	return bt_ends_with(self->path, ".tar.xz") ? archive_write_add_filter_xz(archive) : ARCHIVE_OK;
}

int target_open_tar(extract_target **out, const char *path, beton_error *err)
{
	*out = NULL;
	tar_target *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	self->base = (extract_target){.add = add, .finish = finish, .close = close_tar};
	self->standard = strcmp(path, "-") == 0;
	self->file.fd = STDOUT_FILENO;
	self->path = strdup(self->standard ? "standard output" : path);
	self->archive = archive_write_new();
	self->entry = archive_entry_new();
	int result = BETON_OK;
	if (!self->path || !self->archive || !self->entry)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	else if (set_format(self) != ARCHIVE_OK)
		result = bt_fail(err, BETON_UNSUPPORTED, "%s: %s", path, archive_error_string(self->archive));
	if (result == BETON_OK && !self->standard)
		result = bt_atomic_open(&self->file, path, err);
	if (result == BETON_OK && archive_write_open2(self->archive, self, NULL, write_block, NULL, NULL) != ARCHIVE_OK)
		result = fail(self, "cannot write", err);
	if (result == BETON_OK)
		*out = &self->base;
	else
		close_tar(&self->base);
	return result;
}
