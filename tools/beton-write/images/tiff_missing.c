/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of tiff_reader.c where libtiff is missing. */
#include "common/error.h"
#include "more_readers.h"
#include "raster.h"

static int refuse(const char *name, beton_error *err)
{
	return bt_fail(err, BETON_UNSUPPORTED,
		       "%s: a TIFF; this program was built without libtiff (Debian: libtiff-dev)", name);
}

int tiff_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
		int *orientation, beton_error *err)
{
	(void)data;
	(void)size;
	(void)settings;
	(void)image;
	(void)orientation;
	return refuse(name, err);
}

int tiff_read_raster(const file_bytes *file, const raster_request *request, raster_image *out, beton_error *err)
{
	(void)file;
	(void)out;
	return refuse(request->name, err);
}
