/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol_writer.h"

#include <string.h>

#include "common/sse.h"

enum {
	LENGTH_BITS = 5,
	PIECE = 1024, /* symbols whose bytes are in memory without stuffing */
};

/* Bits that are not bytes yet, at the top of the window. */
typedef struct bit_window {
	uint64_t window;
	uint32_t count;
} bit_window;

static void make_table(uint32_t *codes, const JHUFF_TBL *table)
{
	uint32_t code = 0;
	for (uint32_t length = 1, index = 0; length <= 16; length++, code <<= 1)
		for (int i = 0; i < table->bits[length]; i++, index++, code++) {
			uint32_t symbol = table->huffval[index], size = symbol & BT_SYMBOLS_SIZE;
			codes[symbol] = code << (size + LENGTH_BITS) | (length + size);
		}
}

void symbol_codes_make(symbol_codes *codes, JHUFF_TBL *const dc[BT_SYMBOLS_TABLES],
		       JHUFF_TBL *const ac[BT_SYMBOLS_TABLES])
{
	memset(codes, 0, sizeof(*codes));
	for (int i = 0; i < BT_SYMBOLS_TABLES; i++) {
		make_table(codes->codes + bt_symbols_dc(i), dc[i]);
		make_table(codes->codes + bt_symbols_ac(i), ac[i]);
	}
}

static uint32_t length_of(uint32_t code)
{
	return code & ((1 << LENGTH_BITS) - 1);
}

size_t symbol_bytes_max(const bt_symbols *symbols, const symbol_codes *codes)
{
	uint64_t bits = 0;
	for (int i = 0; i < BT_SYMBOLS_KINDS; i++)
		bits += (uint64_t)symbols->counts[i] * length_of(codes->codes[i]);
	/* All may be stuffed. A segment has its last bits, its marker, and whole vectors after it. */
	return (size_t)(bits / 8) * 2 + (size_t)symbols->num_segments * 4 + 16;
}

static inline void put(bit_window *bits, const symbol_codes *codes, uint32_t symbol)
{
	uint32_t code = codes->codes[symbol >> BT_SYMBOLS_VALUE], value = symbol & ((1 << BT_SYMBOLS_VALUE) - 1);
	bits->count += length_of(code);
	bits->window |= (uint64_t)(code >> LENGTH_BITS | value) << (64 - bits->count);
}

/* Moves whole bytes out of the window. */
static inline uint8_t *store(bit_window *bits, uint8_t *out)
{
	uint64_t bytes = bits->window;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	bytes = __builtin_bswap64(bytes);
#endif
	memcpy(out, &bytes, sizeof(bytes));
	bits->window <<= bits->count & ~7U;
	out += bits->count >> 3;
	bits->count &= 7;
	return out;
}

/* Writes symbols without stuffing; at most 27 bits each, two with 7 that were left. */
static uint8_t *write_piece(bit_window *bits, const symbol_codes *codes, const uint32_t *symbols, size_t count,
			    uint8_t *out)
{
	bit_window window = *bits;
	size_t i = 0;
	for (; i + 1 < count; i += 2) {
		put(&window, codes, symbols[i]);
		put(&window, codes, symbols[i + 1]);
		out = store(&window, out);
	}
	if (i < count) {
		put(&window, codes, symbols[i]);
		out = store(&window, out);
	}
	*bits = window;
	return out;
}

/* Copies bytes, with a zero after each 0xff; whole vectors are read and written. */
static uint8_t *stuff(const uint8_t *bytes, const uint8_t *end, uint8_t *out)
{
#ifdef BT_SSE2
	while (bytes < end) {
		__m128i vector = _mm_loadu_si128((const __m128i *)bytes);
		unsigned int ones = (unsigned int)_mm_movemask_epi8(_mm_cmpeq_epi8(vector, _mm_set1_epi8(-1)));
		size_t left = (size_t)(end - bytes), count = ones ? (size_t)__builtin_ctz(ones) + 1 : sizeof(vector);
		_mm_storeu_si128((__m128i *)out, vector);
		if (count > left) {
			out += left;
			break;
		}
		out += count;
		bytes += count;
		if (ones)
			*out++ = 0;
	}
#else
	for (; bytes < end; bytes++) {
		*out++ = *bytes;
		if (*bytes == 0xff)
			*out++ = 0;
	}
#endif
	return out;
}

/* bytes: for a piece, and a vector after it. */
static uint8_t *write_segment(const uint32_t *symbols, size_t count, const symbol_codes *codes, uint8_t *bytes,
			      uint8_t *out)
{
	bit_window bits = {0};
	for (size_t i = 0; i < count; i += PIECE) {
		size_t piece = count - i < PIECE ? count - i : PIECE;
		const uint8_t *end = write_piece(&bits, codes, symbols + i, piece, bytes);
		out = stuff(bytes, end, out);
	}
	/* The last byte is filled with ones. */
	if (bits.count) {
		bytes[0] = (uint8_t)(bits.window >> 56 | 0xff >> bits.count);
		out = stuff(bytes, bytes + 1, out);
	}
	return out;
}

uint8_t *symbol_write(const bt_symbols *symbols, const symbol_codes *codes, uint8_t *out)
{
	uint8_t bytes[PIECE * 4 + 32] = {0};
	size_t begin = 0;
	for (uint32_t i = 0; i < symbols->num_segments; i++) {
		if (i) {
			*out++ = 0xff;
			*out++ = (uint8_t)(JPEG_RST0 + ((i - 1) & 7));
		}
		out = write_segment(symbols->symbols + begin, symbols->ends[i] - begin, codes, bytes, out);
		begin = symbols->ends[i];
	}
	return out;
}
