/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of any cut, written by some ranks and read by others. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <dtrain/tensor_file.h>
#include <jansson.h>

#include "tests/support/temporary.h"
#include "checkpoint/safetensors.h"
#include "common/error.h"
#include "cuts.h"
#include "world.h"

#define STEP "c/step-000000000120"

struct job {
	enum cut_kind kind;
	int size;
	int seed;
};

static const struct job savers[] = {
	{CUT_WHOLE, 1, 1},     {CUT_WHOLE, 3, 1}, {CUT_FLAT, 1, 1},      {CUT_FLAT, 2, 1},    {CUT_FLAT, 3, 1},
	{CUT_FLAT, 5, 1},      {CUT_EMPTY, 5, 1}, {CUT_ROWS, 3, 1},      {CUT_COLUMNS, 2, 1}, {CUT_GRID, 4, 1},
	{CUT_GRID_FLAT, 4, 1}, {CUT_TWICE, 4, 1}, {CUT_OPTIMIZER, 2, 1}, {CUT_STAGES, 3, 1},
};
static const struct job loaders[] = {
	{CUT_WHOLE, 1, 1}, {CUT_FLAT, 2, 1},    {CUT_FLAT, 4, 1},      {CUT_EMPTY, 7, 1},
	{CUT_ROWS, 2, 1},  {CUT_COLUMNS, 3, 1}, {CUT_GRID_FLAT, 6, 1}, {CUT_OPTIMIZER, 3, 1},
};
enum { SAVERS = sizeof(savers) / sizeof(savers[0]), LOADERS = sizeof(loaders) / sizeof(loaders[0]) };

static int start(void **state)
{
	(void)state;
	temporary_remove("c");
	return 0;
}

static int save_cut(const struct cut *cut, int64_t step, int keep, const dtrain_checkpoint_ranks *ranks,
		    beton_error *err)
{
	const dtrain_checkpoint_content content = {.struct_size = sizeof(content),
						   .step = step,
						   .sets = {cut->lists[0], cut->lists[1]},
						   .state = ranks && ranks->rank ? NULL : "{\"of\": \"a test\"}"};
	return dtrain_checkpoint_save("c", keep, &content, ranks, err);
}

static int save(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	const struct job *job = context;
	struct cut cut;
	cut_make(&cut, job->kind, ranks->rank, ranks->size);
	cut_fill(&cut, job->seed);
	return save_cut(&cut, 120, 0, ranks, err);
}

static int load(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	const struct job *job = context;
	dtrain_checkpoint *checkpoint;
	struct cut cut;
	cut_make(&cut, job->kind, ranks->rank, ranks->size);
	int result = dtrain_checkpoint_open(STEP, ranks, &checkpoint, err);
	if (result == BETON_OK && !strstr(dtrain_checkpoint_state(checkpoint), "\"of\":\"a test\""))
		result = bt_fail(err, BETON_DIVERGED, "the state is %s", dtrain_checkpoint_state(checkpoint));
	if (result == BETON_OK)
		result = dtrain_checkpoint_load(
			checkpoint, (const dtrain_checkpoint_list *const[]){&cut.lists[0], &cut.lists[1]}, NULL, err);
	dtrain_checkpoint_close(&checkpoint);
	if (result == BETON_OK && !cut_is_filled(&cut, job->seed, err))
		result = err->code;
	return result;
}

static void must_be_equal(const char *a, const char *b)
{
	char command[300];
	snprintf(command, sizeof(command), "cmp %s %s", a, b);
	assert_int_equal(system(command), 0);
}

static int count_in(const char *folder, const char *pattern)
{
	char command[300];
	int count = -1;
	snprintf(command, sizeof(command), "ls -A %s | grep -cE '%s'", folder, pattern);
	FILE *pipe = popen(command, "r");
	assert_non_null(pipe);
	assert_int_equal(fscanf(pipe, "%d", &count), 1);
	pclose(pipe);
	return count;
}

/* The number of files. */
static int export_set(enum dtrain_checkpoint_set set, uint64_t most, const char *file)
{
	dtrain_checkpoint *checkpoint;
	dtrain_checkpoint_export_options options;
	beton_error err;
	int files;
	dtrain_checkpoint_export_options_init(&options);
	options.set = set;
	options.max_file_bytes = most;
	assert_int_equal(dtrain_checkpoint_open(STEP, NULL, &checkpoint, &err), BETON_OK);
	if (dtrain_checkpoint_export(checkpoint, &options, file, &files, &err) != BETON_OK)
		fail_msg("%s", err.message);
	dtrain_checkpoint_close(&checkpoint);
	return files;
}

