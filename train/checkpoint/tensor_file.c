/* SPDX-License-Identifier: Apache-2.0 */
#include <dtrain/tensor_file.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/half.h"
#include "common/system.h"
#include "safetensors.h"

struct dtrain_tensor_file {
	safetensors_file file;
	dtrain_checkpoint_tensor *tensors;
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

int dtrain_tensor_file_open(const char *path, dtrain_tensor_file **out, beton_error *err)
{
	*out = NULL;
	if (is_torch(path))
		return bt_fail(err, BETON_FORMAT,
			       "%s: is a file of torch.save, not a safetensors file; convert it in Python: "
			       "safetensors.torch.save_file(torch.load('FILE', weights_only=True), "
			       "'FILE.safetensors')",
			       path);
	dtrain_tensor_file *file = calloc(1, sizeof(*file));
	if (!file)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int status = dtrain__safetensors_open(&file->file, path, err);
	if (status == BETON_OK) {
		file->tensors = calloc(file->file.count + 1, sizeof(*file->tensors));
		if (!file->tensors)
			status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	}
	for (size_t i = 0; status == BETON_OK && i < file->file.count; i++) {
		const safetensors_entry *entry = &file->file.entries[i];
		file->tensors[i] =
			(dtrain_checkpoint_tensor){.name = entry->name, .dtype = entry->type, .shape = entry->shape};
	}
	if (status != BETON_OK) {
		dtrain_tensor_file_close(&file);
		return status;
	}
	*out = file;
	return BETON_OK;
}

void dtrain_tensor_file_close(dtrain_tensor_file **out)
{
	dtrain_tensor_file *file = *out;
	if (!file)
		return;
	dtrain__safetensors_close(&file->file);
	free(file->tensors);
	free(file);
	*out = NULL;
}

const dtrain_checkpoint_tensor *dtrain_tensor_file_at(const dtrain_tensor_file *file, size_t index)
{
	return index < file->file.count ? &file->tensors[index] : NULL;
}

const char *dtrain_tensor_file_metadata(const dtrain_tensor_file *file, const char *key)
{
	return json_string_value(json_object_get(file->file.metadata, key));
}

static void widen(dtrain_dtype dtype, const void *from, int64_t count, float *out)
{
	for (int64_t i = 0; i < count; i++)
		out[i] = dtype == DTRAIN_F64   ? (float)((const double *)from)[i]
			 : dtype == DTRAIN_F16 ? bt_widen_float16(((const uint16_t *)from)[i])
					       : bt_widen_bfloat16(((const uint16_t *)from)[i]);
}

int dtrain_tensor_file_read(const dtrain_tensor_file *file, size_t index, float *out, beton_error *err)
{
	const safetensors_entry *entry = index < file->file.count ? &file->file.entries[index] : NULL;
	if (!entry)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: has no tensor %zu", file->file.path, index);
	if ((int)entry->dtype == DTRAIN_F32)
		return dtrain__safetensors_read(&file->file, entry, out, err);
	if ((int)entry->dtype != DTRAIN_F64 && (int)entry->dtype != DTRAIN_F16 && (int)entry->dtype != DTRAIN_BF16)
		return bt_fail(err, BETON_UNSUPPORTED, "%s: tensor '%s' is %s, no floating-point type", file->file.path,
			       entry->name, entry->type);
	void *stored = malloc(entry->bytes + 1);
	if (!stored)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for tensor '%s'", file->file.path, entry->name);
	int status = dtrain__safetensors_read(&file->file, entry, stored, err);
	if (status == BETON_OK)
		widen(entry->dtype, stored, dtrain_shape_count(&entry->shape), out);
	free(stored);
	return status;
}
