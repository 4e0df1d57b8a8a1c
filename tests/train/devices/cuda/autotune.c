/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN's way of running an op against our kernels', over the stand-in and with a clock of the test's: ops here do
 * nothing but take their time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/temporary.h"
#include "devices/cuda/algorithms.h"
#include "devices/cuda/autotune.h"
#include "tests/train/devices/cuda/standin/standin.h"

const char cuda_nhwc[] = "NHWC", cuda_nhwc_sums[] = "NHWC with sums", cuda_cells_layout[] = "cells",
	   cuda_dnn_private[] = "cuDNN's own";

static char folder[] = "/tmp/dtrain-contest-XXXXXX";

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
	(void)handle;
	(void)stream;
	return CUDNN_STATUS_SUCCESS;
}

/* Times of the two ways' ops, forward and backward; negative: no such op. */
static struct {
	long long ns[2][2];
	bool forbidden[2]; /* in a capture */
	int built, runs;
	const void *mask; /* that the forward op of a way wrote */
} plays;

static int run_op(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	(void)stream;
	int way = *(const int *)op->state % 2, backward = *(const int *)op->state / 2;
	void *memory;
	plays.runs++;
	standin.clock_ns += plays.ns[way][backward];
	for (int i = 0; i < op->desc.num_inputs; i++)
		assert_true(standin_is_inside(operands[i], op->desc.inputs[i].bytes));
	assert_true(standin_is_inside(workspace, op->desc.workspace_bytes));
	if (backward)
		assert_ptr_equal(operands[1], plays.mask);
	else if (op->desc.num_outputs > 1)
		plays.mask = operands[op->desc.num_inputs + 1];
	if (plays.forbidden[way] && standin_is_capturing())
		return cuda_check(cudaMalloc(&memory, 1), err, "an op that allocates");
	return BETON_OK;
}

static int build(dtrain_op *op, dtrain_op_desc *desc, int way, int backward)
{
	if (plays.ns[way][backward] < 0)
		return BETON_UNSUPPORTED;
	int *state = malloc(sizeof(*state));
	assert_non_null(state);
	*state = way + 2 * backward;
	op->state = state;
	op->destroy = free;
	op->run = run_op;
	desc->workspace_bytes = 100;
	/* A mask of a way's own size. */
	if (!backward && desc->num_outputs > 1)
		desc->outputs[1].bytes = 512;
	if (backward)
		assert_int_equal(desc->inputs[1].bytes, 512);
	plays.built++;
	return BETON_OK;
}

#define BUILDER(name, way, backward)                                           \
	static int name(dtrain_op *op, dtrain_op_desc *desc, beton_error *err) \
	{                                                                      \
		(void)err;                                                     \
		return build(op, desc, way, backward);                         \
	}
BUILDER(forward_0, 0, 0)
BUILDER(forward_1, 1, 0)
BUILDER(backward_0, 0, 1)
BUILDER(backward_1, 1, 1)

static const cuda_way ways[] = {{{forward_0, backward_0}}, {{forward_1, backward_1}}};

static dtrain_op_desc describe(int64_t channels, bool mask)
{
	dtrain_op_desc desc = {.kind = DTRAIN_OP_MAX_POOL, .num_inputs = 1, .num_outputs = mask ? 2 : 1};
	desc.inputs[0].shape = desc.outputs[0].shape = desc.outputs[1].shape =
		dtrain_shape_of(4, (int64_t[]){2, channels, 4, 4});
	desc.outputs[1].dtype = DTRAIN_U8;
	return desc;
}

static dtrain_op_desc backward_of(const dtrain_op_desc *desc)
{
	return (dtrain_op_desc){.kind = DTRAIN_OP_MAX_POOL_BWD,
				.num_inputs = 2,
				.num_outputs = 1,
				.inputs = {desc->outputs[0], desc->outputs[1]},
				.outputs = {desc->inputs[0]}};
}

static uint64_t build_of_kernels;

