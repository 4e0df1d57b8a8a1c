/* SPDX-License-Identifier: Apache-2.0 */
#include "bits.h"

#include "common/sse.h"

/* Copies bytes up to the first 0xff, or to the end of one of both. */
static size_t copy_plain(const uint8_t *raw, size_t left, uint8_t *out, size_t room)
{
	size_t count = left < room ? left : room, i = 0;
#ifdef BT_SSE2
	for (; i + sizeof(__m128i) <= count; i += sizeof(__m128i)) {
		__m128i bytes = _mm_loadu_si128((const __m128i *)(raw + i));
		_mm_storeu_si128((__m128i *)(out + i), bytes);
		int stuffed = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(-1)));
		if (stuffed)
			return i + (size_t)__builtin_ctz((unsigned int)stuffed);
	}
#endif
	for (; i < count && raw[i] != 0xff; i++)
		out[i] = raw[i];
	return i;
}

/* Moves to the last 0xff before a marker; NULL: none follows. */
static const uint8_t *skip_fill(const uint8_t *raw, const uint8_t *end)
{
	while (end - raw >= 2 && raw[1] == 0xff)
		raw++;
	return end - raw >= 2 && raw[1] != 0 ? raw : NULL;
}

/* Copies bytes until the memory is full or the segment ends. */
static void copy(bt_segment *segment, uint8_t *out)
{
	const uint8_t *raw = segment->raw, *limit = segment->bytes + BT_BITS_BYTES;
	while (out < limit) {
		size_t count = copy_plain(raw, (size_t)(segment->raw_end - raw), out, (size_t)(limit - out));
		out += count;
		raw += count;
		if (out == limit)
			break;
		if (segment->raw_end - raw < 2 || raw[1] != 0) {
			const uint8_t *marker = skip_fill(raw, segment->raw_end);
			raw = marker ? marker : raw;
			segment->ended = true;
			break;
		}
		*out++ = 0xff;
		raw += 2;
	}
	segment->raw = raw;
	segment->end = out;
	/* After the end, an MCU may begin in the last bits. It may read anything there, since the segment has been left
	 * then. */
	segment->safe = segment->ended ? out + sizeof(uint64_t) : out - BT_MCU_BYTES - sizeof(uint64_t);
}

void bt_segment_open(bt_segment *segment, const uint8_t *raw, const uint8_t *raw_end)
{
	segment->raw = raw;
	segment->raw_end = raw_end;
	segment->ended = false;
	segment->before = 0;
	copy(segment, segment->bytes);
	segment->bits = (bt_bits){.at = segment->bytes};
}

bool bt_segment_feed(bt_segment *segment)
{
	if (segment->ended)
		return false;
	size_t left = (size_t)(segment->end - segment->bits.at);
	segment->before += (uint64_t)(segment->bits.at - segment->bytes);
	memmove(segment->bytes, segment->bits.at, left);
	segment->bits.at = segment->bytes;
	copy(segment, segment->bytes + left);
	return segment->bits.at <= segment->safe;
}

static ptrdiff_t bits_left(const bt_segment *segment)
{
	return (segment->end - segment->bits.at) * 8 + segment->bits.count;
}

uint64_t bt_segment_taken(const bt_segment *segment)
{
	uint64_t bytes = segment->before + (uint64_t)(segment->bits.at - segment->bytes);
	return bytes * 8 - (uint64_t)segment->bits.count;
}

bool bt_segment_is_good(const bt_segment *segment)
{
	return bits_left(segment) >= 0;
}

bool bt_segment_is_read(bt_segment *segment)
{
	if (!segment->ended)
		bt_segment_feed(segment);
	return segment->ended && bits_left(segment) >= 0 && bits_left(segment) < 8;
}
