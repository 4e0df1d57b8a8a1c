/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors reader and writer: a round trip, a file made by the format's own library, and every kind of damage.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>

#include "common/system.h"
#include "run/safetensors.h"
#include "temporary.h"

static const char *golden;

static const float weights[6] = {0, 0.25f, 0.5f, 0.75f, 1, 1.25f};
static const int64_t counter = 7;
static const uint8_t bytes[3] = {1, 2, 3};

static const safetensors_entry entries[] = {
	{.name = "\xc3\xa9", .dtype = DTRAIN_U8, .shape = {1, {3}}},
	{.name = "b", .dtype = DTRAIN_F32, .shape = {2, {2, 3}}},
	{.name = "a.count", .dtype = DTRAIN_I64, .shape = {0}},
	{.name = "empty", .dtype = DTRAIN_U8, .shape = {2, {0, 3}}},
};
static const void *const contents[] = {bytes, weights, &counter, NULL};

static int give(void *context, size_t index, void *destination, size_t size, beton_error *err)
{
	const int *fail_at = context;
	if (fail_at && *fail_at == (int)index)
		return bt_fail(err, BETON_DEVICE, "tensor %zu is out of reach", index);
	if (size)
		memcpy(destination, contents[index], size);
	return BETON_OK;
}

static void check_content(const char *path)
{
	safetensors_file file;
	beton_error err;
	if (safetensors_open(&file, path, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(file.count, 4);
	for (size_t i = 0; i < 4; i++) {
		unsigned char read[64];
		const safetensors_entry *entry = safetensors_find(&file, entries[i].name);
		assert_non_null(entry);
		assert_int_equal(entry->dtype, entries[i].dtype);
		assert_memory_equal(&entry->shape, &entries[i].shape, sizeof(entry->shape));
		assert_int_equal(safetensors_read(&file, entry, read, &err), BETON_OK);
		if (entry->bytes)
			assert_memory_equal(read, contents[i], entry->bytes);
	}
	assert_null(safetensors_find(&file, "c"));
	safetensors_close(&file);
}

static size_t read_all(const char *path, unsigned char *content, size_t room)
{
	int fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	ssize_t size = bt_pread_full(fd, content, room, 0);
	close(fd);
	assert_true(size > 0 && (size_t)size < room);
	return (size_t)size;
}

static void write_all(const char *path, const void *content, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	assert_true(fd >= 0);
	assert_int_equal(bt_write_full(fd, content, size), 0);
	assert_int_equal(close(fd), 0);
}

static void round_trip(void **state)
{
	(void)state;
	safetensors_digest written;
	safetensors_digest found;
	assert_int_equal(safetensors_write("round", entries, 4, give, NULL, &written, NULL), BETON_OK);
	check_content("round");
	assert_int_equal(safetensors_hash("round", &found, NULL), BETON_OK);
	assert_memory_equal(&found, &written, sizeof(found));
	assert_int_equal(safetensors_write("round", entries, 4, give, NULL, &written, NULL), BETON_EXISTS);
	check_content("round");
}

/* Its bytes, but for the metadata that we do not write, are those that the format's own library wrote. */
static void golden_file(void **state)
{
	(void)state;
	char *path = bt_format("%s/small.safetensors", golden);
	check_content(path);
	unsigned char theirs[1024];
	unsigned char ours[1024];
	size_t their_size = read_all(path, theirs, sizeof(theirs));
	free(path);
	safetensors_digest digest;
	assert_int_equal(safetensors_write("ours", entries, 4, give, NULL, &digest, NULL), BETON_OK);
	size_t our_size = read_all("ours", ours, sizeof(ours));
	size_t data = 8 + 24 + 3;
	assert_memory_equal(ours + our_size - data, theirs + their_size - data, data);
	static const char metadata[] = "\"__metadata__\":{\"made\":\"by safetensors\"},";
	size_t tail = 16; /* the padding differs */
	assert_memory_equal(ours + 9, theirs + 9 + strlen(metadata), our_size - 9 - data - tail);
}

static void failed_write_leaves_nothing(void **state)
{
	(void)state;
	beton_error err;
	safetensors_digest digest;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(safetensors_write("failed", entries, 4, give, &i, &digest, &err), BETON_DEVICE);
		assert_int_not_equal(access("failed", F_OK), 0);
	}
	safetensors_entry twice[] = {entries[1], entries[1]};
	assert_int_equal(safetensors_write("failed", twice, 2, give, NULL, &digest, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "'b'"));
	assert_int_not_equal(access("failed", F_OK), 0);
}

/* Opens whatever lies at path and reads all of it. */
static int try_file(const char *path)
{
	safetensors_file file;
	beton_error err = {0};
	int result = safetensors_open(&file, path, &err);
	if (result != BETON_OK) {
		assert_int_equal(err.code, result);
		assert_non_null(strstr(err.message, path));
		return result;
	}
	uint64_t total = 0;
	for (size_t i = 0; i < file.count; i++) {
		unsigned char *read = malloc(file.entries[i].bytes + 1);
		assert_int_equal(safetensors_read(&file, &file.entries[i], read, &err), BETON_OK);
		free(read);
		total += file.entries[i].bytes;
	}
	assert_true(total < file.size);
	safetensors_close(&file);
	return BETON_OK;
}

static void every_truncation(void **state)
{
	(void)state;
	unsigned char content[1024];
	safetensors_digest digest;
	assert_int_equal(safetensors_write("whole", entries, 4, give, NULL, &digest, NULL), BETON_OK);
	size_t size = read_all("whole", content, sizeof(content));
	for (size_t length = 0; length < size; length++) {
		write_all("cut", content, length);
		assert_int_equal(try_file("cut"), BETON_TRUNCATED);
	}
	content[size] = 0;
	write_all("cut", content, size + 1);
	assert_int_equal(try_file("cut"), BETON_FORMAT);
}

/* A flipped bit is refused, or changes no more than a name, a dimension that keeps the size, or the dtype. */
static void every_bit_flip(void **state)
{
	(void)state;
	unsigned char content[1024];
	safetensors_digest digest;
	int refused = 0;
	assert_int_equal(safetensors_write("flat", entries, 4, give, NULL, &digest, NULL), BETON_OK);
	size_t size = read_all("flat", content, sizeof(content));
	for (size_t bit = 0; bit < size * 8; bit++) {
		content[bit / 8] ^= (unsigned char)(1 << bit % 8);
		write_all("flipped", content, size);
		refused += try_file("flipped") != BETON_OK;
		safetensors_digest found;
		assert_int_equal(safetensors_hash("flipped", &found, NULL), BETON_OK);
		assert_true(found.hash != digest.hash);
		content[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	assert_true(refused > (int)size * 3);
}

static void wrong_headers(void **state)
{
	(void)state;
	static const struct {
		const char *header;
		size_t data;
		int expected;
	} cases[] = {
		{"{}", 0, BETON_OK},
		{"{}      ", 0, BETON_OK},
		{" {}", 0, BETON_FORMAT},
		{"[]", 0, BETON_FORMAT},
		{"{} x", 0, BETON_FORMAT},
		{"{", 0, BETON_FORMAT},
		{"{}", 1, BETON_FORMAT},
		{"{\"__metadata__\":{\"a\":\"b\"}}", 0, BETON_OK},
		{"{\"__metadata__\":{\"a\":1}}", 0, BETON_FORMAT},
		{"{\"__metadata__\":[]}", 0, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, BETON_OK},
		{"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2, BETON_OK},
		{"{\"a\":{\"dtype\":\"F128\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, BETON_FORMAT},
		{"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,2]}}", 2, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,3]}}", 3, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,0]}}", 2, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[-2,0]}}", 2, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2.0]}}", 2, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0]}}", 2, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":2,\"data_offsets\":[0,2]}}", 2, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[-2],\"data_offsets\":[0,2]}}", 2, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,2],\"data_offsets\":[0,2]}}", 2, BETON_UNSUPPORTED},
		/* 2^32 * 2^32 elements come round to 0 bytes. */
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
		 BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"I64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,2]}}", 2, BETON_FORMAT},
		/* A duplicate, an overlap and a hole. */
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
		 "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
		 2, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
		 "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
		 3, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
		 "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
		 3, BETON_FORMAT},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 1, BETON_TRUNCATED},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned char content[512] = {0};
		size_t length = strlen(cases[i].header);
		content[0] = (unsigned char)length;
		memcpy(content + 8, cases[i].header, length);
		write_all("case", content, 8 + length + cases[i].data);
		int found = try_file("case");
		if (found != cases[i].expected)
			fail_msg("%s: %s instead of %s", cases[i].header, beton_status_name(found),
				 beton_status_name(cases[i].expected));
	}
}

static void huge_and_strange_files(void **state)
{
	(void)state;
	unsigned char length[8] = {0x01, 0xe1, 0xf5, 0x05}; /* 100,000,001 */
	write_all("huge", length, 8);
	assert_int_equal(try_file("huge"), BETON_FORMAT);
	memset(length, 0xff, 8);
	write_all("huge", length, 8);
	assert_int_equal(try_file("huge"), BETON_FORMAT);
	assert_int_equal(mkdir("folder", 0777), 0);
	assert_int_equal(try_file("folder"), BETON_FORMAT);
	assert_int_equal(mkfifo("pipe", 0666), 0);
	assert_int_equal(try_file("pipe"), BETON_FORMAT);
	assert_int_equal(try_file("missing"), BETON_NOT_FOUND);
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
		cmocka_unit_test(round_trip),
		cmocka_unit_test(golden_file),
		cmocka_unit_test(failed_write_leaves_nothing),
		cmocka_unit_test(every_truncation),
		cmocka_unit_test(every_bit_flip),
		cmocka_unit_test(wrong_headers),
		cmocka_unit_test(huge_and_strange_files),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_leave(folder);
	return failed;
}
