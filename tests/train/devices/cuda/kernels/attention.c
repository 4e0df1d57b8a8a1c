/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of heads larger than the op's examples have, over several tiles, and by tensor cores: compared with ref.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support.h"
#include "train/devices/cuda/kernels/kernels.h"

enum { QUERIES = 19, KEYS = 21, HEADS = 2, OPERANDS = 9 };

static void check(int64_t dim)
{
	const dtrain_op_attrs attrs = {.attention = {.heads = HEADS, .kv_heads = 1, .causal = true, .scale = 0.1}};
	const dtrain_shape q = dtrain_shape_of(3, (int64_t[]){1, QUERIES, HEADS * dim});
	const dtrain_shape k = dtrain_shape_of(3, (int64_t[]){1, KEYS, dim});
	const dtrain_shape lse = dtrain_shape_of(3, (int64_t[]){1, HEADS, QUERIES});
	const dtrain_shape shapes[OPERANDS] = {q, k, k, q, q, lse, q, k, k};
	static const char *const names[OPERANDS] = {"q", "k", "v", "y", "d_y", "lse", "d_q", "d_k", "d_v"};
	array a[OPERANDS], right[OPERANDS], *places[OPERANDS];
	for (int i = 0; i < OPERANDS; i++) {
		int64_t count = dtrain_shape_count(&shapes[i]);
		bool given = i < 3 || i == 4;
		a[i] = given ? array_random(names[i], DTRAIN_F32, count, 0, -1, 1)
			     : array_make(names[i], DTRAIN_F32, count, 0);
		right[i] = given ? array_as(&a[i], DTRAIN_F64) : array_make("right", DTRAIN_F64, count, 0);
		places[i] = &right[i];
	}
	ref_run(DTRAIN_OP_ATTENTION, &attrs, 3, 2, (dtrain_shape[]){q, k, k, q, lse},
		(array *[]){places[0], places[1], places[2], places[3], places[5]});
	ref_run(DTRAIN_OP_ATTENTION_BWD, &attrs, 6, 3, shapes, places);
	array workspace = array_make("workspace", DTRAIN_F32, HEADS * QUERIES, 0);
	const cuda_attention attention = {.dtype = DTRAIN_F32,
					  .batch = 1,
					  .queries = QUERIES,
					  .keys = KEYS,
					  .heads = HEADS,
					  .kv_heads = 1,
					  .dim = dim,
					  .q_step = HEADS * dim,
					  .k_step = dim,
					  .y_step = HEADS * dim,
					  .k_batch = KEYS,
					  .causal = true,
					  .scale = 0.1,
					  .q = a[0].memory,
					  .k = a[1].memory,
					  .v = a[2].memory,
					  .y = a[3].memory,
					  .d_y = a[4].memory,
					  .lse = a[5].memory,
					  .d_q = a[6].memory,
					  .d_k = a[7].memory,
					  .d_v = a[8].memory};
	CHECK_CUDA(cuda_kernel_attention(NULL, &attention));
	CHECK_CUDA(cuda_kernel_attention_bwd(NULL, &attention, workspace.memory));
	for (int i = 0; i < OPERANDS; i++) {
		array_compare(&a[i], &right[i], 1e-5);
		array_free(&a[i]);
		array_free(&right[i]);
	}
	array_free(&workspace);
}

static void large_heads_equal_ref(void **state)
{
	(void)state;
	check(65);
	check(128);
	check(200);
	check(CUDA_ATTENTION_LARGEST_DIM);
	const cuda_attention larger = {.dtype = DTRAIN_F32, .dim = CUDA_ATTENTION_LARGEST_DIM + 1};
	assert_int_equal(cuda_kernel_attention(NULL, &larger), cudaErrorInvalidValue);
}

/* ---- by tensor cores ---- */

typedef struct shape {
	int64_t batch, queries, keys, heads, kv_heads, dim;
	bool causal, segments;
	double dropout;
	int ranks, rank;
} shape;

enum { Q, K, V, Y, D_Y, LSE, D_Q, D_K, D_V, RANDOM, SEGMENT, COUNT };

typedef struct operands {
	array all[COUNT];
	dtrain_shape shapes[COUNT];
} operands;