/* Saved by any ranks, it is always the same as one file. */
static void any_cut_opens_any_other(void **state)
{
	(void)state;
	for (int s = 0; s < SAVERS; s++) {
		struct job saver = savers[s];
		temporary_remove("c");
		world_must(saver.size, save, &saver);
		assert_int_equal(count_in("c", ""), 1);
		/* Each with the first, and with every second of the others. */
		for (int l = 0; l < LOADERS; l += l ? 2 : 1 + s % 2) {
			struct job loader = loaders[l];
			world_must(loader.size, load, &loader);
		}
		export_set(DTRAIN_CHECKPOINT_MODEL, 0, s ? "other.model" : "model");
		export_set(DTRAIN_CHECKPOINT_OPTIMIZER, 0, s ? "other.optimizer" : "optimizer");
		if (s) {
			must_be_equal("model", "other.model");
			must_be_equal("optimizer", "other.optimizer");
		} else {
			must_be_equal("model", STEP "/model.safetensors");
			must_be_equal("optimizer", STEP "/optimizer.safetensors");
		}
	}
}

/* The parts have the tensors of `whole`, each of them once. Returns the bytes of the largest part whose tensors are
 * more than one. */
static uint64_t compare_parts(const safetensors_file *whole, int parts)
{
	uint64_t largest = 0;
	size_t found = 0;
	for (int i = 0; i < parts; i++) {
		safetensors_file part;
		uint64_t sum = 0;
		char *path = dtrain_checkpoint_export_path("parts.safetensors", i, parts);
		assert_int_equal(dtrain__safetensors_open(&part, path, NULL), BETON_OK);
		free(path);
		for (size_t k = 0; k < part.count; k++) {
			const safetensors_entry *one = &part.entries[k];
			const safetensors_entry *other = dtrain__safetensors_find(whole, one->name);
			assert_non_null(other);
			assert_int_equal(one->bytes, other->bytes);
			assert_string_equal(one->type, other->type);
			void *mine = malloc(one->bytes + 1), *theirs = malloc(one->bytes + 1);
			assert_int_equal(dtrain__safetensors_read(&part, one, mine, NULL), BETON_OK);
			assert_int_equal(dtrain__safetensors_read(whole, other, theirs, NULL), BETON_OK);
			assert_memory_equal(mine, theirs, one->bytes);
			free(mine);
			free(theirs);
			sum += one->bytes;
		}
		found += part.count;
		if (part.count > 1 && sum > largest)
			largest = sum;
		dtrain__safetensors_close(&part);
	}
	assert_int_equal(found, whole->count);
	return largest;
}

static void several_files_have_the_tensors_of_one(void **state)
{
	(void)state;
	/* Tensors of 64, 140, 11, 120, 8 and 96 bytes. */
	static const struct {
		uint64_t most;
		int files;
	} cases[] = {{1, 6}, {100, 6}, {139, 4}, {150, 4}, {215, 3}, {300, 2}, {438, 2}, {439, 1}, {UINT64_MAX, 1}};
	struct job saver = {CUT_FLAT, 3, 1};
	world_must(saver.size, save, &saver);
	export_set(DTRAIN_CHECKPOINT_MODEL, 0, "whole.safetensors");
	safetensors_file whole;
	assert_int_equal(dtrain__safetensors_open(&whole, "whole.safetensors", NULL), BETON_OK);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		dtrain_tensor_file *opened;
		size_t count = 0;
		int parts = export_set(DTRAIN_CHECKPOINT_MODEL, cases[i].most, "parts.safetensors");
		assert_int_equal(parts, cases[i].files);
		assert_true(compare_parts(&whole, parts) <= cases[i].most);
		if (parts == 1)
			continue;
		assert_int_equal(dtrain_tensor_file_open("parts.safetensors.index.json", &opened, NULL), BETON_OK);
		while (dtrain_tensor_file_at(opened, count))
			count++;
		assert_int_equal(count, whole.count);
		dtrain_tensor_file_close(&opened);
	}
	dtrain__safetensors_close(&whole);
}

