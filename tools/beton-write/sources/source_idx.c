/* SPDX-License-Identifier: Apache-2.0
 *
 * MNIST's idx files, packed with gzip or not: pictures in NAME-images-idx3-ubyte, their labels beside them in
 * NAME-labels-idx1-ubyte. Source of the format: the description on MNIST's page (magic: two zero bytes, type, number of
 * dimensions; then the dimensions and elements, big endian). */
#include <stdlib.h>
#include <string.h>

#include "array_file.h"
#include "common/error.h"
#include "common/system.h"
#include "paths.h"
#include "sources.h"

enum { COLUMN_OF_IMAGE, COLUMN_OF_LABEL, NUM_COLUMNS };

typedef struct idx_source {
	source base;
	array_file arrays[NUM_COLUMNS];
	bool has_labels;
} idx_source;

static int parse_header(const uint8_t *data, size_t size, const char *name, array_type *type, size_t *offset,
			beton_error *err)
{
	static const struct {
		uint8_t code;
		const char *dtype;
		uint32_t item_size;
	} types[] = {{0x08, "|u1", 1}, {0x09, "|i1", 1}, {0x0b, ">i2", 2},
		     {0x0c, ">i4", 4}, {0x0d, ">f4", 4}, {0x0e, ">f8", 8}};
	*type = (array_type){0};
	if (size < 4 || data[0] || data[1])
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: not an idx file", name);
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (types[i].code == data[2]) {
			memcpy(type->dtype, types[i].dtype, strlen(types[i].dtype));
			type->item_size = types[i].item_size;
		}
	type->ndim = data[3];
	if (type->item_size == 0 || type->ndim < 1 || type->ndim > BETON_DIMS_MAX)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: an idx file of type 0x%02x with %u dimensions", name,
			       data[2], data[3]);
	*offset = 4 + 4 * (size_t)type->ndim;
	if (size < *offset)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: its header is cut off", name);
	for (uint32_t i = 0; i < type->ndim; i++)
		for (int byte = 0; byte < 4; byte++)
			type->shape[i] = type->shape[i] << 8 | data[4 + 4 * i + (size_t)byte];
	return BETON_OK;
}

static int at(source *base, uint64_t index, source_item *item, beton_error *err)
{
	const idx_source *self = (const idx_source *)base;
	item->name = bt_format("%s: sample %llu", base->name, (unsigned long long)index);
	if (!item->name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", base->name);
	int result = BETON_OK;
	for (uint32_t i = 0; i < base->num_columns && result == BETON_OK; i++)
		if (base->columns[i].wanted)
			result = array_file_read(&self->arrays[i], index, &item->values[i], err);
	return result == BETON_OK ? source_item_set_record(item, base->name, index, err) : result;
}

static void close_idx(source *base)
{
	idx_source *self = (idx_source *)base;
	for (uint32_t i = 0; i < NUM_COLUMNS; i++)
		array_file_close(&self->arrays[i]);
	free(self);
}

static const source_ops idx_ops = {.at = at, .close = close_idx};

/* Unpacks compressed files, because items cannot be found in them. */
static int open_array(array_file *array, const char *path, const source_spec *spec, beton_error *err)
{
	archive_input *input = NULL;
	archive_member member;
	if (!path_ends_with(path, ".gz"))
		return array_file_open(array, path, parse_header, err);
	char *folder = path_folder(spec->output);
	int result = folder ? archive_input_open(&input, path, ARCHIVE_PACKED_FILE, spec->interrupt, err)
			    : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (result == BETON_OK)
		result = archive_input_next(input, &member, err);
	if (result == BETON_END)
		result = bt_fail(err, BETON_FORMAT, "%s: empty", path);
	if (result == BETON_OK)
		result = array_file_unpack(array, path, input, folder, parse_header, err);
	archive_input_close(&input);
	free(folder);
	return result;
}

/* "x-images-idx3-ubyte.gz" -> "x-labels-idx1-ubyte.gz", compressed or not, whichever exists; "x-images.idx3-ubyte"
 * likewise. *labels NULL: path has no such name. */
static int find_labels(const char *path, char **labels, beton_error *err)
{
	static const char *const names[][2] = {{"images-idx3-ubyte", "labels-idx1-ubyte"},
					       {"images.idx3-ubyte", "labels.idx1-ubyte"}};
	*labels = NULL;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *end = path + strlen(path) - (path_ends_with(path, ".gz") ? 3 : 0);
		size_t length = strlen(names[i][0]);
		if ((size_t)(end - path) < length || strncmp(end - length, names[i][0], length) != 0)
			continue;
		static const char *const endings[] = {"", ".gz"};
		for (size_t j = 0; j < 2; j++) {
			free(*labels);
			*labels = bt_format("%.*s%s%s", (int)(end - length - path), path, names[i][1], endings[j]);
			if (!*labels)
				return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
			if (path_exists(*labels))
				return BETON_OK;
		}
		free(*labels);
		*labels = NULL;
		return bt_fail(err, BETON_NOT_FOUND, "%s: no labels, %.*s%s, beside it", path,
			       (int)(end - length - path), path, names[i][1]);
	}
	return BETON_OK;
}

