/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether bytes are a whole JPEG, without its pixels. */
#ifndef BT_JPEG_CHECK_H
#define BT_JPEG_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

typedef struct bt_jpeg_facts {
	uint32_t width; /* pixels */
	uint32_t height;
	size_t length; /* bytes up to the end of the picture; what follows it was not looked at */
} bt_jpeg_facts;

/* Decodes all of the picture's coefficients, and of the pixels no more than the library must: any error or warning of
 * the decoder, more than max_pixels pixels and too many scans are a fault. The message does not name the file. Errors:
 * SAMPLE_CORRUPT, NO_MEMORY. */
int bt_jpeg_check(const uint8_t *data, size_t size, uint64_t max_pixels, bt_jpeg_facts *facts, beton_error *err);

#endif
