/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the JPEG of a sample, from the decoder of the loader to an image of a batch. The first 8 bytes choose
 * crop and output. Where the whole picture can be decoded, so can the crop, and has the same samples. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/decode.h"
#include "loader/transform.h"

enum { CHOICES = 8, PIXELS_MAX = 1 << 22 };

/* What the metadata would say: the size in the frame header. False where there is none, or one that takes too long. */
static bool find_size(const uint8_t *bytes, size_t size, beton_value *value)
{
	for (size_t i = 0; i + 9 < size; i++)
		if (bytes[i] == 0xff && bytes[i + 1] >= 0xc0 && bytes[i + 1] <= 0xc2) {
			value->height = (uint32_t)bytes[i + 5] << 8 | bytes[i + 6];
			value->width = (uint32_t)bytes[i + 7] << 8 | bytes[i + 8];
			return value->width && value->height && value->width * (uint64_t)value->height <= PIXELS_MAX;
		}
	return false;
}

static void transform(const bt_picture *picture, const uint8_t *choices)
{
	bt_transformer transformer = {0};
	bt_image_format format;
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.image.width = 1 + choices[4] % 64;
	options.image.height = 1 + choices[5] % 64;
	options.image.dtype = choices[6] & 1 ? BETON_FLOAT32 : BETON_UINT8;
	options.image.layout = choices[6] & 2 ? BETON_NCHW : BETON_NHWC;
	bt_image_format_init(&format, &options);
	void *image = malloc(bt_image_format_bytes(&format));
	if (image)
		bt_transform(&transformer, picture, choices[6] & 4, &format, image, NULL);
	free(image);
	bt_transformer_free(&transformer);
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

static void decode(bt_decoder *decoder, const beton_value *value, const uint8_t *bytes, const bt_request *request,
		   const uint8_t *choices)
{
	bt_picture picture, whole;
	beton_error err = {0};
	int result = bt_decode(decoder, 5, value, bytes, request, &picture, &err);
	if (result != BETON_OK && (err.code != result || err.sample != 5 || !err.message[0]))
		abort();
	size_t size = 0;
	uint8_t *samples = NULL;
	if (result == BETON_OK)
		transform(&picture, choices);
	if (result == BETON_OK)
		samples = copy_planes(&picture, &size);
	bt_request all = {.pixels = request->pixels, .crop = {.width = value->width, .height = value->height}};
	if (!request->width && bt_decode(decoder, 5, value, bytes, &all, &whole, NULL) == BETON_OK &&
	    (result != BETON_OK || !samples || !is_part(&whole, samples, &picture, &request->crop)))
		abort();
	free(samples);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	beton_value value = {.type = BETON_FIELD_IMAGE, .mode = BETON_IMAGE_JPEG};
	if (size <= CHOICES || !find_size(data + CHOICES, size - CHOICES, &value))
		return 0;
	value.blob.size = size - CHOICES;
	bt_request request = {.pixels = (bt_pixels_wanted)(data[6] >> 3) % 3};
	if (data[6] & 0x80) {
		request.width = 1 + data[4] % 64;
		request.height = 1 + data[5] % 64;
	}
	bt_rect *crop = &request.crop;
	crop->width = 1 + data[0] * (value.width - 1) / 255;
	crop->height = 1 + data[1] * (value.height - 1) / 255;
	crop->x = data[2] * (value.width - crop->width) / 255;
	crop->y = data[3] * (value.height - crop->height) / 255;
	bt_decoder *decoder;
	if (bt_decoder_open(&decoder, NULL, NULL) != BETON_OK)
		return 0;
	/* Twice: what a failure leaves in the decoder must not matter. */
	for (int i = 0; i < 2; i++)
		decode(decoder, &value, data + CHOICES, &request, data);
	bt_decoder_close(&decoder);
	return 0;
}
