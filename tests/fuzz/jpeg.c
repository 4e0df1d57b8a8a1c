/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the JPEG of a sample, from the decoder of the loader to an image of a batch. The first 8 bytes choose
 * crop and output. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	beton_value value = {.type = BETON_FIELD_IMAGE, .mode = BETON_IMAGE_JPEG};
	if (size <= CHOICES || !find_size(data + CHOICES, size - CHOICES, &value))
		return 0;
	value.blob.size = size - CHOICES;
	bt_request request = {.width = 1 + data[4] % 64, .height = 1 + data[5] % 64};
	bt_rect crop = {.width = 1 + data[0] * (value.width - 1) / 255,
			.height = 1 + data[1] * (value.height - 1) / 255};
	crop.x = data[2] * (value.width - crop.width) / 255;
	crop.y = data[3] * (value.height - crop.height) / 255;
	request.crop = crop;
	bt_decoder *decoder;
	if (bt_decoder_open(&decoder, NULL) != BETON_OK)
		return 0;
	/* Twice: what a failure leaves in the decoder must not matter. */
	for (int i = 0; i < 2; i++) {
		bt_picture picture;
		beton_error err = {0};
		int result = bt_decode(decoder, 5, &value, data + CHOICES, &request, &picture, &err);
		if (result == BETON_OK)
			transform(&picture, data);
		else if (err.code != result || err.sample != 5 || !err.message[0])
			abort();
	}
	bt_decoder_close(&decoder);
	return 0;
}
