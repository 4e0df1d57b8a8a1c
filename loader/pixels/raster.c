/* SPDX-License-Identifier: Apache-2.0 */
#include "raster.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

/* The period of lanes, in pixels, or in samples of one channel. */
enum { PIXELS = 16, PLANE_PERIOD = 64 };

static bool is_planar(const bt_image_format *format)
{
	return format->layout == BETON_NCHW || format->channels == 1;
}

static bt_samples copying(const bt_image_format *format)
{
	return (bt_samples){.item = format->item, .dtype = format->dtype};
}

int bt_raster_lanes_open(bt_raster_lanes *lanes, const bt_image_format *format, const float *statistics,
			 beton_error *err)
{
	bool planes = is_planar(format);
	uint32_t channels = format->channels, count = planes ? channels : 1;
	uint32_t period = planes ? PLANE_PERIOD : PIXELS * channels;
	*lanes = (bt_raster_lanes){.list = calloc(count, sizeof(*lanes->list)),
				   .memory = malloc((size_t)count * period * 2 * sizeof(float))};
	if (!lanes->list || !lanes->memory) {
		bt_raster_lanes_free(lanes);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u channels", channels);
	}
	for (uint32_t i = 0; i < count; i++) {
		float *mean = lanes->memory + (size_t)i * 2 * period, *std = mean + period;
		for (uint32_t k = 0; k < period; k++) {
			uint32_t channel = planes ? i : k % channels;
			mean[k] = statistics ? statistics[2 * (size_t)channel] : 0;
			std[k] = statistics ? statistics[2 * (size_t)channel + 1] : 1;
		}
		lanes->list[i] = copying(format);
		lanes->list[i].period = period;
		lanes->list[i].mean = mean;
		lanes->list[i].std = std;
	}
	return BETON_OK;
}

void bt_raster_lanes_free(bt_raster_lanes *lanes)
{
	free(lanes->list);
	free(lanes->memory);
	*lanes = (bt_raster_lanes){0};
}

static size_t element_bytes(const bt_image_format *format)
{
	return bt_image_format_bytes(format) / format->height / format->width / format->channels;
}

/* Stores a whole row of samples. channel: room for one of its channels. */
static void store_row(const bt_image_format *format, const bt_raster_lanes *lanes, const void *row, uint32_t y,
		      void *channel, char *destination)
{
	size_t width = format->width, channels = format->channels, bytes = element_bytes(format);
	const bt_samples copies = copying(format);
	if (!is_planar(format)) {
		bt_samples_store(lanes ? &lanes->list[0] : &copies, row, width * channels,
				 destination + y * width * channels * bytes);
		return;
	}
	for (size_t c = 0; c < channels; c++) {
		const void *samples = row;
		if (channels > 1) {
			bt_samples_pick(format->item, (const char *)row + c * format->item, channels, width, channel);
			samples = channel;
		}
		bt_samples_store(lanes ? &lanes->list[c] : &copies, samples, width,
				 destination + (c * format->height + y) * width * bytes);
	}
}

/* Fills a row with padding. */
static void fill_row(const bt_image_format *format, void *row)
{
	size_t count = (size_t)format->width * format->channels;
	if (format->item == 1)
		memset(row, format->pad[0], count);
	for (size_t i = 0; i < count && format->item == 2; i++)
		((uint16_t *)row)[i] = format->pad[0];
}

static int begin(bt_raster_transformer *transformer, const bt_plane *crop, bool flip, const bt_placement *place,
		 const bt_image_format *format, beton_error *err)
{
	const bt_resize_target target = {place->width,   place->height,
					 format->filter, flip,
					 BT_EXACT_NONE,  bt_crop_visible(place, format->width, format->height)};
	size_t bytes = (size_t)format->width * (format->channels + 1) * format->item;
	if (!bt_buffer_reserve(&transformer->rows, bytes))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for rows of %u pixels", format->width);
	return format->item == 1 ? bt_resize_begin(&transformer->narrow, crop, &target, NULL, err)
				 : bt_wide_begin(&transformer->wide, crop, &target, err);
}

static const void *resize_rows(bt_raster_transformer *transformer, const bt_image_format *format, uint32_t y,
			       uint32_t count, size_t *stride)
{
	if (format->item == 1)
		return bt_resize_rows(&transformer->narrow, y, count, stride);
	return bt_wide_rows(&transformer->wide, y, count, stride);
}

int bt_raster_transform(bt_raster_transformer *transformer, const bt_plane *crop, bool flip, const bt_placement *place,
			const bt_image_format *format, const bt_raster_lanes *lanes, void *destination,
			beton_error *err)
{
	const bt_placement whole = {.width = format->width, .height = format->height};
	place = place ? place : &whole;
	int result = begin(transformer, crop, flip, place, format, err);
	if (result)
		return result;
	size_t pixel = (size_t)format->channels * format->item;
	char *row = transformer->rows.data, *channel = row + format->width * pixel;
	const bt_rect part = bt_crop_visible(place, format->width, format->height);
	uint32_t left = place->x > 0 ? (uint32_t)place->x : 0, top = place->y > 0 ? (uint32_t)place->y : 0;
	uint32_t end = top + part.height, step = format->item == 1 ? BT_ROWS : BT_WIDE_ROWS;
	fill_row(format, row);
	for (uint32_t y = 0; y < format->height; y++)
		if (y < top || y >= end)
			store_row(format, lanes, row, y, channel, destination);
	for (uint32_t y = top; y < end; y += step) {
		size_t stride;
		uint32_t count = bt_min_u32(end - y, step);
		const char *rows = resize_rows(transformer, format, y - top, count, &stride);
		for (uint32_t j = 0; j < count; j++) {
			const char *samples = rows + j * stride;
			if (part.width < format->width) {
				memcpy(row + left * pixel, samples, part.width * pixel);
				samples = row;
			}
			store_row(format, lanes, samples, y + j, channel, destination);
		}
	}
	return BETON_OK;
}

void bt_raster_limit(bt_raster_transformer *transformer, bt_budget *budget)
{
	bt_resize_limit(&transformer->narrow, budget);
	bt_wide_limit(&transformer->wide, budget);
	transformer->rows.budget = budget;
}

void bt_raster_free(bt_raster_transformer *transformer)
{
	bt_resize_free(&transformer->narrow);
	bt_wide_free(&transformer->wide);
	bt_buffer_free(&transformer->rows);
}
