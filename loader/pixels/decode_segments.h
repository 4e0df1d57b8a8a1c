/* SPDX-License-Identifier: Apache-2.0
 *
 * Restart markers cut the data of a JPEG into independent segments with an equal number of MCUs (minimum coded units:
 * one block or more of each component). If a whole number of segments fills a row of MCUs, or a segment fills whole
 * rows, the segments form a grid. The segments that a crop touches can then be put together to a smaller JPEG.
 */
#ifndef BT_LOADER_DECODE_SEGMENTS_H
#define BT_LOADER_DECODE_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include "common/buffer.h"
#include "crop.h"

/* A JPEG made of some of another JPEG's segments. */
typedef struct bt_cut {
	const uint8_t *bytes; /* in the buffer that the caller gave */
	size_t size;
	bt_rect area; /* the part of the whole picture that it shows; begins at multiples of the MCU's size */
} bt_cut;

/* Makes a JPEG of the segments that `needed`, a box of pixels inside the picture, touches. jpeg has just read the
 * header of bytes[0 .. size). False: *cut is unchanged, because the JPEG has no such grid, its markers contradict its
 * header, or all segments are needed. Decode the JPEG from its beginning then, which also finds its faults. *memory is
 * set if memory ran out. */
bool bt_segments_cut(const struct jpeg_decompress_struct *jpeg, const uint8_t *bytes, size_t size,
		     const bt_rect *needed, bt_buffer *buffer, bt_cut *cut, bool *no_memory);

#endif
