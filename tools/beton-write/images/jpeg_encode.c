/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg_encode.h"

#include <stdlib.h>

#include "common/error.h"
#include "jpeg.h"

void jpeg_set_encoding(struct jpeg_compress_struct *info, uint32_t width, uint32_t height, J_COLOR_SPACE colour,
		       const image_settings *settings)
{
	info->image_width = width;
	info->image_height = height;
	info->input_components = colour == JCS_GRAYSCALE ? 1 : 3;
	info->in_color_space = colour;
	jpeg_set_defaults(info);
	jpeg_set_quality(info, settings->quality, TRUE);
	if (settings->full_colour || colour == JCS_GRAYSCALE)
		info->comp_info[0].h_samp_factor = info->comp_info[0].v_samp_factor = 1;
	unsigned int luma_blocks = (unsigned int)(info->comp_info[0].h_samp_factor * info->comp_info[0].v_samp_factor);
	unsigned int mcu_width = DCTSIZE * (unsigned int)info->comp_info[0].h_samp_factor;
	info->restart_interval = jpeg_restart_interval((width + mcu_width - 1) / mcu_width,
						       luma_blocks + (unsigned int)info->num_components - 1);
}

int jpeg_encode(const rgb_image *image, const image_settings *settings, const char *name, uint8_t **data, size_t *size,
		beton_error *err)
{
	struct jpeg_compress_struct info = {0};
	bt_jpeg_escape escape;
	jpeg_sink sink = {0};
	info.err = bt_jpeg_escape_init(&escape);
	if (setjmp(escape.target)) {
		jpeg_destroy_compress(&info);
		free(sink.data);
		return jpeg_fail(&escape, BETON_INVALID_ARGUMENT, name, "cannot be encoded as JPEG", err);
	}
	jpeg_create_compress(&info);
	jpeg_set_encoding(&info, image->width, image->height, JCS_RGB, settings);
	jpeg_sink_attach(&sink, &info, (size_t)image->width * image->height / 2 + 4096);
	jpeg_start_compress(&info, TRUE);
	while (info.next_scanline < info.image_height) {
		JSAMPROW row = image->data + (size_t)info.next_scanline * image->width * 3;
		jpeg_write_scanlines(&info, &row, 1);
	}
	jpeg_finish_compress(&info);
	jpeg_destroy_compress(&info);
	jpeg_sink_take(&sink, data, size);
	return BETON_OK;
}
