/* SPDX-License-Identifier: Apache-2.0
 *
 * Compute copies of weights: in a graph of 16 bits each weight is rounded once, in front of its first reader, and
 * trainings compute the bits that they compute without copies.
 */
#include "net.h"

#include "core/op.h"
#include "core/program.h"

/* ---- a device that wants copies, or none ---- */

static dtrain_device_api without_copies;
static const dtrain_device_api *inner;

static void caps_without_copies(const dtrain_device *device, dtrain_device_caps *out)
{
	inner->caps(device, out);
	out->weight_copies = false;
}

static dtrain_device *open_device(bool copies)
{
	dtrain_device *device;
	beton_error err = {0};
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	if (copies)
		return device;
	inner = dtrain_device_get_api(device);
	without_copies = *inner;
	without_copies.caps = caps_without_copies;
	/* Every device begins with its table. */
	memcpy(device, &(const dtrain_device_api *){&without_copies}, sizeof(inner));
	return device;
}

static void open_net(net *n, bool copies, dtrain_dtype activations, const char *model, int64_t side)
{
	beton_error err = {0};
	*n = (net){.batch = 2,
		   .classes = 4,
		   .pixels = 3 * side * side,
		   .dtype = DTRAIN_F32,
		   .activations = activations,
		   .device = open_device(copies)};
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(dtrain_params_create(n->device, DTRAIN_F32, &n->params, &err), &err);
	if (activations == DTRAIN_F16)
		expect_ok(dtrain_scaler_create(n->device, n->stream, &n->scaler, &err), &err);
	net_build(n, model, side, true);
}

/* ---- the nodes ---- */

static int count_casts(const dtrain_program *program)
{
	int count = 0;
	for (int32_t i = 0; i < program->graph->num_nodes; i++)
		count += program->graph->nodes[i].kind == DTRAIN_OP_CAST;
	return count;
}

static bool reads(const dtrain__node *node, dtrain_tensor tensor)
{
	for (int i = 0; i < node->num_inputs; i++)
		if (node->inputs[i] == tensor)
			return true;
	return false;
}

static size_t bytes_of_copies(const dtrain_program *program)
{
	size_t bytes = 0;
	for (int32_t i = 0; i < program->graph->num_nodes; i++)
		if (program->graph->nodes[i].kind == DTRAIN_OP_CAST)
			bytes += program->spans[program->graph->nodes[i].outputs[0]].bytes;
	return bytes;
}

/* A cast stands in front of the first op that reads it, no two are of one weight, and each op reads its weight from
 * one.
 */
static void check_nodes(const dtrain_program *program, dtrain_dtype dtype)
{
	const dtrain_graph *graph = program->graph;
	for (int32_t i = 0; i < graph->num_nodes; i++) {
		const dtrain__node *node = &graph->nodes[i];
		if (node->kind == DTRAIN_OP_CAST) {
			assert_true(i + 1 < graph->num_nodes && reads(&graph->nodes[i + 1], node->outputs[0]));
			for (int32_t k = 0; k < i; k++)
				assert_true(graph->nodes[k].kind != DTRAIN_OP_CAST ||
					    graph->nodes[k].inputs[0] != node->inputs[0]);
			continue;
		}
		for (int k = 0; k < node->num_inputs; k++) {
			const dtrain__tensor *input = &graph->tensors[node->inputs[k]];
			if (dtrain__op_input_letter(node->kind, k) == 'W')
				assert_int_equal(input->dtype, dtype);
			else if (input->role == DTRAIN__PARAM || input->role == DTRAIN__BUFFER)
				assert_int_equal(input->dtype, DTRAIN_F32);
		}
	}
	for (int32_t i = 0; i < graph->num_tensors; i++)
		assert_true(graph->tensors[i].role != DTRAIN__GRAD || graph->tensors[i].dtype == DTRAIN_F32);
}

static void each_weight_is_cast_once(void **state)
{
	(void)state;
	static const struct {
		const char *model;
		int64_t side;
		int weights;
	} cases[] = {{"mlp", 8, 3}, {SMALL_NET, 9, 4}, {"resnet20", 8, 22}, {"resnet50", 32, 54}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t unshared[2];
		for (int copies = 0; copies < 2; copies++) {
			net n;
			dtrain_program_facts facts = {.struct_size = sizeof(facts)};
			open_net(&n, copies, DTRAIN_BF16, cases[i].model, cases[i].side);
			assert_int_equal(count_casts(n.program), copies ? cases[i].weights : 0);
			check_nodes(n.program, copies ? DTRAIN_BF16 : DTRAIN_F32);
			dtrain_program_get_facts(n.program, &facts);
			unshared[copies] = facts.unshared_bytes - bytes_of_copies(n.program);
			net_close(&n);
		}
		assert_int_equal(unshared[1], unshared[0]);
	}
}

static void graphs_of_the_parameters_type_have_no_casts(void **state)
{
	(void)state;
	net n;
	open_net(&n, true, DTRAIN_F32, SMALL_NET, 9);
	assert_int_equal(count_casts(n.program), 0);
	check_nodes(n.program, DTRAIN_F32);
	net_close(&n);
}

/* ---- weights that layers share, and graphs for evaluation ---- */

/* One weight, twice as it is, and the rows of another. */
static dtrain_tensor shared_layers(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_shape square = dtrain_shape_of(2, (int64_t[]){64, 64});
	dtrain_tensor w = dtrain_graph_parameter(graph, "w", &square, DTRAIN_INIT_LINEAR_UNIFORM, 64);
	dtrain_tensor v = dtrain_graph_parameter(graph, "v", &square, DTRAIN_INIT_LINEAR_UNIFORM, 64);
	x = dtrain_linear_of(graph, dtrain_gelu(graph, dtrain_linear_of(graph, x, w, -1, false)), w, -1, false);
	dtrain_tensor rows = dtrain_slice(graph, v, 0, 16, 8);
	return dtrain_linear_of(graph, x, rows, -1, false);
}