static void make_operands(operands *o, const shape *s, dtrain_dtype dtype)
{
	static const char *const names[COUNT] = {"q",   "k",   "v",   "y",      "d_y",    "lse",
						 "d_q", "d_k", "d_v", "random", "segment"};
	const dtrain_shape q = dtrain_shape_of(3, (int64_t[]){s->batch, s->queries, s->heads * s->dim});
	const dtrain_shape k = dtrain_shape_of(3, (int64_t[]){s->batch, s->keys, s->kv_heads * s->dim});
	const dtrain_shape lse = dtrain_shape_of(3, (int64_t[]){s->batch, s->heads, s->queries});
	const dtrain_shape random = dtrain_shape_of(1, (int64_t[]){DTRAIN_RANDOMS});
	const dtrain_shape segment = dtrain_shape_of(2, (int64_t[]){s->batch, s->keys});
	const dtrain_shape shapes[COUNT] = {q, k, k, q, q, lse, q, k, k, random, segment};
	for (int i = 0; i < COUNT; i++) {
		const bool given = i <= V || i == D_Y, whole = i == RANDOM, number = i == SEGMENT;
		const double most = i <= K ? 2 : 1;
		o->shapes[i] = shapes[i];
		o->all[i] = given ? array_random(names[i], dtype, dtrain_shape_count(&shapes[i]), 0, -most, most)
				  : array_make(names[i],
					       whole      ? DTRAIN_I64
					       : number   ? DTRAIN_I32
					       : i == LSE ? DTRAIN_F32
							  : dtype,
					       dtrain_shape_count(&shapes[i]), 0);
	}
	memcpy(o->all[RANDOM].memory, (int64_t[DTRAIN_RANDOMS]){7, 2, 1000, 3}, DTRAIN_RANDOMS * sizeof(int64_t));
	for (int64_t i = 0; i < s->batch * s->keys; i++)
		((int32_t *)o->all[SEGMENT].memory)[i] = (int32_t)(i % s->keys / 23 % 3);
}

static dtrain_op_attrs attrs_of(const shape *s)
{
	return (dtrain_op_attrs){.attention = {.heads = (int32_t)s->heads,
					       .kv_heads = (int32_t)s->kv_heads,
					       .causal = s->causal,
					       .dropout = s->dropout,
					       .layer = 3,
					       .all_heads = (int32_t)s->heads + 3,
					       .first_head = 2,
					       .chunks = {.ranks = s->ranks, .rank = s->rank}}};
}

/* In F64, from the same inputs; y and lse for the gradients are ours. */
static void run_ref(operands *right, const operands *ours, const shape *s)
{
	const dtrain_op_attrs attrs = attrs_of(s);
	static const int inputs[] = {Q, K, V, Y, D_Y, LSE}, outputs[] = {D_Q, D_K, D_V};
	array *places[2 * DTRAIN_OP_MAX_OPERANDS];
	dtrain_shape shapes[2 * DTRAIN_OP_MAX_OPERANDS];
	for (int i = 0; i < COUNT; i++) {
		const bool real = i < RANDOM;
		right->shapes[i] = ours->shapes[i];
		right->all[i] = !real                ? array_copy(&ours->all[i])
				: i <= V || i == D_Y ? array_as(&ours->all[i], DTRAIN_F64)
						     : array_make(ours->all[i].name, DTRAIN_F64, ours->all[i].count, 0);
	}
	for (int backward = 0; backward < 2; backward++) {
		int count = 0;
		for (int i = 0; i < (backward ? 6 : 3); i++)
			places[count++] = &right->all[inputs[i]];
		if (s->dropout > 0)
			places[count++] = &right->all[RANDOM];
		if (s->segments)
			places[count++] = &right->all[SEGMENT];
		const int num_inputs = count;
		if (backward)
			for (int i = 0; i < 3; i++)
				places[count++] = &right->all[outputs[i]];
		else
			for (int i = Y; i <= LSE; i += LSE - Y)
				places[count++] = &right->all[i];
		for (int i = 0; i < count; i++)
			shapes[i] = right->shapes[places[i] - right->all];
		ref_run(s->dropout > 0 ? backward ? DTRAIN_OP_ATTENTION_DROPOUT_BWD : DTRAIN_OP_ATTENTION_DROPOUT
			: backward     ? DTRAIN_OP_ATTENTION_BWD
				       : DTRAIN_OP_ATTENTION,
			&attrs, num_inputs, count - num_inputs, shapes, places);
	}
}

