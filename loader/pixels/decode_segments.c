/* SPDX-License-Identifier: Apache-2.0 */
#include "decode_segments.h"

#include <string.h>

#include "jpeg/marker.h"

enum {
	MARKER_SOF0 = 0xc0, /* sequential, Huffman, 8 bits */
	MARKER_SOF1 = 0xc1, /* the same, or 12 bits, which the decoder rejects earlier */
	MARKER_RST0 = 0xd0,
	MARKER_SOI = 0xd8,
	MARKER_EOI = 0xd9,
	MARKER_SOS = 0xda,
	MARKER_BYTES = 2,
	SOF_SIZE_AT = 5, /* offset of height and width from the marker's first byte */
	/* The decoder's fast path needs this much input for each block. */
	FAST_BYTES_PER_BLOCK = 512,
};

/* The picture as a grid of segments, and its needed part: columns begin_x .. end_x - 1, and rows likewise. */
typedef struct segment_grid {
	uint32_t segment_width; /* pixels */
	uint32_t segment_height;
	uint32_t columns;
	uint32_t begin_x, begin_y;
	uint32_t end_x, end_y;
} segment_grid;

/* False: the segments form no grid, or all segments from the first on are needed. */
static bool plan(const struct jpeg_decompress_struct *jpeg, const bt_rect *needed, segment_grid *grid)
{
	uint32_t interval = jpeg->restart_interval;
	if (interval == 0 || jpeg->progressive_mode || jpeg->arith_code || jpeg->comps_in_scan != jpeg->num_components)
		return false;
	/* A single component is not interleaved: its MCU is a block, whatever its sampling. */
	bool alone = jpeg->num_components == 1;
	uint32_t mcu_width = DCTSIZE * (alone ? 1 : (uint32_t)jpeg->max_h_samp_factor);
	uint32_t mcu_height = DCTSIZE * (alone ? 1 : (uint32_t)jpeg->max_v_samp_factor);
	uint32_t mcus = bt_divide_up(jpeg->image_width, mcu_width);
	if (mcus % interval && interval % mcus)
		return false;
	uint32_t rows = interval > mcus ? interval / mcus : 1;
	uint32_t height = rows * mcu_height;
	uint32_t width = (interval < mcus ? interval : mcus) * mcu_width;
	*grid = (segment_grid){.segment_width = width,
			       .segment_height = height,
			       .columns = bt_divide_up(jpeg->image_width, width),
			       .begin_x = needed->x / width,
			       .begin_y = needed->y / height,
			       .end_x = bt_divide_up(needed->x + needed->width, width),
			       .end_y = bt_divide_up(needed->y + needed->height, height)};
	return grid->begin_y > 0 || grid->begin_x > 0 || grid->end_x < grid->columns;
}

/* Offset of the only frame header in bytes[0 .. size), which consists of marker segments up to the scan's; 0 if it
 * contains anything else. */
static size_t find_frame(const uint8_t *bytes, size_t size)
{
	size_t frame = 0;
	size_t at = MARKER_BYTES;
	if (size < at || bytes[0] != 0xff || bytes[1] != MARKER_SOI)
		return 0;
	for (uint8_t marker = 0; marker != MARKER_SOS;) {
		if (size - at < MARKER_BYTES + 2 || bytes[at] != 0xff)
			return 0;
		marker = bytes[at + 1];
		size_t length = MARKER_BYTES + ((size_t)bytes[at + 2] << 8 | bytes[at + 3]);
		if (length < MARKER_BYTES + 2 || length > size - at)
			return 0;
		if (marker == MARKER_SOF0 || marker == MARKER_SOF1) {
			if (frame || length < SOF_SIZE_AT + 4)
				return 0;
			frame = at;
		}
		at += length;
	}
	return at == size ? frame : 0;
}

/* Copies the needed segments in order, and renumbers the markers between them. Returns the end of the output; NULL if
 * the markers do not match the grid. */
static uint8_t *copy_segments(const segment_grid *grid, const uint8_t *at, const uint8_t *end, uint8_t *out)
{
	uint8_t number = 0, copied = 0;
	for (uint32_t y = 0; y < grid->end_y; y++) {
		uint32_t count = y + 1 < grid->end_y ? grid->columns : grid->end_x;
		for (uint32_t x = 0; x < count; x++, number = (number + 1) & 7) {
			const uint8_t *marker = bt_find_marker(at, end);
			bool last = y + 1 == grid->end_y && x + 1 == count;
			if (marker == end || (marker[1] != MARKER_RST0 + number && !(last && marker[1] == MARKER_EOI)))
				return NULL;
			if (y >= grid->begin_y && x >= grid->begin_x && x < grid->end_x) {
				memcpy(out, at, (size_t)(marker - at));
				out += marker - at;
				*out++ = 0xff;
				*out++ = last ? MARKER_EOI : (uint8_t)(MARKER_RST0 + copied);
				copied = (copied + 1) & 7;
			}
			at = marker + MARKER_BYTES;
		}
	}
	return out;
}

static void put_16(uint8_t *out, uint32_t value)
{
	out[0] = (uint8_t)(value >> 8);
	out[1] = (uint8_t)value;
}

bool bt_segments_cut(const struct jpeg_decompress_struct *jpeg, const uint8_t *bytes, size_t size,
		     const bt_rect *needed, bt_buffer *buffer, bt_cut *cut, bool *no_memory)
{
	segment_grid grid;
	if (!plan(jpeg, needed, &grid))
		return false;
	size_t header = size - jpeg->src->bytes_in_buffer;
	size_t frame = find_frame(bytes, header);
	if (!frame)
		return false;
	size_t room = FAST_BYTES_PER_BLOCK * D_MAX_BLOCKS_IN_MCU;
	uint8_t *out = size <= SIZE_MAX - room ? bt_buffer_reserve(buffer, size + room) : NULL;
	*no_memory = !out;
	if (!out)
		return false;
	uint8_t *end = copy_segments(&grid, bytes + header, bytes + size, out + header);
	if (!end)
		return false;
	memcpy(out, bytes, header);
	memset(end, 0, room);
	bt_rect area = {.x = grid.begin_x * grid.segment_width, .y = grid.begin_y * grid.segment_height};
	area.width = bt_min_u32(jpeg->image_width, grid.end_x * grid.segment_width) - area.x;
	area.height = bt_min_u32(jpeg->image_height, grid.end_y * grid.segment_height) - area.y;
	put_16(out + frame + SOF_SIZE_AT, area.height);
	put_16(out + frame + SOF_SIZE_AT + 2, area.width);
	*cut = (bt_cut){.bytes = out, .size = (size_t)(end - out) + room, .area = area};
	return true;
}
