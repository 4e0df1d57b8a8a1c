/* SPDX-License-Identifier: Apache-2.0
 *
 * Compute copies of parameters: which graphs read them, that trainings compute the same bits as without, that a step
 * makes them once, and that they equal the parameters, by whatever function these were written. With a device's name as
 * argument, on that device: 77 without it.
 */
#include <stdio.h>

#include "tests/train/support/missing.h"
#include "tests/train/support/net.h"

#include "core/op.h"
#include "core/params.h"
#include "core/program.h"

static const char *tested = "ref";

/* ---- the device, with copies or without; and how often it makes them ---- */

enum { MAX_CASTS = 8 };

static struct {
	const dtrain_device_api *inner;
	dtrain_device_api table;
	bool copies;
	const dtrain_op *casts[MAX_CASTS]; /* all that were created since the device was opened */
	int num_casts, runs;
} spy;

static void spy_caps(const dtrain_device *device, dtrain_device_caps *out)
{
	spy.inner->caps(device, out);
	out->weight_copies = out->weight_copies && spy.copies;
}

static int spy_op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err)
{
	int status = spy.inner->op_create(device, desc, out, err);
	if (status == BETON_OK && desc->kind == DTRAIN_OP_CAST) {
		assert_true(spy.num_casts < MAX_CASTS);
		spy.casts[spy.num_casts++] = *out;
	}
	return status;
}

static int spy_op_run(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err)
{
	for (int i = 0; i < spy.num_casts; i++)
		spy.runs += spy.casts[i] == op;
	return spy.inner->op_run(op, stream, operands, workspace, err);
}

/* Every device begins with its table. One device at a time has the spy's. */
static dtrain_device *open_device(bool copies)
{
	dtrain_device *device;
	beton_error err = {0};
	/* Timing could choose other algorithms for the trainings that are compared. */
	const dtrain_device_options options = {.struct_size = sizeof(options), .threads = 1, .deterministic = true};
	expect_ok(dtrain_device_open(tested, &options, &device, &err), &err);
	spy.inner = dtrain_device_get_api(device);
	spy.table = *spy.inner;
	spy.table.caps = spy_caps;
	spy.table.op_create = spy_op_create;
	spy.table.op_run = spy_op_run;
	spy.copies = copies;
	spy.num_casts = spy.runs = 0;
	memcpy(device, &(const dtrain_device_api *){&spy.table}, sizeof(spy.inner));
	return device;
}

static void open_parts(net *n, bool copies)
{
	beton_error err = {0};
	n->dtype = DTRAIN_F32;
	n->device = open_device(copies);
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(dtrain_params_create(n->device, DTRAIN_F32, &n->params, &err), &err);
}

static void open_net(net *n, bool copies, dtrain_dtype activations, const char *model, int64_t side)
{
	beton_error err = {0};
	*n = (net){.batch = 2, .classes = 4, .pixels = 3 * side * side, .activations = activations};
	open_parts(n, copies);
	if (activations == DTRAIN_F16)
		expect_ok(dtrain_scaler_create(n->device, n->stream, &n->scaler, &err), &err);
	net_build(n, model, side, true);
}

/* ---- what graphs read ---- */

static int count_copies(const dtrain_program *program)
{
	int count = 0;
	for (int32_t i = 0; i < program->graph->num_tensors; i++)
		count += program->graph->tensors[i].role == DTRAIN__COPY;
	return count;
}

/* Each op reads a parameter that is its weight as dtype; all else that persists stays F32. No node makes a copy. */
static void check_nodes(const dtrain_program *program, dtrain_dtype dtype)
{
	const dtrain_graph *graph = program->graph;
	for (int32_t i = 0; i < graph->num_nodes; i++) {
		const dtrain__node *node = &graph->nodes[i];
		assert_int_not_equal(node->kind, DTRAIN_OP_CAST);
		for (int k = 0; k < node->num_inputs; k++) {
			const dtrain__tensor *input = &graph->tensors[node->inputs[k]];
			if (input->role == DTRAIN__BUFFER)
				assert_int_equal(input->dtype, DTRAIN_F32);
			else if (dtrain__op_input_letter(node->kind, k) == 'W')
				assert_int_equal(input->dtype, dtype);
			else if (input->role == DTRAIN__PARAM)
				assert_int_equal(input->dtype, DTRAIN_F32);
		}
	}
	for (int32_t i = 0; i < graph->num_tensors; i++)
		assert_true(graph->tensors[i].role != DTRAIN__GRAD || graph->tensors[i].dtype == DTRAIN_F32);
}

