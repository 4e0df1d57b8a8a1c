/* SPDX-License-Identifier: Apache-2.0
 *
 * Max pool in NHWC: run on the CPU and compared with ref.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support.h"
#include "train/devices/cuda/kernels/kernels.h"

static const cuda_pool pools[] = {
	/* The models', the op cases', then windows that overlap more than twice, and as large as the picture. */
	{.n = 2, .height = 8, .width = 8, .channels = 16, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}},
	{.n = 3, .height = 9, .width = 12, .channels = 64, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}},
	{.n = 1, .height = 7, .width = 9, .channels = 3, .kernel = {2, 2}, .stride = {2, 2}},
	{.n = 1, .height = 6, .width = 5, .channels = 5, .kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 0}},
	{.n = 2, .height = 3, .width = 3, .channels = 17, .kernel = {3, 3}, .stride = {3, 3}},
	{.n = 1, .height = 1, .width = 1, .channels = 1, .kernel = {1, 1}, .stride = {1, 1}},
	{.n = 2, .height = 9, .width = 7, .channels = 8, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}},
	{.n = 1, .height = 11, .width = 10, .channels = 24, .kernel = {5, 4}, .stride = {1, 2}, .padding = {2, 2}},
	{.n = 2, .height = 16, .width = 16, .channels = 4, .kernel = {16, 16}, .stride = {1, 1}},
	{.n = 1, .height = 10, .width = 10, .channels = 12, .kernel = {2, 3}, .stride = {4, 5}},
	{.n = 5, .height = 31, .width = 33, .channels = 8, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}},
};

/* Few different numbers, so that most windows have several maxima; infinities and NaN besides. */
static array coarse(const char *name, dtrain_dtype type, int64_t count, int shift)
{
	array x = array_random(name, type, count, shift, 0, 1);
	for (int64_t i = 0; i < count; i++) {
		double value = array_get(&x, i);
		array_set(&x, i,
			  value < 0.04   ? NAN
			  : value < 0.3  ? -INFINITY
			  : value > 0.98 ? INFINITY
					 : floor(value * 5));
	}
	return x;
}

static cuda_pool complete(const cuda_pool *p, dtrain_dtype type)
{
	cuda_pool g = *p;
	g.dtype = type;
	g.out_height = (g.height + 2 * g.padding[0] - g.kernel[0]) / g.stride[0] + 1;
	g.out_width = (g.width + 2 * g.padding[1] - g.kernel[1]) / g.stride[1] + 1;
	return g;
}

static void check_pool(const cuda_pool *g, int shift)
{
	int64_t area = g->height * g->width, out_area = g->out_height * g->out_width;
	dtrain_shape large = dtrain_shape_of(4, (int64_t[]){g->n, g->channels, g->height, g->width});
	dtrain_shape small = dtrain_shape_of(4, (int64_t[]){g->n, g->channels, g->out_height, g->out_width});
	dtrain_op_attrs attrs = {.window = {.kernel = {g->kernel[0], g->kernel[1]},
					    .stride = {g->stride[0], g->stride[1]},
					    .padding = {g->padding[0], g->padding[1]}}};
	array x = coarse("x", g->dtype, g->n * g->channels * area, shift);
	array d_y = array_random("d_y", g->dtype, g->n * g->channels * out_area, shift, -1, 1);
	array y = array_make("y", g->dtype, d_y.count, shift), index = array_make("index", DTRAIN_U8, d_y.count, shift);
	array d_x = array_make("d_x", g->dtype, x.count, shift);
	CHECK_CUDA(cuda_kernel_max_pool(NULL, g, x.memory, y.memory, index.memory));
	CHECK_CUDA(cuda_kernel_max_pool_bwd(NULL, g, d_y.memory, index.memory, d_x.memory));

	array plain_x = array_turned(&x, g->n, area, g->channels), x64 = array_as(&plain_x, DTRAIN_F64);
	array plain_d_y = array_turned(&d_y, g->n, out_area, g->channels), d_y64 = array_as(&plain_d_y, DTRAIN_F64);
	array y64 = array_make("y", DTRAIN_F64, y.count, 0), index64 = array_make("index", DTRAIN_U8, y.count, 0);
	array d_x64 = array_make("d_x", DTRAIN_F64, x.count, 0);
	ref_run(DTRAIN_OP_MAX_POOL, &attrs, 1, 2, (dtrain_shape[]){large, small, small},
		(array *[]){&x64, &y64, &index64});
	ref_run(DTRAIN_OP_MAX_POOL_BWD, &attrs, 2, 1, (dtrain_shape[]){small, small, large},
		(array *[]){&d_y64, &index64, &d_x64});
	array right_y = array_turned(&y64, g->n, g->channels, out_area);
	array right_index = array_turned(&index64, g->n, g->channels, out_area);
	array right_d_x = array_turned(&d_x64, g->n, g->channels, area);
	array_compare(&y, &right_y, 0);
	array_compare_exact(&index, &right_index);
	array_compare(&d_x, &right_d_x, 1e-5);
	for (array *p[] = {&x, &d_y, &y, &index, &d_x, &plain_x, &x64, &plain_d_y, &d_y64, &y64, &index64, &d_x64,
			   &right_y, &right_index, &right_d_x, NULL},
		   **a = p;
	     *a; a++)
		array_free(*a);
}

static void max_pool_equals_ref(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); i++)
		for (int t = 0; t < 6; t++) {
			cuda_pool g = complete(&pools[i], test_types[t % 3]);
			check_pool(&g, t / 3);
		}
}

static void sides_beyond_32_bits_are_refused(void **state)
{
	(void)state;
	cuda_pool g = {.dtype = DTRAIN_F32, .n = 1, .height = INT32_MAX, .width = 1, .channels = 1};
	assert_int_equal(cuda_kernel_max_pool(NULL, &g, NULL, NULL, NULL), cudaErrorInvalidConfiguration);
	assert_int_equal(cuda_kernel_max_pool_bwd(NULL, &g, NULL, NULL, NULL), cudaErrorInvalidConfiguration);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(max_pool_equals_ref),
		cmocka_unit_test(sides_beyond_32_bits_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
