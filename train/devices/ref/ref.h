/* SPDX-License-Identifier: Apache-2.0
 *
 * The ref device: one plain C function for each kind of op, in float and in double. Sums are formed in double in both.
 * F16 and BF16 are widened to float around the same functions.
 */
#ifndef DTRAIN_REF_REF_H
#define DTRAIN_REF_REF_H

#include <dtrain/device.h>

struct dtrain_op;

/* operands: inputs, then outputs, all plain row-major. */
typedef int (*dtrain__ref_kernel)(const struct dtrain_op *op, void *const *operands, beton_error *err);

struct dtrain_op {
	dtrain__ref_kernel run;
	dtrain_op_kind kind;
	dtrain_op_attrs attrs;
	dtrain_dtype dtype; /* type of computation; for F16 and BF16, run is the float function */
	dtrain_dtype dtypes[2 * DTRAIN_OP_MAX_OPERANDS]; /* of the operands */
	dtrain_shape inputs[DTRAIN_OP_MAX_OPERANDS];
	dtrain_shape outputs[DTRAIN_OP_MAX_OPERANDS];
	int32_t num_inputs;
	int32_t num_outputs;
};

extern const dtrain__ref_kernel dtrain__ref_kernels_f32[DTRAIN_OP_KIND_COUNT];
extern const dtrain__ref_kernel dtrain__ref_kernels_f64[DTRAIN_OP_KIND_COUNT];

/* A value as F16 or BF16 holds it. */
float dtrain__ref_half_rounded(dtrain_dtype dtype, float value);
/* For ops in these types: the workspace, and running them. */
size_t dtrain__ref_half_workspace(const struct dtrain_op *op);
int dtrain__ref_half_run(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err);

#endif
