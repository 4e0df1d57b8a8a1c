/* SPDX-License-Identifier: Apache-2.0
 *
 * The same numbers as Hugging Face's models of tokens, and as ViTs in PyTorch: logits, every parameter's gradient and
 * the losses of ten steps of SGD, compared with what tests/golden/make-transformers.py stored (in double; losses also
 * with autocast to BF16). Called with its file, and with `cpu` if that is of a model too large for the device ref.
 */
#include <stdio.h>

#include <jansson.h>

#include <dtrain/transformer.h>

#include "tests/support/temporary.h"
#include "tests/train/support/net.h"

enum { IGNORED = -100 };

#define LR 0.02
#define MOMENTUM 0.9
/* The largest relative difference from the numbers in the file. */
typedef struct bounds {
	double tokens, llama, vit;
} bounds;

/* Hugging Face's Llama computes norms and rotations in float whatever the type. */
static const bounds in_double = {1e-7, 1e-6, 1e-7}, in_float = {3e-6, 3e-6, 3e-6}, on_cpu = {5e-6, 5e-6, 5e-6};
/* Bounds for the losses of all steps. BF16 losses are compared with PyTorch's autocast, which rounds at other places:
 * it keeps values between the blocks in float. They differ by up to 1.4e-3, ViTs' by 7e-3, which is as far as PyTorch's
 * are from double precision. F16 losses are compared with double precision: on processors with other vectors, whose
 * sums have other orders, they differ by up to 2.3e-4, half of the type's rounding error, and 9e-4. */
static const bounds in_bf16 = {3e-3, 3e-3, 1e-2}, in_f16 = {4e-4, 4e-4, 2e-3};

static json_t *trace;
static int64_t batch, length; /* of a sequence */
static bool large;

typedef struct model {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_program *program;
	dtrain_transformer_inputs inputs;
	dtrain_tensor image, label, logits, rows, some, loss; /* some: the logits of rows */
	dtrain_dtype dtype;                                   /* of the parameters */
	dtrain_dtype activations;                             /* of everything between them */
} model;

static double element(const model *m, const void *array, int64_t index)
{
	return m->dtype == DTRAIN_F64 ? ((const double *)array)[index] : (double)((const float *)array)[index];
}

/* ---- the model ---- */

static void read_description(const json_t *config, dtrain_transformer *out)
{
	beton_error err = {0};
	assert_int_equal(json_dump_file(config, "config.json", 0), 0);
	expect_ok(dtrain_transformer_read("config.json", out, &err), &err);
	out->dropout = out->embedding_dropout = out->attention_dropout = 0;
}

static bool is_given(const json_t *expected, const char *input)
{
	const json_t *given = json_object_get(expected, "given");
	for (size_t i = 0; i < json_array_size(given); i++)
		if (strcmp(json_string_value(json_array_get(given, i)), input) == 0)
			return true;
	return false;
}

static dtrain_tensor add_input(dtrain_graph *graph, const json_t *expected, const char *name, dtrain_dtype dtype)
{
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){batch, length});
	return !expected || is_given(expected, name) ? dtrain_graph_input(graph, name, dtype, &shape) : -1;
}

static int64_t number(const json_t *object, const char *key)
{
	assert_true(json_is_integer(json_object_get(object, key)));
	return json_integer_value(json_object_get(object, key));
}

/* A model of pictures; its losses. */
static dtrain_tensor build_vit(model *m, const json_t *expected, dtrain_graph *graph)
{
	dtrain_shape rows = dtrain_shape_of(1, &batch);
	dtrain_shape image =
		dtrain_shape_of(4, (int64_t[]){batch, 3, number(expected, "height"), number(expected, "width")});
	m->image = dtrain_graph_input(graph, "image", m->activations, &image);
	m->label = dtrain_graph_input(graph, "label", DTRAIN_I64, &rows);
	m->logits = dtrain_model_build(graph, "config.json", m->image, number(expected, "classes"));
	return dtrain_softmax_cross_entropy(graph, m->logits, m->label, 0);
}

/* A model of tokens; its losses. */
static dtrain_tensor build_tokens(model *m, const json_t *expected, dtrain_graph *graph,
				  const dtrain_transformer *description)
{
	dtrain_transformer_outputs outputs;
	dtrain_loss_options options;
	dtrain_transformer_inputs_init(&m->inputs);
	dtrain_transformer_outputs_init(&outputs);
	m->inputs.tokens = add_input(graph, NULL, "tokens", DTRAIN_I32);
	m->inputs.position = add_input(graph, expected, "position", DTRAIN_I64);
	m->inputs.segment = add_input(graph, expected, "segment", DTRAIN_I32);
	m->inputs.token_types = add_input(graph, expected, "token_types", DTRAIN_I64);
	m->label = add_input(graph, NULL, "label", DTRAIN_I64);
	dtrain_transformer_build(graph, description, &m->inputs, &outputs);
	m->logits = dtrain_transformer_logits(graph, &outputs, -1);
	dtrain_shape two = dtrain_shape_of(1, (int64_t[]){2});
	m->rows = dtrain_graph_input(graph, "rows", DTRAIN_I64, &two);
	m->some = dtrain_transformer_logits(graph, &outputs, m->rows);
	dtrain_graph_keep(graph, m->some);
	dtrain_loss_options_init(&options);
	return dtrain_transformer_losses(graph, &outputs, m->label, &options);
}

