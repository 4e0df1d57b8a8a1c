/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages of a pipeline compute what the whole model computes: loss and gradients have its bits, but for a parameter of
 * two stages, whose gradients are added up.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/model.h>
#include <dtrain/stage.h>
#include <dtrain/transformer.h>

#include "tests/train/support/threads.h"

enum { BATCH = 2, TEXT = 6, WORDS = 11, SIDE = 8, CLASSES = 3, MOST = 4, INPUTS = 3 };

/* Inputs and loss of a graph; -1: the graph does not have them. */
typedef struct tensors {
	dtrain_tensor inputs[INPUTS], loss;
} tensors;

typedef void builder(dtrain_graph *graph, tensors *out);

/* A program and the parameters that it uses. */
typedef struct part {
	dtrain_params *params;
	dtrain_program *program;
	dtrain_instance *instance;
	dtrain_stage *stage; /* NULL: the whole */
	tensors at;
} part;

static dtrain_device *device;
static const dtrain_device_api *api;
static dtrain_stream *stream;
static beton_error err;

static void expect_ok(int status)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err.message);
}

/* ---- models ---- */

static void build_text(dtrain_graph *graph, tensors *out)
{
	dtrain_transformer t;
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	dtrain_loss_options loss;
	const dtrain_shape text = dtrain_shape_of(2, (int64_t[]){BATCH, TEXT});
	const dtrain_shape randoms = dtrain_shape_of(1, (int64_t[]){DTRAIN_RANDOMS});
	dtrain_transformer_init(&t);
	t.layers = 3;
	t.heads = t.kv_heads = 2;
	t.width = 8;
	t.head_size = 4;
	t.inner = 16;
	t.vocabulary = WORDS;
	t.positions = TEXT;
	t.dropout = t.embedding_dropout = t.attention_dropout = 0.3;
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&outputs);
	dtrain_loss_options_init(&loss);
	out->inputs[0] = inputs.tokens = dtrain_graph_input(graph, "tokens", DTRAIN_I64, &text);
	out->inputs[1] = dtrain_graph_input(graph, "label", DTRAIN_I64, &text);
	out->inputs[2] = inputs.random = dtrain_graph_input(graph, "random", DTRAIN_I64, &randoms);
	dtrain_transformer_build(graph, &t, &inputs, &outputs);
	out->loss = dtrain_mean(graph, dtrain_transformer_losses(graph, &outputs, out->inputs[1], &loss));
}

static void add_picture_loss(dtrain_graph *graph, dtrain_tensor logits, tensors *out)
{
	out->inputs[1] = dtrain_graph_input(graph, "label", DTRAIN_I64, &(dtrain_shape){.ndim = 1, .dim = {BATCH}});
	out->inputs[2] = -1;
	out->loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, logits, out->inputs[1], 0.1));
}

static dtrain_tensor add_picture(dtrain_graph *graph)
{
	const dtrain_shape picture = dtrain_shape_of(4, (int64_t[]){BATCH, 3, SIDE, SIDE});
	return dtrain_graph_input(graph, "image", DTRAIN_F32, &picture);
}

static void build_resnet(dtrain_graph *graph, tensors *out)
{
	out->inputs[0] = add_picture(graph);
	add_picture_loss(graph, dtrain_model_build(graph, "resnet20", out->inputs[0], CLASSES), out);
}

/* The first block's result is read by all later ones, so it passes through stages; a middle block reads it as a view;
 * the second block passes nothing on but through a view. */
static void build_skips(dtrain_graph *graph, tensors *out)
{
	const dtrain_shape rows = dtrain_shape_of(2, (int64_t[]){BATCH, 16});
	dtrain_tensor x = add_picture(graph), a, b, c;
	out->inputs[0] = x;
	a = dtrain_linear(graph, "a", dtrain_flatten(graph, x), 16);
	dtrain_graph_next_block(graph);
	b = dtrain_linear(graph, "b", dtrain_reshape(graph, a, &(dtrain_shape){.ndim = 3, .dim = {BATCH, 4, 4}}), 4);
	dtrain_graph_next_block(graph);
	c = dtrain_linear(graph, "c", dtrain_reshape(graph, b, &rows), 16);
	dtrain_graph_next_block(graph);
	add_picture_loss(graph, dtrain_linear(graph, "d", dtrain_add(graph, a, c, true), CLASSES), out);
}