static void open_shared(net *n, bool copies, bool training)
{
	beton_error err = {0};
	dtrain_graph *graph;
	*n = (net){.batch = 3,
		   .classes = 8,
		   .pixels = 64,
		   .dtype = DTRAIN_F32,
		   .activations = DTRAIN_BF16,
		   .device = open_device(copies)};
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(dtrain_params_create(n->device, DTRAIN_F32, &n->params, &err), &err);
	expect_ok(dtrain_graph_create(n->params, training, &graph, &err), &err);
	dtrain_graph_set_dtype(graph, DTRAIN_BF16);
	n->image = dtrain_graph_input(graph, "x", DTRAIN_BF16, &(dtrain_shape){2, {3, 64}});
	n->label = dtrain_graph_input(graph, "y", DTRAIN_I64, &(dtrain_shape){1, {3}});
	n->logits = shared_layers(graph, n->image);
	n->loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, n->logits, n->label, 0));
	dtrain_graph_keep(graph, n->loss);
	if (training)
		dtrain_graph_backward(graph, n->loss);
	expect_ok(dtrain_graph_compile(&graph, &n->program, &err), &err);
	net_fill(n);
	expect_ok(dtrain_params_initialize(n->params, 5, n->stream, &err), &err);
}

static void a_shared_weight_is_cast_once(void **state)
{
	(void)state;
	net n[2];
	double loss[2];
	for (int copies = 0; copies < 2; copies++) {
		open_shared(&n[copies], copies, true);
		assert_int_equal(count_casts(n[copies].program), copies ? 2 : 0);
		check_nodes(n[copies].program, copies ? DTRAIN_BF16 : DTRAIN_F32);
		loss[copies] = net_run(&n[copies]);
	}
	assert_true(loss[0] == loss[1]);
	assert_memory_equal(dtrain_params_grads(n[0].params), dtrain_params_grads(n[1].params),
			    (size_t)dtrain_params_flat_count(n[0].params) * sizeof(float));
	for (int copies = 0; copies < 2; copies++)
		net_close(&n[copies]);
}

/* A copy is alive until the last op that reads it. */
static void evaluation_has_copies_for_as_long_as_it_needs_them(void **state)
{
	(void)state;
	net n[2];
	double loss[2];
	for (int copies = 0; copies < 2; copies++) {
		open_shared(&n[copies], copies, false);
		assert_int_equal(count_casts(n[copies].program), copies ? 2 : 0);
		loss[copies] = net_run(&n[copies]);
	}
	assert_true(loss[0] == loss[1]);
	const dtrain_program *program = n[1].program;
	for (int32_t i = 0; i < program->graph->num_nodes; i++) {
		const dtrain__node *node = &program->graph->nodes[i];
		int32_t last = i;
		for (int32_t k = i; k < program->graph->num_nodes && node->kind == DTRAIN_OP_CAST; k++)
			last = reads(&program->graph->nodes[k], node->outputs[0]) ? k : last;
		if (node->kind != DTRAIN_OP_CAST)
			continue;
		assert_int_equal(program->spans[node->outputs[0]].first, i);
		assert_int_equal(program->spans[node->outputs[0]].last, last);
	}
	for (int copies = 0; copies < 2; copies++)
		net_close(&n[copies]);
}

/* ---- the bits ---- */

static float *train(bool copies, dtrain_dtype dtype, const char *model, int64_t *count)
{
	net n;
	beton_error err = {0};
	dtrain_optimizer *sgd;
	dtrain_optimizer_options options;
	open_net(&n, copies, dtype, model, 9);
	expect_ok(dtrain_params_initialize(n.params, 7, n.stream, &err), &err);
	dtrain_optimizer_options_init(&options);
	options.scaler = n.scaler;
	expect_ok(dtrain_optimizer_create(n.params, &options, &sgd, &err), &err);
	for (int i = 0; i < 3; i++) {
		net_run(&n);
		expect_ok(dtrain_optimizer_step(sgd, 0.1, n.stream, &err), &err);
	}
	*count = dtrain_params_flat_count(n.params);
	float *values = malloc((size_t)*count * sizeof(float));
	assert_non_null(values);
	memcpy(values, dtrain_params_values(n.params), (size_t)*count * sizeof(float));
	dtrain_optimizer_destroy(&sgd);
	net_close(&n);
	return values;
}

static void trainings_have_the_same_bits(void **state)
{
	(void)state;
	static const char *const models[] = {"mlp", SMALL_NET, "resnet20"};
	static const dtrain_dtype dtypes[] = {DTRAIN_BF16, DTRAIN_F16};
	for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++)
		for (int t = 0; t < 2; t++) {
			int64_t count[2];
			float *without = train(false, dtypes[t], models[m], &count[0]);
			float *with = train(true, dtypes[t], models[m], &count[1]);
			assert_int_equal(count[0], count[1]);
			assert_memory_equal(without, with, (size_t)count[0] * sizeof(float));
			free(without);
			free(with);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_weight_is_cast_once),
		cmocka_unit_test(graphs_of_the_parameters_type_have_no_casts),
		cmocka_unit_test(a_shared_weight_is_cast_once),
		cmocka_unit_test(evaluation_has_copies_for_as_long_as_it_needs_them),
		cmocka_unit_test(trainings_have_the_same_bits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
