/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards of PyTorch opened as one: PyTorch's own shards (tests/golden/make-torch-shards.py) read as with its reader,
 * boxes of any kind and size are put together, and boxes that do not make up tensors are refused. Called with the
 * folder of the stored shards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dtrain/tensor_file.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/support/temporary.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shards.h"
#include "common/system.h"

#define SHARD(rank) "shard-0000" #rank "-model-00001-of-00001.safetensors"

static const char *golden;

static dtrain_tensor_file *must_open(const char *path)
{
	dtrain_tensor_file *file;
	beton_error err;
	if (dtrain_tensor_file_open(path, &file, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return file;
}

static void must_fail(const char *path, int expected, const char *text)
{
	dtrain_tensor_file *file;
	beton_error err = {0};
	int status = dtrain_tensor_file_open(path, &file, &err);
	if (status != expected || !strstr(err.message, text))
		fail_msg("%s: %d '%s' instead of %d '%s'", path, status, err.message, expected, text);
	assert_null(file);
}

/* malloc'ed. */
static float *values_of(const dtrain_tensor_file *file, size_t index)
{
	const dtrain_checkpoint_tensor *tensor = dtrain_tensor_file_at(file, index);
	beton_error err;
	size_t count = (size_t)dtrain_shape_count(&tensor->shape);
	float *values = malloc((count + 1) * sizeof(*values));
	assert_non_null(values);
	for (size_t i = 0; i <= count; i++)
		values[i] = -1;
	if (dtrain_tensor_file_read(file, index, values, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_true(values[count] == -1);
	return values;
}

static size_t index_of(const dtrain_tensor_file *file, const char *name)
{
	size_t i = 0;
	while (dtrain_tensor_file_at(file, i) && strcmp(dtrain_tensor_file_at(file, i)->name, name) != 0)
		i++;
	return i;
}

/* ---- what PyTorch wrote ---- */

static void pytorch_gives_the_same(void **state)
{
	(void)state;
	char path[2][512];
	snprintf(path[0], sizeof(path[0]), "%s/torch-shards", golden);
	snprintf(path[1], sizeof(path[1]), "%s/torch-shards.safetensors", golden);
	dtrain_tensor_file *shards = must_open(path[0]), *whole = must_open(path[1]);
	const dtrain_checkpoint_tensor *a, *b;
	size_t count = 0;
	for (; (a = dtrain_tensor_file_at(shards, count)); count++) {
		size_t other = index_of(whole, a->name);
		assert_non_null(b = dtrain_tensor_file_at(whole, other));
		assert_true(count == 0 || strcmp(dtrain_tensor_file_at(shards, count - 1)->name, a->name) < 0);
		assert_string_equal(a->dtype, b->dtype);
		assert_memory_equal(&a->shape, &b->shape, sizeof(a->shape));
		if (strcmp(a->dtype, "I64") == 0) {
			float none;
			assert_int_equal(dtrain_tensor_file_read(shards, count, &none, NULL), BETON_UNSUPPORTED);
			continue;
		}
		float *x = values_of(shards, count), *y = values_of(whole, other);
		if (dtrain_shape_count(&a->shape))
			assert_memory_equal(x, y, (size_t)dtrain_shape_count(&a->shape) * sizeof(*x));
		free(x);
		free(y);
	}
	assert_int_equal(count, 14);
	assert_null(dtrain_tensor_file_at(whole, count));
	bool incomplete = true;
	assert_string_equal(dtrain_tensor_file_absent(shards, &incomplete), SHARD(5));
	assert_false(incomplete);
	assert_null(dtrain_tensor_file_absent(whole, &incomplete));
	assert_string_equal(dtrain_tensor_file_metadata(shards, "format"), "pt");
	dtrain_tensor_file_close(&shards);
	dtrain_tensor_file_close(&whole);
}

static void each_missing_shard_is_named(void **state)
{
	(void)state;
	for (int missing = 1; missing <= 4; missing++) {
		char name[CHECKPOINT_SHARD_NAME], from[512], to[256];
		assert_int_equal(mkdir("copy", 0777), 0);
		for (int rank = 1; rank <= 4; rank++) {
			dtrain__shard_name(name, rank - 1, DTRAIN_CHECKPOINT_MODEL, 0, 1);
			snprintf(from, sizeof(from), "%s/torch-shards/%s", golden, name);
			snprintf(to, sizeof(to), "copy/%s", name);
			if (rank != missing)
				assert_int_equal(symlink(from, to), 0);
		}
		dtrain__shard_name(name, missing - 1, DTRAIN_CHECKPOINT_MODEL, 0, 1);
		must_fail("copy", BETON_FORMAT, name);
		temporary_remove("copy");
	}
	char from[512];
	snprintf(from, sizeof(from), "%s/torch-shards/" SHARD(2), golden);
	must_fail(from, BETON_FORMAT, SHARD(2) ": has only a part of tensor");
}

/* ---- values ---- */

/* A box of "t", whose element i is i % 2048. */
struct content {
	dtrain_shape whole;
	checkpoint_box box;
	dtrain_dtype dtype;
};

static float value_at(const struct content *content, int64_t element)
{
	int64_t at = 0, stride = 1;
	for (int i = content->whole.ndim - 1; i >= 0; i--) {
		at += (content->box.offset[i] + element % content->box.extent[i]) * stride;
		element /= content->box.extent[i];
		stride *= content->whole.dim[i];
	}
	return (float)(at % 2048);
}

static int give(void *context, size_t index, uint64_t at, void *destination, size_t size, beton_error *err)
{
	const struct content *content = context;
	(void)index;
	(void)err;
	if (content->dtype == DTRAIN_F32) {
		for (size_t i = 0; i < size / 4; i++)
			((float *)destination)[i] = value_at(content, (int64_t)(at / 4 + i));
		return BETON_OK;
	}
	for (size_t i = 0; i < size / 8; i++)
		((double *)destination)[i] = value_at(content, (int64_t)(at / 8 + i));
	return BETON_OK;
}

static void put_box(int rank, struct content content)
{
	char name[CHECKPOINT_SHARD_NAME], path[256], info[256];
	safetensors_entry entry = {.name = "t", .dtype = content.dtype, .shape = {.ndim = content.whole.ndim}};
	checkpoint_digest digest;
	beton_error err;
	memcpy(entry.shape.dim, content.box.extent, sizeof(entry.shape.dim));
	snprintf(info, sizeof(info), "{\"t\": {\"saved_offsets\": [%lld, %lld]}}", (long long)content.box.offset[0],
		 (long long)content.box.offset[1]);
	json_t *metadata = json_pack("{s:s}", "DCP_SHARDING_INFO", info);
	dtrain__shard_name(name, rank, DTRAIN_CHECKPOINT_MODEL, 0, 1);
	snprintf(path, sizeof(path), "boxes/%s", name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	assert_true(fd >= 0);
	assert_int_equal(dtrain__digest_begin(&digest, UINT64_MAX, &err), BETON_OK);
	assert_int_equal(dtrain__safetensors_write(fd, path, &entry, 1, metadata, give, &content, &digest, &err),
			 BETON_OK);
	assert_int_equal(close(fd), 0);
	dtrain__digest_free(&digest);
	json_decref(metadata);
}

static void check_boxes(int rows, int columns, dtrain_dtype dtype)
{
	struct content content = {.whole = {2, {1201, 701}}, .dtype = dtype};
	int64_t at[2], end[2], cells[2] = {rows, columns};
	assert_int_equal(mkdir("boxes", 0777), 0);
	for (int rank = 0; rank < rows * columns; rank++) {
		at[0] = rank / columns;
		at[1] = rank % columns;
		for (int i = 0; i < 2; i++) {
			content.box.offset[i] = at[i] * content.whole.dim[i] / cells[i];
			end[i] = (at[i] + 1) * content.whole.dim[i] / cells[i];
			content.box.extent[i] = end[i] - content.box.offset[i];
		}
		put_box(rank, content);
	}
	dtrain_tensor_file *file = must_open("boxes");
	assert_memory_equal(&dtrain_tensor_file_at(file, 0)->shape, &content.whole, sizeof(content.whole));
	float *values = values_of(file, 0);
	for (int64_t i = 0; i < 1201 * 701; i++)
		if (values[i] != (float)(i % 2048))
			fail_msg("%d x %d: element %lld is %g", rows, columns, (long long)i, values[i]);
	free(values);
	dtrain_tensor_file_close(&file);
	temporary_remove("boxes");
}

/* Parts larger than what is read at once, of runs from a few elements to all. */
static void boxes_of_all_sizes(void **state)
{
	(void)state;
	static const int cells[][2] = {{1, 1}, {3, 1}, {1, 2}, {1, 60}, {2, 3}, {60, 1}};
	for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
		check_boxes(cells[i][0], cells[i][1], DTRAIN_F32);
		check_boxes(cells[i][0], cells[i][1], DTRAIN_F64);
	}
}

/* All shards are open at a time: as many as ranks that wrote them. */
static void more_shards_than_open_files(void **state)
{
	(void)state;
	struct rlimit before;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	struct rlimit few = {48, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	check_boxes(60, 1, DTRAIN_F32);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- what is refused ---- */

struct file {
	const char *name, *info, *shape; /* info: NULL: none */
	const char *type;                /* NULL: U8 */
	const char *version;             /* NULL: "1.0" */
};

/* A file whose tensor "a" has that shape. */
static void put_file(const struct file *file)
{
	char path[256];
	unsigned char zeros[64] = {0};
	json_t *shape = json_loads(file->shape, 0, NULL), *dim, *metadata = NULL;
	size_t i;
	json_int_t bytes = file->type && strcmp(file->type, "I32") == 0 ? 4 : 1;
	json_array_foreach(shape, i, dim) bytes *= json_integer_value(dim);
	if (file->info)
		metadata = json_pack("{s:s, s:s}", "DCP_VERSION", file->version ? file->version : "1.0",
				     "DCP_SHARDING_INFO", file->info);
	json_t *header = json_pack("{s:{s:s, s:o, s:[I, I]}, s:o*}", "a", "dtype", file->type ? file->type : "U8",
				   "shape", shape, "data_offsets", (json_int_t)0, bytes, "__metadata__", metadata);
	char *text = json_dumps(header, JSON_COMPACT);
	uint64_t length = strlen(text);
	snprintf(path, sizeof(path), "case/%s", file->name);
	FILE *out = fopen(path, "wb");
	assert_non_null(out);
	assert_int_equal(fwrite(&length, 1, 8, out), 8);
	assert_int_equal(fwrite(text, 1, length, out), length);
	assert_true(bytes <= (json_int_t)sizeof(zeros));
	assert_int_equal(fwrite(zeros, 1, (size_t)bytes, out), bytes);
	assert_int_equal(fclose(out), 0);
	free(text);
	json_decref(header);
}

#define AT(offsets) "{\"a\": {\"saved_offsets\": " offsets "}}"
#define FIRST                                    \
	{                                        \
		SHARD(1), AT("[0, 0]"), "[2, 3]" \
	}

static const struct {
	struct file files[4];
	int expected;
	const char *text; /* of the message; of a success the first absent shard */
} cases[] = {
	{{FIRST, {SHARD(2), AT("[2, 0]"), "[1, 3]"}}, BETON_OK, SHARD(3)},
	{{FIRST, {SHARD(3), AT("[2, 0]"), "[1, 3]"}}, BETON_OK, SHARD(2)},
	{{{SHARD(1), NULL, "[2, 3]"}}, BETON_OK, SHARD(2)},
	{{{SHARD(1), "{}", "[2, 3]"}}, BETON_FORMAT, SHARD(1) ": tensor 'a' has no saved_offsets"},
	/* Parts that are nowhere. */
	{{FIRST, {SHARD(3), AT("[3, 0]"), "[1, 3]"}},
	 BETON_FORMAT,
	 "case: tensor 'a' [4, 3]: 3 of its 12 elements are in no file; the first shard that is not there is " SHARD(
		 2)},
	{{{SHARD(2), AT("[0, 1]"), "[2, 2]"}}, BETON_FORMAT, SHARD(1)},
	{{FIRST, {SHARD(2), AT("[0, 3]"), "[2, 1]"}, {SHARD(3), AT("[2, 0]"), "[1, 3]"}},
	 BETON_FORMAT,
	 "1 of its 12 elements are in no file; the first shard that is not there is " SHARD(4)},
	{{FIRST, {SHARD(2), AT("[7, 0]"), "[0, 3]"}}, BETON_FORMAT, "'a' [7, 3]: 15 of its 21"},
	/* Files of two savings. */
	{{FIRST, {SHARD(2), AT("[1, 2]"), "[2, 2]"}},
	 BETON_FORMAT,
	 "case: tensor 'a' has a part of [2, 3] at [0, 0] in " SHARD(1) " and one of [2, 2] at [1, 2] in " SHARD(
		 2) ", which overlap"},
	{{FIRST, FIRST, {SHARD(2), NULL, "[2, 3]"}}, BETON_FORMAT, "overlap"},
	{{FIRST, {SHARD(2), AT("[2, 0]"), "[1, 3]", "I32"}},
	 BETON_FORMAT,
	 "case: tensor 'a' is U8 in " SHARD(1) " and I32 in " SHARD(2)},
	{{FIRST, {SHARD(2), AT("[6]"), "[3]"}},
	 BETON_FORMAT,
	 "case: tensor 'a' has 2 dimensions in " SHARD(1) " and 1 in " SHARD(2)},
	{{FIRST, {SHARD(2), AT("[2, 0]"), "[1, 3]", NULL, "2.0"}}, BETON_UNSUPPORTED, "DCP_VERSION is '2.0', not 1.0"},
	/* Metadata that is none. */
	{{{SHARD(1), "{", "[2]"}}, BETON_FORMAT, SHARD(1) ": DCP_SHARDING_INFO is not JSON"},
	{{{SHARD(1), "[]", "[2]"}}, BETON_FORMAT, "DCP_SHARDING_INFO is not an object"},
	{{{SHARD(1), "{\"a\": [0]}", "[2]"}}, BETON_FORMAT, "no saved_offsets"},
	{{{SHARD(1), AT("\"0\""), "[2]"}}, BETON_FORMAT, "no saved_offsets"},
	{{{SHARD(1), AT("[]"), "[2]"}}, BETON_FORMAT, SHARD(1) ": tensor 'a' has 0 saved_offsets, but 1 dimensions"},
	{{{SHARD(1), AT("[0, 0]"), "[2]"}}, BETON_FORMAT, "2 saved_offsets, but 1 dimensions"},
	{{{SHARD(1), AT("[-1]"), "[2]"}}, BETON_FORMAT, "saved_offsets[0] is -1, not a number from 0"},
	{{{SHARD(1), AT("[0, 0.5]"), "[2, 1]"}}, BETON_FORMAT, "saved_offsets[1] is 0.5"},
	{{{SHARD(1), AT("[\"x\"]"), "[2]"}}, BETON_FORMAT, "saved_offsets[0] is \"x\""},
	{{{SHARD(1), AT("[99999999999999]"), "[2]"}}, BETON_FORMAT, "saved_offsets[0] is 99999999999999"},
	{{{SHARD(1), AT("[1099511627776, 1099511627776]"), "[1, 1]"}}, BETON_FORMAT, "is too large"},
	{{{SHARD(1), AT("[0, 1]"), "[0, 9223372036854775807]"}}, BETON_FORMAT, "'a' is too large in " SHARD(1)},
	/* Names. */
	{{{"shard-1-model-1-of-1.safetensors", NULL, "[2]"}}, BETON_NOT_FOUND, "case: has no shards"},
	{{{"shard-00001-optimizer-00001-of-00001.safetensors", NULL, "[2]"}}, BETON_NOT_FOUND, "case: has no shards"},
	{{{"shard-00001-model-00001-of-00002.safetensors", AT("[0]"), "[2]"},
	  {"shard-00001-model-00002-of-00002.safetensors", AT("[2]"), "[2]"},
	  {"shard-00002-model-00002-of-00002.safetensors", AT("[4]"), "[2]"}},
	 BETON_OK,
	 "shard-00002-model-00001-of-00002.safetensors"},
	{{{"shard-00001-model-00002-of-00002.safetensors", AT("[0]"), "[2]"}},
	 BETON_OK,
	 "shard-00001-model-00001-of-00002.safetensors"},
	{{{"shard-00001-model-00001-of-00002.safetensors", AT("[0]"), "[2]"},
	  {"shard-00001-optimizer-00001-of-00001.safetensors", NULL, "[2]"},
	  {"model-00001-of-00001.safetensors", NULL, "[2]"}},
	 BETON_OK,
	 "shard-00001-model-00002-of-00002.safetensors"},
};

static void what_makes_no_tensors(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(mkdir("case", 0777), 0);
		for (int k = 0; k < 4 && cases[i].files[k].name; k++)
			put_file(&cases[i].files[k]);
		if (cases[i].expected != BETON_OK) {
			must_fail("case", cases[i].expected, cases[i].text);
		} else {
			dtrain_tensor_file *file = must_open("case");
			bool incomplete = false;
			assert_string_equal(dtrain_tensor_file_absent(file, &incomplete), cases[i].text);
			/* The first and the third may be whole. */
			assert_int_equal(incomplete, i != 0 && i != 2);
			dtrain_tensor_file_close(&file);
		}
		temporary_remove("case");
	}
}

/* A shard is only a part, however it is given; and one that is there may not be readable. */
static void a_shard_alone(void **state)
{
	(void)state;
	static const struct file first = FIRST, second = {SHARD(2), AT("[2, 0]"), "[1, 3]"};
	assert_int_equal(mkdir("case", 0777), 0);
	put_file(&first);
	put_file(&second);
	must_fail("case/" SHARD(2), BETON_FORMAT, "has only a part of tensor 'a' [3, 3]");
	FILE *index = fopen("case/model.safetensors.index.json", "w");
	assert_non_null(index);
	assert_true(fprintf(index, "{\"weight_map\": {\"a\": \"" SHARD(2) "\"}}") > 0);
	assert_int_equal(fclose(index), 0);
	must_fail("case/model.safetensors.index.json", BETON_FORMAT, "has only a part of tensor 'a' [3, 3]");
	assert_int_equal(truncate("case/" SHARD(2), 20), 0);
	must_fail("case", BETON_TRUNCATED, SHARD(2));
	assert_int_equal(unlink("case/" SHARD(2)), 0);
	assert_int_equal(symlink("nowhere", "case/" SHARD(2)), 0);
	must_fail("case", BETON_NOT_FOUND, SHARD(2));
	temporary_remove("case");
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	golden = argv[1];
	char folder[256];
	if (temporary_enter(folder) != 0)
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pytorch_gives_the_same), cmocka_unit_test(each_missing_shard_is_named),
		cmocka_unit_test(boxes_of_all_sizes),     cmocka_unit_test(what_makes_no_tensors),
		cmocka_unit_test(a_shard_alone),          cmocka_unit_test(more_shards_than_open_files),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_leave(folder);
	return failed;
}
