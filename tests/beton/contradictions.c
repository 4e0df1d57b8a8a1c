/* SPDX-License-Identifier: Apache-2.0
 *
 * Files whose parts contradict each other, one edit away from good ones: what can be known is said by opening, or by
 * beton_reader_check_structure and beton_verify, and where only the content tells, by a deep check. FFCV's reader looks
 * at the version alone: it takes the records that the header counts and a table to the end of the file. */
#include "tests/support/beton_files.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <beton/verify.h>

#define PAGE (UINT32_C(2) << 20)
enum { HEADER = 24, FIELD = 1041, ARGUMENTS = 17, ENTRY = 24, FIELDS_MAX = 5, SAMPLES = 3, ROOM = 1 << 16 };

static const char *path;

/* A good file, and an edited copy of it. */
typedef struct dataset {
	const char *name;
	uint8_t *data; /* ROOM bytes of zeros after size */
	size_t size;
	beton_file_info info;
	beton_field fields[FIELDS_MAX];
	uint64_t blobs; /* of a sample */
} dataset;

static dataset base;
static dataset edited;
static char edit[64]; /* what was done to it */

static const beton_field mixed_fields[] = {
	{.name = "image", .type = BETON_FIELD_IMAGE},
	{.name = "label", .type = BETON_FIELD_INT},
	{.name = "array", .type = BETON_FIELD_NDARRAY, .dtype = "<f4", .ndim = 2, .shape = {2, 3}},
	{.name = "mask", .type = BETON_FIELD_NDARRAY, .dtype = "<f4", .ndim = 2, .shape = {2, 3}},
	{.name = "bytes", .type = BETON_FIELD_BYTES}};
static const beton_field text_fields[] = {{.name = "bytes", .type = BETON_FIELD_BYTES},
					  {.name = "json", .type = BETON_FIELD_JSON}};
static const beton_field scalar_fields[] = {{.name = "i", .type = BETON_FIELD_INT},
					    {.name = "f", .type = BETON_FIELD_FLOAT}};

static bool has_blob(const beton_field *field)
{
	return field->type != BETON_FIELD_INT && field->type != BETON_FIELD_FLOAT;
}

static bool is_array(const beton_field *field)
{
	return field->type == BETON_FIELD_NDARRAY;
}

static uint64_t peek(const dataset *file, uint64_t offset, size_t bytes)
{
	uint64_t value = 0;
	while (bytes--)
		value = value << 8 | file->data[offset + bytes];
	return value;
}

static void poke(uint64_t offset, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		edited.data[offset + i] = (uint8_t)(value >> 8 * i);
}

static uint64_t entry_at(uint64_t number)
{
	return base.info.alloc_table_offset + number * ENTRY;
}

static uint64_t record_at(uint64_t sample)
{
	return base.info.metadata_offset + sample * base.info.record_size;
}

static void write_sample(beton_writer *writer, const beton_field *fields, uint32_t count, uint64_t sample)
{
	static const uint8_t bytes[24] = {1, 2, 3};
	beton_input values[FIELDS_MAX] = {0};
	beton_error err;
	for (uint32_t i = 0; i < count; i++) {
		values[i] = (beton_input){.data = bytes, .size = 24, .integer = (int64_t)sample + 5, .real = 1.5};
		if (fields[i].type == BETON_FIELD_IMAGE)
			values[i].mode = BETON_IMAGE_RAW, values[i].width = 4, values[i].height = 2;
		/* The first sample has none, unless they are the first field. */
		if (fields[i].type == BETON_FIELD_BYTES)
			values[i].size = sample * 3 % 7 + (i == 0);
		if (fields[i].type == BETON_FIELD_JSON)
			values[i].data = "{}", values[i].size = 2;
	}
	if (beton_writer_append(writer, values, &err) != BETON_OK)
		fail_msg("%s", err.message);
}

/* Without checksums, as FFCV's: they would tell of any edit. shuffled: the table, as FFCV's workers leave it. */
static void make_base(const char *name, const beton_field *fields, uint32_t count, uint64_t samples, bool shuffled)
{
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = PAGE;
	options.flags = BETON_WRITER_NO_EXTENSION;
	beton_writer *writer;
	assert_int_equal(beton_writer_open(&writer, path, fields, count, &options, NULL), BETON_OK);
	for (uint64_t i = 0; i < samples; i++)
		write_sample(writer, fields, count, i);
	assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
	beton_writer_close(&writer);
	free(base.data);
	file_content content = read_file(path);
	beton_reader *reader = open_good(path);
	base = (dataset){.name = name, .size = content.size, .info = *beton_reader_info(reader)};
	for (uint32_t i = 0; i < count; i++) {
		base.fields[i] = *beton_reader_field(reader, i);
		base.blobs += has_blob(&fields[i]);
	}
	beton_reader_close(&reader);
	base.data = calloc(1, base.size + ROOM);
	assert_non_null(base.data);
	memcpy(base.data, content.data, base.size);
	free(content.data);
	free(edited.data);
	edited.data = malloc(base.size + ROOM);
	assert_non_null(edited.data);
	memcpy(edited.data, base.data, base.size + ROOM);
	uint64_t entries = samples * base.blobs;
	for (uint64_t i = 0; shuffled && i < entries; i++) {
		uint8_t one[ENTRY];
		uint64_t other = (i * 7 + 3) % entries;
		memcpy(one, base.data + entry_at(i), ENTRY);
		memmove(base.data + entry_at(i), base.data + entry_at(other), ENTRY);
		memcpy(base.data + entry_at(other), one, ENTRY);
	}
}

