/* SPDX-License-Identifier: Apache-2.0 */
#include "shards.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/system.h"
#include "core/shape.h"

#define VERSION "1.0"

/* ---- the folder ---- */

static int is_of_model(const struct dirent *item)
{
	checkpoint_shard shard;
	return dtrain__shard_name_parse(item->d_name, &shard) && shard.set == DTRAIN_CHECKPOINT_MODEL;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

int dtrain__shards_list(const char *folder, char ***names, size_t *count, beton_error *err)
{
	struct dirent **items = NULL;
	int found = scandir(folder, &items, is_of_model, by_name);
	*names = NULL;
	*count = 0;
	if (found < 0)
		return bt_fail_errno(err, errno, "%s: cannot list", folder);
	int status = BETON_OK;
	*names = calloc((size_t)found + 1, sizeof(**names));
	if (!*names)
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", folder);
	else if (!found)
		status = bt_fail(err, BETON_NOT_FOUND,
				 "%s: has no shards; they are called shard-00001-model-00001-of-00001.safetensors",
				 folder);
	for (int i = 0; i < found; i++) {
		if (status == BETON_OK && !((*names)[i] = strdup(items[i]->d_name)))
			status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", folder);
		free(items[i]);
	}
	free(items);
	*count = (size_t)found;
	if (status != BETON_OK) {
		dtrain__shards_list_free(*names, *count);
		*names = NULL;
		*count = 0;
	}
	return status;
}

void dtrain__shards_list_free(char **names, size_t count)
{
	for (size_t i = 0; i < count && names; i++)
		free(names[i]);
	free(names);
}

bool dtrain__shards_absent(char *const *names, size_t count, char absent[CHECKPOINT_SHARD_NAME])
{
	checkpoint_shard next = {.count = 1}, shard;
	size_t i = 0;
	for (; i < count && dtrain__shard_name_parse(names[i], &shard); i++) {
		if (i == 0)
			next.count = shard.count;
		if (shard.rank != next.rank || shard.index != next.index)
			break;
		/* A rank's last file is followed by the next rank's first. */
		bool last = shard.index + 1 >= shard.count;
		next = (checkpoint_shard){
			.rank = shard.rank + last, .index = last ? 0 : shard.index + 1, .count = shard.count};
	}
	dtrain__shard_name(absent, next.rank, DTRAIN_CHECKPOINT_MODEL, next.index, next.count);
	return i < count || next.index > 0;
}

/* ---- a file ---- */

static const char *metadata_text(const safetensors_file *file, const char *key)
{
	return json_string_value(json_object_get(file->metadata, key));
}

int dtrain__shards_info(const safetensors_file *file, json_t **info, beton_error *err)
{
	const char *text = metadata_text(file, "DCP_SHARDING_INFO"), *version = metadata_text(file, "DCP_VERSION");
	json_error_t problem;
	*info = NULL;
	if (!text)
		return BETON_OK;
	if (version && strcmp(version, VERSION) != 0)
		return bt_fail(err, BETON_UNSUPPORTED, "%s: DCP_VERSION is '%s', not " VERSION, file->path, version);
	*info = json_loads(text, JSON_REJECT_DUPLICATES, &problem);
	if (!*info)
		return bt_fail(err, BETON_FORMAT, "%s: DCP_SHARDING_INFO is not JSON: %s", file->path, problem.text);
	if (json_is_object(*info))
		return BETON_OK;
	json_decref(*info);
	*info = NULL;
	return bt_fail(err, BETON_FORMAT, "%s: DCP_SHARDING_INFO is not an object", file->path);
}

int dtrain__shards_place(const safetensors_file *file, const json_t *info, shard_part *part, beton_error *err)
{
	const safetensors_entry *entry = part->entry;
	const json_t *offsets = json_object_get(json_object_get(info, entry->name), "saved_offsets");
	part->box = (checkpoint_box){0};
	memcpy(part->box.extent, entry->shape.dim, sizeof(part->box.extent));
	if (!info)
		return BETON_OK;
	if (!json_is_array(offsets))
		return bt_fail(err, BETON_FORMAT, "%s: tensor '%s' has no saved_offsets in DCP_SHARDING_INFO",
			       file->path, entry->name);
	if (json_array_size(offsets) != (size_t)entry->shape.ndim)
		return bt_fail(err, BETON_FORMAT, "%s: tensor '%s' has %zu saved_offsets, but %d dimensions",
			       file->path, entry->name, json_array_size(offsets), (int)entry->shape.ndim);
	for (int i = 0; i < entry->shape.ndim; i++) {
		const json_t *offset = json_array_get(offsets, (size_t)i);
		json_int_t value = json_integer_value(offset);
		if (!json_is_integer(offset) || value < 0 || value > DTRAIN__MAX_ELEMENTS) {
			char *text = json_dumps(offset, JSON_ENCODE_ANY | JSON_COMPACT);
			int status =
				bt_fail(err, BETON_FORMAT,
					"%s: tensor '%s': saved_offsets[%d] is %s, not a number from 0 to %" PRId64,
					file->path, entry->name, i, text ? text : "?", DTRAIN__MAX_ELEMENTS);
			free(text);
			return status;
		}
		part->box.offset[i] = value;
	}
	return BETON_OK;
}

/* ---- all files ---- */

static const char *name_of(const safetensors_file *file)
{
	const char *slash = strrchr(file->path, '/');
	return slash ? slash + 1 : file->path;
}

/* "[3, 5] at [6, 0]" */
static const char *box_text(int ndim, const checkpoint_box *box, char text[2 * DTRAIN__SHAPE_TEXT])
{
	char extent[DTRAIN__SHAPE_TEXT], offset[DTRAIN__SHAPE_TEXT];
	dtrain_shape shape = dtrain_shape_of(ndim, box->extent), begin = dtrain_shape_of(ndim, box->offset);
	*text = 0;
	bt_append(text, 2 * DTRAIN__SHAPE_TEXT, "%s at %s", dtrain__shape_text(&shape, extent),
		  dtrain__shape_text(&begin, offset));
	return text;
}

/* Finds the tensor's shape, and keeps the parts that have elements. */
static int add_part(const char *path, const safetensors_file *files, const shard_part *first, const shard_part *part,
		    index_tensor *out, beton_error *err)
{
	const safetensors_entry *entry = part->entry;
	int ndim = out->shape.ndim;
	bool empty = false;
	if (entry->type != out->type)
		return bt_fail(err, BETON_FORMAT, "%s: tensor '%s' is %s in %s and %s in %s", path, out->name,
			       out->type, name_of(&files[first->file]), entry->type, name_of(&files[part->file]));
	if (entry->shape.ndim != ndim)
		return bt_fail(err, BETON_FORMAT, "%s: tensor '%s' has %d dimensions in %s and %d in %s", path,
			       out->name, ndim, name_of(&files[first->file]), (int)entry->shape.ndim,
			       name_of(&files[part->file]));
	for (int i = 0; i < ndim; i++) {
		int64_t end;
		if (__builtin_add_overflow(part->box.offset[i], part->box.extent[i], &end))
			return bt_fail(err, BETON_FORMAT, "%s: tensor '%s' is too large in %s", path, out->name,
				       name_of(&files[part->file]));
		out->shape.dim[i] = end > out->shape.dim[i] ? end : out->shape.dim[i];
		empty = empty || !part->box.extent[i];
	}
	if (!empty)
		out->parts[out->part_count++] = (index_part){.file = part->file, .at = entry->offset, .box = part->box};
	return BETON_OK;
}

static int count_elements(const dtrain_shape *shape, int64_t *count)
{
	bool empty = false, overflow = false;
	*count = 1;
	for (int i = 0; i < shape->ndim; i++) {
		empty = empty || !shape->dim[i];
		overflow = overflow || __builtin_mul_overflow(*count, shape->dim[i], count);
	}
	*count = empty ? 0 : *count;
	return overflow && !empty ? -1 : 0;
}

static int check_cover(const char *path, const safetensors_file *files, const char *absent, index_tensor *tensor,
		       beton_error *err)
{
	char shape[DTRAIN__SHAPE_TEXT], texts[2][2 * DTRAIN__SHAPE_TEXT];
	size_t clash[2];
	int64_t all, covered;
	dtrain__shape_text(&tensor->shape, shape);
	if (count_elements(&tensor->shape, &all) != 0)
		return bt_fail(err, BETON_FORMAT, "%s: tensor '%s' has shape %s, which is too large", path,
			       tensor->name, shape);
	covered = dtrain__index_cover(tensor, clash);
	if (covered < 0) {
		const index_part *a = &tensor->parts[clash[0]], *b = &tensor->parts[clash[1]];
		return bt_fail(
			err, BETON_FORMAT,
			"%s: tensor '%s' has a part of %s in %s and one of %s in %s, which overlap: the files come "
			"from different checkpoints",
			path, tensor->name, box_text(tensor->shape.ndim, &a->box, texts[0]), name_of(&files[a->file]),
			box_text(tensor->shape.ndim, &b->box, texts[1]), name_of(&files[b->file]));
	}
	if (covered == all)
		return BETON_OK;
	if (!absent)
		return bt_fail(err, BETON_FORMAT,
			       "%s: has only a part of tensor '%s' %s; a folder of shards opens whole", path,
			       tensor->name, shape);
	return bt_fail(err, BETON_FORMAT,
		       "%s: tensor '%s' %s: %" PRId64 " of its %" PRId64
		       " elements are in no file; the first shard that is "
		       "not there is %s",
		       path, tensor->name, shape, all - covered, all, absent);
}

int dtrain__shards_join(const char *path, const safetensors_file *files, const char *absent, const shard_part *parts,
			size_t count, index_tensor *out, beton_error *err)
{
	const safetensors_entry *entry = parts->entry;
	int status = BETON_OK;
	*out = (index_tensor){.name = strdup(entry->name),
			      .dtype = (int)entry->dtype,
			      .type = entry->type,
			      .shape = {.ndim = entry->shape.ndim},
			      .parts = calloc(count, sizeof(*out->parts))};
	if (!out->name || !out->parts)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	for (size_t i = 0; i < count && status == BETON_OK; i++)
		status = add_part(path, files, parts, &parts[i], out, err);
	return status == BETON_OK ? check_cover(path, files, absent, out, err) : status;
}
