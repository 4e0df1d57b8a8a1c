/* SPDX-License-Identifier: Apache-2.0
 *
 * NULL for each pointer of each public function, and sizes of 0: an error that names the argument, or nothing done. */
#include "tests/support/beton_files.h"

#include <string.h>

#include <beton/index.h>
#include <beton/set.h>
#include <beton/tokens.h>
#include <beton/verify.h>

/* The call must refuse its argument of that name, and without an error record too. */
#define REFUSED(name, call)                                                                            \
	do {                                                                                           \
		beton_error record_ = {0}, *err = &record_;                                            \
		assert_int_equal(call, BETON_INVALID_ARGUMENT);                                        \
		assert_int_equal(record_.code, BETON_INVALID_ARGUMENT);                                \
		if (!strstr(record_.message, name))                                                    \
			fail_msg("line %d: '%s' does not name '%s'", __LINE__, record_.message, name); \
		err = NULL;                                                                            \
		assert_int_equal(call, BETON_INVALID_ARGUMENT);                                        \
	} while (0)

static const beton_field two_fields[] = {{.name = "b", .type = BETON_FIELD_BYTES},
					 {.name = "label", .type = BETON_FIELD_INT}};

/* Two samples; the first has an empty value. */
static const char *write_data(void)
{
	static const char text[] = "abc";
	const char *path = in_folder("data.beton");
	beton_writer *writer;
	assert_int_equal(beton_writer_open(&writer, path, two_fields, 2, NULL, NULL), BETON_OK);
	const beton_input empty[] = {{.data = NULL}, {.integer = 7}}, full[] = {{.data = text, .size = 3}, {0}};
	assert_int_equal(beton_writer_append(writer, empty, NULL), BETON_OK);
	assert_int_equal(beton_writer_append(writer, full, NULL), BETON_OK);
	assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
	beton_writer_close(&writer);
	return path;
}

static void readers_refuse_null(void **state)
{
	(void)state;
	beton_reader *reader = (beton_reader *)1, **out = &reader;
	beton_cache *cache;
	const char *path = write_data();
	beton_io io;
	REFUSED("out", beton_reader_open(NULL, path, err));
	REFUSED("path", beton_reader_open(out, NULL, err));
	assert_null(reader);
	REFUSED("out", beton_reader_open_with(NULL, path, NULL, err));
	REFUSED("path", beton_reader_open_with(out, NULL, NULL, err));
	beton_io_memory(&io, "memory", NULL);
	REFUSED("out", beton_reader_open_io(NULL, &io, NULL, err));
	REFUSED("io", beton_reader_open_io(out, NULL, NULL, err));
	REFUSED("name", beton_reader_open_io(out, &io, NULL, err));
	beton_io_memory(&io, "memory", &(beton_memory){NULL, 5});
	REFUSED("name", beton_reader_open_io(out, &io, NULL, err));
	beton_io_memory(&io, NULL, &(beton_memory){path, 5});
	REFUSED("name", beton_reader_open_io(out, &io, NULL, err));
	beton_io_memory_sized(NULL, sizeof(io), "memory", NULL);
	beton_io_init_sized(NULL, sizeof(io));
	beton_reader_options_init_sized(NULL, sizeof(beton_reader_options));
	REFUSED("out", beton_cache_open(NULL, BETON_CACHE_MIN, err));
	beton_cache_close(NULL);
	beton_cache_close(&(beton_cache *){NULL});
	beton_reader_close(NULL);
	beton_reader_close(&(beton_reader *){NULL});
	beton_reader_cancel(NULL);
	beton_free(NULL);
	assert_int_equal(beton_cache_open(&cache, BETON_CACHE_MIN, NULL), BETON_OK);
	beton_cache_close(&cache);
	assert_null(beton_reader_info(NULL));
	assert_null(beton_reader_path(NULL));
	assert_null(beton_reader_field(NULL, 0));
	assert_null(beton_reader_jpeg_index_fault(NULL));
	assert_null(beton_reader_facts(NULL, NULL));
	assert_int_equal(beton_reader_find_field(NULL, "b"), -1);
	assert_int_equal(beton_reader_find_type(NULL, BETON_FIELD_INT), -1);
	assert_int_equal(beton_reader_fd(NULL), -1);
	assert_non_null(beton_version());
	assert_non_null(beton_status_name(1));
	assert_non_null(beton_status_text(1));
	assert_non_null(beton_field_type_name((beton_field_type)99));
}

