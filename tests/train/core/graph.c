/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices, parameters, graphs and units.
 */
#include "tests/train/support/net.h"

#include <stdio.h>

#include <xxhash.h>

#include "core/params.h"
#include "core/program.h"

static void devices_by_name(void **state)
{
	(void)state;
	beton_error err = {0};
	dtrain_device *device;
	assert_int_equal(dtrain_device_open("gpu", NULL, &device, &err), BETON_NOT_FOUND);
	assert_non_null(strstr(err.message, "no device 'gpu'"));
	assert_non_null(strstr(err.message, "ref"));
	assert_null(device);
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = -1};
	assert_int_equal(dtrain_device_open("ref", &options, &device, &err), BETON_INVALID_ARGUMENT);
	options = (dtrain_device_options){.struct_size = sizeof(options), .index = 1};
	for (int i = 0; dtrain_device_at(i); i++)
		assert_int_equal(dtrain_device_open(dtrain_device_at(i)->name, &options, &device, &err),
				 BETON_INVALID_ARGUMENT);
	expect_ok(dtrain_device_open("auto", NULL, &device, &err), &err);
	dtrain_device_caps caps;
	dtrain_device_get_api(device)->caps(device, &caps);
	assert_true(caps.threads >= 1 && caps.alignment >= 16 && caps.dtypes & 1u << DTRAIN_F32);
	dtrain_device_close(&device);
	assert_null(device);
	dtrain_device_close(&device);
}

/* XXH3 of parameters and buffers. */
static uint64_t hash_values(const net *n)
{
	XXH3_state_t *hash = XXH3_createState();
	assert_true(hash && XXH3_64bits_reset(hash) == XXH_OK);
	for (int i = dtrain_params_count(n->params) - 1; i >= 0; i--) {
		const dtrain_param *p = dtrain_params_at(n->params, i);
		XXH3_64bits_update(hash, (float *)dtrain_params_values(n->params) + p->offset,
				   (size_t)p->count * sizeof(float));
	}
	for (int i = 0; i < dtrain_params_buffer_count(n->params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(n->params, i);
		XXH3_64bits_update(hash, buffer->data, (size_t)dtrain_shape_count(&buffer->shape) * sizeof(float));
	}
	uint64_t digest = XXH3_64bits_digest(hash);
	XXH3_freeState(hash);
	return digest;
}

/* Parameters as torchvision counts them, the flat space without overlap in reverse order, and padding of zeros. */
static void models_have_torchvisions_parameters(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		int side, classes, tensors, buffers, blocks;
		int64_t elements;
		const char *some[4];
	} models[] = {
		{"mlp", 8, 10, 6, 0, 3, 366602, {"fc1.weight", "fc3.bias"}},
		{"airbench94", 9, 10, 14, 19, 4, 1971352, {"0.bias", "4.norm2.bias", "7.weight"}},
		{"resnet9", 12, 10, 25, 16, 4, 2274880, {"0.0.weight", "2.module.1.1.bias", "9.weight"}},
		{"resnet20", 8, 10, 65, 42, 11, 272474, {"layer3.2.bn2.bias", "layer2.0.downsample.0.weight"}},
		{"resnet18", 32, 1000, 62, 40, 10, 11689512, {"conv1.weight", "layer4.1.bn2.weight", "fc.bias"}},
		{"resnet34", 32, 1000, 110, 72, 18, 21797672, {"layer3.5.bn2.weight", "layer2.3.conv1.weight"}},
		{"resnet50",
		 32,
		 1000,
		 161,
		 106,
		 18,
		 25557032,
		 {"layer1.0.downsample.1.bias", "layer4.2.conv3.weight", "layer3.5.bn3.weight"}},
		{"resnet101", 32, 1000, 314, 208, 35, 44549160, {"layer3.22.conv3.weight", "layer2.3.bn1.bias"}},
		{"resnet152", 32, 1000, 467, 310, 52, 60192808, {"layer3.35.conv3.weight", "layer2.7.bn1.bias"}},
	};
	/* Their beginnings, so that a run of long ago can be repeated. */
	static const uint64_t values[] = {
		UINT64_C(0x5c2090eaba7f4ca1), UINT64_C(0x76c59f2f4324a1c5), UINT64_C(0x31aad05a9e18db27),
		UINT64_C(0x46f9b02b958aa96d), UINT64_C(0x2d7c71d2e40a5971), UINT64_C(0x6624a08e7ced07ee),
		UINT64_C(0xecc211dd09d5109e), UINT64_C(0x19bedda611af9d6d), UINT64_C(0x1866b0c45077d1f3),
	};
	for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
		net n;
		net_open(&n, "ref", DTRAIN_F32, models[m].name, 2, models[m].side, models[m].classes);
		int64_t elements = 0, previous = dtrain_params_flat_count(n.params);
		for (int i = 0; i < dtrain_params_count(n.params); i++) {
			const dtrain_param *p = dtrain_params_at(n.params, i);
			const dtrain_unit *unit = dtrain_params_unit_at(n.params, p->unit);
			assert_true(p->offset % DTRAIN_PARAM_ALIGN == 0 && p->offset + p->count <= previous);
			assert_true(p->offset >= unit->offset && p->offset + p->count <= unit->offset + unit->count);
			for (int64_t k = p->offset + p->count; k < previous; k++)
				assert_true(((float *)dtrain_params_values(n.params))[k] == 0);
			previous = p->offset;
			elements += p->count;
			for (int k = 0; k < 4 && models[m].some[k]; k++)
				assert_true(dtrain_params_declare(n.params, models[m].some[k], &p->shape, p->init, 0,
								  NULL) != BETON_STATE);
		}
		assert_int_equal(elements, models[m].elements);
		if (hash_values(&n) != values[m])
			fail_msg("%s begins with other values: %016llx", models[m].name,
				 (unsigned long long)hash_values(&n));
		assert_int_equal(dtrain_params_count(n.params), models[m].tensors);
		assert_int_equal(dtrain_params_buffer_count(n.params), models[m].buffers);
		assert_int_equal(dtrain_params_at(n.params, dtrain_params_count(n.params) - 1)->block + 1,
				 models[m].blocks);
		assert_int_equal(dtrain_params_unit_count(n.params), 1);
		net_close(&n);
	}
}

