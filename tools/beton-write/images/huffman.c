/* SPDX-License-Identifier: Apache-2.0 */
#include "huffman.h"

#include <stdlib.h>
#include <string.h>

#include "common/sse.h"
#include "jpeg/coefficients.h"

enum {
	SYMBOLS = 256,
	RESERVED = SYMBOLS, /* gets the longest code, which is all ones and is then left out */
};

/* Bit i: coefficient i is not 0. */
static uint64_t nonzero_mask(const JCOEF *block)
{
	uint64_t mask = 0;
#ifdef BT_SSE2
	const __m128i zero = _mm_setzero_si128();
	for (int i = 0; i < DCTSIZE2; i += 16) {
		__m128i a = _mm_cmpeq_epi16(_mm_loadu_si128((const __m128i *)(block + i)), zero);
		__m128i b = _mm_cmpeq_epi16(_mm_loadu_si128((const __m128i *)(block + i + 8)), zero);
		uint64_t zeros = (uint64_t)_mm_movemask_epi8(_mm_packs_epi16(a, b));
		mask |= (~zeros & 0xffff) << i;
	}
#else
	for (int i = 0; i < DCTSIZE2; i++)
		mask |= (uint64_t)(block[i] != 0) << i;
#endif
	return mask;
}

/* Bits that the magnitude takes. */
static int bit_count(int value)
{
	return value ? 32 - __builtin_clz((unsigned int)abs(value)) : 0;
}

bool huffman_count_block(const JCOEF block[DCTSIZE2], int *last_dc, huffman_counts *dc, huffman_counts *ac)
{
	int bits = bit_count(block[0] - *last_dc);
	*last_dc = block[0];
	if (bits > BT_DC_BITS_MAX)
		return false;
	dc->symbols[bits]++;
	uint8_t sizes[DCTSIZE2];
	uint64_t in_order = 0;
	for (uint64_t left = nonzero_mask(block) & ~UINT64_C(1); left; left &= left - 1) {
		int i = __builtin_ctzll(left);
		bits = bit_count(block[i]);
		if (bits > BT_AC_BITS_MAX)
			return false;
		sizes[bt_zigzag_numbers[i]] = (uint8_t)bits;
		in_order |= UINT64_C(1) << bt_zigzag_numbers[i];
	}
	int before = 0;
	for (; in_order; in_order &= in_order - 1) {
		int k = __builtin_ctzll(in_order);
		int run = k - before - 1;
		before = k;
		ac->symbols[BT_SKIP_16_ZEROS] += (uint32_t)run >> 4;
		ac->symbols[(run & 15) << 4 | sizes[k]]++;
	}
	if (before < DCTSIZE2 - 1)
		ac->symbols[BT_END_OF_BLOCK]++;
	return true;
}

void huffman_count_fill(uint32_t blocks, huffman_counts *dc, huffman_counts *ac)
{
	dc->symbols[0] += blocks;
	ac->symbols[BT_END_OF_BLOCK] += blocks;
}

typedef struct leaf {
	uint64_t count;
	int symbol;
} leaf;

/* Rarest first; among equals the larger symbol, so that the reserved one is the very first. */
static int compare_leaves(const void *a, const void *b)
{
	const leaf *left = a;
	const leaf *right = b;
	if (left->count != right->count)
		return left->count < right->count ? -1 : 1;
	return right->symbol - left->symbol;
}

static int sort_leaves(const huffman_counts *counts, leaf *leaves)
{
	int n = 0;
	leaves[n++] = (leaf){0, RESERVED};
	for (int i = 0; i < SYMBOLS; i++)
		if (counts->symbols[i])
			leaves[n++] = (leaf){counts->symbols[i], i};
	qsort(leaves, (size_t)n, sizeof(*leaves), compare_leaves);
	return n;
}

/* Huffman's tree of n >= 2 leaves that are sorted: nodes n, n + 1, ... arise in the order of their counts, so that the
 * next rarest node is always the first unused leaf or the first unused inner node. lengths[l]: how many codes have l
 * bits. */
static void count_lengths(const leaf *leaves, int n, uint32_t lengths[SYMBOLS + 1])
{
	uint64_t counts[2 * (SYMBOLS + 1)];
	int parents[2 * (SYMBOLS + 1)];
	int depths[2 * (SYMBOLS + 1)];
	int next_leaf = 0;
	int next_inner = n;
	for (int i = 0; i < n; i++)
		counts[i] = leaves[i].count;
	for (int node = n; node < 2 * n - 1; node++) {
		counts[node] = 0;
		for (int child = 0; child < 2; child++) {
			bool leaf_is_rarer =
				next_leaf < n && (next_inner >= node || counts[next_leaf] <= counts[next_inner]);
			int rarest = leaf_is_rarer ? next_leaf++ : next_inner++;
			counts[node] += counts[rarest];
			parents[rarest] = node;
		}
	}
	memset(lengths, 0, (SYMBOLS + 1) * sizeof(*lengths));
	depths[2 * n - 2] = 0;
	for (int node = 2 * n - 3; node >= 0; node--) {
		depths[node] = depths[parents[node]] + 1;
		if (node < n)
			lengths[depths[node]]++;
	}
}

/* T.81, figure K.3: two of the longest codes move, one to their parent's place, the other under a shorter leaf. */
static void limit_lengths(uint32_t lengths[SYMBOLS + 1])
{
	for (int l = SYMBOLS; l > BT_CODE_BITS_MAX; l--)
		while (lengths[l]) {
			int shorter = l - 2;
			while (!lengths[shorter])
				shorter--;
			lengths[l] -= 2;
			lengths[l - 1]++;
			lengths[shorter + 1] += 2;
			lengths[shorter]--;
		}
}

void huffman_make_table(const huffman_counts *counts, JHUFF_TBL *table)
{
	leaf leaves[SYMBOLS + 1];
	uint32_t lengths[SYMBOLS + 1] = {0};
	memset(table, 0, sizeof(*table));
	int n = sort_leaves(counts, leaves);
	if (n == 1)
		leaves[n++] = (leaf){1, 0}; /* a table has one code at least */
	count_lengths(leaves, n, lengths);
	limit_lengths(lengths);
	int longest = BT_CODE_BITS_MAX;
	while (!lengths[longest])
		longest--;
	lengths[longest]--;
	for (int l = 1; l <= BT_CODE_BITS_MAX; l++)
		table->bits[l] = (UINT8)lengths[l];
	for (int i = 1; i < n; i++)
		table->huffval[n - 1 - i] = (UINT8)leaves[i].symbol;
}
