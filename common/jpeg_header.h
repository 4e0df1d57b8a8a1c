/* SPDX-License-Identifier: Apache-2.0
 *
 * Which JPEGs are decoded, as far as their header tells. The same for everything that decodes, and for any version of
 * the JPEG library. */
#ifndef BT_JPEG_HEADER_H
#define BT_JPEG_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

/* jpeg has read the header, and has taken no memory for the picture yet. False: the picture is not to be decoded, why
 * (size bytes) says the reason: more than max_pixels pixels, components of unknown meaning, or a kind of JPEG that only
 * some versions of the library can decode. */
bool bt_jpeg_header_check(const struct jpeg_decompress_struct *jpeg, uint64_t max_pixels, char *why, size_t size);

#endif