/* ---- an edit, and who has to see it ---- */

/* Edits are in the first and the last part of a file; the pages between them stay. */
static size_t head_size(void)
{
	return base.size < ROOM ? base.size : ROOM;
}

static size_t tail_begin(void)
{
	uint64_t table = base.info.alloc_table_offset;
	return table < 2 * ROOM ? head_size() : (size_t)table - ROOM;
}

static void begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void begin(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(edit, sizeof(edit), format, arguments);
	va_end(arguments);
	uint8_t *data = edited.data;
	edited = base;
	edited.data = data;
	memcpy(edited.data, base.data, head_size());
	memcpy(edited.data + tail_begin(), base.data + tail_begin(), base.size + ROOM - tail_begin());
}

static uint64_t verify(bool deep)
{
	beton_verify_options options;
	beton_verify_options_init(&options);
	options.deep = deep;
	options.num_threads = 1;
	beton_verify_report report;
	beton_error err;
	if (beton_verify(path, &options, &report, &err) != BETON_OK)
		fail_msg("%s: %s", edit, err.message);
	return report.findings;
}

static bool is_changed(void)
{
	size_t tail = tail_begin();
	return edited.size != base.size || memcmp(edited.data, base.data, head_size()) != 0 ||
	       memcmp(edited.data + tail, base.data + tail, base.size - tail) != 0;
}

/* Over the file of the edit before. */
static void write_edited(void)
{
	size_t tail = tail_begin();
	size_t size = edited.size < head_size() ? edited.size : head_size();
	assert_int_equal(truncate(path, (off_t)edited.size), 0);
	patch_file(path, 0, edited.data, size);
	if (edited.size > tail)
		patch_file(path, tail, edited.data + tail, edited.size - tail);
}

enum seen { BY_NOBODY, BY_DEEP, BY_ALL };

static void end(enum seen expected)
{
	bool changed = is_changed();
	enum seen structure = BY_NOBODY;
	enum seen verified = BY_NOBODY;
	beton_error err = {.message = "nothing"};
	if (changed) {
		write_edited();
		beton_reader *reader;
		int result = beton_reader_open(&reader, path, &err);
		if (result == BETON_OK) {
			result = beton_reader_check_structure(reader, &err);
			assert_true(result == BETON_OK || result == BETON_FORMAT);
		}
		beton_reader_close(&reader);
		structure = result == BETON_OK ? BY_NOBODY : BY_ALL;
		verified = verify(false) ? BY_ALL : verify(true) ? BY_DEEP : BY_NOBODY;
		if (verified != expected || (structure == BY_ALL) != (expected == BY_ALL))
			fail_msg("%s, %llu samples: %s: the structure check said '%s', beton_verify %s", base.name,
				 (unsigned long long)base.info.num_samples, edit, structure ? err.message : "good",
				 verified == BY_ALL    ? "saw it"
				 : verified == BY_DEEP ? "saw it with deep"
						       : "saw nothing");
	}
}

/* ---- the edits ---- */

/* A sample more than there is data for. */
static void one_sample_more(void)
{
	uint64_t count = base.info.num_samples;
	size_t entries = (size_t)base.blobs * ENTRY;
	/* A record of zeros is a sample like any other where nothing but numbers, or nothing but empty bytes, is
	 * stored; and the room of the record that is not there must be in the file. */
	for (int kind = 0; kind < 4; kind++) {
		static const char *const kinds[] = {"no entries", "entries of zeros", "the last entries again",
						    "entries before the table"};
		begin("a sample more, %s", kinds[kind]);
		poke(8, count + 1, 8);
		if (kind == 1 || kind == 2)
			edited.size += entries;
		if (kind == 2 && count)
			memcpy(edited.data + base.size, base.data + base.size - entries, entries);
		if (kind == 3)
			poke(16, base.info.alloc_table_offset - entries, 8);
		end(BY_ALL);
	}
	if (base.blobs && count) {
		begin("a sample more, entries of its own without bytes");
		poke(8, count + 1, 8);
		for (uint64_t i = 0; i < base.blobs; i++)
			poke(base.size + i * ENTRY, count, 8);
		edited.size += entries;
		end(BY_ALL);
	}
}

