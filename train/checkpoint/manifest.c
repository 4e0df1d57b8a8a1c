/* SPDX-License-Identifier: Apache-2.0 */
#include "manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/system.h"
#include "core/shape.h"
#include "folder.h"
#include "index.h"
#include "safetensors.h"
#include "state.h"

/* ---- writing ---- */

json_t *dtrain__manifest_new(void)
{
	return json_pack("{s:I, s:[], s:{}, s:{}}", "chunk_bytes", (json_int_t)CHECKPOINT_CHUNK_BYTES, "files",
			 dtrain__set_names[DTRAIN_CHECKPOINT_MODEL], dtrain__set_names[DTRAIN_CHECKPOINT_OPTIMIZER]);
}

bool dtrain__manifest_add_file(json_t *manifest, const char *name, const checkpoint_digest *digest)
{
	json_t *hashes = json_array();
	bool complete = hashes != NULL;
	for (size_t i = 0; i < digest->count && complete; i++)
		complete = json_array_append_new(hashes, dtrain__hash_to_json(digest->hashes[i])) == 0;
	json_t *file = json_pack("{s:s, s:I, s:o}", "name", name, "size", (json_int_t)digest->size, "xxh3", hashes);
	return json_array_append_new(json_object_get(manifest, "files"), file) == 0 && complete;
}

static json_t *numbers(int count, const int64_t *values)
{
	json_t *out = json_array();
	for (int i = 0; i < count && out; i++)
		if (json_array_append_new(out, json_integer(values[i])) != 0) {
			json_decref(out);
			out = NULL;
		}
	return out;
}

/* The tensor's entry; if missing, `made` becomes the entry. Takes ownership of made. */
static json_t *entry_of(json_t *manifest, const char *set, const char *name, json_t *made)
{
	json_t *tensors = json_object_get(manifest, set), *entry = json_object_get(tensors, name);
	if (entry) {
		json_decref(made);
		return entry;
	}
	return json_object_set_new(tensors, name, made) == 0 ? made : NULL;
}

bool dtrain__manifest_add_part(json_t *manifest, int set, const char *name, dtrain_dtype dtype,
			       const dtrain_shape *shape, size_t file, uint64_t at, const checkpoint_box *box)
{
	json_t *made = json_pack("{s:s, s:o, s:[]}", "dtype", dtrain__safetensors_type(dtype), "shape",
				 numbers(shape->ndim, shape->dim), "parts");
	json_t *part = json_pack("[I, I, o, o]", (json_int_t)file, (json_int_t)at, numbers(shape->ndim, box->offset),
				 numbers(shape->ndim, box->extent));
	json_t *entry = entry_of(manifest, dtrain__set_names[set], name, made);
	return json_array_append_new(json_object_get(entry, "parts"), part) == 0;
}

static bool join_tensor(json_t *manifest, const char *set, const char *name, const json_t *theirs, size_t base)
{
	json_t *made = json_pack("{s:O?, s:O?, s:[]}", "dtype", json_object_get(theirs, "dtype"), "shape",
				 json_object_get(theirs, "shape"), "parts");
	json_t *parts = json_object_get(entry_of(manifest, set, name, made), "parts"), *part;
	size_t i;
	json_array_foreach(json_object_get(theirs, "parts"), i, part)
	{
		json_int_t file = json_integer_value(json_array_get(part, 0)) + (json_int_t)base;
		if (json_array_set_new(part, 0, json_integer(file)) != 0 || json_array_append(parts, part) != 0)
			return false;
	}
	return true;
}

bool dtrain__manifest_join(json_t *manifest, const json_t *other)
{
	json_t *files = json_object_get(manifest, "files");
	size_t base = json_array_size(files);
	if (json_array_extend(files, json_object_get(other, "files")) != 0)
		return false;
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++) {
		const char *name;
		json_t *theirs;
		json_object_foreach(json_object_get(other, dtrain__set_names[set]), name, theirs)
		{
			if (!join_tensor(manifest, dtrain__set_names[set], name, theirs, base))
				return false;
		}
	}
	return true;
}

