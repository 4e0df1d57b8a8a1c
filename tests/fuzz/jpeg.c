/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the JPEG of a sample, from the decoder of the loader to an image of a batch. The first 8 bytes choose
 * crop and output. If the last of them is odd, the length of another JPEG follows (4 bytes, little-endian) and then
 * that JPEG, which the decoder gets first. Fault, samples and image must equal a new decoder's, and libjpeg's alone,
 * which may find faults beside the crop as well. Where the whole picture can be decoded, so can the crop, and has the
 * same samples. RGB of the whole picture, at a size that the first byte chooses, is libjpeg's. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/pixels/decode_state.h"
#include "loader/pixels/transform.h"
#include "tests/support/rgb_pair.h"

enum { CHOICES = 8, LENGTH = 4, PIXELS_MAX = 1 << 22 };

/* Sequential and progressive frames, with either entropy coding. */
static bool is_frame(uint8_t marker)
{
	return (marker >= 0xc0 && marker <= 0xc2) || marker == 0xc9 || marker == 0xca;
}

/* The metadata's size: the size in the frame header. False without one, or if it takes too long. */
static bool find_size(const uint8_t *bytes, size_t size, beton_value *value)
{
	for (size_t i = 0; i + 9 < size; i++)
		if (bytes[i] == 0xff && is_frame(bytes[i + 1])) {
			value->height = (uint32_t)bytes[i + 5] << 8 | bytes[i + 6];
			value->width = (uint32_t)bytes[i + 7] << 8 | bytes[i + 8];
			return value->width && value->height && value->width * (uint64_t)value->height <= PIXELS_MAX;
		}
	return false;
}

static bool is_grey(const uint8_t *choices)
{
	return choices[7] & 2;
}

/* The picture as an image of a batch, in memory of exactly its size. */
static uint8_t *transform(const bt_picture *picture, const uint8_t *choices, size_t *size)
{
	bt_transformer transformer = {0};
	bt_image_format format;
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.image.width = 1 + choices[4] % 64;
	options.image.height = 1 + choices[5] % 64;
	options.image.dtype = choices[6] & 1 ? BETON_FLOAT32 : BETON_UINT8;
	options.image.layout = choices[6] & 2 ? BETON_NCHW : BETON_NHWC;
	options.image.color = is_grey(choices) ? BETON_COLOR_GREY : BETON_COLOR_RGB;
	bt_image_format_init(&format, &options);
	*size = bt_image_format_bytes(&format);
	uint8_t *image = malloc(*size);
	if (image)
		bt_transform(&transformer, picture, choices[6] & 4, NULL, &format, image, NULL);
	bt_transformer_free(&transformer);
	return image;
}

/* The planes' samples around the crop, in memory of exactly their size. */
static uint8_t *copy_planes(const bt_picture *picture, size_t *size)
{
	*size = 0;
	for (int i = 0; i < (picture->colour == BT_YCC ? 3 : 1); i++)
		*size += (size_t)picture->planes[i].width * picture->planes[i].height * picture->planes[i].channels;
	uint8_t *out = malloc(*size), *at = out;
	for (int i = 0; out && i < (picture->colour == BT_YCC ? 3 : 1); i++) {
		const bt_plane *plane = &picture->planes[i];
		for (size_t y = 0; y < plane->height; y++, at += (size_t)plane->width * plane->channels)
			memcpy(at, plane->data + y * plane->stride, (size_t)plane->width * plane->channels);
	}
	return out;
}

/* The samples of a part, as they stand in the whole picture. */
static bool is_part(const bt_picture *whole, const uint8_t *part_samples, const bt_picture *part, const bt_rect *crop)
{
	for (int i = 0; i < (part->colour == BT_YCC ? 3 : 1); i++) {
		const bt_plane *from = &whole->planes[i], *plane = &part->planes[i];
		size_t x = (size_t)(crop->x * (plane->box_width / crop->width) - plane->x + 0.5);
		size_t y = (size_t)(crop->y * (plane->box_height / crop->height) - plane->y + 0.5);
		size_t bytes = (size_t)plane->width * plane->channels;
		for (size_t row = 0; row < plane->height; row++, part_samples += bytes)
			if (memcmp(from->data + (y + row) * from->stride + x * from->channels, part_samples, bytes))
				return false;
	}
	return true;
}

/* A sample that is to be decoded, and how. */
typedef struct job {
	beton_value value;
	const uint8_t *bytes;
	bt_request request;
	const uint8_t *choices;
} job;

/* The result of a decode. */
typedef struct outcome {
	int result;
	beton_error err;
	bt_picture picture; /* without its memory */
	uint8_t *samples;
	size_t samples_size;
	uint8_t *image;
	size_t image_size;
} outcome;

