/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of the cuda device, on a cuBLASLt of the test's: whether it is asked for the right ones.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/cuda/algorithms.h"
#include "devices/cuda/cuda.h"
#include "fake_cublaslt.h"
#include "fake_kernels.h"
#include "tests/train/devices/cuda/standin/standin.h"

/* ---- an op and its operands ---- */

enum { MAX_OPERANDS = 5 };

typedef struct layer {
	int64_t n, in, out;
	dtrain_dtype dtype;
	bool biased;
	dtrain_op_desc desc;
	void *operands[MAX_OPERANDS];
} layer;

static dtrain_operand operand(dtrain_dtype dtype, int ndim, int64_t rows, int64_t columns)
{
	dtrain_operand out = {.dtype = dtype, .shape = dtrain_shape_of(ndim, (int64_t[]){rows, columns})};
	out.bytes = (size_t)dtrain_shape_count(&out.shape) * dtrain_dtype_size(dtype);
	return out;
}

static layer make_layer(dtrain_op_kind kind, dtrain_dtype dtype, int64_t n, int64_t in, int64_t out, bool biased)
{
	layer l = {.n = n, .in = in, .out = out, .dtype = dtype, .biased = biased};
	dtrain_operand x = operand(dtype, 2, n, in), y = operand(dtype, 2, n, out);
	dtrain_operand w = operand(DTRAIN_F32, 2, out, in), b = operand(DTRAIN_F32, 1, out, 0);
	l.desc.kind = kind;
	l.desc.num_inputs = kind == DTRAIN_OP_LINEAR && biased ? 3 : 2;
	l.desc.num_outputs = kind == DTRAIN_OP_LINEAR_BWD_WEIGHT && biased ? 2 : 1;
	const dtrain_operand orders[][MAX_OPERANDS] = {{x, w, b, y}, {y, w, x}, {x, y, w, b}, {x, w, y}};
	const dtrain_operand *order = orders[kind == DTRAIN_OP_LINEAR && !biased ? 3 : kind - DTRAIN_OP_LINEAR];
	for (int i = 0; i < l.desc.num_inputs + l.desc.num_outputs; i++) {
		if (i < l.desc.num_inputs)
			l.desc.inputs[i] = order[i];
		else
			l.desc.outputs[i - l.desc.num_inputs] = order[i];
		l.operands[i] = malloc(order[i].bytes);
		assert_non_null(l.operands[i]);
		int64_t count = dtrain_shape_count(&order[i].shape);
		for (int64_t k = 0; k < count; k++)
			fake_put(l.operands[i], order[i].dtype, k,
				 i < l.desc.num_inputs ? (float)((k * 7 + i * 3) % 11 - 5) / 4 : NAN);
	}
	return l;
}

static void free_layer(layer *l)
{
	for (int i = 0; i < MAX_OPERANDS; i++)
		free(l->operands[i]);
}

static void check_output(const layer *l, int index, double (*right)(const layer *l, int64_t row, int64_t column),
			 const char *what)
{
	const dtrain_operand *output = &l->desc.outputs[index];
	int64_t columns = output->shape.ndim == 2 ? output->shape.dim[1] : output->shape.dim[0];
	int64_t count = dtrain_shape_count(&output->shape);
	for (int64_t i = 0; i < count; i++) {
		double wanted = right(l, i / columns, i % columns);
		double got = (double)fake_get(l->operands[l->desc.num_inputs + index], output->dtype, i);
		double bound = (output->dtype == DTRAIN_F32 ? 1e-6 : 0x1p-7) * (1 + fabs(wanted));
		if (!(fabs(got - wanted) <= bound))
			fail_msg("%s: n %d, in %d, out %d: element %d is %g, not %g", what, (int)l->n, (int)l->in,
				 (int)l->out, (int)i, got, wanted);
	}
}

/* The weight's element, in either order. */
static double weight_at(const layer *l, int64_t out, int64_t in)
{
	int64_t at = l->desc.attrs.linear.weight_in_out ? in * l->out + out : out * l->in + in;
	return (double)fake_get(l->operands[1], l->desc.inputs[1].dtype, at);
}

/* Before an activation. */
static double right_z(const layer *l, int64_t row, int64_t column)
{
	double sum = l->biased ? (double)fake_get(l->operands[2], DTRAIN_F32, column) : 0;
	for (int64_t k = 0; k < l->in; k++)
		sum += (double)fake_get(l->operands[0], l->dtype, row * l->in + k) * weight_at(l, column, k);
	return l->desc.attrs.relu ? fmax(sum, 0) : sum;
}

