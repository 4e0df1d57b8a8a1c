/* SPDX-License-Identifier: Apache-2.0
 *
 * The two ways of jpeg_rewrite. Both make the same bytes.
 */
#ifndef BETON_WRITE_JPEG_REWRITE_H
#define BETON_WRITE_JPEG_REWRITE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include <beton/error.h>

/* From symbol to symbol, for the JPEGs that jpeg/symbols.h reads. *out is NULL for all others, and for those with a
 * fault. Errors: NO_MEMORY. */
int jpeg_rewrite_symbols(const uint8_t *data, size_t size, const char *name, uint8_t **out, size_t *out_size,
			 beton_error *err);

/* By the coefficients as libjpeg reads them: all that jpeg_rewrite does, in three times the time. */
int jpeg_rewrite_coefficients(const uint8_t *data, size_t size, const char *name, uint8_t **out, size_t *out_size,
			      beton_error *err);

/* Starts out, whose err is set, with the parameters of what in is rewritten to. in has read its header, and is
 * not changed. */
void jpeg_rewrite_start(struct jpeg_compress_struct *out, struct jpeg_decompress_struct *in);

#endif
