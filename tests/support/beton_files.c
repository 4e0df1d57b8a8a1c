/* SPDX-License-Identifier: Apache-2.0 */
#include "beton_files.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zstd.h>

#include "common/system.h"

static char folder[256];

const char *make_folder(void)
{
	const char *parent = getenv("TMPDIR");
	snprintf(folder, sizeof(folder), "%s/beton-test-XXXXXX", parent ? parent : "/tmp");
	assert_non_null(mkdtemp(folder));
	return folder;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

void remove_folder(void)
{
	nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *in_folder(const char *name)
{
	/* A ring of names, so that a test may hold a few at once. */
	static char names[8][512];
	static unsigned next;
	char *path = names[next++ % 8];
	snprintf(path, sizeof(names[0]), "%s/%s", folder, name);
	return path;
}

file_content read_file(const char *path)
{
	file_content content;
	struct stat status;
	int fd = open(path, O_RDONLY);
	if (fd < 0 || fstat(fd, &status) != 0)
		fail_msg("cannot open %s", path);
	content.size = (size_t)status.st_size;
	content.data = malloc(content.size + 1);
	assert_non_null(content.data);
	assert_int_equal(bt_pread_full(fd, content.data, content.size, 0), content.size);
	close(fd);
	return content;
}

void write_file(const char *path, const void *data, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		fail_msg("cannot create %s", path);
	assert_int_equal(bt_write_full(fd, data, size), 0);
	close(fd);
}

void patch_file(const char *path, uint64_t offset, const void *data, size_t size)
{
	int fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	assert_int_equal(bt_pwrite_full(fd, data, size, offset), 0);
	close(fd);
}

const char *unpack_golden(const char *name)
{
	char path[512];
	char file[64];
	snprintf(path, sizeof(path), "%s/%s.beton.zst", GOLDEN_FOLDER, name);
	snprintf(file, sizeof(file), "%s.beton", name);
	file_content packed = read_file(path);
	unsigned long long size = ZSTD_getFrameContentSize(packed.data, packed.size);
	assert_true(size < (1u << 30));
	uint8_t *data = malloc((size_t)size);
	assert_non_null(data);
	assert_int_equal(ZSTD_decompress(data, (size_t)size, packed.data, packed.size), size);
	const char *unpacked = in_folder(file);
	write_file(unpacked, data, (size_t)size);
	free(data);
	free(packed.data);
	return unpacked;
}

const char *expect_refusal(const char *path, int code)
{
	static beton_error err;
	beton_reader *reader = (beton_reader *)1;
	err = (beton_error){0};
	int result = beton_reader_open(&reader, path, &err);
	assert_null(reader);
	if (result != code)
		fail_msg("%s: %s instead of %s: %s", path, beton_status_name(result), beton_status_name(code),
			 err.message);
	assert_int_equal(err.code, code);
	assert_non_null(strstr(err.message, path));
	return err.message;
}

void expect_damage(const char *path, int code)
{
	beton_error err = {0};
	beton_reader *reader;
	int result = beton_reader_open(&reader, path, &err);
	if (result == BETON_OK)
		result = beton_reader_check_structure(reader, &err);
	beton_reader_close(&reader);
	if (result != code)
		fail_msg("%s: %s instead of %s: %s", path, beton_status_name(result), beton_status_name(code),
			 err.message);
	assert_int_equal(err.code, code);
	assert_non_null(strstr(err.message, path));
}

beton_reader *open_good(const char *path)
{
	beton_error err;
	beton_reader *reader;
	if (beton_reader_open(&reader, path, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return reader;
}

/* A value that beton_reader_value gave must be what beton_reader_sample gave. */
static void expect_same(const beton_value *a, const beton_value *b)
{
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->sample, b->sample);
	assert_int_equal(a->field, b->field);
	assert_int_equal(a->integer, b->integer);
	assert_memory_equal(&a->real, &b->real, sizeof(a->real));
	assert_int_equal(a->blob.offset, b->blob.offset);
	assert_int_equal(a->blob.size, b->blob.size);
	assert_int_equal(a->size, b->size);
	assert_int_equal(a->entry, b->entry);
	assert_int_equal(a->width, b->width);
	assert_int_equal(a->mode, b->mode);
}

/* False if its content is damaged. */
static bool read_content(const beton_reader *reader, const beton_value *value)
{
	beton_error err;
	assert_true(value->blob.size <= beton_reader_info(reader)->page_size);
	uint8_t *bytes = malloc((size_t)value->blob.size + 1);
	assert_non_null(bytes);
	if (beton_reader_read(reader, &value->blob, bytes, &err) != BETON_OK)
		fail_msg("%s", err.message);
	free(bytes);
	bytes = malloc((size_t)value->size + 1);
	assert_non_null(bytes);
	int result = beton_reader_read_value(reader, value, bytes, &err);
	free(bytes);
	if (result != BETON_OK && result != BETON_FORMAT) {
		assert_int_equal(result, BETON_SAMPLE_CORRUPT);
		assert_int_equal(err.sample, value->sample);
	}
	return result == BETON_OK;
}

uint64_t read_everything(const beton_reader *reader)
{
	const beton_file_info *info = beton_reader_info(reader);
	beton_value *values = calloc(info->num_fields, sizeof(*values));
	assert_non_null(values);
	uint64_t damaged = 0;
	for (uint64_t sample = 0; sample < info->num_samples; sample++) {
		beton_error err = {0};
		int whole = beton_reader_sample(reader, sample, values, &err);
		assert_true(whole == BETON_OK || (whole == BETON_SAMPLE_CORRUPT && err.code == whole &&
						  err.sample == (int64_t)sample && err.message[0]));
		uint64_t before = damaged;
		for (uint32_t i = 0; i < info->num_fields; i++) {
			beton_value value;
			int result = beton_reader_value(reader, sample, i, &value, &err);
			assert_int_equal(result, values[i].status);
			if (result != BETON_OK) {
				assert_int_equal(result, BETON_SAMPLE_CORRUPT);
				assert_int_equal(err.sample, sample);
				damaged++;
				continue;
			}
			expect_same(&value, &values[i]);
			if (value.type != BETON_FIELD_INT && value.type != BETON_FIELD_FLOAT)
				damaged += !read_content(reader, &value);
		}
		assert_true(whole == BETON_OK || damaged > before);
	}
	free(values);
	return damaged;
}
