/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <errno.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "format.h"

/* Buffer of a section of checksums. No output depends on it. */
#define SUMS_BUFFER 32768

/* Most sections that this writer makes. */
#define SECTIONS_MAX 8

typedef struct directory {
	uint32_t entries;
	uint8_t bytes[SECTIONS_MAX * DIRECTORY_ENTRY_SIZE];
} directory;

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static uint64_t metadata_offset(const output_job *job)
{
	return HEADER_SIZE + (uint64_t)job->num_fields * FIELD_SIZE;
}

static uint64_t metadata_size(const output_job *job)
{
	return job->num_samples * job->record_size;
}

static uint64_t table_size(const output_job *job)
{
	return job->num_samples * job->blob_fields * ALLOC_ENTRY_SIZE;
}

/* Bytes of the checksums of `size` bytes. */
static uint64_t sums_size(uint64_t size, uint64_t piece)
{
	return (size + piece - 1) / piece * sizeof(uint64_t);
}

bool bt_output_fits(const output_job *job)
{
	/* Everything that a sample takes outside of the pages, and its share of the checksums. */
	uint64_t each = job->record_size + (uint64_t)job->blob_fields * (ALLOC_ENTRY_SIZE + sizeof(uint64_t)) + 1;
	uint64_t fixed = UINT64_C(1) << 40; /* descriptors, facts, dictionaries, directory: far less */
	uint64_t pages = job->has_pages ? job->pages_end : 0;
	return pages < INT64_MAX - fixed && job->num_samples <= (INT64_MAX - fixed - pages) / (2 * each);
}

/* Zeros follow sections whose size is not a multiple of 8 bytes (facts, dictionaries). */
static uint64_t extension_size(const output_job *job)
{
	if (!job->extension)
		return 0;
	uint64_t size = table_size(job) / ALLOC_ENTRY_SIZE * sizeof(uint64_t);
	size += sums_size(metadata_size(job), METADATA_SUM_PIECE) + sums_size(table_size(job), TABLE_SUM_PIECE);
	size += round_up(strlen(job->facts), 8) + round_up(job->dictionaries_size, 8);
	uint32_t entries = 1 + (job->sources_size > 0) + 2 * (job->places_size > 0) + (job->dictionaries_size > 0) +
			   (metadata_size(job) > 0) + 2 * (table_size(job) > 0);
	return size + entries * DIRECTORY_ENTRY_SIZE + FOOTER_SIZE;
}

uint64_t bt_output_tail(const output_job *job)
{
	uint64_t end = job->has_pages ? job->pages_end : metadata_offset(job) + metadata_size(job);
	return job->extension ? round_up(end, 8) : end;
}

uint64_t bt_output_index(const output_job *job)
{
	return bt_output_tail(job) + round_up(job->sources_size, 8);
}

int bt_output_begin(output *self, const output_job *job, beton_error *err)
{
	*self = (output){.job = *job};
	int fd = job->fd;
	self->tail = bt_output_index(job) + job->places_size + round_up(job->indexes_size, 8);
	self->table_offset = self->tail + extension_size(job);
	section *metadata_sums = NULL;
	section *table_sums = NULL;
	int result = BETON_OK;
	if (job->extension) {
		uint64_t at = self->tail;
		result = bt_section_begin(&self->blob_sums, fd, job->path, "checksums of the blobs", at, SUMS_BUFFER,
					  NULL, err);
		at += table_size(job) / ALLOC_ENTRY_SIZE * sizeof(uint64_t);
		metadata_sums = &self->metadata_sums;
		if (result == BETON_OK)
			result = bt_section_begin(metadata_sums, fd, job->path, "checksums of the metadata", at,
						  SUMS_BUFFER, NULL, err);
		at += sums_size(metadata_size(job), METADATA_SUM_PIECE);
		table_sums = &self->table_sums;
		if (result == BETON_OK)
			result = bt_section_begin(table_sums, fd, job->path, "checksums of the allocation table", at,
						  SUMS_BUFFER, NULL, err);
	}
	if (result == BETON_OK)
		result = bt_section_begin(&self->metadata, fd, job->path, "metadata", metadata_offset(job),
					  METADATA_SUM_PIECE, metadata_sums, err);
	if (result == BETON_OK)
		result = bt_section_begin(&self->table, fd, job->path, "allocation table", self->table_offset,
					  TABLE_SUM_PIECE, table_sums, err);
	return result;
}

int bt_output_sample(output *self, const uint8_t *record, const output_blob *blobs, beton_error *err)
{
	int result = bt_section_put(&self->metadata, record, self->job.record_size, err);
	for (uint32_t i = 0; i < self->job.blob_fields && result == BETON_OK; i++) {
		uint8_t entry[ALLOC_ENTRY_SIZE];
		uint8_t sum[sizeof(uint64_t)];
		store_u64(entry, self->samples);
		store_u64(entry + 8, blobs[i].pointer);
		store_u64(entry + 16, blobs[i].size);
		store_u64(sum, blobs[i].sum);
		result = bt_section_put(&self->table, entry, sizeof(entry), err);
		if (result == BETON_OK && self->job.extension)
			result = bt_section_put(&self->blob_sums, sum, sizeof(sum), err);
	}
	self->samples++;
	return result;
}

static void add_entry(directory *list, uint32_t kind, uint64_t offset, uint64_t size, uint64_t sum)
{
	if (size == 0)
		return;
	uint8_t *entry = list->bytes + list->entries++ * DIRECTORY_ENTRY_SIZE;
	store_u32(entry, kind);
	store_u64(entry + DIRECTORY_OFFSET, offset);
	store_u64(entry + DIRECTORY_SIZE, size);
	store_u64(entry + DIRECTORY_SUM, sum);
}