static void one_sample_less(void)
{
	uint64_t count = base.info.num_samples;
	uint64_t entries = base.blobs * ENTRY;
	if (count == 0)
		return;
	for (int kind = 0; kind < 4; kind++) {
		begin("a sample less, its entries left out in way %d", kind);
		poke(8, count - 1, 8);
		if (kind == 1)
			poke(16, base.info.alloc_table_offset + entries, 8);
		if (kind == 2)
			edited.size -= entries;
		uint64_t to = base.info.alloc_table_offset;
		for (uint64_t i = 0; kind == 3 && i < base.info.alloc_entries; i++)
			if (peek(&base, entry_at(i), 8) != count - 1) {
				memcpy(edited.data + to, base.data + entry_at(i), ENTRY);
				to += ENTRY;
			}
		edited.size = kind == 3 ? to : edited.size;
		end(BY_ALL);
	}
	begin("no samples, no table");
	poke(8, 0, 8);
	edited.size = base.info.alloc_table_offset;
	end(BY_ALL);
}

/* A field more or less, with as many entries as the table then needs, or not. */
static void other_number_of_fields(void)
{
	uint32_t count = base.info.num_fields;
	uint64_t entries = base.info.num_samples * ENTRY;
	for (int type = -1; type < 7; type++)
		for (int table = 0; table < 2; table++) {
			begin("a field more, of type %d%s", type, table ? ", entries of zeros" : "");
			poke(2, count + 1, 2);
			if (type >= 0)
				poke(HEADER + (uint64_t)count * FIELD, (uint64_t)type, 1);
			edited.size += table ? entries : 0;
			end(BY_ALL);
		}
	for (int table = 0; table < 3; table++) {
		begin("a field less, %s", table == 0   ? "all entries"
					  : table == 1 ? "the first entries"
						       : "the last entries");
		poke(2, count - 1, 2);
		edited.size -= table == 1 ? entries : 0;
		if (table == 2)
			poke(16, base.info.alloc_table_offset + entries, 8);
		end(BY_ALL);
	}
}

/* Types whose records and entries are alike are the same to everybody; a JSON text has a NUL at its end, if not more.
 */
static enum seen who_sees_type(int type, int other)
{
	bool empty = base.info.num_samples == 0;
	bool arrays = (type == BETON_FIELD_NDARRAY || type == BETON_FIELD_TORCH_TENSOR) &&
		      (other == BETON_FIELD_NDARRAY || other == BETON_FIELD_TORCH_TENSOR);
	if (arrays || (type + other == BETON_FIELD_INT + BETON_FIELD_FLOAT))
		return BY_NOBODY;
	/* An array has arguments, and needs them. */
	if (type == BETON_FIELD_NDARRAY || other == BETON_FIELD_NDARRAY || other == BETON_FIELD_TORCH_TENSOR)
		return BY_ALL;
	if (empty || (type == BETON_FIELD_JSON && other == BETON_FIELD_BYTES))
		return BY_NOBODY;
	bool text = base.fields[0].type == BETON_FIELD_BYTES; /* none of them is empty */
	return type == BETON_FIELD_BYTES && other == BETON_FIELD_JSON && text ? BY_DEEP : BY_ALL;
}

static void other_descriptor(uint32_t field)
{
	uint64_t at = HEADER + (uint64_t)field * FIELD;
	begin("field %u: an argument that is none", field);
	poke(at + ARGUMENTS + 900, 1, 1);
	end(BY_ALL);
	begin("field %u: something after its name", field);
	poke(at + 16, 'x', 1);
	end(BY_ALL);
	begin("field %u: no name", field);
	memset(edited.data + at + 1, 0, 16);
	end(BY_ALL);
	begin("field %u: a name that is not ASCII", field);
	poke(at + 1, 0xe9, 1);
	end(BY_ALL);
	for (int type = 0; type < 7; type++) {
		begin("field %u: type %d", field, type);
		poke(at, (uint64_t)type, 1);
		end(type == (int)base.fields[field].type ? BY_NOBODY : who_sees_type(base.fields[field].type, type));
	}
}

/* Other dimensions are other sizes, which only samples contradict; a dimension of 0 before others, and more than an
 * array can have, contradict themselves. */
