/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the faster of two ways to run an op: cuDNN or our kernels, a convolution with the next op's statistics or
 * without. Whole ops are made and timed, including the launches around an engine. Ops that depend on how the one before
 * them ran are timed together with it: the backward op that alone can read a mask or an index, or the batch norm that
 * gets the statistics.
 */
#ifndef DTRAIN_CUDA_AUTOTUNE_H
#define DTRAIN_CUDA_AUTOTUNE_H

#include "cuda.h"

typedef int cuda_builder(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);

/* A way: builders, as in cuda.h, of an op and of the ops timed with it. */
enum { CUDA_CHAIN = 3 };
typedef struct cuda_way {
	cuda_builder *builders[CUDA_CHAIN]; /* NULL: no such op */
	bool compiles;                      /* cuDNN may have to compile its engines, which takes seconds */
} cuda_way;

/* Describes the op that is timed after one whose description is finished. */
typedef dtrain_op_desc cuda_describer(const dtrain_op_desc *desc);

/* The index of the faster way, from the device's store, or by timing for this build of the kernels; 0 without the
 * memory to time them. A way loses if one of its ops is UNSUPPORTED or does not run. next: describes each op that is
 * timed with the one before it, whose U8 output it reads if it has such an input; NULL: the op is timed alone. The
 * caller holds the device's lock. */
int cuda_autotune(dtrain_device *device, const dtrain_op_desc *desc, cuda_describer *next, const cuda_way ways[2]);

/* Whether the second way runs the op, by the preference or by cuda_autotune. In deterministic mode nothing is timed,
 * and the first is preferred. With tune_later a way that is not in the store is the first one that compiles nothing. */
bool cuda_second_wins(dtrain_device *device, cuda_preference preference, const dtrain_op_desc *desc,
		      cuda_describer *next, const cuda_way ways[2]);

#endif
