/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of webp_reader.c where libwebp is missing. */
#include "common/error.h"
#include "webp_reader.h"

int webp_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
		int *orientation, beton_error *err)
{
	(void)data;
	(void)size;
	(void)settings;
	(void)image;
	(void)orientation;
	return bt_fail(err, BETON_UNSUPPORTED,
		       "%s: a WebP; this program was built without libwebp (Debian: libwebp-dev)", name);
}
