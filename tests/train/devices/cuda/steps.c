/* SPDX-License-Identifier: Apache-2.0
 *
 * steps DRIVER GPU.json [few]: whole training steps of a small network over the stand-in, with cuDNN planning for the
 * GPU that is described, and cuBLASLt of the tests' own. No number means anything here; what is seen is that each op is
 * made, enqueued and captured, that nothing is allocated or awaited in a step, and that all is given back.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <cudnn.h>

#include <dtrain/graph.h>
#include <dtrain/optimizer.h>

#include "tests/train/devices/cuda/standin/described.h"
#include "tests/train/devices/cuda/standin/standin.h"

enum { BATCH = 4, SIDE = 16, CLASSES = 5 };

static void *gpu;                                 /* what cuDNN plans for */
static char cache[] = "/tmp/dtrain-steps-XXXXXX"; /* of compiled plans: what an earlier step compiled is loaded */

struct job {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_scaler *scaler;
	dtrain_program *program;
	dtrain_optimizer *sgd;
	dtrain_tensor loss;
	beton_error err;
};

static void ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

/* One of each kind of layer, with its neighbours in ResNets and airbench94. */
static dtrain_tensor network(dtrain_graph *graph)
{
	const float mean[] = {120, 118, 104}, deviation[] = {58, 57, 57};
	dtrain_shape bytes = dtrain_shape_of(4, (int64_t[]){BATCH, SIDE, SIDE, 3});
	dtrain_tensor x =
		dtrain_normalize(graph, dtrain_graph_input(graph, "image", DTRAIN_U8, &bytes), mean, deviation);
	x = dtrain_gelu(graph, dtrain_conv2d_fixed(graph, "fixed", x, 8, 2, 1, 0));
	x = dtrain_conv2d(graph, "stem", x, 8, 3, 2, 1);
	x = dtrain_batch_norm(graph, "norm", x, true);
	x = dtrain_max_pool(graph, x, 3, 2, 1);
	dtrain_tensor shortcut = dtrain_batch_norm(graph, "short", dtrain_conv2d(graph, "cut", x, 16, 1, 1, 0), false);
	x = dtrain_conv2d(graph, "conv", x, 16, 3, 1, 1);
	x = dtrain_batch_norm_add(graph, "sum", x, shortcut);
	x = dtrain_relu(graph, dtrain_add(graph, x, shortcut, false));
	x = dtrain_gelu(graph, dtrain_channel_bias(graph, "bias", x));
	dtrain_tensor most = dtrain_linear_without_bias(graph, "most", dtrain_global_max_pool(graph, x), CLASSES);
	dtrain_tensor hidden = dtrain_linear_relu(graph, "hidden", dtrain_global_avg_pool(graph, x), 24);
	dtrain_tensor mean_of = dtrain_linear(graph, "out", hidden, CLASSES);
	return dtrain_add(graph, mean_of, dtrain_scale(graph, most, 0.2), false);
}

static void build(struct job *job, dtrain_dtype dtype)
{
	beton_error *err = &job->err;
	dtrain_graph *graph;
	dtrain_optimizer_options sgd;
	dtrain_shape labels = dtrain_shape_of(1, (int64_t[]){BATCH});
	ok(dtrain_graph_create(job->params, true, &graph, err), err);
	dtrain_graph_set_dtype(graph, dtype);
	if (job->scaler)
		dtrain_graph_set_scaler(graph, dtrain_scaler_memory(job->scaler));
	dtrain_tensor label = dtrain_graph_input(graph, "label", DTRAIN_I64, &labels);
	job->loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, network(graph), label, 0.1));
	dtrain_graph_keep(graph, job->loss);
	dtrain_graph_backward(graph, job->loss);
	ok(dtrain_graph_compile(&graph, &job->program, err), err);
	ok(dtrain_params_initialize(job->params, 7, job->stream, err), err);
	dtrain_optimizer_options_init(&sgd);
	sgd.scaler = job->scaler;
	ok(dtrain_optimizer_create(job->params, &sgd, &job->sgd, err), err);
}