/* Pieces that do not divide by the threads, for more threads than pieces too. */
static void initial_values_do_not_depend_on_threads(void **state)
{
	enum { PIECES = 7, EACH = 1001 };
	static float one[PIECES * EACH], many[PIECES * EACH];
	const dtrain_shape shape = dtrain_shape_of(4, (int64_t[]){7, 11, 7, 13});
	const dtrain__init_piece whole = {.out = one,
					  .count = (int64_t)PIECES * EACH,
					  .run = (int64_t)PIECES * EACH,
					  .init = DTRAIN_INIT_KAIMING_NORMAL_FAN_OUT,
					  .shape = &shape,
					  .name = "conv.weight"};
	dtrain__init_piece pieces[PIECES];
	(void)state;
	dtrain__init_fill(&whole, 1, DTRAIN_F32, 7, 1);
	for (int i = 0; i < PIECES; i++) {
		pieces[i] = whole;
		pieces[i].out = many + i * EACH;
		pieces[i].first = (int64_t)i * EACH;
		pieces[i].count = EACH;
	}
	for (int threads = 1; threads < 100; threads += 3) {
		memset(many, 0, sizeof(many));
		dtrain__init_fill(pieces, PIECES, DTRAIN_F32, 7, threads);
		assert_memory_equal(one, many, sizeof(one));
	}
}

static int nodes_of(const net *n, dtrain_op_kind kind)
{
	int count = 0;
	for (int32_t i = 0; i < n->program->graph->num_nodes; i++)
		count += n->program->graph->nodes[i].kind == kind;
	return count;
}

static void products_have_their_relu_with_them(void **state)
{
	(void)state;
	net n;
	net_open(&n, "ref", DTRAIN_F32, "mlp", 2, 8, 10);
	assert_int_equal(nodes_of(&n, DTRAIN_OP_LINEAR), 3);
	assert_int_equal(nodes_of(&n, DTRAIN_OP_RELU), 0);
	assert_int_equal(nodes_of(&n, DTRAIN_OP_RELU_BWD), 2);
	net_close(&n);
}

static void initial_values_depend_on_seed_and_name_alone(void **state)
{
	(void)state;
	beton_error err = {0};
	net a, b;
	net_open(&a, "ref", DTRAIN_F32, "resnet20", 1, 8, 10);
	net_open(&b, "auto", DTRAIN_F32, "resnet20", 2, 16, 10);
	size_t bytes = (size_t)dtrain_params_flat_count(a.params) * sizeof(float);
	assert_memory_equal(dtrain_params_values(a.params), dtrain_params_values(b.params), bytes);
	expect_ok(dtrain_params_initialize(b.params, 8, b.stream, &err), &err);
	assert_true(memcmp(dtrain_params_values(a.params), dtrain_params_values(b.params), bytes) != 0);
	/* layer1.0.conv1: normal with deviation sqrt(2 / (16 * 9)). */
	const dtrain_param *p = dtrain_params_at(a.params, 3);
	assert_string_equal(p->name, "layer1.0.conv1.weight");
	double sum = 0, squares = 0;
	for (int64_t i = 0; i < p->count; i++) {
		double value = net_element(&a, dtrain_params_values(a.params), p->offset + i);
		sum += value;
		squares += value * value;
	}
	double variance = squares / (double)p->count;
	assert_true(fabs(sum / (double)p->count) < 0.01 && fabs(variance / (2.0 / 144) - 1) < 0.1);
	net_close(&a);
	net_close(&b);
}

