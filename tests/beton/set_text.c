/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of an index, which may be anything: what is refused, by a table, cut at each byte and with each bit changed.
 */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/set_files.h"

static beton_error err;
static const char *const shards[] = {"a.beton", "b.beton"};

static int setup(void **state)
{
	(void)state;
	static const char facts[] = "{\"classes\": [\"cat\", \"dog\"]}";
	return chdir(make_folder()) || make_shard("a.beton", (shard_kind){.samples = 3, .facts = facts}) ||
	       make_shard("b.beton", (shard_kind){.samples = 7, .first = 3, .plain = true});
}

static int teardown(void **state)
{
	(void)state;
	remove_folder();
	return chdir("/");
}

/* The index of both shards, or of the first. */
static file_content make_index(const char *path, uint32_t count)
{
	if (beton_set_write(path, BETON_SET_REPLACE, shards, count, NULL, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return read_file(path);
}

#define FIELDS "\"fields\": [{\"name\": \"n\", \"type\": \"int\"}]"
#define NUMBERS "\"record_size\": 8, \"page_size\": 2097152, \"data_bytes\": 0, \"ordered\": true"
#define SHARD(path, bytes, samples)                                        \
	"{\"path\": " path ", \"bytes\": " bytes ", \"samples\": " samples \
	", \"fingerprint\": \"0123456789abcdef\", " NUMBERS "}"
#define GOOD SHARD("\"a\"", "1000", "3")
#define INDEX(version, samples, fields, shards) \
	"{\"beton_set\": " version ", \"samples\": " samples ", " fields ", \"shards\": " shards "}"
#define ARRAY(dtype, shape) \
	"\"fields\": [{\"name\": \"n\", \"type\": \"ndarray\", \"dtype\": " dtype ", \"shape\": " shape "}]"

static const struct {
	const char *text;
	int code;
	const char *says;
} bad[] = {
	{INDEX("1", "3", FIELDS, "[" GOOD "]"), BETON_OK, ""},
	{INDEX("1", "3", FIELDS, "[" SHARD("\"a/b.beton\"", "1000", "3") "]"), BETON_OK, ""},
	{INDEX("1", "3", FIELDS ", \"new\": [1.5]", "[" GOOD "]"), BETON_OK, ""},
	{INDEX("1", "3", ARRAY("\"<f4\"", "[2, 3]"), "[" GOOD "]"), BETON_OK, ""},
	{INDEX("0", "3", FIELDS, "[" GOOD "]"), BETON_FORMAT, "'beton_set'"},
	{INDEX("2", "3", FIELDS, "[" GOOD "]"), BETON_UNSUPPORTED_VERSION, "version 2"},
	{INDEX("\"1\"", "3", FIELDS, "[" GOOD "]"), BETON_FORMAT, "'beton_set'"},
	{INDEX("1", "4", FIELDS, "[" GOOD "]"), BETON_FORMAT, "'samples' is 4"},
	{INDEX("1", "-3", FIELDS, "[" GOOD "]"), BETON_FORMAT, "'samples' is out of its range"},
	{INDEX("1", "3.0", FIELDS, "[" GOOD "]"), BETON_FORMAT, "'samples' is another kind"},
	{INDEX("1", "99999999999999999999", FIELDS, "[" GOOD "]"), BETON_FORMAT, "line 1"},
	{INDEX("1", "3", FIELDS, "[]"), BETON_FORMAT, "'shards' is empty"},
	{INDEX("1", "3", FIELDS, "{}"), BETON_FORMAT, "'shards' is another kind"},
	{INDEX("1", "3", FIELDS, "[[]]"), BETON_FORMAT, "shard 0 is not a JSON object"},
	{INDEX("1", "6", FIELDS, "[" GOOD ", " GOOD "]"), BETON_FORMAT, "two shards have the path 'a'"},
	/* Paths that lead elsewhere. */
	{INDEX("1", "3", FIELDS, "[" SHARD("\"../a\"", "1000", "3") "]"), BETON_FORMAT, "'..'"},
	{INDEX("1", "3", FIELDS, "[" SHARD("\"a/../../b\"", "1000", "3") "]"), BETON_FORMAT, "'..'"},
	{INDEX("1", "3", FIELDS, "[" SHARD("\"a/..\"", "1000", "3") "]"), BETON_FORMAT, "'..'"},
	{INDEX("1", "3", FIELDS, "[" SHARD("\"./a\"", "1000", "3") "]"), BETON_FORMAT, "'.'"},
	{INDEX("1", "3", FIELDS, "[" SHARD("\"/a\"", "1000", "3") "]"), BETON_FORMAT, "'/a'"},
	{INDEX("1", "3", FIELDS, "[" SHARD("\"a//b\"", "1000", "3") "]"), BETON_FORMAT, "empty part"},
	{INDEX("1", "3", FIELDS, "[" SHARD("\"a/\"", "1000", "3") "]"), BETON_FORMAT, "empty part"},
	{INDEX("1", "3", FIELDS, "[" SHARD("\"\"", "1000", "3") "]"), BETON_FORMAT, "is empty"},
	{INDEX("1", "3", FIELDS, "[" SHARD("\"a\\u0000\"", "1000", "3") "]"), BETON_FORMAT, "line 1"},
	{INDEX("1", "3", FIELDS, "[" SHARD("7", "1000", "3") "]"), BETON_FORMAT, "'path' is another kind"},
	/* Numbers that do not agree. */
	{INDEX("1", "3", FIELDS, "[" SHARD("\"a\"", "23", "3") "]"), BETON_FORMAT, "more bytes than it has"},
	{INDEX("1", "3", FIELDS, "[" SHARD("\"a\"", "-1", "3") "]"), BETON_FORMAT, "'bytes'"},
	{INDEX("1", "3", FIELDS, "[" SHARD("\"a\"", "1000", "4611686018427387904") "]"), BETON_FORMAT, "more bytes"},
	{INDEX("1", "0", FIELDS, "[" SHARD("\"a\"", "9223372036854775807", "0") ", " SHARD("\"b\"", "1", "0") "]"),
	 BETON_FORMAT, "2^63"},
	{INDEX("1", "3", FIELDS,
	       "[{\"path\": \"a\", \"bytes\": 1000, \"samples\": 3, \"fingerprint\": \"0\", " NUMBERS "}]"),
	 BETON_FORMAT, "16 hexadecimal digits"},
	{INDEX("1", "3", FIELDS, "[{\"path\": \"a\", \"bytes\": 1000, \"samples\": 3, " NUMBERS "}]"), BETON_FORMAT,
	 "'fingerprint' is missing"},
	{INDEX("1", "3", FIELDS,
	       "[{\"path\": \"a\", \"bytes\": 1000, \"samples\": 3, \"fingerprint\": \"0123456789abcdef\", "
	       "\"record_size\": 8, \"page_size\": 3145728, \"data_bytes\": 0, \"ordered\": true}]"),
	 BETON_FORMAT, "power of two"},
	{INDEX("1", "3", FIELDS,
	       "[{\"path\": \"a\", \"bytes\": 1000, \"samples\": 3, \"fingerprint\": \"0123456789abcdef\", "
	       "\"record_size\": 0, \"page_size\": 2097152, \"data_bytes\": 0, \"ordered\": true}]"),
	 BETON_FORMAT, "'record_size'"},
	{INDEX("1", "3", FIELDS,
	       "[{\"path\": \"a\", \"bytes\": 1000, \"samples\": 3, \"fingerprint\": \"0123456789abcdef\", "
	       "\"record_size\": 8, \"page_size\": 2097152, \"data_bytes\": 977, \"ordered\": true}]"),
	 BETON_FORMAT, "more bytes than it has"},
	{INDEX("1", "3", FIELDS,
	       "[{\"path\": \"a\", \"bytes\": 1000, \"samples\": 3, \"fingerprint\": \"0123456789abcdef\", "
	       "\"record_size\": 8, \"page_size\": 2097152, \"data_bytes\": 0, \"ordered\": 1}]"),
	 BETON_FORMAT, "'ordered'"},
	/* Fields. */
	{INDEX("1", "3", "\"fields\": []", "[" GOOD "]"), BETON_FORMAT, "'fields' is empty"},
	{INDEX("1", "3", "\"fields\": [7]", "[" GOOD "]"), BETON_FORMAT, "field 0 is not a JSON object"},
	{INDEX("1", "3", "\"fields\": [{\"name\": \"n\"}]", "[" GOOD "]"), BETON_FORMAT, "'type' is missing"},
	{INDEX("1", "3", "\"fields\": [{\"name\": \"n\", \"type\": \"video\"}]", "[" GOOD "]"), BETON_UNSUPPORTED_FIELD,
	 "'video'"},
	{INDEX("1", "3", "\"fields\": [{\"name\": \"\", \"type\": \"int\"}]", "[" GOOD "]"), BETON_FORMAT, "field 0"},
	{INDEX("1", "3", "\"fields\": [{\"name\": \"01234567890123456\", \"type\": \"int\"}]", "[" GOOD "]"),
	 BETON_FORMAT, "'name' is too long"},
	{INDEX("1", "3", "\"fields\": [{\"name\": \"a\", \"type\": \"int\"}, {\"name\": \"a\", \"type\": \"int\"}]",
	       "[" GOOD "]"),
	 BETON_FORMAT, "two fields have the name 'a'"},
	{INDEX("1", "3", ARRAY("\"<f4\"", "[]"), "[" GOOD "]"), BETON_FORMAT, "'shape'"},
	{INDEX("1", "3", ARRAY("\"<f4\"", "[0]"), "[" GOOD "]"), BETON_FORMAT, "dimensions"},
	{INDEX("1", "3", ARRAY("\"<f4\"", "[-1]"), "[" GOOD "]"), BETON_FORMAT, "'shape'"},
	{INDEX("1", "3", ARRAY("\"<f4\"", "[4294967296, 4294967296]"), "[" GOOD "]"), BETON_FORMAT, "larger"},
	{INDEX("1", "3", ARRAY("\"|O\"", "[1]"), "[" GOOD "]"), BETON_FORMAT, "dtype"},
	{INDEX("1", "3", ARRAY("\"<f4<f4<f4<f4<f4<\"", "[1]"), "[" GOOD "]"), BETON_FORMAT, "'dtype' is too long"},
	{INDEX("1", "3", "\"fields\": [{\"name\": \"n\", \"type\": \"raster\", \"dtype\": \"|u1\", \"shape\": [64]}]",
	       "[" GOOD "]"),
	 BETON_OK, ""},
	{INDEX("1", "3", "\"fields\": [{\"name\": \"n\", \"type\": \"raster\", \"dtype\": \"|u1\", \"shape\": [65]}]",
	       "[" GOOD "]"),
	 BETON_FORMAT, "field 'n'"},
	{INDEX("1", "3", "\"fields\": [{\"name\": \"n\", \"type\": \"raster\", \"dtype\": \"<f4\", \"shape\": [1]}]",
	       "[" GOOD "]"),
	 BETON_FORMAT, "field 'n'"},
	/* Class names. */
	{INDEX("1", "3", FIELDS ", \"classes\": []", "[" GOOD "]"), BETON_FORMAT, "'classes' is empty"},
	{INDEX("1", "3", FIELDS ", \"classes\": [1]", "[" GOOD "]"), BETON_FORMAT, "class 0"},
	{INDEX("1", "3", FIELDS ", \"classes\": [\"a\"]", "[" GOOD "]"), BETON_OK, ""},
	{"[]", BETON_FORMAT, "'beton_set'"},
	{"{}", BETON_FORMAT, "'beton_set'"},
	{"", BETON_FORMAT, "line 1"},
	{"{\"beton_set\": 1, \"beton_set\": 1}", BETON_FORMAT, "line 1"},
};

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		beton_set *set;
		char *text = sealed(bad[i].text, strlen(bad[i].text));
		const char *given = text ? text : bad[i].text;
		err.message[0] = 0;
		int result = beton_set_parse(&set, "bad.betonset", given, strlen(given), &err);
		if (result != bad[i].code)
			fail_msg("case %zu: %s instead of %s: %s\n%s", i, beton_status_name(result),
				 beton_status_name(bad[i].code), err.message, given);
		if (result != BETON_OK &&
		    (strncmp(err.message, "bad.betonset: ", 14) || !strstr(err.message, bad[i].says)))
			fail_msg("case %zu: '%s' is not in: %s", i, bad[i].says, err.message);
		assert_true((set != NULL) == (result == BETON_OK));
		beton_set_close(&set);
		free(text);
	}
}

