/* SPDX-License-Identifier: Apache-2.0
 *
 * Uses only functions of libm with one correct result: frexp, ldexp, nearbyint.
 */
#include "elementary.h"

#include <math.h>

/* Their sum is log(2). The first has 32 bits, so that small integer multiples of it are exact. */
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW 0x1.a39ef35793c76p-33

/* c[0] + c[1] x + ... + c[count - 1] x^(count - 1) */
static double polynomial(const double *c, int count, double x)
{
	double sum = c[count - 1];
	for (int i = count - 2; i >= 0; i--)
		sum = sum * x + c[i];
	return sum;
}

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))

double bt_log(double x)
{
	/* log(m) = 2 atanh(z), |z| < 0.172: the first omitted term is below 2^-62 of it. */
	static const double c[] = {2. / 3,  2. / 5,  2. / 7,  2. / 9,  2. / 11,
				   2. / 13, 2. / 15, 2. / 17, 2. / 19, 2. / 21};
	int exponent;
	double m = frexp(x, &exponent);
	if (m < M_SQRT1_2) {
		m *= 2;
		exponent--;
	}
	double z = (m - 1) / (m + 1), square = z * z;
	double rest = z * square * polynomial(c, COUNT(c), square);
	return exponent * LN2_HIGH + (2 * z + (rest + exponent * LN2_LOW));
}

double bt_exp(double x)
{
	/* |r| < 0.347: the first omitted term is below 2^-57. */
	static const double c[] = {1. / 2,       1. / 6,        1. / 24,        1. / 120,
				   1. / 720,     1. / 5040,     1. / 40320,     1. / 362880,
				   1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800};
	if (x > 710)
		return INFINITY;
	if (x < -746)
		return 0;
	double count = nearbyint(x * M_LOG2E);
	double r = (x - count * LN2_HIGH) - count * LN2_LOW;
	return ldexp(1 + (r + r * r * polynomial(c, COUNT(c), r)), (int)count);
}

void bt_sin_cos(double turns, double *sine, double *cosine)
{
	/* |x| < 0.786: the first omitted terms are below 2^-63. */
	static const double s[] = {-1. / 6,        1. / 120,        -1. / 5040,          1. / 362880,
				   -1. / 39916800, 1. / 6227020800, -1. / 1307674368000, 1. / 355687428096000};
	static const double c[] = {-1. / 2,       1. / 24,        -1. / 720,         1. / 40320,
				   -1. / 3628800, 1. / 479001600, -1. / 87178291200, 1. / 20922789888000};
	double quarters = nearbyint(turns * 4);
	double x = (turns - quarters / 4) * (2 * M_PI), square = x * x;
	double near = x + x * square * polynomial(s, COUNT(s), square);
	double far = 1 + square * polynomial(c, COUNT(c), square);
	switch ((int)quarters & 3) {
	case 0:
		*sine = near;
		*cosine = far;
		return;
	case 1:
		*sine = far;
		*cosine = -near;
		return;
	case 2:
		*sine = -near;
		*cosine = -far;
		return;
	default:
		*sine = -far;
		*cosine = near;
	}
}
