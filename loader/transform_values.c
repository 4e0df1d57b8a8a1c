/* SPDX-License-Identifier: Apache-2.0
 *
 * The elements that stand for bytes. */
#include <math.h>
#include <string.h>

#include "transform.h"

uint16_t bt_bfloat16(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t bt_float16(float value)
{
	uint16_t sign = signbit(value) ? 0x8000 : 0;
	double size = fabs((double)value);
	if (size >= 65520) /* half way from the largest to the next power of two: even is infinity */
		return sign | 0x7c00;
	/* Below 2^-14 the step stays the same; a mantissa that rounds up to a power of two carries into the exponent.
	 */
	int exponent;
	frexp(size, &exponent);
	exponent = exponent < -13 || size == 0 ? -13 : exponent;
	uint32_t steps = (uint32_t)nearbyint(ldexp(size, 11 - exponent));
	return (uint16_t)(sign | (((uint32_t)(exponent + 13) << 10) + steps));
}

void bt_image_format_init(bt_image_format *format, const beton_loader_options *options)
{
	const beton_image_options *image = &options->image;
	format->height = image->height;
	format->width = image->width;
	format->filter = image->filter;
	format->dtype = image->dtype;
	format->layout = image->layout;
	/* A pixel has 256 values: a table holds each one's exact quotient, and a look-up costs less than a division. */
	for (int c = 0; c < 3; c++)
		for (int byte = 0; byte < 256; byte++) {
			float value = image->normalize ? ((float)byte - image->mean[c]) / image->std[c] : (float)byte;
			format->value[c][byte] = value;
			format->value16[c][byte] =
				image->dtype == BETON_BFLOAT16 ? bt_bfloat16(value) : bt_float16(value);
		}
}

size_t bt_image_format_bytes(const bt_image_format *format)
{
	size_t element = format->dtype == BETON_UINT8 ? 1 : format->dtype == BETON_FLOAT32 ? 4 : 2;
	return (size_t)format->height * format->width * 3 * element;
}
