/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes the most common JPEGs: baseline, Huffman, 8 bits, grey or YCbCr with at most 6 blocks in an MCU, one scan;
 * with or without restart markers. The planes equal libjpeg-turbo's accurate inverse DCT (JDCT_ISLOW), or its reduced
 * versions to 1/2, 1/4 and 1/8, bit for bit; where made-up coefficients lead far beyond 0 .. 255, they equal its
 * vectors, which differ from its C code there. Other, damaged or unusual JPEGs, also a few bytes with a new Huffman
 * code, are left to libjpeg, which then reports what is wrong.
 */
#ifndef BT_JPEG_SCAN_H
#define BT_JPEG_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include "index.h"

enum { BT_SCAN_COMPONENTS = 3 };

/* Whether the JPEG, whose header has been read, is of the kind that is decoded here. */
bool bt_scan_is_common(const struct jpeg_decompress_struct *jpeg);

/* Memory of one decoder: 160 KB. No result depends on what was decoded before. */
typedef struct bt_scan bt_scan;

/* NULL: out of memory. */
bt_scan *bt_scan_new(void);
void bt_scan_free(bt_scan *scan);

/* MCUs begin_x .. end_x - 1 of rows begin_y .. end_y - 1, and where they go. A component's first sample of MCU
 * (begin_x, begin_y) goes to planes[i][0]. Strides are multiples of 64 bytes; whole ones may be written in each row.
 * planes[1] and planes[2] may be NULL, both: only the first component's samples are made. */
typedef struct bt_scan_request {
	uint32_t begin_x, begin_y;
	uint32_t end_x, end_y;
	uint8_t *planes[BT_SCAN_COMPONENTS];
	size_t strides[BT_SCAN_COMPONENTS];
	const void *index; /* of the JPEG, see index.h; borrowed */
	size_t index_size; /* 0: none */
} bt_scan_request;

/* jpeg has just read the header from memory, and is not changed; a component's blocks have DCT_scaled_size samples a
 * side, as jpeg_calc_output_dimensions sets it for jpeg's scale. Reads the data up to the last of the MCUs, but skips
 * segments between restart markers, or points of the index, without wanted MCUs; if that is the picture's last MCU,
 * also the marker after the scan. False: the JPEG is of another kind or has a fault, or the scale is another, and the
 * planes' content is undefined. libjpeg has to decode it then. */
bool bt_scan_decode(bt_scan *scan, const struct jpeg_decompress_struct *jpeg, const bt_scan_request *request);

/* Reads the whole scan of the JPEG without making samples, and makes an index of it on the way; index: NULL, none.
 * *end: past the marker that ends the picture. False: as above; libjpeg has to check it, and the index is not made. */
bool bt_scan_check(bt_scan *scan, const struct jpeg_decompress_struct *jpeg, bt_index_request *index,
		   const uint8_t **end);

#endif
