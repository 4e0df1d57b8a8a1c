/* SPDX-License-Identifier: Apache-2.0
 *
 * Damaged and hostile files: each is refused with its code, or read within its bounds. Never a crash, never a hang. */
#include "tests/support/beton_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/system.h"

#define PAGE (UINT32_C(2) << 20)
enum {
	HEADER = 24,
	FIELD = 1041,
	FIELDS = 4,
	SAMPLES = 3,
	METADATA = HEADER + FIELDS * FIELD,
	/* image 13, then aligned to 8: label, array; bytes 16 */
	RECORD = 48,
	ENTRY = 24,
	ENTRIES = SAMPLES * 3,
};

static const char *path; /* a small good file, which each test damages in its own way */
static uint64_t table;
static file_content good;

static void restore(void)
{
	write_file(path, good.data, good.size);
}

static void put(uint64_t offset, uint64_t value, size_t bytes)
{
	uint8_t little[8];
	for (size_t i = 0; i < bytes; i++)
		little[i] = (uint8_t)(value >> (8 * i));
	patch_file(path, offset, little, bytes);
}

static uint64_t get(uint64_t offset, size_t bytes)
{
	uint64_t value = 0;
	for (size_t i = bytes; i-- > 0;)
		value = value << 8 | good.data[offset + i];
	return value;
}

static int setup(void **state)
{
	(void)state;
	make_folder();
	static char kept[512];
	snprintf(kept, sizeof(kept), "%s", in_folder("small.beton"));
	path = kept;
	const beton_field fields[FIELDS] = {
		{.name = "image", .type = BETON_FIELD_IMAGE},
		{.name = "label", .type = BETON_FIELD_INT},
		{.name = "array", .type = BETON_FIELD_NDARRAY, .dtype = "<f4", .ndim = 2, .shape = {2, 3}},
		{.name = "bytes", .type = BETON_FIELD_BYTES},
	};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = PAGE;
	options.flags = BETON_WRITER_NO_EXTENSION; /* each check has to hold without a checksum before it */
	beton_writer *writer;
	assert_int_equal(beton_writer_open(&writer, path, fields, FIELDS, &options, NULL), BETON_OK);
	uint8_t bytes[64] = {1, 2, 3};
	for (int i = 0; i < SAMPLES; i++) {
		const beton_input values[] = {
			{.data = bytes, .size = i ? 50 : 24, .mode = i ? 0 : 1, .width = 4, .height = 2},
			{.integer = i},
			{.data = bytes, .size = 24},
			{.data = bytes, .size = (uint64_t)i * 9}};
		assert_int_equal(beton_writer_append(writer, values, NULL), BETON_OK);
	}
	assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
	beton_writer_close(&writer);
	good = read_file(path);
	table = get(16, 8);
	assert_int_equal(good.size, table + ENTRIES * ENTRY);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(good.data);
	remove_folder();
	return 0;
}

static void test_every_code_has_a_name(void **state)
{
	(void)state;
#define CHECK_CODE(name, value, text)                         \
	assert_string_equal(beton_status_name(value), #name); \
	assert_string_equal(beton_status_text(value), text);
	BETON_STATUS_LIST(CHECK_CODE)
#undef CHECK_CODE
	assert_string_equal(beton_status_name(-9999), "UNKNOWN");
	assert_non_null(beton_status_text(-9999));
}

/* A cut file is never taken for a whole one. */
static void expect_cuts_refused(const char *name, const file_content *content, uint64_t dense_until,
				uint64_t dense_from)
{
	write_file(name, content->data, content->size);
	for (uint64_t length = content->size; length-- > 0;) {
		/* Inside the page one length is like the next. */
		if (length > dense_until && length < dense_from && length % 40961)
			continue;
		assert_int_equal(truncate(name, (off_t)length), 0);
		const char *message = expect_refusal(name, BETON_TRUNCATED);
		char number[64];
		snprintf(number, sizeof(number), "the file has %llu", (unsigned long long)length);
		assert_non_null(strstr(message, number));
	}
}

static void test_1_every_truncation(void **state)
{
	(void)state;
	expect_cuts_refused(in_folder("cut.beton"), &good, METADATA + SAMPLES * RECORD + 100, table - 100);
	file_content scalars = read_file(unpack_golden("scalars-only"));
	expect_cuts_refused(in_folder("cut-scalars.beton"), &scalars, scalars.size, 0);
	free(scalars.data);
}

static void test_2_versions(void **state)
{
	(void)state;
	static const uint16_t versions[] = {1, 3, 255, 0, 0x0200, 0xffff};
	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		put(0, versions[i], 2);
		const char *message = expect_refusal(path, BETON_UNSUPPORTED_VERSION);
		assert_non_null(strstr(message, "not a .beton file"));
		assert_int_equal(strstr(message, "of version 2 (it says") != NULL, i < 3);
	}
	put(0, 3, 2);
	put(4, PAGE + 1, 4);
	assert_null(strstr(expect_refusal(path, BETON_UNSUPPORTED_VERSION), "version"));
	restore();
}

