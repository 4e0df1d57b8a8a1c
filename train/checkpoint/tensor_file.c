/* SPDX-License-Identifier: Apache-2.0 */
#include <dtrain/tensor_file.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/half.h"
#include "common/system.h"
#include "safetensors.h"
#include "weight_map.h"

struct dtrain_tensor_file {
	char *path;
	safetensors_file *files;
	size_t file_count;
	struct place {
		const safetensors_file *file;
		const safetensors_entry *entry;
	} * places; /* of the tensors */
	dtrain_checkpoint_tensor *tensors;
	size_t count;
};

/* torch.save writes a zip archive; before PyTorch 1.6 it wrote a pickle that begins with a number of its own. */
static bool is_torch(const char *path)
{
	static const unsigned char begins[][4] = {{'P', 'K', 3, 4}, {0x80, 2, 0x8a, 10}};
	unsigned char magic[4] = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	bool whole = bt_pread_full(fd, magic, sizeof(magic), 0) == sizeof(magic);
	close(fd);
	return whole && (memcmp(magic, begins[0], sizeof(magic)) == 0 || memcmp(magic, begins[1], sizeof(magic)) == 0);
}

static int open_one(dtrain_tensor_file *self, const char *path, beton_error *err)
{
	if (is_torch(path))
		return bt_fail(err, BETON_FORMAT,
			       "%s: is a file of torch.save, not a safetensors file; convert it in Python: "
			       "safetensors.torch.save_file(torch.load('FILE', weights_only=True), "
			       "'FILE.safetensors')",
			       path);
	int status = dtrain__safetensors_open(&self->files[self->file_count], path, err);
	self->file_count += status == BETON_OK;
	return status;
}

static int reserve(dtrain_tensor_file *self, size_t count, beton_error *err)
{
	self->places = calloc(count + 1, sizeof(*self->places));
	self->tensors = calloc(count + 1, sizeof(*self->tensors));
	return self->places && self->tensors ? BETON_OK
					     : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
}

static void add(dtrain_tensor_file *self, const safetensors_file *file, const safetensors_entry *entry)
{
	self->places[self->count] = (struct place){file, entry};
	self->tensors[self->count++] =
		(dtrain_checkpoint_tensor){.name = entry->name, .dtype = entry->type, .shape = entry->shape};
}

static int open_file(dtrain_tensor_file *self, beton_error *err)
{
	self->files = calloc(1, sizeof(*self->files));
	int status = self->files ? open_one(self, self->path, err)
				 : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
	if (status == BETON_OK)
		status = reserve(self, self->files[0].count, err);
	for (size_t i = 0; status == BETON_OK && i < self->files[0].count; i++)
		add(self, &self->files[0], &self->files[0].entries[i]);
	return status;
}

/* A file of the index, which is in the folder of the index. */
static int open_beside(dtrain_tensor_file *self, const char *name, beton_error *err)
{
	const char *slash = strrchr(self->path, '/');
	char *path = bt_format("%.*s%s", slash ? (int)(slash + 1 - self->path) : 0, self->path, name);
	int status = path ? open_one(self, path, err) : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
	if (status != BETON_OK)
		bt_prefix(err, "%s", self->path);
	free(path);
	return status;
}

/* The index decides: a tensor of its files that it does not name is none of the model. */
static int open_map(dtrain_tensor_file *self, const weight_map *map, beton_error *err)
{
	self->files = calloc(map->count, sizeof(*self->files));
	int status = self->files ? reserve(self, map->count, err)
				 : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
	for (size_t i = 0; i < map->count && status == BETON_OK; i++) {
		const struct weight *weight = &map->weights[i];
		if (i == 0 || strcmp(weight->file, map->weights[i - 1].file) != 0)
			status = open_beside(self, weight->file, err);
		if (status != BETON_OK)
			break;
		const safetensors_file *file = &self->files[self->file_count - 1];
		const safetensors_entry *entry = dtrain__safetensors_find(file, weight->name);
		if (entry)
			add(self, file, entry);
		else
			status = bt_fail(err, BETON_FORMAT, "%s: %s has no tensor '%s'", self->path, file->path,
					 weight->name);
	}
	return status;
}

static int open_index(dtrain_tensor_file *self, beton_error *err)
{
	weight_map map;
	int status = dtrain__weight_map_read(&map, self->path, err);
	if (status == BETON_OK)
		status = open_map(self, &map, err);
	dtrain__weight_map_free(&map);
	return status;
}

int dtrain_tensor_file_open(const char *path, dtrain_tensor_file **out, beton_error *err)
{
	*out = NULL;
	dtrain_tensor_file *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	self->path = strdup(path);
	int status = BETON_OK;
	if (!self->path)
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	else
		status = bt_ends_with(path, WEIGHT_MAP_SUFFIX) ? open_index(self, err) : open_file(self, err);
	if (status != BETON_OK) {
		dtrain_tensor_file_close(&self);
		return status;
	}
	*out = self;
	return BETON_OK;
}

void dtrain_tensor_file_close(dtrain_tensor_file **out)
{
	dtrain_tensor_file *self = *out;
	if (!self)
		return;
	for (size_t i = 0; i < self->file_count; i++)
		dtrain__safetensors_close(&self->files[i]);
	free(self->files);
	free(self->places);
	free(self->tensors);
	free(self->path);
	free(self);
	*out = NULL;
}

const dtrain_checkpoint_tensor *dtrain_tensor_file_at(const dtrain_tensor_file *file, size_t index)
{
	return index < file->count ? &file->tensors[index] : NULL;
}

const char *dtrain_tensor_file_metadata(const dtrain_tensor_file *file, const char *key)
{
	const char *text = NULL;
	for (size_t i = 0; i < file->file_count && !text; i++)
		text = json_string_value(json_object_get(file->files[i].metadata, key));
	return text;
}

static void widen(dtrain_dtype dtype, const void *from, int64_t count, float *out)
{
	for (int64_t i = 0; i < count; i++)
		out[i] = dtype == DTRAIN_F64   ? (float)((const double *)from)[i]
			 : dtype == DTRAIN_F16 ? bt_widen_float16(((const uint16_t *)from)[i])
					       : bt_widen_bfloat16(((const uint16_t *)from)[i]);
}

int dtrain_tensor_file_read(const dtrain_tensor_file *self, size_t index, float *out, beton_error *err)
{
	if (index >= self->count)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: has no tensor %zu", self->path, index);
	const safetensors_file *file = self->places[index].file;
	const safetensors_entry *entry = self->places[index].entry;
	if ((int)entry->dtype == DTRAIN_F32)
		return dtrain__safetensors_read(file, entry, out, err);
	if ((int)entry->dtype != DTRAIN_F64 && (int)entry->dtype != DTRAIN_F16 && (int)entry->dtype != DTRAIN_BF16)
		return bt_fail(err, BETON_UNSUPPORTED, "%s: tensor '%s' is %s, no floating-point type", file->path,
			       entry->name, entry->type);
	void *stored = malloc(entry->bytes + 1);
	if (!stored)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for tensor '%s'", file->path, entry->name);
	int status = dtrain__safetensors_read(file, entry, stored, err);
	if (status == BETON_OK)
		widen(entry->dtype, stored, dtrain_shape_count(&entry->shape), out);
	free(stored);
	return status;
}
