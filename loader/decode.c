/* SPDX-License-Identifier: Apache-2.0 */
#include "decode.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "buffer.h"
#include "common/error.h"
#include "common/jpeg.h"

/* Columns that are decoded beside a crop. */
enum { MARGIN = 8 };

struct bt_decoder {
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr errors;
	struct jpeg_progress_mgr progress;
	jmp_buf failed;
	bool created;
	int code; /* of the failure */
	char message[JMSG_LENGTH_MAX];
	bt_buffer pixels;
};

static void fail_jump(j_common_ptr jpeg)
{
	bt_decoder *decoder = jpeg->client_data;
	decoder->code = jpeg->err->msg_code == JERR_OUT_OF_MEMORY ? BETON_NO_MEMORY : BETON_SAMPLE_CORRUPT;
	jpeg->err->format_message(jpeg, decoder->message);
	longjmp(decoder->failed, 1);
}

static void fail_on_warning(j_common_ptr jpeg, int level)
{
	if (level < 0)
		fail_jump(jpeg);
}

static void limit_scans(j_common_ptr jpeg)
{
	bt_decoder *decoder = jpeg->client_data;
	if (decoder->jpeg.input_scan_number <= BT_JPEG_SCANS_MAX)
		return;
	decoder->code = BETON_SAMPLE_CORRUPT;
	snprintf(decoder->message, sizeof(decoder->message), "more than %d scans", BT_JPEG_SCANS_MAX);
	longjmp(decoder->failed, 1);
}

int bt_decoder_open(bt_decoder **out, beton_error *err)
{
	bt_decoder *decoder = calloc(1, sizeof(*decoder));
	*out = decoder;
	if (!decoder)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a JPEG decoder");
	decoder->jpeg.err = jpeg_std_error(&decoder->errors);
	decoder->jpeg.client_data = decoder;
	decoder->errors.error_exit = fail_jump;
	decoder->errors.emit_message = fail_on_warning;
	if (setjmp(decoder->failed)) {
		int code = bt_fail(err, BETON_NO_MEMORY, "cannot make a JPEG decoder: %s", decoder->message);
		bt_decoder_close(out);
		return code;
	}
	jpeg_create_decompress(&decoder->jpeg);
	decoder->created = true;
	decoder->progress.progress_monitor = limit_scans;
	decoder->jpeg.progress = &decoder->progress;
	return BETON_OK;
}

void bt_decoder_close(bt_decoder **decoder)
{
	if (!*decoder)
		return;
	if ((*decoder)->created)
		jpeg_destroy_decompress(&(*decoder)->jpeg);
	bt_buffer_free(&(*decoder)->pixels);
	free(*decoder);
	*decoder = NULL;
}

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

static void set_rgb(bt_picture *out, const uint8_t *data, size_t stride, uint32_t width, uint32_t height)
{
	out->colour = BT_RGB;
	out->planes[0] = (bt_plane){.data = data,
				    .stride = stride,
				    .width = width,
				    .height = height,
				    .channels = 3,
				    .box_width = width,
				    .box_height = height};
}

/* Leaves by longjmp on any fault. */
static void decode_jpeg(bt_decoder *decoder, const beton_value *value, const uint8_t *bytes, const bt_rect *crop,
			bt_picture *out)
{
	j_decompress_ptr jpeg = &decoder->jpeg;
	jpeg_mem_src(jpeg, bytes, (unsigned long)value->blob.size);
	jpeg_read_header(jpeg, TRUE);
	if (jpeg->image_width != value->width || jpeg->image_height != value->height) {
		decoder->code = BETON_SAMPLE_CORRUPT;
		snprintf(decoder->message, sizeof(decoder->message), "it has %u x %u pixels, its metadata says %u x %u",
			 jpeg->image_width, jpeg->image_height, value->width, value->height);
		longjmp(decoder->failed, 1);
	}
	jpeg->out_color_space = jpeg->num_components == 4 ? JCS_CMYK : JCS_RGB;
	/* The accurate DCT, with the library's defaults otherwise: with SIMD it costs a few percent more than the fast
	 * one, and gives the pixels that Pillow, OpenCV and torchvision give. */
	jpeg->dct_method = JDCT_ISLOW;
	jpeg_start_decompress(jpeg);
	uint32_t first = choose_columns(jpeg, crop);
	size_t stride = (size_t)jpeg->output_width * (size_t)jpeg->output_components;
	uint8_t *pixels = bt_buffer_reserve(&decoder->pixels, stride * crop->height);
	if (!pixels)
		ERREXIT1(jpeg, JERR_OUT_OF_MEMORY, 0);
	if (crop->y > 0 && jpeg_skip_scanlines(jpeg, crop->y) != crop->y)
		ERREXIT(jpeg, JERR_INPUT_EOF);
	for (uint32_t row = 0; row < crop->height; row++) {
		JSAMPROW at = pixels + row * stride;
		jpeg_read_scanlines(jpeg, &at, 1);
		if (jpeg->out_color_space == JCS_CMYK)
			bt_cmyk_to_rgb(at, at, jpeg->output_width);
	}
	if (jpeg->output_scanline == jpeg->output_height)
		jpeg_finish_decompress(jpeg);
	else
		jpeg_abort_decompress(jpeg);
	set_rgb(out, pixels + (size_t)(crop->x - first) * 3, stride, crop->width, crop->height);
}

int bt_decode(bt_decoder *decoder, int64_t sample, const beton_value *value, const uint8_t *bytes,
	      const bt_request *request, bt_picture *out, beton_error *err)
{
	const bt_rect *crop = &request->crop;
	uint64_t pixels = (uint64_t)value->width * value->height;
	if (pixels == 0 || pixels > BT_IMAGE_PIXELS_MAX)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, sample,
				      "sample %lld: an image of %u x %u pixels; the limit is %llu pixels in all",
				      (long long)sample, value->width, value->height,
				      (unsigned long long)BT_IMAGE_PIXELS_MAX);
	if (value->mode == BETON_IMAGE_RAW) {
		if (value->blob.size != pixels * 3)
			return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, sample,
					      "sample %lld: a raw image of %u x %u pixels with %llu bytes",
					      (long long)sample, value->width, value->height,
					      (unsigned long long)value->blob.size);
		size_t stride = (size_t)value->width * 3;
		set_rgb(out, bytes + crop->y * stride + (size_t)crop->x * 3, stride, crop->width, crop->height);
		return BETON_OK;
	}
	if (setjmp(decoder->failed)) {
		jpeg_abort_decompress(&decoder->jpeg);
		return bt_fail_sample(err, decoder->code, sample, "sample %lld: its JPEG cannot be decoded: %s",
				      (long long)sample, decoder->message);
	}
	decode_jpeg(decoder, value, bytes, crop, out);
	return BETON_OK;
}
