/* SPDX-License-Identifier: Apache-2.0 */
#include "raster.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

/* The samples of a raster, as they stand in the file. */
typedef struct samples {
	const uint8_t *data;
	size_t channels;
	size_t item_size;
} samples;

static uint32_t sample_at(const samples *of, size_t pixel, size_t channel)
{
	size_t at = pixel * of->channels + channel;
	uint16_t wide;
	if (of->item_size == 1)
		return of->data[at];
	memcpy(&wide, of->data + at * sizeof(wide), sizeof(wide));
	return le16toh(wide);
}

static void convert(uint8_t *rgb, const samples *from, size_t count)
{
	size_t shown = from->channels < 3 ? 1 : 3;
	uint32_t least = from->item_size == 1 ? 0 : UINT16_MAX, greatest = from->item_size == 1 ? UINT8_MAX : 0;
	for (size_t i = 0; i < count && from->item_size > 1; i++)
		for (size_t c = 0; c < shown; c++) {
			uint32_t sample = sample_at(from, i, c);
			least = sample < least ? sample : least;
			greatest = sample > greatest ? sample : greatest;
		}
	/* A picture of one value is white, or black if that is 0. */
	least = least == greatest ? 0 : least;
	uint32_t range = greatest > least ? greatest - least : 1;
	for (size_t i = 0; i < count; i++)
		for (size_t c = 0; c < 3; c++, rgb++)
			*rgb = (uint8_t)(((sample_at(from, i, c < shown ? c : 0) - least) * 255 + range / 2) / range);
}

int raster_to_rgb(pixels *out, const beton_reader *reader, const beton_value *value, const uint8_t *stored,
		  beton_error *err)
{
	const beton_field *field = beton_reader_field(reader, value->field);
	size_t count = (size_t)value->width * value->height;
	uint8_t *unpacked = malloc((size_t)value->size);
	*out = (pixels){.data = malloc(count * 3), .width = value->width, .height = value->height};
	int result = BETON_OK;
	if (!unpacked || !out->data)
		result = bt_fail_sample(err, BETON_NO_MEMORY, (int64_t)value->sample,
					"%s: sample %llu, field '%s': no memory for its pixels",
					beton_reader_path(reader), (unsigned long long)value->sample, field->name);
	if (result == BETON_OK)
		result = beton_reader_unpack(reader, value, stored, false, unpacked, err);
	if (result == BETON_OK)
		convert(out->data, &(samples){unpacked, (size_t)field->shape[0], (size_t)field->item_size}, count);
	free(unpacked);
	if (result != BETON_OK) {
		free(out->data);
		out->data = NULL;
	}
	return result;
}
