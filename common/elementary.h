/* SPDX-License-Identifier: Apache-2.0
 *
 * Logarithm, exponential, sine and cosine from additions, multiplications and divisions, which IEEE 754 rounds in one
 * way: the same bits on every machine. Those of libm differ in their last bit from one version to the next, and with it
 * what is drawn, and what is stored. Within 2 units of the last place; what is compiled without fused multiply-add. */
#ifndef BT_ELEMENTARY_H
#define BT_ELEMENTARY_H

/* Of a finite number above 0. */
double bt_log(double x);

/* Infinite where it overflows, as that of libm. */
double bt_exp(double x);

/* Of an angle in turns of the circle, from -1024 to 1024. Exact at multiples of a quarter. */
void bt_sin_cos(double turns, double *sine, double *cosine);

#endif
