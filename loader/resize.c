/* SPDX-License-Identifier: Apache-2.0 */
#include "resize.h"

#include "common/error.h"
#include "kernels.h"

static bool grows(double length, uint32_t out)
{
	return length < out;
}

int bt_resize_begin(bt_resizer *resizer, const bt_plane *source, const bt_resize_target *target, beton_error *err)
{
	if (!resizer->kernels)
		resizer->kernels = bt_kernels_best();
	resizer->source = *source;
	bool shrinks = !grows(source->box_width, target->width) && !grows(source->box_height, target->height);
	bt_axis_key horizontal = {.begin = source->x,
				  .length = source->box_width,
				  .in = source->width,
				  .out = target->width,
				  .channels = source->channels,
				  .filter = target->filter,
				  .shrinks = shrinks,
				  .mirrored = target->mirrored,
				  .permutes = resizer->kernels->permutes};
	bt_axis_key vertical = {.begin = source->y,
				.length = source->box_height,
				.in = source->height,
				.out = target->height,
				.channels = 1,
				.filter = target->filter,
				.shrinks = shrinks};
	int result = bt_axis_plan(&resizer->horizontal, &horizontal, err);
	if (result == BETON_OK)
		result = bt_axis_plan(&resizer->vertical, &vertical, err);
	if (result)
		return result;
	size_t values =
		(size_t)resizer->horizontal.columns * source->channels + BT_ROW_SLACK + resizer->horizontal.stride;
	size_t bytes = (size_t)target->width * source->channels + BT_OUT_SLACK;
	if (!bt_buffer_reserve(&resizer->row, values * sizeof(int16_t)) || !bt_buffer_reserve(&resizer->out, bytes))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a row of %u pixels", source->width);
	return BETON_OK;
}

const uint8_t *bt_resize_row(bt_resizer *resizer, uint32_t y)
{
	const bt_axis *horizontal = &resizer->horizontal, *vertical = &resizer->vertical;
	const bt_plane *source = &resizer->source;
	const uint8_t *in = source->data + (size_t)(vertical->low + vertical->first[y]) * source->stride +
			    (size_t)horizontal->low * source->channels;
	if (horizontal->identity && vertical->identity)
		return in;
	/* Rows first: they are contiguous, whatever the scale, and the other way round each input row would have to be
	 * resized, where an output row of a shrinking picture needs fewer. */
	resizer->kernels->vertical(in, source->stride, vertical->weights + (size_t)y * vertical->stride,
				   vertical->count[y], (size_t)horizontal->columns * source->channels,
				   resizer->row.data);
	resizer->kernels->horizontal(horizontal, resizer->row.data, resizer->out.data);
	return resizer->out.data;
}

void bt_resize_free(bt_resizer *resizer)
{
	bt_buffer_free(&resizer->horizontal.memory);
	bt_buffer_free(&resizer->vertical.memory);
	bt_buffer_free(&resizer->row);
	bt_buffer_free(&resizer->out);
}