static void values_refuse_null(void **state)
{
	(void)state;
	beton_reader *reader = open_good(write_data());
	beton_value values[2], *value = &values[0];
	uint8_t bytes[4];
	char source[BETON_SOURCE_MAX + 1];
	uint64_t number, *order;
	int64_t integer;
	void *dictionaries;
	assert_int_equal(beton_reader_find_field(reader, NULL), -1);
	REFUSED("reader", beton_reader_value(NULL, 0, 0, value, err));
	REFUSED("out", beton_reader_value(reader, 0, 0, NULL, err));
	REFUSED("reader", beton_reader_sample(NULL, 0, values, err));
	REFUSED("values", beton_reader_sample(reader, 0, NULL, err));
	REFUSED("reader", beton_reader_record(NULL, 0, 0, bytes, err));
	REFUSED("destination", beton_reader_record(reader, 0, 0, NULL, err));
	REFUSED("reader", beton_reader_integers(NULL, 1, 0, 1, &integer, err));
	REFUSED("out", beton_reader_integers(reader, 1, 0, 1, NULL, err));
	assert_int_equal(beton_reader_integers(reader, 1, 0, 0, NULL, NULL), BETON_OK);
	REFUSED("reader", beton_reader_storage_order(NULL, &order, err));
	REFUSED("out", beton_reader_storage_order(reader, NULL, err));
	REFUSED("reader", beton_reader_check_structure(NULL, err));
	REFUSED("reader", beton_reader_dictionaries(NULL, &dictionaries, &number, err));
	REFUSED("out", beton_reader_dictionaries(reader, NULL, &number, err));
	REFUSED("size", beton_reader_dictionaries(reader, &dictionaries, NULL, err));
	char **names;
	uint32_t count;
	REFUSED("reader", beton_reader_classes(NULL, &names, &count, err));
	REFUSED("names", beton_reader_classes(reader, NULL, &count, err));
	REFUSED("count", beton_reader_classes(reader, &names, NULL, err));
	REFUSED("reader", beton_reader_fingerprint(NULL, &number, err));
	REFUSED("out", beton_reader_fingerprint(reader, NULL, err));
	REFUSED("reader", beton_reader_source(NULL, 0, source, err));
	REFUSED("source", beton_reader_source(reader, 0, NULL, err));
	assert_int_equal(beton_reader_value(reader, 1, 0, value, NULL), BETON_OK);
	assert_int_equal(value->size, 3);
	REFUSED("reader", beton_reader_read(NULL, &value->blob, bytes, err));
	REFUSED("blob", beton_reader_read(reader, NULL, bytes, err));
	REFUSED("destination", beton_reader_read(reader, &value->blob, NULL, err));
	REFUSED("reader", beton_reader_check(NULL, value, bytes, err));
	REFUSED("value", beton_reader_check(reader, NULL, bytes, err));
	REFUSED("stored", beton_reader_check(reader, value, NULL, err));
	REFUSED("reader", beton_reader_read_value(NULL, value, bytes, err));
	REFUSED("value", beton_reader_read_value(reader, NULL, bytes, err));
	REFUSED("destination", beton_reader_read_value(reader, value, NULL, err));
	REFUSED("reader", beton_reader_unpack(NULL, value, bytes, false, bytes, err));
	REFUSED("value", beton_reader_unpack(reader, NULL, bytes, false, bytes, err));
	REFUSED("stored", beton_reader_unpack(reader, value, NULL, false, bytes, err));
	REFUSED("destination", beton_reader_unpack(reader, value, bytes, false, NULL, err));
	REFUSED("reader", beton_reader_check_text(NULL, value, bytes, err));
	REFUSED("value", beton_reader_check_text(reader, NULL, bytes, err));
	REFUSED("text", beton_reader_check_text(reader, value, NULL, err));
	beton_reader_close(&reader);
}

