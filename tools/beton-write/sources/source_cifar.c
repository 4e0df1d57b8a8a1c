/* SPDX-License-Identifier: Apache-2.0
 *
 * CIFAR-10's binary batches: records of a label and 32 x 32 pixels, first all red, then all green, then all blue.
 * Source of the format: "Binary version" on CIFAR's page. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "paths.h"
#include "sources.h"
#include "tools/beton-write/images/file_bytes.h"

enum { COLUMN_OF_IMAGE, COLUMN_OF_LABEL };
enum { SIDE = 32, PLANE = SIDE * SIDE, RECORD = 1 + 3 * PLANE, CLASSES = 10, FILES_MAX = 1024 };

typedef struct batch_file {
	int fd;
	uint64_t before; /* samples in the files before this one */
} batch_file;

typedef struct cifar_source {
	source base;
	name_list paths;
	batch_file *files; /* num_files, in the order of paths */
	size_t num_files;
} cifar_source;

static int read_record(const cifar_source *self, size_t file, uint64_t index, uint8_t record[RECORD], beton_error *err)
{
	ssize_t got = bt_pread_full(self->files[file].fd, record, RECORD, index * RECORD);
	if (got < 0)
		return bt_fail_errno(err, errno, "%s: cannot read", self->paths.names[file]);
	if (got != RECORD)
		return bt_fail(err, BETON_FILE_CHANGED, "%s: the file became shorter while it was read",
			       self->paths.names[file]);
	if (record[0] >= CLASSES)
		return bt_fail(
			err, BETON_SAMPLE_CORRUPT,
			"%s: record %llu: the label is %u, not 0 to %d; a stream of tokens needs --format=tokens",
			self->paths.names[file], (unsigned long long)index, record[0], CLASSES - 1);
	return BETON_OK;
}

static int at(source *base, uint64_t index, source_item *item, beton_error *err)
{
	const cifar_source *self = (const cifar_source *)base;
	size_t file = self->num_files - 1;
	while (self->files[file].before > index)
		file--;
	index -= self->files[file].before;
	uint8_t record[RECORD];
	int result = read_record(self, file, index, record, err);
	if (result != BETON_OK)
		return result;
	item->name = bt_format("%s: record %llu", self->paths.names[file], (unsigned long long)index);
	uint8_t *pixels = malloc(3 * PLANE);
	item->values[COLUMN_OF_IMAGE] = (raw_value){.kind = RAW_ARRAY,
						    .data = pixels,
						    .size = 3 * PLANE,
						    .array = &base->columns[COLUMN_OF_IMAGE].array,
						    .owned = pixels};
	item->values[COLUMN_OF_LABEL] = (raw_value){.kind = RAW_INT, .integer = record[0]};
	if (!item->name || !pixels)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", base->name);
	result = source_item_set_record(item, self->paths.names[file], index, err);
	if (result != BETON_OK)
		return result;
	for (int i = 0; i < PLANE; i++)
		for (int colour = 0; colour < 3; colour++)
			pixels[3 * i + colour] = record[1 + colour * PLANE + i];
	return BETON_OK;
}

static void close_cifar(source *base)
{
	cifar_source *self = (cifar_source *)base;
	for (size_t i = 0; i < self->num_files; i++)
		close(self->files[i].fd);
	free(self->files);
	name_list_free(&self->paths);
	free(self);
}

static const source_ops cifar_ops = {.at = at, .close = close_cifar};

static int open_file(cifar_source *self, const char *path, beton_error *err)
{
	struct stat status;
	batch_file *file = &self->files[self->num_files];
	*file = (batch_file){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY),
			     .before = self->base.count};
	if (file->fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	self->num_files++;
	if (fstat(file->fd, &status) != 0)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	if (!S_ISREG(status.st_mode) || status.st_size == 0 || status.st_size % RECORD != 0)
		return bt_fail(err, BETON_FORMAT,
			       "%s: %lld bytes, which are not whole records of %d bytes; a stream of tokens needs "
			       "--format=tokens",
			       path, (long long)status.st_size, RECORD);
	self->base.count += (uint64_t)status.st_size / RECORD;
	return BETON_OK;
}

