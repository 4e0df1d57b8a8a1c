/* SPDX-License-Identifier: Apache-2.0 */
#include "decode.h"

#include <stdlib.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "common/jpeg_header.h"
#include "decode_segments.h"
#include "decode_state.h"

int bt_decoder_open(bt_decoder **out, uint64_t max_pixels, bt_budget *budget, beton_error *err)
{
	bt_decoder *decoder = calloc(1, sizeof(*decoder));
	*out = decoder;
	if (!decoder)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a JPEG decoder");
	decoder->max_pixels = max_pixels;
	decoder->budget = decoder->cut.budget = decoder->pixels.budget = budget;
	decoder->jpeg.err = bt_jpeg_escape_init(&decoder->escape);
	decoder->scan = bt_scan_new();
	if (decoder->scan)
		return BETON_OK;
	bt_decoder_close(out);
	return bt_fail(err, BETON_NO_MEMORY, "out of memory for a JPEG decoder");
}

void bt_decoder_close(bt_decoder **decoder)
{
	if (!*decoder)
		return;
	bt_buffer_free(&(*decoder)->cut);
	bt_buffer_free(&(*decoder)->pixels);
	bt_scan_free((*decoder)->scan);
	free(*decoder);
	*decoder = NULL;
}

void bt_decoder_read_header(bt_decoder *decoder, const uint8_t *bytes, size_t size)
{
	jpeg_mem_src(&decoder->jpeg, bytes, (unsigned long)size);
	jpeg_read_header(&decoder->jpeg, TRUE);
}

bt_rect bt_decoder_cut(bt_decoder *decoder, const uint8_t *bytes, size_t size, const bt_rect *needed)
{
	j_decompress_ptr jpeg = &decoder->jpeg;
	bt_rect whole = {.width = jpeg->image_width, .height = jpeg->image_height};
	bool no_memory = false;
	bt_cut cut;
	if (!bt_segments_cut(jpeg, bytes, size, needed, &decoder->cut, &cut, &no_memory)) {
		if (no_memory)
			bt_jpeg_escape_leave_no_memory(&decoder->escape);
		return whole;
	}
	jpeg_abort_decompress(jpeg);
	bt_decoder_read_header(decoder, cut.bytes, cut.size);
	if (jpeg->image_width == cut.area.width && jpeg->image_height == cut.area.height)
		return cut.area;
	/* The library found another header in the original than bt_segments_cut did. */
	jpeg_abort_decompress(jpeg);
	bt_decoder_read_header(decoder, bytes, size);
	return whole;
}

void bt_decoder_finish(bt_decoder *decoder)
{
	j_decompress_ptr jpeg = &decoder->jpeg;
	if (jpeg->output_scanline >= jpeg->output_height)
		jpeg_finish_decompress(jpeg);
	else
		jpeg_abort_decompress(jpeg);
}

void bt_picture_set_pixels(bt_picture *out, const uint8_t *data, size_t stride, uint32_t width, uint32_t height,
			   uint32_t channels)
{
	out->colour = channels == 1 ? BT_GREY : BT_RGB;
	out->planes[0] = (bt_plane){.data = data,
				    .stride = stride,
				    .width = width,
				    .height = height,
				    .channels = channels,
				    .box_width = width,
				    .box_height = height};
}

/* Books the memory of all coefficients, which a progressive JPEG needs. */
static void book_coefficients(bt_decoder *decoder)
{
	j_decompress_ptr jpeg = &decoder->jpeg;
	size_t blocks = 0;
	for (int i = 0; i < jpeg->num_components && jpeg_has_multiple_scans(jpeg); i++)
		blocks += (size_t)jpeg->comp_info[i].width_in_blocks * jpeg->comp_info[i].height_in_blocks;
	if (!bt_budget_take(decoder->budget, blocks * sizeof(JBLOCK)))
		bt_jpeg_escape_leave_no_memory(&decoder->escape);
	decoder->booked = blocks * sizeof(JBLOCK);
}