static void build(model *m, const json_t *expected)
{
	dtrain_transformer description;
	dtrain_graph *graph;
	beton_error err = {0};
	read_description(json_object_get(expected, "config"), &description);
	expect_ok(dtrain_graph_create(m->params, true, &graph, &err), &err);
	dtrain_graph_set_dtype(graph, m->activations);
	bool pictures = description.type == DTRAIN_TRANSFORMER_VIT;
	dtrain_tensor losses =
		pictures ? build_vit(m, expected, graph) : build_tokens(m, expected, graph, &description);
	m->loss = dtrain_mean_loss(graph, losses);
	dtrain_graph_keep(graph, m->logits);
	dtrain_graph_keep(graph, m->loss);
	dtrain_graph_backward(graph, m->loss);
	expect_ok(dtrain_graph_compile(&graph, &m->program, &err), &err);
}

/* As that program does: numbers of a generator that starts from the tensor's name. */
static void fill(const model *m, const dtrain_param *param, void *values)
{
	uint32_t salt = 0;
	for (uint32_t i = 0; param->name[i]; i++)
		salt += (i + 1) * (uint8_t)param->name[i];
	uint32_t state = 12345u + 2654435761u * salt;
	int ndim = param->shape.ndim;
	bool weight = strstr(param->name, ".weight") != NULL;
	double scale = ndim > 1 ? pow((double)param->shape.dim[ndim - 1], -0.5) : weight ? 0.2 : 0.1;
	for (int64_t i = 0; i < param->count; i++) {
		state = state * 1664525u + 1013904223u;
		float value = (float)((ndim == 1 && weight ? 1 : 0) + scale * ((double)(state >> 8) * 0x1p-23 - 1));
		if (m->dtype == DTRAIN_F64)
			((double *)values)[param->offset + i] = value;
		else
			((float *)values)[param->offset + i] = value;
	}
}

static void fill_pictures(const model *m, int64_t classes)
{
	void *image = dtrain_program_data(m->program, m->image);
	int64_t *label = dtrain_program_data(m->program, m->label);
	for (int64_t i = 0; i < dtrain_shape_count(dtrain_program_shape(m->program, m->image)); i++) {
		double value = (double)(i * 37 % 101 - 50) / 32;
		if (m->activations == DTRAIN_F64)
			((double *)image)[i] = value;
		else if (m->activations == DTRAIN_BF16)
			((uint16_t *)image)[i] = bt_bfloat16((float)value);
		else if (m->activations == DTRAIN_F16)
			((uint16_t *)image)[i] = bt_float16((float)value);
		else
			((float *)image)[i] = (float)value;
	}
	for (int i = 0; i < batch; i++)
		label[i] = i * 2 % classes;
}

static void fill_tokens(const model *m, int vocabulary)
{
	const dtrain_transformer_inputs *inputs = &m->inputs;
	int32_t *tokens = dtrain_program_data(m->program, inputs->tokens);
	int32_t *segment = inputs->segment < 0 ? NULL : dtrain_program_data(m->program, inputs->segment);
	int64_t *label = dtrain_program_data(m->program, m->label);
	int64_t *position = inputs->position < 0 ? NULL : dtrain_program_data(m->program, inputs->position);
	int64_t *types = inputs->token_types < 0 ? NULL : dtrain_program_data(m->program, inputs->token_types);
	memcpy(dtrain_program_data(m->program, m->rows), (int64_t[]){batch * length - 1, 4}, 2 * sizeof(int64_t));
	for (int i = 0; i < batch * length; i++) {
		tokens[i] = i * 17 % vocabulary;
		label[i] = i % 5 == 0 ? IGNORED : i * 29 % vocabulary;
		if (segment)
			segment[i] = i % (int)length / 4;
		if (position)
			position[i] = (i % length * 7 + 3) % length;
		if (types)
			types[i] = i * 3 % 7 % 2;
	}
}

static bool is_half(dtrain_dtype dtype)
{
	return dtype == DTRAIN_BF16 || dtype == DTRAIN_F16;
}

