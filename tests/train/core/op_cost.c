/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes and products of ops, beside numbers that were made by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/op.h"

#define F32 DTRAIN_F32
#define BF16 DTRAIN_BF16
#define U8 DTRAIN_U8

static dtrain_operand operand(dtrain_dtype dtype, int ndim, const int64_t *dims)
{
	dtrain_shape shape = dtrain_shape_of(ndim, dims);
	return (dtrain_operand){
		.dtype = dtype, .shape = shape, .bytes = (size_t)dtrain_shape_count(&shape) * dtrain_dtype_size(dtype)};
}

#define OPERAND(dtype, ...) operand(dtype, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})

static void check(const dtrain_op_desc *desc, double bytes, double flops)
{
	dtrain__op_cost cost = dtrain__op_cost_of(desc);
	if (cost.bytes != bytes || cost.flops != flops)
		fail_msg("%s: %.0f bytes and %.0f products, not %.0f and %.0f", dtrain__op_name(desc->kind), cost.bytes,
			 cost.flops, bytes, flops);
}

/* ResNet-50's first convolution at batch 256: 118,013,952 multiply-adds a picture. */
static void products_are_those_of_the_shapes(void **state)
{
	(void)state;
	dtrain_operand x = OPERAND(BF16, 256, 3, 224, 224), w = OPERAND(F32, 64, 3, 7, 7);
	dtrain_operand y = OPERAND(BF16, 256, 64, 112, 112);
	double bytes = 2.0 * 256 * (3 * 224 * 224 + 64 * 112 * 112) + 4.0 * 64 * 147, flops = 2.0 * 256 * 118013952;
	check(&(dtrain_op_desc){DTRAIN_OP_CONV2D, .num_inputs = 2, .num_outputs = 1, .inputs = {x, w}, .outputs = {y}},
	      bytes, flops);
	check(&(dtrain_op_desc){DTRAIN_OP_CONV2D_BWD_DATA, .num_inputs = 2, .num_outputs = 1, .inputs = {y, w},
				.outputs = {x}},
	      bytes, flops);
	check(&(dtrain_op_desc){DTRAIN_OP_CONV2D_BWD_DATA, .num_inputs = 3, .num_outputs = 1, .inputs = {y, w, x},
				.outputs = {x}},
	      bytes + 2.0 * 256 * 3 * 224 * 224, flops);
	check(&(dtrain_op_desc){DTRAIN_OP_CONV2D_BWD_WEIGHT, .num_inputs = 2, .num_outputs = 1, .inputs = {x, y},
				.outputs = {w}},
	      bytes, flops);
	x = OPERAND(F32, 32, 100), w = OPERAND(F32, 10, 100), y = OPERAND(F32, 32, 10);
	dtrain_operand b = OPERAND(F32, 10);
	bytes = 4 * (3200 + 1000 + 320 + 10);
	check(&(dtrain_op_desc){DTRAIN_OP_LINEAR, .num_inputs = 3, .num_outputs = 1, .inputs = {x, w, b},
				.outputs = {y}},
	      bytes, 2 * 32000);
	check(&(dtrain_op_desc){DTRAIN_OP_LINEAR_BWD_WEIGHT, .num_inputs = 2, .num_outputs = 2, .inputs = {x, y},
				.outputs = {w, b}},
	      bytes, 2 * 32000);
}

/* For each element of x, of two bytes: docs/architecture/cuda.md, "Kernels of our own". Statistics, gamma and beta are
 * apart. */