/* The kind of a wrong file, if its beginning shows it, whatever its name. */
static void test_other_files(void **state)
{
	(void)state;
	static const struct {
		const char *begin, *text;
	} files[] = {
		{"From: a text of more than 24 bytes\n", ": not a .beton file"},
		{"{\"beton_set\":1,\"fields\":[]}",
		 ": the index of a set of shards, not a .beton file; beton-set lists"},
		{"\x88\xd8\x34\x01\x01......................", ": a stream of tokens, not a .beton file; beton-info"},
		{"\xa1\xd9\x34\x01\x07......................", ": a stream of tokens, not a .beton file; beton-info"},
		{"\x89PNG.......................", ": a picture, not a .beton file; beton-write"},
	};
	const char *name = in_folder("other");
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		write_file(name, (const uint8_t *)files[i].begin, strlen(files[i].begin));
		const char *message = expect_refusal(name, BETON_UNSUPPORTED_VERSION);
		assert_int_equal(strncmp(message + strlen(name), files[i].text, strlen(files[i].text)), 0);
		assert_null(strstr(message, "version"));
	}
}

static void test_3_numbers_of_fields(void **state)
{
	(void)state;
	put(2, 0, 2);
	expect_refusal(path, BETON_FORMAT);
	put(2, 65535, 2);
	expect_refusal(path, BETON_FORMAT);
	put(2, FIELDS - 1, 2);
	expect_refusal(path, BETON_FORMAT);
	restore();
}

static void test_4_page_sizes(void **state)
{
	(void)state;
	static const uint32_t sizes[] = {0, 1, 3u << 20, (1u << 21) - 1, 1u << 20, UINT32_MAX};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		put(4, sizes[i], 4);
		expect_refusal(path, BETON_FORMAT);
	}
	/* A large page is legal, and costs no memory. */
	put(4, UINT32_C(1) << 31, 4);
	beton_reader *reader = open_good(path);
	assert_int_equal(read_everything(reader), 0);
	beton_reader_close(&reader);
	restore();
}

static void test_5_numbers_of_samples(void **state)
{
	(void)state;
	const uint64_t counts[] = {UINT64_MAX,
				   UINT64_MAX / RECORD,
				   UINT64_MAX / RECORD + 2,
				   UINT64_MAX / ENTRY / 3,
				   INT64_MAX,
				   1u << 30,
				   (table - METADATA) / RECORD + 1};
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		put(8, counts[i], 8);
		expect_refusal(path, BETON_FORMAT);
	}
	put(8, SAMPLES + 1, 8);
	expect_refusal(path, BETON_TRUNCATED);
	put(8, SAMPLES - 1, 8);
	expect_refusal(path, BETON_FORMAT);
	/* No sample at all is an empty set, when the table is empty too. */
	put(8, 0, 8);
	put(16, good.size, 8);
	beton_reader *reader = open_good(path);
	assert_int_equal(beton_reader_info(reader)->num_samples, 0);
	beton_reader_close(&reader);
	restore();
}

