/* SPDX-License-Identifier: Apache-2.0 */
#include <dtrain/tensor_file.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/half.h"
#include "common/system.h"
#include "shards.h"
#include "weight_map.h"

/* Buffer for elements that are converted, or that are not contiguous in their tensor. */
#define WINDOW_BYTES ((size_t)1 << 20)

struct dtrain_tensor_file {
	char *path;
	safetensors_file *files;
	size_t file_count;
	struct index_set set; /* of all tensors; their parts are in the files */
	dtrain_checkpoint_tensor *tensors;
	char absent[CHECKPOINT_SHARD_NAME]; /* empty: not a folder */
	bool is_incomplete;                 /* other names tell that the absent shard was there */
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

/* ---- opening ---- */

static int reserve_files(dtrain_tensor_file *self, size_t count, beton_error *err)
{
	/* A thousand ranks may have written a file each, and that is the usual limit. */
	if (count > 1)
		bt_raise_open_files();
	self->files = calloc(count, sizeof(*self->files));
	return self->files ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
}

static int reserve(dtrain_tensor_file *self, size_t count, beton_error *err)
{
	self->set.tensors = calloc(count + 1, sizeof(*self->set.tensors));
	self->tensors = calloc(count + 1, sizeof(*self->tensors));
	return self->set.tensors && self->tensors ? BETON_OK
						  : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
}

/* Opens a file, and appends what its tensors are parts of. */
static int open_one(dtrain_tensor_file *self, const char *path, shard_part **parts, size_t *count, beton_error *err)
{
	if (is_torch(path))
		return bt_fail(err, BETON_FORMAT,
			       "%s: is a file of torch.save, not a safetensors file; convert it in Python: "
			       "safetensors.torch.save_file(torch.load('FILE', weights_only=True), "
			       "'FILE.safetensors')",
			       path);
	safetensors_file *file = &self->files[self->file_count];
	json_t *info = NULL;
	int status = dtrain__safetensors_open(file, path, err);
	if (status != BETON_OK)
		return status;
	self->file_count++;
	shard_part *grown = realloc(*parts, (*count + file->count + 1) * sizeof(*grown));
	if (!grown)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	*parts = grown;
	status = dtrain__shards_info(file, &info, err);
	for (size_t i = 0; i < file->count && status == BETON_OK; i++) {
		shard_part *part = &grown[(*count)++];
		*part = (shard_part){.entry = &file->entries[i], .file = self->file_count - 1};
		status = dtrain__shards_place(file, info, part, err);
	}
	json_decref(info);
	return status;
}

/* Adds a tensor; its parts have one name. */
static int add(dtrain_tensor_file *self, const shard_part *parts, size_t count, beton_error *err)
{
	index_tensor *tensor = &self->set.tensors[self->set.count++];
	int status = dtrain__shards_join(self->path, self->files, *self->absent ? self->absent : NULL, parts, count,
					 tensor, err);
	self->tensors[self->set.count - 1] =
		(dtrain_checkpoint_tensor){.name = tensor->name, .dtype = tensor->type, .shape = tensor->shape};
	return status;
}

/* Parts of one name follow each other. */
static int add_all(dtrain_tensor_file *self, const shard_part *parts, size_t count, beton_error *err)
{
	int status = reserve(self, count, err);
	for (size_t i = 0, next; i < count && status == BETON_OK; i = next) {
		for (next = i + 1; next < count && strcmp(parts[next].entry->name, parts[i].entry->name) == 0;)
			next++;
		status = add(self, &parts[i], next - i, err);
	}
	return status;
}

static int open_file(dtrain_tensor_file *self, beton_error *err)
{
	shard_part *parts = NULL;
	size_t count = 0;
	int status = reserve_files(self, 1, err);
	if (status == BETON_OK)
		status = open_one(self, self->path, &parts, &count, err);
	if (status == BETON_OK)
		status = add_all(self, parts, count, err);
	free(parts);
	return status;
}

/* A file of the index, which is in the folder of the index. */
static int open_beside(dtrain_tensor_file *self, const char *name, shard_part **parts, beton_error *err)
{
	const char *slash = strrchr(self->path, '/');
	char *path = bt_format("%.*s%s", slash ? (int)(slash + 1 - self->path) : 0, self->path, name);
	size_t count = 0;
	int status = path ? open_one(self, path, parts, &count, err)
			  : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
	if (status != BETON_OK)
		bt_prefix(err, "%s", self->path);
	free(path);
	return status;
}

/* The index decides: a tensor of its files that it does not name is none of the model. */
static int open_map(dtrain_tensor_file *self, const weight_map *map, beton_error *err)
{
	shard_part *parts = NULL; /* of the current file */
	int status = reserve_files(self, map->count, err);
	if (status == BETON_OK)
		status = reserve(self, map->count, err);
	for (size_t i = 0; i < map->count && status == BETON_OK; i++) {
		const struct weight *weight = &map->weights[i];
		if (i == 0 || strcmp(weight->file, map->weights[i - 1].file) != 0)
			status = open_beside(self, weight->file, &parts, err);
		if (status != BETON_OK)
			break;
		const safetensors_file *file = &self->files[self->file_count - 1];
		const safetensors_entry *entry = dtrain__safetensors_find(file, weight->name);
		status = entry ? add(self, &parts[entry - file->entries], 1, err)
			       : bt_fail(err, BETON_FORMAT, "%s: %s has no tensor '%s'", self->path, file->path,
					 weight->name);
	}
	free(parts);
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

static int compare_parts(const void *a, const void *b)
{
	const shard_part *x = a, *y = b;
	int order = strcmp(x->entry->name, y->entry->name);
	return order ? order : (x->file > y->file) - (x->file < y->file);
}

static int open_folder(dtrain_tensor_file *self, beton_error *err)
{
	shard_part *parts = NULL;
	char **names = NULL;
	size_t files = 0, count = 0;
	int status = dtrain__shards_list(self->path, &names, &files, err);
	if (status == BETON_OK)
		status = reserve_files(self, files, err);
	for (size_t i = 0; i < files && status == BETON_OK; i++) {
		char *path = bt_format("%s/%s", self->path, names[i]);
		status = path ? open_one(self, path, &parts, &count, err)
			      : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
		free(path);
	}
	if (status == BETON_OK) {
		self->is_incomplete = dtrain__shards_absent(names, files, self->absent);
		if (count)
			qsort(parts, count, sizeof(*parts), compare_parts);
		status = add_all(self, parts, count, err);
	}
	dtrain__shards_list_free(names, files);
	free(parts);
	return status;
}

static int open_any(dtrain_tensor_file *self, beton_error *err)
{
	struct stat info;
	if (stat(self->path, &info) == 0 && S_ISDIR(info.st_mode))
		return open_folder(self, err);
	return bt_ends_with(self->path, WEIGHT_MAP_SUFFIX) ? open_index(self, err) : open_file(self, err);
}

int dtrain_tensor_file_open(const char *path, dtrain_tensor_file **out, beton_error *err)
{
	if (BT_MISSING(err, path, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	dtrain_tensor_file *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	self->path = strdup(path);
	int status = self->path ? open_any(self, err) : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (status != BETON_OK) {
		dtrain_tensor_file_close(&self);
		return status;
	}
	*out = self;
	return BETON_OK;
}

void dtrain_tensor_file_close(dtrain_tensor_file **out)
{
	if (!out)
		return;
	dtrain_tensor_file *self = *out;
	if (!self)
		return;
	for (size_t i = 0; i < self->file_count; i++)
		dtrain__safetensors_close(&self->files[i]);
	free(self->files);
	dtrain__index_free_set(&self->set);
	free(self->tensors);
	free(self->path);
	free(self);
	*out = NULL;
}

const dtrain_checkpoint_tensor *dtrain_tensor_file_at(const dtrain_tensor_file *file, size_t index)
{
	if (!file)
		return NULL;
	return index < file->set.count ? &file->tensors[index] : NULL;
}

const char *dtrain_tensor_file_metadata(const dtrain_tensor_file *file, const char *key)
{
	if (!file || !key)
		return NULL;
	const char *text = NULL;
	for (size_t i = 0; i < file->file_count && !text; i++)
		text = json_string_value(json_object_get(file->files[i].metadata, key));
	return text;
}

const char *dtrain_tensor_file_absent(const dtrain_tensor_file *file, bool *incomplete)
{
	if (!file)
		return NULL;
	*incomplete = file->is_incomplete;
	return *file->absent ? file->absent : NULL;
}

/* ---- reading ---- */

static void widen(int dtype, const void *from, int64_t count, float *out)
{
	if (dtype == DTRAIN_F32)
		memcpy(out, from, (size_t)count * sizeof(*out));
	for (int64_t i = 0; i < count && dtype != DTRAIN_F32; i++)
		out[i] = dtype == DTRAIN_F64   ? (float)((const double *)from)[i]
			 : dtype == DTRAIN_F16 ? bt_widen_float16(((const uint16_t *)from)[i])
					       : bt_widen_bfloat16(((const uint16_t *)from)[i]);
}

/* Elements of a part, from position `at`. */
static int read_elements(const dtrain_tensor_file *self, const index_tensor *tensor, const index_part *part, int64_t at,
			 int64_t count, void *to, beton_error *err)
{
	uint64_t size = dtrain_dtype_size((dtrain_dtype)tensor->dtype);
	const safetensors_entry range = {
		.name = tensor->name, .offset = part->at + (uint64_t)at * size, .bytes = (uint64_t)count * size};
	return dtrain__safetensors_read(&self->files[part->file], &range, to, err);
}

/* The elements of a part follow each other in its file, and its runs in the tensor. */
static int read_part(const dtrain_tensor_file *self, const index_tensor *tensor, const index_part *part, char *window,
		     float *out, beton_error *err)
{
	int ndim = tensor->shape.ndim, status = BETON_OK;
	size_t size = dtrain_dtype_size((dtrain_dtype)tensor->dtype);
	int64_t left = dtrain__box_count(ndim, &part->box), read = 0, most = (int64_t)(WINDOW_BYTES / size), ready = 0;
	const char *next = window;
	checkpoint_box whole = {0};
	checkpoint_runs runs;
	memcpy(whole.extent, tensor->shape.dim, sizeof(whole.extent));
	dtrain__runs_begin(ndim, &part->box, &part->box, &whole, &runs);
	if (tensor->dtype == DTRAIN_F32 && runs.left == 1)
		return read_elements(self, tensor, part, 0, left, out + runs.to, err);
	do {
		for (int64_t done = 0, count; done < runs.count && status == BETON_OK; done += count) {
			if (!ready) {
				ready = left - read < most ? left - read : most;
				status = read_elements(self, tensor, part, read, ready, window, err);
				read += ready;
				next = window;
			}
			count = runs.count - done < ready ? runs.count - done : ready;
			if (status == BETON_OK)
				widen(tensor->dtype, next, count, out + runs.to + done);
			next += (size_t)count * size;
			ready -= count;
		}
	} while (status == BETON_OK && dtrain__runs_next(&runs));
	return status;
}

int dtrain_tensor_file_read(const dtrain_tensor_file *self, size_t index, float *out, beton_error *err)
{
	if (BT_MISSING(err, self, out))
		return BETON_INVALID_ARGUMENT;
	if (index >= self->set.count)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: has no tensor %zu", self->path, index);
	const index_tensor *tensor = &self->set.tensors[index];
	if (tensor->dtype != DTRAIN_F32 && tensor->dtype != DTRAIN_F64 && tensor->dtype != DTRAIN_F16 &&
	    tensor->dtype != DTRAIN_BF16)
		return bt_fail(err, BETON_UNSUPPORTED, "%s: tensor '%s' is %s, no floating-point type", self->path,
			       tensor->name, tensor->type);
	char *window = malloc(WINDOW_BYTES);
	int status =
		window ? BETON_OK
		       : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for tensor '%s'", self->path, tensor->name);
	for (size_t i = 0; i < tensor->part_count && status == BETON_OK; i++)
		status = read_part(self, tensor, &tensor->parts[i], window, out, err);
	free(window);
	return status;
}