static cuda_attention attention_of(const operands *o, const shape *s, dtrain_dtype dtype)
{
	return (cuda_attention){.dtype = dtype,
				.batch = s->batch,
				.queries = s->queries,
				.keys = s->keys,
				.heads = s->heads,
				.kv_heads = s->kv_heads,
				.dim = s->dim,
				.q_step = s->heads * s->dim,
				.k_step = s->kv_heads * s->dim,
				.y_step = s->heads * s->dim,
				.k_batch = s->keys,
				.causal = s->causal,
				.scale = 1 / sqrt((double)s->dim),
				.segment = s->segments ? o->all[SEGMENT].memory : NULL,
				.random = s->dropout > 0 ? o->all[RANDOM].memory : NULL,
				.dropout = s->dropout,
				.layer = 3,
				.q = o->all[Q].memory,
				.k = o->all[K].memory,
				.v = o->all[V].memory,
				.y = o->all[Y].memory,
				.lse = o->all[LSE].memory,
				.d_y = o->all[D_Y].memory,
				.d_q = o->all[D_Q].memory,
				.d_k = o->all[D_K].memory,
				.d_v = o->all[D_V].memory,
				.all_heads = s->heads + 3,
				.first_head = 2,
				.chunks = {.ranks = s->ranks, .rank = s->rank}};
}

/* Rounded once: F16 by 2^-11, BF16 by 2^-8, of probabilities and scores' gradients that add up to a few. */
static void check_halves(const shape *s, dtrain_dtype dtype)
{
	operands ours, right;
	make_operands(&ours, s, dtype);
	run_ref(&right, &ours, s);
	array workspace = array_make("workspace", DTRAIN_F32, s->batch * s->heads * s->queries, 0);
	const cuda_attention a = attention_of(&ours, s, dtype);
	assert_true(cuda_kernel_attention_has_tensor_cores(&a));
	CHECK_CUDA(cuda_kernel_attention(NULL, &a));
	CHECK_CUDA(cuda_kernel_attention_bwd(NULL, &a, workspace.memory));
	for (int i = 0; i < COUNT; i++) {
		if (i < RANDOM)
			array_compare(&ours.all[i], &right.all[i], (i == LSE ? 0.02 : 4) * type_rounding(dtype));
		array_free(&ours.all[i]);
		array_free(&right.all[i]);
	}
	array_free(&workspace);
}

static const shape shapes[] = {
	{1, 64, 64, 1, 1, 64, .causal = false},
	{1, 64, 64, 1, 1, 64, .causal = true},
	{2, 150, 150, 2, 2, 64, .causal = true},
	{1, 70, 201, 2, 1, 64, .causal = true},
	{1, 130, 67, 4, 2, 48, .causal = false},
	{1, 90, 33, 1, 1, 32, .causal = false},
	{1, 77, 77, 2, 1, 128, .causal = true},
	{1, 65, 140, 1, 1, 80, .causal = false},
	{2, 100, 100, 2, 1, 64, .causal = true, .segments = true},
	{1, 100, 100, 1, 1, 128, .causal = false, .segments = true},
	{2, 132, 132, 2, 2, 64, .causal = true, .dropout = 0.2},
	{1, 75, 139, 4, 2, 64, .causal = false, .dropout = 0.5},
	{1, 66, 135, 2, 2, 128, .causal = true, .dropout = 0.1},
	{1, 70, 210, 2, 1, 64, .causal = true, .ranks = 3, .rank = 1},
	{1, 76, 152, 1, 1, 64, .causal = true, .segments = true, .dropout = 0.3, .ranks = 2, .rank = 0},
	{1, 1, 40, 2, 1, 8, .causal = true},
};

static void tensor_cores_equal_ref(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		check_halves(&shapes[i], DTRAIN_F16);
		if (i % 3 == 2)
			check_halves(&shapes[i], DTRAIN_BF16);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(large_heads_equal_ref),
					   cmocka_unit_test(tensor_cores_equal_ref)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
