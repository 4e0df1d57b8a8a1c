/* SPDX-License-Identifier: Apache-2.0 */
#include <jerror.h>

#include "common/jpeg.h"
#include "decode_state.h"
#include "jpeg/partial.h"
#include "jpeg/rgb.h"

/* Extra pixels that are decoded around a crop. Chroma upsampling treats the outermost samples, and very narrow
 * pictures, differently; with the margin the crop's pixels equal a whole decode's. */
enum { MARGIN = 8 };

enum { ALIGNMENT = 64 }; /* of memory for planes, bytes */

static bt_rect widen(const bt_rect *crop, uint32_t width, uint32_t height)
{
	bt_rect out = {crop->x > MARGIN ? crop->x - MARGIN : 0, crop->y > MARGIN ? crop->y - MARGIN : 0};
	out.width = bt_min_u32(crop->x + crop->width + MARGIN, width) - out.x;
	out.height = bt_min_u32(crop->y + crop->height + MARGIN, height) - out.y;
	return out;
}

/* Skips the columns beside the needed ones, and returns the first column that the decoder will deliver. The library
 * moves the left edge to a block's edge, and smooths there as at the picture's edge: nothing is skipped where it
 * smooths. */
static uint32_t choose_columns(j_decompress_ptr jpeg, const bt_rect *needed)
{
	JDIMENSION first = needed->x, width = needed->width;
	if (width == jpeg->output_width || bt_jpeg_is_partial(jpeg))
		return 0;
	jpeg_crop_scanline(jpeg, &first, &width);
	return first;
}

/* The library's output colours. If the request wants others, convert_row makes them. */
static J_COLOR_SPACE choose_colours(const struct jpeg_decompress_struct *jpeg, const bt_request *request)
{
	if (jpeg->num_components == 4)
		return JCS_CMYK;
	bool luma = jpeg->jpeg_color_space == JCS_GRAYSCALE || jpeg->jpeg_color_space == JCS_YCbCr;
	return request->grey && luma ? JCS_GRAYSCALE : JCS_RGB;
}

static void convert_row(const struct jpeg_decompress_struct *jpeg, const bt_request *request, uint8_t *row)
{
	if (jpeg->out_color_space == JCS_CMYK)
		bt_cmyk_to_rgb(row, row, jpeg->output_width);
	if (request->grey && jpeg->out_color_space != JCS_GRAYSCALE)
		bt_grey(row, jpeg->output_width, bt_request_weights(request), row);
}

/* Decodes the crop to RGB with bt_scan. False: libjpeg has to decode it. */
static bool scan_pixels(bt_decoder *decoder, const bt_request *request, bt_picture *out)
{
	j_decompress_ptr jpeg = &decoder->jpeg;
	const bt_rect *crop = &request->crop;
	const bt_rgb_request part = {.x = crop->x,
				     .y = crop->y,
				     .width = crop->width,
				     .height = crop->height,
				     .index = request->index,
				     .index_size = request->index_size};
	/* It has the accurate DCT alone. */
	if (!decoder->scan || request->grey || request->pixels == BT_WANT_RGB_FAST_DCT)
		return false;
	jpeg->out_color_space = JCS_RGB;
	jpeg_calc_output_dimensions(jpeg);
	size_t needed = bt_rgb_memory(jpeg, &part), row = (size_t)crop->width * 3;
	size_t bytes = (row * crop->height + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	/* libjpeg needs less memory. */
	uint8_t *pixels = needed ? bt_buffer_reserve(&decoder->pixels, bytes + needed) : NULL;
	if (!pixels || !bt_rgb_decode(decoder->scan, jpeg, &part, pixels + bytes, pixels))
		return false;
	bt_picture_set_pixels(out, pixels, row, crop->width, crop->height, 3);
	return true;
}

/* Decodes the crop with libjpeg. */
static void read_pixels(bt_decoder *decoder, const uint8_t *bytes, size_t size, const bt_request *request,
			bt_picture *out)
{
	j_decompress_ptr jpeg = &decoder->jpeg;
	const bt_rect *crop = &request->crop;
	bt_rect needed = widen(crop, jpeg->image_width, jpeg->image_height);
	bt_rect area = bt_decoder_cut(decoder, bytes, size, &needed);
	needed.x -= area.x;
	uint32_t x = crop->x - area.x, y = crop->y - area.y;
	jpeg->out_color_space = choose_colours(jpeg, request);
	jpeg->dct_method = request->pixels == BT_WANT_RGB_FAST_DCT ? JDCT_IFAST : JDCT_ISLOW;
	jpeg_start_decompress(jpeg);
	uint32_t first = choose_columns(jpeg, &needed);
	size_t stride = (size_t)jpeg->output_width * (size_t)jpeg->output_components;
	uint8_t *pixels = bt_buffer_reserve(&decoder->pixels, stride * crop->height);
	if (!pixels)
		bt_jpeg_escape_leave_no_memory(&decoder->escape);
	if (y > 0 && jpeg_skip_scanlines(jpeg, y) != y)
		ERREXIT(jpeg, JERR_INPUT_EOF);
	for (uint32_t row = 0; row < crop->height; row++) {
		JSAMPROW at = pixels + row * stride;
		jpeg_read_scanlines(jpeg, &at, 1);
		convert_row(jpeg, request, at);
	}
	uint32_t channels = request->grey ? 1 : 3;
	bt_picture_set_pixels(out, pixels + (size_t)(x - first) * channels, stride, crop->width, crop->height,
			      channels);
}

void bt_decode_pixels(bt_decoder *decoder, const uint8_t *bytes, size_t size, const bt_request *request,
		      bt_picture *out)
{
	if (!scan_pixels(decoder, request, out))
		read_pixels(decoder, bytes, size, request, out);
	bt_decoder_finish(decoder);
}