static void open_model(model *m, const json_t *expected, const char *device, dtrain_dtype activations)
{
	beton_error err = {0};
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = 1};
	dtrain_dtype dtype = is_half(activations) ? DTRAIN_F32 : activations;
	*m = (model){.dtype = dtype, .activations = activations, .image = -1, .some = -1};
	expect_ok(dtrain_device_open(device, &options, &m->device, &err), &err);
	m->api = dtrain_device_get_api(m->device);
	expect_ok(m->api->stream_create(m->device, &m->stream, &err), &err);
	expect_ok(dtrain_params_create(m->device, dtype, &m->params, &err), &err);
	build(m, expected);
	/* For the positions that are not trained. The large model has none, and its parameters would take a third of
	 * the test's time. */
	if (!large)
		expect_ok(dtrain_params_initialize(m->params, 1, m->stream, &err), &err);
	for (int i = 0; i < dtrain_params_count(m->params); i++)
		fill(m, dtrain_params_at(m->params, i), dtrain_params_values(m->params));
	expect_ok(dtrain_params_changed(m->params, m->stream, &err), &err);
	expect_ok(m->api->stream_synchronize(m->stream, &err), &err);
	if (m->image >= 0)
		fill_pictures(m, number(expected, "classes"));
	else
		fill_tokens(m, (int)number(json_object_get(expected, "config"), "vocab_size"));
}

static void close_model(model *m)
{
	dtrain_program_destroy(&m->program);
	dtrain_params_destroy(&m->params);
	m->api->stream_destroy(m->stream);
	dtrain_device_close(&m->device);
}

/* ---- the comparison ---- */

/* stored: the norm of a tensor, then some of its elements, which may differ by bound times the root of their mean
 * square and times their size. Of some gradients (that of the keys' bias) the true value is 0. */
static void compare_tensor(const model *m, const char *name, const void *array, int64_t offset, int64_t count,
			   const json_t *stored, double bound)
{
	if (json_array_size(stored) < 2)
		fail_msg("the file has no %s", name);
	double norm = json_number_value(json_array_get(stored, 0)), sum = 0;
	for (int64_t i = 0; i < count; i++)
		sum += pow(element(m, array, offset + i), 2);
	if (!(fabs(sqrt(sum) - norm) <= bound * (norm + 1e-2)))
		fail_msg("%s: norm %.9g, Hugging Face has %.9g", name, sqrt(sum), norm);
	for (size_t k = 1; k < json_array_size(stored); k++) {
		int64_t place = (int64_t)(k - 1) * 7919 % count;
		double got = element(m, array, offset + place), right = json_number_value(json_array_get(stored, k));
		if (!(fabs(got - right) <= bound * ((norm + 1e-2) / sqrt((double)count) + fabs(right))))
			fail_msg("%s[%lld]: %.9g, Hugging Face has %.9g", name, (long long)place, got, right);
	}
}

/* As for the next token of a text. */
static void compare_rows(const model *m)
{
	const void *all = dtrain_program_data(m->program, m->logits), *some = dtrain_program_data(m->program, m->some);
	int64_t vocabulary = dtrain_program_shape(m->program, m->some)->dim[1];
	assert_int_equal(dtrain_program_shape(m->program, m->some)->dim[0], 2);
	for (int64_t i = 0; i < vocabulary; i++) {
		assert_true(fabs(element(m, some, i) - element(m, all, (batch * length - 1) * vocabulary + i)) < 1e-5);
		assert_true(fabs(element(m, some, vocabulary + i) - element(m, all, 4 * vocabulary + i)) < 1e-5);
	}
}

static void compare_first_step(const model *m, const json_t *expected, double bound)
{
	const json_t *gradients = json_object_get(expected, "gradients");
	compare_tensor(m, "logits", dtrain_program_data(m->program, m->logits), 0,
		       dtrain_shape_count(dtrain_program_shape(m->program, m->logits)),
		       json_object_get(expected, "logits"), bound);
	assert_int_equal(json_object_size(gradients), dtrain_params_count(m->params));
	int64_t elements = 0;
	for (int i = 0; i < dtrain_params_count(m->params); i++) {
		const dtrain_param *param = dtrain_params_at(m->params, i);
		compare_tensor(m, param->name, dtrain_params_grads(m->params), param->offset, param->count,
			       json_object_get(gradients, param->name), bound);
		elements += param->count;
	}
	assert_int_equal(elements, json_integer_value(json_object_get(expected, "count")));
}

