/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that bytes are a complete JPEG, without decoding its pixels.
 */
#ifndef BT_JPEG_CHECK_H
#define BT_JPEG_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#include "index.h"

typedef struct bt_jpeg_facts {
	uint32_t width; /* pixels */
	uint32_t height;
	size_t length; /* bytes up to the end of the picture; later bytes are not checked */
	bool partial;  /* see partial.h */
} bt_jpeg_facts;

/* Decodes all coefficients of the picture, and as few pixels as the library allows. Faults are any error or warning of
 * the decoder, more than max_pixels pixels, and too many scans. index: made on the way; NULL: none. The message does
 * not name the file. Errors: SAMPLE_CORRUPT, NO_MEMORY. */
int bt_jpeg_check(const uint8_t *data, size_t size, uint64_t max_pixels, bt_index_request *index, bt_jpeg_facts *facts,
		  beton_error *err);

/* Only makes the index: reads no JPEG that gets none for another reason than a fault. False: out of memory. */
bool bt_jpeg_index(const uint8_t *data, size_t size, uint64_t max_pixels, bt_index_request *index);

#endif
