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

/* Output size of a window that moves over size elements with padding on both sides; 0 when it does not fit. */
int64_t dtrain__window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding);

#endif