static void indexes_refuse_null(void **state)
{
	(void)state;
	const char *path = write_data();
	beton_reader *reader = open_good(path);
	beton_value value = {.type = BETON_FIELD_IMAGE};
	beton_blob entry = {0};
	uint8_t bytes[16] = {0};
	const void *index;
	size_t size;
	beton_index_report report;
	REFUSED("reader", beton_reader_jpeg_index(NULL, &value, &entry, err));
	REFUSED("value", beton_reader_jpeg_index(reader, NULL, &entry, err));
	REFUSED("entry", beton_reader_jpeg_index(reader, &value, NULL, err));
	REFUSED("reader", beton_reader_read_jpeg_index(NULL, &entry, bytes, err));
	REFUSED("entry", beton_reader_read_jpeg_index(reader, NULL, bytes, err));
	REFUSED("destination", beton_reader_read_jpeg_index(reader, &entry, NULL, err));
	assert_false(beton_reader_peek_jpeg_index(NULL, &entry, bytes));
	assert_false(beton_reader_peek_jpeg_index(reader, NULL, bytes));
	assert_false(beton_reader_peek_jpeg_index(reader, &entry, NULL));
	REFUSED("reader", beton_reader_open_jpeg_index(NULL, &value, &entry, bytes, bytes, &index, &size, err));
	REFUSED("value", beton_reader_open_jpeg_index(reader, NULL, &entry, bytes, bytes, &index, &size, err));
	REFUSED("entry", beton_reader_open_jpeg_index(reader, &value, NULL, bytes, bytes, &index, &size, err));
	REFUSED("bytes", beton_reader_open_jpeg_index(reader, &value, &entry, NULL, bytes, &index, &size, err));
	REFUSED("stored", beton_reader_open_jpeg_index(reader, &value, &entry, bytes, NULL, &index, &size, err));
	REFUSED("index", beton_reader_open_jpeg_index(reader, &value, &entry, bytes, bytes, NULL, &size, err));
	REFUSED("size", beton_reader_open_jpeg_index(reader, &value, &entry, bytes, bytes, &index, NULL, err));
	beton_reader_close(&reader);
	REFUSED("path", beton_index_add(NULL, NULL, &report, err));
	REFUSED("report", beton_index_add(path, NULL, NULL, err));
	REFUSED("path", beton_index_remove(NULL, &report, err));
	REFUSED("report", beton_index_remove(path, NULL, err));
	REFUSED("path", beton_index_check(NULL, NULL, &report, err));
	REFUSED("report", beton_index_check(path, NULL, NULL, err));
	REFUSED("path", beton_index_remove_side(NULL, NULL, err));
	assert_int_equal(beton_index_remove_side(path, NULL, NULL), BETON_OK);
	beton_index_options_init_sized(NULL, sizeof(beton_index_options));
}

