/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of shards: what an index keeps, what is refused, and how shards are added. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/set_files.h"

static beton_error err;

static int setup(void **state)
{
	(void)state;
	return chdir(make_folder());
}

static int teardown(void **state)
{
	(void)state;
	remove_folder();
	return chdir("/");
}

static void write_set(const char *path, beton_set_mode mode, const char *const *shards, uint32_t count)
{
	if (beton_set_write(path, mode, shards, count, NULL, &err) != BETON_OK)
		fail_msg("%s", err.message);
}

static beton_set *open_set(const char *path)
{
	beton_set *set;
	if (beton_set_open(&set, path, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return set;
}

static void refuse_set(const char *path, beton_set_mode mode, const char *const *shards, uint32_t count, int code,
		       const char *const *says)
{
	err.message[0] = 0;
	int result = beton_set_write(path, mode, shards, count, NULL, &err);
	if (result != code || err.code != code)
		fail_msg("%s instead of %s: %s", beton_status_name(result), beton_status_name(code), err.message);
	for (; *says; says++)
		if (!strstr(err.message, *says))
			fail_msg("'%s' is not in: %s", *says, err.message);
}

#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SHARDS(...) ((const char *const[]){__VA_ARGS__}), sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

static void make(const char *path, shard_kind kind)
{
	assert_int_equal(make_shard(path, kind), 0);
}

/* ---- what an index keeps ---- */

/* Shards of different kinds: none of the samples' bytes, an empty one, a plain one, one in a folder. */
static void make_four(void)
{
	mkdir("sub", 0777);
	make("a.beton", (shard_kind){.samples = 3, .facts = "{\"classes\": [\"cat\", \"dog\"]}"});
	make("b.beton", (shard_kind){.samples = 0, .first = 3});
	make("sub/c.beton", (shard_kind){.samples = 5, .first = 3, .plain = true});
	make("d.beton", (shard_kind){.samples = 2, .first = 8, .facts = "{\"classes\": [\"cat\", \"dog\"]}"});
}

#define FOUR SHARDS("a.beton", "./b.beton", "sub/c.beton", "d.beton")

static void compare_shard(const beton_set *set, uint32_t i, const char *name)
{
	const beton_shard *shard = beton_set_shard(set, i);
	assert_string_equal(shard->name, name);
	beton_reader *reader = open_good(shard->path);
	const beton_file_info *info = beton_reader_info(reader);
	uint64_t fingerprint, *order;
	assert_int_equal(beton_reader_fingerprint(reader, &fingerprint, &err), BETON_OK);
	assert_int_equal(beton_reader_storage_order(reader, &order, &err), BETON_OK);
	assert_true(shard->fingerprint == fingerprint && shard->bytes == info->file_size);
	assert_true(shard->samples == info->num_samples && shard->page_size == info->page_size);
	assert_true(shard->record_size == info->record_size && shard->ordered == info->ordered);
	assert_true(!shard->ordered || !order);
	assert_true(shard->data_bytes <= info->data_end && (shard->data_bytes > 0) == (info->num_samples > 0));
	assert_int_equal(beton_set_check(set, i, reader, &err), BETON_OK);
	beton_free(order);
	beton_reader_close(&reader);
}

static void test_round_trip(void **state)
{
	(void)state;
	make_four();
	write_set("x.betonset", BETON_SET_CREATE, FOUR);
	beton_set *set = open_set("x.betonset");
	const beton_set_info *info = beton_set_get_info(set);
	assert_true(info->version == 1 && info->num_shards == 4 && info->num_samples == 10 && info->num_fields == 2);
	assert_true(info->num_classes == 2 && strcmp(beton_set_class(set, 1), "dog") == 0);
	assert_null(beton_set_class(set, 2));
	assert_null(beton_set_shard(set, 4));
	assert_null(beton_set_field(set, 2));
	assert_string_equal(beton_set_path(set), "x.betonset");
	assert_string_equal(beton_set_field(set, 1)->name, "text");
	assert_int_equal(beton_set_field(set, 1)->type, BETON_FIELD_BYTES);
	const char *names[] = {"a.beton", "b.beton", "sub/c.beton", "d.beton"};
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < 4; i++) {
		compare_shard(set, i, names[i]);
		bytes += beton_set_shard(set, i)->bytes;
	}
	assert_true(info->bytes == bytes);
	assert_int_equal(access(".x.betonset.partial", F_OK), -1);
	beton_set_close(&set);
	assert_null(set);
	beton_set_close(&set);
}

static void test_locate(void **state)
{
	(void)state;
	make_four();
	write_set("x.betonset", BETON_SET_REPLACE, FOUR);
	beton_set *set = open_set("x.betonset");
	for (uint64_t i = 0; i < 10; i++) {
		uint32_t shard;
		uint64_t index;
		assert_int_equal(beton_set_locate(set, i, &shard, &index, &err), BETON_OK);
		assert_true(shard == (i < 3 ? 0 : i < 8 ? 2 : 3));
		assert_true(beton_set_shard(set, shard)->first + index == i);
		beton_reader *reader = open_good(beton_set_shard(set, shard)->path);
		beton_value value;
		assert_int_equal(beton_reader_value(reader, index, 0, &value, &err), BETON_OK);
		assert_int_equal(value.integer, i);
		beton_reader_close(&reader);
	}
	uint32_t shard;
	uint64_t index;
	assert_int_equal(beton_set_locate(set, 10, &shard, &index, &err), BETON_INVALID_ARGUMENT);
	beton_set_close(&set);
}

/* Each type, dtype and shape, and a file that FFCV wrote. */
static void test_fields(void **state)
{
	(void)state;
	const char *golden = unpack_golden("every-field");
	write_set(in_folder("g.betonset"), BETON_SET_CREATE, SHARDS(golden));
	beton_set *set = open_set(in_folder("g.betonset"));
	beton_reader *reader = open_good(golden);
	assert_int_equal(beton_set_get_info(set)->num_fields, beton_reader_info(reader)->num_fields);
	for (uint32_t i = 0; i < beton_reader_info(reader)->num_fields; i++) {
		const beton_field *a = beton_set_field(set, i), *b = beton_reader_field(reader, i);
		assert_true(a->type == b->type && a->ndim == b->ndim && a->item_size == b->item_size);
		assert_string_equal(a->name, b->name);
		assert_string_equal(a->dtype, b->dtype);
		assert_memory_equal(a->shape, b->shape, sizeof(a->shape));
	}
	assert_int_equal(beton_set_check(set, 0, reader, &err), BETON_OK);
	beton_reader_close(&reader);
	beton_set_close(&set);
}

/* Rasters, plain in one shard and compressed in another; a file with other channels is refused. */
static void make_raster(const char *path, uint64_t channels, beton_compression compression)
{
	beton_field field = {
		.name = "depth", .type = BETON_FIELD_RASTER, .dtype = "<u2", .ndim = 1, .shape = {channels}};
	field.compression = compression;
	beton_writer *writer;
	static const uint8_t pixels[2 * 3 * 4 * 2];
	const beton_input value = {.data = pixels, .size = 2 * 3 * channels * 2, .width = 2, .height = 3};
	assert_int_equal(beton_writer_open(&writer, path, &field, 1, NULL, &err), BETON_OK);
	assert_int_equal(beton_writer_append(writer, &value, &err), BETON_OK);
	assert_int_equal(beton_writer_finish(writer, &err), BETON_OK);
	beton_writer_close(&writer);
}

static void test_rasters(void **state)
{
	(void)state;
	make_raster("r1.beton", 4, BETON_COMPRESSION_NONE);
	make_raster("r2.beton", 4, BETON_COMPRESSION_ZSTD);
	make_raster("r3.beton", 3, BETON_COMPRESSION_NONE);
	write_set("r.betonset", BETON_SET_CREATE, SHARDS("r1.beton", "r2.beton"));
	beton_set *set = open_set("r.betonset");
	const beton_field *field = beton_set_field(set, 0);
	assert_true(field->type == BETON_FIELD_RASTER && field->ndim == 1 && field->shape[0] == 4);
	assert_string_equal(field->dtype, "<u2");
	for (uint32_t i = 0; i < 2; i++)
		compare_shard(set, i, i ? "r2.beton" : "r1.beton");
	beton_set_close(&set);
	refuse_set("r.betonset", BETON_SET_APPEND, SHARDS("r3.beton"), BETON_MISMATCH,
		   SAYS("'depth' (raster <u2 3)", "'depth' (raster <u2 4)"));
}

/* One shard compressed and another not; the fields are the same ones. */
static void test_compressed(void **state)
{
	(void)state;
	make("a.beton", (shard_kind){.samples = 3});
	make("z.beton", (shard_kind){.samples = 3, .first = 3, .compressed = true});
	write_set("z.betonset", BETON_SET_CREATE, SHARDS("z.beton", "a.beton"));
	beton_set *set = open_set("z.betonset");
	for (uint32_t i = 0; i < 2; i++)
		compare_shard(set, i, i ? "a.beton" : "z.beton");
	assert_int_equal(beton_set_field(set, 1)->compression, BETON_COMPRESSION_NONE);
	beton_set_close(&set);
}

/* ---- what is not a set ---- */

static void test_modes(void **state)
{
	(void)state;
	make_four();
	const char *a[] = {"a.beton"}, *d[] = {"d.beton"};
	unlink("m.betonset");
	refuse_set("m.betonset", BETON_SET_APPEND, a, 1, BETON_NOT_FOUND, SAYS("m.betonset"));
	write_set("m.betonset", BETON_SET_CREATE, a, 1);
	refuse_set("m.betonset", BETON_SET_CREATE, d, 1, BETON_EXISTS, SAYS("m.betonset"));
	write_set("m.betonset", BETON_SET_APPEND, d, 1);
	refuse_set("m.betonset", BETON_SET_APPEND, d, 1, BETON_EXISTS, SAYS("m.betonset", "'d.beton'"));
	refuse_set("m.betonset", BETON_SET_REPLACE, SHARDS("a.beton", "./a.beton"), BETON_EXISTS, SAYS("'a.beton'"));
	refuse_set("m.betonset", (beton_set_mode)3, a, 1, BETON_INVALID_ARGUMENT, SAYS("mode 3"));
	refuse_set("m.betonset", BETON_SET_APPEND, a, 0, BETON_INVALID_ARGUMENT, SAYS("0 shards"));
	refuse_set("m.betonset", BETON_SET_APPEND, (const char *const[]){NULL}, 1, BETON_INVALID_ARGUMENT,
		   SAYS("NULL"));
	refuse_set("m.beton", BETON_SET_CREATE, a, 1, BETON_INVALID_ARGUMENT, SAYS(".betonset"));
	refuse_set("m.betonset", BETON_SET_APPEND, SHARDS("none.beton"), BETON_NOT_FOUND, SAYS("none.beton"));
	refuse_set("none/m.betonset", BETON_SET_CREATE, a, 1, BETON_NOT_FOUND, SAYS("none/m.betonset"));
	assert_int_equal(symlink("m.betonset", "link.betonset"), 0);
	refuse_set("link.betonset", BETON_SET_APPEND, a, 1, BETON_INVALID_ARGUMENT, SAYS("symbolic link"));
	assert_int_equal(mkdir("folder.betonset", 0777), 0);
	refuse_set("folder.betonset", BETON_SET_REPLACE, a, 1, BETON_INVALID_ARGUMENT, SAYS("a folder"));
	beton_set *set = open_set("m.betonset");
	assert_int_equal(beton_set_get_info(set)->num_shards, 2);
	beton_set_close(&set);
	write_set("m.betonset", BETON_SET_REPLACE, d, 1);
	set = open_set("m.betonset");
	assert_int_equal(beton_set_get_info(set)->num_shards, 1);
	beton_set_close(&set);
	assert_int_equal(beton_set_open(&set, "a.beton", &err), BETON_INVALID_ARGUMENT);
	assert_null(set);
	assert_int_equal(beton_set_open(&set, "none.betonset", &err), BETON_NOT_FOUND);
	assert_int_equal(beton_set_open(&set, "folder.betonset", &err), BETON_INVALID_ARGUMENT);
	/* The other way around: the message says what it is. */
	beton_reader *reader;
	assert_int_not_equal(beton_reader_open(&reader, "m.betonset", &err), BETON_OK);
	assert_non_null(strstr(err.message, "set of shards"));
}

/* A file that is there twice, under another name; and a file of the same content, which is allowed. */
static void test_links(void **state)
{
	(void)state;
	make_four();
	assert_int_equal(link("a.beton", "hard.beton"), 0);
	assert_int_equal(symlink("a.beton", "soft.beton"), 0);
	assert_int_equal(symlink("sub", "way"), 0);
	refuse_set("l.betonset", BETON_SET_CREATE, SHARDS("a.beton", "d.beton", "hard.beton"), BETON_EXISTS,
		   SAYS("'a.beton' and 'hard.beton' are one file"));
	refuse_set("l.betonset", BETON_SET_CREATE, SHARDS("soft.beton", "a.beton"), BETON_EXISTS,
		   SAYS("'soft.beton' and 'a.beton' are one file"));
	refuse_set("l.betonset", BETON_SET_CREATE, SHARDS("sub/c.beton", "way/c.beton"), BETON_EXISTS,
		   SAYS("'sub/c.beton' and 'way/c.beton' are one file"));
	write_set("l.betonset", BETON_SET_CREATE, SHARDS("soft.beton", "d.beton"));
	refuse_set("l.betonset", BETON_SET_APPEND, SHARDS("hard.beton"), BETON_EXISTS,
		   SAYS("'soft.beton' and 'hard.beton' are one file"));
	make("copy.beton", (shard_kind){.samples = 3, .facts = "{\"classes\": [\"cat\", \"dog\"]}"});
	write_set("l.betonset", BETON_SET_APPEND, SHARDS("copy.beton"));
	/* A missing shard of that content does not matter. */
	assert_int_equal(unlink("a.beton"), 0);
	write_set("l.betonset", BETON_SET_APPEND, SHARDS("hard.beton"));
	beton_set *set = open_set("l.betonset");
	assert_int_equal(beton_set_get_info(set)->num_shards, 4);
	beton_set_close(&set);
	/* Shards that an older index has twice stay. */
	assert_int_equal(rename("hard.beton", "soft.beton"), 0);
	assert_int_equal(link("soft.beton", "hard.beton"), 0);
	write_set("l.betonset", BETON_SET_APPEND, SHARDS("b.beton"));
}

/* Shards that cannot be one set, among the files and between files and index. */
static void test_mismatch(void **state)
{
	(void)state;
	make_four();
	make("other.beton", (shard_kind){.samples = 1, .name = "words"});
	make("numbers.beton", (shard_kind){.samples = 1, .numbers = true});
	make("wolf.beton", (shard_kind){.samples = 1, .facts = "{\"classes\": [\"cat\", \"wolf\"]}"});
	make("more.beton", (shard_kind){.samples = 1, .facts = "{\"classes\": [\"cat\", \"dog\", \"eel\"]}"});
	make("wrong.beton", (shard_kind){.samples = 1, .facts = "{\"classes\": [1]}"});
	static const struct {
		const char *shard;
		int code;
		const char *says[4];
	} cases[] = {
		{"other.beton", BETON_MISMATCH, {"other.beton: field 1 is 'words' (bytes)", "in a.beton it is 'text'"}},
		{"numbers.beton", BETON_MISMATCH, {"numbers.beton has 1 field, but a.beton has 2"}},
		{"wolf.beton", BETON_MISMATCH, {"wolf.beton: class 1 is 'wolf', but 'dog' in ", "--remap-classes"}},
		{"more.beton", BETON_MISMATCH, {"more.beton has 3 class names, but ", " has 2", "--remap-classes"}},
		{"wrong.beton", BETON_FORMAT, {"wrong.beton", "'classes'"}},
	};
	write_set("mm.betonset", BETON_SET_CREATE, SHARDS("a.beton", "b.beton"));
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		refuse_set("mm.betonset", BETON_SET_REPLACE, SHARDS("a.beton", cases[i].shard), cases[i].code,
			   cases[i].says);
		refuse_set("mm.betonset", BETON_SET_APPEND, SHARDS(cases[i].shard), cases[i].code, cases[i].says);
	}
	refuse_set("mm.betonset", BETON_SET_REPLACE, SHARDS("a.beton", "wolf.beton"), BETON_MISMATCH,
		   SAYS("in a.beton"));
	beton_set *set = open_set("mm.betonset");
	assert_int_equal(beton_set_get_info(set)->num_shards, 2);
	beton_set_close(&set);
	/* The first class names come with a shard that is added. */
	write_set("n.betonset", BETON_SET_CREATE, SHARDS("b.beton"));
	write_set("n.betonset", BETON_SET_APPEND, SHARDS("d.beton"));
	refuse_set("n.betonset", BETON_SET_APPEND, SHARDS("wolf.beton"), BETON_MISMATCH, SAYS("'dog'"));
	set = open_set("n.betonset");
	assert_int_equal(beton_set_get_info(set)->num_classes, 2);
	beton_set_close(&set);
}

