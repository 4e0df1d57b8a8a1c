/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of 16 bits: IEEE's binary16 and bfloat16, the upper half of a float. Rounding is to nearest, ties to even;
 * overflow gives infinity, and NaN stays NaN.
 */
#ifndef BT_COMMON_HALF_H
#define BT_COMMON_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float bt_widen_bfloat16(uint16_t value)
{
	uint32_t bits = (uint32_t)value << 16;
	float wide;
	memcpy(&wide, &bits, sizeof(wide));
	return wide;
}

static inline uint16_t bt_bfloat16(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	/* Adding to the mantissa of a NaN could carry into its sign. */
	uint32_t quiet = bits | 0x400000, rounded = bits + 0x7fff + (bits >> 16 & 1);
	return (uint16_t)((isnan(value) ? quiet : rounded) >> 16);
}

#ifdef __aarch64__
/* The processor converts so by itself. */
static inline float bt_widen_float16(uint16_t value)
{
	__fp16 half;
	memcpy(&half, &value, sizeof(half));
	return half;
}

static inline uint16_t bt_float16(float value)
{
	__fp16 half = (__fp16)value;
	uint16_t bits;
	memcpy(&bits, &half, sizeof(bits));
	return bits;
}
#else
static inline float bt_widen_float16(uint16_t value)
{
	int exponent = value >> 10 & 31, mantissa = value & 1023;
	float size = exponent == 31
			     ? (mantissa ? NAN : INFINITY)
			     : ldexpf((float)(exponent ? mantissa + 1024 : mantissa), (exponent ? exponent : 1) - 25);
	return value & 0x8000 ? -size : size;
}

static inline uint16_t bt_float16(float value)
{
	uint16_t sign = signbit(value) ? 0x8000 : 0;
	if (isnan(value))
		return sign | 0x7e00;
	double size = fabs((double)value);
	if (size >= 65520) /* half way from the largest number to the next power of two, which rounds to infinity */
		return sign | 0x7c00;
	/* Below 2^-14 the step stays the same; a mantissa that rounds up to a power of two carries into the exponent.
	 */
	int exponent;
	frexp(size, &exponent);
	exponent = exponent < -13 || size == 0 ? -13 : exponent;
	uint32_t steps = (uint32_t)nearbyint(ldexp(size, 11 - exponent));
	return (uint16_t)(sign | (((uint32_t)(exponent + 13) << 10) + steps));
}
#endif

#endif
