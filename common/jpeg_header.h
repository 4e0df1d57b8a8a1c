/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides by their headers which JPEGs are decoded: the same for all decoders here, and for any version of the JPEG
 * library.
 */
#ifndef BT_JPEG_HEADER_H
#define BT_JPEG_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

/* jpeg has read the header, and has not allocated memory for the picture yet. False: do not decode the picture; why
 * (size bytes) is the reason: more than max_pixels pixels, components of unknown meaning, or a kind of JPEG that only
 * some versions of the library can decode. */
bool bt_jpeg_header_check(const struct jpeg_decompress_struct *jpeg, uint64_t max_pixels, char *why, size_t size);

#endif
