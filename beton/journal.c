/* SPDX-License-Identifier: Apache-2.0 */
#include "journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "format.h"

/* Head: u8 magic[8], u32 version, u32 resumable, u64 fingerprint[2], u64 0, u64 checksum. */
#define HEAD_SIZE BETON_JOURNAL_HEAD_SIZE
#define HEAD_MAGIC "BETONJRN"
#define HEAD_VERSION 3

#define PART_SIZE 56 /* u32 kind, u32 count, u64 payload, position, page, used, sum, u64 checksum of these */

/* Payload to collect before a write; one sample may be larger. */
#define BUFFER_SIZE (UINT32_C(256) << 10)

/* Limit of the payload of parts other than SAMPLES. */
#define PAYLOAD_MAX (UINT32_C(1) << 20)

/* Names to collect before a write; one fits. */
#define SOURCES_SIZE (UINT32_C(256) << 10)

#define BLOB_SIZE 16 /* u64 size, u64 checksum */

static size_t sample_size(const journal *self)
{
	return self->record_size + (size_t)self->blob_fields * BLOB_SIZE;
}

int bt_journal_begin(journal *self, int fd, const char *path, uint32_t record_size, uint32_t blob_fields,
		     beton_error *err)
{
	*self = (journal){.fd = fd, .path = path, .record_size = record_size, .blob_fields = blob_fields};
	size_t each = sample_size(self);
	self->capacity = each > BUFFER_SIZE ? each : BUFFER_SIZE / each * each;
	/* A part, its payload and a second part are written at once. */
	self->buffer = malloc(PART_SIZE + self->capacity + PART_SIZE);
	return self->buffer ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: no memory for the journal", path);
}

static int write_out(journal *self, const void *data, size_t size, beton_error *err)
{
	if (bt_pwrite_full(self->fd, data, size, self->end) != 0)
		return bt_fail_errno(err, errno, "%s: cannot write the journal at offset %llu", self->path,
				     (unsigned long long)self->end);
	self->end += size;
	return BETON_OK;
}

static void pack_head(uint8_t *head, const char *job, bool resumable)
{
	XXH128_hash_t fingerprint = XXH3_128bits(job, strlen(job));
	memset(head, 0, HEAD_SIZE);
	memcpy(head, HEAD_MAGIC, 8);
	store_u32(head + 8, HEAD_VERSION);
	store_u32(head + 12, resumable);
	store_u64(head + 16, fingerprint.low64);
	store_u64(head + 24, fingerprint.high64);
	store_u64(head + 40, XXH3_64bits(head, 40));
}

static void pack_part(uint8_t *to, const journal_part *part)
{
	store_u32(to, part->kind);
	store_u32(to + 4, part->count);
	store_u64(to + 8, part->payload);
	store_u64(to + 16, part->position);
	store_u64(to + 24, part->page);
	store_u64(to + 32, part->used);
	store_u64(to + 40, part->sum);
	store_u64(to + 48, XXH3_64bits(to, 48));
}

static bool unpack_part(const uint8_t *from, journal_part *part)
{
	*part = (journal_part){.kind = load_u32(from),
			       .count = load_u32(from + 4),
			       .payload = load_u64(from + 8),
			       .position = load_u64(from + 16),
			       .page = load_u64(from + 24),
			       .used = load_u64(from + 32),
			       .sum = load_u64(from + 40)};
	return load_u64(from + 48) == XXH3_64bits(from, 48);
}

int bt_journal_start(journal *self, const char *job, bool resumable, beton_error *err)
{
	uint8_t head[HEAD_SIZE + PART_SIZE];
	size_t length = strlen(job);
	pack_head(head, job, resumable);
	const journal_part part = {.kind = JOURNAL_JOB,
				   .payload = length < PAYLOAD_MAX ? length : PAYLOAD_MAX,
				   .sum = XXH3_64bits(job, length < PAYLOAD_MAX ? length : PAYLOAD_MAX)};
	pack_part(head + HEAD_SIZE, &part);
	self->end = 0;
	int result = write_out(self, head, resumable ? sizeof(head) : HEAD_SIZE, err);
	if (result == BETON_OK && resumable)
		result = write_out(self, job, (size_t)part.payload, err);
	self->start = self->end;
	return result;
}

