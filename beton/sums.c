/* SPDX-License-Identifier: Apache-2.0 */
#include "sums.h"

#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "common/error.h"
#include "common/hash.h"
#include "format.h"
#include "reader.h"

enum { BITS = 64 };

static uint64_t count_pieces(const summed_part *part)
{
	return part->size / part->piece + (part->size % part->piece != 0);
}

bool bt_sums_init(summed_part *part)
{
	uint64_t words = count_pieces(part) / BITS + 1;
	if (words <= SIZE_MAX / sizeof(*part->good))
		part->good = calloc((size_t)words, sizeof(*part->good));
	return part->good;
}

static int mismatch(const beton_reader *reader, const summed_part *part, uint64_t offset, size_t size, int64_t sample,
		    beton_error *err)
{
	if (sample >= 0)
		return bt_fail_sample(
			err, BETON_SAMPLE_CORRUPT, sample,
			"%s: sample %lld: %zu bytes of the %s at offset %llu, with what belongs to it, do "
			"not match their checksum",
			reader->path, (long long)sample, size, part->name, (unsigned long long)offset);
	return bt_fail(err, BETON_FORMAT, "%s: %zu bytes of the %s at offset %llu do not match their checksum",
		       reader->path, size, part->name, (unsigned long long)offset);
}

/* The lines that contain a range of the file. */
typedef struct lines {
	uint64_t begin; /* offset of the first line */
	uint64_t end;   /* end of the last line, or of the file */
} lines;

static lines lines_of(const beton_reader *reader, uint64_t offset, uint64_t size)
{
	uint64_t end = offset + size + (CACHE_LINE - 1);
	end -= end % CACHE_LINE;
	return (lines){offset - offset % CACHE_LINE, end < reader->info.file_size ? end : reader->info.file_size};
}

/* The number in the cache of the line that holds this byte of the file. */
static uint64_t line_at(const beton_reader *reader, uint64_t offset)
{
	return reader->first_line + offset / CACHE_LINE;
}

static void keep(const beton_reader *reader, lines range, const uint8_t *bytes)
{
	for (uint64_t at = range.begin; at < range.end; at += CACHE_LINE) {
		uint64_t size = range.end - at < CACHE_LINE ? range.end - at : CACHE_LINE;
		bt_cache_put(reader->cache, line_at(reader, at), bytes + (at - range.begin), (size_t)size);
	}
}

/* The range to read if a line is missing: all that will be needed soon, if the cache holds everything, else the line.
 */
static lines choose_lines(const beton_reader *reader, const summed_part *part, uint64_t offset)
{
	uint64_t begin = offset - offset % CACHE_LINE, end = begin + CACHE_LINE;
	if (bt_cache_holds_all(reader->cache)) {
		uint64_t last = part->offset + part->size;
		begin = offset - offset % reader->read_at_once;
		begin = begin < part->offset ? part->offset : begin;
		end = begin + reader->read_at_once < last ? begin + reader->read_at_once : last;
	}
	return lines_of(reader, begin, end - begin);
}

/* Reads missing lines, and copies size bytes at offset from them. */
static int fill(const beton_reader *reader, const summed_part *part, uint64_t offset, void *destination, size_t size,
		beton_error *err)
{
	uint8_t bytes[READ_AT_ONCE + 2 * CACHE_LINE];
	lines range = choose_lines(reader, part, offset);
	size_t count = (size_t)(range.end - range.begin);
	/* Ignore faults outside of the requested bytes. */
	if (bt_read_section(reader, part->name, bytes, count, range.begin, NULL) != BETON_OK)
		return bt_read_section(reader, part->name, destination, size, offset, err);
	keep(reader, range, bytes);
	memcpy(destination, bytes + (offset - range.begin), size);
	return BETON_OK;
}

/* Whether a missing line brings a piece that is larger than others: of a source where each request takes long. */
static bool fills_ahead(const beton_reader *reader)
{
	return reader->cache && bt_cache_holds_all(reader->cache) && reader->read_at_once > READ_AT_ONCE;
}

/* Reads the piece of read_at_once bytes with that offset into the cache. */
static void read_piece(const beton_reader *reader, const summed_part *part, uint64_t offset)
{
	lines range = choose_lines(reader, part, offset);
	size_t count = (size_t)(range.end - range.begin);
	uint8_t *bytes = malloc(count);
	if (bytes && bt_read_section(reader, part->name, bytes, count, range.begin, NULL) == BETON_OK)
		keep(reader, range, bytes);
	free(bytes);
}

/* fill in pieces of read_at_once bytes. Of the threads that miss one, a single one reads it, and the others read what
 * they need: they must not wait longer than the source's timeout_ms. After a fault, or without memory, so does this
 * one. */
