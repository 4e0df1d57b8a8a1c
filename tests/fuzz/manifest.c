/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the manifest of a checkpoint: refused with a message, or an index whose parts lie in their files, and
 * are all of each tensor, each element once. And as the index of a model in several files: refused, or a list of
 * tensors whose files are names without a folder. And as the metadata of PyTorch's shards: refused, or boxes that are
 * all of a tensor, each element once. */
#include <stdlib.h>
#include <string.h>

#include "exercise.h"
#include "fuzz.h"
#include "train/checkpoint/folder.h"
#include "train/checkpoint/index.h"
#include "train/checkpoint/shards.h"
#include "train/checkpoint/weight_map.h"

enum { MOST_ELEMENTS = 4096 };

/* Elements of the tensor in the range that the parts have. */
static int64_t found_in_parts(const index_tensor *tensor, int64_t first, int64_t count)
{
	int ndim = tensor->shape.ndim;
	checkpoint_box whole = {{0}}, boxes[CHECKPOINT_BOXES_MAX], shared;
	int64_t found = 0;
	memcpy(whole.extent, tensor->shape.dim, sizeof(whole.extent));
	int made = dtrain__box_split(ndim, &whole, first, count, boxes);
	require(made >= 1 && made <= CHECKPOINT_BOXES_MAX, "a range has a few boxes");
	for (int i = 0; i < made; i++) {
		for (size_t k = 0; k < tensor->part_count; k++) {
			checkpoint_runs runs;
			const checkpoint_box *part = &tensor->parts[k].box;
			if (!dtrain__box_intersect(ndim, &boxes[i], part, &shared))
				continue;
			dtrain__runs_begin(ndim, &shared, part, &boxes[i], &runs);
			do {
				require(runs.from >= 0 && runs.from + runs.count <= dtrain__box_count(ndim, part),
					"a run lies in the part");
				require(runs.to >= 0 && runs.to + runs.count <= dtrain__box_count(ndim, &boxes[i]),
					"a run lies in what is read");
				found += runs.count;
			} while (dtrain__runs_next(&runs));
		}
	}
	return found;
}

static void check_parts(const index_tensor *tensor)
{
	int64_t all = dtrain_shape_count(&tensor->shape);
	if (!all || all > MOST_ELEMENTS)
		return;
	require(found_in_parts(tensor, 0, all) == all, "the parts are all of a tensor");
	require(found_in_parts(tensor, all / 3, all - all / 3) == all - all / 3, "and of a part of it");
}

static void check_tensor(const checkpoint_index *index, const index_tensor *tensor)
{
	require(dtrain_shape_count(&tensor->shape) > 0, "a tensor has elements");
	for (size_t i = 0; i < tensor->part_count; i++) {
		const index_part *part = &tensor->parts[i];
		uint64_t bytes = (uint64_t)dtrain__box_count(tensor->shape.ndim, &part->box) *
				 dtrain_dtype_size((dtrain_dtype)tensor->dtype);
		require(part->file < index->file_count, "a part is in a file");
		require(part->at <= index->files[part->file].digest.size &&
				bytes <= index->files[part->file].digest.size - part->at,
			"a part lies in its file");
	}
	check_parts(tensor);
}

/* The tensors a and b are boxes of one, and c and d of another. */
static void try_sharding(const char *text, size_t size)
{
	static safetensors_entry entries[] = {
		{.name = "a", .dtype = DTRAIN_F32, .shape = {2, {2, 3}}},
		{.name = "b", .dtype = DTRAIN_F32, .shape = {2, {1, 3}}},
		{.name = "c", .dtype = DTRAIN_U8, .shape = {1, {4}}},
		{.name = "d", .dtype = DTRAIN_U8, .shape = {1, {0}}},
	};
	enum { ENTRIES = sizeof(entries) / sizeof(entries[0]) };
	json_t *given = json_stringn(text, size), *info = NULL;
	safetensors_file file = {.path = (char *)"fuzz", .count = ENTRIES, .entries = entries};
	shard_part parts[ENTRIES];
	beton_error err = {0};
	if (!given)
		return;
	for (int i = 0; i < ENTRIES; i++)
		entries[i].type = dtrain__safetensors_type(entries[i].dtype);
	file.metadata = json_pack("{s:o}", "DCP_SHARDING_INFO", given);
	int result = dtrain__shards_info(&file, &info, &err);
	for (int i = 0; i < ENTRIES && result == BETON_OK; i++) {
		parts[i] = (shard_part){.entry = &entries[i]};
		result = dtrain__shards_place(&file, info, &parts[i], &err);
	}
	for (int i = 0; i < ENTRIES && result == BETON_OK; i += 2) {
		struct index_set set = {.tensors = calloc(1, sizeof(*set.tensors)), .count = 1};
		require(set.tensors != NULL, "there is memory");
		result = dtrain__shards_join("fuzz", &file, "absent", &parts[i], 2, set.tensors, &err);
		if (result == BETON_OK)
			check_parts(set.tensors);
		dtrain__index_free_set(&set);
	}
	require(result == BETON_OK ||
			(result == BETON_FORMAT && err.code == result && strncmp(err.message, "fuzz: ", 6) == 0),
		"metadata that is refused says why");
	json_decref(info);
	json_decref(file.metadata);
}

static void try_weight_map(const char *text, size_t size)
{
	weight_map map;
	beton_error err = {0};
	int result = dtrain__weight_map_parse(&map, "fuzz", text, size, &err);
	if (result != BETON_OK) {
		require(result == BETON_FORMAT && err.code == result && strncmp(err.message, "fuzz: ", 6) == 0,
			"an index that is refused says why");
		require(!map.names && !map.weights && !map.count, "nothing is left of it");
		return;
	}
	require(map.count > 0, "an index has tensors");
	for (size_t i = 0; i < map.count; i++) {
		const struct weight *weight = &map.weights[i], *before = i ? weight - 1 : NULL;
		require(*weight->file && !strchr(weight->file, '/') && strcmp(weight->file, "..") != 0,
			"a file is a name");
		int order = before ? strcmp(before->file, weight->file) : -1;
		require(order < 0 || (order == 0 && strcmp(before->name, weight->name) < 0),
			"each tensor is there once");
	}
	dtrain__weight_map_free(&map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	checkpoint_index index = {0};
	beton_error err = {0};
	try_weight_map((const char *)data, size);
	try_sharding((const char *)data, size);
	int result = dtrain__index_from_manifest(&index, "fuzz", (const char *)data, size, &err);
	if (result != BETON_OK) {
		require(result == BETON_FORMAT && err.code == result && strncmp(err.message, "fuzz: ", 6) == 0,
			"a manifest that is refused says why");
		require(!index.files && !index.sets[0].tensors && !index.sets[1].tensors, "nothing is left of it");
		return 0;
	}
	for (size_t i = 0; i < index.file_count; i++) {
		checkpoint_shard shard;
		require(dtrain__shard_name_parse(index.files[i].name, &shard), "a file is a shard of the folder");
		require(index.files[i].digest.count ==
				dtrain__digest_chunks(index.files[i].digest.size, index.files[i].digest.chunk_bytes),
			"each chunk has a checksum");
	}
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++)
		for (size_t i = 0; i < index.sets[set].count; i++) {
			const index_tensor *tensor = &index.sets[set].tensors[i];
			require(dtrain__index_find(&index.sets[set], tensor->name) == tensor, "a tensor is found");
			check_tensor(&index, tensor);
		}
	dtrain__index_free(&index);
	return 0;
}