static void test_6_table_pointers(void **state)
{
	(void)state;
	put(16, 0, 8);
	assert_non_null(strstr(expect_refusal(path, BETON_INCOMPLETE),
			       "its writer did not finish (no allocation table); beton-repair saves what is there"));
	static const uint64_t inside[] = {1, HEADER, METADATA - 1, UINT64_MAX - 7, UINT64_MAX, (uint64_t)INT64_MAX + 1};
	for (size_t i = 0; i < sizeof(inside) / sizeof(*inside); i++) {
		put(16, inside[i], 8);
		expect_refusal(path, BETON_FORMAT);
	}
	put(16, METADATA + 5, 8);
	expect_refusal(path, BETON_FORMAT);
	put(16, table - ENTRY, 8);
	expect_refusal(path, BETON_FORMAT);
	put(16, table + 1, 8);
	expect_refusal(path, BETON_TRUNCATED);
	put(16, good.size + 1, 8);
	expect_refusal(path, BETON_TRUNCATED);
	restore();
}

static void test_7_unknown_types(void **state)
{
	(void)state;
	for (uint64_t type = 7; type <= 255; type++) {
		put(HEADER + FIELD, type, 1);
		const char *message = expect_refusal(path, BETON_UNSUPPORTED_FIELD);
		assert_non_null(strstr(message, "label"));
	}
	restore();
}

static void test_8_names(void **state)
{
	(void)state;
	patch_file(path, HEADER + 1, "sixteen bytes ok", 16);
	beton_reader *reader = open_good(path);
	assert_string_equal(beton_reader_field(reader, 0)->name, "sixteen bytes ok");
	assert_int_equal(beton_reader_find_field(reader, "sixteen bytes ok"), 0);
	beton_reader_close(&reader);
	patch_file(path, HEADER + 1, "label\0", 6);
	expect_refusal(path, BETON_FORMAT);
	/* Only text may reach a terminal or a log: no controls, not even of 8 bits, and only UTF-8. */
	static const struct {
		const char *name, *shown;
	} names[] = {
		{"\x1b[2J\n\x7f", "'?[2J?\?'"},
		{"\xff\x9b"
		 "2J\xc2\x9b"
		 "2J",
		 "'??2J??2J'"},
		{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "'\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80'"},
		{"\xc0\xaf\xe0\x80\xaf\xed\xa0\x80\xf5\x80\x80\x80\xe2\x82", "'?????????????\?'"},
	};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char name[16] = "";
		memcpy(name, names[i].name, strlen(names[i].name));
		patch_file(path, HEADER + 1, name, sizeof(name));
		put(HEADER, 99, 1);
		const char *message = expect_refusal(path, BETON_UNSUPPORTED_FIELD);
		if (!strstr(message, names[i].shown))
			fail_msg("'%s' is not in '%s'", names[i].shown, message);
	}
	restore();
}

static void set_array(const char *type, uint64_t length, const uint64_t *shape, int dimensions)
{
	uint64_t at = HEADER + 2 * FIELD + 17;
	for (int i = 0; i < 32; i++)
		put(at + 8 * (uint64_t)i, i < dimensions ? shape[i] : 0, 8);
	put(at + 256, length, 8);
	patch_file(path, at + 264, type, strlen(type) + 1);
}

