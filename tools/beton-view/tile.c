/* SPDX-License-Identifier: Apache-2.0 */
#include "tile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <turbojpeg.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "common/jpeg.h"
#include "raster.h"

static int fail(const beton_reader *reader, const beton_value *value, int code, const char *what, beton_error *err)
{
	return bt_fail_sample(err, code, (int64_t)value->sample, "%s: sample %llu, field '%s': %s",
			      beton_reader_path(reader), (unsigned long long)value->sample,
			      beton_reader_field(reader, value->field)->name, what);
}

/* The smallest scale at which the longer side still has `side` pixels. */
static tjscalingfactor choose_scale(int width, int height, uint32_t side)
{
	int count = 0;
	const tjscalingfactor *scales = tjGetScalingFactors(&count);
	tjscalingfactor best = {1, 1};
	int longer = width > height ? width : height;
	for (int i = 0; i < count; i++)
		if (scales[i].num <= scales[i].denom && scales[i].num * best.denom < best.num * scales[i].denom &&
		    (uint32_t)TJSCALED(longer, scales[i]) >= side)
			best = scales[i];
	return best;
}

static int decode(tjhandle decoder, pixels *out, const beton_reader *reader, const beton_value *value,
		  const uint8_t *stored, uint64_t max_pixels, uint32_t side, beton_error *err)
{
	int width;
	int height;
	int sampling;
	int space;
	unsigned long size = (unsigned long)value->blob.size;
	if (tjDecompressHeader3(decoder, stored, size, &width, &height, &sampling, &space) != 0)
		return fail(reader, value, BETON_SAMPLE_CORRUPT, tjGetErrorStr2(decoder), err);
	if ((uint64_t)width * (uint64_t)height > max_pixels) {
		char why[96];
		snprintf(why, sizeof(why), "it has %d x %d pixels, more than max_pixels (%llu)", width, height,
			 (unsigned long long)max_pixels);
		return fail(reader, value, BETON_SAMPLE_CORRUPT, why, err);
	}
	tjscalingfactor scale = choose_scale(width, height, side);
	bool cmyk = space == TJCS_CMYK || space == TJCS_YCCK;
	out->width = (uint32_t)TJSCALED(width, scale);
	out->height = (uint32_t)TJSCALED(height, scale);
	out->data = malloc((size_t)out->width * out->height * (cmyk ? 4 : 3));
	if (!out->data)
		return fail(reader, value, BETON_NO_MEMORY, "no memory for its pixels", err);
	if (tjDecompress2(decoder, stored, size, out->data, (int)out->width, 0, (int)out->height,
			  cmyk ? TJPF_CMYK : TJPF_RGB, TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS) != 0)
		return fail(reader, value, BETON_SAMPLE_CORRUPT, tjGetErrorStr2(decoder), err);
	/* In place: a row of RGB ends before the next row of CMYK. */
	for (size_t y = 0; cmyk && y < out->height; y++)
		bt_cmyk_to_rgb(out->data + y * out->width * 4, out->data + y * out->width * 3, out->width);
	return BETON_OK;
}

static int decode_jpeg(pixels *out, const beton_reader *reader, const beton_value *value, const uint8_t *stored,
		       uint64_t max_pixels, uint32_t side, beton_error *err)
{
	tjhandle decoder = tjInitDecompress();
	if (!decoder)
		return fail(reader, value, BETON_NO_MEMORY, "no memory for a decoder", err);
	int result = decode(decoder, out, reader, value, stored, max_pixels, side, err);
	tjDestroy(decoder);
	return result;
}

static void average(const pixels *from, uint8_t *to, uint32_t x0, uint32_t x1, uint32_t y0, uint32_t y1)
{
	uint64_t sum[3] = {0};
	uint64_t count = (uint64_t)(x1 - x0) * (y1 - y0);
	for (uint32_t y = y0; y < y1; y++)
		for (uint32_t x = x0; x < x1; x++)
			for (int c = 0; c < 3; c++)
				sum[c] += from->data[((size_t)y * from->width + x) * 3 + (size_t)c];
	for (int c = 0; c < 3; c++)
		to[c] = (uint8_t)((sum[c] + count / 2) / count);
}

/* Whole pixels only: the areas of two pixels do not share one. */
static int shrink(pixels *out, const pixels *from, uint32_t side)
{
	uint32_t longer = from->width > from->height ? from->width : from->height;
	uint32_t wanted = longer > side ? side : longer;
	out->width = (uint32_t)((uint64_t)from->width * wanted / longer);
	out->height = (uint32_t)((uint64_t)from->height * wanted / longer);
	out->width += out->width == 0;
	out->height += out->height == 0;
	out->data = malloc((size_t)out->width * out->height * 3);
	if (!out->data)
		return BETON_NO_MEMORY;
	for (uint32_t y = 0; y < out->height; y++)
		for (uint32_t x = 0; x < out->width; x++)
			average(from, out->data + ((size_t)y * out->width + x) * 3,
				(uint32_t)((uint64_t)x * from->width / out->width),
				(uint32_t)((uint64_t)(x + 1) * from->width / out->width),
				(uint32_t)((uint64_t)y * from->height / out->height),
				(uint32_t)((uint64_t)(y + 1) * from->height / out->height));
	return BETON_OK;
}

uint32_t tile_factor(uint32_t width, uint32_t height, uint32_t side)
{
	uint32_t longer = width > height ? width : height;
	return longer && longer < side ? side / longer : 1;
}

static int enlarge(pixels *out, const pixels *from, uint32_t factor)
{
	*out = (pixels){.width = from->width * factor, .height = from->height * factor};
	out->data = malloc((size_t)out->width * out->height * 3);
	if (!out->data)
		return BETON_NO_MEMORY;
	uint8_t *to = out->data;
	for (uint32_t y = 0; y < out->height; y++)
		for (uint32_t x = 0; x < out->width; x++, to += 3)
			memcpy(to, from->data + ((size_t)(y / factor) * from->width + x / factor) * 3, 3);
	return BETON_OK;
}

static int fit(pixels *out, const pixels *from, uint32_t side)
{
	uint32_t factor = tile_factor(from->width, from->height, side);
	return factor > 1 ? enlarge(out, from, factor) : shrink(out, from, side);
}

int tile_decode(pixels *out, const beton_reader *reader, const beton_value *value, const uint8_t *stored,
		uint64_t max_pixels, uint32_t side, beton_error *err)
{
	pixels full = {0};
	int result = BETON_OK;
	*out = (pixels){0};
	if (bt_form_of(value->type) == BT_FORM_RASTER)
		result = raster_to_rgb(&full, reader, value, stored, err);
	else if (value->mode == BETON_IMAGE_RAW)
		full = (pixels){.data = (uint8_t *)stored, .width = value->width, .height = value->height};
	else
		result = decode_jpeg(&full, reader, value, stored, max_pixels, side, err);
	if (result == BETON_OK && fit(out, &full, side) != BETON_OK)
		result = fail(reader, value, BETON_NO_MEMORY, "no memory for its pixels", err);
	if (full.data != stored)
		free(full.data);
	return result;
}
