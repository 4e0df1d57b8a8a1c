/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a JPEG's scan as the symbols of its entropy code, so that it can be written with other codes and restart
 * markers. No coefficient is made of them. Takes the JPEGs that bt_scan takes, where a JPEG's coefficients alone decide
 * what its symbols are.
 */
#ifndef BT_JPEG_SYMBOLS_H
#define BT_JPEG_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

enum {
	BT_SYMBOLS_TABLES = 2,                          /* codes of DC, and as many of AC */
	BT_SYMBOLS_KINDS = 2 * BT_SYMBOLS_TABLES * 256, /* symbols of all codes */
	BT_SYMBOLS_VALUE = 16,                          /* bits of a symbol's value */
	BT_SYMBOLS_SIZE = 15,                           /* a kind's bits that say how many of them count */
};

/* Kinds of symbols: a symbol of table 0 or 1. */
static inline uint32_t bt_symbols_dc(int table)
{
	return (uint32_t)table * 512;
}

static inline uint32_t bt_symbols_ac(int table)
{
	return (uint32_t)table * 512 + 256;
}

/* Zero-initialise. */
typedef struct bt_symbols {
	uint32_t *symbols; /* in the order of writing: kind << BT_SYMBOLS_VALUE | value */
	size_t capacity;
	size_t *ends; /* ends of the segments' symbols */
	uint32_t num_segments;
	uint32_t counts[BT_SYMBOLS_KINDS]; /* how often each kind occurs */
} bt_symbols;

void bt_symbols_free(bt_symbols *symbols);

/* in has just read the header from memory, and is not changed. out: with the same components, the tables that they get
 * (0 or 1 for DC and AC), and restart_interval, which is not 0. MCUs that reach over the edge get the same blocks there
 * as from libjpeg: blocks that repeat the DC coefficient before them. False: the JPEG is of another kind, has a fault,
 * or memory is short; libjpeg has to read it then. */
bool bt_symbols_read(bt_symbols *symbols, const struct jpeg_decompress_struct *in,
		     const struct jpeg_compress_struct *out);

#endif