/* Without its checksum, or with that of another text, it is refused; spaces do not matter. */
static void test_checksum(void **state)
{
	(void)state;
	beton_set *set;
	char *good = sealed(bad[0].text, strlen(bad[0].text));
	assert_int_equal(beton_set_parse(&set, "c.betonset", bad[0].text, strlen(bad[0].text), &err), BETON_FORMAT);
	assert_non_null(strstr(err.message, "'checksum' is missing"));
	char *path = strstr(good, "\"a\"");
	path[1] = 'b';
	assert_int_equal(beton_set_parse(&set, "c.betonset", good, strlen(good), &err), BETON_FORMAT);
	assert_non_null(strstr(err.message, "checksum"));
	path[1] = 'a';
	for (char *space = good; (space = strchr(space, ' ')); space++)
		*space = '\n';
	assert_int_equal(beton_set_parse(&set, "c.betonset", good, strlen(good), &err), BETON_OK);
	beton_set_close(&set);
	free(good);
}

/* A file that ends early, at each byte, and one with a changed bit, at each bit: refused, or the same set. */
static void test_damage(void **state)
{
	(void)state;
	file_content text = make_index("t.betonset", 2);
	beton_set *set;
	for (size_t size = 0; size + 1 < text.size; size++) {
		/* In memory of its own, so that sanitizers see each byte beyond. */
		char *cut = malloc(size ? size : 1);
		memcpy(cut, text.data, size);
		assert_int_equal(beton_set_parse(&set, "t.betonset", cut, size, &err), BETON_FORMAT);
		write_file("cut.betonset", cut, size);
		assert_int_equal(beton_set_open(&set, "cut.betonset", &err), BETON_FORMAT);
		free(cut);
	}
	size_t same = 0;
	for (size_t bit = 0; bit < text.size * 8; bit++) {
		text.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		int result = beton_set_parse(&set, "t.betonset", (const char *)text.data, text.size, &err);
		assert_true(result == BETON_OK || result == BETON_FORMAT || result == BETON_UNSUPPORTED_VERSION);
		if (result == BETON_OK) {
			same++;
			assert_int_equal(beton_set_get_info(set)->num_samples, 10);
			assert_string_equal(beton_set_shard(set, 1)->name, "b.beton");
			beton_set_close(&set);
		}
		text.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	/* A tab for a new line and the like. */
	assert_true(same < text.size / 4);
	free(text.data);
}

/* Members that a later version added must not be lost. */
static void test_later_version(void **state)
{
	(void)state;
	file_content text = make_index("l.betonset", 1);
	static const char *const places[] = {"{\n\"beton_set\"", "{\"name\": \"number\"", "{\"path\""};
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		text.data[text.size] = 0;
		const char *at = strstr((const char *)text.data, places[i]);
		assert_non_null(at);
		char more[4096];
		int size = snprintf(more, sizeof(more), "%.*s{\"later\": {}, %s", (int)(at - (char *)text.data),
				    text.data, at + 1);
		assert_true(size > 0 && size < (int)sizeof(more));
		char *whole = sealed(more, (size_t)size);
		write_file("l.betonset", whole, strlen(whole));
		beton_set *set;
		assert_int_equal(beton_set_open(&set, "l.betonset", &err), BETON_OK);
		beton_set_close(&set);
		assert_int_equal(beton_set_write("l.betonset", BETON_SET_APPEND, shards + 1, 1, NULL, &err),
				 BETON_UNSUPPORTED);
		assert_non_null(strstr(err.message, "later version"));
		free(whole);
	}
	free(text.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_checksum),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_later_version),
	};
	/* As in the other tests of sets. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	return cmocka_run_group_tests(tests, setup, teardown);
}
