/* SPDX-License-Identifier: Apache-2.0 */
#include "elements.h"

#include <math.h>
#include <string.h>

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

/* Whether vector units arrive at the tables' values. */
static bool computes(const bt_elements *elements)
{
	for (int c = 0; c < 3; c++) {
		float std = elements->std[c], inverse = elements->inverse[c];
		for (int byte = 0; byte < 256; byte++) {
			float x = (float)byte - elements->mean[c];
			float q = x * inverse;
			float value = fmaf(fmaf(-q, std, x), inverse, q);
			if (memcmp(&value, &elements->value[c][byte], sizeof(value)) != 0)
				return false;
		}
	}
	return true;
}

void bt_elements_init(bt_elements *elements, const beton_loader_options *options, const int channels[3])
{
	const beton_image_options *image = &options->image;
	elements->dtype = image->dtype;
	for (int i = 0; i < BT_LANES; i++) {
		int channel = channels[i % 3];
		elements->mean[i] = image->normalize ? image->mean[channel] : 0;
		elements->std[i] = image->normalize ? image->std[channel] : 1;
		elements->inverse[i] = 1 / elements->std[i];
	}
	for (int c = 0; c < 3; c++)
		for (int byte = 0; byte < 256; byte++) {
			float value = ((float)byte - elements->mean[c]) / elements->std[c];
			elements->value[c][byte] = value;
			if (image->dtype != BETON_FLOAT32)
				elements->value16[c][byte] =
					image->dtype == BETON_BFLOAT16 ? bt_bfloat16(value) : bt_float16(value);
		}
	elements->computable = computes(elements);
}