static void other_dimensions(uint32_t field)
{
	uint64_t at = HEADER + (uint64_t)field * FIELD + ARGUMENTS;
	enum seen by_samples = base.info.num_samples ? BY_ALL : BY_NOBODY;
	begin("field %u: shape 0, 3", field);
	poke(at, 0, 8);
	end(BY_ALL);
	begin("field %u: shape 2", field);
	poke(at + 8, 0, 8);
	end(by_samples);
	begin("field %u: shape 2, 3, 0, 7", field);
	poke(at + 24, 7, 8);
	end(BY_ALL);
	begin("field %u: shape 2, 3, 7", field);
	poke(at + 16, 7, 8);
	end(by_samples);
	for (int i = 0; i < 4; i++) {
		begin("field %u: dimension %d is 2^63", field, i);
		poke(at + 8 * (uint64_t)i, UINT64_C(1) << 63, 8);
		end(BY_ALL);
	}
}

static void other_entries(void)
{
	uint64_t count = base.info.alloc_entries;
	for (uint64_t i = 0; i < count; i++) {
		/* The next entry is mostly of the same sample, the one half a table away of another. */
		for (int other = 0; other < 2; other++) {
			uint64_t k = (i + (other ? count / 2 : 1)) % count;
			begin("entry %llu is entry %llu", (unsigned long long)i, (unsigned long long)k);
			memcpy(edited.data + entry_at(i), base.data + entry_at(k), ENTRY);
			end(BY_ALL);
			begin("entry %llu has the sample of entry %llu", (unsigned long long)i, (unsigned long long)k);
			memcpy(edited.data + entry_at(i), base.data + entry_at(k), 8);
			end(BY_ALL);
		}
		begin("entry %llu is zeros", (unsigned long long)i);
		poke(entry_at(i), 0, 8);
		poke(entry_at(i) + 8, 0, 8);
		poke(entry_at(i) + 16, 0, 8);
		end(BY_ALL);
		begin("entry %llu has no bytes", (unsigned long long)i);
		poke(entry_at(i) + 16, 0, 8);
		end(BY_ALL);
	}
}

static void other_records(void)
{
	uint64_t last = record_at(base.info.num_samples - 1);
	uint32_t size = base.info.record_size;
	/* Numbers may be any numbers. */
	enum seen expected = base.blobs ? BY_ALL : BY_NOBODY;
	begin("the last record is zeros");
	memset(edited.data + last, 0, size);
	end(expected);
	begin("the last record is the first");
	memcpy(edited.data + last, base.data + record_at(0), size);
	end(expected);
	if (base.info.num_fields < FIELDS_MAX)
		return;
	begin("two arrays of a sample are one");
	memcpy(edited.data + last + base.fields[3].record_offset, edited.data + last + base.fields[2].record_offset, 8);
	end(BY_ALL);
}

static void edit_all(void)
{
	one_sample_more();
	one_sample_less();
	other_number_of_fields();
	for (uint32_t i = 0; i < base.info.num_fields; i++)
		other_descriptor(i);
	for (uint32_t i = 0; i < base.info.num_fields; i++)
		if (is_array(&base.fields[i]))
			other_dimensions(i);
	other_entries();
	if (base.info.num_samples)
		other_records();
	/* Values that fit small pages fit large ones. */
	begin("pages of another size");
	poke(4, PAGE * 2, 4);
	end(BY_NOBODY);
	if (base.blobs && base.info.num_samples) {
		begin("something after the metadata");
		poke(record_at(base.info.num_samples) + 5000, 1, 1);
		end(BY_ALL);
	}
}

static void test_without_samples(void **state)
{
	(void)state;
	make_base("mixed", mixed_fields, 5, 0, false);
	edit_all();
	make_base("text", text_fields, 2, 0, false);
	edit_all();
	make_base("scalars", scalar_fields, 2, 0, false);
	edit_all();
}

static void test_with_samples(void **state)
{
	(void)state;
	for (int shuffled = 0; shuffled < 2; shuffled++) {
		make_base("mixed", mixed_fields, 5, SAMPLES, shuffled);
		edit_all();
		make_base("text", text_fields, 2, SAMPLES, shuffled);
		edit_all();
	}
	make_base("scalars", scalar_fields, 2, SAMPLES, false);
	edit_all();
}

/* FFCV's own file of numbers: neither header nor table has a count that could contradict. */
static void test_ffcv_scalars(void **state)
{
	(void)state;
	file_content good = read_file(unpack_golden("scalars-only"));
	for (int change = -1; change <= 1; change += 2) {
		uint8_t count = (uint8_t)(good.data[8] + change);
		write_file(path, good.data, good.size);
		patch_file(path, 8, &count, 1);
		expect_damage(path, BETON_FORMAT);
		assert_int_equal(verify(false), 1);
	}
	free(good.data);
}

static int setup(void **state)
{
	(void)state;
	make_folder();
	static char kept[512];
	snprintf(kept, sizeof(kept), "%s", in_folder("test.beton"));
	path = kept;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(base.data);
	free(edited.data);
	remove_folder();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_samples),
		cmocka_unit_test(test_with_samples),
		cmocka_unit_test(test_ffcv_scalars),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