static void test_9_array_arguments(void **state)
{
	(void)state;
	const uint64_t shape[] = {2, 3};
	static const char *const types[] = {"",
					    "[",
					    "[]",
					    "[[]]",
					    "[[\"\"]]",
					    "{}",
					    "\"<f4\"",
					    "[[\"\", \"|O\"]]",
					    "[[\"\", 5]]",
					    "[[0, \"<f4\"]]",
					    "[[\"\", \"<f4\", [2]]]",
					    "[[\"a\", \"<f4\"], [\"b\", \"<f4\"]]",
					    "[[\"\", \"<f4\\u0000\"]]",
					    "[[\"\", \"<f9999999999999999999999999999\"]]",
					    "[[\"\", \"<M8[\\u001b[2J]\"]]",
					    "[[\"\", \"<m8[]\"]]",
					    "[[\"\", \"<m8[s\"]]",
					    "\xff\xfe",
					    "[[\"\", \"<f4\"]] x"};
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		set_array(types[i], strlen(types[i]), shape, 2);
		expect_refusal(path, BETON_FORMAT);
	}
	static const char *const f4 = "[[\"\", \"<f4\"]]";
	static const uint64_t lengths[] = {0, 1, 12, 14, 760, 761, UINT64_MAX, UINT64_MAX - 263};
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		set_array(f4, lengths[i], shape, 2);
		expect_refusal(path, BETON_FORMAT);
	}
	const uint64_t huge[] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
	const uint64_t wrapping[] = {UINT64_C(1) << 32, UINT64_C(1) << 32};
	const uint64_t over[] = {PAGE / 4 + 1};
	set_array(f4, 13, huge, 3);
	expect_refusal(path, BETON_FORMAT);
	set_array(f4, 13, wrapping, 2);
	expect_refusal(path, BETON_FORMAT);
	set_array(f4, 13, over, 1);
	expect_refusal(path, BETON_FORMAT);
	set_array(f4, 13, huge, 0);
	expect_refusal(path, BETON_FORMAT);
	/* No elements: but no array of NumPy's has such dimensions beside the 0. */
	const uint64_t huge_beside_none[] = {UINT64_MAX, UINT64_MAX, 0, 1};
	set_array(f4, 13, huge_beside_none, 4);
	expect_refusal(path, BETON_FORMAT);
	/* Otherwise it opens, and then no sample has the right size. */
	const uint64_t none[] = {UINT32_MAX, 7, 0, 1};
	set_array(f4, 13, none, 4);
	beton_reader *reader = open_good(path);
	assert_int_equal(read_everything(reader), SAMPLES);
	beton_reader_close(&reader);
	restore();
}

/* Types of arrays that NumPy spells, with the size of an element; 0: there is no such type. */
static void test_9_array_types(void **state)
{
	(void)state;
	static const struct {
		const char *type;
		uint32_t size;
	} types[] = {{"|b1", 1},          {"<b2", 0},     {"|i1", 1},     {"<i8", 8},          {">u2", 2},
		     {"=u4", 4},          {"<i3", 0},     {"<f2", 2},     {"<f8", 8},          {"<f12", 12},
		     {"<f16", 16},        {"<f5", 0},     {"<c8", 8},     {"<c16", 16},        {"<c24", 24},
		     {"<c32", 32},        {"<c4", 0},     {"<M8[ns]", 8}, {"<m8", 8},          {"<m8[25s]", 8},
		     {"<M4", 0},          {"<U7", 28},    {"|S5", 5},     {"|V100", 100},      {"|V0", 0},
		     {"<U2000000000", 0}, {"?b1", 0},     {"<", 0},       {"<x4", 0},          {"<f4[s]", 0},
		     {"<M8[s", 0},        {"<M8[s]]", 0}, {"<M8[]", 0},   {"<f44444444444", 0}};
	const uint64_t shape[] = {2, 3};
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		char text[64];
		int length = snprintf(text, sizeof(text), "[[\"\", \"%s\"]]", types[i].type);
		set_array(text, (uint64_t)length, shape, 2);
		if (types[i].size == 0) {
			expect_refusal(path, BETON_FORMAT);
			continue;
		}
		beton_reader *reader = open_good(path);
		assert_int_equal(beton_reader_field(reader, 2)->item_size, types[i].size);
		assert_string_equal(beton_reader_field(reader, 2)->dtype, types[i].type);
		beton_reader_close(&reader);
	}
	restore();
}