/* Without shards: the three files, for any number of ranks. */
static void whole_tensors_make_one_file_each(void **state)
{
	(void)state;
	struct job saver = {CUT_WHOLE, 3, 1};
	world_must(saver.size, save, &saver);
	assert_int_equal(count_in(STEP, ""), 3);
	assert_int_equal(count_in(STEP, "^(model.safetensors|optimizer.safetensors|state.json)$"), 3);
	/* And one after the other of different forms: what was there is gone with its files. */
	saver = (struct job){CUT_FLAT, 3, 1};
	world_must(saver.size, save, &saver);
	assert_int_equal(count_in(STEP, "^(model|optimizer)"), 0);
	assert_int_equal(count_in(STEP, "^manifest.json$"), 1);
	assert_true(count_in(STEP, "^shard-0000[123]-(model|optimizer)-0000[1-9]-of-0000[1-9].safetensors$") >= 6);
	saver = (struct job){CUT_WHOLE, 2, 1};
	world_must(saver.size, save, &saver);
	assert_int_equal(count_in(STEP, ""), 3);
	assert_int_equal(count_in("c", ""), 1);
}

/* The bytes of tensors in the files of a rank. */
static uint64_t bytes_of_rank(int rank)
{
	char command[200], path[300];
	uint64_t bytes = 0;
	snprintf(command, sizeof(command), "ls " STEP "/shard-%05d-*", rank + 1);
	FILE *pipe = popen(command, "r");
	assert_non_null(pipe);
	while (fscanf(pipe, "%299s", path) == 1) {
		safetensors_file file;
		beton_error err;
		if (dtrain__safetensors_open(&file, path, &err) != BETON_OK)
			fail_msg("%s", err.message);
		for (size_t i = 0; i < file.count; i++)
			bytes += file.entries[i].bytes;
		dtrain__safetensors_close(&file);
	}
	pclose(pipe);
	return bytes;
}

static void copies_are_written_once_and_shared_out(void **state)
{
	(void)state;
	uint64_t all = 2 * (35 * 4 + 16 * 4 + 60 * 2 + 8 + 12 * 8 + 11), sum = 0;
	struct job saver = {CUT_TWICE, 4, 1};
	world_must(saver.size, save, &saver);
	for (int rank = 0; rank < 4; rank++) {
		uint64_t bytes = bytes_of_rank(rank);
		assert_true(rank % 2 == 0 || (bytes >= all / 2 - all / 8 && bytes <= all / 2 + all / 8));
		sum += bytes;
	}
	assert_int_equal(sum, all);
}

/* PyTorch's readers find where a box is in the file's metadata. */
static void shards_tell_where_their_boxes_are(void **state)
{
	(void)state;
	struct job saver = {CUT_GRID, 4, 1};
	char text[4096];
	uint64_t length;
	world_must(saver.size, save, &saver);
	int fd = open(STEP "/shard-00004-model-00001-of-00001.safetensors", O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, &length, 8), 8);
	assert_true(length < sizeof(text));
	assert_int_equal(read(fd, text, length), length);
	close(fd);
	json_t *header = json_loadb(text, length, 0, NULL), *metadata = json_object_get(header, "__metadata__");
	assert_string_equal(json_string_value(json_object_get(metadata, "format")), "pt");
	assert_string_equal(json_string_value(json_object_get(metadata, "DCP_VERSION")), "1.0");
	json_t *info = json_loads(json_string_value(json_object_get(metadata, "DCP_SHARDING_INFO")), 0, NULL);
	json_int_t row, column, rows, columns;
	assert_int_equal(json_unpack(json_object_get(info, "a.weight"), "{s:[I,I!]!}", "saved_offsets", &row, &column),
			 0);
	assert_int_equal(json_unpack(json_object_get(header, "a.weight"), "{s:[I,I!]}", "shape", &rows, &columns), 0);
	assert_true(row == 4 && column == 3 && rows == 3 && columns == 2);
	json_decref(info);
	json_decref(header);
}

/* ---- what does not fit ---- */

struct wrong {
	int kind;
	const char *message;
};

