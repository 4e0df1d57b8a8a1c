/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices, parameters, graphs, the memory planner and the hooks.
 */
#include "net.h"

#include <stdio.h>

#include "core/plan.h"
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
		{"resnet20", 8, 10, 65, 42, 11, 272474, {"layer3.2.bn2.bias", "layer2.0.downsample.0.weight"}},
		{"resnet18", 32, 1000, 62, 40, 10, 11689512, {"conv1.weight", "layer4.1.bn2.weight", "fc.bias"}},
		{"resnet50",
		 32,
		 1000,
		 161,
		 106,
		 18,
		 25557032,
		 {"layer1.0.downsample.1.bias", "layer4.2.conv3.weight", "layer3.5.bn3.weight"}},
	};
	for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
		net n;
		net_open(&n, "ref", DTRAIN_F32, models[m].name, 2, models[m].side, models[m].classes);
		int64_t elements = 0, previous = dtrain_params_flat_count(n.params);
		for (int i = 0; i < dtrain_params_count(n.params); i++) {
			const dtrain_param *p = dtrain_params_at(n.params, i);
			const dtrain_block *block = dtrain_params_block_at(n.params, p->block);
			assert_true(p->offset % DTRAIN_PARAM_ALIGN == 0 && p->offset + p->count <= previous);
			assert_true(p->offset >= block->offset && p->offset + p->count <= block->offset + block->count);
			for (int64_t k = p->offset + p->count; k < previous; k++)
				assert_true(((float *)dtrain_params_values(n.params))[k] == 0);
			previous = p->offset;
			elements += p->count;
			for (int k = 0; k < 4 && models[m].some[k]; k++)
				assert_true(dtrain_params_declare(n.params, models[m].some[k], &p->shape, p->init, 0,
								  NULL) != BETON_STATE);
		}
		assert_int_equal(elements, models[m].elements);
		assert_int_equal(dtrain_params_count(n.params), models[m].tensors);
		assert_int_equal(dtrain_params_buffer_count(n.params), models[m].buffers);
		assert_int_equal(dtrain_params_block_count(n.params), models[m].blocks);
		for (int i = 0; i < models[m].blocks; i++)
			assert_true(dtrain_params_block_at(n.params, i)->offset % DTRAIN_BLOCK_ALIGN == 0 &&
				    dtrain_params_block_at(n.params, i)->count % DTRAIN_BLOCK_ALIGN == 0);
		net_close(&n);
	}
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

static void plans_never_overlap(void **state)
{
	(void)state;
	srand(1);
	for (int round = 0; round < 300; round++) {
		dtrain__span spans[60];
		int count = rand() % 60;
		size_t total = 0, largest = 0;
		for (int i = 0; i < count; i++) {
			int first = rand() % 50;
			spans[i] = (dtrain__span){.bytes = (size_t)(rand() % 5 ? rand() % 5000 : 0),
						  .first = first,
						  .last = first + rand() % 20};
			largest = spans[i].bytes > largest ? spans[i].bytes : largest;
		}
		assert_int_equal(dtrain__plan(spans, count, 64, &total, NULL), BETON_OK);
		assert_true(total >= largest);
		for (int i = 0; i < count; i++) {
			assert_true(spans[i].offset % 64 == 0 && spans[i].offset + spans[i].bytes <= total);
			for (int k = 0; k < i; k++) {
				bool together = spans[i].first <= spans[k].last && spans[k].first <= spans[i].last;
				bool apart = spans[i].offset + spans[i].bytes <= spans[k].offset ||
					     spans[k].offset + spans[k].bytes <= spans[i].offset;
				if (spans[i].bytes && spans[k].bytes)
					assert_true(!together || apart);
			}
		}
	}
}

/* Random chains of layers with additions between distant tensors: while a node runs, nothing that it or a later node
 * reads shares memory with what it writes. */
