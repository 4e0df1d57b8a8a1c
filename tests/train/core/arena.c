/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a program's tensors lie: nothing is overwritten that is read later, and sums are made where their parts are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/op.h"
#include "core/plan.h"
#include "core/program.h"
#include "tests/train/support/net.h"

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
			spans[i] = (dtrain__span){.home = i,
						  .bytes = (size_t)(rand() % 5 ? rand() % 5000 : 0),
						  .first = first,
						  .last = first + rand() % 20};
			largest = spans[i].bytes > largest ? spans[i].bytes : largest;
		}
		assert_int_equal(dtrain__plan(spans, count, false, 64, &total, NULL), BETON_OK);
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

/* A device whose convolutions add to a gradient. */
static const dtrain_device_api *inner;

static void adding_caps(const dtrain_device *device, dtrain_device_caps *out)
{
	inner->caps(device, out);
	out->conv_bwd_add = true;
}

static dtrain_device *open_device(const char *name, dtrain_device_api *adding)
{
	dtrain_device *device;
	beton_error err = {0};
	expect_ok(dtrain_device_open(name, NULL, &device, &err), &err);
	if (!adding)
		return device;
	inner = dtrain_device_get_api(device);
	*adding = *inner;
	adding->caps = adding_caps;
	/* Every device begins with its table. */
	memcpy(device, &(const dtrain_device_api *){adding}, sizeof(adding));
	return device;
}

/* Layers with additions between distant tensors. */
static dtrain_program *make_random_program(dtrain_params *params)
{
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_program *program;
	expect_ok(dtrain_graph_create(params, true, &graph, &err), &err);
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){2, 3, 8, 8}), label = dtrain_shape_of(1, image.dim);
	dtrain_tensor chain[12];
	chain[0] = dtrain_conv2d(graph, "stem", dtrain_graph_input(graph, "x", DTRAIN_F32, &image), 16, 3, 1, 1);
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
	dtrain_graph_backward(graph, dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, logits, labels, 0)));
	expect_ok(dtrain_graph_compile(&graph, &program, &err), &err);
	return program;
}

static const char *address_of(const dtrain_program *program, int32_t tensor)
{
	return dtrain__address(program->first, program->places[tensor]);
}

/* Whether a node writes over its input r. */
static bool is_in_place(const dtrain_program *program, const dtrain__node *node, int r)
{
	return dtrain__op_rules_of(node->kind)->in_place >> r & 1 &&
	       address_of(program, node->inputs[r]) == address_of(program, node->outputs[0]);
}

/* Whether a node adds to what is in its output's memory. */
static bool adds_in_place(const dtrain_program *program, const dtrain__node *node)
{
	return node->kind == DTRAIN_OP_CONV2D_BWD_DATA && node->num_inputs > 2 && is_in_place(program, node, 2);
}

/* While a node runs, nothing that it or a later node reads shares memory with what it writes. */
static void check_writes(const dtrain_program *program, int32_t i)
{
	const dtrain_graph *g = program->graph;
	for (int o = 0; o < g->nodes[i].num_outputs; o++) {
		int32_t written = g->nodes[i].outputs[o];
		const char *at = address_of(program, written);
		for (int32_t k = i; k < g->num_nodes; k++)
			for (int r = 0; r < g->nodes[k].num_inputs; r++) {
				int32_t read = g->nodes[k].inputs[r];
				const char *other = address_of(program, read);
				if (read == written || g->tensors[read].producer > i ||
				    (k == i && is_in_place(program, &g->nodes[i], r)))
					continue;
				assert_true(at + program->operands[written].bytes <= other ||
					    other + program->operands[read].bytes <= at);
			}
	}
}

static void programs_never_overwrite_what_is_read_later(void **state)
{
	(void)state;
	int added = 0, in_place = 0;
	for (unsigned seed = 0; seed < 120; seed++) {
		dtrain_device_api table;
		dtrain_device *device = seed < 20 ? open_device("auto", NULL) : open_device("ref", &table);
		dtrain_params *params;
		beton_error err = {0};
		srand(seed);
		expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &err), &err);
		dtrain_program *program = make_random_program(params);
		const dtrain_graph *g = program->graph;
		for (int32_t i = 0; i < g->num_nodes; i++) {
			check_writes(program, i);
			added += g->nodes[i].kind == DTRAIN_OP_CONV2D_BWD_DATA && g->nodes[i].num_inputs > 2;
			in_place += adds_in_place(program, &g->nodes[i]);
		}
		dtrain_program_info facts = {.struct_size = sizeof(facts)};
		dtrain_program_get_info(program, &facts);
		assert_true(facts.arena_bytes <= facts.unshared_bytes + 64 * (size_t)g->num_tensors);
		dtrain_program_destroy(&program);
		dtrain_params_destroy(&params);
		dtrain_device_close(&device);
	}
	/* Not where another gradient needs it still. */
	assert_true(in_place > 5 && in_place < added);
}

/* Every block's input has its gradient from two ways. */
static void residual_blocks_add_in_place(void **state)
{
	(void)state;
	static const struct {
		const char *model;
		int blocks;
	} cases[] = {{"resnet20", 9}, {"resnet18", 8}, {"resnet50", 16}};
	for (size_t m = 0; m < sizeof(cases) / sizeof(cases[0]); m++) {
		dtrain_device_api table;
		dtrain_device *device = open_device("ref", &table);
		dtrain_params *params;
		dtrain_graph *graph;
		dtrain_program *program;
		beton_error err = {0};
		int in_place = 0;
		expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &err), &err);
		expect_ok(dtrain_graph_create(params, true, &graph, &err), &err);
		dtrain_shape image = dtrain_shape_of(4, (int64_t[]){2, 3, 32, 32}),
			     label = dtrain_shape_of(1, image.dim);
		dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F32, &image);
		dtrain_tensor logits = dtrain_model_build(graph, cases[m].model, x, 4);
		dtrain_tensor labels = dtrain_graph_input(graph, "y", DTRAIN_I64, &label);
		dtrain_graph_backward(graph,
				      dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, logits, labels, 0)));
		expect_ok(dtrain_graph_compile(&graph, &program, &err), &err);
		for (int32_t i = 0; i < program->graph->num_nodes; i++) {
			assert_int_not_equal(program->graph->nodes[i].kind, DTRAIN_OP_ADD);
			in_place += adds_in_place(program, &program->graph->nodes[i]);
		}
		assert_int_equal(in_place, cases[m].blocks);
		dtrain_program_destroy(&program);
		dtrain_params_destroy(&params);
		dtrain_device_close(&device);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans_never_overlap),
		cmocka_unit_test(programs_never_overwrite_what_is_read_later),
		cmocka_unit_test(residual_blocks_add_in_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