/* ---- runs ---- */

static void open_whole(builder *build, part *out)
{
	dtrain_graph *graph;
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &out->params, &err));
	expect_ok(dtrain_graph_create(out->params, true, &graph, &err));
	build(graph, &out->at);
	dtrain_graph_keep(graph, out->at.loss);
	dtrain_graph_backward(graph, out->at.loss);
	expect_ok(dtrain_graph_compile(&graph, &out->program, &err));
	expect_ok(dtrain_instance_create(out->program, &out->instance, &err));
	expect_ok(dtrain_params_initialize(out->params, 3, stream, &err));
}

static void open_stage(builder *build, const int32_t *first, int32_t stages, int32_t stage, part *out)
{
	dtrain_params *outline;
	dtrain_graph *whole, *graph;
	tensors of_whole;
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &out->params, &err));
	expect_ok(dtrain_params_create_outline(out->params, &outline, &err));
	expect_ok(dtrain_graph_create(outline, true, &whole, &err));
	build(whole, &of_whole);
	expect_ok(dtrain_stage_create(whole, first, stages, stage, out->params, &out->stage, &err));
	dtrain_graph_destroy(&whole);
	dtrain_params_destroy(&outline);
	for (int i = 0; i < INPUTS; i++)
		out->at.inputs[i] = dtrain_stage_tensor(out->stage, of_whole.inputs[i]);
	out->at.loss = dtrain_stage_tensor(out->stage, of_whole.loss);
	assert_int_equal(out->at.loss >= 0, stage == stages - 1);
	if (out->at.loss >= 0)
		dtrain_graph_keep(dtrain_stage_graph(out->stage), out->at.loss);
	dtrain_stage_backward(out->stage, of_whole.loss);
	graph = dtrain_stage_take_graph(out->stage);
	expect_ok(dtrain_graph_compile(&graph, &out->program, &err));
	expect_ok(dtrain_instance_create(out->program, &out->instance, &err));
	expect_ok(dtrain_params_initialize(out->params, 3, stream, &err));
}

static void close_part(part *p)
{
	dtrain_instance_destroy(&p->instance);
	dtrain_program_destroy(&p->program);
	dtrain_stage_destroy(&p->stage);
	dtrain_params_destroy(&p->params);
}

static void fill(const part *p)
{
	for (int i = 0; i < INPUTS; i++) {
		dtrain_tensor input = p->at.inputs[i];
		void *to = input < 0 ? NULL : dtrain_instance_data(p->instance, input);
		if (!to)
			continue;
		int64_t count = dtrain_shape_count(dtrain_program_shape(p->program, input));
		bool whole = dtrain_program_dtype(p->program, input) == DTRAIN_I64;
		for (int64_t k = 0; k < count; k++)
			if (whole)
				((int64_t *)to)[k] = i == 2 ? k == DTRAIN_RANDOM_ROW_STRIDE : (k * 5 + i) % CLASSES;
			else
				((float *)to)[k] = sinf((float)k);
	}
}

static void run(const part *p, unsigned phases)
{
	expect_ok(dtrain_instance_run(p->instance, stream, phases, 0, 1, &err));
}

/* Moves a tensor from one stage to the next one, or back. */
static void move(const part *from, dtrain_tensor a, const part *to, dtrain_tensor b)
{
	const dtrain_shape *shape = dtrain_program_shape(from->program, a);
	const void *memory = dtrain_instance_data(from->instance, a);
	void *copy = dtrain_instance_data(to->instance, b);
	assert_non_null(memory);
	assert_non_null(copy);
	assert_int_equal(dtrain_shape_count(shape), dtrain_shape_count(dtrain_program_shape(to->program, b)));
	memcpy(copy, memory,
	       (size_t)dtrain_shape_count(shape) * dtrain_dtype_size(dtrain_program_dtype(from->program, a)));
}

static int move_forward(const part *from, const part *to)
{
	const dtrain_crossing *sent, *received;
	int count = 0;
	for (; (sent = dtrain_stage_sent(from->stage, count)); count++) {
		received = dtrain_stage_received(to->stage, count);
		assert_non_null(received);
		move(from, sent->value, to, received->value);
	}
	assert_null(dtrain_stage_received(to->stage, count));
	return count;
}

