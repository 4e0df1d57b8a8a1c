/* SPDX-License-Identifier: Apache-2.0
 *
 * Huffman tables for a JPEG's coefficients. libjpeg makes optimal ones too (optimize_coding), but counts its symbols
 * three times as slowly as it writes them, which would be most of the time of writing a dataset. */
#ifndef BETON_WRITE_HUFFMAN_H
#define BETON_WRITE_HUFFMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

/* How often each symbol of a table occurs. */
typedef struct huffman_counts {
	uint32_t symbols[256];
} huffman_counts;

/* Counts the symbols of a sequential block; *last_dc is the DC of the component's block before, and is updated. False:
 * a coefficient is too large for 8-bit JPEG. */
bool huffman_count_block(const JCOEF block[DCTSIZE2], int *last_dc, huffman_counts *dc, huffman_counts *ac);

/* Counts that many blocks that have the DC of the block before and nothing else. */
void huffman_count_fill(uint32_t blocks, huffman_counts *dc, huffman_counts *ac);

/* The table with the shortest codes for these counts, as ITU-T T.81 allows them: 16 bits at most, and none of ones
 * alone. */
void huffman_make_table(const huffman_counts *counts, JHUFF_TBL *table);

#endif
