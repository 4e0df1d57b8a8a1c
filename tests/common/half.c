/* SPDX-License-Identifier: Apache-2.0
 *
 * The conversions between float and the types of 16 bits, all values of these and what lies between them.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/half.h"

typedef struct format {
	float (*widen)(uint16_t value);
	uint16_t (*narrow)(float value);
	int exponent_bits, mantissa_bits;
} format;

static const format formats[] = {{bt_widen_float16, bt_float16, 5, 10}, {bt_widen_bfloat16, bt_bfloat16, 8, 7}};

/* As the standard defines it. */
static double value_of(const format *f, uint16_t bits)
{
	int exponent = bits >> f->mantissa_bits & ((1 << f->exponent_bits) - 1), most = (1 << f->exponent_bits) - 1;
	int mantissa = bits & ((1 << f->mantissa_bits) - 1), bias = most / 2;
	double size = exponent == 0 ? ldexp(mantissa, 1 - bias - f->mantissa_bits)
				    : ldexp((1 << f->mantissa_bits) + mantissa, exponent - bias - f->mantissa_bits);
	if (exponent == most)
		size = mantissa ? (double)NAN : (double)INFINITY;
	return bits & 0x8000 ? -size : size;
}

static void every_value_stays_itself(void **state)
{
	(void)state;
	for (int k = 0; k < 2; k++)
		for (uint32_t bits = 0; bits < 0x10000; bits++) {
			const format *f = &formats[k];
			double right = value_of(f, (uint16_t)bits);
			float wide = f->widen((uint16_t)bits);
			uint16_t narrow = f->narrow(wide);
			if (isnan(right)) {
				assert_true(isnan(wide) && isnan(value_of(f, narrow)));
				assert_int_equal(narrow >> 15, bits >> 15);
			} else {
				assert_true((double)wide == right && !signbit(wide) == !(bits & 0x8000));
				assert_int_equal(narrow, bits);
			}
		}
}

/* Between two neighbours of finite size: the middle goes to the even one, everything else to the nearer one. The
 * largest one's other neighbour is where the next power of two would be. */
static void what_lies_between_goes_to_the_nearest(void **state)
{
	(void)state;
	for (int k = 0; k < 2; k++) {
		const format *f = &formats[k];
		uint16_t infinity = (uint16_t)(((1 << f->exponent_bits) - 1) << f->mantissa_bits);
		for (uint16_t bits = 0; bits < infinity; bits++)
			for (int negative = 0; negative < 2; negative++) {
				double low = value_of(f, bits), high = value_of(f, bits + 1);
				if (bits + 1 == infinity)
					high = 2 * low - value_of(f, bits - 1);
				float sign = negative ? -1 : 1, middle = (float)((low + high) / 2);
				uint16_t bit = negative ? 0x8000 : 0;
				assert_int_equal(f->narrow(sign * middle), bit | (bits + (bits & 1)));
				assert_int_equal(f->narrow(sign * nextafterf(middle, 0)), bit | bits);
				assert_int_equal(f->narrow(sign * nextafterf(middle, INFINITY)), bit | (bits + 1));
			}
		assert_int_equal(f->narrow(FLT_MAX), infinity);
		assert_int_equal(f->narrow(-INFINITY), 0x8000 | infinity);
	}
}

static void nan_stays_nan(void **state)
{
	(void)state;
	const uint32_t patterns[] = {0x7f800001, 0x7fbfffff, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffffffff};
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		float value;
		memcpy(&value, &patterns[i], sizeof(value));
		assert_true(isnan(bt_widen_float16(bt_float16(value))));
		assert_true(isnan(bt_widen_bfloat16(bt_bfloat16(value))));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_value_stays_itself),
		cmocka_unit_test(what_lies_between_goes_to_the_nearest),
		cmocka_unit_test(nan_stays_nan),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
