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

#include "tests/support/temporary.h"
#include "checkpoint/safetensors.h"
#include "common/system.h"

static const char *golden;

static const float weights[6] = {0, 0.25f, 0.5f, 0.75f, 1, 1.25f};
static const int64_t counter = 7;
static const uint8_t bytes[3] = {1, 2, 3};

static safetensors_entry entries[] = {
	{.name = "\xc3\xa9", .dtype = DTRAIN_U8, .shape = {1, {3}}},
	{.name = "b", .dtype = DTRAIN_F32, .shape = {2, {2, 3}}},
	{.name = "a.count", .dtype = DTRAIN_I64, .shape = {0}},
	{.name = "empty", .dtype = DTRAIN_U8, .shape = {2, {0, 3}}},
};
static const void *const contents[] = {bytes, weights, &counter, NULL};

static int give(void *context, size_t index, uint64_t at, void *destination, size_t size, beton_error *err)
{
	const int *fail_at = context;
	if (fail_at && *fail_at == (int)index)
		return bt_fail(err, BETON_DEVICE, "tensor %zu is out of reach", index);
	if (size)
		memcpy(destination, (const char *)contents[index] + at, size);
	return BETON_OK;
}

/* A new file; digest: of all of it. */
static int write_new(const char *path, safetensors_entry *list, size_t count, void *context, checkpoint_digest *digest,
		     beton_error *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	assert_true(fd >= 0);
	assert_int_equal(dtrain__digest_begin(digest, UINT64_MAX, err), BETON_OK);
	int result = dtrain__safetensors_write(fd, path, list, count, NULL, give, context, digest, err);
	assert_int_equal(close(fd), 0);
	return result;
}

static int check_digest(const char *path, const checkpoint_digest *digest, beton_error *err)
{
	int fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	int result = dtrain__digest_check(digest, path, fd, 0, digest->count, err);
	close(fd);
	return result;
}

