/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of an op on every device: which operands it takes, what it costs, and examples of it. Each kind has one
 * dtrain__op_rules in a file of ops/; <dtrain/ops.def> makes the table of them. How gradients flow through an op is in
 * gradients/, because a device has no graph.
 */
#ifndef DTRAIN_CORE_OP_H
#define DTRAIN_CORE_OP_H

#include <dtrain/device.h>

/* The operands of a description by letter; of equal letters the first. */
typedef struct dtrain__op_roles {
	const dtrain_operand *of[128];
} dtrain__op_roles;

enum { DTRAIN__OP_CASE_SHAPES = 4 };

/* An example that the tests run on every device: the shapes of the rules' letters, in the order in which the operands
 * (inputs, optional inputs, outputs, optional outputs) name them first. */
typedef struct dtrain__op_case {
	dtrain_shape shapes[DTRAIN__OP_CASE_SHAPES];
	dtrain_op_attrs attrs;
	int optional_inputs, optional_outputs; /* how many of them there are */
	double bound;                          /* normalised error that a device may have in F32 */
} dtrain__op_case;

typedef struct dtrain__op_range {
	double least, most;
} dtrain__op_range;

/* One letter for each operand. A shape is checked by naming it: equal letters are equal shapes.
 *   X, Y: any tensor      W: a weight, which the op rounds to the type of x      P, B: what check says
 *   C: [channels of x]    N: [n]                S: []                    L: [n, c]           F: flat
 *   R: f32 [groups, 2]    H: f32 [1]            A: f32 [4], a scaler, clip  m: u8 of x's shape  i: u8 of y's shape
 *   l: i64 [n]            u: u8 [n, h, w, c]    G: u8 [n / 16] */
typedef struct dtrain__op_rules {
	const char *inputs, *optional_inputs; /* the latter NULL: none */
	const char *outputs, *optional_outputs;
	/* Shapes and attributes, when the operands' number and types are right. NULL: the letters say it all. */
	int (*check)(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err);
	/* Multiplications and additions of the op's products. NULL: it has none. */
	double (*flops)(const dtrain_op_desc *desc);
	bool is_loss;        /* output 1 is the gradient of input 0 for the mean of output 0 */
	uint32_t updates;    /* bits of inputs that the op changes, so that it must run once and no more */
	uint32_t in_place;   /* bits of inputs whose memory output 0 may have */
	uint32_t read_twice; /* bits of inputs that come from memory twice, because sums have to be complete first */

	/* For the tests. An op without cases is run by the cases of the op whose backward op it is. */
	const dtrain__op_case *cases;
	int num_cases;
	const dtrain__op_range *ranges; /* of the values of each input and optional input; NULL: -1 .. 1 */
	const double *edges;            /* values that input 0 begins with: where the function bends, and its tails */
	int num_edges;
	bool distinct; /* equal values in input 0 leave the device a choice */
} dtrain__op_rules;

#define DTRAIN_OP(NAME, name) extern const dtrain__op_rules dtrain__op_##name;
#include <dtrain/ops.def>

/* cases and num_cases */
#define DTRAIN__OP_CASES(list) .cases = (list), .num_cases = (int)(sizeof(list) / sizeof((list)[0]))

/* "conv2d_bwd_data" */
const char *dtrain__op_name(dtrain_op_kind kind);
/* kind: one that there is. */
const dtrain__op_rules *dtrain__op_rules_of(dtrain_op_kind kind);
/* Whether core/gradients has a function for it. */
bool dtrain__op_is_differentiable(dtrain_op_kind kind);
/* The letter of an input, optional ones behind the others; 0: there is no such input. The same of outputs. */
char dtrain__op_input_letter(dtrain_op_kind kind, int index);
char dtrain__op_output_letter(dtrain_op_kind kind, int index);
/* The type of an operand of that letter in an op that computes in `compute`. */
dtrain_dtype dtrain__op_letter_type(char letter, dtrain_dtype compute);

/* Operand counts, types and shapes of a description against the rules. INVALID_ARGUMENT names the op and the operand; a
 * device that calls it first need not check again. */
int dtrain__op_check(const dtrain_op_desc *desc, beton_error *err);

/* For checks: INVALID_ARGUMENT with the op's name, what is wrong, and the operand's shape (NULL: none). */
int dtrain__op_bad(const dtrain_op_desc *desc, const char *what, const dtrain_operand *operand, beton_error *err);
bool dtrain__op_is_vector(const dtrain_operand *operand, int64_t count);
/* That attrs.window leads from the sides of x to those of y. */
int dtrain__op_check_window(const dtrain_op_desc *desc, const dtrain_shape *x, const dtrain_shape *y,
			    const int64_t *kernel, beton_error *err);
/* Of a product whose weight is w and whose result is y. */
double dtrain__op_product_flops(const dtrain_shape *w, const dtrain_shape *y);

/* The type that an op computes in: of x, y, logits and their gradients, as <dtrain/device.h> says. */
dtrain_dtype dtrain__op_compute_type(const dtrain_op_desc *desc);

/* What one run of an op costs at least on any device, for timing it and for choosing between ops: bytes that cross the
 * memory's bus when nothing stays in a cache (each operand once, or as its rules say), and multiplications and
 * additions of its products. Other ops have no product: their bytes are their limit. */
typedef struct dtrain__op_cost {
	double bytes;
	double flops;
} dtrain__op_cost;

/* Of a description that an op was created from: operands have the bytes that the device gave them. */
dtrain__op_cost dtrain__op_cost_of(const dtrain_op_desc *desc);

/* Output size of a window that moves over size elements with padding on both sides; 0 when it does not fit. */
int64_t dtrain__window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding);

#endif