/* The answer before a file is written equals the answer when it is added. */
static void test_accepts(void **state)
{
	(void)state;
	make_four();
	write_set("ac.betonset", BETON_SET_REPLACE, SHARDS("a.beton"));
	const beton_field fields[] = {
		{.name = "number", .type = BETON_FIELD_INT},
		{.name = "text", .type = BETON_FIELD_BYTES, .compression = BETON_COMPRESSION_ZSTD}};
	static const struct {
		const char *path;
		uint32_t fields;
		const char *facts;
		int code;
	} cases[] = {
		{"new.beton", 2, NULL, BETON_OK},
		{"sub/new.beton", 2, "{\"classes\": [\"cat\", \"dog\"], \"x\": 1}", BETON_OK},
		{"new.beton", 2, "{}", BETON_OK},
		{"new.beton", 1, NULL, BETON_MISMATCH},
		{"new.beton", 2, "{\"classes\": [\"dog\", \"cat\"]}", BETON_MISMATCH},
		{"new.beton", 2, "{\"classes\": 1}", BETON_FORMAT},
		{"new.beton", 2, "{", BETON_FORMAT},
		{"../new.beton", 2, NULL, BETON_INVALID_ARGUMENT},
		{"sub/../a.beton", 2, NULL, BETON_EXISTS},
		{"none/new.beton", 2, NULL, BETON_OK},
	};
	beton_set *set = open_set("ac.betonset");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int result = beton_set_accepts(set, cases[i].path, fields, cases[i].fields, cases[i].facts, &err);
		if (result != cases[i].code)
			fail_msg("case %zu: %s: %s", i, beton_status_name(result), err.message);
	}
	beton_set_close(&set);
}