static double right_y(const layer *l, int64_t row, int64_t column)
{
	return right_z(l, row, column) + 100 * (double)l->desc.attrs.linear.activation;
}

static double right_d_x(const layer *l, int64_t row, int64_t column)
{
	double sum = 0;
	for (int64_t k = 0; k < l->out; k++)
		sum += (double)fake_get(l->operands[0], l->dtype, row * l->out + k) * weight_at(l, k, column);
	return l->desc.num_inputs > 2 ? sum * (double)fake_get(l->operands[2], l->dtype, row * l->in + column) : sum;
}

static double right_d_w(const layer *l, int64_t row, int64_t column)
{
	double sum = 0;
	if (l->desc.attrs.linear.weight_in_out) {
		int64_t in = row;
		row = column;
		column = in;
	}
	for (int64_t k = 0; k < l->n; k++)
		sum += (double)fake_get(l->operands[1], l->dtype, k * l->out + row) *
		       (double)fake_get(l->operands[0], l->dtype, k * l->in + column);
	return sum;
}

static double right_d_b(const layer *l, int64_t row, int64_t column)
{
	double sum = 0;
	(void)row;
	for (int64_t k = 0; k < l->n; k++)
		sum += (double)fake_get(l->operands[1], l->dtype, k * l->out + column);
	return sum;
}

static void run(dtrain_device *device, layer *l)
{
	dtrain_op op = {.device = device};
	beton_error err = {0};
	if (cuda_build_linear(&op, &l->desc, &err) != BETON_OK)
		fail_msg("%s", err.message);
	op.desc = l->desc;
	char *workspace = malloc(l->desc.workspace_bytes + 1);
	assert_non_null(workspace);
	memset(workspace, 0xee, l->desc.workspace_bytes);
	if (op.run(&op, NULL, l->operands, workspace, &err) != BETON_OK)
		fail_msg("%s", err.message);
	free(workspace);
	op.destroy(op.state);
	assert_int_equal(fake.live, 0);
}

static void run_all(dtrain_device *device, dtrain_dtype dtype, int64_t n, int64_t in, int64_t out, bool biased)
{
	layer l = make_layer(DTRAIN_OP_LINEAR, dtype, n, in, out, biased);
	run(device, &l);
	check_output(&l, 0, right_y, "y");
	free_layer(&l);
	l = make_layer(DTRAIN_OP_LINEAR_BWD_DATA, dtype, n, in, out, biased);
	run(device, &l);
	check_output(&l, 0, right_d_x, "d_x");
	free_layer(&l);
	l = make_layer(DTRAIN_OP_LINEAR_BWD_WEIGHT, dtype, n, in, out, biased);
	run(device, &l);
	check_output(&l, 0, right_d_w, "d_w");
	if (biased)
		check_output(&l, 1, right_d_b, "d_b");
	free_layer(&l);
}

static const int64_t sizes[][3] = {{4, 32, 16}, {1, 1, 1}, {3, 17, 5}, {7, 192, 10}, {5, 8, 24}};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* The weight is [in, out]. */
static void turn_weight(layer *l)
{
	bool gradient = l->desc.kind == DTRAIN_OP_LINEAR_BWD_WEIGHT;
	dtrain_operand *w = gradient ? &l->desc.outputs[0] : &l->desc.inputs[1];
	l->desc.attrs.linear.weight_in_out = true;
	w->shape = dtrain_shape_of(2, (int64_t[]){l->in, l->out});
}

/* z becomes the second output. */
static void give_activation(layer *l, dtrain_activation activation, bool keeps)
{
	int y = l->desc.num_inputs;
	l->desc.attrs.linear.activation = activation;
	if (!keeps)
		return;
	l->desc.outputs[1] = l->desc.outputs[0];
	l->desc.num_outputs = 2;
	l->operands[y + 1] = malloc(l->desc.outputs[0].bytes);
	assert_non_null(l->operands[y + 1]);
}

/* z becomes the third input of LINEAR_BWD_DATA. */
static void give_argument(layer *l)
{
	l->desc.attrs.linear.activation = DTRAIN_ACTIVATION_GELU_TANH;
	l->desc.num_inputs = 3;
	l->desc.inputs[2] = l->desc.outputs[0];
	l->operands[3] = l->operands[2];
	l->operands[2] = malloc(l->desc.outputs[0].bytes);
	assert_non_null(l->operands[2]);
	for (int64_t i = 0; i < l->n * l->in; i++)
		fake_put(l->operands[2], l->dtype, i, (float)(i % 5 - 2) / 2);
}

