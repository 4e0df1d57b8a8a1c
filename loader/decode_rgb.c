/* SPDX-License-Identifier: Apache-2.0 */
#include <jerror.h>

#include "common/jpeg.h"
#include "decode_state.h"

/* Columns that are decoded beside a crop. */
enum { MARGIN = 8 };

/* Sets the decoder up for the columns of the crop and returns the first column that it will deliver. */
static uint32_t choose_columns(j_decompress_ptr jpeg, const bt_rect *crop)
{
	if (crop->width == jpeg->output_width)
		return 0;
	/* Upsampling of chroma treats the outermost columns differently, and very narrow pictures altogether: some more
	 * columns on both sides keep the pixels those of a whole decode. The library moves the left edge further, to a
	 * block's. */
	JDIMENSION first = crop->x > MARGIN ? crop->x - MARGIN : 0;
	JDIMENSION end = crop->x + crop->width;
	end = jpeg->output_width - end > MARGIN ? end + MARGIN : jpeg->output_width;
	JDIMENSION width = end - first;
	jpeg_crop_scanline(jpeg, &first, &width);
	return first;
}

void bt_decode_rgb(bt_decoder *decoder, const bt_rect *crop, J_DCT_METHOD method, bt_picture *out)
{
	j_decompress_ptr jpeg = &decoder->jpeg;
	jpeg->out_color_space = jpeg->num_components == 4 ? JCS_CMYK : JCS_RGB;
	jpeg->dct_method = method;
	jpeg_start_decompress(jpeg);
	uint32_t first = choose_columns(jpeg, crop);
	size_t stride = (size_t)jpeg->output_width * (size_t)jpeg->output_components;
	uint8_t *pixels = bt_buffer_reserve(&decoder->pixels, stride * crop->height);
	if (!pixels)
		bt_decoder_no_memory(decoder);
	if (crop->y > 0 && jpeg_skip_scanlines(jpeg, crop->y) != crop->y)
		ERREXIT(jpeg, JERR_INPUT_EOF);
	for (uint32_t row = 0; row < crop->height; row++) {
		JSAMPROW at = pixels + row * stride;
		jpeg_read_scanlines(jpeg, &at, 1);
		if (jpeg->out_color_space == JCS_CMYK)
			bt_cmyk_to_rgb(at, at, jpeg->output_width);
	}
	bt_decoder_finish(decoder);
	bt_picture_set_rgb(out, pixels + (size_t)(crop->x - first) * 3, stride, crop->width, crop->height);
}
