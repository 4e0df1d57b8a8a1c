/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of rgb.h in plain C, which the compiler makes vectors of. TARGET is the instruction set's attribute.
 */

/* T.871, with 16 bits of fraction, as libjpeg has it. */
enum {
	CR_TO_R = 91881,
	CB_TO_B = 116130,
	CB_TO_G = -22554,
	CR_TO_G = -46802,
	HALF = 1 << 15,
	CENTRE = 128,
};

static inline TARGET uint8_t clamp(int32_t value)
{
	return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static TARGET void add(const uint8_t *restrict near, const uint8_t *restrict far, uint32_t count,
		       uint16_t *restrict sums)
{
	for (uint32_t i = 0; i < count; i++)
		sums[i] = (uint16_t)(near[i] * 3 + far[i]);
}

static TARGET void spread(const uint16_t *restrict sums, uint32_t count, const uint16_t bias[2], uint8_t *restrict out)
{
	uint16_t left_bias = bias[0], right_bias = bias[1];
	for (uint32_t i = 0; i < count; i++) {
		const uint16_t *sum = sums + i;
		out[2 * i] = (uint8_t)((uint16_t)(sum[0] * 3 + sum[-1] + left_bias) >> 4);
		out[2 * i + 1] = (uint8_t)((uint16_t)(sum[0] * 3 + sum[1] + right_bias) >> 4);
	}
}

static TARGET void convert_rest(const uint8_t *restrict y, const uint8_t *restrict cb, const uint8_t *restrict cr,
				uint32_t count, uint8_t *restrict rgb)
{
	for (uint32_t i = 0; i < count; i++, rgb += 3) {
		int32_t blue = cb[i] - CENTRE, red = cr[i] - CENTRE;
		rgb[0] = clamp(y[i] + ((red * CR_TO_R + HALF) >> 16));
		rgb[1] = clamp(y[i] + ((blue * CB_TO_G + red * CR_TO_G + HALF) >> 16));
		rgb[2] = clamp(y[i] + ((blue * CB_TO_B + HALF) >> 16));
	}
}
