/* SPDX-License-Identifier: Apache-2.0
 *
 * Logarithm, exponential, sine and cosine with the same bits on every machine: they use additions, multiplications and
 * divisions only, which IEEE 754 rounds exactly. libm's functions differ in the last bit between versions, and so would
 * draws and stored files. Error: at most 2 units in the last place. Compiled without fused multiply-add.
 */
#ifndef BT_ELEMENTARY_H
#define BT_ELEMENTARY_H

/* x: finite, above 0. */
double bt_log(double x);

/* Infinite on overflow, like libm's. */
double bt_exp(double x);

/* turns: the angle in turns of the circle, -1024 to 1024. Exact at multiples of a quarter. */
void bt_sin_cos(double turns, double *sine, double *cosine);

#endif