/* ---- units ---- */

/* Whole parameters of 16 elements or less, 100, 1 and 40, in the reverse of their order. */
static void check_units(size_t first_bytes, size_t bytes, int32_t shards, int count, const int64_t *sizes)
{
	static const int64_t elements[] = {10, 100, 1, 40};
	beton_error err = {0};
	dtrain_device *device;
	dtrain_params *params;
	dtrain_unit_policy policy;
	char name[8];
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &err), &err);
	dtrain_unit_policy_init(&policy);
	policy.first_bytes = first_bytes;
	policy.bytes = bytes;
	policy.shards = shards;
	expect_ok(dtrain_params_set_units(params, &policy, &err), &err);
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		assert_int_equal(dtrain_params_declare(params, name, &(dtrain_shape){1, {elements[i]}},
						       DTRAIN_INIT_ZERO, 0, &err),
				 i);
	}
	assert_int_equal(dtrain_params_unit_count(params), 0);
	expect_ok(dtrain_params_allocate(params, &err), &err);
	assert_int_equal(dtrain_params_unit_count(params), count);
	int64_t offset = 0;
	for (int i = 0; i < count; i++) {
		const dtrain_unit *unit = dtrain_params_unit_at(params, i);
		assert_int_equal(unit->offset, offset);
		assert_int_equal(unit->count, sizes[i]);
		offset += unit->count;
	}
	assert_int_equal(dtrain_params_flat_count(params), offset);
	for (int i = 0; i < 4; i++) {
		const dtrain_param *param = dtrain_params_at(params, i);
		const dtrain_unit *unit = dtrain_params_unit_at(params, param->unit);
		assert_true(param->offset >= unit->offset && param->offset % DTRAIN_PARAM_ALIGN == 0);
		assert_true(param->offset + param->count <= unit->offset + unit->count);
	}
	assert_null(dtrain_params_unit_at(params, count));
	assert_int_equal(dtrain_params_set_units(params, &policy, &err), BETON_STATE);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

static void units_have_whole_parameters_and_equal_shards(void **state)
{
	(void)state;
	check_units(SIZE_MAX, SIZE_MAX, 1, 1, (int64_t[]){48 + 16 + 112 + 16});
	check_units(1, 1, 1, 4, (int64_t[]){48, 16, 112, 16});
	/* Full is full: the first with 192 bytes, the second with 64. */
	check_units(192, 64, 1, 4, (int64_t[]){48, 16, 112, 16});
	check_units(193, 449, 1, 2, (int64_t[]){64, 128});
	check_units(1, SIZE_MAX, 1, 2, (int64_t[]){48, 144});
	/* Each shard is a multiple of 16 elements, also for numbers of ranks that are not powers of two. */
	check_units(1, SIZE_MAX, 3, 2, (int64_t[]){48, 144});
	check_units(1, SIZE_MAX, 5, 2, (int64_t[]){80, 160});
	check_units(1, 1, 64, 4, (int64_t[]){1024, 1024, 1024, 1024});
}

/* ---- errors of graphs ---- */

static void expect_build_error(dtrain_params *params, int code, const char *message, const char *model, int64_t side,
			       int64_t classes)
{
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_program *program;
	expect_ok(dtrain_graph_create(params, true, &graph, &err), &err);
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){1, 3, side, side});
	dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F32, &image);
	dtrain_tensor logits = dtrain_model_build(graph, model, x, classes);
	assert_int_equal(logits, -1);
	/* A failed handle goes through every builder, and the first error stays. */
	logits = dtrain_relu(graph, dtrain_add(graph, logits, x, true));
	logits = dtrain_flatten(graph, dtrain_global_avg_pool(graph, dtrain_max_pool(graph, logits, 2, 2, 0)));
	logits = dtrain_batch_norm(graph, "b", dtrain_linear(graph, "l", logits, 3), true);
	dtrain_graph_backward(graph, dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, logits, x, 0)));
	dtrain_graph_keep(graph, logits);
	assert_int_equal(dtrain_graph_compile(&graph, &program, &err), code);
	assert_null(program);
	assert_non_null(graph);
	if (!strstr(err.message, message))
		fail_msg("'%s' has no '%s'", err.message, message);
	dtrain_graph_destroy(&graph);
}

static void builders_remember_the_first_error(void **state)
{
	(void)state;
	beton_error err = {0};
	dtrain_device *device;
	dtrain_params *params;
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &err), &err);
	expect_build_error(params, BETON_NOT_FOUND, "no model 'vgg'", "vgg", 32, 10);
	expect_build_error(params, BETON_INVALID_ARGUMENT, "at least 32", "resnet18", 31, 10);
	expect_build_error(params, BETON_INVALID_ARGUMENT, "0 classes", "mlp", 32, 0);
	expect_build_error(params, BETON_INVALID_ARGUMENT, "bad shape", "mlp", 0, 10);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

