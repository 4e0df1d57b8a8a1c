/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of dtrain-bench.
 */
#ifndef PROGRAMS_BENCH_BENCH_H
#define PROGRAMS_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include <dtrain/device.h>

/* Exit codes: 0 done, 1 failed, 2 wrong usage. */
enum { BENCH_DONE = 0, BENCH_FAILED = 1, BENCH_USAGE = 2 };

/* The exit status of a failure. */
static inline int bench_failure(int status)
{
	return status == BETON_INVALID_ARGUMENT ? BENCH_USAGE : BENCH_FAILED;
}

/* dtrain-bench step; argv[0] is "step". */
int bench_step(int argc, char **argv);

/* dtrain-bench comm, link and pipeline. argv[-1] is the program's name. */
int bench_comm(int argc, char **argv);
int bench_link(int argc, char **argv);
int bench_pipeline(int argc, char **argv);

/* Seconds of one bare oneDNN convolution, best of `repeats`, with each tensor in the layout that oneDNN prefers. kind:
 * DTRAIN_OP_CONV2D or one of its backward kinds. bf16: computes in BF16, not F32; BETON_UNSUPPORTED if oneDNN has no
 * such convolution for the processor. */
int bench_conv(dtrain_op_kind kind, bool bf16, const dtrain_shape *x, const dtrain_shape *w, const dtrain_shape *y,
	       const dtrain_window_attrs *attrs, int repeats, double *seconds, beton_error *err);

/* The same for a product of [m, k] and [k, n]. */
int bench_product(bool bf16, int64_t m, int64_t k, int64_t n, int repeats, double *seconds, beton_error *err);

#endif
