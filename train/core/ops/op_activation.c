/* SPDX-License-Identifier: Apache-2.0 */
#include "core/op.h"

#define CASE(most, ...)                                  \
	{                                                \
		.shapes = {__VA_ARGS__}, .bound = (most) \
	}

#define TANH(...)                                                                         \
	{                                                                                 \
		.shapes = {__VA_ARGS__}, .attrs = {.gelu = {.tanh = true}}, .bound = 2e-6 \
	}

static const dtrain__op_case relu_cases[] = {
	CASE(0, {4, {2, 16, 4, 4}}),
	CASE(0, {4, {3, 5, 1, 7}}),
	CASE(0, {2, {4, 10}}),
};
static const dtrain__op_case gelu_cases[] = {
	CASE(2e-6, {4, {2, 16, 4, 4}}),
	CASE(2e-6, {4, {3, 5, 1, 7}}),
	CASE(2e-6, {2, {4, 10}}),
	CASE(2e-6, {1, {1003}}),
	TANH({4, {2, 16, 4, 4}}),
	TANH({2, {3, 35}}),
	TANH({1, {1003}}),
};
static const dtrain__op_case silu_cases[] = {
	CASE(2e-6, {2, {3, 35}}),
	CASE(2e-6, {1, {1003}}),
	CASE(2e-6, {3, {2, 3, 16}}),
};
static const dtrain__op_range gelu_range[] = {{-4, 4}, {-4, 4}};
/* At the bend the gradient is 0. */
static const double relu_edges[] = {0};
/* Nearly linear parts of gelu, and its tail. */
static const double gelu_edges[] = {0, 30, -30};

const dtrain__op_rules dtrain__op_relu = {
	.inputs = "X", .outputs = "X", .edges = relu_edges, .num_edges = 1, DTRAIN__OP_CASES(relu_cases)};

const dtrain__op_rules dtrain__op_relu_bwd = {.inputs = "XX", .outputs = "X"};

const dtrain__op_rules dtrain__op_gelu = {.inputs = "X",
					  .outputs = "X",
					  .ranges = gelu_range,
					  .edges = gelu_edges,
					  .num_edges = 3,
					  DTRAIN__OP_CASES(gelu_cases)};

const dtrain__op_rules dtrain__op_gelu_bwd = {.inputs = "XX", .outputs = "X"};

const dtrain__op_rules dtrain__op_silu = {.inputs = "X",
					  .outputs = "X",
					  .ranges = gelu_range,
					  .edges = gelu_edges,
					  .num_edges = 3,
					  DTRAIN__OP_CASES(silu_cases)};

const dtrain__op_rules dtrain__op_silu_bwd = {.inputs = "XX", .outputs = "X"};

const dtrain__op_rules dtrain__op_swiglu = {.inputs = "XX",
					    .outputs = "X",
					    .ranges = gelu_range,
					    .edges = gelu_edges,
					    .num_edges = 3,
					    DTRAIN__OP_CASES(silu_cases)};

const dtrain__op_rules dtrain__op_swiglu_bwd = {.inputs = "XXX", .outputs = "XX"};
