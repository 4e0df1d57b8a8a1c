/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the faster of two ways to run an op, cuDNN or our kernels. Whole ops are made and timed, including the launches
 * around an engine; forward and backward are timed together if only the maker of a mask or an index can read it.
 */
#ifndef DTRAIN_CUDA_CONTEST_H
#define DTRAIN_CUDA_CONTEST_H

#include "cuda.h"

/* A way: builders of an op and of its backward op, like those in cuda.h. */
typedef struct cuda_way {
	int (*forward)(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
	int (*backward)(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
} cuda_way;

/* The index of the faster way, from the device's store, or by timing for this build of the kernels; 0 if there is no
 * memory to time them. A way that is UNSUPPORTED or does not run loses. backward_of: describes the backward op that
 * reads the op's U8 output, given the finished desc; NULL: the op is timed alone. With the device locked. */
int cuda_contest(dtrain_device *device, const dtrain_op_desc *desc,
		 dtrain_op_desc (*backward_of)(const dtrain_op_desc *desc), const cuda_way ways[2]);

/* Whether our kernels run the op, by the preference or by cuda_contest. In deterministic mode nothing is timed, and
 * cuDNN is preferred. */
bool cuda_kernels_win(dtrain_device *device, cuda_preference preference, const dtrain_op_desc *desc,
		      dtrain_op_desc (*backward_of)(const dtrain_op_desc *desc), const cuda_way ways[2]);

#endif