static void step(struct job *job)
{
	ok(dtrain_program_run(job->program, job->stream, 0, 1, &job->err), &job->err);
	ok(dtrain_optimizer_apply(job->sgd, job->stream, &job->err), &job->err);
}

static void open_job(struct job *job, dtrain_dtype dtype, const dtrain_device_options *options)
{
	beton_error *err = &job->err;
	/* The choices of earlier tests would leave nothing to search for. */
	setenv("DTRAIN_CACHE", options->tune_later ? "" : cache, 1);
	ok(dtrain_device_open("cuda", options, &job->device, err), err);
	setenv("DTRAIN_CACHE", "", 1);
	job->api = dtrain_device_get_api(job->device);
	ok(job->api->stream_create(job->device, &job->stream, err), err);
	ok(dtrain_params_create(job->device, DTRAIN_F32, &job->params, err), err);
	if (dtype == DTRAIN_F16)
		ok(dtrain_scaler_create(job->device, job->stream, &job->scaler, err), err);
	build(job, dtype);
	ok(dtrain_optimizer_set_rate(job->sgd, 0.1, job->stream, err), err);
}

static void close_job(struct job *job)
{
	dtrain_optimizer_destroy(&job->sgd);
	dtrain_program_destroy(&job->program);
	dtrain_scaler_destroy(&job->scaler);
	dtrain_params_destroy(&job->params);
	job->api->stream_destroy(job->stream);
	dtrain_device_close(&job->device);
	assert_int_equal(standin.live, 0);
	assert_int_equal(standin.strays, 0);
}

/* The capture has as many nodes as a step has launches, at least, and a launch of it calls nothing else. */
static void capture_step(struct job *job)
{
	beton_error *err = &job->err;
	float loss;
	void *captured;
	ok(job->api->capture_begin(job->stream, err), err);
	step(job);
	ok(job->api->capture_end(job->stream, &captured, err), err);
	long calls = standin.calls;
	ok(job->api->capture_launch(captured, job->stream, err), err);
	assert_true(standin.calls - calls <= 2);
	ok(job->api->copy(job->stream, &loss, dtrain_program_data(job->program, job->loss), sizeof(loss),
			  DTRAIN_DEVICE_TO_HOST, err),
	   err);
	ok(job->api->stream_synchronize(job->stream, err), err);
	job->api->capture_destroy(captured);
}

/* Returns the launches of a step. */
static long train(dtrain_dtype dtype, bool tf32, bool deterministic)
{
	struct job job = {0};
	const dtrain_device_options options = {
		.struct_size = sizeof(options), .tf32 = tf32, .deterministic = deterministic};
	open_job(&job, dtype, &options);
	long live = standin.live, launches = standin.launches;
	step(&job);
	assert_int_equal(standin.live, live);
	launches = standin.launches - launches;
	assert_true(launches > 30);
	capture_step(&job);
	close_job(&job);
	return launches;
}

/* All ops begin with what is ready; once the search has ended they are created again, between two captured steps. */
static void ops_are_exchanged_between_captured_steps(void **state)
{
	(void)state;
	struct job job = {0};
	dtrain_tuning tuning;
	const dtrain_device_options options = {.struct_size = sizeof(options), .tune_later = true};
	setenv("DTRAIN_CUDA_BATCH_NORM", "kernels", 1);
	setenv("DTRAIN_CUDA_MAX_POOL", "kernels", 1);
	setenv("DTRAIN_CUDA_CONV_STATISTICS", "separate", 1);
	open_job(&job, DTRAIN_BF16, &options);
	job.api->tune(job.device, 0, &tuning);
	assert_true(tuning.ops > 10 && tuning.left > 0);
	int32_t ops = tuning.ops;
	step(&job);
	for (int i = 0; i < 300000 && tuning.left > 0; i++) {
		usleep(1000);
		job.api->tune(job.device, 5, &tuning);
	}
	assert_int_equal(tuning.left, 0);
	assert_true(tuning.found > 0);
	int32_t found = tuning.found;
	ok(job.api->stream_synchronize(job.stream, &job.err), &job.err);
	ok(dtrain_program_recompile(job.program, &job.err), &job.err);
	job.api->tune(job.device, 0, &tuning);
	assert_int_equal(tuning.ops, ops);
	assert_int_equal(tuning.found, found);
	step(&job);
	capture_step(&job);
	close_job(&job);
	unsetenv("DTRAIN_CUDA_BATCH_NORM");
	unsetenv("DTRAIN_CUDA_MAX_POOL");
	unsetenv("DTRAIN_CUDA_CONV_STATISTICS");
}