/* ---- tests ---- */

/* Memory to try algorithms in; without it products are counted. */
static int give_memory(void **state)
{
	(void)state;
	standin.memory = (size_t)64 << 20;
	return 0;
}

static int take_memory(void **state)
{
	(void)state;
	standin.memory = 0;
	standin.has_clock = false;
	return 0;
}

static void products_are_right(void **state)
{
	(void)state;
	for (int no_epilogues = 0; no_epilogues < 2; no_epilogues++)
		for (size_t i = 0; i < SIZES; i++)
			for (int way = 0; way < 4; way++) {
				bool half = way & 1, biased = way & 2;
				fake = (fake_blas){.no_epilogues = no_epilogues};
				dtrain_device device = {.index = 0};
				run_all(&device, half ? DTRAIN_BF16 : DTRAIN_F32, sizes[i][0], sizes[i][1], sizes[i][2],
					biased);
				assert_int_equal(fake.products, 3);
				assert_int_equal(fake.epilogue, no_epilogues || !biased ? CUBLASLT_EPILOGUE_DEFAULT
											: CUBLASLT_EPILOGUE_BGRADB);
			}
}

/* A weight that was rounded before. */
static void round_weight(layer *l)
{
	dtrain_operand *w = &l->desc.inputs[1];
	int64_t count = dtrain_shape_count(&w->shape);
	w->dtype = l->dtype;
	w->bytes /= 2;
	for (int64_t i = 0; i < count; i++)
		fake_put(l->operands[1], l->dtype, i, fake_get(l->operands[1], DTRAIN_F32, i));
}

static void copies_of_weights_are_used_as_they_are(void **state)
{
	(void)state;
	dtrain_device device = {.index = 0};
	for (size_t i = 0; i < SIZES; i++)
		for (int way = 0; way < 4; way++) {
			bool forward = way & 1, rounded = way & 2;
			layer l = make_layer(forward ? DTRAIN_OP_LINEAR : DTRAIN_OP_LINEAR_BWD_DATA, DTRAIN_BF16,
					     sizes[i][0], sizes[i][1], sizes[i][2], false);
			if (rounded)
				round_weight(&l);
			fake = (fake_blas){.no_epilogues = false};
			fake_kernels.casts = 0;
			run(&device, &l);
			assert_int_equal(fake_kernels.casts, rounded ? 0 : 1);
			check_output(&l, 0, forward ? right_y : right_d_x, forward ? "y" : "d_x");
			free_layer(&l);
		}
}

static void weights_may_be_in_out(void **state)
{
	(void)state;
	static const dtrain_op_kind kinds[] = {DTRAIN_OP_LINEAR, DTRAIN_OP_LINEAR_BWD_DATA,
					       DTRAIN_OP_LINEAR_BWD_WEIGHT};
	dtrain_device device = {.index = 0};
	for (size_t i = 0; i < SIZES * 24; i++) {
		bool half = i & 1, biased = i & 2, no_epilogues = i & 4;
		dtrain_op_kind kind = kinds[i / 8 % 3];
		const int64_t *size = sizes[i / 24];
		layer l = make_layer(kind, half ? DTRAIN_BF16 : DTRAIN_F32, size[0], size[1], size[2], biased);
		fake = (fake_blas){.no_epilogues = no_epilogues};
		turn_weight(&l);
		run(&device, &l);
		check_output(&l, 0,
			     kind == DTRAIN_OP_LINEAR            ? right_y
			     : kind == DTRAIN_OP_LINEAR_BWD_DATA ? right_d_x
								 : right_d_w,
			     "weight [in, out]");
		if (kind == DTRAIN_OP_LINEAR_BWD_WEIGHT && biased) {
			check_output(&l, 1, right_d_b, "d_b");
			assert_int_equal(fake.epilogue,
					 no_epilogues ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BGRADA);
		}
		free_layer(&l);
	}
}

static void activations_keep_what_they_are_given(void **state)
{
	(void)state;
	dtrain_device device = {.index = 0};
	for (int i = 0; i < 32; i++) {
		bool half = i & 1, biased = i & 2, keeps = i & 4;
		dtrain_activation activation = DTRAIN_ACTIVATION_GELU + i / 8 % 3;
		layer l = make_layer(DTRAIN_OP_LINEAR, half ? DTRAIN_BF16 : DTRAIN_F32, 7, 192, 10, biased);
		fake = (fake_blas){.no_epilogues = i >= 24};
		give_activation(&l, activation, keeps);
		run(&device, &l);
		check_output(&l, 0, right_y, "y");
		if (keeps)
			check_output(&l, 1, right_z, "z");
		free_layer(&l);
	}
}

