/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions in host memory that Gloo does not have.
 */
#ifndef DTRAIN_COMM_GROUP_GROUP_ELEMENTS_H
#define DTRAIN_COMM_GROUP_GROUP_ELEMENTS_H

#include <dtrain/comm.h>

/* Combines parts (count * ranks elements), in the order of ranks, into out (count elements). F16 and BF16 are combined
 * in F32 and rounded once. AVG is treated as SUM. */
void dtrain__elements_reduce(void *out, const void *parts, size_t count, int ranks, dtrain_dtype dtype,
			     dtrain_reduce_op op);
/* F32, F64, F16, BF16. */
void dtrain__elements_divide(void *data, size_t count, dtrain_dtype dtype, int divisor);

#endif
