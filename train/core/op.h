/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules that an op's operands obey on every device.
 */
#ifndef DTRAIN_CORE_OP_H
#define DTRAIN_CORE_OP_H

#include <dtrain/device.h>

/* "conv2d_bwd_data" */
const char *dtrain__op_name(dtrain_op_kind kind);

/* Operand counts, types and shapes of a description against the table in dtrain/device.h. INVALID_ARGUMENT names the op
 * and the operand; a device that calls it first need not check again. */
int dtrain__op_check(const dtrain_op_desc *desc, beton_error *err);

/* The type that an op computes in: of x, y, logits and their gradients, as <dtrain/device.h> says. */
dtrain_dtype dtrain__op_compute_type(const dtrain_op_desc *desc);

/* What one run of an op costs at least on any device, for timing it and for choosing between ops: bytes that cross the
 * memory's bus when nothing stays in a cache (each operand once, batch norm's twice where sums have to be complete
 * first), and multiplications and additions of its products. Other ops have no product: their bytes are their limit. */
typedef struct dtrain__op_cost {
	double bytes;
	double flops;
} dtrain__op_cost;

/* Of a description that an op was created from: operands have the bytes that the device gave them. */
dtrain__op_cost dtrain__op_cost_of(const dtrain_op_desc *desc);

/* Output size of a window that moves over size elements with padding on both sides; 0 when it does not fit. */
int64_t dtrain__window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding);

#endif