/* ---- where shards are ---- */

static void test_places(void **state)
{
	(void)state;
	make_four();
	char here[512], absolute[600];
	assert_non_null(getcwd(here, sizeof(here)));
	snprintf(absolute, sizeof(absolute), "%s/sub/c.beton", here);
	static const struct {
		const char *index, *shard, *name;
	} cases[] = {
		{"p.betonset", "sub/c.beton", "sub/c.beton"},
		{"./p.betonset", ".//sub/c.beton", "sub/c.beton"},
		{"sub/p.betonset", "sub/c.beton", "c.beton"},
		{"p.betonset", "sub/../sub/c.beton", "sub/c.beton"},
		{"p.betonset", "sub/./c.beton", "sub/c.beton"},
		{"sub/../p.betonset", "sub/c.beton", "sub/c.beton"},
		{"p.betonset", NULL, "sub/c.beton"},
		{"link/p.betonset", "sub/c.beton", "c.beton"},
		{"p.betonset", "link/c.beton", "link/c.beton"},
	};
	assert_int_equal(symlink("sub", "link"), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		write_set(cases[i].index, BETON_SET_REPLACE, SHARDS(cases[i].shard ? cases[i].shard : absolute));
		beton_set *set = open_set(cases[i].index);
		assert_string_equal(beton_set_shard(set, 0)->name, cases[i].name);
		beton_reader *reader = open_good(beton_set_shard(set, 0)->path);
		beton_reader_close(&reader);
		beton_set_close(&set);
	}
	refuse_set("sub/p.betonset", BETON_SET_REPLACE, SHARDS("a.beton"), BETON_INVALID_ARGUMENT,
		   SAYS("a.beton: a shard must be in the folder of sub/p.betonset"));
	refuse_set("sub/p.betonset", BETON_SET_REPLACE, SHARDS("sub/../a.beton"), BETON_INVALID_ARGUMENT,
		   SAYS("sub/p"));
	/* A folder whose name begins with that of the index's. */
	mkdir("sub2", 0777);
	make("sub2/e.beton", (shard_kind){.samples = 1});
	refuse_set("sub/p.betonset", BETON_SET_REPLACE, SHARDS("sub2/e.beton"), BETON_INVALID_ARGUMENT, SAYS("sub2/e"));
	make("\xff.beton", (shard_kind){.samples = 1});
	refuse_set("u.betonset", BETON_SET_CREATE, SHARDS("\xff.beton"), BETON_INVALID_ARGUMENT, SAYS("UTF-8"));
	make("\xc3\xa9 \"1\".beton", (shard_kind){.samples = 1});
	write_set("u.betonset", BETON_SET_CREATE, SHARDS("\xc3\xa9 \"1\".beton"));
	beton_set *set = open_set("u.betonset");
	assert_string_equal(beton_set_shard(set, 0)->name, "\xc3\xa9 \"1\".beton");
	beton_set_close(&set);
}

