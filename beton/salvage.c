/* SPDX-License-Identifier: Apache-2.0 */
#include "salvage.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "format.h"
#include "reader.h"
#ifdef HAVE_JPEG
#include "jpeg/check.h"
#endif

/* Whether the metadata were written: in a file without its table, records may be all zeros. */
static int look_at_metadata(const beton_reader *reader, bool *written, beton_error *err)
{
	uint8_t buffer[16384];
	uint64_t size = reader->info.num_samples * reader->info.record_size;
	*written = false;
	for (uint64_t at = 0; at < size && !*written; at += sizeof(buffer)) {
		size_t count = size - at < sizeof(buffer) ? (size_t)(size - at) : sizeof(buffer);
		int result = bt_read_section(reader, "metadata", buffer, count, reader->info.metadata_offset + at, err);
		if (result != BETON_OK)
			return result;
		for (size_t i = 0; i < count; i++)
			*written |= buffer[i] != 0;
	}
	return BETON_OK;
}

/* Reads the number of samples from the header; the reader of a truncated file may have lowered it. */
static int read_promise(const beton_reader *reader, uint64_t *samples, beton_error *err)
{
	uint8_t packed[sizeof(uint64_t)];
	int result = bt_read_section(reader, "header", packed, sizeof(packed), HEADER_NUM_SAMPLES, err);
	*samples = result == BETON_OK ? load_u64(packed) : 0;
	/* A number that is too large for any file is damage. */
	if (*samples > (uint64_t)INT64_MAX / reader->info.record_size)
		*samples = reader->info.num_samples;
	return result;
}

/* The parts to leave out to open a file with that fault; 0: none. */
static int remedy(int result, const fault_place *place)
{
	if (result == BETON_FORMAT && strcmp(place->section, "extension block") == 0)
		return OPEN_WITHOUT_BLOCK;
	if ((result == BETON_FORMAT || result == BETON_TRUNCATED || result == BETON_INCOMPLETE) &&
	    strcmp(place->section, "header") == 0)
		return OPEN_TO_SALVAGE;
	return 0;
}

int bt_salvage_open(beton_reader **out, const char *path, beton_repair_report *report, beton_error *err)
{
	fault_place place;
	int flags = 0;
	int result = bt_reader_open_damaged(out, path, flags, &place, err);
	while (result != BETON_OK && (remedy(result, &place) & ~flags)) {
		flags |= remedy(result, &place);
		result = bt_reader_open_damaged(out, path, flags, &place, err);
	}
	if (result != BETON_OK)
		return result;
	const beton_reader *reader = *out;
	bool written = true;
	report->table_lost = reader->table_lost;
	report->samples = reader->info.num_samples;
	if (reader->table_lost)
		result = read_promise(reader, &report->samples, err);
	if (result == BETON_OK && reader->table_lost)
		result = look_at_metadata(reader, &written, err);
	report->metadata_lost = !written;
	if (result != BETON_OK)
		beton_reader_close(out);
	return result;
}

#ifdef HAVE_JPEG
static int search_page(const uint8_t *page, size_t size, uint64_t max_pixels,
		       int (*take)(void *context, const beton_input *picture, beton_error *err), void *context,
		       beton_error *err)
{
	static const uint8_t start[] = {0xff, 0xd8, 0xff};
	for (const uint8_t *at = page; (at = memmem(at, size - (size_t)(at - page), start, sizeof(start)));) {
		bt_jpeg_facts facts;
		int result = bt_jpeg_check(at, size - (size_t)(at - page), max_pixels, NULL, &facts, err);
		if (result == BETON_SAMPLE_CORRUPT) {
			at++;
			continue;
		}
		if (result == BETON_OK)
			result = take(context,
				      &(beton_input){.data = at,
						     .size = facts.length,
						     .mode = BETON_IMAGE_JPEG,
						     .width = facts.width,
						     .height = facts.height},
				      err);
		if (result != BETON_OK)
			return result;
		at += facts.length;
	}
	return BETON_OK;
}

int bt_find_pictures(const beton_reader *reader, uint64_t max_pixels,
		     int (*take)(void *context, const beton_input *picture, beton_error *err), void *context,
		     beton_error *err)
{
	const beton_file_info *info = &reader->info;
	uint64_t end = info->data_end;
	uint64_t at = info->metadata_offset / info->page_size * info->page_size;
	size_t room = end - at < info->page_size ? (size_t)(end - at) : info->page_size;
	uint8_t *page = malloc(room ? room : 1);
	if (!page)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for a page of %zu bytes", reader->path, room);
	int result = BETON_OK;
	for (size_t size; at < end && result == BETON_OK; at += size) {
		size = end - at < room ? (size_t)(end - at) : room;
		result = bt_read_section(reader, "pages", page, size, at, err);
		if (result == BETON_OK)
			result = search_page(page, size, max_pixels, take, context, err);
	}
	free(page);
	return result;
}
#else
int bt_find_pictures(const beton_reader *reader, uint64_t max_pixels,
		     int (*take)(void *context, const beton_input *picture, beton_error *err), void *context,
		     beton_error *err)
{
	(void)max_pixels;
	(void)take;
	(void)context;
	return bt_fail(err, BETON_UNSUPPORTED, "%s: its metadata are lost, and this build cannot look for pictures",
		       reader->path);
}
#endif