static dtrain_program_info facts_of(const net *n)
{
	dtrain_program_info facts = {.struct_size = sizeof(facts)};
	dtrain_program_get_info(n->program, &facts);
	return facts;
}

static void weights_are_read_from_copies(void **state)
{
	(void)state;
	static const struct {
		const char *model;
		int64_t side;
		int weights;
	} cases[] = {{"mlp", 8, 3}, {SMALL_NET, 9, 3}, {"resnet20", 8, 22}, {"resnet50", 32, 54}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		dtrain_program_info facts[2];
		for (int copies = 0; copies < 2; copies++) {
			net n;
			open_net(&n, copies, DTRAIN_BF16, cases[i].model, cases[i].side);
			assert_int_equal(count_copies(n.program), copies ? cases[i].weights : 0);
			check_nodes(n.program, copies ? DTRAIN_BF16 : DTRAIN_F32);
			assert_int_equal(dtrain_params_copy_bytes(n.params),
					 copies ? 2 * dtrain_params_flat_count(n.params) : 0);
			facts[copies] = facts_of(&n);
			net_close(&n);
		}
		assert_int_equal(facts[1].nodes, facts[0].nodes);
		assert_int_equal(facts[1].arena_bytes, facts[0].arena_bytes);
	}
}

static void graphs_of_the_parameters_type_have_no_copies(void **state)
{
	(void)state;
	dtrain_program_info facts[2];
	for (int copies = 0; copies < 2; copies++) {
		net n;
		open_net(&n, copies, DTRAIN_F32, SMALL_NET, 9);
		assert_int_equal(count_copies(n.program), 0);
		assert_int_equal(dtrain_params_copy_bytes(n.params), 0);
		check_nodes(n.program, DTRAIN_F32);
		facts[copies] = facts_of(&n);
		net_close(&n);
	}
	assert_memory_equal(&facts[0], &facts[1], sizeof(facts[0]));
}

/* Another program of the same parameters, for evaluation. */
static dtrain_program *open_evaluation(net *n, dtrain_dtype dtype, int64_t side)
{
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_program *program;
	expect_ok(dtrain_graph_create(n->params, false, &graph, &err), &err);
	dtrain_graph_set_dtype(graph, dtype);
	dtrain_tensor x = dtrain_graph_input(graph, "image", dtype, &(dtrain_shape){4, {n->batch, 3, side, side}});
	dtrain_graph_keep(graph, build_net(graph, SMALL_NET, x, n->classes));
	expect_ok(dtrain_graph_compile(&graph, &program, &err), &err);
	return program;
}

static void programs_share_the_copies(void **state)
{
	(void)state;
	net n;
	open_net(&n, true, DTRAIN_BF16, SMALL_NET, 9);
	dtrain_program *evaluation = open_evaluation(&n, DTRAIN_BF16, 9);
	check_nodes(evaluation, DTRAIN_BF16);
	assert_int_equal(count_copies(evaluation), count_copies(n.program));
	for (int unit = 0; unit < dtrain_params_unit_count(n.params); unit++) {
		uint32_t base = dtrain__base_of_copies(unit);
		assert_true(evaluation->first->bases[base] == n.program->first->bases[base]);
	}
	assert_int_equal(spy.num_casts, 1);
	dtrain_program_destroy(&evaluation);
	net_close(&n);
}

