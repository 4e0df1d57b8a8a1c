/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>

#include <gd.h>

#include "common/error.h"
#include "more_readers.h"

enum { FILE_HEADER = 14, CORE_HEADER = 12 };

static uint32_t load_u32(const uint8_t *from)
{
	return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static void ignore_error(int priority, const char *format, va_list arguments)
{
	(void)priority;
	(void)format;
	(void)arguments;
}

/* libgd prints its errors, for the whole program, unless this handler is set. */
static void silence(void)
{
	gdSetErrorMethod(ignore_error);
}

/* The size that the header claims; libgd allocates as much before it has seen a pixel. */
static int check_size(const uint8_t *data, size_t size, const image_settings *settings, const char *name,
		      beton_error *err)
{
	if (size < FILE_HEADER + CORE_HEADER || size > INT_MAX)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: damaged BMP: %zu bytes", name, size);
	const uint8_t *header = data + FILE_HEADER;
	uint64_t width;
	uint64_t height;
	if (load_u32(header) == CORE_HEADER) {
		width = header[4] | (uint64_t)header[5] << 8;
		height = header[6] | (uint64_t)header[7] << 8;
	} else {
		int64_t rows = (int32_t)load_u32(header + 8); /* negative: from the top */
		width = load_u32(header + 4);
		height = (uint64_t)(rows < 0 ? -rows : rows);
	}
	return image_check_size(settings, width, height, name, err);
}

int bmp_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
	       beton_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, silence);
	int result = check_size(data, size, settings, name, err);
	if (result != BETON_OK)
		return result;
	gdImagePtr picture = gdImageCreateFromBmpPtr((int)size, (void *)data);
	if (!picture)
		return bt_fail(err, BETON_SAMPLE_CORRUPT,
			       "%s: its BMP is damaged, or of a kind that is not read, or too large for memory", name);
	result = image_allocate(image, (uint64_t)gdImageSX(picture), (uint64_t)gdImageSY(picture), name, err);
	uint8_t *to = image->data;
	for (int y = 0; y < gdImageSY(picture) && result == BETON_OK; y++)
		for (int x = 0; x < gdImageSX(picture); x++, to += 3) {
			int colour = gdImageGetTrueColorPixel(picture, x, y);
			to[0] = (uint8_t)gdTrueColorGetRed(colour);
			to[1] = (uint8_t)gdTrueColorGetGreen(colour);
			to[2] = (uint8_t)gdTrueColorGetBlue(colour);
		}
	gdImageDestroy(picture);
	return result;
}