static void test_10_allocation_entries(void **state)
{
	(void)state;
	const struct {
		uint64_t sample, pointer, size;
	} entries[] = {
		{SAMPLES, PAGE, 1},                      /* no such sample */
		{UINT64_MAX, PAGE, 1},                   /* the same */
		{0, 0, 1},                               /* in the header */
		{0, METADATA, 1},                        /* in the metadata */
		{0, METADATA + SAMPLES * RECORD - 1, 1}, /* its last byte */
		{0, table, 1},                           /* in the table itself */
		{0, table - 1, 2},                       /* reaches into it */
		{0, UINT64_MAX, 2},                      /* overflows */
		{0, UINT64_MAX - 10, PAGE},              /* the same */
		{0, table, UINT64_MAX},                  /* the same */
		{0, PAGE - 1, 2},                        /* crosses a page */
		{0, PAGE, PAGE + 1},                     /* larger than a page */
		{0, table + 1, 0},                       /* empty, but after the pages */
		{0, PAGE + 30, 40},                      /* overlaps */
		{1, PAGE + 24, 24},                      /* exactly on another */
	};
	for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
		put(table, entries[i].sample, 8);
		put(table + 8, entries[i].pointer, 8);
		put(table + 16, entries[i].size, 8);
		expect_damage(path, BETON_FORMAT);
		/* It opens nevertheless, and what the entry is not about can be read. */
		beton_reader *reader = open_good(path);
		assert_true(read_everything(reader) <= 2);
		beton_reader_close(&reader);
	}
	restore();
	/* Backwards is legal. */
	for (uint64_t i = 0; i < ENTRIES; i++)
		patch_file(path, table + i * ENTRY, good.data + table + (ENTRIES - 1 - i) * ENTRY, ENTRY);
	beton_reader *reader = open_good(path);
	assert_int_equal(read_everything(reader), 0);
	beton_reader_close(&reader);
	restore();
	/* One byte, or one entry, too many. */
	patch_file(path, good.size, "x", 1);
	expect_refusal(path, BETON_FORMAT);
	patch_file(path, good.size, good.data + table, ENTRY);
	expect_refusal(path, BETON_FORMAT);
	restore();
}

/* FFCV gives an empty blob the pointer of the next blob, and an empty first blob a place before the pages. */
static void test_10_empty_blobs_share_pointers(void **state)
{
	(void)state;
	uint64_t record = METADATA;
	uint64_t bytes_entry = table + 2 * ENTRY;
	uint64_t pointers[] = {get(record + 5, 8), get(table + 3 * ENTRY + 8, 8), PAGE - 1, 0};
	for (size_t i = 0; i < sizeof(pointers) / sizeof(*pointers); i++) {
		put(record + 32, pointers[i], 8);
		put(bytes_entry + 8, pointers[i], 8);
		beton_reader *reader = open_good(path);
		assert_int_equal(read_everything(reader), 0);
		beton_value value;
		assert_int_equal(beton_reader_value(reader, 0, 0, &value, NULL), BETON_OK);
		assert_int_equal(value.blob.size, 24);
		assert_int_equal(beton_reader_value(reader, 0, 3, &value, NULL), BETON_OK);
		assert_int_equal(value.blob.size, 0);
		beton_reader_close(&reader);
	}
	restore();
}

/* A file that points every entry at one place must not make each look-up a walk over all of them: 2^16 fields of one
 * sample, each without bytes, are 2^16 searches and not 2^31 steps. */
static void test_10_many_empty_entries(void **state)
{
	(void)state;
	enum { MANY = 65535 };
	const char *name = in_folder("many.beton");
	uint64_t end = HEADER + (uint64_t)MANY * FIELD + (uint64_t)MANY * 16;
	size_t size = (size_t)(end + (uint64_t)MANY * ENTRY);
	uint8_t *bytes = calloc(1, size);
	assert_non_null(bytes);
	const uint64_t head[] = {2 | (uint64_t)MANY << 16 | (uint64_t)PAGE << 32, 1, end};
	for (size_t i = 0; i < sizeof(head); i++)
		bytes[i] = (uint8_t)(head[i / 8] >> i % 8 * 8);
	for (int i = 0; i < MANY; i++) {
		uint8_t *field = bytes + HEADER + (size_t)i * FIELD;
		field[0] = BETON_FIELD_BYTES;
		snprintf((char *)field + 1, 16, "%d", i);
	}
	write_file(name, bytes, size);
	free(bytes);
	beton_reader *reader = open_good(name);
	assert_int_equal(read_everything(reader), 0);
	beton_reader_close(&reader);
	assert_int_equal(unlink(name), 0);
}

static void expect_damaged(uint64_t sample, uint32_t field)
{
	beton_reader *reader = open_good(path);
	beton_value value;
	beton_error err = {0};
	assert_int_equal(beton_reader_value(reader, sample, field, &value, &err), BETON_SAMPLE_CORRUPT);
	assert_int_equal(err.sample, sample);
	assert_non_null(strstr(err.message, beton_reader_field(reader, field)->name));
	beton_reader_close(&reader);
	restore();
}