/* The folder of a set is moved, and the set is opened from elsewhere. */
static void test_moved(void **state)
{
	(void)state;
	mkdir("old", 0777);
	mkdir("old/deep", 0777);
	make("old/a.beton", (shard_kind){.samples = 2});
	make("old/deep/b.beton", (shard_kind){.samples = 3, .first = 2});
	write_set("old/x.betonset", BETON_SET_CREATE, SHARDS("old/a.beton", "old/deep/b.beton"));
	assert_int_equal(rename("old", "new"), 0);
	assert_int_equal(chdir("new/deep"), 0);
	beton_set *set = open_set("../x.betonset");
	assert_string_equal(beton_set_shard(set, 1)->path, "../deep/b.beton");
	compare_shard(set, 1, "deep/b.beton");
	beton_set_close(&set);
	assert_int_equal(chdir("../.."), 0);
	make("new/c.beton", (shard_kind){.samples = 3, .first = 5});
	write_set("new/x.betonset", BETON_SET_APPEND, SHARDS("new/c.beton"));
	set = open_set("new/x.betonset");
	assert_int_equal(beton_set_get_info(set)->num_samples, 8);
	beton_set_close(&set);
	/* In memory, from a place that is not a folder. */
	file_content text = read_file("new/x.betonset");
	const char *url = "https://host/data/x.betonset";
	assert_int_equal(beton_set_parse(&set, url, (const char *)text.data, text.size, &err), BETON_OK);
	assert_string_equal(beton_set_shard(set, 1)->path, "https://host/data/deep/b.beton");
	beton_set_close(&set);
	free(text.data);
}