static int reset(void **state)
{
	(void)state;
	standin_reset();
	standin.memory = (size_t)8 << 30;
	standin.gpu = gpu;
	return 0;
}

/* A plan that cuDNN compiles takes a second, most of the time here: in_f16 alone has its batch norm, and the two have
 * its pool. */
static void in_f32(void **state)
{
	(void)state;
	setenv("DTRAIN_CUDA_BATCH_NORM", "kernels", 1);
	train(DTRAIN_F32, false, true);
	unsetenv("DTRAIN_CUDA_BATCH_NORM");
}

static void in_tf32(void **state)
{
	(void)state;
	setenv("DTRAIN_CUDA_BATCH_NORM", "kernels", 1);
	setenv("DTRAIN_CUDA_MAX_POOL", "kernels", 1);
	train(DTRAIN_F32, true, false);
	unsetenv("DTRAIN_CUDA_BATCH_NORM");
	unsetenv("DTRAIN_CUDA_MAX_POOL");
}

static void in_bf16(void **state)
{
	(void)state;
	setenv("DTRAIN_CUDA_BATCH_NORM", "kernels", 1);
	setenv("DTRAIN_CUDA_MAX_POOL", "kernels", 1);
	setenv("DTRAIN_CUDA_CONV_STATISTICS", "separate", 1);
	train(DTRAIN_BF16, false, false);
	unsetenv("DTRAIN_CUDA_BATCH_NORM");
	unsetenv("DTRAIN_CUDA_MAX_POOL");
	unsetenv("DTRAIN_CUDA_CONV_STATISTICS");
}

static void in_f16(void **state)
{
	(void)state;
	train(DTRAIN_F16, false, true);
}

/* Three batch norms take the sums that a convolution leaves: one kernel in place of two. The engines in BF16 have no
 * workspace for parts of the sums, so these are cleared. The picture is stored as cells, or is not. */
static void with_sums_of_convolutions(void **state)
{
	setenv("DTRAIN_CUDA_BATCH_NORM", "kernels", 1);
	setenv("DTRAIN_CUDA_MAX_POOL", "kernels", 1);
	for (int half = 0; half < 2; half++) {
		long launches[2];
		setenv("DTRAIN_CUDA_STEM", half ? "space-to-depth" : "plain", 1);
		for (int fused = 0; fused < 2; fused++) {
			reset(state);
			setenv("DTRAIN_CUDA_CONV_STATISTICS", fused ? "fused" : "separate", 1);
			launches[fused] = train(half ? DTRAIN_BF16 : DTRAIN_F16, false, true);
		}
		assert_int_equal(launches[0] - launches[1], half ? 0 : 3);
	}
	unsetenv("DTRAIN_CUDA_STEM");
	unsetenv("DTRAIN_CUDA_BATCH_NORM");
	unsetenv("DTRAIN_CUDA_MAX_POOL");
	unsetenv("DTRAIN_CUDA_CONV_STATISTICS");
}

static dtrain_op_desc describe_conv(int64_t channels)
{
	dtrain_op_desc desc = {
		.kind = DTRAIN_OP_CONV2D, .attrs.window.stride = {1, 1}, .num_inputs = 2, .num_outputs = 1};
	desc.inputs[0].shape = desc.outputs[0].shape = dtrain_shape_of(4, (int64_t[]){BATCH, channels, SIDE, SIDE});
	desc.inputs[1].shape = dtrain_shape_of(4, (int64_t[]){channels, channels, 1, 1});
	return desc;
}