/* The first 16-bit graph begun before the parameters are allocated decides; all others round for themselves. */
static void copies_have_one_type(void **state)
{
	(void)state;
	net n;
	open_net(&n, true, DTRAIN_BF16, SMALL_NET, 9);
	dtrain_program *other = open_evaluation(&n, DTRAIN_F16, 9);
	check_nodes(other, DTRAIN_F32);
	dtrain_program_destroy(&other);
	net_close(&n);
	open_net(&n, true, DTRAIN_F32, SMALL_NET, 9);
	other = open_evaluation(&n, DTRAIN_F16, 9);
	check_nodes(other, DTRAIN_F32);
	assert_int_equal(dtrain_params_copy_bytes(n.params), 0);
	dtrain_program_destroy(&other);
	net_close(&n);
}

/* A weight that is not a parameter has no copy: a buffer, which may be written at any time without notice. */
static void fixed_weights_are_read_as_they_are(void **state)
{
	(void)state;
	beton_error err = {0};
	dtrain_graph *graph;
	net n = {.batch = 2};
	open_parts(&n, true);
	expect_ok(dtrain_graph_create(n.params, false, &graph, &err), &err);
	dtrain_graph_set_dtype(graph, DTRAIN_BF16);
	dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_BF16, &(dtrain_shape){4, {2, 8, 5, 5}});
	dtrain_tensor y = dtrain_conv2d_fixed(graph, "0", x, 16, 3, 1, 1);
	dtrain_graph_keep(graph, dtrain_conv2d(graph, "1", y, 8, 1, 1, 0));
	expect_ok(dtrain_graph_compile(&graph, &n.program, &err), &err);
	assert_int_equal(count_copies(n.program), 1);
	const dtrain_graph *made = n.program->graph;
	assert_int_equal(made->tensors[made->nodes[0].inputs[1]].role, DTRAIN__BUFFER);
	assert_int_equal(made->tensors[made->nodes[1].inputs[1]].role, DTRAIN__COPY);
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
	*n = (net){.batch = 3, .classes = 8, .pixels = 64, .activations = DTRAIN_BF16};
	open_parts(n, copies);
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

/* The copy of the rows is these rows of the copy. */
static void a_shared_weight_has_one_copy(void **state)
{
	(void)state;
	/* The gradient of rows is an op that the kernels of cuda do not have. */
	bool trains = strcmp(tested, "cuda") != 0 && strcmp(tested, "emulated") != 0;
	for (int training = 0; training < 1 + trains; training++) {
		double loss[2], *gradients[2] = {NULL};
		int64_t count = 0;
		for (int copies = 0; copies < 2; copies++) {
			net n;
			open_shared(&n, copies, training);
			assert_int_equal(count_copies(n.program), copies ? 2 : 0);
			check_nodes(n.program, copies ? DTRAIN_BF16 : DTRAIN_F32);
			loss[copies] = net_run(&n);
			count = dtrain_params_flat_count(n.params);
			gradients[copies] = net_values(&n, dtrain_params_grads(n.params), count);
			net_close(&n);
		}
		assert_true(loss[0] == loss[1]);
		assert_memory_equal(gradients[0], gradients[1], (size_t)count * sizeof(double));
		free(gradients[0]);
		free(gradients[1]);
	}
}

/* ---- copies are what the parameters are ---- */

/* Element i of a parameter in its copy: a copy that is not plain is cuda's, KRSC. */
static int64_t place_of(const dtrain_params *params, int index, int64_t i)
{
	const int64_t *dim = params->params[index].shape.dim;
	if (!dtrain__copies_layout(params, index))
		return i;
	int64_t area = dim[2] * dim[3], channel = i / area % dim[1];
	return i / (dim[1] * area) * dim[1] * area + i % area * dim[1] + channel;
}