static void writers_refuse_null(void **state)
{
	(void)state;
	beton_writer *writer = (beton_writer *)1, **out = &writer;
	const char *path = in_folder("other.beton");
	REFUSED("out", beton_writer_open(NULL, path, two_fields, 2, NULL, err));
	REFUSED("path", beton_writer_open(out, NULL, two_fields, 2, NULL, err));
	assert_null(writer);
	REFUSED("fields", beton_writer_open(out, path, NULL, 2, NULL, err));
	REFUSED("0 fields", beton_writer_open(out, path, two_fields, 0, NULL, err));
	beton_writer_options_init_sized(NULL, sizeof(beton_writer_options));
	beton_writer_close(NULL);
	beton_writer_close(&(beton_writer *){NULL});
	const beton_input values[] = {{.data = "x", .size = 1}, {0}}, no_data[] = {{.size = 1}, {0}};
	REFUSED("writer", beton_writer_put(NULL, 0, values, err));
	REFUSED("writer", beton_writer_put_from(NULL, 0, values, "a", err));
	REFUSED("writer", beton_writer_append(NULL, values, err));
	REFUSED("writer", beton_writer_append_from(NULL, values, "a", err));
	REFUSED("writer", beton_writer_skip(NULL, 0, err));
	REFUSED("writer", beton_writer_prepare(NULL, err));
	REFUSED("writer", beton_writer_finish(NULL, err));
	assert_int_equal(beton_writer_keep(NULL), 0);
	assert_int_equal(beton_writer_position(NULL), 0);
	assert_int_equal(beton_writer_samples(NULL), 0);
	beton_writer_cancel(NULL);
	assert_int_equal(beton_writer_open(out, path, two_fields, 2, NULL, NULL), BETON_OK);
	REFUSED("values", beton_writer_put(writer, 0, NULL, err));
	REFUSED("values", beton_writer_put_from(writer, 0, NULL, "a", err));
	REFUSED("values", beton_writer_append(writer, NULL, err));
	REFUSED("values", beton_writer_append_from(writer, NULL, "a", err));
	REFUSED("NULL", beton_writer_append(writer, no_data, err));
	assert_int_equal(beton_writer_position(writer), 0);
	assert_int_equal(beton_writer_append_from(writer, values, NULL, NULL), BETON_OK);
	assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
	beton_writer_close(&writer);
}

static void tokens_refuse_null(void **state)
{
	(void)state;
	const uint16_t stream[] = {1, 2, 3, 4};
	const char *path = in_folder("tokens.bin");
	beton_tokens *tokens = (beton_tokens *)1, **out = &tokens;
	beton_value values[4];
	uint32_t read[4];
	uint64_t number;
	write_file(path, stream, sizeof(stream));
	REFUSED("out", beton_tokens_open(NULL, path, NULL, err));
	REFUSED("path", beton_tokens_open(out, NULL, NULL, err));
	assert_null(tokens);
	beton_tokens_options_init_sized(NULL, sizeof(beton_tokens_options));
	beton_tokens_close(NULL);
	beton_tokens_close(&(beton_tokens *){NULL});
	assert_null(beton_tokens_get_info(NULL));
	assert_null(beton_tokens_path(NULL));
	assert_null(beton_tokens_reader(NULL));
	assert_int_equal(beton_tokens_fd(NULL), -1);
	assert_int_equal(beton_tokens_parts(NULL, 1), 0);
	assert_int_equal(beton_tokens_open(out, path, NULL, NULL), BETON_OK);
	REFUSED("tokens", beton_tokens_locate(NULL, 0, 1, values, err));
	REFUSED("values", beton_tokens_locate(tokens, 0, 1, NULL, err));
	REFUSED("tokens", beton_tokens_read(NULL, 0, 1, read, err));
	REFUSED("out", beton_tokens_read(tokens, 0, 1, NULL, err));
	assert_int_equal(beton_tokens_read(tokens, 0, 0, NULL, NULL), BETON_OK);
	REFUSED("tokens", beton_tokens_fingerprint(NULL, &number, err));
	REFUSED("out", beton_tokens_fingerprint(tokens, NULL, err));
	beton_tokens_close(&tokens);
}