static int open_labels(idx_source *self, const char *path, const source_spec *spec, beton_error *err)
{
	const array_file *images = &self->arrays[COLUMN_OF_IMAGE];
	array_file *labels = &self->arrays[COLUMN_OF_LABEL];
	int result = open_array(labels, path, spec, err);
	if (result == BETON_OK && labels->count != images->count)
		result = bt_fail(err, BETON_FORMAT, "%s: %llu labels for %llu pictures", path,
				 (unsigned long long)labels->count, (unsigned long long)images->count);
	if (result == BETON_OK)
		result = array_file_add_column(labels, &self->base, "label", "label", err);
	return result;
}

static int open_pair(const char *path, const source_spec *spec, source **out, beton_error *err)
{
	idx_source *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	*out = &self->base;
	char *labels = NULL;
	array_file *images = &self->arrays[COLUMN_OF_IMAGE];
	int result = source_init(&self->base, "idx", &idx_ops, path, err);
	if (result == BETON_OK)
		result = find_labels(path, &labels, err);
	if (result == BETON_OK)
		result = open_array(images, path, spec, err);
	if (result == BETON_OK) {
		const char *name = array_file_has_pictures(images) ? "image" : "data";
		self->base.count = images->count;
		result = array_file_add_column(images, &self->base, name, name, err);
	}
	if (result == BETON_OK && array_file_has_pictures(images))
		self->base.columns[COLUMN_OF_IMAGE].type = COLUMN_IMAGE;
	if (result == BETON_OK && labels)
		result = open_labels(self, labels, spec, err);
	free(labels);
	return result;
}

/* The file of a set in a folder; *path NULL: there is none. The caller frees it. */
static int find_images(const char *folder, const char *set, char **path, beton_error *err)
{
	static const char *const endings[] = {"-images-idx3-ubyte", "-images-idx3-ubyte.gz", "-images.idx3-ubyte",
					      "-images.idx3-ubyte.gz"};
	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++) {
		*path = bt_format("%s/%s%s", folder, set, endings[i]);
		if (!*path)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", folder);
		if (path_exists(*path))
			return BETON_OK;
		free(*path);
		*path = NULL;
	}
	return BETON_OK;
}

bool idx_source_is_folder(const char *folder)
{
	char *path = NULL;
	bool found = find_images(folder, "train", &path, NULL) == BETON_OK && path;
	free(path);
	return found;
}

static int open_folder(const source_spec *spec, source *sets[], beton_error *err)
{
	char *train_path = NULL;
	char *val_path = NULL;
	int result = find_images(spec->argument, "train", &train_path, err);
	if (result == BETON_OK)
		result = find_images(spec->argument, "t10k", &val_path, err);
	if (result == BETON_OK && !train_path)
		result = bt_fail(err, BETON_NOT_FOUND, "%s: no train-images-idx3-ubyte in it", spec->argument);
	if (result == BETON_OK)
		result = open_pair(train_path, spec, &sets[SET_TRAIN], err);
	if (result == BETON_OK && val_path)
		result = open_pair(val_path, spec, &sets[spec->holds_out ? SET_TEST : SET_VAL], err);
	free(train_path);
	free(val_path);
	return result;
}

int idx_source_open(const source_spec *spec, source *sets[], beton_error *err)
{
	return path_is_folder(spec->argument) ? open_folder(spec, sets, err)
					      : open_pair(spec->argument, spec, &sets[SET_TRAIN], err);
}