static void decode_jpeg(bt_decoder *decoder, const beton_value *value, const uint8_t *bytes, const bt_request *request,
			bt_picture *out)
{
	struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
	size_t size = value->blob.size;
	/* A decompressor keeps the tables that it has read. A new one for each picture costs less than a microsecond,
	 * and cannot decode a picture with another's tables. */
	bt_jpeg_escape_open_decoder(&decoder->escape, jpeg);
	bt_decoder_read_header(decoder, bytes, size);
	if (jpeg->image_width != value->width || jpeg->image_height != value->height)
		bt_jpeg_escape_leave(&decoder->escape, "it has %u x %u pixels, its metadata says %u x %u",
				     jpeg->image_width, jpeg->image_height, value->width, value->height);
	char why[JMSG_LENGTH_MAX];
	if (!bt_jpeg_header_check(jpeg, decoder->max_pixels, why, sizeof(why)))
		bt_jpeg_escape_leave(&decoder->escape, "%s", why);
	book_coefficients(decoder);
	if (bt_request_uses_planes(request) && bt_planes_possible(jpeg))
		bt_decode_planes(decoder, bytes, size, request, out);
	else
		bt_decode_pixels(decoder, bytes, size, request, out);
}

int bt_decode_check(int64_t sample, const beton_value *value, uint64_t max_pixels, beton_error *err)
{
	uint64_t pixels = (uint64_t)value->width * value->height;
	if (pixels == 0)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, sample, "sample %lld: an image of %u x %u pixels",
				      (long long)sample, value->width, value->height);
	if (bt_form_of(value->type) == BT_FORM_RASTER) /* the reader has compared its size with its bytes */
		return BETON_OK;
	if (value->mode == BETON_IMAGE_RAW && value->blob.size != pixels * 3)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, sample,
				      "sample %lld: a raw image of %u x %u pixels with %llu bytes", (long long)sample,
				      value->width, value->height, (unsigned long long)value->blob.size);
	if (value->mode != BETON_IMAGE_RAW && pixels > max_pixels)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, sample,
				      "sample %lld: its JPEG has %u x %u pixels, more than max_pixels (%llu)",
				      (long long)sample, value->width, value->height, (unsigned long long)max_pixels);
	return BETON_OK;
}

static int view_raw(bt_decoder *decoder, int64_t sample, const beton_value *value, const uint8_t *bytes,
		    const bt_request *request, bt_picture *out, beton_error *err)
{
	const bt_rect *crop = &request->crop;
	size_t stride = (size_t)value->width * 3;
	bytes += crop->y * stride + (size_t)crop->x * 3;
	if (!request->grey) {
		bt_picture_set_pixels(out, bytes, stride, crop->width, crop->height, 3);
		return BETON_OK;
	}
	uint8_t *pixels = bt_buffer_reserve(&decoder->pixels, (size_t)crop->width * crop->height);
	if (!pixels)
		return bt_fail_sample(err, BETON_NO_MEMORY, sample, "sample %lld: out of memory for %u x %u pixels",
				      (long long)sample, crop->width, crop->height);
	for (size_t y = 0; y < crop->height; y++)
		bt_grey(bytes + y * stride, crop->width, bt_request_weights(request), pixels + y * crop->width);
	bt_picture_set_pixels(out, pixels, crop->width, crop->width, crop->height, 1);
	return BETON_OK;
}

static void give_coefficients(bt_decoder *decoder)
{
	bt_budget_give(decoder->budget, decoder->booked);
	decoder->booked = 0;
}

int bt_decode(bt_decoder *decoder, int64_t sample, const beton_value *value, const uint8_t *bytes,
	      const bt_request *request, bt_picture *out, beton_error *err)
{
	int result = bt_decode_check(sample, value, UINT64_MAX, err);
	if (result)
		return result;
	if (value->mode == BETON_IMAGE_RAW)
		return view_raw(decoder, sample, value, bytes, request, out, err);
	if (setjmp(decoder->escape.target)) {
		jpeg_destroy_decompress(&decoder->jpeg);
		give_coefficients(decoder);
		return bt_fail_sample(err, decoder->escape.code, sample, "sample %lld: its JPEG cannot be decoded: %s",
				      (long long)sample, decoder->escape.message);
	}
	decode_jpeg(decoder, value, bytes, request, out);
	jpeg_destroy_decompress(&decoder->jpeg);
	give_coefficients(decoder);
	return BETON_OK;
}