/* ---- batches of products ---- */

enum { BATCH = 3, M = 5, N = 4, K = 7 };

static double factor_at(const layer *l, int operand, int64_t batch, int64_t row, int64_t column, bool turned)
{
	int64_t rows = operand ? K : M, columns = operand ? N : K;
	int64_t at = batch * rows * columns + (turned ? column * rows + row : row * columns + column);
	return (double)fake_get(l->operands[operand], l->dtype, at);
}

static double right_product(const layer *l, int64_t row, int64_t column)
{
	const dtrain_matmul_attrs *attrs = &l->desc.attrs.matmul;
	double sum = 0;
	for (int64_t k = 0; k < K; k++)
		sum += factor_at(l, 0, row / M, row % M, k, attrs->transpose_a) *
		       factor_at(l, 1, row / M, k, column, attrs->transpose_b);
	return sum * attrs->alpha;
}

static void check_matmul(dtrain_device *device, dtrain_dtype dtype, bool transpose_a, bool transpose_b, bool flat,
			 bool deterministic)
{
	int64_t batch = flat ? 1 : BATCH, first = transpose_a ? K : M, second = transpose_b ? N : K;
	int64_t a[] = {batch, first, M + K - first}, b[] = {batch, second, K + N - second}, y[] = {batch, M, N};
	layer l = {.dtype = dtype};
	l.desc = (dtrain_op_desc){.kind = DTRAIN_OP_MATMUL,
				  .attrs.matmul = {.transpose_a = transpose_a,
						   .transpose_b = transpose_b,
						   .alpha = 0.5,
						   .deterministic = deterministic},
				  .num_inputs = 2,
				  .num_outputs = 1};
	dtrain_operand *operands[] = {&l.desc.inputs[0], &l.desc.inputs[1], &l.desc.outputs[0]};
	int64_t *dims[] = {a, b, y};
	for (int i = 0; i < 3; i++) {
		*operands[i] = (dtrain_operand){.dtype = dtype, .shape = dtrain_shape_of(flat ? 2 : 3, dims[i] + flat)};
		int64_t count = dtrain_shape_count(&operands[i]->shape);
		l.operands[i] = malloc((size_t)count * sizeof(float));
		assert_non_null(l.operands[i]);
		for (int64_t k = 0; k < count; k++)
			fake_put(l.operands[i], dtype, k, i < 2 ? (float)((k * 7 + i * 3) % 11 - 5) / 4 : NAN);
	}
	fake = (fake_blas){.no_epilogues = false};
	run(device, &l);
	l.desc.outputs[0].shape = dtrain_shape_of(2, (int64_t[]){batch * M, N});
	check_output(&l, 0, right_product, "batch of products");
	/* With memory algorithms have been tried. */
	assert_true(standin.memory || fake.products == 1);
	free_layer(&l);
}

static void batches_of_products_are_right(void **state)
{
	(void)state;
	dtrain_device device = {.index = 0};
	for (int i = 0; i < 16; i++)
		check_matmul(&device, i & 1 ? DTRAIN_BF16 : DTRAIN_F32, i & 2, i & 4, i & 8, false);
}

