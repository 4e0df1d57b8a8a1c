/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg_index_write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "format.h"
#include "jpeg_index.h"
#include "types/types.h"

/* The head of an entry of a sample: u32 number of the picture in the sample, u32 size of the entry. */
#define HEAD_SIZE 8

#define SECTION_BUFFER 32768

/* Adds the entry of a JPEG, the picture `number` of the sample, whose checksum is sum. */
static bool add_entry(sample *one, uint32_t number, const beton_input *value, uint64_t sum, uint64_t max_pixels)
{
	const beton_jpeg_index *given = value->jpeg_index;
	if (given && given->size == 0)
		return true;
	size_t most = given ? JPEG_ENTRY_SUM + (size_t)given->size : BETON_JPEG_INDEX_MAX;
	uint8_t *grown = realloc(one->index_memory, one->index_size + HEAD_SIZE + most);
	if (!grown)
		return false;
	one->entries = one->index_memory = grown;
	uint8_t *entry = grown + one->index_size + HEAD_SIZE;
	bt_index_request index = {.out = entry + JPEG_ENTRY_SUM, .size = given ? (size_t)given->size : 0};
	if (given)
		memcpy(index.out, given->data, index.size);
	else if (!bt_jpeg_index_make(value->data, (size_t)value->size, max_pixels, &index))
		return false;
	size_t used = index.size;
	if (used == 0)
		return true;
	bt_jpeg_entry_seal(entry, used, sum);
	store_u32(entry - HEAD_SIZE, number);
	store_u32(entry - HEAD_SIZE + 4, (uint32_t)(JPEG_ENTRY_SUM + used));
	one->index_size += HEAD_SIZE + JPEG_ENTRY_SUM + used;
	return true;
}

int bt_sample_index(sample *one, const sample_schema *schema, const beton_input *values, beton_error *err)
{
	uint32_t picture = 0, blob = 0;
	for (uint32_t i = 0; i < schema->num_fields; i++) {
		beton_field_type type = schema->fields[i].type;
		if (bt_form_of(type) == BT_FORM_IMAGE && values[i].mode == BETON_IMAGE_JPEG &&
		    !add_entry(one, picture, &values[i], one->blobs[blob].sum, schema->max_pixels))
			return bt_fail_sample(err, BETON_NO_MEMORY, (int64_t)one->index,
					      "%s: no memory for the index of sample %llu", schema->path,
					      (unsigned long long)one->index);
		picture += bt_form_of(type) == BT_FORM_IMAGE;
		blob += bt_type_has_blob(type);
	}
	return BETON_OK;
}

int bt_sample_journal_index(const sample *one, journal *to, uint64_t number, beton_error *err)
{
	int result = BETON_OK;
	for (size_t at = 0; at < one->index_size && result == BETON_OK;) {
		const uint8_t *entry = one->entries + at;
		uint32_t size = load_u32(entry + 4);
		result = bt_journal_index(to, number, load_u32(entry), entry + HEAD_SIZE, size, err);
		at += HEAD_SIZE + size;
	}
	return result;
}

int bt_index_sections_begin(index_sections *self, int fd, const char *path, uint64_t at, uint64_t pictures,
			    beton_error *err)
{
	*self = (index_sections){.pictures = pictures};
	int result = bt_section_begin(&self->places, fd, path, "places of JPEG indexes", at, SECTION_BUFFER, NULL, err);
	if (result == BETON_OK)
		result = bt_section_begin(&self->entries, fd, path, "JPEG indexes", at + pictures * sizeof(uint64_t),
					  SECTION_BUFFER, NULL, err);
	return result;
}

/* Puts places of pictures up to `end`, which have no further entry. */
static int put_places(index_sections *self, uint64_t end, beton_error *err)
{
	uint8_t place[sizeof(uint64_t)];
	int result = BETON_OK;
	store_u64(place, self->used);
	for (; self->put < end && result == BETON_OK; self->put++)
		result = bt_section_put(&self->places, place, sizeof(place), err);
	return result;
}

int bt_index_sections_put(index_sections *self, uint64_t picture, const void *entry, size_t size, beton_error *err)
{
	int result = put_places(self, picture, err);
	if (result == BETON_OK)
		result = bt_section_put(&self->entries, entry, size, err);
	self->used += size;
	return result;
}

int bt_index_sections_end(index_sections *self, uint64_t *places_sum, uint64_t *entries_sum, beton_error *err)
{
	int result = put_places(self, self->pictures, err);
	if (result == BETON_OK)
		result = bt_section_end(&self->places, places_sum, err);
	return result == BETON_OK ? bt_section_end(&self->entries, entries_sum, err) : result;
}

void bt_index_sections_free(index_sections *self)
{
	bt_section_free(&self->places);
	bt_section_free(&self->entries);
}

static int damaged_journal(const journal *from, uint64_t offset, int error_number, beton_error *err)
{
	return bt_fail_errno(err, error_number ? error_number : EIO, "%s: the journal is damaged at offset %llu",
			     from->path, (unsigned long long)offset);
}

static int copy_entries(index_sections *self, journal *from, uint64_t samples, uint64_t pictures, uint8_t *bytes,
			beton_error *err)
{
	uint64_t offset = BETON_JOURNAL_HEAD_SIZE, done = 0;
	int result = BETON_OK;
	while (done < samples && result == BETON_OK) {
		journal_part part;
		int error_number;
		if (!bt_journal_read(from, &offset, &part, &error_number))
			return damaged_journal(from, offset, error_number, err);
		if (part.kind == JOURNAL_SAMPLES)
			done += part.count;
		if (part.kind != JOURNAL_INDEX)
			continue;
		if (part.payload > BETON_JPEG_INDEX_MAX ||
		    !bt_journal_payload(from, &part, offset, bytes, &error_number))
			return damaged_journal(from, offset, error_number, err);
		result = bt_index_sections_put(self, part.position * pictures + part.count, bytes, (size_t)part.payload,
					       err);
	}
	return result;
}

int bt_jpeg_index_write(journal *from, output_job *job, const sample_schema *schema, beton_error *err)
{
	uint64_t pictures = 0, at = bt_output_index(job);
	for (uint32_t i = 0; i < schema->num_fields; i++)
		pictures += bt_form_of(schema->fields[i].type) == BT_FORM_IMAGE;
	index_sections self = {0};
	uint8_t *bytes = malloc(BETON_JPEG_INDEX_MAX);
	int result = bytes ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: no memory for the index", job->path);
	if (result == BETON_OK)
		result = bt_index_sections_begin(&self, job->fd, job->path, at, job->num_samples * pictures, err);
	if (result == BETON_OK)
		result = copy_entries(&self, from, job->num_samples, pictures, bytes, err);
	if (result == BETON_OK)
		result = bt_index_sections_end(&self, &job->places_sum, &job->indexes_sum, err);
	job->places_size = self.pictures * sizeof(uint64_t);
	job->indexes_size = self.used;
	bt_index_sections_free(&self);
	free(bytes);
	return result;
}
