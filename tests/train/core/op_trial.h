/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptions of ops that are right or wrong, in lists of one line for each.
 */
#ifndef TESTS_TRAIN_CORE_OP_TRIAL_H
#define TESTS_TRAIN_CORE_OP_TRIAL_H

#include "core/op.h"

/* Operands of a type: pictures, what there is of each channel, matrices, rows, flat arrays. */
#define PICTURES(type)                                        \
	{                                                     \
		.dtype = (type), .shape = { 4, {2, 3, 4, 5} } \
	}
#define OTHER(type)                                           \
	{                                                     \
		.dtype = (type), .shape = { 4, {2, 3, 4, 6} } \
	}
#define CHANNELS(type)                               \
	{                                            \
		.dtype = (type), .shape = { 1, {3} } \
	}
#define KERNEL(type)                                          \
	{                                                     \
		.dtype = (type), .shape = { 4, {3, 3, 1, 1} } \
	}
#define MATRIX(type)                                    \
	{                                               \
		.dtype = (type), .shape = { 2, {2, 3} } \
	}
#define SQUARE(type)                                    \
	{                                               \
		.dtype = (type), .shape = { 2, {3, 3} } \
	}
#define ROWS(type)                                   \
	{                                            \
		.dtype = (type), .shape = { 1, {2} } \
	}
#define FLAT(type)                                    \
	{                                             \
		.dtype = (type), .shape = { 1, {64} } \
	}
#define ONE(type)                                    \
	{                                            \
		.dtype = (type), .shape = { 1, {1} } \
	}
#define FOUR(type)                                   \
	{                                            \
		.dtype = (type), .shape = { 1, {4} } \
	}
#define RATES(type)                                     \
	{                                               \
		.dtype = (type), .shape = { 2, {5, 2} } \
	}
#define MOMENTS(type)                                   \
	{                                               \
		.dtype = (type), .shape = { 2, {4, 7} } \
	}
#define SUMS(type)                                   \
	{                                            \
		.dtype = (type), .shape = { 1, {7} } \
	}
#define STATISTICS(type) CHANNELS(type), CHANNELS(type), CHANNELS(type), CHANNELS(type)
#define U8 DTRAIN_U8
#define I64 DTRAIN_I64
#define F16 DTRAIN_F16
#define BF16 DTRAIN_BF16
#define F32 DTRAIN_F32
#define F64 DTRAIN_F64

/* The message of the error; NULL: there is none. */
typedef struct trial {
	const char *message;
	dtrain_op_kind kind;
	bool relu;
	int32_t num_inputs, num_outputs;
	dtrain_operand inputs[DTRAIN_OP_MAX_OPERANDS], outputs[DTRAIN_OP_MAX_OPERANDS];
} trial;

/* Trials of batch norm (op_trial_norm.c). */
extern const trial norm_trials[];
extern const size_t num_norm_trials;

#endif