static int fill_ahead(beton_reader *reader, const summed_part *part, uint64_t offset, void *destination, size_t size,
		      beton_error *err)
{
	bool worth;
	if (pthread_mutex_trylock(&reader->fill) == 0) {
		read_piece(reader, part, offset);
		pthread_mutex_unlock(&reader->fill);
		if (bt_cache_get(reader->cache, line_at(reader, offset), (size_t)(offset % CACHE_LINE), destination,
				 size, &worth))
			return BETON_OK;
	}
	return bt_read_section(reader, part->name, destination, size, offset, err);
}

static int read_missing(const beton_reader *reader, const summed_part *part, uint64_t offset, void *destination,
			size_t size, bool worth, beton_error *err)
{
	/* Only the lock is not constant. */
	if (fills_ahead(reader))
		return fill_ahead((beton_reader *)reader, part, offset, destination, size, err);
	return worth ? fill(reader, part, offset, destination, size, err)
		     : bt_read_section(reader, part->name, destination, size, offset, err);
}

/* Copies from cached lines, and reads the missing ones. */
static int read_by_lines(const beton_reader *reader, const summed_part *part, uint64_t from, void *destination,
			 size_t size, beton_error *err)
{
	int result = BETON_OK;
	for (size_t done = 0; done < size && result == BETON_OK;) {
		uint64_t offset = part->offset + from + done;
		size_t at = (size_t)(offset % CACHE_LINE), left = size - done;
		size_t count = left < CACHE_LINE - at ? left : CACHE_LINE - at;
		uint8_t *to = (uint8_t *)destination + done;
		bool worth;
		if (!bt_cache_get(reader->cache, line_at(reader, offset), at, to, count, &worth))
			result = read_missing(reader, part, offset, to, count, worth, err);
		done += count;
	}
	return result;
}

static int compare_sum(const beton_reader *reader, const summed_part *part, uint64_t index, const uint8_t *bytes,
		       size_t size, int64_t sample, beton_error *err)
{
	uint8_t packed[sizeof(uint64_t)];
	const summed_part sums = {
		.name = "checksums", .offset = part->sums, .size = count_pieces(part) * sizeof(packed)};
	int result = bt_part_read(reader, &sums, index * sizeof(packed), packed, sizeof(packed), err);
	if (result == BETON_OK && XXH3_64bits(bytes, size) != load_u64(packed))
		result = mismatch(reader, part, part->offset + index * part->piece, size, sample, err);
	return result;
}

static int verify(const beton_reader *reader, const summed_part *part, uint64_t index, int64_t sample, beton_error *err)
{
	uint64_t start = index * part->piece, left = part->size - start;
	size_t size = left < part->piece ? (size_t)left : part->piece;
	lines range = {part->offset + start, part->offset + start + size};
	bool ahead = fills_ahead(reader);
	if (reader->cache && !ahead)
		range = lines_of(reader, part->offset + start, size);
	uint8_t *bytes = malloc((size_t)(range.end - range.begin));
	if (!bytes)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path);
	int result =
		ahead ? read_by_lines(reader, part, start, bytes, size, err)
		      : bt_read_section(reader, part->name, bytes, (size_t)(range.end - range.begin), range.begin, err);
	if (result == BETON_OK)
		result = compare_sum(reader, part, index, bytes + (part->offset + start - range.begin), size, sample,
				     err);
	if (result == BETON_OK && reader->cache && !ahead)
		keep(reader, range, bytes);
	free(bytes);
	if (result == BETON_OK)
		atomic_fetch_or_explicit(&part->good[index / BITS], UINT64_C(1) << index % BITS, memory_order_relaxed);
	return result;
}

int bt_part_read(const beton_reader *reader, const summed_part *part, uint64_t from, void *destination, size_t size,
		 beton_error *err)
{
	/* Large reads go through the whole part once, so caching is useless. */
	if (!reader->cache || size > READ_AT_ONCE)
		return bt_read_section(reader, part->name, destination, size, part->offset + from, err);
	return read_by_lines(reader, part, from, destination, size, err);
}

int bt_sums_touch(const beton_reader *reader, const summed_part *part, uint64_t from, uint64_t size, int64_t sample,
		  beton_error *err)
{
	if (part->sums == 0 || size == 0)
		return BETON_OK;
	uint64_t last = (from + size - 1) / part->piece;
	int result = BETON_OK;
	for (uint64_t i = from / part->piece; i <= last && result == BETON_OK; i++) {
		uint64_t word = atomic_load_explicit(&part->good[i / BITS], memory_order_relaxed);
		if (!(word >> i % BITS & 1))
			result = verify(reader, part, i, sample, err);
	}
	return result;
}