static void evaluation_shares_the_parameters(void **state)
{
	(void)state;
	net n;
	beton_error err = {0};
	net_open(&n, "auto", DTRAIN_F32, "resnet20", 4, 8, 3);
	dtrain_graph *graph;
	dtrain_program *program;
	expect_ok(dtrain_graph_create(n.params, false, &graph, &err), &err);
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){1, 3, 8, 8});
	dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F32, &image);
	dtrain_tensor logits = dtrain_model_build(graph, "resnet20", x, 3);
	dtrain_graph_keep(graph, logits);
	expect_ok(dtrain_graph_compile(&graph, &program, &err), &err);
	memcpy(dtrain_program_data(program, x), dtrain_program_data(n.program, n.image), 3 * 64 * sizeof(float));
	expect_ok(dtrain_program_run(program, n.stream, 0, 1, &err), &err);
	float before = *(float *)dtrain_program_data(program, logits);
	net_run(&n); /* moves the running statistics */
	expect_ok(dtrain_program_run(program, n.stream, 0, 1, &err), &err);
	assert_true(isfinite(before) && *(float *)dtrain_program_data(program, logits) != before);
	dtrain_program_destroy(&program);
	/* Another number of classes is another model. */
	expect_ok(dtrain_graph_create(n.params, false, &graph, &err), &err);
	dtrain_model_build(graph, "resnet20", dtrain_graph_input(graph, "x", DTRAIN_F32, &image), 4);
	assert_int_equal(dtrain_graph_compile(&graph, &program, &err), BETON_MISMATCH);
	assert_non_null(strstr(err.message, "'fc.weight' has shape [3, 64]"));
	dtrain_graph_destroy(&graph);
	net_close(&n);
}

/* ---- types of activations ---- */

/* A graph's error after `build`, which is given the pixels as type. */
static void expect_graph_error(dtrain_params *params, dtrain_dtype dtype, void (*build)(dtrain_graph *graph), int code,
			       const char *message)
{
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_program *program;
	expect_ok(dtrain_graph_create(params, true, &graph, &err), &err);
	if (dtype != dtrain_params_dtype(params))
		dtrain_graph_set_dtype(graph, dtype);
	build(graph);
	int status = dtrain_graph_compile(&graph, &program, &err);
	if (status != code || !strstr(err.message, message))
		fail_msg("%d '%s', not %d '%s'", status, err.message, code, message);
	dtrain_graph_destroy(&graph);
}

static dtrain_tensor add_input(dtrain_graph *graph, dtrain_dtype dtype, int64_t channels)
{
	return dtrain_graph_input(graph, "x", dtype, &(dtrain_shape){4, {2, channels, 8, 8}});
}

static void build_nothing(dtrain_graph *graph)
{
	(void)graph;
}

static void build_late_type(dtrain_graph *graph)
{
	add_input(graph, DTRAIN_F32, 3);
	dtrain_graph_set_dtype(graph, DTRAIN_BF16);
}

static void build_double_input(dtrain_graph *graph)
{
	add_input(graph, DTRAIN_F64, 3);
}

static void build_conv_of_floats(dtrain_graph *graph)
{
	dtrain_conv2d(graph, "conv1", add_input(graph, DTRAIN_F32, 3), 4, 3, 1, 1);
}

static void build_loss_of_mixed(dtrain_graph *graph, dtrain_dtype mixed, dtrain_dtype lambda, int64_t count)
{
	dtrain_shape logits = dtrain_shape_of(2, (int64_t[]){2, 5}), two = dtrain_shape_of(1, (int64_t[]){2});
	dtrain_shape rows = dtrain_shape_of(1, &count);
	dtrain_softmax_cross_entropy_mixed(graph, dtrain_graph_input(graph, "logits", DTRAIN_BF16, &logits),
					   dtrain_graph_input(graph, "label", DTRAIN_I64, &two),
					   dtrain_graph_input(graph, "mixed", mixed, &two),
					   dtrain_graph_input(graph, "lambda", lambda, &rows), 0);
}

static void build_byte_label(dtrain_graph *graph)
{
	build_loss_of_mixed(graph, DTRAIN_U8, DTRAIN_F32, 2);
}

static void build_half_lambda(dtrain_graph *graph)
{
	build_loss_of_mixed(graph, DTRAIN_I64, DTRAIN_BF16, 2);
}

static void build_long_lambda(dtrain_graph *graph)
{
	build_loss_of_mixed(graph, DTRAIN_I64, DTRAIN_F32, 3);
}

static void build_conv_of_bytes(dtrain_graph *graph)
{
	dtrain_conv2d(graph, "conv1", add_input(graph, DTRAIN_U8, 3), 4, 3, 1, 1);
}