static void programs_never_overwrite_what_is_read_later(void **state)
{
	(void)state;
	beton_error err = {0};
	for (unsigned seed = 0; seed < 20; seed++) {
		srand(seed);
		dtrain_device *device;
		dtrain_params *params;
		dtrain_graph *graph;
		dtrain_program *program;
		expect_ok(dtrain_device_open("auto", NULL, &device, &err), &err);
		expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &err), &err);
		expect_ok(dtrain_graph_create(params, true, &graph, &err), &err);
		dtrain_shape image = dtrain_shape_of(4, (int64_t[]){2, 3, 8, 8}), label = dtrain_shape_of(1, image.dim);
		dtrain_tensor chain[12];
		chain[0] =
			dtrain_conv2d(graph, "stem", dtrain_graph_input(graph, "x", DTRAIN_F32, &image), 16, 3, 1, 1);
		for (int i = 1; i < 12; i++) {
			char name[16];
			snprintf(name, sizeof(name), "l%d", i);
			dtrain_tensor from = chain[rand() % i];
			if (rand() % 3 == 0)
				chain[i] = dtrain_add(graph, from, chain[rand() % i], rand() % 2);
			else if (rand() % 2)
				chain[i] = dtrain_batch_norm(graph, name, from, rand() % 2);
			else
				chain[i] = dtrain_conv2d(graph, name, from, 16, 3, 1, 1);
		}
		dtrain_tensor logits = dtrain_linear(graph, "fc", dtrain_global_avg_pool(graph, chain[11]), 3);
		dtrain_tensor labels = dtrain_graph_input(graph, "y", DTRAIN_I64, &label);
		dtrain_graph_backward(graph,
				      dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, logits, labels, 0)));
		expect_ok(dtrain_graph_compile(&graph, &program, &err), &err);
		const dtrain_graph *g = program->graph;
		for (int32_t i = 0; i < g->num_nodes; i++)
			for (int o = 0; o < g->nodes[i].num_outputs; o++) {
				int32_t written = g->nodes[i].outputs[o];
				const char *at = program->data[written];
				for (int32_t k = i; k < g->num_nodes; k++)
					for (int r = 0; r < g->nodes[k].num_inputs; r++) {
						int32_t read = g->nodes[k].inputs[r];
						const char *other = program->data[read];
						if (read == written || g->tensors[read].producer > i)
							continue;
						assert_true(at + program->operands[written].bytes <= other ||
							    other + program->operands[read].bytes <= at);
					}
			}
		dtrain_program_facts facts = {.struct_size = sizeof(facts)};
		dtrain_program_get_facts(program, &facts);
		assert_true(facts.arena_bytes <= facts.unshared_bytes + 64 * (size_t)g->num_tensors);
		dtrain_program_destroy(&program);
		dtrain_params_destroy(&params);
		dtrain_device_close(&device);
	}
}

/* ---- hooks ---- */

typedef struct record {
	net *n;
	int forward_done, reported, blocks_open, blocks_seen;
	int64_t last_offset;
	int fail_at;
} record;

static int on_forward(void *context, dtrain_stream *stream, beton_error *err)
{
	record *r = context;
	(void)err;
	assert_ptr_equal(stream, r->n->stream);
	assert_int_equal(r->reported, 0);
	assert_int_equal(r->blocks_open, 0);
	r->forward_done++;
	return BETON_OK;
}

static int on_ready(void *context, int param, dtrain_stream *stream, beton_error *err)
{
	record *r = context;
	(void)stream;
	const dtrain_param *p = dtrain_params_at(r->n->params, param);
	assert_int_equal(r->forward_done, 1);
	assert_true(p->offset > r->last_offset);
	r->last_offset = p->offset;
	if (++r->reported != r->fail_at)
		return BETON_OK;
	*err = (beton_error){.code = BETON_CANCELLED, .message = "enough"};
	return BETON_CANCELLED;
}

static int on_begin(void *context, int block, bool backward, dtrain_stream *stream, beton_error *err)
{
	record *r = context;
	(void)stream;
	(void)err;
	assert_int_equal(r->blocks_open++, 0);
	int blocks = dtrain_params_block_count(r->n->params);
	assert_int_equal(block, backward ? 2 * blocks - 1 - r->blocks_seen : r->blocks_seen);
	r->blocks_seen++;
	return BETON_OK;
}

static int on_end(void *context, int block, bool backward, dtrain_stream *stream, beton_error *err)
{
	record *r = context;
	(void)block;
	(void)backward;
	(void)stream;
	(void)err;
	assert_int_equal(--r->blocks_open, 0);
	return BETON_OK;
}

static void hooks_come_in_order(void **state)
{
	(void)state;
	for (int m = 0; m < 2; m++) {
		net n;
		net_open(&n, "auto", DTRAIN_F32, m ? "resnet20" : "mlp", 2, 8, 3);
		record r = {.n = &n, .last_offset = -1};
		dtrain_program_hooks hooks = {&r, on_forward, on_ready, on_begin, on_end};
		beton_error err = {0};
		expect_ok(dtrain_program_run(n.program, n.stream, &hooks, &err), &err);
		assert_int_equal(r.forward_done, 1);
		assert_int_equal(r.reported, dtrain_params_count(n.params));
		assert_int_equal(r.blocks_seen, 2 * dtrain_params_block_count(n.params));
		r = (record){.n = &n, .last_offset = -1, .fail_at = 3};
		assert_int_equal(dtrain_program_run(n.program, n.stream, &hooks, &err), BETON_CANCELLED);
		assert_int_equal(r.reported, 3);
		assert_string_equal(err.message, "enough");
		net_close(&n);
	}
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
	expect_ok(dtrain_program_run(program, n.stream, NULL, &err), &err);
	float before = *(float *)dtrain_program_data(program, logits);
	net_run(&n); /* moves the running statistics */
	expect_ok(dtrain_program_run(program, n.stream, NULL, &err), &err);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices_by_name),
		cmocka_unit_test(models_have_torchvisions_parameters),
		cmocka_unit_test(initial_values_depend_on_seed_and_name_alone),
		cmocka_unit_test(plans_never_overlap),
		cmocka_unit_test(programs_never_overwrite_what_is_read_later),
		cmocka_unit_test(hooks_come_in_order),
		cmocka_unit_test(builders_remember_the_first_error),
		cmocka_unit_test(evaluation_shares_the_parameters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
