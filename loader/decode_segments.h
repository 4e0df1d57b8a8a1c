/* SPDX-License-Identifier: Apache-2.0
 *
 * Restart markers cut the data of a JPEG into segments that are decoded independently, each of as many MCUs (the
 * smallest units: a block of each component, or several). Where a number of segments fill a row of MCUs, or one segment
 * some rows, the picture is a grid of them, and those that a crop needs make up a JPEG of their own. */
#ifndef BT_LOADER_DECODE_SEGMENTS_H
#define BT_LOADER_DECODE_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include "buffer.h"
#include "crop.h"

/* A JPEG of some of the segments of another. */
typedef struct bt_cut {
	const uint8_t *bytes; /* in the buffer that it was made in */
	size_t size;
	bt_rect area; /* its pixels, in those of the whole picture; begins at a multiple of the MCU's size */
} bt_cut;

/* Cuts the segments that `needed`, pixels inside the picture, touches out of a JPEG. jpeg has just read the header of
 * bytes[0 .. size). False: *cut is unchanged, because the JPEG has no such grid, its markers are not what its header
 * promises, or all of it is needed; the JPEG must be decoded from its beginning, which finds what is wrong with it if
 * anything is. *memory is set when there is no memory. */
bool bt_segments_cut(const struct jpeg_decompress_struct *jpeg, const uint8_t *bytes, size_t size,
		     const bt_rect *needed, bt_buffer *buffer, bt_cut *cut, bool *no_memory);

#endif