static void check_content(const char *path)
{
	safetensors_file file;
	beton_error err;
	if (dtrain__safetensors_open(&file, path, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(file.count, 4);
	for (size_t i = 0; i < 4; i++) {
		unsigned char read[64];
		const safetensors_entry *entry = dtrain__safetensors_find(&file, entries[i].name);
		assert_non_null(entry);
		assert_int_equal(entry->dtype, entries[i].dtype);
		assert_memory_equal(&entry->shape, &entries[i].shape, sizeof(entry->shape));
		assert_int_equal(dtrain__safetensors_read(&file, entry, read, &err), BETON_OK);
		if (entry->bytes)
			assert_memory_equal(read, contents[i], entry->bytes);
	}
	assert_null(dtrain__safetensors_find(&file, "c"));
	dtrain__safetensors_close(&file);
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
	checkpoint_digest written;
	assert_int_equal(write_new("round", entries, 4, NULL, &written, NULL), BETON_OK);
	check_content("round");
	assert_int_equal(check_digest("round", &written, NULL), BETON_OK);
	dtrain__digest_free(&written);
}

/* Chunks are checked one by one, and only the requested ones. */
static void chunks(void **state)
{
	(void)state;
	enum { CHUNK = 64 };
	checkpoint_digest digest;
	beton_error err = {0};
	int fd = open("chunks", O_RDWR | O_CREAT, 0666);
	assert_true(fd >= 0);
	assert_int_equal(dtrain__digest_begin(&digest, CHUNK, NULL), BETON_OK);
	assert_int_equal(dtrain__safetensors_write(fd, "chunks", entries, 4, NULL, give, NULL, &digest, NULL),
			 BETON_OK);
	assert_int_equal(digest.count, dtrain__digest_chunks(digest.size, CHUNK));
	assert_true(digest.count > 3 && digest.size % CHUNK != 0);
	assert_int_equal(dtrain__digest_check(&digest, "chunks", fd, 0, digest.count, NULL), BETON_OK);
	assert_int_equal(pwrite(fd, "?", 1, 2 * CHUNK + 5), 1);
	assert_int_equal(dtrain__digest_check(&digest, "chunks", fd, 0, 2, NULL), BETON_OK);
	assert_int_equal(dtrain__digest_check(&digest, "chunks", fd, 3, digest.count, NULL), BETON_OK);
	assert_int_equal(dtrain__digest_check(&digest, "chunks", fd, 1, 3, &err), BETON_FORMAT);
	assert_non_null(strstr(err.message, "chunks: is damaged from byte 128 to 192"));
	assert_int_equal(ftruncate(fd, (off_t)digest.size - 1), 0);
	assert_int_equal(dtrain__digest_check(&digest, "chunks", fd, 0, 1, NULL), BETON_TRUNCATED);
	assert_int_equal(ftruncate(fd, (off_t)digest.size + 1), 0);
	assert_int_equal(dtrain__digest_check(&digest, "chunks", fd, 0, 1, NULL), BETON_FORMAT);
	close(fd);
	dtrain__digest_free(&digest);
}

/* Its bytes, except metadata that we do not write, equal the file of the format's own library. */
static void golden_file(void **state)
{
	(void)state;
	char *path = bt_format("%s/small.safetensors", golden);
	check_content(path);
	unsigned char theirs[1024];
	unsigned char ours[1024];
	size_t their_size = read_all(path, theirs, sizeof(theirs));
	free(path);
	checkpoint_digest digest;
	assert_int_equal(write_new("ours", entries, 4, NULL, &digest, NULL), BETON_OK);
	dtrain__digest_free(&digest);
	size_t our_size = read_all("ours", ours, sizeof(ours));
	size_t data = 8 + 24 + 3;
	assert_memory_equal(ours + our_size - data, theirs + their_size - data, data);
	static const char metadata[] = "\"__metadata__\":{\"made\":\"by safetensors\"},";
	size_t tail = 16; /* the padding differs */
	assert_memory_equal(ours + 9, theirs + 9 + strlen(metadata), our_size - 9 - data - tail);
}

static void failures_are_told(void **state)
{
	(void)state;
	beton_error err;
	checkpoint_digest digest;
	/* The last one is empty, and not asked for. */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(write_new("failed", entries, 4, &i, &digest, &err), BETON_DEVICE);
		dtrain__digest_free(&digest);
	}
	safetensors_entry twice[] = {entries[1], entries[1]};
	assert_int_equal(write_new("failed", twice, 2, NULL, &digest, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "'b'"));
	dtrain__digest_free(&digest);
}

/* Opens whatever lies at path and reads all of it. */
static int try_file(const char *path)
{
	safetensors_file file;
	beton_error err = {0};
	int result = dtrain__safetensors_open(&file, path, &err);
	if (result != BETON_OK) {
		assert_int_equal(err.code, result);
		assert_non_null(strstr(err.message, path));
		return result;
	}
	uint64_t total = 0;
	for (size_t i = 0; i < file.count; i++) {
		unsigned char *read = malloc(file.entries[i].bytes + 1);
		assert_int_equal(dtrain__safetensors_read(&file, &file.entries[i], read, &err), BETON_OK);
		free(read);
		total += file.entries[i].bytes;
	}
	assert_true(total < file.size);
	dtrain__safetensors_close(&file);
	return BETON_OK;
}

static void every_truncation(void **state)
{
	(void)state;
	unsigned char content[1024];
	checkpoint_digest digest;
	assert_int_equal(write_new("whole", entries, 4, NULL, &digest, NULL), BETON_OK);
	dtrain__digest_free(&digest);
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
	checkpoint_digest digest;
	int refused = 0;
	assert_int_equal(write_new("flat", entries, 4, NULL, &digest, NULL), BETON_OK);
	size_t size = read_all("flat", content, sizeof(content));
	for (size_t bit = 0; bit < size * 8; bit++) {
		content[bit / 8] ^= (unsigned char)(1 << bit % 8);
		write_all("flipped", content, size);
		refused += try_file("flipped") != BETON_OK;
		assert_int_equal(check_digest("flipped", &digest, NULL), BETON_FORMAT);
		content[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	assert_true(refused > (int)size * 3);
	dtrain__digest_free(&digest);
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
		cmocka_unit_test(round_trip),       cmocka_unit_test(chunks),
		cmocka_unit_test(golden_file),      cmocka_unit_test(failures_are_told),
		cmocka_unit_test(every_truncation), cmocka_unit_test(every_bit_flip),
		cmocka_unit_test(wrong_headers),    cmocka_unit_test(huge_and_strange_files),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_leave(folder);
	return failed;
}
