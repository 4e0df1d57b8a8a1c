/* SPDX-License-Identifier: Apache-2.0 */
#include "elements.h"

#include <math.h>
#include <string.h>

#include "common/half.h"

/* Whether vector units compute exactly the tables' values. */
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
