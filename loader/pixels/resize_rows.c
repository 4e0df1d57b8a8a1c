/* SPDX-License-Identifier: Apache-2.0 */
#include "resize.h"

#include "common/error.h"
#include "kernels.h"

/* Alignment of rows: cache lines. */
enum { LINE = 64 };

static bool grows(double length, uint32_t out)
{
	return length < out;
}

/* The part of the result that is made, as it is before it is mirrored. */
static bt_rect part_of(const bt_resize_target *target)
{
	bt_rect part = target->part;
	if (part.width == 0)
		return (bt_rect){.width = target->width, .height = target->height};
	if (target->mirrored)
		part.x = target->width - part.x - part.width;
	return part;
}

void bt_resize_keys(const bt_plane *source, const bt_resize_target *target, const struct bt_kernels *kernels,
		    bt_axis_key *horizontal, bt_axis_key *vertical)
{
	const bt_rect part = part_of(target);
	bool shrinks = !grows(source->box_width, target->width) && !grows(source->box_height, target->height);
	*horizontal = (bt_axis_key){.begin = source->x,
				    .length = source->box_width,
				    .in = source->width,
				    .whole = target->width,
				    .before = part.x,
				    .out = part.width,
				    .channels = source->channels,
				    .filter = target->filter,
				    .shrinks = shrinks,
				    .mirrored = target->mirrored,
				    .permuted = true,
				    .kernels = kernels};
	*vertical = (bt_axis_key){.begin = source->y,
				  .length = source->box_height,
				  .in = source->height,
				  .whole = target->height,
				  .before = part.y,
				  .out = part.height,
				  .channels = 1,
				  .filter = target->filter,
				  .shrinks = shrinks,
				  .kernels = kernels};
}

static int plan(bt_resizer *resizer, const bt_plane *source, const bt_resize_target *target, beton_error *err)
{
	bt_axis_key horizontal, vertical;
	bt_resize_keys(source, target, resizer->kernels, &horizontal, &vertical);
	int result = bt_axis_plan(&resizer->own_horizontal, &horizontal, err);
	if (result == BETON_OK)
		result = bt_axis_plan(&resizer->own_vertical, &vertical, err);
	resizer->horizontal = &resizer->own_horizontal;
	resizer->vertical = &resizer->own_vertical;
	return result;
}

static int reserve_out(bt_resizer *resizer, size_t bytes, beton_error *err)
{
	resizer->out_stride = (bytes + LINE - 1) / LINE * LINE;
	if (!bt_buffer_reserve(&resizer->out, resizer->out_stride * BT_ROWS))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for rows of %zu bytes", bytes);
	return BETON_OK;
}

static int begin_exact(bt_resizer *resizer, const bt_plane *source, const bt_resize_target *target, beton_error *err)
{
	const bt_rect part = part_of(target);
	const bt_exact_key key = {.library = target->exact,
				  .in_width = (uint32_t)source->box_width,
				  .in_height = (uint32_t)source->box_height,
				  .held = {(uint32_t)-source->x, (uint32_t)-source->y, source->width, source->height},
				  .out_width = target->width,
				  .out_height = target->height,
				  .part = part,
				  .channels = source->channels,
				  .mirrored = target->mirrored};
	int result = bt_exact_begin(&resizer->exact, &key, source->data, source->stride, err);
	return result ? result : reserve_out(resizer, (size_t)part.width * source->channels, err);
}

int bt_resize_begin(bt_resizer *resizer, const bt_plane *source, const bt_resize_target *target, const bt_resizer *like,
		    beton_error *err)
{
	if (!resizer->kernels)
		resizer->kernels = bt_kernels_best();
	resizer->source = *source;
	/* Pixels that are not resized are the same with any library. */
	resizer->is_exact =
		target->exact && (source->box_width != target->width || source->box_height != target->height);
	if (resizer->is_exact)
		return begin_exact(resizer, source, target, err);
	resizer->horizontal = like ? like->horizontal : NULL;
	resizer->vertical = like ? like->vertical : NULL;
	int result = like ? BETON_OK : plan(resizer, source, target, err);
	if (result)
		return result;
	size_t values =
		(size_t)resizer->horizontal->columns * source->channels + BT_ROW_SLACK + resizer->horizontal->stride;
	size_t bytes = (size_t)part_of(target).width * source->channels + BT_OUT_SLACK;
	resizer->row_stride = (values + LINE - 1) / LINE * LINE;
	if (!bt_buffer_reserve(&resizer->rows, resizer->row_stride * sizeof(int16_t) * BT_ROWS))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for rows of %u pixels", source->width);
	return reserve_out(resizer, bytes, err);
}

const uint8_t *bt_resize_rows(bt_resizer *resizer, uint32_t y, uint32_t count, size_t *stride)
{
	if (resizer->is_exact) {
		uint8_t *out = resizer->out.data;
		for (uint32_t i = 0; i < count; i++)
			bt_exact_row(&resizer->exact, y + i, out + i * resizer->out_stride);
		*stride = resizer->out_stride;
		return out;
	}
	const bt_axis *horizontal = resizer->horizontal, *vertical = resizer->vertical;
	const bt_plane *source = &resizer->source;
	const uint8_t *in =
		source->data + (size_t)vertical->low * source->stride + (size_t)horizontal->low * source->channels;
	if (horizontal->identity && vertical->identity) {
		*stride = source->stride;
		return in + y * source->stride;
	}
	/* The vertical pass comes first, because rows are contiguous at any scale, and a shrinking picture then has
	 * fewer rows for the horizontal pass. Several rows at a time, because loads that overlap recent stores at other
	 * offsets are slow. */
	int16_t *rows = resizer->rows.data;
	for (uint32_t i = 0; i < count; i++)
		resizer->kernels->vertical(in + (size_t)vertical->first[y + i] * source->stride, source->stride,
					   vertical->weights + (size_t)(y + i) * vertical->stride,
					   vertical->count[y + i], (size_t)horizontal->columns * source->channels,
					   rows + i * resizer->row_stride);
	resizer->kernels->horizontal(horizontal, rows, resizer->row_stride, count, resizer->out.data,
				     resizer->out_stride);
	*stride = resizer->out_stride;
	return resizer->out.data;
}

void bt_resize_limit(bt_resizer *resizer, bt_budget *budget)
{
	resizer->own_horizontal.memory.budget = resizer->own_vertical.memory.budget = budget;
	resizer->rows.budget = resizer->out.budget = budget;
}

void bt_resize_free(bt_resizer *resizer)
{
	bt_buffer_free(&resizer->own_horizontal.memory);
	bt_buffer_free(&resizer->own_vertical.memory);
	bt_buffer_free(&resizer->rows);
	bt_buffer_free(&resizer->out);
	bt_exact_free(&resizer->exact);
}