/* False: there is nothing that could be decoded in a fuzzer's time. */
static bool make_job(job *out, const uint8_t *bytes, size_t size, const uint8_t *choices)
{
	*out = (job){.value = {.type = BETON_FIELD_IMAGE, .mode = BETON_IMAGE_JPEG, .blob.size = size},
		     .bytes = bytes,
		     .request = {.pixels = (bt_pixels_wanted)(choices[6] >> 3) % 3, .grey = is_grey(choices)},
		     .choices = choices};
	if (!find_size(bytes, size, &out->value))
		return false;
	bt_rect *crop = &out->request.crop;
	crop->width = 1 + choices[0] * (out->value.width - 1) / 255;
	crop->height = 1 + choices[1] * (out->value.height - 1) / 255;
	crop->x = choices[2] * (out->value.width - crop->width) / 255;
	crop->y = choices[3] * (out->value.height - crop->height) / 255;
	uint32_t least = crop->width < crop->height ? crop->width : crop->height;
	uint32_t most = choices[6] & 0x80 ? 1u << choices[4] % 4 : 1;
	for (out->request.shrink = 1; 2 * out->request.shrink <= least && out->request.shrink < most;)
		out->request.shrink *= 2;
	return true;
}

static outcome decode(bt_decoder *decoder, const job *one)
{
	outcome out = {0};
	out.result = bt_decode(decoder, 5, &one->value, one->bytes, &one->request, &out.picture, &out.err);
	if (out.result == BETON_OK) {
		out.samples = copy_planes(&out.picture, &out.samples_size);
		out.image = transform(&out.picture, one->choices, &out.image_size);
	} else if (out.err.code != out.result || out.err.sample != 5 || !out.err.message[0]) {
		abort();
	}
	return out;
}

static void free_outcome(outcome *out)
{
	free(out->samples);
	free(out->image);
}

static bool is_same(const outcome *a, const outcome *b)
{
	if (a->result != BETON_OK)
		return a->result == b->result && strcmp(a->err.message, b->err.message) == 0;
	return b->result == BETON_OK && a->samples_size == b->samples_size && a->image_size == b->image_size &&
	       (!a->samples || !b->samples || memcmp(a->samples, b->samples, a->samples_size) == 0) &&
	       (!a->image || !b->image || memcmp(a->image, b->image, a->image_size) == 0);
}

static void check_whole(bt_decoder *decoder, const job *one, const outcome *part)
{
	bt_picture whole;
	bt_request all = {.pixels = one->request.pixels,
			  .grey = one->request.grey,
			  .crop = {.width = one->value.width, .height = one->value.height}};
	if (one->request.shrink == 1 &&
	    bt_decode(decoder, 5, &one->value, one->bytes, &all, &whole, NULL) == BETON_OK &&
	    (part->result != BETON_OK || !part->samples ||
	     !is_part(&whole, part->samples, &part->picture, &one->request.crop)))
		abort();
}

static bt_decoder *open_decoder(void)
{
	bt_decoder *decoder;
	if (bt_decoder_open(&decoder, PIXELS_MAX, NULL, NULL) != BETON_OK)
		abort();
	return decoder;
}

/* The whole picture, and the crop, as libjpeg alone decodes them. */
static void check_library(bt_decoder *decoder, const job *one)
{
	bt_decoder *library = open_decoder();
	bt_scan_free(library->scan);
	library->scan = NULL;
	job all = *one;
	all.request.crop = (bt_rect){.width = one->value.width, .height = one->value.height};
	for (int i = 0; i < 2; i++) {
		const job *wanted = i ? one : &all;
		outcome expected = decode(library, wanted), got = decode(decoder, wanted);
		if ((expected.result == BETON_OK || wanted == &all) && !is_same(&expected, &got))
			abort();
		free_outcome(&expected);
		free_outcome(&got);
	}
	bt_decoder_close(&library);
}

/* Takes the JPEG that is decoded first from the beginning of *data, if there is one. */
static size_t take_first(const uint8_t **data, size_t *size)
{
	if (*size < LENGTH)
		return 0;
	const uint8_t *from = *data;
	size_t length = from[0] | (size_t)from[1] << 8 | (size_t)from[2] << 16 | (size_t)from[3] << 24;
	*size -= LENGTH;
	length = length < *size ? length : *size;
	*data += LENGTH + length;
	*size -= length;
	return length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size <= CHOICES)
		return 0;
	const uint8_t *bytes = data + CHOICES;
	size_t left = size - CHOICES, first_size = data[7] & 1 ? take_first(&bytes, &left) : 0;
	if (compare_rgb(bytes, left, 1U << (data[0] & 3), PIXELS_MAX) == RGB_DIFFERS)
		abort();
	job first, one;
	if (!make_job(&one, bytes, left, data))
		return 0;
	bt_decoder *used = open_decoder(), *fresh = open_decoder();
	outcome expected = decode(fresh, &one);
	if (make_job(&first, bytes - first_size, first_size, data)) {
		outcome before = decode(used, &first);
		free_outcome(&before);
	}
	/* Twice: what a failure leaves in the decoder must not matter either. */
	for (int i = 0; i < 2; i++) {
		outcome got = decode(used, &one);
		if (!is_same(&got, &expected))
			abort();
		check_whole(used, &one, &got);
		free_outcome(&got);
	}
	check_library(used, &one);
	free_outcome(&expected);
	bt_decoder_close(&used);
	bt_decoder_close(&fresh);
	return 0;
}
