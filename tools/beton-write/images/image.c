/* SPDX-License-Identifier: Apache-2.0 */
#include "image.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/jpeg.h"

void image_settings_init(image_settings *settings)
{
	*settings = (image_settings){.mode = WRITE_ORIGINAL,
				     .filter = RESIZE_AREA,
				     .quality = 90,
				     .blend = true,
				     .background = {255, 255, 255},
				     .max_pixels = BT_MAX_PIXELS_DEFAULT,
				     .compress_probability = 0.5};
}

int image_check_size(const image_settings *settings, uint64_t width, uint64_t height, const char *name,
		     beton_error *err)
{
	/* Sides are below 2^32. */
	if (width * height <= settings->max_pixels)
		return BETON_OK;
	return bt_fail(err, BETON_SAMPLE_CORRUPT,
		       "%s: it has %llu x %llu pixels, more than max_pixels (%llu); --max-pixels=N allows more", name,
		       (unsigned long long)width, (unsigned long long)height, (unsigned long long)settings->max_pixels);
}

int image_allocate_channels(rgb_image *image, uint64_t width, uint64_t height, int channels, const char *name,
			    beton_error *err)
{
	*image = (rgb_image){0};
	if (width < 1 || height < 1 || width > UINT16_MAX || height > UINT16_MAX)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: %llu x %llu pixels; a side has 1 to %u", name,
			       (unsigned long long)width, (unsigned long long)height, UINT16_MAX);
	*image = (rgb_image){malloc((size_t)(width * height) * (size_t)channels), (uint32_t)width, (uint32_t)height};
	return image->data ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
}

int image_allocate(rgb_image *image, uint64_t width, uint64_t height, const char *name, beton_error *err)
{
	return image_allocate_channels(image, width, height, 3, name, err);
}

void image_blend(rgb_image *image, const image_settings *settings)
{
	const uint8_t *from = image->data;
	uint8_t *to = image->data;
	size_t pixels = (size_t)image->width * image->height;
	for (size_t i = 0; i < pixels; i++, from += 4, to += 3) {
		uint32_t alpha = settings->blend ? from[3] : 255;
		for (int c = 0; c < 3; c++)
			to[c] = (uint8_t)((from[c] * alpha + settings->background[c] * (255 - alpha) + 127) / 255);
	}
}

image_kind image_kind_of(const uint8_t *head, size_t size)
{
	if (size >= 3 && memcmp(head, "\xff\xd8\xff", 3) == 0)
		return IMAGE_JPEG;
	if (size >= 8 && memcmp(head, "\x89PNG\r\n\x1a\n", 8) == 0)
		return IMAGE_PNG;
	if (size >= 12 && memcmp(head, "RIFF", 4) == 0 && memcmp(head + 8, "WEBP", 4) == 0)
		return IMAGE_WEBP;
	if (size >= 6 && (memcmp(head, "GIF87a", 6) == 0 || memcmp(head, "GIF89a", 6) == 0))
		return IMAGE_GIF;
	/* Two letters are little; but four bytes after the file's size are zeros. */
	if (size >= 10 && memcmp(head, "BM", 2) == 0 && memcmp(head + 6, "\0\0\0\0", 4) == 0)
		return IMAGE_BMP;
	if (size >= 4 && (memcmp(head, "II*\0", 4) == 0 || memcmp(head, "MM\0*", 4) == 0 ||
			  memcmp(head, "II+\0", 4) == 0 || memcmp(head, "MM\0+", 4) == 0))
		return IMAGE_TIFF;
	return IMAGE_UNKNOWN;
}
