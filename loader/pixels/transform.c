/* SPDX-License-Identifier: Apache-2.0 */
#include "transform.h"

#include <string.h>

#include "common/error.h"
#include "crop.h"
#include "kernels.h"

static size_t element_bytes(const bt_image_format *format)
{
	return format->dtype == BETON_UINT8 ? 1 : format->dtype == BETON_FLOAT32 ? 4 : 2;
}

/* One channel is the same in both layouts. */
static bool is_planar(const bt_image_format *format)
{
	return format->layout == BETON_NCHW || format->channels == 1;
}

size_t bt_image_format_bytes(const bt_image_format *format)
{
	return (size_t)format->height * format->width * format->channels * element_bytes(format);
}

/* A batch of at least this many bytes leaves the caches before it is read. Streaming stores save half of its memory
 * traffic, because they do not read cache lines first. */
enum { STREAMED_BATCH = 8 << 20 };

void bt_image_format_init(bt_image_format *format, const beton_loader_options *options)
{
	const beton_image_options *image = &options->image;
	format->height = image->height;
	format->width = image->width;
	format->channels = bt_image_channels(image);
	format->item = 1;
	format->filter = image->filter;
	/* An exact mode uses its peer's arithmetic, unless another filter is named. */
	if (image->pixels == BETON_PIXELS_FFCV && image->filter == BETON_FILTER_AREA)
		format->exact = BT_EXACT_OPENCV;
	else if (image->pixels == BETON_PIXELS_TORCHVISION && image->filter == BETON_FILTER_BILINEAR)
		format->exact = BT_EXACT_PILLOW;
	else
		format->exact = BT_EXACT_NONE;
	format->dtype = image->dtype;
	format->layout = image->layout;
	format->streams = bt_image_format_bytes(format) * options->batch_size >= STREAMED_BATCH;
	for (int c = 0; c < 3; c++)
		format->pad[c] = image->pad[c];
	if (image->dtype == BETON_UINT8)
		return;
	static const int channels[3] = {0, 1, 2};
	bool planes = is_planar(format);
	if (!planes)
		bt_elements_init(&format->elements[0], options, channels);
	for (int c = 0; c < (int)format->channels && planes; c++)
		bt_elements_init(&format->elements[c], options, (const int[3]){c, c, c});
}

/* Some rows of a picture's planes, and their place in the output. */
typedef struct block {
	bt_colour colour;
	uint32_t x;
	uint32_t y;
	uint32_t width;
	uint32_t count; /* of rows, at most BT_ROWS */
	const uint8_t *rows[3];
	size_t strides[3];
} block;

/* Stores count bytes, of the channels of `elements`, as the elements from number `at` on. */
static void store(const bt_kernels *kernels, const bt_image_format *format, const bt_elements *elements,
		  const uint8_t *in, size_t count, void *destination, size_t at)
{
	bool stream = format->streams;
	if (format->dtype == BETON_UINT8)
		kernels->bytes(in, count, stream, (uint8_t *)destination + at);
	else if (format->dtype == BETON_FLOAT32)
		kernels->floats(elements, in, count, stream, (float *)destination + at);
	else
		kernels->halves(elements, in, count, stream, (uint16_t *)destination + at);
}

/* Converts row j of a block that is not RGB to RGB planes. */
static void row_to_planes(const bt_kernels *kernels, const block *in, uint32_t j, size_t width, uint8_t *const out[3])
{
	const uint8_t *rows[3];
	for (int i = 0; i < (in->colour == BT_YCC ? 3 : 1); i++)
		rows[i] = in->rows[i] + j * in->strides[i];
	if (in->colour == BT_YCC)
		kernels->ycc_to_rgb(rows, width, out);
	for (int c = 0; c < 3 && in->colour == BT_GREY; c++)
		memcpy(out[c], rows[0], width);
}

/* Whole rows of the output before they are stored: one row of pixels, or, where channels are planes, BT_ROWS rows of
 * each. Beside a picture they hold padding. */
static uint8_t *whole_rows(const bt_transformer *transformer, const bt_image_format *format)
{
	return (uint8_t *)transformer->rows.data + (is_planar(format) ? 0 : 3 * (size_t)format->width);
}

static void fill_with_padding(const bt_transformer *transformer, const bt_image_format *format)
{
	uint8_t *rows = whole_rows(transformer, format);
	size_t plane = (size_t)format->width * BT_ROWS;
	for (size_t c = 0; c < format->channels && is_planar(format); c++)
		memset(rows + c * plane, format->pad[c], plane);
	for (size_t i = 0; i < 3 * (size_t)format->width && !is_planar(format); i++)
		rows[i] = (uint8_t)format->pad[i % 3];
}

/* Row by row: the computation of the next row hides the time of this row's stores. */
static void emit_pixels(bt_transformer *transformer, const bt_image_format *format, const block *in, void *destination)
{
	const bt_kernels *kernels = transformer->planes[0].kernels;
	size_t width = in->width, count = 3 * (size_t)format->width;
	uint8_t *memory = transformer->rows.data, *whole = whole_rows(transformer, format), *at = whole + 3 * in->x;
	uint8_t *const planes[3] = {memory, memory + width, memory + 2 * width};
	for (uint32_t j = 0; j < in->count; j++) {
		const uint8_t *pixels = whole;
		if (in->colour != BT_RGB) {
			row_to_planes(kernels, in, j, width, planes);
			kernels->join((const uint8_t *const *)planes, width, at);
		} else if (width == format->width) {
			pixels = in->rows[0] + j * in->strides[0];
		} else {
			memcpy(at, in->rows[0] + j * in->strides[0], 3 * width);
		}
		store(kernels, format, &format->elements[0], pixels, count, destination, (in->y + j) * count);
	}
}

