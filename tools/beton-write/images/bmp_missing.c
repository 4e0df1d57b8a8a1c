/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of bmp_reader.c where libgd is missing. */
#include "common/error.h"
#include "more_readers.h"

int bmp_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
	       beton_error *err)
{
	(void)data;
	(void)size;
	(void)settings;
	(void)image;
	return bt_fail(err, BETON_UNSUPPORTED, "%s: a BMP; this program was built without libgd (Debian: libgd-dev)",
		       name);
}