static int open_files(cifar_source *self, beton_error *err)
{
	if (self->paths.count > FILES_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: more than %d files", self->base.name, FILES_MAX);
	self->files = calloc(self->paths.count, sizeof(*self->files));
	if (!self->files)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
	int result = BETON_OK;
	for (size_t i = 0; i < self->paths.count && result == BETON_OK; i++)
		result = open_file(self, self->paths.names[i], err);
	return result;
}

static int add_columns(source *base, beton_error *err)
{
	int result = source_add_column(base, "image", "image", COLUMN_IMAGE, err);
	if (result == BETON_OK)
		result = source_add_column(base, "label", "label", COLUMN_INT, err);
	if (result != BETON_OK)
		return result;
	source_column *image = &base->columns[COLUMN_OF_IMAGE];
	image->has_array = true;
	image->array = (array_type){.dtype = "|u1", .item_size = 1, .ndim = 3, .shape = {SIDE, SIDE, 3}};
	return BETON_OK;
}

/* The names of the classes, a line each, in batches.meta.txt beside the batches, if it is there. */
static int read_classes(source *base, const char *folder, beton_error *err)
{
	char *path = bt_format("%s/batches.meta.txt", folder);
	file_bytes file = {0};
	int result = path ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", base->name);
	if (result == BETON_OK && path_exists(path))
		result = file_bytes_read(path, &file, err);
	const char *at_text = (const char *)file.data;
	const char *end = at_text + file.size;
	while (result == BETON_OK && at_text < end && base->classes.count < CLASSES) {
		const char *line_end = memchr(at_text, '\n', (size_t)(end - at_text));
		size_t length = (size_t)((line_end ? line_end : end) - at_text);
		char *name = strndup(at_text, length);
		if (!name)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
		else if (*name)
			result = name_list_add(&base->classes, name, err);
		free(name);
		at_text += length + 1;
	}
	free(file.data);
	free(path);
	return result;
}

/* name: of the source; paths: of its batches, which are taken. */
static int make_source(const char *name, name_list *paths, source **out, beton_error *err)
{
	cifar_source *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	*out = &self->base;
	self->paths = *paths;
	*paths = (name_list){0};
	int result = source_init(&self->base, "cifar10", &cifar_ops, name, err);
	if (result == BETON_OK)
		result = open_files(self, err);
	if (result == BETON_OK)
		result = add_columns(&self->base, err);
	char *folder = result == BETON_OK ? path_folder(self->paths.names[0]) : NULL;
	if (result == BETON_OK)
		result = folder ? read_classes(&self->base, folder, err)
				: bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	free(folder);
	return result;
}

bool cifar_source_is_folder(const char *folder)
{
	char *path = bt_format("%s/data_batch_1.bin", folder);
	bool found = path && path_exists(path);
	free(path);
	return found;
}

/* The files of a pattern in the folder; a set that is not there stays out. */
static int open_set(const char *folder, const char *pattern, bool required, source **out, beton_error *err)
{
	name_list paths = {0};
	char *full = bt_format("%s/%s", folder, pattern);
	int result =
		full ? paths_expand(full, &paths, err) : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", folder);
	if (result == BETON_OK)
		result = make_source(folder, &paths, out, err);
	else if (result == BETON_NOT_FOUND && !required)
		result = BETON_OK;
	name_list_free(&paths);
	free(full);
	return result;
}

int cifar_source_open(const source_spec *spec, source *sets[], beton_error *err)
{
	if (path_is_folder(spec->argument)) {
		int result = open_set(spec->argument, "data_batch_[1-5].bin", true, &sets[SET_TRAIN], err);
		source **test = spec->holds_out ? &sets[SET_TEST] : &sets[SET_VAL];
		return result == BETON_OK ? open_set(spec->argument, "test_batch.bin", false, test, err) : result;
	}
	name_list paths = {0};
	int result = paths_expand(spec->argument, &paths, err);
	if (result == BETON_OK)
		result = make_source(spec->argument, &paths, &sets[SET_TRAIN], err);
	name_list_free(&paths);
	return result;
}
