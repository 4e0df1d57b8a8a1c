/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of heads larger than the op's examples have, over several tiles: compared with ref.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(large_heads_equal_ref)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
