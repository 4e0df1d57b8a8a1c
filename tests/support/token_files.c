/* SPDX-License-Identifier: Apache-2.0 */
#include "token_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <beton/tokens.h>

uint32_t token_at(uint64_t i)
{
	return i % 7 == 6 ? 0 : (uint32_t)(i * 2654435761u % 49999 + 1);
}

static int write_tokens(const char *path, const void *head, size_t head_size, uint64_t count, int wide)
{
	FILE *file = fopen(path, "wb");
	if (!file)
		return -1;
	int failed = head_size > 0 && fwrite(head, head_size, 1, file) != 1;
	for (uint64_t i = 0; i < count && !failed; i++) {
		uint32_t token = token_at(i); /* little endian, as the files are */
		failed = fwrite(&token, wide ? 4 : 2, 1, file) != 1;
	}
	return fclose(file) != 0 || failed ? -1 : 0;
}

int write_raw_tokens(const char *path, uint64_t count)
{
	return write_tokens(path, NULL, 0, count, 0);
}

int write_llmc_tokens(const char *path, uint64_t count, int wide)
{
	int32_t head[256] = {wide ? 20240801 : 20240520, wide ? 7 : 1, (int32_t)count};
	return write_tokens(path, head, sizeof(head), count, wide);
}

int write_token_chunks(const char *path, token_chunks what)
{
	beton_field fields[] = {
		{.name = "tokens", .type = BETON_FIELD_NDARRAY, .ndim = 1, .shape = {what.chunk}},
		{.name = BETON_TOKENS_LENGTH_FIELD, .type = BETON_FIELD_INT},
	};
	strcpy(fields[0].dtype, what.wide ? "<u4" : "<u2");
	fields[0].compression = what.compressed ? BETON_COMPRESSION_ZSTD : BETON_COMPRESSION_NONE;
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	options.flags = what.without_checksums ? BETON_WRITER_NO_EXTENSION : 0;
	beton_writer *writer;
	uint32_t size = what.wide ? 4 : 2;
	uint64_t bytes = (uint64_t)what.chunk * size;
	uint8_t *row = malloc(bytes);
	int result = beton_writer_open(&writer, path, fields, 2, &options, NULL);
	for (uint64_t from = 0; from < what.count && result == BETON_OK; from += what.chunk) {
		uint64_t length = what.count - from < what.chunk ? what.count - from : what.chunk;
		memset(row, 0, bytes);
		for (uint64_t i = 0; i < length; i++) {
			uint32_t token = token_at(from + i);
			memcpy(row + i * size, &token, size);
		}
		length -= (int64_t)(from / what.chunk) == what.short_chunk;
		beton_input values[] = {{.data = row, .size = bytes}, {.integer = (int64_t)length}};
		result = beton_writer_append(writer, values, NULL);
	}
	if (result == BETON_OK)
		result = beton_writer_finish(writer, NULL);
	beton_writer_close(&writer);
	free(row);
	return result;
}
