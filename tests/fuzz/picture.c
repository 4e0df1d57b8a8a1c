/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a picture file of beton-write, of each kind that it reads. What is stored has the size that it says, and
 * the same bytes give the same. A JPEG is rewritten from symbol to symbol only if libjpeg takes it for good, and to the
 * bytes that its coefficients give. And the same bytes as a raster. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "tools/beton-write/images/image_convert.h"
#include "tools/beton-write/images/jpeg.h"
#include "tools/beton-write/images/jpeg_rewrite.h"
#include "tools/beton-write/images/raster.h"

enum { PIXELS_MAX = 1 << 18, RASTER_PIXELS_MAX = 1 << 12 };

static int convert(const uint8_t *data, size_t size, stored_image *out)
{
	beton_error err = {0};
	image_settings settings;
	image_settings_init(&settings);
	settings.max_pixels = PIXELS_MAX;
	file_bytes file = {malloc(size ? size : 1), size};
	if (!file.data)
		abort();
	if (size)
		memcpy(file.data, data, size);
	int result = image_convert(&file, "picture", &settings, out, &err);
	free(file.data);
	if (result != BETON_OK && (err.code != result || !err.message[0] || out->data))
		abort();
	return result;
}

static void check_rewriting(const uint8_t *data, size_t size)
{
	beton_error err;
	jpeg_facts facts;
	uint8_t *one, *other;
	size_t one_size, other_size;
	if (jpeg_inspect(data, size, PIXELS_MAX, "picture", &facts, &err) != BETON_OK)
		return;
	if (jpeg_rewrite_symbols(data, size, "picture", &one, &one_size, &err) != BETON_OK)
		abort();
	if (!one)
		return;
	if (jpeg_rewrite_coefficients(data, size, "picture", &other, &other_size, &err) != BETON_OK || !other ||
	    one_size != other_size || memcmp(one, other, one_size) != 0)
		abort();
	free(one);
	free(other);
}

/* As a raster: the facts alone agree with the samples, which come again, in the announced number. */
static void check_raster(const uint8_t *data, size_t size)
{
	raster_image images[3];
	int results[3];
	for (int i = 0; i < 3; i++) {
		beton_error err = {0};
		const raster_request request = {
			.name = "raster", .max_pixels = RASTER_PIXELS_MAX, .facts_only = i == 0};
		file_bytes file = {malloc(size ? size : 1), size};
		if (!file.data)
			abort();
		if (size)
			memcpy(file.data, data, size);
		results[i] = raster_read(&file, &request, &images[i], &err);
		free(file.data);
		if (results[i] != BETON_OK && (err.code != results[i] || !err.message[0] || images[i].data))
			abort();
	}
	const raster_image *facts = &images[0], *one = &images[1];
	size_t bytes = (size_t)one->width * one->height * one->type.channels * one->type.item_size;
	if (results[1] != results[2] || (results[1] == BETON_OK && results[0] != BETON_OK) || facts->data)
		abort();
	if (results[1] == BETON_OK &&
	    (facts->width != one->width || facts->height != one->height || facts->type.channels != one->type.channels ||
	     facts->type.item_size != one->type.item_size || one->type.channels < 1 ||
	     one->type.channels > BETON_CHANNELS_MAX || memcmp(one->data, images[2].data, bytes) != 0))
		abort();
	free(images[1].data);
	free(images[2].data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_rewriting(data, size);
	check_raster(data, size);
	stored_image one, other;
	int result = convert(data, size, &one);
	if (result != convert(data, size, &other))
		abort();
	if (result != BETON_OK)
		return 0;
	bool raw = one.mode == BETON_IMAGE_RAW;
	if (one.size != other.size || memcmp(one.data, other.data, one.size) != 0 ||
	    (raw && one.size != (size_t)one.width * one.height * 3) || (uint64_t)one.width * one.height > PIXELS_MAX)
		abort();
	free(one.data);
	free(other.data);
	return 0;
}