static dtrain_op *make_conv(dtrain_device *device, int64_t channels)
{
	dtrain_op_desc desc = describe_conv(channels);
	dtrain_op *op;
	beton_error err = {0};
	ok(dtrain_device_get_api(device)->op_create(device, &desc, &op, &err), &err);
	return op;
}

/* A network has layers that are alike, and a plan may take a second. */
static void equal_ops_share_a_plan(void **state)
{
	(void)state;
	dtrain_device *device;
	beton_error err = {0};
	const dtrain_device_options options = {.struct_size = sizeof(options), .deterministic = true};
	ok(dtrain_device_open("cuda", &options, &device, &err), &err);
	const dtrain_device_api *api = dtrain_device_get_api(device);
	dtrain_op *first = make_conv(device, 8), *second = make_conv(device, 8);
	assert_int_equal(standin.plans, 1);
	dtrain_op *other = make_conv(device, 16);
	assert_int_equal(standin.plans, 2);
	api->op_destroy(first);
	first = make_conv(device, 8);
	assert_int_equal(standin.plans, 2);
	/* The last of them takes it along. */
	api->op_destroy(first);
	api->op_destroy(second);
	first = make_conv(device, 8);
	assert_int_equal(standin.plans, 3);
	api->op_destroy(first);
	api->op_destroy(other);
	dtrain_device_close(&device);
	assert_int_equal(standin.live, 0);
}

static dtrain_device *open_device(bool deterministic)
{
	dtrain_device *device;
	beton_error err = {0};
	const dtrain_device_options options = {.struct_size = sizeof(options), .deterministic = deterministic};
	ok(dtrain_device_open("cuda", &options, &device, &err), &err);
	return device;
}

/* A convolution that is a matrix product, if its x is in NHWC, as the first one's y is. */
static void products_need_no_plan(void **state)
{
	(void)state;
	beton_error err = {0};
	for (int cublaslt = 0; cublaslt < 2; cublaslt++) {
		setenv("DTRAIN_CUDA_CONV_1X1", cublaslt ? "cublaslt" : "cudnn", 1);
		dtrain_device *device = open_device(true);
		const dtrain_device_api *api = dtrain_device_get_api(device);
		dtrain_op_desc first = describe_conv(8), second = describe_conv(16);
		dtrain_op *ops[2];
		ok(api->op_create(device, &first, &ops[0], &err), &err);
		long plans = standin.plans;
		second.inputs[0].layout = first.outputs[0].layout;
		ok(api->op_create(device, &second, &ops[1], &err), &err);
		assert_int_equal(standin.plans - plans, !cublaslt);
		for (int i = 0; i < 2; i++)
			api->op_destroy(ops[i]);
		dtrain_device_close(&device);
	}
	unsetenv("DTRAIN_CUDA_CONV_1X1");
	assert_int_equal(standin.live, 0);
}

/* Some of cuDNN's plans can be made but not run. */
static void plans_that_do_not_run_are_passed_over(void **state)
{
	(void)state;
	for (int deterministic = 0; deterministic < 2; deterministic++) {
		dtrain_device *device = open_device(deterministic);
		standin.plans = 0;
		standin.broken_plans = 2;
		dtrain_op *op = make_conv(device, 8);
		assert_int_equal(standin.broken_plans, 0);
		if (deterministic)
			assert_int_equal(standin.plans, 3);
		dtrain_device_get_api(device)->op_destroy(op);
		dtrain_device_close(&device);
		assert_int_equal(standin.live, 0);
	}
}