static dtrain_device open_device(void)
{
	dtrain_device device = {.build = build_of_kernels};
	beton_error err;
	if (cuda_algorithms_open("gpu", &device.algorithms, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(cudaSetDevice(0), cudaSuccess);
	return device;
}

static void check(int64_t channels, bool mask, int winner)
{
	dtrain_device device = open_device();
	dtrain_op_desc desc = describe(channels, mask);
	pthread_mutex_lock(&device.lock);
	assert_int_equal(cuda_autotune(&device, &desc, mask ? backward_of : NULL, ways), winner);
	pthread_mutex_unlock(&device.lock);
	cuda_algorithms_close(device.algorithms);
	assert_int_equal(standin.live, 0);
}

static int reset(void **state)
{
	(void)state;
	static int count;
	char path[64];
	standin_reset();
	standin.has_clock = true;
	standin.clock_ns = 1; /* an event that never was has 0 */
	memset(&plays, 0, sizeof(plays));
	snprintf(path, sizeof(path), "%s/%d", folder, count++);
	return setenv("DTRAIN_CACHE", path, 1);
}

static void the_sum_of_both_directions_decides(void **state)
{
	(void)state;
	const long long ns[][2][2] = {
		{{50000, 10000}, {20000, 30000}}, {{20000, 20000}, {10000, 50000}}, {{20000, 20000}, {20000, 19900}}};
	static const int winners[] = {1, 0, 0}; /* noise leaves it to cuDNN */
	for (int i = 0; i < 3; i++) {
		memcpy(plays.ns, ns[i], sizeof(plays.ns));
		check(8 + i, true, winners[i]);
	}
	/* Alone, where the backward op needs nothing of it. */
	memcpy(plays.ns, ns[1], sizeof(plays.ns));
	check(8, false, 1);
}

/* By this process, or by another. */
static void what_was_timed_is_not_timed_again(void **state)
{
	(void)state;
	plays.ns[0][0] = plays.ns[0][1] = 20000;
	plays.ns[1][0] = plays.ns[1][1] = 10000;
	check(8, true, 1);
	assert_true(plays.runs > 0);
	plays.runs = plays.built = 0;
	/* It would be the other one now. */
	plays.ns[0][0] = plays.ns[0][1] = 1000;
	check(8, true, 1);
	assert_int_equal(plays.runs + plays.built, 0);
	check(16, true, 0);
	assert_true(plays.runs > 0);
}

/* A convolution, the batch norm after it, and the batch norm's backward op. */
static dtrain_op_desc next_of(const dtrain_op_desc *desc)
{
	if (desc->kind == DTRAIN_OP_MAX_POOL)
		return backward_of(desc);
	dtrain_op_desc norm = describe(desc->outputs[0].shape.dim[1], true);
	norm.inputs[0] = desc->outputs[0];
	return norm;
}

static int conv_0(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return forward_0(op, desc, err);
}

static int conv_1(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	int status = forward_1(op, desc, err);
	desc->outputs[0].bytes = 4096; /* beyond the shape's need */
	return status;
}

static void chains_are_timed_together(void **state)
{
	(void)state;
	static const cuda_way chains[] = {{{conv_0, forward_0, backward_0}}, {{conv_1, forward_1, backward_1}}};
	/* Twice the first, once the second. */
	const long long ns[][2][2] = {{{20000, 20000}, {15000, 25000}}, {{20000, 20000}, {15000, 35000}}};
	for (int i = 0; i < 2; i++) {
		dtrain_device device = open_device();
		dtrain_op_desc desc = describe(8 + 8 * i, false);
		desc.kind = DTRAIN_OP_CONV2D;
		memcpy(plays.ns, ns[i], sizeof(plays.ns));
		pthread_mutex_lock(&device.lock);
		for (int fusion = 1; fusion < 3; fusion++) {
			desc.attrs.window.fusion = (dtrain_fusion)fusion;
			plays.built = 0;
			assert_int_equal(cuda_autotune(&device, &desc, next_of, chains), 1 - i);
			assert_int_equal(plays.built, 6);
			assert_int_equal(cuda_autotune(&device, &desc, next_of, chains), 1 - i);
			assert_int_equal(plays.built, 6);
		}
		pthread_mutex_unlock(&device.lock);
		cuda_algorithms_close(device.algorithms);
		assert_int_equal(standin.live, 0);
	}
	/* The whole way loses with one of its ops. */
	dtrain_device device = open_device();
	dtrain_op_desc desc = describe(32, false);
	desc.kind = DTRAIN_OP_CONV2D;
	memcpy(plays.ns, ns[0], sizeof(plays.ns));
	plays.ns[1][1] = -1;
	pthread_mutex_lock(&device.lock);
	assert_int_equal(cuda_autotune(&device, &desc, next_of, chains), 0);
	pthread_mutex_unlock(&device.lock);
	cuda_algorithms_close(device.algorithms);
}

/* Times of other kernels are not used for these. */
static void other_kernels_are_timed(void **state)
{
	(void)state;
	plays.ns[0][0] = plays.ns[0][1] = 20000;
	plays.ns[1][0] = plays.ns[1][1] = 10000;
	check(8, true, 1);
	plays.ns[1][0] = plays.ns[1][1] = 30000;
	build_of_kernels = 1;
	check(8, true, 0);
	build_of_kernels = 0;
	check(8, true, 1);
}

/* Operands of attention do not tell how they are divided into heads. */
static void attention_is_timed_for_its_heads(void **state)
{
	(void)state;
	dtrain_device device = open_device();
	dtrain_op_desc desc = describe(8, false);
	desc.kind = DTRAIN_OP_ATTENTION;
	plays.ns[0][0] = 20000;
	plays.ns[1][0] = 10000;
	pthread_mutex_lock(&device.lock);
	for (int i = 0; i < 4; i++) {
		desc.attrs.attention = (dtrain_attention_attrs){
			.heads = 4, .kv_heads = i == 1 ? 2 : 4, .causal = i == 2, .packed = i == 3};
		plays.runs = 0;
		assert_int_equal(cuda_autotune(&device, &desc, NULL, ways), 1);
		assert_true(plays.runs > 0);
		plays.runs = 0;
		assert_int_equal(cuda_autotune(&device, &desc, NULL, ways), 1);
		assert_int_equal(plays.runs, 0);
	}
	pthread_mutex_unlock(&device.lock);
	cuda_algorithms_close(device.algorithms);
}

static void a_way_that_does_not_work_has_lost(void **state)
{
	(void)state;
	const long long ns[][2][2] = {{{-1, 10}, {30000, 30000}}, {{10, -1}, {30000, 30000}}, {{300, 300}, {10, -1}}};
	static const int winners[] = {1, 1, 0};
	for (int i = 0; i < 3; i++) {
		memcpy(plays.ns, ns[i], sizeof(plays.ns));
		check(8 + i, true, winners[i]);
	}
	memset(plays.ns, 0, sizeof(plays.ns));
	plays.ns[1][0] = 10000;
	plays.forbidden[0] = true;
	check(20, true, 1);
}

/* Without memory nothing is known, and nothing is kept. */
static void without_memory_cudnn_is_taken(void **state)
{
	(void)state;
	plays.ns[0][0] = 20000;
	standin.memory = 64;
	check(8, true, 0);
	standin.memory = 1 << 20;
	check(8, true, 1);
}

static void preferences_are_kept(void **state)
{
	(void)state;
	dtrain_device device = open_device();
	dtrain_op_desc desc = describe(8, true);
	plays.ns[0][0] = 20000;
	pthread_mutex_lock(&device.lock);
	assert_true(cuda_second_wins(&device, CUDA_KERNELS, &desc, backward_of, ways));
	assert_false(cuda_second_wins(&device, CUDA_CUDNN, &desc, backward_of, ways));
	device.deterministic = true;
	assert_false(cuda_second_wins(&device, CUDA_FASTEST, &desc, backward_of, ways));
	assert_true(cuda_second_wins(&device, CUDA_KERNELS, &desc, backward_of, ways));
	assert_int_equal(plays.runs + plays.built, 0);
	device.deterministic = false;
	assert_true(cuda_second_wins(&device, CUDA_FASTEST, &desc, backward_of, ways));
	assert_true(plays.runs > 0);
	pthread_mutex_unlock(&device.lock);
	cuda_algorithms_close(device.algorithms);
}

int main(void)
{
	if (!mkdtemp(folder)) {
		perror(folder);
		return 1;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_sum_of_both_directions_decides, reset),
		cmocka_unit_test_setup(what_was_timed_is_not_timed_again, reset),
		cmocka_unit_test_setup(chains_are_timed_together, reset),
		cmocka_unit_test_setup(other_kernels_are_timed, reset),
		cmocka_unit_test_setup(attention_is_timed_for_its_heads, reset),
		cmocka_unit_test_setup(a_way_that_does_not_work_has_lost, reset),
		cmocka_unit_test_setup(without_memory_cudnn_is_taken, reset),
		cmocka_unit_test_setup(preferences_are_kept, reset),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_remove(folder);
	return failed;
}
