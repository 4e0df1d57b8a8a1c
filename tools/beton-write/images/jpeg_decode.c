/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "common/error.h"
#include "common/jpeg.h"
#include "common/jpeg_header.h"
#include "jpeg.h"
#include "jpeg/check.h"
#include "jpeg/rgb.h"
#include "jpeg_common.h"
#include "orientation.h"

static jpeg_colour colour_of(const struct jpeg_decompress_struct *info)
{
	switch (info->jpeg_color_space) {
	case JCS_GRAYSCALE:
		return JPEG_GREY;
	case JCS_YCbCr:
		return JPEG_YCC;
	case JCS_RGB:
		return JPEG_RGB;
	default: /* or YCCK: jpeg_inspect has refused what is unknown */
		return JPEG_CMYK;
	}
}

static int orientation_of(jpeg_reader *self)
{
	int orientation = 0;
	for (jpeg_saved_marker_ptr marker = self->info.marker_list; marker && !orientation; marker = marker->next)
		orientation = orientation_of_exif(marker->data, marker->data_length);
	if (orientation < 0)
		bt_jpeg_escape_leave_no_memory(&self->escape);
	return orientation ? orientation : 1;
}

/* Whether each sample covers a whole number of pixels. libjpeg reads coefficients of others too, but makes no RGB. */
static bool has_whole_samples(const struct jpeg_decompress_struct *info)
{
	for (int i = 0; i < info->num_components; i++)
		if (info->max_h_samp_factor % info->comp_info[i].h_samp_factor ||
		    info->max_v_samp_factor % info->comp_info[i].v_samp_factor)
			return false;
	return true;
}

int jpeg_inspect(const uint8_t *data, size_t size, uint64_t max_pixels, const char *name, jpeg_facts *facts,
		 beton_error *err)
{
	jpeg_reader self = {0};
	self.info.err = bt_jpeg_escape_init(&self.escape);
	if (setjmp(self.escape.target))
		return jpeg_reader_fail(&self, name, err);
	jpeg_reader_start(&self, data, size);
	char why[JMSG_LENGTH_MAX];
	if (!bt_jpeg_header_check(&self.info, max_pixels, why, sizeof(why)))
		bt_jpeg_escape_leave(&self.escape, "%s%s", why,
				     (uint64_t)self.info.image_width * self.info.image_height > max_pixels
					     ? "; --max-pixels=N allows more"
					     : "");
	if (!has_whole_samples(&self.info))
		bt_jpeg_escape_leave(&self.escape, "JPEG with samples of a fraction of a pixel is not supported");
	facts->width = self.info.image_width;
	facts->height = self.info.image_height;
	facts->colour = colour_of(&self.info);
	facts->orientation = orientation_of(&self);
	jpeg_destroy_decompress(&self.info);
	return BETON_OK;
}

int jpeg_check(const uint8_t *data, size_t size, const char *name, beton_jpeg_index **index, bool *partial,
	       beton_error *err)
{
	bt_jpeg_facts facts;
	beton_jpeg_index *made = index ? malloc(sizeof(*made) + BT_INDEX_BYTES_MAX) : NULL;
	if (index && !made)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	bt_index_request request = {.out = (uint8_t *)(made + 1)};
	int result = bt_jpeg_check(data, size, UINT64_MAX, made ? &request : NULL, &facts, err);
	if (result != BETON_OK) {
		free(made);
		bt_prefix(err, "%s", name);
		return result;
	}
	if (partial)
		*partial = facts.partial;
	if (made) {
		/* Samples wait for earlier ones, and an index takes few of these bytes. */
		beton_jpeg_index *fitted = realloc(made, sizeof(*made) + request.size);
		*index = fitted ? fitted : made;
		**index = (beton_jpeg_index){.data = *index + 1, .size = request.size};
	}
	return BETON_OK;
}

typedef struct rgb_decoder {
	jpeg_reader reader;
	uint8_t *row;
	rgb_image image;
} rgb_decoder;

static void read_rows(rgb_decoder *self, bool cmyk)
{
	struct jpeg_decompress_struct *info = &self->reader.info;
	while (info->output_scanline < info->output_height) {
		JSAMPROW to = self->image.data + (size_t)info->output_scanline * self->image.width * 3;
		JSAMPROW row = cmyk ? self->row : to;
		if (jpeg_read_scanlines(info, &row, 1) == 1 && cmyk)
			bt_cmyk_to_rgb(self->row, to, self->image.width);
	}
}

int jpeg_decode(const uint8_t *data, size_t size, uint32_t width, uint32_t height, const char *name, rgb_image *image,
		int *eighths, beton_error *err)
{
	rgb_decoder self = {.row = NULL};
	struct jpeg_decompress_struct *info = &self.reader.info;
	info->err = bt_jpeg_escape_init(&self.reader.escape);
	if (setjmp(self.reader.escape.target)) {
		free(self.row);
		free(self.image.data);
		return jpeg_reader_fail(&self.reader, name, err);
	}
	jpeg_reader_start(&self.reader, data, size);
	bool cmyk = colour_of(info) == JPEG_CMYK;
	info->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
	*eighths = jpeg_reader_set_scale(&self.reader, width, height);
	jpeg_calc_output_dimensions(info);
	int result = image_allocate(&self.image, info->output_width, info->output_height, name, err);
	if (result == BETON_OK && cmyk && !(self.row = malloc((size_t)info->output_width * 4)))
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	if (result == BETON_OK && !bt_rgb_decode_whole(info, self.image.data)) {
		jpeg_start_decompress(info);
		read_rows(&self, cmyk);
		jpeg_finish_decompress(info);
	}
	if (result == BETON_OK)
		*image = self.image;
	else
		free(self.image.data);
	jpeg_destroy_decompress(info);
	free(self.row);
	return result;
}
