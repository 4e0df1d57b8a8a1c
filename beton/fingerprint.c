/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash of a file's content that does not need all of the file.
 */
#include <stdlib.h>

#include "alloc_table.h"
#include "common/error.h"
#include "common/hash.h"
#include "format.h"
#include "reader.h"
#include "sums.h"

/* Pieces of metadata, of allocation table and of blobs that are read of a file without checksums, and their most bytes.
 */
enum { PIECES = 32, PIECE = 4096 };

typedef struct hasher {
	const beton_reader *reader;
	XXH3_state_t *state;
	uint8_t *buffer; /* [PIECE] */
} hasher;

static int add(hasher *self, const summed_part *part, uint64_t from, uint64_t size, beton_error *err)
{
	size_t count = size < PIECE ? (size_t)size : PIECE;
	int result = bt_part_read(self->reader, part, from, self->buffer, count, err);
	if (result == BETON_OK)
		XXH3_64bits_update(self->state, self->buffer, count);
	return result;
}

/* The i-th of PIECES places, spread evenly over 0 .. last. */
static uint64_t spread(uint64_t last, uint64_t i)
{
	return last / (PIECES - 1) * i + last % (PIECES - 1) * i / (PIECES - 1);
}

static int add_metadata(hasher *self, beton_error *err)
{
	const summed_part *part = &self->reader->metadata;
	int result = BETON_OK;
	for (uint64_t i = 0; i < PIECES && part->size > 0 && result == BETON_OK; i++) {
		uint64_t from = spread(part->size < PIECE ? 0 : part->size - PIECE, i);
		result = add(self, part, from, part->size - from, err);
	}
	return result;
}

static int add_blob(hasher *self, const alloc_entry *entry, beton_error *err)
{
	size_t count = entry->size < PIECE ? (size_t)entry->size : PIECE;
	int result = bt_read_section(self->reader, "pages", self->buffer, count, entry->pointer, err);
	if (result == BETON_OK)
		XXH3_64bits_update(self->state, self->buffer, count);
	return result;
}

/* Adds entries, and the beginning of the blob that the first of them describes. */
static int add_entries(hasher *self, beton_error *err)
{
	const beton_reader *reader = self->reader;
	const summed_part *part = &reader->table;
	uint64_t entries = reader->info.alloc_entries;
	int result = BETON_OK;
	for (uint64_t i = 0; i < PIECES && entries > 0 && result == BETON_OK; i++) {
		uint64_t number = spread(entries - 1, i), from = number * ALLOC_ENTRY_SIZE;
		result = add(self, part, from, part->size - from, err);
		alloc_entry entry = bt_alloc_unpack(self->buffer, number);
		if (result == BETON_OK && entry.size > 0 && !bt_alloc_fault(&reader->info, &entry))
			result = add_blob(self, &entry, err);
	}
	return result;
}

static int hash_pieces(const beton_reader *reader, uint64_t *sum, beton_error *err)
{
	hasher self = {.reader = reader, .state = XXH3_createState(), .buffer = calloc(1, PIECE)};
	int result = BETON_OK;
	if (!self.state || !self.buffer)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path);
	else
		XXH3_64bits_reset(self.state);
	if (result == BETON_OK)
		result = add_metadata(&self, err);
	if (result == BETON_OK)
		result = add_entries(&self, err);
	if (result == BETON_OK)
		*sum = XXH3_64bits_digest(self.state);
	XXH3_freeState(self.state);
	free(self.buffer);
	return result;
}

int beton_reader_fingerprint(const beton_reader *reader, uint64_t *out, beton_error *err)
{
	if (BT_MISSING(err, reader, out))
		return BETON_INVALID_ARGUMENT;
	const extension_section *known = reader->extension.known;
	const beton_file_info *info = &reader->info;
	bool summed = info->has_checksums && reader->metadata.sums;
	uint64_t sums[] = {known[SECTION_BLOB_SUMS].sum, known[SECTION_METADATA_SUMS].sum,
			   known[SECTION_DICTIONARIES].sum};
	int result = summed ? BETON_OK : hash_pieces(reader, &sums[0], err);
	const uint64_t all[] = {summed,  info->num_samples, info->page_size, reader->fields_sum,
				sums[0], sums[1],           sums[2]};
	if (result == BETON_OK)
		*out = XXH3_64bits(all, sizeof(all));
	return result;
}