/* ---- reading ---- */

static bool take_number(const json_t *value, int64_t least, int64_t most, int64_t *out)
{
	*out = json_integer_value(value);
	return json_is_integer(value) && *out >= least && *out <= most;
}

static bool take_numbers(const json_t *array, int count, int64_t least, int64_t *out)
{
	bool good = json_is_array(array) && json_array_size(array) == (size_t)count;
	for (int i = 0; i < count && good; i++)
		good = take_number(json_array_get(array, (size_t)i), least, DTRAIN__MAX_ELEMENTS, &out[i]);
	return good;
}

static int parse_file(checkpoint_index *index, const json_t *file, uint64_t chunk_bytes, beton_error *err)
{
	const char *name = json_string_value(json_object_get(file, "name"));
	const json_t *hashes = json_object_get(file, "xxh3");
	checkpoint_shard shard;
	int64_t size;
	if (!name || !dtrain__shard_name_parse(name, &shard))
		return bt_fail(err, BETON_FORMAT, "file %zu has no name that a shard has", index->file_count);
	if (!take_number(json_object_get(file, "size"), 1, INT64_MAX, &size) || !json_is_array(hashes) ||
	    json_array_size(hashes) != dtrain__digest_chunks((uint64_t)size, chunk_bytes))
		return bt_fail(err, BETON_FORMAT, "size and hashes of %s do not fit each other", name);
	int status = dtrain__index_add_file(index, name, err);
	if (status != BETON_OK)
		return status;
	checkpoint_digest *digest = &index->files[index->file_count - 1].digest;
	*digest = (checkpoint_digest){.size = (uint64_t)size,
				      .chunk_bytes = chunk_bytes,
				      .count = json_array_size(hashes),
				      .hashes = calloc(json_array_size(hashes), sizeof(uint64_t))};
	if (!digest->hashes)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for checksums");
	for (size_t i = 0; i < digest->count; i++)
		if (!dtrain__hash_from_json(json_array_get(hashes, i), &digest->hashes[i]))
			return bt_fail(err, BETON_FORMAT, "hash %zu of %s is none", i, name);
	return BETON_OK;
}

static int parse_part(const checkpoint_index *index, const index_tensor *tensor, const json_t *value, index_part *out,
		      beton_error *err)
{
	int ndim = tensor->shape.ndim;
	int64_t file, at;
	bool good = json_array_size(value) == 4 &&
		    take_number(json_array_get(value, 0), 0, (int64_t)index->file_count - 1, &file) &&
		    take_number(json_array_get(value, 1), 0, INT64_MAX, &at) &&
		    take_numbers(json_array_get(value, 2), ndim, 0, out->box.offset) &&
		    take_numbers(json_array_get(value, 3), ndim, 1, out->box.extent);
	for (int i = 0; i < ndim && good; i++)
		good = out->box.offset[i] + out->box.extent[i] <= tensor->shape.dim[i];
	if (!good)
		return bt_fail(err, BETON_FORMAT, "tensor '%s' has a part that is none", tensor->name);
	uint64_t bytes = (uint64_t)dtrain__box_count(ndim, &out->box) * dtrain_dtype_size((dtrain_dtype)tensor->dtype);
	out->file = (size_t)file;
	out->at = (uint64_t)at;
	if (out->at > index->files[file].digest.size || bytes > index->files[file].digest.size - out->at)
		return bt_fail(err, BETON_FORMAT, "tensor '%s' has a part past the end of %s", tensor->name,
			       index->files[file].name);
	return BETON_OK;
}

static int check_cover(const checkpoint_index *index, index_tensor *tensor, beton_error *err)
{
	size_t clash[2];
	int64_t all = dtrain_shape_count(&tensor->shape), covered = dtrain__index_cover(tensor, clash);
	if (covered < 0)
		return bt_fail(err, BETON_FORMAT, "tensor '%s' has parts in %s and %s that overlap", tensor->name,
			       index->files[tensor->parts[clash[0]].file].name,
			       index->files[tensor->parts[clash[1]].file].name);
	if (covered != all)
		return bt_fail(err, BETON_FORMAT, "tensor '%s': %" PRId64 " of its %" PRId64 " elements are in no file",
			       tensor->name, all - covered, all);
	return BETON_OK;
}

