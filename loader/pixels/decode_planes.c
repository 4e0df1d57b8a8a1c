/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes a crop to the planes that the JPEG holds ("raw data" in the JPEG library).
 */
#include "decode_state.h"

enum {
	PLANES_MAX = 3,
	ALIGNMENT = 64,                       /* of rows of a plane, bytes */
	ROWS_MAX = MAX_SAMP_FACTOR * DCTSIZE, /* of a plane in one row of MCUs */
};

/* Samples begin .. end - 1 of an axis. */
typedef struct range {
	uint32_t begin;
	uint32_t end;
} range;

/* The samples that a crop touches on an axis with one sample for every `step` of the picture's `size` pixels, and one
 * more on each side for interpolation. The caller gets exactly these, so that pixels do not depend on how much was
 * decoded. */
static range range_of(uint32_t crop_begin, uint32_t crop_size, uint32_t step, uint32_t size)
{
	range samples = {crop_begin / step, bt_divide_up(crop_begin + crop_size, step)};
	samples.begin -= samples.begin > 0;
	samples.end += samples.end < bt_divide_up(size, step);
	return samples;
}

/* Number of the picture's pixels for each sample of the component. */
static uint32_t step_x(const struct jpeg_decompress_struct *jpeg, int component)
{
	const jpeg_component_info *info = &jpeg->comp_info[component];
	return (uint32_t)(jpeg->max_h_samp_factor * DCTSIZE / (info->h_samp_factor * info->DCT_scaled_size));
}

static uint32_t step_y(const struct jpeg_decompress_struct *jpeg, int component)
{
	const jpeg_component_info *info = &jpeg->comp_info[component];
	return (uint32_t)(jpeg->max_v_samp_factor * DCTSIZE / (info->v_samp_factor * info->DCT_scaled_size));
}

bool bt_planes_possible(const struct jpeg_decompress_struct *jpeg)
{
	if (jpeg->jpeg_color_space == JCS_GRAYSCALE)
		return true;
	if (jpeg->jpeg_color_space != JCS_YCbCr)
		return false;
	/* All steps are whole numbers, and luma's is 1. */
	const jpeg_component_info *luma = &jpeg->comp_info[0];
	for (int i = 0; i < jpeg->num_components; i++)
		if (luma->h_samp_factor % jpeg->comp_info[i].h_samp_factor ||
		    luma->v_samp_factor % jpeg->comp_info[i].v_samp_factor)
			return false;
	return true;
}

static void set_up(j_decompress_ptr jpeg, const bt_request *request)
{
	jpeg->scale_num = DCTSIZE / (request->shrink ? request->shrink : 1);
	jpeg->scale_denom = DCTSIZE;
	jpeg->out_color_space = jpeg->jpeg_color_space;
	jpeg->raw_data_out = TRUE;
	jpeg->dct_method = JDCT_ISLOW;
	jpeg_calc_output_dimensions(jpeg);
}

/* The planes that serve the request: all, or luma's. */
static int count_planes(const struct jpeg_decompress_struct *jpeg, const bt_request *request)
{
	return request->grey ? 1 : jpeg->num_components;
}

/* All pixels of the picture that the planes need. The coarsest step of an axis is a multiple of the others, so its
 * range covers theirs. */
static bt_rect find_needed(const struct jpeg_decompress_struct *jpeg, const bt_rect *crop, int planes)
{
	uint32_t coarse_x = 1, coarse_y = 1;
	for (int i = 0; i < planes; i++) {
		coarse_x = step_x(jpeg, i) > coarse_x ? step_x(jpeg, i) : coarse_x;
		coarse_y = step_y(jpeg, i) > coarse_y ? step_y(jpeg, i) : coarse_y;
	}
	range x = range_of(crop->x, crop->width, coarse_x, jpeg->image_width);
	range y = range_of(crop->y, crop->height, coarse_y, jpeg->image_height);
	bt_rect needed = {.x = x.begin * coarse_x, .y = y.begin * coarse_y};
	needed.width = bt_min_u32(x.end * coarse_x, jpeg->image_width) - needed.x;
	needed.height = bt_min_u32(y.end * coarse_y, jpeg->image_height) - needed.y;
	return needed;
}