/* Where none runs our kernels take over, or it is said that there is none. */
static void without_plans_that_run_kernels_do(void **state)
{
	(void)state;
	dtrain_device *device = open_device(false);
	const dtrain_device_api *api = dtrain_device_get_api(device);
	dtrain_stream *stream;
	beton_error err = {0};
	dtrain_op *op = NULL;
	void *memory, *operands[3];
	dtrain_op_desc conv = describe_conv(8);
	dtrain_op_desc pool = {.kind = DTRAIN_OP_MAX_POOL, .num_inputs = 1, .num_outputs = 2};
	standin.broken_plans = LONG_MAX;
	assert_int_equal(api->op_create(device, &conv, &op, &err), BETON_UNSUPPORTED);
	assert_non_null(strstr(err.message, "no engine for"));
	assert_null(op);
	/* The pool's engines are compiled: one after the other, and not twice over to be timed. */
	dtrain_device_close(&device);
	device = open_device(true);
	for (int i = 0; i < 2; i++)
		pool.attrs.window.kernel[i] = pool.attrs.window.stride[i] = 2;
	pool.inputs[0].shape = dtrain_shape_of(4, (int64_t[]){BATCH, 8, SIDE, SIDE});
	pool.outputs[0].shape = pool.outputs[1].shape = dtrain_shape_of(4, (int64_t[]){BATCH, 8, SIDE / 2, SIDE / 2});
	pool.outputs[1].dtype = DTRAIN_U8;
	ok(api->op_create(device, &pool, &op, &err), &err);
	ok(api->stream_create(device, &stream, &err), &err);
	ok(api->alloc(device, 1 << 20, &memory, &err), &err);
	for (int i = 0; i < 3; i++)
		operands[i] = (char *)memory + (i << 17);
	standin.launches = 0;
	ok(api->op_run(op, stream, operands, (char *)memory + (3 << 17), &err), &err);
	assert_true(standin.launches > 0);
	api->op_destroy(op);
	api->free(device, memory);
	api->stream_destroy(stream);
	dtrain_device_close(&device);
	assert_int_equal(standin.live, 0);
}

/* The ops that compressions put on a stream, for 3 ranks, 1000 gradients and a matrix of 20 x 50. */
#define OF(type, n, ...)                                              \
	{                                                             \
		.dtype = DTRAIN_##type, .shape = { n, {__VA_ARGS__} } \
	}
static const struct {
	dtrain_op_desc desc;
	long launches;
} compressions[] = {
	{{DTRAIN_OP_NARROW, {.factor = 0.5}, 1, 1, {OF(F32, 1, 1000)}, {OF(BF16, 1, 1000)}}, 1},
	{{DTRAIN_OP_WIDEN, {.factor = 2}, 1, 1, {OF(BF16, 1, 1000)}, {OF(F32, 1, 1000)}}, 1},
	{{DTRAIN_OP_CARRY, {.factor = -0.5}, 2, 1, {OF(F32, 1, 1000), OF(F32, 1, 1000)}, {OF(F32, 1, 1000)}}, 1},
	{{DTRAIN_OP_QUANTIZE, {0}, 1, 2, {OF(F32, 1, 1000)}, {OF(U8, 3, 3, 2, DTRAIN_CODE_BYTES), OF(F32, 1, 1000)}},
	 1},
	{{DTRAIN_OP_DEQUANTIZE, {0}, 1, 1, {OF(U8, 3, 3, 4, DTRAIN_CODE_BYTES)}, {OF(F32, 1, 1000)}}, 1},
	{{DTRAIN_OP_TOP_K, {0}, 1, 2, {OF(F32, 1, 1000)}, {OF(U8, 3, 1, 10, DTRAIN_PAIR_BYTES), OF(F32, 1, 1000)}}, 9},
	{{DTRAIN_OP_SPREAD, {0}, 1, 1, {OF(U8, 3, 3, 10, DTRAIN_PAIR_BYTES)}, {OF(F32, 1, 1000)}}, 3},
	{{DTRAIN_OP_ORTHONORMALIZE,
	  {0},
	  2,
	  2,
	  {OF(F32, 2, 50, 2), OF(I64, 1, DTRAIN_RANDOMS)},
	  {OF(F32, 2, 50, 2), OF(I64, 1, DTRAIN_RANDOMS)}},
	 1},
	{{DTRAIN_OP_MATMUL,
	  {.matmul = {.alpha = 1, .transpose_b = true, .deterministic = true}},
	  2,
	  1,
	  {OF(F32, 2, 20, 2), OF(F32, 2, 50, 2)},
	  {OF(F32, 2, 20, 50)}},
	 0},
};