static void move_back(const part *from, const part *to)
{
	const dtrain_crossing *sent, *received;
	for (int i = 0; (received = dtrain_stage_received(from->stage, i)); i++) {
		sent = dtrain_stage_sent(to->stage, i);
		assert_int_equal(sent->gradient < 0, received->gradient < 0);
		if (sent->gradient >= 0)
			move(from, received->gradient, to, sent->gradient);
	}
}

static const dtrain_param *find(const dtrain_params *params, const char *name)
{
	for (int i = 0; i < dtrain_params_count(params); i++)
		if (strcmp(dtrain_params_at(params, i)->name, name) == 0)
			return dtrain_params_at(params, i);
	return NULL;
}

static const float *grads_of(const part *p, const dtrain_param *param)
{
	return (const float *)dtrain_params_grads(p->params) + param->offset;
}

/* Every parameter is in a stage, with the whole's values, block and gradient. */
static void compare_parameters(const part *whole, const part *stages, int count)
{
	int found = 0;
	for (int i = 0; i < dtrain_params_count(whole->params); i++) {
		const dtrain_param *param = dtrain_params_at(whole->params, i);
		const float *right = grads_of(whole, param);
		float *sum = calloc((size_t)param->count, sizeof(*sum));
		int owners = 0;
		for (int k = 0; k < count; k++) {
			const dtrain_param *own = find(stages[k].params, param->name);
			if (!own)
				continue;
			assert_int_equal(own->block, param->block);
			assert_int_equal(own->stages >> k & 1, 1);
			assert_int_equal(own->repeated, owners > 0);
			assert_memory_equal((float *)dtrain_params_values(stages[k].params) + own->offset,
					    (float *)dtrain_params_values(whole->params) + param->offset,
					    (size_t)param->count * sizeof(float));
			for (int64_t e = 0; e < param->count; e++)
				sum[e] += grads_of(&stages[k], own)[e];
			owners++;
		}
		assert_true(owners > 0);
		found += owners;
		if (owners == 1)
			assert_memory_equal(sum, right, (size_t)param->count * sizeof(float));
		for (int64_t e = 0; e < param->count; e++)
			assert_float_equal(sum[e], right[e], 1e-6);
		free(sum);
	}
	for (int k = 0; k < count; k++)
		found -= dtrain_params_count(stages[k].params);
	assert_int_equal(found, 0);
}

static void compare(builder *build, const int32_t *first, int count)
{
	part whole = {0}, stages[MOST] = {{0}};
	open_whole(build, &whole);
	for (int i = 0; i < count; i++)
		open_stage(build, first, count, i, &stages[i]);
	fill(&whole);
	run(&whole, DTRAIN_ALL_PHASES);
	for (int i = 0; i < count; i++) {
		fill(&stages[i]);
		if (i > 0)
			assert_true(move_forward(&stages[i - 1], &stages[i]) > 0);
		run(&stages[i], DTRAIN_FORWARD);
	}
	for (int i = count - 1; i >= 0; i--) {
		if (i + 1 < count)
			move_back(&stages[i + 1], &stages[i]);
		run(&stages[i], DTRAIN_BACKWARD | DTRAIN_WEIGHTS);
	}
	expect_ok(api->stream_synchronize(stream, &err));
	const part *last = &stages[count - 1];
	assert_memory_equal(dtrain_instance_data(last->instance, last->at.loss),
			    dtrain_instance_data(whole.instance, whole.at.loss), sizeof(float));
	compare_parameters(&whole, stages, count);
	for (int i = 0; i < count; i++)
		close_part(&stages[i]);
	close_part(&whole);
}

static void stages_compute_the_whole(void **state)
{
	(void)state;
	compare(build_text, (int32_t[]){0}, 1);
	compare(build_text, (int32_t[]){0, 1}, 2);
	compare(build_text, (int32_t[]){0, 4}, 2);
	compare(build_text, (int32_t[]){0, 2, 3}, 3);
	compare(build_resnet, (int32_t[]){0, 3}, 2);
	compare(build_resnet, (int32_t[]){0, 2, 5, 7}, 4);
	compare(build_skips, (int32_t[]){0, 1, 2, 3}, 4);
	compare(build_skips, (int32_t[]){0, 2}, 2);
}