static dtrain_optimizer *make_sgd(const model *m)
{
	static const dtrain_hyper_value momentum = {"momentum", MOMENTUM};
	dtrain_optimizer_options options;
	dtrain_optimizer *sgd;
	beton_error err = {0};
	dtrain_optimizer_options_init(&options);
	options.hypers = &momentum;
	options.num_hypers = 1;
	expect_ok(dtrain_optimizer_create(m->params, &options, &sgd, &err), &err);
	expect_ok(dtrain_optimizer_start(sgd, m->stream, &err), &err);
	return sgd;
}

/* bound: of everything in the first step, and of each step's loss, relative. */
static void compare_case(const json_t *expected, const char *device, dtrain_dtype activations, double bound)
{
	model m;
	beton_error err = {0};
	const json_t *losses = json_object_get(expected, activations == DTRAIN_BF16 ? "bf16_losses" : "losses");
	const char *name = json_string_value(json_object_get(expected, "name"));
	open_model(&m, expected, device, activations);
	dtrain_optimizer *sgd = make_sgd(&m);
	assert_true(json_array_size(losses) >= 4);
	/* In 16 bits a large model shows its gradients in the loss after one step. */
	int steps = large && is_half(activations) ? 2 : (int)json_array_size(losses);
	for (int step = 0; step < steps; step++) {
		expect_ok(dtrain_program_run(m.program, m.stream, 0, 1, &err), &err);
		expect_ok(m.api->stream_synchronize(m.stream, &err), &err);
		double right = json_number_value(json_array_get(losses, (size_t)step));
		double loss = element(&m, dtrain_program_data(m.program, m.loss), 0);
		if (!(fabs(loss - right) <= bound * right))
			fail_msg("%s, step %d: loss %.9g, Hugging Face has %.9g", name, step, loss, right);
		if (step == 0 && !is_half(activations))
			compare_first_step(&m, expected, bound);
		if (step == 0 && !is_half(activations) && m.some >= 0)
			compare_rows(&m);
		expect_ok(dtrain_optimizer_step(sgd, LR, m.stream, &err), &err);
	}
	dtrain_optimizer_destroy(&sgd);
	close_model(&m);
}

static void compare_cases(const char *device, dtrain_dtype activations, bounds bound)
{
	const json_t *cases = json_object_get(trace, "cases");
	assert_true(json_array_size(cases) > 0);
	for (size_t i = 0; i < json_array_size(cases); i++) {
		const json_t *expected = json_array_get(cases, i), *config = json_object_get(expected, "config");
		const char *type = json_string_value(json_object_get(config, "model_type"));
		compare_case(expected, device, activations,
			     strcmp(type, "llama") == 0 ? bound.llama
			     : strcmp(type, "vit") == 0 ? bound.vit
							: bound.tokens);
	}
}

/* In double, where learning rate and momentum alone pass through a float. */
static void ref_equals_hugging_face(void **state)
{
	(void)state;
	compare_cases("ref", DTRAIN_F64, in_double);
}

static void ref_equals_hugging_face_in_float(void **state)
{
	(void)state;
	compare_cases("ref", DTRAIN_F32, in_float);
}

static void cpu_equals_hugging_face(void **state)
{
	(void)state;
	if (!dtrain_device_find("cpu")) {
		fprintf(stderr, "no cpu device in this build\n");
		skip();
	}
	compare_cases("cpu", DTRAIN_F32, on_cpu);
}

/* Weights are read from copies, and all between them is rounded to 8 or 11 bits. */
static void losses_in_16_bits_are_near(void **state)
{
	(void)state;
	if (!large)
		compare_cases("ref", DTRAIN_BF16, in_bf16);
	if (!dtrain_device_find("cpu"))
		return;
	if (!large)
		compare_cases("cpu", DTRAIN_F16, in_f16);
	if (has_type("cpu", DTRAIN_BF16))
		compare_cases("cpu", DTRAIN_BF16, in_bf16);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ref_equals_hugging_face),
		cmocka_unit_test(ref_equals_hugging_face_in_float),
		cmocka_unit_test(cpu_equals_hugging_face),
		cmocka_unit_test(losses_in_16_bits_are_near),
	};
	const struct CMUnitTest large_tests[] = {
		cmocka_unit_test(cpu_equals_hugging_face),
		cmocka_unit_test(losses_in_16_bits_are_near),
	};
	json_error_t problem;
	char folder[256];
	large = argc == 3 && strcmp(argv[2], "cpu") == 0;
	if ((argc != 2 && !large) || !(trace = json_load_file(argv[1], 0, &problem))) {
		fprintf(stderr, "usage: %s FILE [cpu]\n", argv[0]);
		return 2;
	}
	batch = number(trace, "batch");
	length = number(trace, "length");
	if (temporary_enter(folder) != 0)
		return 2;
	int failed =
		large ? cmocka_run_group_tests(large_tests, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
	temporary_leave(folder);
	json_decref(trace);
	return failed;
}