/* Returns the sum of all values' bits, so that a test can tell that something has changed. */
static uint64_t check_copies(const net *n)
{
	const dtrain_params *params = n->params;
	int64_t count = params->flat_count;
	uint64_t sum = 0;
	uint16_t *copies = malloc((size_t)count * sizeof(*copies));
	float *values = malloc((size_t)count * sizeof(*values));
	assert_true(copies && values);
	net_copy(n, copies, params->copies.memory, (size_t)count * sizeof(*copies), DTRAIN_DEVICE_TO_HOST);
	net_copy(n, values, params->values, (size_t)count * sizeof(*values), DTRAIN_DEVICE_TO_HOST);
	for (int p = 0; p < params->count; p++)
		for (int64_t i = 0; i < params->params[p].count; i++) {
			float value = values[params->params[p].offset + i];
			uint16_t right = n->activations == DTRAIN_F16 ? bt_float16(value) : bt_bfloat16(value);
			uint16_t copy = copies[params->params[p].offset + place_of(params, p, i)];
			if (copy != right)
				fail_msg("the copy of '%s'[%lld] is %x; the value is %.9g, %x", params->params[p].name,
					 (long long)i, (unsigned)copy, (double)value, (unsigned)right);
			sum += right;
		}
	free(copies);
	free(values);
	return sum;
}

static dtrain_optimizer *open_optimizer(const net *n, bool lookahead, void *values)
{
	beton_error err = {0};
	dtrain_optimizer *optimizer;
	dtrain_optimizer_options options;
	dtrain_optimizer_options_init(&options);
	options.scaler = n->scaler;
	options.lookahead = lookahead;
	options.values = values;
	expect_ok(dtrain_optimizer_create(n->params, &options, &optimizer, &err), &err);
	return optimizer;
}

static void open_started(net *n, dtrain_dtype activations)
{
	beton_error err = {0};
	open_net(n, true, activations, SMALL_NET, 9);
	expect_ok(dtrain_params_initialize(n->params, 7, n->stream, &err), &err);
}

static void initial_values_are_copied(void **state)
{
	(void)state;
	net n;
	open_started(&n, DTRAIN_BF16);
	uint64_t first = check_copies(&n);
	beton_error err = {0};
	expect_ok(dtrain_params_initialize(n.params, 8, n.stream, &err), &err);
	assert_true(check_copies(&n) != first);
	net_close(&n);
}

static void updates_are_copied(void **state)
{
	(void)state;
	static const dtrain_dtype dtypes[] = {DTRAIN_BF16, DTRAIN_F16};
	for (int t = 0; t < 2; t++) {
		net n;
		beton_error err = {0};
		open_started(&n, dtypes[t]);
		dtrain_optimizer *sgd = open_optimizer(&n, true, NULL);
		expect_ok(dtrain_optimizer_start(sgd, n.stream, &err), &err);
		uint64_t sum = check_copies(&n);
		for (int i = 0; i < 3; i++) {
			uint64_t before = sum;
			net_run(&n);
			expect_ok(dtrain_optimizer_step(sgd, 0.1, n.stream, &err), &err);
			sum = check_copies(&n);
			assert_true(sum != before);
		}
		expect_ok(dtrain_optimizer_look_ahead(sgd, 0.25, n.stream, &err), &err);
		assert_true(check_copies(&n) != sum);
		dtrain_optimizer_destroy(&sgd);
		net_close(&n);
	}
}

/* A gradient of F16 that is infinite. */
static void skipped_updates_change_no_copy(void **state)
{
	(void)state;
	net n;
	beton_error err = {0};
	open_started(&n, DTRAIN_F16);
	dtrain_optimizer *sgd = open_optimizer(&n, false, NULL);
	uint64_t before = check_copies(&n);
	net_run(&n);
	net_copy(&n, dtrain_params_grads(n.params), &(float){INFINITY}, sizeof(float), DTRAIN_HOST_TO_DEVICE);
	expect_ok(dtrain_optimizer_step(sgd, 0.1, n.stream, &err), &err);
	assert_true(check_copies(&n) == before);
	dtrain_optimizer_destroy(&sgd);
	net_close(&n);
}

