/* SPDX-License-Identifier: Apache-2.0 */
#include "sums.h"

#include <stdlib.h>

#include "common/error.h"
#include "common/hash.h"
#include "format.h"
#include "reader.h"

enum { BITS = 64, RANGE_BUFFER = 1 << 18 };

static uint64_t count_pieces(const summed_part *part)
{
	return part->size / part->piece + (part->size % part->piece != 0);
}

bool beton_sums_init(summed_part *part)
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

static int verify(const beton_reader *reader, const summed_part *part, uint64_t index, int64_t sample, beton_error *err)
{
	uint64_t start = index * part->piece;
	uint64_t left = part->size - start;
	size_t size = left < part->piece ? (size_t)left : part->piece;
	uint8_t packed[sizeof(uint64_t)];
	uint8_t *bytes = malloc(size);
	if (!bytes)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path);
	int result = beton_read_section(reader, part->name, bytes, size, part->offset + start, err);
	if (result == BETON_OK)
		result = beton_read_section(reader, "checksums", packed, sizeof(packed),
					    part->sums + index * sizeof(packed), err);
	if (result == BETON_OK && XXH3_64bits(bytes, size) != load_u64(packed))
		result = mismatch(reader, part, part->offset + start, size, sample, err);
	free(bytes);
	if (result == BETON_OK)
		atomic_fetch_or_explicit(&part->good[index / BITS], UINT64_C(1) << index % BITS, memory_order_relaxed);
	return result;
}

int beton_sums_touch(const beton_reader *reader, const summed_part *part, uint64_t from, uint64_t size, int64_t sample,
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

int beton_sum_range(const beton_reader *reader, const char *section, uint64_t offset, uint64_t size, uint64_t *sum,
		    beton_error *err)
{
	uint8_t *buffer = malloc(RANGE_BUFFER);
	XXH3_state_t *state = XXH3_createState();
	int result = BETON_OK;
	if (!buffer || !state)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path);
	else
		XXH3_64bits_reset(state);
	while (result == BETON_OK && size > 0) {
		size_t count = size < RANGE_BUFFER ? (size_t)size : RANGE_BUFFER;
		result = beton_read_section(reader, section, buffer, count, offset, err);
		if (result == BETON_OK)
			XXH3_64bits_update(state, buffer, count);
		offset += count;
		size -= count;
	}
	if (result == BETON_OK)
		*sum = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	free(buffer);
	return result;
}