static void sets_refuse_null(void **state)
{
	(void)state;
	const char *shard = write_data(), *path = in_folder("data.betonset");
	const char *const shards[] = {shard, NULL};
	beton_set *set = (beton_set *)1, **out = &set;
	uint32_t number;
	uint64_t index;
	REFUSED("path", beton_set_write(NULL, BETON_SET_REPLACE, shards, 1, NULL, err));
	REFUSED("shards", beton_set_write(path, BETON_SET_REPLACE, NULL, 1, NULL, err));
	REFUSED("shard 1", beton_set_write(path, BETON_SET_REPLACE, shards, 2, NULL, err));
	assert_int_equal(beton_set_write(path, BETON_SET_REPLACE, shards, 1, NULL, NULL), BETON_OK);
	REFUSED("out", beton_set_open(NULL, path, err));
	REFUSED("path", beton_set_open(out, NULL, err));
	assert_null(set);
	REFUSED("out", beton_set_parse(NULL, path, "{}", 2, err));
	REFUSED("path", beton_set_parse(out, NULL, "{}", 2, err));
	REFUSED("text", beton_set_parse(out, path, NULL, 2, err));
	beton_set_options_init_sized(NULL, sizeof(beton_set_options));
	beton_set_close(NULL);
	beton_set_close(&(beton_set *){NULL});
	assert_null(beton_set_path(NULL));
	assert_null(beton_set_get_info(NULL));
	assert_null(beton_set_shard(NULL, 0));
	assert_null(beton_set_field(NULL, 0));
	assert_null(beton_set_class(NULL, 0));
	assert_int_equal(beton_set_open(out, path, NULL), BETON_OK);
	beton_reader *reader = open_good(shard);
	REFUSED("set", beton_set_locate(NULL, 0, &number, &index, err));
	REFUSED("shard", beton_set_locate(set, 0, NULL, &index, err));
	REFUSED("index", beton_set_locate(set, 0, &number, NULL, err));
	REFUSED("set", beton_set_check(NULL, 0, reader, err));
	REFUSED("reader", beton_set_check(set, 0, NULL, err));
	REFUSED("set", beton_set_accepts(NULL, path, two_fields, 2, NULL, err));
	REFUSED("path", beton_set_accepts(set, NULL, two_fields, 2, NULL, err));
	REFUSED("fields", beton_set_accepts(set, path, NULL, 2, NULL, err));
	beton_reader_close(&reader);
	beton_set_close(&set);
}

static void checks_refuse_null(void **state)
{
	(void)state;
	const char *path = write_data(), *output = in_folder("repaired.beton");
	beton_verify_report found;
	beton_repair_report saved;
	REFUSED("path", beton_verify(NULL, NULL, &found, err));
	REFUSED("report", beton_verify(path, NULL, NULL, err));
	REFUSED("input", beton_repair(NULL, output, NULL, &saved, err));
	REFUSED("output", beton_repair(path, NULL, NULL, &saved, err));
	REFUSED("report", beton_repair(path, output, NULL, NULL, err));
	beton_verify_options_init_sized(NULL, sizeof(beton_verify_options));
	beton_repair_options_init_sized(NULL, sizeof(beton_repair_options));
}

/* An empty value needs no place: as it is read, checked and copied to another file. */
static void empty_values_need_no_room(void **state)
{
	(void)state;
	beton_reader *reader = open_good(write_data());
	beton_value values[2];
	assert_int_equal(beton_reader_sample(reader, 0, values, NULL), BETON_OK);
	assert_int_equal(values[0].size, 0);
	assert_int_equal(beton_reader_read(reader, &values[0].blob, NULL, NULL), BETON_OK);
	assert_int_equal(beton_reader_check(reader, &values[0], NULL, NULL), BETON_OK);
	assert_int_equal(beton_reader_unpack(reader, &values[0], NULL, true, NULL, NULL), BETON_OK);
	beton_error err = {0};
	if (beton_reader_read_value(reader, &values[0], NULL, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(beton_reader_check_text(reader, &values[0], NULL, NULL), BETON_SAMPLE_CORRUPT);
	beton_reader_close(&reader);
}

static int make(void **state)
{
	(void)state;
	return make_folder() ? 0 : -1;
}

static int clean(void **state)
{
	(void)state;
	remove_folder();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(readers_refuse_null), cmocka_unit_test(values_refuse_null),
		cmocka_unit_test(indexes_refuse_null), cmocka_unit_test(writers_refuse_null),
		cmocka_unit_test(tokens_refuse_null),  cmocka_unit_test(sets_refuse_null),
		cmocka_unit_test(checks_refuse_null),  cmocka_unit_test(empty_values_need_no_room),
	};
	return cmocka_run_group_tests_name("null", tests, make, clean);
}