static void sums_take_a_pass_of_their_own(void **state)
{
	(void)state;
	const double count = 8 * 16 * 4 * 4, each = 4 * 16;
	dtrain_operand x = OPERAND(BF16, 8, 16, 4, 4), c = OPERAND(F32, 16), mask = OPERAND(U8, 8, 16, 4, 4);
	mask.bytes /= 8; /* one bit */
	check(&(dtrain_op_desc){DTRAIN_OP_BATCH_NORM_TRAIN, .num_inputs = 6, .num_outputs = 4,
				.inputs = {x, c, c, c, c, x}, .outputs = {x, c, c, mask}},
	      count * (2 + 4 + 2 + 1.0 / 8) + 6 * each, 0);
	check(&(dtrain_op_desc){DTRAIN_OP_BATCH_NORM_EVAL, .num_inputs = 5, .num_outputs = 1, .inputs = {x, c, c, c, c},
				.outputs = {x}},
	      count * 4 + 4 * each, 0);
	check(&(dtrain_op_desc){DTRAIN_OP_BATCH_NORM_BWD, .num_inputs = 6, .num_outputs = 4,
				.inputs = {x, x, c, c, c, mask}, .outputs = {x, c, c, x}},
	      count * (4 + 6 + 2 + 2.0 / 8) + 5 * each, 0);
	/* In two ops, each reading x once. */
	dtrain_operand moments = OPERAND(F32, 4, 33);
	check(&(dtrain_op_desc){DTRAIN_OP_BATCH_NORM_MOMENTS, .num_inputs = 1, .num_outputs = 1, .inputs = {x},
				.outputs = {moments}},
	      count * 2 + 4 * 4 * 33, 0);
	check(&(dtrain_op_desc){DTRAIN_OP_BATCH_NORM_SYNC, .num_inputs = 6, .num_outputs = 4,
				.inputs = {x, c, c, c, c, moments}, .outputs = {x, c, c, mask}},
	      count * (4 + 1.0 / 8) + 6 * each + 4 * 4 * 33, 0);
}

static void an_update_reads_and_writes_in_place(void **state)
{
	(void)state;
	dtrain_operand flat = OPERAND(F32, 1024), rates = OPERAND(F32, 3, 2), group = OPERAND(U8, 64);
	check(&(dtrain_op_desc){DTRAIN_OP_SGD, .num_inputs = 5, .num_outputs = 2,
				.inputs = {flat, flat, flat, rates, group}, .outputs = {flat, flat}},
	      1024 * (20 + 1.0 / 16) + 24, 0);
}

/* GPT-2's with 64 x 1024 positions: queries, keys and values of 12 heads are one operand. */
static void a_packed_operand_counts_once(void **state)
{
	(void)state;
	dtrain_operand qkv = OPERAND(BF16, 64, 1024, 3 * 768), y = OPERAND(BF16, 64, 1024, 768);
	dtrain_operand lse = OPERAND(F32, 64, 12, 1024), d = OPERAND(BF16, 64, 1024, 768);
	const double rows = 64 * 1024, row = 2 * 768, sums = rows * 12 * 4;
	double flops = 4.0 * 64 * 768 * (1024.0 * 1025 / 2);
	dtrain_op_desc forward = {DTRAIN_OP_ATTENTION, .num_inputs = 3, .num_outputs = 2, .inputs = {qkv, qkv, qkv},
				  .outputs = {y, lse}};
	forward.attrs.attention = (dtrain_attention_attrs){.heads = 12, .kv_heads = 12, .causal = true, .packed = true};
	dtrain_op_desc backward = {DTRAIN_OP_ATTENTION_BWD, .num_inputs = 6, .num_outputs = 1,
				   .inputs = {qkv, qkv, qkv, y, d, lse}, .outputs = {qkv}};
	backward.attrs.attention = forward.attrs.attention;
	check(&forward, rows * 4 * row + sums, flops);
	check(&backward, rows * 8 * row + sums, 2.5 * flops);
	forward.attrs.attention.packed = false;
	forward.inputs[0] = forward.inputs[1] = forward.inputs[2] = y;
	check(&forward, rows * 4 * row + sums, flops);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_are_those_of_the_shapes),
		cmocka_unit_test(sums_take_a_pass_of_their_own),
		cmocka_unit_test(an_update_reads_and_writes_in_place),
		cmocka_unit_test(a_packed_operand_counts_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