static void test_11_sample_pointers(void **state)
{
	(void)state;
	uint64_t record = METADATA + RECORD;
	const uint64_t pointers[] = {0,         1, get(record + 5, 8) + 1, get(record + 5, 8) - 1, get(METADATA + 5, 8),
				     UINT64_MAX};
	for (size_t i = 0; i < sizeof(pointers) / sizeof(*pointers); i++) {
		put(record + 5, pointers[i], 8);
		expect_damaged(1, 0);
		put(record + 24, pointers[i], 8);
		expect_damaged(1, 2);
		put(record + 32, pointers[i], 8);
		expect_damaged(1, 3);
	}
	put(record + 40, 8, 8);
	expect_damaged(1, 3);
	put(record + 40, UINT64_MAX, 8);
	expect_damaged(1, 3);
	put(record + 40, 0, 8);
	expect_damaged(1, 3);
}

static void test_12_images(void **state)
{
	(void)state;
	for (uint64_t mode = 2; mode < 256; mode += 23) {
		put(METADATA, mode, 1);
		expect_damaged(0, 0);
	}
	put(METADATA + 1, 0, 2);
	expect_damaged(0, 0);
	put(METADATA + 3, 0, 2);
	expect_damaged(0, 0);
	put(METADATA + 1, 65535, 2);
	expect_damaged(0, 0);
	put(METADATA + 1, 3, 2);
	expect_damaged(0, 0);
	/* A JPEG of no bytes. */
	put(table + 3 * ENTRY + 16, 0, 8);
	expect_damaged(1, 0);
}

static void test_14_file_shrinks_while_open(void **state)
{
	(void)state;
	beton_reader *reader = open_good(path);
	beton_value value;
	uint8_t bytes[64];
	beton_error err;
	assert_int_equal(beton_reader_value(reader, 2, 2, &value, &err), BETON_OK);
	assert_int_equal(truncate(path, (off_t)value.blob.offset + 3), 0);
	assert_int_equal(beton_reader_read(reader, &value.blob, bytes, &err), BETON_FILE_CHANGED);
	beton_reader_close(&reader);
	restore();
}

/* Opens a file that may be good or bad, and reads all that can be read. */
static void survive(void)
{
	beton_reader *reader;
	beton_error err = {0};
	int result = beton_reader_open(&reader, path, &err);
	if (result == BETON_OK)
		read_everything(reader);
	else
		assert_true(err.code == result && err.message[0]);
	beton_reader_close(&reader);
}

static void survive_edits(uint64_t from, uint64_t to)
{
	for (uint64_t at = from; at < to; at++) {
		uint8_t old = good.data[at];
		uint8_t edits[12] = {0, 255, (uint8_t)(old + 1), (uint8_t)(old - 1)};
		for (int bit = 0; bit < 8; bit++)
			edits[4 + bit] = (uint8_t)(old ^ (1 << bit));
		for (size_t i = 0; i < sizeof(edits); i++) {
			put(at, edits[i], 1);
			survive();
		}
		put(at, old, 1);
	}
}

static void test_15_every_byte_and_bit(void **state)
{
	(void)state;
	survive_edits(0, METADATA + SAMPLES * RECORD);
	survive_edits(table, good.size);
}

/* A fixed sequence of edits of one to eight bytes: what bits alone do not reach. */
static void test_15_many_edits(void **state)
{
	(void)state;
	uint64_t random = 88172645463325252u;
	uint64_t metadata_end = METADATA + SAMPLES * RECORD;
	for (int i = 0; i < 20000; i++) {
		for (int edits = 0; edits < 3; edits++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			uint64_t at = random % (metadata_end + good.size - table - 8);
			if (at + 8 > metadata_end)
				at = at - metadata_end + 8 + table;
			static const uint64_t values[] = {0, 1, PAGE, UINT64_MAX, INT64_MAX, 1u << 31};
			put(at, random >> 60 < 6 ? values[random >> 60] : random >> 8, (size_t)1 << (random >> 56 & 3));
		}
		survive();
		if (i % 4 == 3) {
			patch_file(path, 0, good.data, (size_t)metadata_end);
			patch_file(path, table, good.data + table, (size_t)(good.size - table));
		}
	}
	restore();
}