static void values_of_the_callers_are_copied_when_it_says_so(void **state)
{
	(void)state;
	net n;
	beton_error err = {0};
	open_started(&n, DTRAIN_BF16);
	uint64_t before = check_copies(&n);
	int64_t count = dtrain_params_flat_count(n.params);
	float *values = calloc((size_t)count, sizeof(*values));
	assert_non_null(values);
	for (int p = 0; p < n.params->count; p++)
		for (int64_t i = 0; i < n.params->params[p].count; i++)
			values[n.params->params[p].offset + i] = (float)(p - i) * 0.37f;
	net_copy(&n, dtrain_params_values(n.params), values, (size_t)count * sizeof(*values), DTRAIN_HOST_TO_DEVICE);
	free(values);
	expect_ok(dtrain_params_changed(n.params, n.stream, &err), &err);
	assert_true(check_copies(&n) != before);
	net_close(&n);
}

/* A caller with values elsewhere puts them into the parameters, or copies, itself. */
static void updates_of_other_memory_are_not_copied(void **state)
{
	(void)state;
	net n;
	beton_error err = {0};
	void *values;
	open_started(&n, DTRAIN_BF16);
	size_t bytes = (size_t)dtrain_params_flat_count(n.params) * sizeof(float);
	expect_ok(n.api->alloc(n.device, bytes, &values, &err), &err);
	dtrain_optimizer *sgd = open_optimizer(&n, false, values);
	net_run(&n);
	int runs = spy.runs;
	expect_ok(dtrain_optimizer_step(sgd, 0.1, n.stream, &err), &err);
	check_copies(&n);
	assert_int_equal(spy.runs, runs);
	dtrain_optimizer_destroy(&sgd);
	n.api->free(n.device, values);
	net_close(&n);
}

/* A captured step makes its own copies. What others write between its launches is copied when they say so, and not
 * part of the capture. */
static void captured_updates_are_copied(void **state)
{
	(void)state;
	net n;
	beton_error err = {0};
	void *captured = NULL;
	dtrain_device_caps caps;
	open_started(&n, DTRAIN_BF16);
	n.api->caps(n.device, &caps);
	if (!caps.graph_capture) {
		net_close(&n);
		skip();
	}
	dtrain_optimizer *sgd = open_optimizer(&n, false, NULL);
	net_run(&n);
	expect_ok(dtrain_optimizer_step(sgd, 0.1, n.stream, &err), &err);
	int runs = spy.runs;
	expect_ok(n.api->capture_begin(n.stream, &err), &err);
	expect_ok(dtrain_program_run(n.program, n.stream, 0, 1, &err), &err);
	expect_ok(dtrain_optimizer_apply(sgd, n.stream, &err), &err);
	expect_ok(n.api->capture_end(n.stream, &captured, &err), &err);
	assert_int_equal(spy.runs, runs + 1);
	uint64_t sum = check_copies(&n);
	for (int i = 0; i < 3; i++) {
		uint64_t before = sum;
		if (i == 2)
			expect_ok(dtrain_params_initialize(n.params, 9, n.stream, &err), &err);
		expect_ok(n.api->capture_launch(captured, n.stream, &err), &err);
		sum = check_copies(&n);
		assert_true(sum != before);
	}
	expect_ok(n.api->stream_synchronize(n.stream, &err), &err);
	n.api->capture_destroy(captured);
	dtrain_optimizer_destroy(&sgd);
	net_close(&n);
}

/* ---- how often they are made ---- */

static void a_step_makes_the_copies_once(void **state)
{
	(void)state;
	net n;
	beton_error err = {0};
	open_started(&n, DTRAIN_BF16);
	dtrain_program *evaluation = open_evaluation(&n, DTRAIN_BF16, 9);
	dtrain_optimizer *sgd = open_optimizer(&n, false, NULL);
	int runs = spy.runs;
	for (int step = 1; step <= 2; step++) {
		for (int i = 0; i < 3; i++)
			expect_ok(dtrain_program_run(n.program, n.stream, i, 3, &err), &err);
		assert_int_equal(spy.runs, runs + step - 1);
		expect_ok(dtrain_optimizer_step(sgd, 0.1, n.stream, &err), &err);
		expect_ok(dtrain_program_run(evaluation, n.stream, 0, 1, &err), &err);
		assert_int_equal(spy.runs, runs + step);
	}
	expect_ok(n.api->stream_synchronize(n.stream, &err), &err);
	dtrain_optimizer_destroy(&sgd);
	dtrain_program_destroy(&evaluation);
	net_close(&n);
}