static int save_wrong(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	const struct wrong *wrong = context;
	int64_t step = 120;
	struct cut cut;
	cut_make(&cut, CUT_ROWS, ranks->rank, ranks->size);
	dtrain_checkpoint_view *view = &cut.views[0][0];
	if (ranks->rank == 1) {
		if (wrong->kind == 0)
			view->offset[0]--;
		else if (wrong->kind == 1)
			view->count = 0;
		else if (wrong->kind == 2)
			view->shape.dim[1] = 6;
		else if (wrong->kind == 3)
			view->dtype = DTRAIN_F16;
		else if (wrong->kind == 4)
			step = 121;
		else if (wrong->kind == 5)
			view->offset[0] = 7;
		else if (wrong->kind == 6)
			view->count++;
		else if (wrong->kind == 7)
			view->name = "";
		else if (wrong->kind == 8)
			view->memory = NULL;
		else
			view->device = (dtrain_device *)view;
	}
	return save_cut(&cut, step, 0, ranks, err);
}

static void ranks_that_do_not_fit_are_told(void **state)
{
	(void)state;
	static const struct wrong cases[] = {
		{0, "tensor 'a.weight': what ranks 0 and 1 have of it overlaps, and is not the same"},
		{1, "tensor 'a.weight': 15 of its 35 elements are on no rank"},
		{2, "tensor 'a.weight' is f32 [7, 5] on rank 0, and f32 [7, 6] on rank 1"},
		{3, "tensor 'a.weight' is f32 [7, 5] on rank 0, and f16 [7, 5] on rank 1"},
		{4, "checkpoint: the step: that of rank 1 is not that of rank 0"},
		{5, "checkpoint: tensor 'a.weight': dimension 0 has 7 indices, not 3 from 7 on"},
		{6, "checkpoint: tensor 'a.weight': the box has 15 elements, not 16 from 0 on"},
		{7, "checkpoint: a view has no name that a tensor may have"},
		{8, "checkpoint: tensor 'a.weight' has no memory"},
		{9, "checkpoint: tensor 'a.weight' is in a device's memory, which needs a stream"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		world_result results[WORLD_MOST];
		struct wrong wrong = cases[i];
		world_run(2, save_wrong, &wrong, results);
		for (int rank = 0; rank < 2; rank++) {
			const char *prefix = i >= 5 && rank == 0 ? "rank 1: " : "";
			char expected[300];
			snprintf(expected, sizeof(expected), "%s%s", prefix, cases[i].message);
			assert_int_equal(results[rank].code, i < 5 ? BETON_MISMATCH : BETON_INVALID_ARGUMENT);
			assert_string_equal(results[rank].err.message, expected);
		}
		if (access("c", F_OK) == 0)
			assert_int_equal(count_in("c", ""), 0);
	}
}

/* One more tensor than there is, or one less, or another shape, on one of two ranks. */
static int load_wrong(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	int kind = *(int *)context;
	dtrain_checkpoint *checkpoint;
	struct cut cut;
	cut_make(&cut, kind == 1 ? CUT_STAGES : CUT_WHOLE, ranks->rank, ranks->size);
	if (ranks->rank == 1 && kind == 0)
		cut.views[0][1].name = "b.bias";
	if (kind == 1)
		cut.lists[0].count--; /* the last tensor, of both: also what they have nothing of is wanted */
	if (ranks->rank == 1 && kind == 2)
		cut.views[1][2].shape.dim[2] = 3;
	if (ranks->rank == 0 && kind == 3)
		cut.views[1][2].dtype = DTRAIN_F16;
	int result = dtrain_checkpoint_open(STEP, ranks, &checkpoint, err);
	if (result == BETON_OK)
		result = dtrain_checkpoint_load(
			checkpoint, (const dtrain_checkpoint_list *const[]){&cut.lists[0], &cut.lists[1]}, NULL, err);
	dtrain_checkpoint_close(&checkpoint);
	for (size_t i = 0; i < sizeof(cut.memory); i++)
		if (cut.memory[i])
			return bt_fail(err, BETON_DIVERGED, "something was loaded");
	return result;
}

static void tensors_that_do_not_fit_are_told(void **state)
{
	(void)state;
	static const struct {
		int rank; /* that saw it; -1: both */
		const char *message;
	} cases[] = {
		{1, STEP "/manifest.json: has no tensor 'b.bias', which the model needs"},
		{-1, STEP "/manifest.json: tensor 'bytes' is not one of the model's"},
		{1, STEP "/manifest.json: tensor 'conv.momentum' has shape [5, 3, 2, 2], the model needs [5, 3, 3, 2]"},
		{0, STEP "/manifest.json: tensor 'conv.momentum' is not f16"},
	};
	struct job saver = {CUT_FLAT, 3, 1};
	world_must(saver.size, save, &saver);
	for (int kind = 0; kind < 4; kind++) {
		world_result results[WORLD_MOST];
		world_run(2, load_wrong, &kind, results);
		for (int rank = 0; rank < 2; rank++) {
			char expected[400] = "";
			if (cases[kind].rank == 1 - rank)
				snprintf(expected, sizeof(expected), "rank %d: ", 1 - rank);
			strcat(expected, cases[kind].message);
			assert_int_equal(results[rank].code, BETON_MISMATCH);
			assert_string_equal(results[rank].err.message, expected);
		}
	}
}

/* ---- damage ---- */

static void edit(const char *path, off_t at)
{
	unsigned char byte;
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	if (at < 0)
		at += lseek(fd, 0, SEEK_END);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* Both ranks of two must fail alike, and name the file. by_one: only one of them has looked at it. */
static void expect_damage(int code, const char *message, bool by_one)
{
	struct job loader = {CUT_FLAT, 2, 1};
	world_result results[WORLD_MOST];
	world_run(2, load, &loader, results);
	for (int rank = 0; rank < 2; rank++) {
		assert_int_equal(results[rank].code, code);
		if (!strstr(results[rank].err.message, message))
			fail_msg("rank %d: %s, instead of %s", rank, results[rank].err.message, message);
	}
	assert_int_equal(strncmp(results[0].err.message, "rank 1: ", 8) == 0 ||
				 strncmp(results[1].err.message, "rank 0: ", 8) == 0,
			 by_one);
}

#define SHARD STEP "/shard-00002-model-00001-of-00003.safetensors"

static void damage_is_named(void **state)
{
	(void)state;
	struct job saver = {CUT_FLAT, 3, 1};
	world_must(saver.size, save, &saver);
	assert_int_equal(system("cp -r " STEP " c/good"), 0);
	edit(SHARD, -3);
	expect_damage(BETON_FORMAT, SHARD ": is damaged from byte 0 to ", true);
	edit(SHARD, -3);
	edit(SHARD, 20); /* the header, which is not read here */
	expect_damage(BETON_FORMAT, SHARD ": is damaged from byte 0 to ", true);
	edit(SHARD, 20);
	assert_int_equal(truncate(SHARD, 50), 0);
	expect_damage(BETON_TRUNCATED, SHARD ": has 50 bytes, ", true);
	assert_int_equal(unlink(SHARD), 0);
	expect_damage(BETON_NOT_FOUND, SHARD ": cannot open", true);
	assert_int_equal(system("rm -r " STEP "; cp -r c/good " STEP), 0);
	edit(STEP "/manifest.json", 40);
	expect_damage(BETON_FORMAT, STEP "/manifest.json: is damaged (its checksum is wrong)", false);
	assert_int_equal(truncate(STEP "/manifest.json", 50), 0);
	expect_damage(BETON_TRUNCATED, STEP "/manifest.json: has 50 bytes, ", false);
	assert_int_equal(unlink(STEP "/manifest.json"), 0);
	expect_damage(BETON_NOT_FOUND, STEP "/manifest.json: cannot open", false);
	edit(STEP "/state.json", 30);
	expect_damage(BETON_FORMAT, STEP "/state.json: is", false);
	assert_int_equal(unlink(STEP "/state.json"), 0);
	expect_damage(BETON_NOT_FOUND, STEP "/state.json: cannot open", false);
}

/* One file for all: one of the ranks has looked at it for both. */
static void damage_of_one_file_is_named(void **state)
{
	(void)state;
	struct job saver = {CUT_WHOLE, 1, 1};
	world_must(saver.size, save, &saver);
	edit(STEP "/optimizer.safetensors", -1);
	expect_damage(BETON_FORMAT, STEP "/optimizer.safetensors: is damaged (its checksum is wrong)", true);
	edit(STEP "/optimizer.safetensors", -1);
	edit(STEP "/model.safetensors", -1);
	expect_damage(BETON_FORMAT, STEP "/model.safetensors: is damaged (its checksum is wrong)", true);
}

/* A rank reads and checks the chunks that it needs: what is damaged elsewhere does not concern it. */
static void only_what_is_needed_is_read(void **state)
{
	(void)state;
	enum { ROWS = 5, COLUMNS = 1 << 20 };
	float *memory = calloc(ROWS * COLUMNS, sizeof(float));
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){ROWS, COLUMNS}), one = dtrain_shape_of(1, (int64_t[]){2});
	dtrain_checkpoint_view views[] = {
		dtrain_checkpoint_view_whole("large", DTRAIN_F32, &shape, memory, NULL),
		dtrain_checkpoint_view_whole("small", DTRAIN_F32, &one, memory, NULL),
	};
	beton_error err;
	dtrain_checkpoint *checkpoint;
	assert_non_null(memory);
	for (int i = 0; i < ROWS * COLUMNS; i++)
		memory[i] = (float)i;
	/* Two parts of one tensor on one rank are sharding, too. */
	dtrain_checkpoint_view parts[] = {views[0], views[0], views[1]};
	parts[0].count = parts[1].first = 3 * COLUMNS;
	parts[1].count = 2 * COLUMNS;
	parts[1].memory = memory + 3 * COLUMNS;
	const dtrain_checkpoint_content content = {.struct_size = sizeof(content), .step = 120, .sets = {{parts, 3}}};
	if (dtrain_checkpoint_save("c", 0, &content, NULL, &err) != BETON_OK)
		fail_msg("%s", err.message);
	edit(STEP "/shard-00001-model-00001-of-00002.safetensors", 9 << 20);
	memset(memory, 0, ROWS * COLUMNS * sizeof(float));
	assert_int_equal(dtrain_checkpoint_open(STEP, NULL, &checkpoint, &err), BETON_OK);
	const dtrain_checkpoint_list list = {views, 2};
	const dtrain_checkpoint_list *const sets[] = {&list, NULL};
	views[0].count = COLUMNS - 1000;
	views[0].first = 1000;
	views[1].memory = memory + COLUMNS;
	if (dtrain_checkpoint_load(checkpoint, sets, NULL, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_true(memory[0] == 1000 && memory[COLUMNS - 1001] == COLUMNS - 1 && memory[COLUMNS - 1000] == 0);
	views[0].first = 2 * COLUMNS;
	assert_int_equal(dtrain_checkpoint_load(checkpoint, sets, NULL, &err), BETON_FORMAT);
	assert_string_equal(err.message, STEP "/shard-00001-model-00001-of-00002.safetensors: is damaged from byte "
					      "8388608 to 12582912 (their checksum is wrong)");
	assert_true(memory[0] == 1000);
	/* A column of it. */
	edit(STEP "/shard-00001-model-00001-of-00002.safetensors", 9 << 20);
	views[0].offset[1] = 77;
	views[0].extent[1] = 2;
	views[0].first = 0;
	views[0].count = 2 * ROWS;
	if (dtrain_checkpoint_load(checkpoint, sets, NULL, &err) != BETON_OK)
		fail_msg("%s", err.message);
	for (int i = 0; i < 2 * ROWS; i++)
		assert_true(memory[i] == (float)(i / 2 * COLUMNS + 77 + i % 2));
	dtrain_checkpoint_close(&checkpoint);
	free(memory);
}

int main(void)
{
	char folder[256];
	if (temporary_enter(folder) != 0)
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(any_cut_opens_any_other, start),
		cmocka_unit_test_setup(several_files_have_the_tensors_of_one, start),
		cmocka_unit_test_setup(whole_tensors_make_one_file_each, start),
		cmocka_unit_test_setup(copies_are_written_once_and_shared_out, start),
		cmocka_unit_test_setup(shards_tell_where_their_boxes_are, start),
		cmocka_unit_test_setup(ranks_that_do_not_fit_are_told, start),
		cmocka_unit_test_setup(tensors_that_do_not_fit_are_told, start),
		cmocka_unit_test_setup(damage_is_named, start),
		cmocka_unit_test_setup(damage_of_one_file_is_named, start),
		cmocka_unit_test_setup(only_what_is_needed_is_read, start),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_leave(folder);
	return failed;
}
