/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of gif_reader.c where giflib is missing. */
#include "common/error.h"
#include "more_readers.h"

int gif_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
	       beton_error *err)
{
	(void)data;
	(void)size;
	(void)settings;
	(void)image;
	return bt_fail(err, BETON_UNSUPPORTED, "%s: a GIF; this program was built without giflib (Debian: libgif-dev)",
		       name);
}
