/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops.h"

/* One random byte selects one noise value: quantiles (i + 128.5) / 256 of the normal distribution, scaled so that all
 * 256 values, with both signs, have the variance 1. */
static const float QUANTILES[128] = {
	0.0049f, 0.0147f, 0.0245f, 0.0344f, 0.0442f, 0.0540f, 0.0638f, 0.0737f, 0.0835f, 0.0934f, 0.1033f, 0.1131f,
	0.1230f, 0.1329f, 0.1428f, 0.1527f, 0.1627f, 0.1726f, 0.1826f, 0.1926f, 0.2026f, 0.2126f, 0.2227f, 0.2328f,
	0.2429f, 0.2530f, 0.2631f, 0.2733f, 0.2835f, 0.2937f, 0.3040f, 0.3143f, 0.3246f, 0.3350f, 0.3454f, 0.3558f,
	0.3663f, 0.3768f, 0.3873f, 0.3979f, 0.4086f, 0.4193f, 0.4300f, 0.4408f, 0.4516f, 0.4625f, 0.4735f, 0.4845f,
	0.4955f, 0.5067f, 0.5179f, 0.5291f, 0.5404f, 0.5518f, 0.5633f, 0.5748f, 0.5864f, 0.5981f, 0.6099f, 0.6217f,
	0.6337f, 0.6457f, 0.6578f, 0.6700f, 0.6824f, 0.6948f, 0.7073f, 0.7200f, 0.7327f, 0.7456f, 0.7586f, 0.7718f,
	0.7850f, 0.7984f, 0.8120f, 0.8257f, 0.8396f, 0.8536f, 0.8678f, 0.8821f, 0.8967f, 0.9114f, 0.9264f, 0.9415f,
	0.9569f, 0.9725f, 0.9883f, 1.0044f, 1.0207f, 1.0374f, 1.0543f, 1.0715f, 1.0890f, 1.1069f, 1.1252f, 1.1438f,
	1.1628f, 1.1823f, 1.2022f, 1.2226f, 1.2435f, 1.2649f, 1.2870f, 1.3097f, 1.3331f, 1.3573f, 1.3822f, 1.4081f,
	1.4349f, 1.4628f, 1.4919f, 1.5223f, 1.5541f, 1.5876f, 1.6230f, 1.6605f, 1.7005f, 1.7434f, 1.7898f, 1.8403f,
	1.8960f, 1.9582f, 2.0291f, 2.1119f, 2.2121f, 2.3411f, 2.5268f, 2.8929f,
};

static void make_table(uint8_t table[256], float mean, float std)
{
	for (int i = 0; i < 256; i++) {
		float normal = i < 128 ? -QUANTILES[127 - i] : QUANTILES[i - 128];
		float value = nearbyintf(mean + std * normal);
		table[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
	}
}

void bt_op_noise(const bt_image *image, bt_rect rect, const float mean[3], const float std[3], bt_random *random)
{
	uint8_t tables[3][256];
	uint32_t channels = image->pixel_bytes;
	for (uint32_t c = 0; c < channels; c++)
		make_table(tables[c], mean[c], std[c]);
	uint64_t bits = 0;
	int left = 0;
	for (uint32_t y = rect.y; y < rect.y + rect.height; y++) {
		uint8_t *row = image->data + ((size_t)y * image->width + rect.x) * channels;
		for (uint32_t i = 0; i < channels * rect.width; i++) {
			if (left == 0) {
				bits = bt_random_bits(random);
				left = 8;
			}
			row[i] = tables[i % channels][bits & 255];
			bits >>= 8;
			left--;
		}
	}
}