/* Reserves memory for the planes, whose width and height are set, and sets their addresses and strides. */
static void place_planes(bt_decoder *decoder, int count, bt_picture *out)
{
	size_t offsets[PLANES_MAX], total = 0;
	for (int i = 0; i < count; i++) {
		bt_plane *plane = &out->planes[i];
		plane->stride = ((size_t)plane->width + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
		plane->channels = 1;
		offsets[i] = total;
		total += plane->stride * plane->height;
	}
	uint8_t *memory = bt_buffer_reserve(&decoder->pixels, total);
	if (!memory)
		bt_jpeg_escape_leave_no_memory(&decoder->escape);
	for (int i = 0; i < count; i++)
		out->planes[i].data = memory + offsets[i];
	out->colour = count == 1 ? BT_GREY : BT_YCC;
}

/* Decodes rows of MCUs up to `end` to the first `wanted` planes; those before `begin` need no pixels. */
static void read_rows(j_decompress_ptr jpeg, const bt_picture *picture, int wanted, uint32_t begin, uint32_t end)
{
	JSAMPROW rows[PLANES_MAX][ROWS_MAX];
	JSAMPARRAY planes[PLANES_MAX] = {rows[0], rows[1], rows[2]};
	JDIMENSION lines = (JDIMENSION)(jpeg->max_v_samp_factor * jpeg->min_DCT_scaled_size);
	for (uint32_t mcu_row = 0; mcu_row < end; mcu_row++) {
		size_t row = mcu_row > begin ? mcu_row - begin : 0;
		for (int i = 0; i < jpeg->num_components; i++) {
			jpeg_component_info *info = &jpeg->comp_info[i];
			size_t count = (size_t)(info->v_samp_factor * info->DCT_scaled_size);
			/* Otherwise the library reads the coefficients and skips the inverse DCT. */
			info->component_needed = i < wanted && mcu_row >= begin;
			for (size_t y = 0; y < count && i < wanted; y++)
				rows[i][y] = (JSAMPROW)picture->planes[i].data +
					     (row * count + y) * picture->planes[i].stride;
		}
		jpeg_read_raw_data(jpeg, planes, lines);
	}
}

/* Narrows a plane, which begins at pixel (left, top) of a width x height picture, to the samples that the crop needs.
 */
static void narrow(bt_plane *plane, const bt_rect *crop, uint32_t left, uint32_t top, const bt_rect *picture,
		   uint32_t x_step, uint32_t y_step)
{
	range x = range_of(crop->x, crop->width, x_step, picture->width);
	range y = range_of(crop->y, crop->height, y_step, picture->height);
	plane->data += (y.begin - top / y_step) * plane->stride + (x.begin - left / x_step);
	plane->width = x.end - x.begin;
	plane->height = y.end - y.begin;
	plane->x = (double)crop->x / x_step - x.begin;
	plane->y = (double)crop->y / y_step - y.begin;
	plane->box_width = (double)crop->width / x_step;
	plane->box_height = (double)crop->height / y_step;
}

/* Takes away the samples around the crop, whose edges are between samples, for filters that see pixels of it alone. */
static void narrow_to_box(bt_plane *plane)
{
	plane->data += (size_t)plane->y * plane->stride + (size_t)plane->x;
	plane->width = (uint32_t)plane->box_width;
	plane->height = (uint32_t)plane->box_height;
	plane->x = plane->y = 0;
}

/* Decodes the part of the picture with bt_scan. False: libjpeg has to decode it. */
static bool scan_planes(bt_decoder *decoder, const bt_request *wanted, const bt_rect *needed, bt_rect *area,
			bt_picture *out)
{
	const struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
	/* A single component is not interleaved: its MCU is a block, whatever its sampling. */
	bool alone = jpeg->num_components == 1;
	uint32_t mcu_width = DCTSIZE * (alone ? 1 : (uint32_t)jpeg->max_h_samp_factor);
	uint32_t mcu_height = DCTSIZE * (alone ? 1 : (uint32_t)jpeg->max_v_samp_factor);
	bt_scan_request request = {.begin_x = needed->x / mcu_width,
				   .begin_y = needed->y / mcu_height,
				   .end_x = bt_divide_up(needed->x + needed->width, mcu_width),
				   .end_y = bt_divide_up(needed->y + needed->height, mcu_height),
				   .index = wanted->index,
				   .index_size = wanted->index_size};
	int planes = count_planes(jpeg, wanted);
	for (int i = 0; i < planes; i++) {
		const jpeg_component_info *info = &jpeg->comp_info[i];
		out->planes[i].width = (request.end_x - request.begin_x) *
				       (uint32_t)(info->DCT_scaled_size * (alone ? 1 : info->h_samp_factor));
		out->planes[i].height = (request.end_y - request.begin_y) *
					(uint32_t)(info->DCT_scaled_size * (alone ? 1 : info->v_samp_factor));
	}
	place_planes(decoder, planes, out);
	for (int i = 0; i < planes; i++) {
		request.planes[i] = (uint8_t *)out->planes[i].data;
		request.strides[i] = out->planes[i].stride;
	}
	*area = (bt_rect){.x = request.begin_x * mcu_width, .y = request.begin_y * mcu_height};
	return bt_scan_decode(decoder->scan, jpeg, &request);
}

/* Decodes the part of the picture with libjpeg. */
static void read_planes(bt_decoder *decoder, const uint8_t *bytes, size_t size, const bt_request *request,
			const bt_rect *needed, bt_rect *area, bt_picture *out)
{
	j_decompress_ptr jpeg = &decoder->jpeg;
	*area = bt_decoder_cut(decoder, bytes, size, needed);
	set_up(jpeg, request);
	jpeg_start_decompress(jpeg);
	uint32_t mcu_height = (uint32_t)jpeg->max_v_samp_factor * DCTSIZE;
	uint32_t begin = (needed->y - area->y) / mcu_height;
	uint32_t end = bt_divide_up(needed->y + needed->height - area->y, mcu_height);
	int planes = count_planes(jpeg, request);
	for (int i = 0; i < planes; i++) {
		const jpeg_component_info *info = &jpeg->comp_info[i];
		out->planes[i].width = info->width_in_blocks * (uint32_t)info->DCT_scaled_size;
		out->planes[i].height = (end - begin) * (uint32_t)(info->v_samp_factor * info->DCT_scaled_size);
	}
	place_planes(decoder, planes, out);
	read_rows(jpeg, out, planes, begin, end);
	area->y += begin * mcu_height;
}

void bt_decode_planes(bt_decoder *decoder, const uint8_t *bytes, size_t size, const bt_request *request,
		      bt_picture *out)
{
	j_decompress_ptr jpeg = &decoder->jpeg;
	const bt_rect picture = {.width = jpeg->image_width, .height = jpeg->image_height};
	set_up(jpeg, request);
	int planes = count_planes(jpeg, request);
	bt_rect needed = find_needed(jpeg, &request->crop, planes), area;
	if (!decoder->scan || !scan_planes(decoder, request, &needed, &area, out))
		read_planes(decoder, bytes, size, request, &needed, &area, out);
	for (int i = 0; i < planes; i++)
		narrow(&out->planes[i], &request->crop, area.x, area.y, &picture, step_x(jpeg, i), step_y(jpeg, i));
	if (request->pixels == BT_WANT_RGB)
		narrow_to_box(&out->planes[0]);
	bt_decoder_finish(decoder);
}
