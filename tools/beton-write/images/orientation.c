/* SPDX-License-Identifier: Apache-2.0 */
#include "orientation.h"

#include <stdlib.h>
#include <string.h>

#include <libexif/exif-data.h>

#include "common/error.h"

static const uint8_t exif_mark[6] = "Exif\0";

enum { EXIF_BYTES_MAX = 1 << 20 };

static int read_entry(ExifData *exif)
{
	const ExifEntry *entry = exif_content_get_entry(exif->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION);
	if (!entry || entry->format != EXIF_FORMAT_SHORT || entry->components < 1 || entry->size < 2)
		return 0;
	int value = exif_get_short(entry->data, exif_data_get_byte_order(exif));
	return value >= 1 && value <= 8 ? value : 0;
}

/* exif: with its mark. */
static int parse(const uint8_t *exif, size_t size)
{
	ExifData *parsed = exif_data_new();
	if (!parsed)
		return -1;
	exif_data_unset_option(parsed, EXIF_DATA_OPTION_FOLLOW_SPECIFICATION);
	exif_data_load_data(parsed, exif, (unsigned int)size);
	int orientation = read_entry(parsed);
	exif_data_unref(parsed);
	return orientation;
}

int orientation_of_exif(const uint8_t *data, size_t size)
{
	if (size < 8 || size > EXIF_BYTES_MAX)
		return 0;
	if (memcmp(data, exif_mark, sizeof(exif_mark)) == 0)
		return parse(data, size);
	if (memcmp(data, "II*\0", 4) != 0 && memcmp(data, "MM\0*", 4) != 0)
		return 0;
	uint8_t *marked = malloc(size + sizeof(exif_mark));
	if (!marked)
		return -1;
	memcpy(marked, exif_mark, sizeof(exif_mark));
	memcpy(marked + sizeof(exif_mark), data, size);
	int orientation = parse(marked, size + sizeof(exif_mark));
	free(marked);
	return orientation;
}

bool orientation_swaps(int orientation)
{
	return orientation >= 5;
}

/* The index of the pixel of a width x height picture that becomes pixel x, y of the upright one. */
static size_t source_of(int orientation, uint32_t width, uint32_t height, uint32_t x, uint32_t y)
{
	uint32_t from_x = orientation_swaps(orientation) ? y : x;
	uint32_t from_y = orientation_swaps(orientation) ? x : y;
	if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8)
		from_x = width - 1 - from_x;
	if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7)
		from_y = height - 1 - from_y;
	return (size_t)from_y * width + from_x;
}

int orientation_apply(rgb_image *image, int orientation, const char *name, beton_error *err)
{
	if (orientation <= 1)
		return BETON_OK;
	rgb_image upright;
	bool swap = orientation_swaps(orientation);
	int result = image_allocate(&upright, swap ? image->height : image->width, swap ? image->width : image->height,
				    name, err);
	if (result != BETON_OK)
		return result;
	uint8_t *to = upright.data;
	for (uint32_t y = 0; y < upright.height; y++)
		for (uint32_t x = 0; x < upright.width; x++, to += 3)
			memcpy(to, image->data + 3 * source_of(orientation, image->width, image->height, x, y), 3);
	free(image->data);
	*image = upright;
	return BETON_OK;
}