/* ---- files that changed ---- */

static void test_check(void **state)
{
	(void)state;
	static const struct {
		shard_kind kind;
		const char *says;
	} cases[] = {
		{{.samples = 4}, NULL}, /* written again: the same dataset */
		{{.samples = 4, .facts = "{\"a\": 1}"}, "its size in bytes"},
		{{.samples = 5, .plain = true}, "its size in bytes"},
		{{.samples = 4, .name = "word"}, "field 1 is 'word'"},
		{{.samples = 4, .first = 3}, "its content changed"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		make("k.beton", (shard_kind){.samples = 4});
		write_set("k.betonset", BETON_SET_REPLACE, SHARDS("k.beton"));
		beton_set *set = open_set("k.betonset");
		make("k.beton", cases[i].kind);
		beton_reader *reader = open_good("k.beton");
		int result = beton_set_check(set, 0, reader, &err);
		assert_int_equal(result, cases[i].says ? BETON_FILE_CHANGED : BETON_OK);
		if (cases[i].says &&
		    (!strstr(err.message, cases[i].says) || !strstr(err.message, "k.beton") ||
		     !strstr(err.message, "k.betonset")) &&
		    i != 3)
			fail_msg("%s", err.message);
		assert_int_equal(beton_set_check(set, 1, reader, &err), BETON_INVALID_ARGUMENT);
		beton_reader_close(&reader);
		beton_set_close(&set);
	}
}

/* Where values end follows from what else is in the file: something may have been put into its free space since. */
static void test_free_space(void **state)
{
	(void)state;
	make("f.beton", (shard_kind){.samples = 4});
	write_set("f.betonset", BETON_SET_REPLACE, SHARDS("f.beton"));
	file_content text = read_file("f.betonset");
	char *copy = strndup((const char *)text.data, text.size);
	char *number = strstr(copy, "\"data_bytes\": ");
	assert_non_null(number);
	number[strcspn(number, ",") - 1] ^= 1;
	char *other = sealed(copy, text.size);
	beton_set *set;
	assert_int_equal(beton_set_parse(&set, "f.betonset", other, strlen(other), &err), BETON_OK);
	beton_reader *reader = open_good("f.beton");
	assert_int_equal(beton_set_check(set, 0, reader, &err), BETON_OK);
	beton_reader_close(&reader);
	beton_set_close(&set);
	free(other);
	free(copy);
	free(text.data);
}

/* ---- adding ---- */

/* An open set is what it was; one that is opened now has the new shards. Permissions stay. */
static void test_append(void **state)
{
	(void)state;
	make_four();
	unlink("ap.betonset");
	write_set("ap.betonset", BETON_SET_CREATE, SHARDS("a.beton"));
	assert_int_equal(chmod("ap.betonset", 0600), 0);
	beton_set *before = open_set("ap.betonset");
	write_set("ap.betonset", BETON_SET_APPEND, SHARDS("sub/c.beton", "d.beton"));
	beton_set *after = open_set("ap.betonset");
	assert_true(beton_set_get_info(before)->num_shards == 1 && beton_set_get_info(before)->num_samples == 3);
	assert_true(beton_set_get_info(after)->num_shards == 3 && beton_set_get_info(after)->num_samples == 10);
	assert_string_equal(beton_set_shard(after, 2)->name, "d.beton");
	beton_set_close(&before);
	beton_set_close(&after);
	struct stat facts;
	assert_int_equal(stat("ap.betonset", &facts), 0);
	assert_int_equal(facts.st_mode & 0777, 0600);
	/* A partial file of a killed program. */
	static char rest[65536];
	memset(rest, '{', sizeof(rest));
	write_file(".ap.betonset.partial", rest, sizeof(rest));
	write_set("ap.betonset", BETON_SET_APPEND, SHARDS("b.beton"));
	assert_int_equal(access(".ap.betonset.partial", F_OK), -1);
	/* Traps. */
	assert_int_equal(symlink("a.beton", ".ap.betonset.partial"), 0);
	make("e.beton", (shard_kind){.samples = 1});
	assert_int_not_equal(beton_set_write("ap.betonset", BETON_SET_APPEND, SHARDS("e.beton"), NULL, &err), BETON_OK);
	unlink(".ap.betonset.partial");
	assert_int_equal(link("a.beton", ".ap.betonset.partial"), 0);
	refuse_set("ap.betonset", BETON_SET_APPEND, SHARDS("e.beton"), BETON_INVALID_ARGUMENT, SAYS("in the way"));
	unlink(".ap.betonset.partial");
	beton_reader *reader = open_good("a.beton");
	beton_reader_close(&reader);
}

/* Stops before the third file. */
static bool stop_third(void *context, uint32_t done, uint32_t count)
{
	assert_int_equal(count, 3);
	assert_int_equal((*(uint32_t *)context)++, done);
	return done < 2;
}

static void test_progress(void **state)
{
	(void)state;
	make_four();
	uint32_t calls = 0;
	beton_set_options options;
	beton_set_options_init(&options);
	options.progress = stop_third;
	options.context = &calls;
	const char *shards[] = {"a.beton", "b.beton", "d.beton"};
	assert_int_equal(beton_set_write("pr.betonset", BETON_SET_CREATE, shards, 3, &options, &err), BETON_CANCELLED);
	assert_int_equal(calls, 3);
	assert_int_equal(access("pr.betonset", F_OK), -1);
	options.struct_size = 1;
	assert_int_equal(beton_set_write("pr.betonset", BETON_SET_CREATE, shards, 3, &options, &err),
			 BETON_INVALID_ARGUMENT);
}

enum { APPENDERS = 4, EACH = 6 };

static int append_all(int process)
{
	for (int i = 0; i < EACH; i++) {
		char names[2][32];
		const char *shards[2] = {names[0], names[1]};
		for (int k = 0; k < 2; k++) {
			snprintf(names[k], sizeof(names[k]), "many/%d-%d-%d.beton", process, i, k);
			if (make_shard(names[k], (shard_kind){.samples = 2, .numbers = true}) != 0)
				return 2;
		}
		if (beton_set_write("many/x.betonset", BETON_SET_APPEND, shards, 2, NULL, &err) != BETON_OK) {
			fprintf(stderr, "%s\n", err.message);
			return 1;
		}
	}
	return 0;
}

/* Several processes add at once: no shard is lost, and the shards of one call stay together. Others read meanwhile. */
static void test_many_processes(void **state)
{
	(void)state;
	mkdir("many", 0777);
	make("many/first.beton", (shard_kind){.samples = 2, .numbers = true});
	write_set("many/x.betonset", BETON_SET_CREATE, SHARDS("many/first.beton"));
	pid_t pids[APPENDERS];
	for (int i = 0; i < APPENDERS; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0)
			_exit(append_all(i));
	}
	uint32_t seen = 0;
	for (int ended = 0; ended < APPENDERS;) {
		beton_set *set = open_set("many/x.betonset");
		uint32_t now = beton_set_get_info(set)->num_shards;
		assert_true(now >= seen && now % 2 == 1);
		seen = now;
		beton_set_close(&set);
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);
		assert_true(pid >= 0);
		if (pid > 0) {
			assert_int_equal(status, 0);
			ended++;
		}
	}
	beton_set *set = open_set("many/x.betonset");
	assert_int_equal(beton_set_get_info(set)->num_shards, 1 + 2 * APPENDERS * EACH);
	for (uint32_t i = 1; i < 1 + 2 * APPENDERS * EACH; i += 2) {
		const char *one = beton_set_shard(set, i)->name, *next = beton_set_shard(set, i + 1)->name;
		assert_memory_equal(one, next, strrchr(one, '-') - one);
	}
	beton_set_close(&set);
	assert_int_equal(access("many/.x.betonset.partial", F_OK), -1);
}

