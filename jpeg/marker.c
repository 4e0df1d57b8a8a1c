/* SPDX-License-Identifier: Apache-2.0 */
#include "marker.h"

#include <stddef.h>

#include "common/sse.h"

enum {
	MARKER_RST0 = 0xd0,
	MARKER_EOI = 0xd9,
};

const uint8_t *bt_find_marker(const uint8_t *bytes, const uint8_t *end)
{
	const uint8_t *at = bytes;
#ifdef BT_SSE2
	const __m128i ones = _mm_set1_epi8(-1);
	for (; end - at > (ptrdiff_t)sizeof(__m128i); at += sizeof(__m128i)) {
		__m128i first = _mm_loadu_si128((const __m128i *)at),
			second = _mm_loadu_si128((const __m128i *)(at + 1));
		__m128i other = _mm_or_si128(_mm_cmpeq_epi8(second, ones), _mm_cmpeq_epi8(second, _mm_setzero_si128()));
		int places = _mm_movemask_epi8(_mm_andnot_si128(other, _mm_cmpeq_epi8(first, ones)));
		if (places)
			return at + __builtin_ctz((unsigned int)places);
	}
#endif
	for (; end - at >= 2; at++)
		if (at[0] == 0xff && at[1] != 0 && at[1] != 0xff)
			return at;
	return end;
}

bool bt_pass_marker(const uint8_t **at, const uint8_t *end, uint32_t number, bool last)
{
	if (end - *at < 2 || (*at)[1] != (last ? MARKER_EOI : MARKER_RST0 + (number & 7)))
		return false;
	*at += 2;
	return true;
}