/* ---- borders ---- */

static double cost_of(const double *costs, int32_t begin, int32_t end)
{
	double sum = 0;
	while (begin < end)
		sum += costs[begin++];
	return sum;
}

/* The least cost of the most expensive of `stages` stages, by trying all borders. */
static double try_all(const double *costs, int32_t begin, int32_t blocks, int32_t stages)
{
	double best = INFINITY;
	if (stages == 1)
		return cost_of(costs, begin, blocks);
	for (int32_t i = begin + 1; i + stages - 1 <= blocks; i++)
		best = fmin(best, fmax(cost_of(costs, begin, i), try_all(costs, i, blocks, stages - 1)));
	return best;
}

static void borders_cost_least(void **state)
{
	static const double lists[][7] = {{1, 1, 1, 1, 1, 1, 1}, {9, 1, 1, 1, 1, 1, 1}, {0, 0, 5, 0, 0, 3, 4},
					  {1, 2, 3, 4, 5, 6, 7}, {0, 0, 0, 0, 0, 0, 0}, {3, 0, 0, 0, 0, 0, 8}};
	(void)state;
	for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++)
		for (int32_t blocks = 1; blocks <= 7; blocks++)
			for (int32_t stages = 1; stages <= blocks; stages++) {
				int32_t first[8] = {0};
				double most = 0;
				expect_ok(dtrain_stage_divide(lists[l], blocks, stages, first, &err));
				first[stages] = blocks;
				assert_int_equal(first[0], 0);
				for (int32_t i = 0; i < stages; i++) {
					assert_true(first[i] < first[i + 1]);
					most = fmax(most, cost_of(lists[l], first[i], first[i + 1]));
				}
				assert_true(most <= try_all(lists[l], 0, blocks, stages));
			}
	int32_t first[8];
	assert_int_equal(dtrain_stage_divide(lists[0], 3, 4, first, &err), BETON_INVALID_ARGUMENT);
	assert_string_equal(err.message, "pipeline: 4 stages of 3 blocks; a stage has at least one block, and there "
					 "are at most 64 stages");
}

static void expect_refused(const int32_t *first, int32_t stages, int32_t stage, const char *message)
{
	dtrain_params *params, *outline;
	dtrain_graph *whole;
	dtrain_stage *taken;
	tensors at;
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &err));
	expect_ok(dtrain_params_create_outline(params, &outline, &err));
	expect_ok(dtrain_graph_create(outline, true, &whole, &err));
	build_skips(whole, &at);
	assert_int_equal(dtrain_stage_create(whole, first, stages, stage, params, &taken, &err),
			 BETON_INVALID_ARGUMENT);
	assert_null(taken);
	assert_non_null(strstr(err.message, message));
	assert_int_equal(dtrain_params_count(params), 0);
	dtrain_graph_destroy(&whole);
	dtrain_params_destroy(&outline);
	dtrain_params_destroy(&params);
}

static void bad_borders_are_refused(void **state)
{
	(void)state;
	expect_refused((int32_t[]){0, 4}, 2, 0, "stage 1 begins at block 4; the model has 4 blocks");
	expect_refused((int32_t[]){1, 2}, 2, 0, "stage 0 begins at block 1");
	expect_refused((int32_t[]){0, 2, 2}, 3, 0, "stage 2 begins at block 2");
	expect_refused((int32_t[]){0, 0}, 2, 0, "stage 1 begins at block 0");
	expect_refused((int32_t[]){0, 1}, 2, 2, "stage 2 of 2");
}

int main(void)
{
	const dtrain_device_options options = {.struct_size = sizeof(options), .threads = TEST_THREADS};
	expect_ok(dtrain_device_open("ref", &options, &device, &err));
	api = dtrain_device_get_api(device);
	expect_ok(api->stream_create(device, &stream, &err));
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stages_compute_the_whole),
		cmocka_unit_test(borders_cost_least),
		cmocka_unit_test(bad_borders_are_refused),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	api->stream_destroy(stream);
	dtrain_device_close(&device);
	return failed;
}
