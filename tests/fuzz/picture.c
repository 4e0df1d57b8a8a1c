/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a picture file of beton-write, of each kind that it reads. What is stored has the size that it says, and
 * the same bytes give the same. A JPEG is rewritten from symbol to symbol only if libjpeg takes it for good, and to the
 * bytes that its coefficients give. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "tools/beton-write/image.h"
#include "tools/beton-write/jpeg.h"
#include "tools/beton-write/jpeg_rewrite.h"

enum { PIXELS_MAX = 1 << 18 };

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_rewriting(data, size);
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