static void build_add_of_bytes(dtrain_graph *graph)
{
	dtrain_tensor x = add_input(graph, DTRAIN_U8, 3);
	dtrain_add(graph, x, x, true);
}

static void build_norm_of_two_shapes(dtrain_graph *graph)
{
	dtrain_tensor x = add_input(graph, DTRAIN_F32, 3), y = add_input(graph, DTRAIN_F32, 4);
	dtrain_batch_norm_add(graph, "bn1", x, y);
}

static void build_mean_of_halves(dtrain_graph *graph)
{
	dtrain_mean(graph, dtrain_graph_input(graph, "x", DTRAIN_BF16, &(dtrain_shape){1, {8}}));
}

static void normalize_of(dtrain_graph *graph, dtrain_dtype dtype, int64_t channels, float mean, float deviation)
{
	dtrain_tensor x = dtrain_graph_input(graph, "x", dtype, &(dtrain_shape){4, {2, 8, 8, channels}});
	const float means[5] = {0, mean}, deviations[5] = {1, deviation, 1, 1, 1};
	dtrain_normalize(graph, x, means, deviations);
}

static void build_five_channels(dtrain_graph *graph)
{
	normalize_of(graph, DTRAIN_U8, 5, 0, 1);
}

static void build_normalized_floats(dtrain_graph *graph)
{
	normalize_of(graph, DTRAIN_F32, 3, 0, 1);
}

static void build_no_deviation(dtrain_graph *graph)
{
	normalize_of(graph, DTRAIN_U8, 3, 0, 0);
}

static void build_no_mean(dtrain_graph *graph)
{
	normalize_of(graph, DTRAIN_U8, 3, NAN, 1);
}

static void wrong_types_are_errors(void **state)
{
	(void)state;
	beton_error err = {0};
	dtrain_device *device;
	dtrain_params *floats, *doubles;
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &floats, &err), &err);
	expect_ok(dtrain_params_create(device, DTRAIN_F64, &doubles, &err), &err);
	assert_int_equal(dtrain_params_create(device, DTRAIN_BF16, &(dtrain_params *){NULL}, &err), BETON_UNSUPPORTED);
	expect_graph_error(doubles, DTRAIN_BF16, build_nothing, BETON_UNSUPPORTED, "no bf16 with parameters in f64");
	expect_graph_error(floats, DTRAIN_F64, build_nothing, BETON_UNSUPPORTED, "no f64 with parameters in f32");
	expect_graph_error(floats, DTRAIN_I64, build_nothing, BETON_UNSUPPORTED, "no i64");
	expect_graph_error(floats, DTRAIN_F32, build_late_type, BETON_STATE, "after tensors");
	expect_graph_error(floats, DTRAIN_BF16, build_double_input, BETON_INVALID_ARGUMENT,
			   "type f64 is neither the graph's (bf16), its parameters' (f32), i64, i32 nor u8");
	expect_graph_error(floats, DTRAIN_BF16, build_conv_of_floats, BETON_INVALID_ARGUMENT,
			   "conv1: its input is f32, the graph computes in bf16");
	expect_graph_error(floats, DTRAIN_BF16, build_byte_label, BETON_INVALID_ARGUMENT,
			   "needs an i64 label for each of 2 rows");
	expect_graph_error(floats, DTRAIN_BF16, build_half_lambda, BETON_INVALID_ARGUMENT,
			   "needs an f32 lambda for each of 2 rows");
	expect_graph_error(floats, DTRAIN_BF16, build_long_lambda, BETON_INVALID_ARGUMENT,
			   "needs an f32 lambda for each of 2 rows");
	expect_graph_error(floats, DTRAIN_BF16, build_conv_of_bytes, BETON_INVALID_ARGUMENT,
			   "conv1: its input is u8, the graph computes in bf16");
	expect_graph_error(floats, DTRAIN_F32, build_add_of_bytes, BETON_INVALID_ARGUMENT, "add: its input is u8");
	expect_graph_error(floats, DTRAIN_F32, build_norm_of_two_shapes, BETON_INVALID_ARGUMENT,
			   "'bn1': shapes [2, 3, 8, 8] and [2, 4, 8, 8]");
	expect_graph_error(floats, DTRAIN_BF16, build_mean_of_halves, BETON_INVALID_ARGUMENT, "op mean");
	expect_graph_error(floats, DTRAIN_F32, build_five_channels, BETON_INVALID_ARGUMENT, "at most 4 channels");
	expect_graph_error(floats, DTRAIN_F32, build_normalized_floats, BETON_INVALID_ARGUMENT, "a f32 tensor");
	expect_graph_error(floats, DTRAIN_F32, build_no_deviation, BETON_INVALID_ARGUMENT, "deviation 0 of channel 1");
	expect_graph_error(floats, DTRAIN_F32, build_no_mean, BETON_INVALID_ARGUMENT, "mean nan");
	dtrain_params_destroy(&floats);
	dtrain_params_destroy(&doubles);
	dtrain_device_close(&device);
}