static int parse_tensor(const checkpoint_index *index, const char *name, const json_t *value, index_tensor *out,
			beton_error *err)
{
	const char *type = json_string_value(json_object_get(value, "dtype"));
	const json_t *shape = json_object_get(value, "shape"), *parts = json_object_get(value, "parts");
	int status = BETON_OK;
	out->name = strdup(name);
	if (!out->name)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the names of tensors");
	out->dtype = type ? dtrain__safetensors_dtype(type) : -1;
	if (out->dtype < 0)
		return bt_fail(err, BETON_FORMAT, "tensor '%s' has no dtype of dtrain's", name);
	out->type = dtrain__safetensors_type((dtrain_dtype)out->dtype);
	out->shape.ndim = json_array_size(shape) <= DTRAIN_MAX_DIMS ? (int32_t)json_array_size(shape) : 0;
	if (!take_numbers(shape, out->shape.ndim, 1, out->shape.dim) || !dtrain__shape_valid(&out->shape))
		return bt_fail(err, BETON_FORMAT, "tensor '%s' has no shape", name);
	out->parts = calloc(json_array_size(parts) + 1, sizeof(*out->parts));
	if (!out->parts)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the parts of tensors");
	for (size_t i = 0; i < json_array_size(parts) && status == BETON_OK; i++)
		status = parse_part(index, out, json_array_get(parts, i), &out->parts[out->part_count++], err);
	return status == BETON_OK ? check_cover(index, out, err) : status;
}

static int compare_tensors(const void *a, const void *b)
{
	return strcmp(((const index_tensor *)a)->name, ((const index_tensor *)b)->name);
}

static int parse_set(checkpoint_index *index, int set, const json_t *tensors, beton_error *err)
{
	struct index_set *out = &index->sets[set];
	const char *name;
	json_t *value;
	if (!json_is_object(tensors))
		return bt_fail(err, BETON_FORMAT, "the list of tensors of the %s is missing", dtrain__set_names[set]);
	out->tensors = calloc(json_object_size(tensors) + 1, sizeof(*out->tensors));
	if (!out->tensors)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the tensors");
	json_object_foreach((json_t *)tensors, name, value)
	{
		int status = parse_tensor(index, name, value, &out->tensors[out->count++], err);
		if (status != BETON_OK)
			return status;
	}
	qsort(out->tensors, out->count, sizeof(*out->tensors), compare_tensors);
	out->known = true;
	return BETON_OK;
}

static int parse(checkpoint_index *index, const json_t *manifest, beton_error *err)
{
	const json_t *files = json_object_get(manifest, "files");
	int64_t chunk_bytes;
	int status = BETON_OK;
	if (!take_number(json_object_get(manifest, "chunk_bytes"), 1, INT64_MAX, &chunk_bytes) || !json_is_array(files))
		return bt_fail(err, BETON_FORMAT, "is not the manifest of a checkpoint");
	for (size_t i = 0; i < json_array_size(files) && status == BETON_OK; i++)
		status = parse_file(index, json_array_get(files, i), (uint64_t)chunk_bytes, err);
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS && status == BETON_OK; set++)
		status = parse_set(index, set, json_object_get(manifest, dtrain__set_names[set]), err);
	return status;
}

int dtrain__index_from_manifest(checkpoint_index *index, const char *path, const char *text, size_t size,
				beton_error *err)
{
	json_error_t problem;
	json_t *manifest = json_loadb(text, size, JSON_REJECT_DUPLICATES, &problem);
	int status =
		manifest ? parse(index, manifest, err) : bt_fail(err, BETON_FORMAT, "is not JSON: %s", problem.text);
	if (status != BETON_OK) {
		bt_prefix(err, "%s", path);
		dtrain__index_free(index);
	}
	json_decref(manifest);
	return status;
}