/* The text of the job after the head, and where it ends. NULL: none, or out of memory. */
static char *read_job(const journal *self, uint64_t *end)
{
	uint8_t packed[PART_SIZE];
	journal_part part;
	int error_number;
	*end = HEAD_SIZE;
	if (bt_pread_full(self->fd, packed, PART_SIZE, HEAD_SIZE) != PART_SIZE || !unpack_part(packed, &part) ||
	    part.kind != JOURNAL_JOB || part.payload > PAYLOAD_MAX)
		return NULL;
	*end += PART_SIZE + part.payload;
	char *text = malloc((size_t)part.payload + 1);
	if (text && bt_journal_payload(self, &part, *end, text, &error_number)) {
		text[part.payload] = 0;
		return text;
	}
	free(text);
	return NULL;
}

journal_match bt_journal_find(journal *self, const char *job, char **other)
{
	uint8_t expected[HEAD_SIZE];
	uint8_t found[HEAD_SIZE];
	uint8_t byte;
	uint64_t end;
	*other = NULL;
	pack_head(expected, job, true);
	self->end = HEAD_SIZE;
	if (bt_pread_full(self->fd, found, HEAD_SIZE, 0) != HEAD_SIZE || memcmp(found, expected, 8) != 0 ||
	    load_u64(found + 40) != XXH3_64bits(found, 40) || !load_u32(found + 12))
		return JOURNAL_NONE;
	if (memcmp(found, expected, HEAD_SIZE) == 0)
		return JOURNAL_SAME;
	*other = read_job(self, &end);
	if (bt_pread_full(self->fd, &byte, 1, end) == 1)
		return JOURNAL_OTHER;
	free(*other);
	*other = NULL;
	return JOURNAL_NONE;
}

/* From the first sample with a source on, all have a name; of those without it is empty. */
static int begin_sources(journal *self, beton_error *err)
{
	int result = bt_journal_flush(self, NULL, NULL, err);
	if (result != BETON_OK)
		return result;
	self->sources = malloc(SOURCES_SIZE);
	return self->sources ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: no memory for the journal", self->path);
}

int bt_journal_sample(journal *self, uint64_t index, const uint8_t *record, const output_blob *blobs,
		      const char *source, beton_error *err)
{
	size_t length = source ? strlen(source) : 0;
	if (length && !self->sources) {
		int result = begin_sources(self, err);
		if (result != BETON_OK)
			return result;
	}
	if (self->used + sample_size(self) > self->capacity || self->sources_used + length + 1 > SOURCES_SIZE) {
		int result = bt_journal_flush(self, NULL, NULL, err);
		if (result != BETON_OK)
			return result;
	}
	uint8_t *to = self->buffer + PART_SIZE + self->used;
	memcpy(to, record, self->record_size);
	to += self->record_size;
	for (uint32_t i = 0; i < self->blob_fields; i++, to += BLOB_SIZE) {
		store_u64(to, blobs[i].size);
		store_u64(to + 8, blobs[i].sum);
	}
	if (self->sources) {
		memcpy(self->sources + self->sources_used, length ? source : "", length + 1);
		self->sources_used += length + 1;
	}
	self->used += sample_size(self);
	self->samples++;
	self->position = index + 1;
	return BETON_OK;
}

int bt_journal_index(journal *self, uint64_t sample, uint32_t picture, const void *entry, size_t size, beton_error *err)
{
	uint8_t packed[PART_SIZE];
	const journal_part part = {.kind = JOURNAL_INDEX,
				   .count = picture,
				   .payload = size,
				   .position = sample,
				   .sum = XXH3_64bits(entry, size)};
	pack_part(packed, &part);
	int result = write_out(self, packed, sizeof(packed), err);
	if (result == BETON_OK)
		result = write_out(self, entry, size, err);
	self->has_index = true;
	return result;
}

