/* SPDX-License-Identifier: Apache-2.0 */
#include "array_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "npy.h"
#include "paths.h"
#include "tools/beton-write/images/file_bytes.h"

/* Prepares the array by its header; *bytes: of all elements. */
static int take_header(array_file *self, const uint8_t *data, size_t size, array_header_function header,
		       uint64_t *bytes, beton_error *err)
{
	array_type whole;
	size_t offset;
	int result = header(data, size, self->name, &whole, &offset, err);
	if (result != BETON_OK)
		return result;
	if (whole.ndim == 0)
		return bt_fail(err, BETON_FORMAT, "%s: a single number; the first axis must count the samples",
			       self->name);
	self->offset = offset;
	self->count = whole.shape[0];
	self->item = whole;
	self->item.ndim = whole.ndim - 1;
	memmove(self->item.shape, whole.shape + 1, self->item.ndim * sizeof(*whole.shape));
	uint64_t item_bytes;
	if (!array_bytes(&whole, bytes) || !array_bytes(&self->item, &item_bytes) || item_bytes > FILE_BYTES_MAX)
		return bt_fail(err, BETON_FORMAT, "%s: one sample of it has more than %lld bytes", self->name,
			       (long long)FILE_BYTES_MAX);
	self->item_bytes = (size_t)item_bytes;
	return BETON_OK;
}

static int wrong_size(const array_file *self, uint64_t found, uint64_t promised, beton_error *err)
{
	return bt_fail(err, found > promised ? BETON_FORMAT : BETON_TRUNCATED,
		       "%s: %llu bytes of elements, and its header promises %llu", self->name,
		       (unsigned long long)found, (unsigned long long)promised);
}

static int read_header(array_file *self, array_header_function header, beton_error *err)
{
	struct stat status;
	if (self->fd < 0 || fstat(self->fd, &status) != 0)
		return bt_fail_errno(err, errno, "%s: cannot open", self->name);
	if (!S_ISREG(status.st_mode))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: not a regular file", self->name);
	uint8_t *data = malloc(ARRAY_HEADER_MAX);
	if (!data)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
	uint64_t bytes = 0;
	ssize_t got = bt_pread_full(self->fd, data, ARRAY_HEADER_MAX, 0);
	int result = got < 0 ? bt_fail_errno(err, errno, "%s: cannot read", self->name)
			     : take_header(self, data, (size_t)got, header, &bytes, err);
	free(data);
	if (result == BETON_OK && (uint64_t)status.st_size - self->offset != bytes)
		result = wrong_size(self, (uint64_t)status.st_size - self->offset, bytes, err);
	return result;
}

int array_file_open(array_file *self, const char *path, array_header_function header, beton_error *err)
{
	*self = (array_file){.fd = -1, .name = strdup(path)};
	if (!self->name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	self->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int result = read_header(self, header, err);
	if (result != BETON_OK)
		array_file_close(self);
	return result;
}

/* Reads up to size bytes of the member; *got less than size: its end. */
static int read_full(archive_input *input, uint8_t *data, size_t size, size_t *got, beton_error *err)
{
	*got = 0;
	while (*got < size) {
		size_t more;
		int result = archive_input_read(input, data + *got, size - *got, &more, err);
		if (result != BETON_OK)
			return result;
		if (more == 0)
			break;
		*got += more;
	}
	return BETON_OK;
}

/* Never writes more than the header promises: a small archive can hold endless zeros. */
static int unpack(array_file *self, archive_input *input, array_header_function header, beton_error *err)
{
	uint8_t *data = malloc(ARRAY_HEADER_MAX);
	if (!data)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
	size_t got;
	uint64_t bytes = 0;
	uint64_t done = 0;
	int result = read_full(input, data, ARRAY_HEADER_MAX, &got, err);
	if (result == BETON_OK)
		result = take_header(self, data, got, header, &bytes, err);
	size_t skipped = result == BETON_OK ? (size_t)self->offset : 0;
	while (result == BETON_OK && got > 0) {
		done += got - skipped;
		if (done > bytes)
			result = wrong_size(self, done, bytes, err);
		else if (bt_write_full(self->fd, data + skipped, got - skipped) != 0)
			result = bt_fail_errno(err, errno, "%s: cannot unpack it", self->name);
		skipped = 0;
		if (result == BETON_OK)
			result = read_full(input, data, ARRAY_HEADER_MAX, &got, err);
	}
	free(data);
	self->offset = 0;
	return result == BETON_OK && done < bytes ? wrong_size(self, done, bytes, err) : result;
}

int array_file_unpack(array_file *self, const char *name, archive_input *input, const char *folder,
		      array_header_function header, beton_error *err)
{
	*self = (array_file){.fd = -1, .name = strdup(name)};
	if (!self->name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	int result = path_open_unnamed(folder, &self->fd, err);
	if (result == BETON_OK)
		result = unpack(self, input, header, err);
	if (result != BETON_OK)
		array_file_close(self);
	return result;
}

void array_file_close(array_file *self)
{
	/* A zero struct was never opened. */
	if (self->name && self->fd >= 0)
		close(self->fd);
	free(self->name);
	*self = (array_file){.fd = -1};
}

int array_file_read(const array_file *self, uint64_t index, raw_value *value, beton_error *err)
{
	uint8_t *data = malloc(self->item_bytes ? self->item_bytes : 1);
	if (!data)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %zu bytes", self->name, self->item_bytes);
	ssize_t got = bt_pread_full(self->fd, data, self->item_bytes, self->offset + index * self->item_bytes);
	int number = errno;
	if (got == (ssize_t)self->item_bytes) {
		*value = (raw_value){
			.kind = RAW_ARRAY, .data = data, .size = self->item_bytes, .array = &self->item, .owned = data};
		return BETON_OK;
	}
	free(data);
	return got < 0 ? bt_fail_errno(err, number, "%s: cannot read", self->name)
		       : bt_fail(err, BETON_FILE_CHANGED, "%s: the file became shorter while it was read", self->name);
}

int array_file_add_column(const array_file *self, source *to, const char *name, const char *field, beton_error *err)
{
	column_type type = COLUMN_ARRAY;
	if (self->item.ndim == 0 && strchr("biu", self->item.dtype[1]))
		type = COLUMN_INT;
	else if (self->item.ndim == 0 && self->item.dtype[1] == 'f')
		type = COLUMN_FLOAT;
	int result = source_add_column(to, name, field, type, err);
	if (result == BETON_OK) {
		to->columns[to->num_columns - 1].has_array = true;
		to->columns[to->num_columns - 1].array = self->item;
	}
	return result;
}

bool array_file_has_pictures(const array_file *self)
{
	const array_type *item = &self->item;
	return strcmp(item->dtype + 1, "u1") == 0 && (item->ndim == 2 || (item->ndim == 3 && item->shape[2] == 3));
}
