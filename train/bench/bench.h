/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of dtrain-bench.
 */
#ifndef DTRAIN_BENCH_BENCH_H
#define DTRAIN_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include <dtrain/device.h>

/* Exit codes: 0 done, 1 failed, 2 wrong usage. */
enum { BENCH_DONE = 0, BENCH_FAILED = 1, BENCH_USAGE = 2 };

/* dtrain-bench step; argv[0] is "step". */
int bench_step(int argc, char **argv);

/* dtrain-bench comm and link, alike. argv[-1] is the program's name. */
int bench_comm(int argc, char **argv);
int bench_link(int argc, char **argv);

/* Seconds that one bare oneDNN convolution takes: every tensor in the layout that it likes best, best of `repeats`.
 * kind: DTRAIN_OP_CONV2D or one of its backward kinds. bf16: in that type, not F32; BETON_UNSUPPORTED where oneDNN has
 * no such convolution for the processor. */
int bench_conv(dtrain_op_kind kind, bool bf16, const dtrain_shape *x, const dtrain_shape *w, const dtrain_shape *y,
	       const dtrain_window_attrs *attrs, int repeats, double *seconds, beton_error *err);

#endif