/* Logits have the graph's type, the loss the parameters'; pixels come in as bytes. Half takes half of the memory. */
static void halves_stay_halves(void **state)
{
	(void)state;
	const dtrain_dtype dtypes[] = {DTRAIN_F32, DTRAIN_BF16, DTRAIN_F16};
	const float mean[] = {127, 120, 110}, deviation[] = {64, 60, 50};
	size_t bytes[3];
	double copies = 0; /* bytes of the weights' compute copies */
	float losses[3], logits[3];
	for (int i = 0; i < 3; i++) {
		net n;
		beton_error err = {0};
		dtrain_graph *graph;
		dtrain_program *program;
		net_open(&n, "ref", DTRAIN_F32, "resnet20", 2, 8, 3);
		expect_ok(dtrain_graph_create(n.params, true, &graph, &err), &err);
		dtrain_graph_set_dtype(graph, dtypes[i]);
		dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_U8, &(dtrain_shape){4, {2, 8, 8, 3}});
		dtrain_tensor label = dtrain_graph_input(graph, "y", DTRAIN_I64, &(dtrain_shape){1, {2}});
		dtrain_tensor normal = dtrain_normalize(graph, x, mean, deviation);
		dtrain_tensor y = dtrain_model_build(graph, "resnet20", normal, 3);
		dtrain_tensor loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, y, label, 0));
		dtrain_graph_keep(graph, normal);
		dtrain_graph_keep(graph, y);
		dtrain_graph_step_metric(graph, loss, 0);
		dtrain_graph_backward(graph, loss);
		expect_ok(dtrain_graph_compile(&graph, &program, &err), &err);
		assert_int_equal(dtrain_program_dtype(program, x), DTRAIN_U8);
		assert_int_equal(dtrain_program_dtype(program, normal), dtypes[i]);
		assert_int_equal(dtrain_program_dtype(program, y), dtypes[i]);
		assert_int_equal(dtrain_program_dtype(program, loss), DTRAIN_F32);
		uint8_t *pixels = dtrain_program_data(program, x);
		for (int k = 0; k < 2 * 3 * 64; k++)
			pixels[k] = (uint8_t)(k * 89);
		expect_ok(dtrain_program_run(program, n.stream, 0, 1, &err), &err);
		for (int k = 0; k < 2 * 3 * 64; k++) {
			int c = k / 64 % 3, pixel = k / 192 * 64 + k % 64;
			double right = ((double)pixels[pixel * 3 + c] - (double)mean[c]) / (double)deviation[c];
			assert_true(fabs(net_number(dtypes[i], dtrain_program_data(program, normal), k) - right) <
				    0.01);
		}
		losses[i] = *(float *)dtrain_program_data(program, loss);
		assert_ptr_equal(dtrain_program_data(program, loss), dtrain_params_step_metrics(n.params));
		logits[i] = (float)net_number(dtypes[i], dtrain_program_data(program, y), 1);
		assert_true(fabsf(losses[i] - losses[0]) < 0.02f * losses[0] && fabsf(logits[i] - logits[0]) < 0.05f);
		dtrain_program_info facts = {.struct_size = sizeof(facts)};
		dtrain_program_get_info(program, &facts);
		bytes[i] = facts.unshared_bytes;
		copies = 2 * (double)dtrain_params_flat_count(n.params);
		dtrain_program_destroy(&program);
		net_close(&n);
	}
	assert_int_equal(bytes[1], bytes[2]);
	/* Masks and statistics stay as they are. */
	assert_true((double)bytes[1] - copies < 0.62 * (double)bytes[0]);
}

/* ---- sums of gradients ---- */

/* x is used twice, after so many tensors. */
static dtrain_op_kind kind_of_sum(dtrain_params *params, int before)
{
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){2, 4});
	expect_ok(dtrain_graph_create(params, true, &graph, &err), &err);
	for (int i = 0; i < before; i++)
		dtrain_graph_input(graph, "before", DTRAIN_F32, &shape);
	dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F32, &shape);
	dtrain_graph_require_grad(graph, x);
	/* So that the list of tensors cannot grow where it is. */
	void *behind = malloc(1);
	dtrain_tensor y = dtrain_add(graph, dtrain_gelu(graph, x), dtrain_scale(graph, x, 2), false);
	dtrain_tensor d_y = dtrain_graph_input(graph, "d_y", DTRAIN_F32, &shape);
	dtrain_graph_backward_from(graph, 1, &y, &d_y);
	int32_t producer = graph->tensors[dtrain_graph_grad(graph, x)].producer;
	dtrain_op_kind kind = graph->nodes[producer].kind;
	free(behind);
	dtrain_graph_destroy(&graph);
	return kind;
}

