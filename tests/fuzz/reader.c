/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a .beton file: refused with a message, or read within its bounds. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <beton/beton.h>

#include "common/system.h"

enum { VALUES_MAX = 20000 };

static void require(int condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "fuzz-reader: not so: %s\n", what);
	abort();
}

static void read_value(const beton_reader *reader, uint64_t sample, uint32_t field)
{
	const beton_file_info *info = beton_reader_info(reader);
	beton_value value;
	beton_error err = {0};
	int result = beton_reader_value(reader, sample, field, &value, &err);
	if (result != BETON_OK) {
		require(result == BETON_SAMPLE_CORRUPT && err.code == result && err.message[0],
			"a damaged value says so");
		return;
	}
	if (value.type == BETON_FIELD_INT || value.type == BETON_FIELD_FLOAT)
		return;
	require(value.blob.size <= info->page_size, "a blob fits a page");
	if (value.blob.size)
		require(value.blob.offset >= info->metadata_offset && value.blob.offset < info->alloc_table_offset &&
				value.blob.size <= info->alloc_table_offset - value.blob.offset,
			"a blob lies between the metadata and the table");
	uint8_t *bytes = malloc((size_t)value.blob.size);
	if (bytes)
		require(beton_reader_read(reader, &value.blob, bytes, NULL) == BETON_OK, "a checked blob can be read");
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	require(fd >= 0 && bt_write_full(fd, data, size) == 0, "the input can be written");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	beton_reader *reader;
	beton_error err = {0};
	int result = beton_reader_open(&reader, path, &err);
	require(result == BETON_OK ? reader != NULL : !reader && err.code == result && err.message[0],
		"open gives a reader or an error");
	if (reader) {
		const beton_file_info *info = beton_reader_info(reader);
		uint64_t values = 0;
		for (uint64_t sample = 0; sample < info->num_samples && values < VALUES_MAX; sample++)
			for (uint32_t i = 0; i < info->num_fields && values < VALUES_MAX; i++, values++)
				read_value(reader, sample, i);
	}
	beton_reader_close(&reader);
	close(fd);
	return 0;
}