static void test_16_paths(void **state)
{
	(void)state;
	const char *fifo = in_folder("fifo");
	assert_int_equal(mkfifo(fifo, 0600), 0);
	expect_refusal(fifo, BETON_INVALID_ARGUMENT);
	expect_refusal(in_folder(""), BETON_INVALID_ARGUMENT);
	expect_refusal("/dev/zero", BETON_INVALID_ARGUMENT);
	expect_refusal(in_folder("none"), BETON_NOT_FOUND);
	expect_refusal(in_folder("small.beton/x"), BETON_NOT_FOUND);
	const char *loop = in_folder("loop");
	assert_int_equal(symlink(loop, loop), 0);
	expect_refusal(loop, BETON_IO);
	write_file(in_folder("empty"), "", 0);
	expect_refusal(in_folder("empty"), BETON_TRUNCATED);
}

static void test_16_unreadable(void **state)
{
	(void)state;
	uid_t user = geteuid();
	assert_int_equal(chmod(path, 0), 0);
	/* Root reads everything; another user cannot even enter the folder. */
	if (user == 0)
		assert_int_equal(seteuid(65534), 0);
	expect_refusal(path, BETON_ACCESS);
	if (user == 0)
		assert_int_equal(seteuid(user), 0);
	assert_int_equal(chmod(path, 0644), 0);
}

static void test_16_beyond_4_gib(void **state)
{
	(void)state;
	const uint64_t shift = UINT64_C(5) << 30;
	for (uint64_t i = 0; i < ENTRIES; i++)
		put(table + i * ENTRY + 8, get(table + i * ENTRY + 8, 8) + shift, 8);
	for (uint64_t i = 0; i < SAMPLES; i++)
		for (uint64_t j = 0; j < 3; j++) {
			uint64_t at = METADATA + i * RECORD + (const uint64_t[]){5, 24, 32}[j];
			put(at, get(at, 8) + shift, 8);
		}
	file_content moved = read_file(path);
	uint64_t pages = table - PAGE;
	patch_file(path, PAGE + shift, moved.data + PAGE, (size_t)(moved.size - PAGE));
	put(16, PAGE + shift + pages, 8);
	free(moved.data);
	beton_reader *reader = open_good(path);
	assert_int_equal(read_everything(reader), 0);
	beton_value value;
	uint8_t bytes[64];
	assert_int_equal(beton_reader_value(reader, 2, 0, &value, NULL), BETON_OK);
	assert_true(value.blob.offset > shift);
	assert_int_equal(beton_reader_read(reader, &value.blob, bytes, NULL), BETON_OK);
	assert_memory_equal(bytes, "\1\2\3", 3);
	beton_reader_close(&reader);
	restore();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_code_has_a_name),
		cmocka_unit_test(test_1_every_truncation),
		cmocka_unit_test(test_2_versions),
		cmocka_unit_test(test_other_files),
		cmocka_unit_test(test_3_numbers_of_fields),
		cmocka_unit_test(test_4_page_sizes),
		cmocka_unit_test(test_5_numbers_of_samples),
		cmocka_unit_test(test_6_table_pointers),
		cmocka_unit_test(test_7_unknown_types),
		cmocka_unit_test(test_8_names),
		cmocka_unit_test(test_9_array_arguments),
		cmocka_unit_test(test_9_array_types),
		cmocka_unit_test(test_10_allocation_entries),
		cmocka_unit_test(test_10_empty_blobs_share_pointers),
		cmocka_unit_test(test_10_many_empty_entries),
		cmocka_unit_test(test_11_sample_pointers),
		cmocka_unit_test(test_12_images),
		cmocka_unit_test(test_14_file_shrinks_while_open),
		cmocka_unit_test(test_15_every_byte_and_bit),
		cmocka_unit_test(test_15_many_edits),
		cmocka_unit_test(test_16_paths),
		cmocka_unit_test(test_16_unreadable),
		cmocka_unit_test(test_16_beyond_4_gib),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
