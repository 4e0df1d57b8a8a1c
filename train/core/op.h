/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of an op, the same on every device: its operands, its cost, and examples. Each kind has one
 * dtrain__op_rules in a file of ops/; <dtrain/ops.def> makes the table of them. Gradients are defined in gradients/,
 * because a device has no graph.
 */
#ifndef DTRAIN_CORE_OP_H
#define DTRAIN_CORE_OP_H

#include <dtrain/device.h>

/* The operands of a description by letter; of operands with equal letters the first. */
typedef struct dtrain__op_roles {
	const dtrain_operand *of[128];
} dtrain__op_roles;

enum { DTRAIN__OP_CASE_SHAPES = 6 };

typedef struct dtrain__op_range {
	double least, most;
} dtrain__op_range;

/* An example that the tests run on every device: the shapes of the rules' letters, in the order of their first use by
 * inputs, optional inputs, outputs and optional outputs. */
typedef struct dtrain__op_case {
	dtrain_shape shapes[DTRAIN__OP_CASE_SHAPES];
	dtrain_op_attrs attrs;
	int optional_inputs, optional_outputs; /* number of each that the example has */
	double bound;                          /* normalised error that a device may make in F32 */
	const dtrain__op_range *ranges;        /* of this example; NULL: the rules' ranges */
} dtrain__op_case;

/* One letter for each operand. A shape is checked by naming it: equal letters are equal shapes.
 *   X, Y, K: any tensor   P, B, E: what check says   M: moments or sums of batch norm
 *   W: a weight; as an input F32, which the op rounds to the type of x, or of that type
 *   C: [channels of x]    N: [n]                S: []                    L: [n, c]           F: flat
 *   R: f32 [groups, 2]    H: f32 [1]            A: f32 [4], a scaler, clip  m: u8 of x's shape  i: u8 of y's shape
 *   l: i64 [n]            u: u8 [n, h, w, c]    G: u8 [n / 16]           T: f32 [8], a step
 *   e: i64 or i32         q: i64                g: i32                  r: i64 [4], seed, step, first row, stride
 *   D: [n, c], a target   I: i64 [pieces, 5]            c: u8, codes or pairs of compressed gradients */
typedef struct dtrain__op_rules {
	const char *inputs, *optional_inputs; /* the latter NULL: none */
	const char *outputs, *optional_outputs;
	/* Checks shapes and attributes after number and types of operands. NULL: the letters are enough. */
	int (*check)(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err);
	/* Floating-point operations of the op's products. NULL: it has none. */
	double (*flops)(const dtrain_op_desc *desc);
	int loss_gradients; /* 0: no loss. Outputs 1, 2 ... are so many inputs' gradients for the mean of output 0 */
	uint32_t updates;   /* bits of inputs that the op changes, so it must run exactly once */
	/* Changes the attributes so that the op changes no input and computes the same bits. NULL: with `updates` it
	 * cannot be repeated. */
	void (*repeat)(dtrain_op_attrs *attrs);
	/* The ranks of attrs.collective.axes compute it together: the core makes output 0 a copy of input 0, and a call
	 * of the schedule changes it in place; if they differ in size, the call reads input 0 and writes output 0. It
	 * is not repeated, so its output is kept. */
	bool collective;
	uint32_t in_place;   /* bits of inputs that output 0 may overwrite */
	uint32_t read_twice; /* bits of inputs that are read twice from memory, because sums must be complete first */

	/* For the tests. An op without cases is run as the backward op of another one's cases. */
	const dtrain__op_case *cases;
	int num_cases;
	/* The range of values of each input and optional input, cut off where it has whole numbers. NULL: -1 .. 1. */
	const dtrain__op_range *ranges;
	const double *edges; /* first values of input 0: where the function bends, and its tails */
	int num_edges;
	bool distinct; /* input 0 needs distinct values, because equal ones leave the device a choice */
} dtrain__op_rules;

#define DTRAIN_OP(NAME, name) extern const dtrain__op_rules dtrain__op_##name;
#include <dtrain/ops.def>

/* Initialises cases and num_cases. */
#define DTRAIN__OP_CASES(list) .cases = (list), .num_cases = (int)(sizeof(list) / sizeof((list)[0]))

/* "conv2d_bwd_data" */
const char *dtrain__op_name(dtrain_op_kind kind);
/* kind: a valid kind. */
const dtrain__op_rules *dtrain__op_rules_of(dtrain_op_kind kind);
/* Whether core/gradients has a function for the kind. */
bool dtrain__op_is_differentiable(dtrain_op_kind kind);
/* The letter of an input, with optional inputs after the others; 0: no such input. Likewise for outputs. */
char dtrain__op_input_letter(dtrain_op_kind kind, int index);
char dtrain__op_output_letter(dtrain_op_kind kind, int index);
/* The type of an operand with that letter in an op that computes in `compute`. */
dtrain_dtype dtrain__op_letter_type(char letter, dtrain_dtype compute);

/* Checks operand counts, types and shapes of a description against the rules. INVALID_ARGUMENT names the op and the
 * operand. A device that calls this first needs no other checks. */
int dtrain__op_check(const dtrain_op_desc *desc, beton_error *err);

/* For checks: INVALID_ARGUMENT with the op's name, the fault, and the operand's shape (NULL: none). */
int dtrain__op_bad(const dtrain_op_desc *desc, const char *what, const dtrain_operand *operand, beton_error *err);
bool dtrain__op_is_vector(const dtrain_operand *operand, int64_t count);
/* Checks that attrs.window maps x's height and width to y's. */
int dtrain__op_check_window(const dtrain_op_desc *desc, const dtrain_shape *x, const dtrain_shape *y,
			    const int64_t *kernel, beton_error *err);
/* Operations of a product with weight w and result y. */
double dtrain__op_product_flops(const dtrain_shape *w, const dtrain_shape *y);

/* The type that an op computes in: that of x, y, logits and their gradients (see <dtrain/device.h>). */
dtrain_dtype dtrain__op_compute_type(const dtrain_op_desc *desc);

/* Lower bound of one run's cost on any device, to judge timings and to choose between ops: bytes of memory traffic
 * without caches (each operand once, or as its rules say), and floating-point operations of its products. Ops without
 * products are limited by their bytes. */
typedef struct dtrain__op_cost {
	double bytes;
	double flops;
} dtrain__op_cost;

/* For a description that an op was created from, whose operands have the device's sizes. */
dtrain__op_cost dtrain__op_cost_of(const dtrain_op_desc *desc);

/* Output size of a window that moves over size elements with padding on both sides; 0: it does not fit. */
int64_t dtrain__window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding);

#endif
