/* SPDX-License-Identifier: Apache-2.0 */
#include "rgb.h"

#ifdef __aarch64__
#include <arm_neon.h>

#define TARGET

#include "rgb_lanes.h"

enum { GROUP = 16 }; /* pixels */

/* (a * factor + HALF) >> 16: without what the first product loses, as its last bit is added. */
static int16x8_t scale(int16x8_t a, int16_t factor)
{
	return vrshrq_n_s16(vqdmulhq_n_s16(a, factor), 1);
}

/* The part of green that depends on blue and red. A factor beyond 16 bits is less 1 here. */
static int16x8_t green_of(int16x8_t blue, int16x8_t red)
{
	const int16_t less = CR_TO_G + (1 << 16);
	int32x4_t low = vmlal_n_s16(vmull_n_s16(vget_low_s16(blue), CB_TO_G), vget_low_s16(red), less);
	int32x4_t high = vmlal_high_n_s16(vmull_high_n_s16(blue, CB_TO_G), red, less);
	return vsubq_s16(vcombine_s16(vrshrn_n_s32(low, 16), vrshrn_n_s32(high, 16)), red);
}

/* 8 pixels; colours are less CENTRE. */
static void convert_8(uint8x8_t luma, int16x8_t blue, int16x8_t red, uint8x8_t rgb[3])
{
	int16x8_t y = vreinterpretq_s16_u16(vmovl_u8(luma));
	int16x8_t r = vaddq_s16(red, scale(red, CR_TO_R - (1 << 16)));
	int16x8_t g = green_of(blue, red);
	int16x8_t b = vaddq_s16(vaddq_s16(blue, blue), scale(blue, CB_TO_B - (2 << 16)));
	rgb[0] = vqmovun_s16(vaddq_s16(y, r));
	rgb[1] = vqmovun_s16(vaddq_s16(y, g));
	rgb[2] = vqmovun_s16(vaddq_s16(y, b));
}

static void convert(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t count, uint8_t *rgb)
{
	const uint8x16_t centre = vdupq_n_u8(CENTRE);
	uint32_t i = 0;
	for (; i + GROUP <= count; i += GROUP, rgb += 3 * GROUP) {
		uint8x16_t luma = vld1q_u8(y + i);
		int8x16_t blue = vreinterpretq_s8_u8(vsubq_u8(vld1q_u8(cb + i), centre)),
			  red = vreinterpretq_s8_u8(vsubq_u8(vld1q_u8(cr + i), centre));
		uint8x8_t low[3], high[3];
		convert_8(vget_low_u8(luma), vmovl_s8(vget_low_s8(blue)), vmovl_s8(vget_low_s8(red)), low);
		convert_8(vget_high_u8(luma), vmovl_high_s8(blue), vmovl_high_s8(red), high);
		uint8x16x3_t pixels = {
			{vcombine_u8(low[0], high[0]), vcombine_u8(low[1], high[1]), vcombine_u8(low[2], high[2])}};
		vst3q_u8(rgb, pixels);
	}
	convert_rest(y + i, cb + i, cr + i, count - i, rgb);
}

const bt_rgb_kernels bt_rgb_neon = {.name = "neon", .add = add, .spread = spread, .convert = convert};
#endif
