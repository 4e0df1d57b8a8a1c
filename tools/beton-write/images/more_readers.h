/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures that only some datasets have: each kind needs a library, without which it is refused as UNSUPPORTED.
 */
#ifndef BETON_WRITE_MORE_READERS_H
#define BETON_WRITE_MORE_READERS_H

#include "image.h"

/* Decode a file of that kind in memory. Its size is checked before memory for pixels is taken. The caller frees
 * image->data; on failure there is none. name: for messages. Errors: SAMPLE_CORRUPT, NO_MEMORY, UNSUPPORTED. Any
 * thread. */

/* The first picture of a GIF, on a canvas of the GIF's size, which is transparent around it. Needs giflib. */
int gif_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
	       beton_error *err);

/* Needs libgd. */
int bmp_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
	       beton_error *err);

/* The first picture of a TIFF; samples of 16 bits become 8. *orientation: 1 to 8, as EXIF has it. Needs libtiff. */
int tiff_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
		int *orientation, beton_error *err);

#endif