/* Neither times nor sums that are added in any order, and nothing that was timed before. */
static void a_product_may_be_deterministic(void **state)
{
	(void)state;
	dtrain_device device = {.index = 0};
	assert_int_equal(cuda_algorithms_open("gpu", &device.algorithms, NULL), BETON_OK);
	for (int round = 0; round < 2; round++) {
		check_matmul(&device, DTRAIN_F32, false, true, true, false);
		assert_int_equal(fake.heuristics, round == 0);
		check_matmul(&device, DTRAIN_F32, false, true, true, true);
		assert_int_equal(fake.heuristics, 1);
		assert_int_equal(fake.reductions, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
	}
	cuda_algorithms_close(device.algorithms);
}

static void run_relu(dtrain_device *device, dtrain_dtype dtype, bool biased, bool relu)
{
	layer l = make_layer(DTRAIN_OP_LINEAR, dtype, 7, 192, 10, biased);
	l.desc.attrs.relu = relu;
	run(device, &l);
	check_output(&l, 0, right_y, "y");
	free_layer(&l);
}

static void relu_comes_with_the_product(void **state)
{
	(void)state;
	dtrain_device device = {.index = 0};
	for (int way = 0; way < 4; way++) {
		dtrain_dtype dtype = way & 1 ? DTRAIN_BF16 : DTRAIN_F32;
		bool biased = way & 2;
		fake = (fake_blas){.no_epilogues = false};
		run_relu(&device, dtype, biased, true);
		assert_int_equal(fake.epilogue, biased ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU);
		fake = (fake_blas){.no_epilogues = true};
		run_relu(&device, dtype, biased, true);
		assert_int_equal(fake.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
		/* Proposed, and not supported when it runs. */
		fake = (fake_blas){.broken_fused = 3};
		run_relu(&device, dtype, biased, true);
		assert_int_equal(fake.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
	}
	/* An algorithm known with relu is not taken without it. */
	assert_int_equal(cuda_algorithms_open("gpu", &device.algorithms, NULL), BETON_OK);
	fake = (fake_blas){.no_epilogues = false};
	for (int i = 0; i < 4; i++)
		run_relu(&device, DTRAIN_F32, i / 2, i % 2);
	assert_int_equal(fake.heuristics, 4);
	for (int i = 0; i < 4; i++)
		run_relu(&device, DTRAIN_F32, i / 2, i % 2);
	assert_int_equal(fake.heuristics, 4);
	cuda_algorithms_close(device.algorithms);
}

static void look_at(bool tf32, bool deterministic, dtrain_op_kind kind, dtrain_dtype dtype, uint32_t reductions,
		    cublasComputeType_t compute)
{
	dtrain_device device = {.tf32 = tf32, .deterministic = deterministic};
	fake = (fake_blas){.no_epilogues = false};
	layer l = make_layer(kind, dtype, 4, 32, 16, true);
	run(&device, &l);
	free_layer(&l);
	assert_int_equal(fake.reductions, reductions);
	assert_int_equal(fake.compute, compute);
	assert_in_range(fake.alignment, 1, 64);
	assert_in_range(fake.workspace, 1, 1 << 30);
}

static void promises_are_kept(void **state)
{
	(void)state;
	const uint32_t apart = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, any = apart | CUBLASLT_REDUCTION_SCHEME_INPLACE;
	look_at(false, false, DTRAIN_OP_LINEAR, DTRAIN_F32, any, CUBLAS_COMPUTE_32F);
	look_at(true, false, DTRAIN_OP_LINEAR, DTRAIN_F32, any, CUBLAS_COMPUTE_32F_FAST_TF32);
	look_at(true, true, DTRAIN_OP_LINEAR, DTRAIN_F32, apart, CUBLAS_COMPUTE_32F_FAST_TF32);
	look_at(true, false, DTRAIN_OP_LINEAR, DTRAIN_BF16, apart, CUBLAS_COMPUTE_32F);
	look_at(false, false, DTRAIN_OP_LINEAR_BWD_DATA, DTRAIN_BF16, apart, CUBLAS_COMPUTE_32F);
	look_at(false, false, DTRAIN_OP_LINEAR_BWD_WEIGHT, DTRAIN_BF16, any, CUBLAS_COMPUTE_32F);
	look_at(false, true, DTRAIN_OP_LINEAR_BWD_WEIGHT, DTRAIN_BF16, apart, CUBLAS_COMPUTE_32F);
}

static void what_is_known_is_not_asked_again(void **state)
{
	(void)state;
	dtrain_device device = {.index = 0}, careful;
	assert_int_equal(cuda_algorithms_open("gpu", &device.algorithms, NULL), BETON_OK);
	for (int no_epilogues = 0; no_epilogues < 2; no_epilogues++) {
		fake = (fake_blas){.no_epilogues = no_epilogues};
		/* The gradients of weight and bias have two forms. */
		run_all(&device, DTRAIN_F32, 3, 17, 5 + no_epilogues, true);
		assert_int_equal(fake.heuristics, 4 - no_epilogues);
		run_all(&device, DTRAIN_F32, 3, 17, 5 + no_epilogues, true);
		assert_int_equal(fake.heuristics, 4 - no_epilogues);
	}
	/* Neither the one with TF32 nor the deterministic one takes what was found without. */
	careful = device;
	careful.deterministic = true;
	run_all(&careful, DTRAIN_F32, 3, 17, 5, true);
	assert_int_equal(fake.heuristics, 6);
	device.tf32 = true;
	run_all(&device, DTRAIN_F32, 3, 17, 5, true);
	assert_int_equal(fake.heuristics, 9);
	/* A stored algorithm that does not work is found anew. */
	cuda_algorithm bad = {.count = 9};
	assert_int_equal(cuda_algorithms_put(device.algorithms, "linear 2 tf32 f32 n3 in17 out5", &bad, NULL),
			 BETON_OK);
	run_all(&device, DTRAIN_F32, 3, 17, 5, true);
	assert_int_equal(fake.heuristics, 10);
	/* Without a bias the product and the weight's gradient are others. */
	run_all(&device, DTRAIN_F32, 3, 17, 5, false);
	assert_int_equal(fake.heuristics, 12);
	run_all(&device, DTRAIN_F32, 3, 17, 5, false);
	assert_int_equal(fake.heuristics, 12);
	cuda_algorithms_close(device.algorithms);
}

/* Without memory to try algorithms the op has the first one, and the next op tries again. */
static void nothing_is_stored_without_memory(void **state)
{
	(void)state;
	dtrain_device device = {.index = 0};
	assert_int_equal(cuda_algorithms_open("gpu", &device.algorithms, NULL), BETON_OK);
	for (int i = 0; i < 3; i++) {
		fake = (fake_blas){.no_epilogues = false};
		standin.memory = i ? (size_t)64 << 20 : 0;
		run_all(&device, DTRAIN_F32, 3, 17, 5, true);
		assert_int_equal(fake.heuristics, i < 2 ? 4 : 0);
	}
	cuda_algorithms_close(device.algorithms);
}

/* Two ranks; this one chooses first: the other waits, and finds the choice. */
static void ranks_wait_for_each_other(void **state)
{
	(void)state;
	char folder[] = "/tmp/dtrain-linear-XXXXXX", command[64], ready = 0;
	dtrain_device device = {.index = 0}, other = {.index = 0};
	int begun[2], status = -1;
	assert_non_null(mkdtemp(folder));
	setenv("DTRAIN_CACHE", folder, 1);
	assert_int_equal(pipe(begun), 0);
	assert_int_equal(cuda_algorithms_open("gpu", &device.algorithms, NULL), BETON_OK);
	assert_int_equal(cuda_algorithms_open("gpu", &other.algorithms, NULL), BETON_OK);
	fake = (fake_blas){.fail_at = 0};
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (read(begun[0], &ready, 1) != 1)
			_exit(99);
		pthread_mutex_lock(&other.lock);
		run_all(&other, DTRAIN_F32, 3, 17, 5, true);
		_exit(fake.heuristics);
	}
	pthread_mutex_lock(&device.lock);
	cuda_algorithms_begin(device.algorithms, &device.lock);
	assert_int_equal(write(begun[1], &ready, 1), 1);
	run_all(&device, DTRAIN_F32, 3, 17, 5, true);
	cuda_algorithms_end(device.algorithms);
	pthread_mutex_unlock(&device.lock);
	assert_int_equal(fake.heuristics, 4);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	cuda_algorithms_close(device.algorithms);
	cuda_algorithms_close(other.algorithms);
	close(begun[0]);
	close(begun[1]);
	setenv("DTRAIN_CACHE", "", 1);
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	assert_int_equal(system(command), 0);
}

/* The heuristics' proposals are tried where memory allows. */
static void try_broken(dtrain_device *device, unsigned fused, unsigned plain, cublasLtEpilogue_t epilogue)
{
	for (int half = 0; half < 2; half++) {
		fake = (fake_blas){.broken_fused = fused,
				   .broken_plain = plain,
				   .clock_ns = &standin.clock_ns,
				   .fused_ns = {1000, 1000},
				   .plain_ns = {2000, 2000}};
		run_all(device, half ? DTRAIN_BF16 : DTRAIN_F32, 3, 17, 5, true);
		assert_int_equal(fake.epilogue, epilogue);
	}
}

static void what_does_not_work_is_not_taken(void **state)
{
	(void)state;
	static const unsigned broken[4][2] = {{1, 0}, {2, 1}, {3, 0}, {3, 1}};
	standin.has_clock = true;
	for (int times = 0; times < 2; times++) {
		/* A new store each time, which knows nothing. */
		dtrain_device device = {.deterministic = !times};
		standin.memory = (size_t)64 << 20;
		for (int i = 0; i < 4; i++) {
			unsigned fused = broken[i][0], plain = broken[i][1];
			assert_int_equal(cuda_algorithms_open("gpu", &device.algorithms, NULL), BETON_OK);
			try_broken(&device, fused, plain,
				   fused == 3 ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BGRADB);
			cuda_algorithms_close(device.algorithms);
		}
		assert_int_equal(cuda_algorithms_open("gpu", &device.algorithms, NULL), BETON_OK);
		for (int round = 0; round < 2; round++) {
			fake = (fake_blas){.broken_fused = 3, .broken_plain = 3};
			layer l = make_layer(DTRAIN_OP_LINEAR, DTRAIN_F32, 3, 17, 5, true);
			dtrain_op op = {.device = &device};
			beton_error err = {0};
			assert_int_equal(cuda_build_linear(&op, &l.desc, &err), BETON_UNSUPPORTED);
			assert_non_null(strstr(err.message, "none of 2 algorithms works: cuBLASLt: product: "
							    "CUBLAS_STATUS_NOT_SUPPORTED"));
			op.destroy(op.state);
			free_layer(&l);
			assert_int_equal(fake.live, 0);
		}
		/* Without memory the heuristics are believed. */
		standin.memory = 0;
		fake = (fake_blas){.fail_at = 0};
		run_all(&device, DTRAIN_F32, 3, 17, 5, true);
		assert_int_equal(fake.products, 3);
		cuda_algorithms_close(device.algorithms);
		assert_int_equal(standin.live, 0);
	}
	standin.has_clock = false;
}

/* The gradients of weight and bias as a whole, by the product or with a kernel after it, and each algorithm. */
static void the_faster_gradient_of_a_bias_is_taken(void **state)
{
	(void)state;
	static const struct {
		long long fused[2], plain[2], sums;
		cublasLtEpilogue_t epilogue;
		size_t workspace;
	} cases[] = {
		{{900, 900}, {700, 700}, 100, CUBLASLT_EPILOGUE_DEFAULT, 0},
		{{900, 900}, {700, 700}, 300, CUBLASLT_EPILOGUE_BGRADB, 0},
		{{900, 700}, {800, 900}, 100, CUBLASLT_EPILOGUE_BGRADB, 512},
		{{900, 900}, {800, 700}, 100, CUBLASLT_EPILOGUE_DEFAULT, 512},
	};
	standin.has_clock = true;
	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		bool stored = i % 2;
		static dtrain_device device;
		if (!stored)
			assert_int_equal(cuda_algorithms_open("gpu", &device.algorithms, NULL), BETON_OK);
		fake = (fake_blas){.clock_ns = &standin.clock_ns};
		memcpy(fake.fused_ns, cases[i / 2].fused, sizeof(fake.fused_ns));
		memcpy(fake.plain_ns, cases[i / 2].plain, sizeof(fake.plain_ns));
		fake_kernels.sums_ns = cases[i / 2].sums;
		layer l = make_layer(DTRAIN_OP_LINEAR_BWD_WEIGHT, DTRAIN_BF16, 3, 17, 5, true);
		run(&device, &l);
		assert_int_equal(fake.heuristics, stored ? 0 : 2);
		assert_int_equal(fake.epilogue, cases[i / 2].epilogue);
		assert_int_equal(fake.workspace_used, cases[i / 2].workspace);
		check_output(&l, 0, right_d_w, "d_w");
		check_output(&l, 1, right_d_b, "d_b");
		free_layer(&l);
		if (stored)
			cuda_algorithms_close(device.algorithms);
	}
	fake_kernels.sums_ns = 0;
}

static void run_gelu(dtrain_device *device, dtrain_dtype dtype, bool forward, bool biased, bool exact,
		     cublasLtEpilogue_t epilogue)
{
	layer l = make_layer(forward ? DTRAIN_OP_LINEAR : DTRAIN_OP_LINEAR_BWD_DATA, dtype, 5, 16, 24, biased);
	if (forward)
		give_activation(&l, DTRAIN_ACTIVATION_GELU_TANH, true);
	else
		give_argument(&l);
	l.desc.attrs.linear.exact = exact;
	run(device, &l);
	check_output(&l, 0, forward ? right_y : right_d_x, "with gelu");
	if (forward)
		check_output(&l, 1, right_z, "z");
	assert_int_equal(fake.epilogue, epilogue);
	free_layer(&l);
}

static cublasLtEpilogue_t gelu_of(bool forward, bool biased, bool fused)
{
	if (!forward)
		return fused ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_DEFAULT;
	if (fused)
		return biased ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
	return biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* The product with GELU, forward and backward, against the product and a kernel. `reason`: why it is not asked for, or
 * not taken. */
static void gelu_may_be_part_of_the_product(void **state)
{
	(void)state;
	enum { FASTER, SLOWER, REFUSED, BROKEN, EXACT, DETERMINISTIC, WIDE, FORBIDDEN, REASONS };
	standin.has_clock = true;
	for (int i = 0; i < 4 * REASONS; i++) {
		bool forward = i & 1, biased = i & 2;
		int reason = i / 4;
		dtrain_device device = {.deterministic = reason == DETERMINISTIC,
					.gelu = reason == FORBIDDEN ? CUDA_SEPARATE : CUDA_FASTEST};
		dtrain_dtype dtype = reason == WIDE ? DTRAIN_F32 : DTRAIN_BF16;
		cublasLtEpilogue_t right = gelu_of(forward, biased, reason == FASTER);
		assert_int_equal(cuda_algorithms_open("gpu", &device.algorithms, NULL), BETON_OK);
		for (int round = 0; round < 2; round++) {
			fake = (fake_blas){.no_gelu = reason == REFUSED,
					   .broken_gelu = reason == BROKEN,
					   .clock_ns = &standin.clock_ns,
					   .plain_ns = {5000, 5000},
					   .fused_ns = {5000, 5000},
					   .gelu_ns = reason == SLOWER ? 6000 : 4000};
			run_gelu(&device, dtype, forward, biased, reason == EXACT, right);
			assert_int_equal(fake.heuristics > 0, round == 0 || device.deterministic);
		}
		cuda_algorithms_close(device.algorithms);
	}
	/* Whatever it costs, and by the first launch if there is none. */
	for (int refused = 0; refused < 2; refused++) {
		dtrain_device device = {.gelu = CUDA_FUSED};
		assert_int_equal(cuda_algorithms_open("gpu", &device.algorithms, NULL), BETON_OK);
		fake = (fake_blas){.clock_ns = &standin.clock_ns, .gelu_ns = 9000, .no_gelu = refused};
		run_gelu(&device, DTRAIN_BF16, true, true, false, gelu_of(true, true, !refused));
		run_gelu(&device, DTRAIN_BF16, false, false, false, gelu_of(false, false, !refused));
		cuda_algorithms_close(device.algorithms);
	}
}

static void every_failure_leaves_nothing(void **state)
{
	(void)state;
	dtrain_device device = {.index = 0};
	for (int kind = 0; kind < 3; kind++) {
		int status = BETON_DEVICE, failed = 0;
		for (int at = 1; status != BETON_OK && at < 100; at++) {
			fake = (fake_blas){.fail_at = at};
			layer l = make_layer((dtrain_op_kind)(DTRAIN_OP_LINEAR + kind), DTRAIN_F32, 3, 17, 5, true);
			dtrain_op op = {.device = &device};
			beton_error err = {0};
			status = cuda_build_linear(&op, &l.desc, &err);
			if (status != BETON_OK) {
				failed++;
				assert_int_equal(err.code, status);
				assert_non_null(strstr(err.message, "cuBLASLt"));
			}
			if (op.destroy)
				op.destroy(op.state);
			assert_int_equal(fake.live, 0);
			free_layer(&l);
		}
		assert_int_equal(status, BETON_OK);
		assert_in_range(failed, 10, 40);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_are_right),
		cmocka_unit_test(copies_of_weights_are_used_as_they_are),
		cmocka_unit_test(weights_may_be_in_out),
		cmocka_unit_test(activations_keep_what_they_are_given),
		cmocka_unit_test(batches_of_products_are_right),
		cmocka_unit_test_setup_teardown(a_product_may_be_deterministic, give_memory, take_memory),
		cmocka_unit_test_setup_teardown(relu_comes_with_the_product, give_memory, take_memory),
		cmocka_unit_test(promises_are_kept),
		cmocka_unit_test_setup_teardown(what_is_known_is_not_asked_again, give_memory, take_memory),
		cmocka_unit_test_teardown(nothing_is_stored_without_memory, take_memory),
		cmocka_unit_test_setup_teardown(ranks_wait_for_each_other, give_memory, take_memory),
		cmocka_unit_test_setup_teardown(what_does_not_work_is_not_taken, give_memory, take_memory),
		cmocka_unit_test_setup_teardown(the_faster_gradient_of_a_bias_is_taken, give_memory, take_memory),
		cmocka_unit_test_setup_teardown(gelu_may_be_part_of_the_product, give_memory, take_memory),
		cmocka_unit_test(every_failure_leaves_nothing),
	};
	standin_reset();
	standin.memory = 0;
	cudaSetDevice(0);
	setenv("DTRAIN_CACHE", "", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