static int write_at(const output *self, const char *what, const void *data, size_t size, uint64_t offset,
		    beton_error *err)
{
	if (size && bt_pwrite_full(self->job.fd, data, size, offset) != 0)
		return bt_fail_errno(err, errno, "%s: cannot write the %s at offset %llu", self->job.path, what,
				     (unsigned long long)offset);
	return BETON_OK;
}

/* Ends a section of checksums, adds it to the directory, and moves *at past it. */
static int end_sums(section *sums, uint32_t kind, directory *list, uint64_t *at, beton_error *err)
{
	uint64_t sum;
	int result = bt_section_end(sums, &sum, err);
	if (result != BETON_OK)
		return result;
	add_entry(list, kind, *at, sums->offset - *at, sum);
	*at = sums->offset;
	return BETON_OK;
}

/* Writes a section that is in memory, adds it to the directory, and moves *at past it. */
static int write_block(const output *self, const char *what, uint32_t kind, const void *data, size_t size,
		       directory *list, uint64_t *at, beton_error *err)
{
	int result = write_at(self, what, data, size, *at, err);
	add_entry(list, kind, *at, size, XXH3_64bits(data, size));
	*at += round_up(size, 8);
	return result;
}

static void make_header(const output *self, uint8_t *header)
{
	store_u16(header + HEADER_VERSION, BETON_FORMAT_VERSION);
	store_u16(header + HEADER_NUM_FIELDS, (uint16_t)self->job.num_fields);
	store_u32(header + HEADER_PAGE_SIZE, self->job.page_size);
	store_u64(header + HEADER_NUM_SAMPLES, self->job.num_samples);
	store_u64(header + HEADER_ALLOC_TABLE, self->table_offset);
}

static uint64_t header_sum(const output *self)
{
	uint8_t header[HEADER_SIZE];
	make_header(self, header);
	XXH3_state_t *state = self->table.whole; /* a section of checksums needs none itself */
	XXH3_64bits_reset(state);
	XXH3_64bits_update(state, header, sizeof(header));
	XXH3_64bits_update(state, self->job.descriptors, (size_t)self->job.num_fields * FIELD_SIZE);
	return XXH3_64bits_digest(state);
}

static int write_extension(output *self, beton_error *err)
{
	const output_job *job = &self->job;
	directory list = {0};
	uint64_t at = self->tail;
	add_entry(&list, SECTION_SOURCES, bt_output_tail(job), job->sources_size, job->sources_sum);
	add_entry(&list, SECTION_JPEG_PLACES, bt_output_index(job), job->places_size, job->places_sum);
	add_entry(&list, SECTION_JPEG_INDEXES, bt_output_index(job) + job->places_size, job->indexes_size,
		  job->indexes_sum);
	int result = end_sums(&self->blob_sums, SECTION_BLOB_SUMS, &list, &at, err);
	if (result == BETON_OK)
		result = end_sums(&self->metadata_sums, SECTION_METADATA_SUMS, &list, &at, err);
	if (result == BETON_OK)
		result = end_sums(&self->table_sums, SECTION_TABLE_SUMS, &list, &at, err);
	if (result == BETON_OK)
		result = write_block(self, "facts", SECTION_FACTS, job->facts, strlen(job->facts), &list, &at, err);
	if (result == BETON_OK)
		result = write_block(self, "dictionaries", SECTION_DICTIONARIES, job->dictionaries,
				     job->dictionaries_size, &list, &at, err);
	if (result != BETON_OK)
		return result;
	size_t size = list.entries * DIRECTORY_ENTRY_SIZE;
	uint8_t footer[FOOTER_SIZE] = FOOTER_MAGIC;
	store_u32(footer + FOOTER_VERSION, EXTENSION_VERSION);
	store_u32(footer + FOOTER_ENTRIES, list.entries);
	store_u64(footer + FOOTER_DIRECTORY, at);
	store_u64(footer + FOOTER_DIRECTORY_SUM, XXH3_64bits(list.bytes, size));
	store_u64(footer + FOOTER_FLAGS, EXTENSION_TABLE_IN_ORDER);
	store_u64(footer + FOOTER_HEADER_SUM, header_sum(self));
	store_u64(footer + FOOTER_SUM, XXH3_64bits(footer, FOOTER_SUM));
	result = write_at(self, "directory of the extension", list.bytes, size, at, err);
	if (result == BETON_OK)
		result = write_at(self, "footer of the extension", footer, FOOTER_SIZE, at + size, err);
	return result;
}

int bt_output_end(output *self, beton_error *err)
{
	uint64_t sum;
	int result = bt_section_end(&self->metadata, &sum, err);
	if (result == BETON_OK)
		result = bt_section_end(&self->table, &sum, err);
	if (result == BETON_OK && self->job.extension)
		result = write_extension(self, err);
	if (result == BETON_OK)
		result = write_at(self, "list of fields", self->job.descriptors,
				  (size_t)self->job.num_fields * FIELD_SIZE, HEADER_SIZE, err);
	uint8_t header[HEADER_SIZE];
	make_header(self, header);
	if (result == BETON_OK)
		result = write_at(self, "header", header, HEADER_SIZE, 0, err);
	return result;
}

void bt_output_free(output *self)
{
	bt_section_free(&self->metadata);
	bt_section_free(&self->table);
	bt_section_free(&self->blob_sums);
	bt_section_free(&self->metadata_sums);
	bt_section_free(&self->table_sums);
}