/* Also where the sum is the tensor for which the list moves. */
static void gradients_are_summed_wherever_the_list_grows(void **state)
{
	(void)state;
	beton_error err = {0};
	dtrain_device *device;
	dtrain_params *params;
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &err), &err);
	for (int before = 500; before < 512; before++)
		assert_int_equal(kind_of_sum(params, before), DTRAIN_OP_ADD);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

/* ---- residuals ---- */

typedef struct residual_net {
	dtrain_params *params;
	dtrain_program *program;
	dtrain_tensor x, label, loss, d_x;
} residual_net;

/* Two consecutive batch norms with residuals; the first is used twice. */
static void build_residuals(residual_net *r, dtrain_device *device, dtrain_stream *stream, bool fused, bool training)
{
	beton_error err = {0};
	dtrain_graph *graph;
	if (!r->params)
		expect_ok(dtrain_params_create(device, DTRAIN_F64, &r->params, &err), &err);
	expect_ok(dtrain_graph_create(r->params, training, &graph, &err), &err);
	r->x = dtrain_graph_input(graph, "x", DTRAIN_F64, &(dtrain_shape){4, {2, 4, 3, 3}});
	r->label = dtrain_graph_input(graph, "y", DTRAIN_I64, &(dtrain_shape){1, {2}});
	if (training)
		dtrain_graph_require_grad(graph, r->x);
	dtrain_tensor y = r->x;
	for (int i = 0; i < 2; i++) {
		const char *norm = i ? "bn2" : "bn1";
		dtrain_tensor z = dtrain_conv2d(graph, i ? "conv2" : "conv1", y, 4, 3, 1, 1);
		y = fused ? dtrain_batch_norm_add(graph, norm, z, y)
			  : dtrain_add(graph, dtrain_batch_norm(graph, norm, z, false), y, true);
	}
	dtrain_tensor logits = dtrain_linear(graph, "fc", dtrain_global_avg_pool(graph, y), 3);
	r->loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, logits, r->label, 0));
	dtrain_graph_keep(graph, r->loss);
	if (training) {
		dtrain_graph_backward(graph, r->loss);
		r->d_x = dtrain_graph_grad(graph, r->x);
		assert_true(r->d_x >= 0);
	}
	expect_ok(dtrain_graph_compile(&graph, &r->program, &err), &err);
	if (training)
		expect_ok(dtrain_params_initialize(r->params, 3, stream, &err), &err);
	for (int i = 0; i < 72; i++)
		((double *)dtrain_program_data(r->program, r->x))[i] = sin(i);
	((int64_t *)dtrain_program_data(r->program, r->label))[1] = 2;
	expect_ok(dtrain_program_run(r->program, stream, 0, 1, &err), &err);
}

static void expect_equal(const void *a, const void *b, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		assert_true(fabs(((const double *)a)[i] - ((const double *)b)[i]) < 1e-12);
}

static void fused_residuals_equal_additions(void **state)
{
	(void)state;
	beton_error err = {0};
	dtrain_device *device;
	dtrain_stream *stream;
	residual_net nets[2] = {{0}};
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	const dtrain_device_api *api = dtrain_device_get_api(device);
	expect_ok(api->stream_create(device, &stream, &err), &err);
	for (int training = 1; training >= 0; training--) {
		for (int i = 0; i < 2; i++)
			build_residuals(&nets[i], device, stream, i == 0, training);
		expect_equal(dtrain_program_data(nets[0].program, nets[0].loss),
			     dtrain_program_data(nets[1].program, nets[1].loss), 1);
		expect_equal(dtrain_params_grads(nets[0].params), dtrain_params_grads(nets[1].params),
			     dtrain_params_flat_count(nets[0].params));
		if (training)
			expect_equal(dtrain_program_data(nets[0].program, nets[0].d_x),
				     dtrain_program_data(nets[1].program, nets[1].d_x), 72);
		for (int i = 0; i < dtrain_params_buffer_count(nets[0].params); i++)
			expect_equal(dtrain_params_buffer_at(nets[0].params, i)->data,
				     dtrain_params_buffer_at(nets[1].params, i)->data, 4);
		dtrain_program_info facts[2] = {{.struct_size = sizeof(facts[0])}, {.struct_size = sizeof(facts[0])}};
		for (int i = 0; i < 2; i++) {
			dtrain_program_get_info(nets[i].program, &facts[i]);
			dtrain_program_destroy(&nets[i].program);
		}
		/* An addition each, and its relu on the way back. */
		assert_int_equal(facts[0].nodes, facts[1].nodes - (training ? 4 : 2));
	}
	for (int i = 0; i < 2; i++)
		dtrain_params_destroy(&nets[i].params);
	api->stream_destroy(stream);
	dtrain_device_close(&device);
}