/* Each twice, and the second time in a capture. */
static void compressions_are_captured(void **state)
{
	(void)state;
	dtrain_device *device = open_device(false);
	const dtrain_device_api *api = dtrain_device_get_api(device);
	dtrain_stream *stream;
	beton_error err = {0};
	void *memory, *operands[4], *captured;
	ok(api->stream_create(device, &stream, &err), &err);
	ok(api->alloc(device, 1 << 20, &memory, &err), &err);
	for (int i = 0; i < 4; i++)
		operands[i] = (char *)memory + (i << 13);
	for (size_t i = 0; i < sizeof(compressions) / sizeof(compressions[0]); i++) {
		dtrain_op_desc desc = compressions[i].desc;
		dtrain_op *op;
		ok(api->op_create(device, &desc, &op, &err), &err);
		assert_true(desc.workspace_bytes <= 1 << 19);
		for (int captures = 0; captures < 2; captures++) {
			if (captures)
				ok(api->capture_begin(stream, &err), &err);
			long live = standin.live;
			standin.launches = 0;
			ok(api->op_run(op, stream, operands, (char *)memory + (1 << 19), &err), &err);
			assert_int_equal(standin.launches, compressions[i].launches);
			assert_int_equal(standin.live, live);
		}
		ok(api->capture_end(stream, &captured, &err), &err);
		ok(api->capture_launch(captured, stream, &err), &err);
		ok(api->stream_synchronize(stream, &err), &err);
		api->capture_destroy(captured);
		api->op_destroy(op);
	}
	api->free(device, memory);
	api->stream_destroy(stream);
	dtrain_device_close(&device);
	assert_int_equal(standin.live, 0);
	assert_int_equal(standin.strays, 0);
}

static void remove_cache(void)
{
	char command[64];
	snprintf(command, sizeof(command), "rm -rf '%s'", cache);
	if (system(command) != 0)
		perror(cache);
}

int main(int argc, char **argv)
{
	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: %s DRIVER GPU.json [few]\n", argv[0]);
		return 2;
	}
	setenv("DTRAIN_CACHE", "", 1);
	int failed = standin_describe(argv[1], argv[2], &gpu);
	if (failed)
		return failed;
	if (!mkdtemp(cache)) {
		perror(cache);
		return 1;
	}
	const struct CMUnitTest few[] = {
		cmocka_unit_test_setup(equal_ops_share_a_plan, reset),
		cmocka_unit_test_setup(products_need_no_plan, reset),
		cmocka_unit_test_setup(plans_that_do_not_run_are_passed_over, reset),
		cmocka_unit_test_setup(compressions_are_captured, reset),
		cmocka_unit_test_setup(in_tf32, reset),
		cmocka_unit_test_setup(in_bf16, reset),
		cmocka_unit_test_setup(with_sums_of_convolutions, reset),
	};
	/* Those for which cuDNN compiles most. */
	const struct CMUnitTest others[] = {
		cmocka_unit_test_setup(without_plans_that_run_kernels_do, reset),
		cmocka_unit_test_setup(ops_are_exchanged_between_captured_steps, reset),
		cmocka_unit_test_setup(in_f32, reset),
		cmocka_unit_test_setup(in_f16, reset),
	};
	failed = cmocka_run_group_tests_name("few", few, NULL, NULL);
	if (argc == 3)
		failed += cmocka_run_group_tests_name("others", others, NULL, NULL);
	remove_cache();
	cudnnBackendDestroyDescriptor(gpu);
	return failed;
}
