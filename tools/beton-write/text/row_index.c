/* SPDX-License-Identifier: Apache-2.0 */
#include "row_index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "tools/beton-write/sources/name_list.h"

#define BLOCK_SIZE 65536

int row_index_open(row_index *self, const char *path, const atomic_int *interrupt, beton_error *err)
{
	*self = (row_index){.path = path, .interrupt = interrupt};
	self->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat status;
	if (self->fd < 0 || fstat(self->fd, &status) != 0)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	if (!S_ISREG(status.st_mode))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: not a regular file, as a manifest must be", path);
	self->size = (uint64_t)status.st_size;
	return BETON_OK;
}

void row_index_close(row_index *self)
{
	/* A zero struct was never opened. */
	if (self->path && self->fd >= 0)
		close(self->fd);
	free(self->offsets);
	*self = (row_index){.fd = -1};
}

/* A line that is being put together from blocks. */
typedef struct line {
	char *text;
	size_t size;
	size_t capacity;
	uint64_t offset;
} line;

static int add_to_line(const row_index *self, line *open, const char *text, size_t size, beton_error *err)
{
	if (size > ROW_BYTES_MAX - open->size)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the line at offset %llu is longer than %u bytes",
			       self->path, (unsigned long long)open->offset, ROW_BYTES_MAX);
	if (open->size + size > open->capacity) {
		size_t capacity = (open->size + size) * 2;
		char *grown = realloc(open->text, capacity);
		if (!grown)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
		open->text = grown;
		open->capacity = capacity;
	}
	memcpy(open->text + open->size, text, size);
	open->size += size;
	return BETON_OK;
}

static int end_line(line *open, row_line_function function, void *data, beton_error *err)
{
	int result = open->size ? function(data, open->text, open->size, open->offset, err) : BETON_OK;
	open->offset += open->size;
	open->size = 0;
	return result;
}

int row_index_each_line(const row_index *self, row_line_function function, void *data, beton_error *err)
{
	char block[BLOCK_SIZE];
	line open = {0};
	int result = BETON_OK;
	uint64_t offset = 0;
	while (result == BETON_OK && offset < self->size) {
		uint64_t left = self->size - offset;
		size_t wanted = left < sizeof(block) ? (size_t)left : sizeof(block);
		ssize_t got = bt_pread_full(self->fd, block, wanted, offset);
		if (*self->interrupt)
			result = bt_fail(err, BETON_CANCELLED, "%s: interrupted", self->path);
		else if (got < 0)
			result = bt_fail_errno(err, errno, "%s: cannot read", self->path);
		else if ((size_t)got != wanted)
			result = bt_fail(err, BETON_FILE_CHANGED, "%s: the file became shorter", self->path);
		offset += wanted;
		for (size_t used = 0; result == BETON_OK && used < wanted;) {
			const char *end = memchr(block + used, '\n', wanted - used);
			size_t size = end ? (size_t)(end - block) + 1 - used : wanted - used;
			result = add_to_line(self, &open, block + used, size, err);
			if (result == BETON_OK && end)
				result = end_line(&open, function, data, err);
			used += size;
		}
	}
	if (result == BETON_OK)
		result = end_line(&open, function, data, err);
	free(open.text);
	return result;
}

int row_index_add(row_index *self, uint64_t begin, uint64_t end, beton_error *err)
{
	/* One more than rows: the end of the last one. */
	uint64_t *offsets = list_grow(self->offsets, (size_t)self->count + 1, &self->capacity, sizeof(*offsets));
	if (!offsets)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for the places of its rows", self->path);
	self->offsets = offsets;
	if (self->count == 0)
		offsets[0] = begin;
	offsets[++self->count] = end;
	return BETON_OK;
}

int row_index_read(const row_index *self, uint64_t row, char **text, size_t *size, beton_error *err)
{
	uint64_t begin = self->offsets[row];
	*size = (size_t)(self->offsets[row + 1] - begin);
	*text = malloc(*size + 1);
	if (!*text)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for row %llu", self->path, (unsigned long long)row);
	(*text)[*size] = 0;
	ssize_t got = bt_pread_full(self->fd, *text, *size, begin);
	if (got == (ssize_t)*size)
		return BETON_OK;
	int number = errno;
	free(*text);
	*text = NULL;
	return got < 0 ? bt_fail_errno(err, number, "%s: cannot read", self->path)
		       : bt_fail(err, BETON_FILE_CHANGED, "%s: the file became shorter while it was read", self->path);
}