/* ---- the bits ---- */

/* Units of one or two parameters, which five shards divide. */
static void cut_units(net *n)
{
	beton_error err = {0};
	dtrain_unit_policy units;
	dtrain_unit_policy_init(&units);
	units.first_bytes = units.bytes = 2000;
	units.shards = 5;
	expect_ok(dtrain_params_set_units(n->params, &units, &err), &err);
}

static double *train(bool copies, dtrain_dtype dtype, const char *model, int64_t *count)
{
	beton_error err = {0};
	net n = {.batch = 2, .classes = 4, .pixels = 3 * 9 * 9, .activations = dtype};
	open_parts(&n, copies);
	cut_units(&n);
	if (dtype == DTRAIN_F16)
		expect_ok(dtrain_scaler_create(n.device, n.stream, &n.scaler, &err), &err);
	net_build(&n, model, 9, true);
	assert_true(dtrain_params_unit_count(n.params) > 2);
	expect_ok(dtrain_params_initialize(n.params, 7, n.stream, &err), &err);
	dtrain_optimizer *sgd = open_optimizer(&n, true, NULL);
	expect_ok(dtrain_optimizer_start(sgd, n.stream, &err), &err);
	for (int i = 0; i < 3; i++) {
		net_run(&n);
		expect_ok(dtrain_optimizer_step(sgd, 0.1, n.stream, &err), &err);
		expect_ok(dtrain_optimizer_look_ahead(sgd, 0.75, n.stream, &err), &err);
	}
	*count = dtrain_params_flat_count(n.params);
	double *values = net_values(&n, dtrain_params_values(n.params), *count);
	dtrain_optimizer_destroy(&sgd);
	net_close(&n);
	return values;
}

static void trainings_have_the_same_bits(void **state)
{
	(void)state;
	static const char *const models[] = {"mlp", SMALL_NET, "resnet20"};
	static const dtrain_dtype dtypes[] = {DTRAIN_BF16, DTRAIN_F16};
	/* The largest is not worth its time on a device that is emulated. */
	size_t num_models = strcmp(tested, "ref") == 0 ? 3 : 2;
	for (size_t m = 0; m < num_models; m++)
		for (int t = 0; t < 2; t++) {
			int64_t count[2];
			double *without = train(false, dtypes[t], models[m], &count[0]);
			double *with = train(true, dtypes[t], models[m], &count[1]);
			assert_int_equal(count[0], count[1]);
			assert_memory_equal(without, with, (size_t)count[0] * sizeof(double));
			free(without);
			free(with);
		}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(weights_are_read_from_copies),
		cmocka_unit_test(graphs_of_the_parameters_type_have_no_copies),
		cmocka_unit_test(programs_share_the_copies),
		cmocka_unit_test(copies_have_one_type),
		cmocka_unit_test(fixed_weights_are_read_as_they_are),
		cmocka_unit_test(a_shared_weight_has_one_copy),
		cmocka_unit_test(initial_values_are_copied),
		cmocka_unit_test(updates_are_copied),
		cmocka_unit_test(skipped_updates_change_no_copy),
		cmocka_unit_test(values_of_the_callers_are_copied_when_it_says_so),
		cmocka_unit_test(updates_of_other_memory_are_not_copied),
		cmocka_unit_test(captured_updates_are_copied),
		cmocka_unit_test(a_step_makes_the_copies_once),
		cmocka_unit_test(trainings_have_the_same_bits),
	};
	if (argc > 1)
		tested = argv[1];
	if (is_missing(tested))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
