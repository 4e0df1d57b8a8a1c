/* SPDX-License-Identifier: Apache-2.0 */
#include "writer_job.h"

#include <stdio.h>
#include <string.h>

enum { INTEGERS = 350, FIELDS = INTEGERS + 2, LARGEST = 7000 };

static int put(beton_writer *writer, uint64_t index, beton_error *err)
{
	uint8_t bytes[LARGEST];
	char text[32];
	beton_input values[FIELDS] = {0};
	for (uint64_t i = 0; i < INTEGERS; i++)
		values[i].integer = (int64_t)(index * i);
	size_t size = LARGEST - (size_t)(index * 37 % 4000);
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(index * 7 + i + (i >> 8));
	values[INTEGERS] = (beton_input){.data = bytes, .size = size};
	int length = snprintf(text, sizeof(text), "[%llu]", (unsigned long long)index);
	values[INTEGERS + 1] = (beton_input){.data = text, .size = (uint64_t)length};
	return beton_writer_put(writer, index, values, err);
}

int job_write(const job_settings *settings, beton_error *err)
{
	beton_field fields[FIELDS] = {0};
	for (int i = 0; i < INTEGERS; i++) {
		snprintf(fields[i].name, sizeof(fields[i].name), "n%d", i);
		fields[i].type = BETON_FIELD_INT;
	}
	fields[INTEGERS] = (beton_field){.name = "bytes", .type = BETON_FIELD_BYTES};
	fields[INTEGERS + 1] = (beton_field){.name = "text", .type = BETON_FIELD_JSON};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	options.job = settings->resumable ? "the job" : NULL;
	options.resume = settings->resume;
	beton_writer *writer;
	int result = beton_writer_open(&writer, settings->path, fields, FIELDS, &options, err);
	if (result != BETON_OK)
		return result;
	uint64_t end = settings->stop ? settings->stop : JOB_SAMPLES;
	uint64_t begin = beton_writer_position(writer);
	if (settings->position)
		*settings->position = begin;
	for (uint64_t i = begin; i < end && result == BETON_OK; i++)
		result = put(writer, i, err);
	if (result == BETON_OK && !settings->stop)
		result = beton_writer_finish(writer, err);
	beton_writer_close(&writer);
	return result;
}
