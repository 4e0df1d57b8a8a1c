/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the symbols of a JPEG's scan, with a restart marker between two segments: the bytes that libjpeg writes for
 * the same coefficients and tables.
 */
#ifndef BETON_WRITE_SYMBOL_WRITER_H
#define BETON_WRITE_SYMBOL_WRITER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include "jpeg/symbols.h"

/* The codes of all kinds of symbols. */
typedef struct symbol_codes {
	/* code << (size of the value + 5) | length of both; a kind that does not occur may have any. */
	uint32_t codes[BT_SYMBOLS_KINDS];
} symbol_codes;

/* Each symbol that occurs has a code in the tables. */
void symbol_codes_make(symbol_codes *codes, JHUFF_TBL *const dc[BT_SYMBOLS_TABLES],
		       JHUFF_TBL *const ac[BT_SYMBOLS_TABLES]);

/* The most bytes that they can take. */
size_t symbol_bytes_max(const bt_symbols *symbols, const symbol_codes *codes);

/* Writes them, without the marker that ends the picture, and returns their end. */
uint8_t *symbol_write(const bt_symbols *symbols, const symbol_codes *codes, uint8_t *out);

#endif