static int write_sources(journal *self, beton_error *err)
{
	uint8_t packed[PART_SIZE];
	const journal_part part = {.kind = JOURNAL_SOURCES,
				   .count = self->samples,
				   .payload = self->sources_used,
				   .sum = XXH3_64bits(self->sources, self->sources_used)};
	pack_part(packed, &part);
	int result = write_out(self, packed, sizeof(packed), err);
	if (result == BETON_OK)
		result = write_out(self, self->sources, self->sources_used, err);
	self->sources_used = 0;
	self->has_sources = true;
	return result;
}

int bt_journal_flush(journal *self, const journal_part *part, const void *payload, beton_error *err)
{
	if (self->sources_used) {
		int result = write_sources(self, err);
		if (result != BETON_OK)
			return result;
	}
	uint8_t *from = self->buffer;
	uint8_t *to = self->buffer + PART_SIZE + self->used;
	if (self->samples) {
		const journal_part samples = {.kind = JOURNAL_SAMPLES,
					      .count = self->samples,
					      .payload = self->used,
					      .position = self->position,
					      .sum = XXH3_64bits(from + PART_SIZE, self->used)};
		pack_part(from, &samples);
	} else
		from = to;
	if (part) {
		pack_part(to, part);
		to += PART_SIZE;
	}
	int result = to > from ? write_out(self, from, (size_t)(to - from), err) : BETON_OK;
	if (result == BETON_OK && part && part->payload)
		result = write_out(self, payload, (size_t)part->payload, err);
	self->used = 0;
	self->samples = 0;
	return result;
}

bool bt_journal_read(journal *self, uint64_t *offset, journal_part *part, int *error_number)
{
	uint8_t packed[PART_SIZE];
	ssize_t got = bt_pread_full(self->fd, packed, PART_SIZE, *offset);
	*error_number = got < 0 ? errno : 0;
	if (got != PART_SIZE || !unpack_part(packed, part))
		return false;
	if (part->kind == JOURNAL_SAMPLES) {
		if (part->payload > self->capacity || part->payload != (uint64_t)part->count * sample_size(self))
			return false;
		uint8_t *to = self->buffer + PART_SIZE;
		got = bt_pread_full(self->fd, to, (size_t)part->payload, *offset + PART_SIZE);
		*error_number = got < 0 ? errno : 0;
		if (got != (ssize_t)part->payload || XXH3_64bits(to, (size_t)part->payload) != part->sum)
			return false;
	} else if (part->payload > PAYLOAD_MAX)
		return false;
	*offset += PART_SIZE + part->payload;
	return true;
}

bool bt_journal_payload(const journal *self, const journal_part *part, uint64_t end, void *to, int *error_number)
{
	ssize_t got = bt_pread_full(self->fd, to, (size_t)part->payload, end - part->payload);
	*error_number = got < 0 ? errno : 0;
	return got == (ssize_t)part->payload && XXH3_64bits(to, (size_t)part->payload) == part->sum;
}

uint8_t *bt_journal_sample_at(const journal *self, uint32_t number, output_blob *blobs)
{
	uint8_t *record = self->buffer + PART_SIZE + number * sample_size(self);
	const uint8_t *from = record + self->record_size;
	for (uint32_t i = 0; i < self->blob_fields; i++, from += BLOB_SIZE) {
		blobs[i].size = load_u64(from);
		blobs[i].sum = load_u64(from + 8);
	}
	return record;
}

char *bt_journal_sources(const journal *self, const journal_part *part, uint64_t end, int *error_number)
{
	char *names = malloc((size_t)part->payload + 1);
	*error_number = names ? 0 : ENOMEM;
	uint64_t count = 0;
	bool good = names && bt_journal_payload(self, part, end, names, error_number);
	for (uint64_t i = 0; good && i < part->payload; i++)
		count += names[i] == 0;
	if (good && count == part->count && part->payload && names[part->payload - 1] == 0)
		return names;
	free(names);
	return NULL;
}

void bt_journal_free(journal *self)
{
	free(self->sources);
	self->sources = NULL;
	free(self->buffer);
	self->buffer = NULL;
}