enum { THOUSANDS = 5000 };

/* Five thousand files. Opening the index opens none of them. */
static void test_thousands(void **state)
{
	(void)state;
	static char names[THOUSANDS][24];
	const char *shards[THOUSANDS];
	mkdir("big", 0777);
	make("big/0.beton", (shard_kind){.samples = 2, .numbers = true});
	file_content one = read_file("big/0.beton");
	for (int i = 0; i < THOUSANDS; i++) {
		snprintf(names[i], sizeof(names[i]), "big/%d.beton", i);
		shards[i] = names[i];
		write_file(names[i], one.data, one.size);
	}
	free(one.data);
	write_set("big/x.betonset", BETON_SET_CREATE, shards, THOUSANDS);
	for (int i = 0; i < THOUSANDS; i++)
		assert_int_equal(unlink(names[i]), 0);
	beton_set *set = open_set("big/x.betonset");
	assert_int_equal(beton_set_get_info(set)->num_shards, THOUSANDS);
	for (uint64_t i = 0; i < 2 * THOUSANDS; i++) {
		uint32_t shard;
		uint64_t index;
		assert_int_equal(beton_set_locate(set, i, &shard, &index, &err), BETON_OK);
		assert_true(shard == i / 2 && index == i % 2);
	}
	beton_set_close(&set);
}

int main(void)
{
	/* Thousands of files are synced; whether a disk really does so is not what is tested. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_locate),
		cmocka_unit_test(test_fields),     cmocka_unit_test(test_compressed),
		cmocka_unit_test(test_rasters),    cmocka_unit_test(test_modes),
		cmocka_unit_test(test_links),      cmocka_unit_test(test_mismatch),
		cmocka_unit_test(test_accepts),    cmocka_unit_test(test_places),
		cmocka_unit_test(test_moved),      cmocka_unit_test(test_check),
		cmocka_unit_test(test_free_space), cmocka_unit_test(test_append),
		cmocka_unit_test(test_progress),   cmocka_unit_test(test_many_processes),
		cmocka_unit_test(test_thousands),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