/* The first of equal logits is the highest; a logit that is not a number is not. */
static void labels_with_the_highest_logit_are_hits(void **state)
{
	enum { ROWS = 6, CLASSES = 3 };
	static const double logits[ROWS][CLASSES] = {{1, 2, 3}, {3, 2, 1},   {3, 3, 1},
						     {3, 3, 1}, {NAN, 1, 2}, {NAN, 1, 2}};
	static const int64_t labels[ROWS] = {2, 2, 0, 1, 0, 2};
	static const double expected[ROWS] = {1, 0, 1, 0, 0, 1};
	beton_error err = {0};
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_graph *graph;
	dtrain_program *program;
	(void)state;
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	expect_ok(dtrain_device_get_api(device)->stream_create(device, &stream, &err), &err);
	expect_ok(dtrain_params_create(device, DTRAIN_F64, &params, &err), &err);
	expect_ok(dtrain_graph_create(params, false, &graph, &err), &err);
	dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F64, &(dtrain_shape){2, {ROWS, CLASSES}});
	dtrain_tensor label = dtrain_graph_input(graph, "y", DTRAIN_I64, &(dtrain_shape){1, {ROWS}});
	dtrain_tensor losses = dtrain_softmax_cross_entropy(graph, x, label, 0);
	dtrain_tensor hits = dtrain_label_hits(graph, losses);
	assert_int_equal(dtrain_label_hits(graph, losses), hits);
	dtrain_graph_keep(graph, hits);
	expect_ok(dtrain_graph_compile(&graph, &program, &err), &err);
	memcpy(dtrain_program_data(program, x), logits, sizeof(logits));
	memcpy(dtrain_program_data(program, label), labels, sizeof(labels));
	expect_ok(dtrain_program_run(program, stream, 0, 1, &err), &err);
	assert_memory_equal(dtrain_program_data(program, hits), expected, sizeof(expected));
	dtrain_program_destroy(&program);
	/* Only such losses have hits. */
	expect_ok(dtrain_graph_create(params, false, &graph, &err), &err);
	x = dtrain_graph_input(graph, "x", DTRAIN_F64, &(dtrain_shape){1, {ROWS}});
	assert_true(dtrain_label_hits(graph, x) < 0);
	assert_int_equal(dtrain_graph_compile(&graph, &program, &err), BETON_INVALID_ARGUMENT);
	dtrain_graph_destroy(&graph);
	dtrain_params_destroy(&params);
	dtrain_device_get_api(device)->stream_destroy(stream);
	dtrain_device_close(&device);
}

/* Whether or not batch norm takes the residual. */
static void parameters_have_one_order_on_all_devices(void **state)
{
	const dtrain_device_options options = {.struct_size = sizeof(options), .threads = TEST_THREADS};
	(void)state;
	for (int m = 0; dtrain_model_name(m); m++) {
		const char *model = dtrain_model_name(m);
		net first, other;
		/* The other vision transformers have the same layers, and up to 86 million parameters. */
		if (strncmp(model, "vit-", 4) == 0 && strncmp(model, "vit-mini4", 9) != 0)
			continue;
		net_create(&first, &options, "ref", DTRAIN_F32, DTRAIN_F32, model, 2, 32, 4);
		for (int k = 0; dtrain_device_at(k); k++) {
			net_create(&other, &options, dtrain_device_at(k)->name, DTRAIN_F32, DTRAIN_F32, model, 2, 32,
				   4);
			assert_int_equal(dtrain_params_count(other.params), dtrain_params_count(first.params));
			for (int i = 0; i < dtrain_params_count(first.params); i++) {
				const dtrain_param *a = dtrain_params_at(first.params, i);
				const dtrain_param *b = dtrain_params_at(other.params, i);
				assert_string_equal(a->name, b->name);
				assert_int_equal(a->offset, b->offset);
			}
			net_close(&other);
		}
		net_close(&first);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices_by_name),
		cmocka_unit_test(models_have_torchvisions_parameters),
		cmocka_unit_test(products_have_their_relu_with_them),
		cmocka_unit_test(initial_values_depend_on_seed_and_name_alone),
		cmocka_unit_test(initial_values_do_not_depend_on_threads),
		cmocka_unit_test(units_have_whole_parameters_and_equal_shards),
		cmocka_unit_test(builders_remember_the_first_error),
		cmocka_unit_test(evaluation_shares_the_parameters),
		cmocka_unit_test(wrong_types_are_errors),
		cmocka_unit_test(halves_stay_halves),
		cmocka_unit_test(gradients_are_summed_wherever_the_list_grows),
		cmocka_unit_test(fused_residuals_equal_additions),
		cmocka_unit_test(labels_with_the_highest_logit_are_hits),
		cmocka_unit_test(parameters_have_one_order_on_all_devices),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