/* Stores count of the whole rows of an image whose channels are planes. */
static void store_planes(bt_transformer *transformer, const bt_image_format *format, uint32_t y, uint32_t count,
			 void *destination)
{
	size_t width = format->width;
	for (size_t c = 0; c < format->channels; c++)
		store(transformer->planes[0].kernels, format, &format->elements[c],
		      whole_rows(transformer, format) + c * width * BT_ROWS, count * width, destination,
		      (c * format->height + y) * width);
}

/* Collects rows of a channel first, to avoid stores of less than a cache line. */
static void emit_planes(bt_transformer *transformer, const bt_image_format *format, const block *in, void *destination)
{
	const bt_kernels *kernels = transformer->planes[0].kernels;
	size_t width = format->width, plane = width * BT_ROWS;
	for (uint32_t j = 0; j < in->count; j++) {
		uint8_t *at = whole_rows(transformer, format) + j * width + in->x;
		uint8_t *const planes[3] = {at, at + plane, at + 2 * plane};
		if (format->channels == 1)
			memcpy(at, in->rows[0] + j * in->strides[0], in->width);
		else if (in->colour == BT_RGB)
			kernels->split(in->rows[0] + j * in->strides[0], in->width, planes);
		else
			row_to_planes(kernels, in, j, in->width, planes);
	}
	store_planes(transformer, format, in->y, in->count, destination);
}

/* Fills rows y .. end - 1 with padding. */
static void emit_padding(bt_transformer *transformer, const bt_image_format *format, uint32_t y, uint32_t end,
			 void *destination)
{
	size_t count = 3 * (size_t)format->width;
	fill_with_padding(transformer, format);
	for (; y < end && !is_planar(format); y++)
		store(transformer->planes[0].kernels, format, &format->elements[0], whole_rows(transformer, format),
		      count, destination, y * count);
	for (; y < end; y += BT_ROWS)
		store_planes(transformer, format, y, bt_min_u32(end - y, BT_ROWS), destination);
}

/* Whether both planes can be resized with the same tables. */
static bool same_box(const bt_plane *a, const bt_plane *b)
{
	return a->width == b->width && a->height == b->height && a->channels == b->channels && a->x == b->x &&
	       a->y == b->y && a->box_width == b->box_width && a->box_height == b->box_height;
}

/* Flipping is free: the tables of the horizontal axis contain it. */
static int begin(bt_transformer *transformer, const bt_picture *picture, bool flip, const bt_placement *place,
		 const bt_image_format *format, beton_error *err)
{
	const bt_resize_target target = {place->width,   place->height,
					 format->filter, flip,
					 format->exact,  bt_crop_visible(place, format->width, format->height)};
	const bt_plane *planes = picture->planes;
	bt_resizer *resizers = transformer->planes;
	if (!bt_buffer_reserve(&transformer->rows, (size_t)format->width * 3 * BT_ROWS))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for rows of %u pixels", format->width);
	int result = bt_resize_begin(&resizers[0], &planes[0], &target, NULL, err);
	if (result || picture->colour != BT_YCC)
		return result;
	result = bt_resize_begin(&resizers[1], &planes[1], &target, NULL, err);
	if (result)
		return result;
	const bt_resizer *like = same_box(&planes[2], &planes[1]) ? &resizers[1] : NULL;
	return bt_resize_begin(&resizers[2], &planes[2], &target, like, err);
}

int bt_transform(bt_transformer *transformer, const bt_picture *picture, bool flip, const bt_placement *place,
		 const bt_image_format *format, void *destination, beton_error *err)
{
	const bt_placement whole = {.width = format->width, .height = format->height};
	place = place ? place : &whole;
	int result = begin(transformer, picture, flip, place, format, err);
	if (result)
		return result;
	int planes = picture->colour == BT_YCC ? 3 : 1;
	const bt_rect part = bt_crop_visible(place, format->width, format->height);
	uint32_t top = place->y > 0 ? (uint32_t)place->y : 0, end = top + part.height;
	block rows = {.colour = picture->colour, .x = place->x > 0 ? (uint32_t)place->x : 0, .width = part.width};
	if (part.width < format->width || top > 0) /* emit_pixels and emit_planes need it beside the picture, too */
		emit_padding(transformer, format, 0, top, destination);
	for (rows.y = top; rows.y < end; rows.y += BT_ROWS) {
		rows.count = bt_min_u32(end - rows.y, BT_ROWS);
		for (int i = 0; i < planes; i++)
			rows.rows[i] =
				bt_resize_rows(&transformer->planes[i], rows.y - top, rows.count, &rows.strides[i]);
		if (is_planar(format))
			emit_planes(transformer, format, &rows, destination);
		else
			emit_pixels(transformer, format, &rows, destination);
	}
	if (end < format->height)
		emit_padding(transformer, format, end, format->height, destination);
	transformer->planes[0].kernels->fence();
	return BETON_OK;
}

void bt_transformer_limit(bt_transformer *transformer, bt_budget *budget)
{
	for (int i = 0; i < 3; i++)
		bt_resize_limit(&transformer->planes[i], budget);
	transformer->rows.budget = budget;
}

void bt_transformer_free(bt_transformer *transformer)
{
	for (int i = 0; i < 3; i++)
		bt_resize_free(&transformer->planes[i]);
	bt_buffer_free(&transformer->rows);
}
