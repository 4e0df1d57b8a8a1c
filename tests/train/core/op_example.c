/* SPDX-License-Identifier: Apache-2.0
 *
 * An example of an op's rules: a graph of the op and of what backward appends to it is made, whose nodes are then run
 * one by one. So a new op needs nothing here.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph.h"
#include "op_run.h"

struct example {
	dtrain_params *params;
	dtrain_graph *graph;
	int op;             /* the node of the example; the copies that it reads come before it */
	int copy, in_place; /* of an input, which an op runs in place on, and its index; -1 */
};

static const dtrain_shape *shape_of(const op_case *c, char letter)
{
	static const dtrain_shape scaler = {1, {DTRAIN_SCALERS}}, scalar = {0};
	const dtrain__op_rules *rules = dtrain__op_rules_of(c->kind);
	const char *lists[] = {rules->inputs, rules->optional_inputs, rules->outputs, rules->optional_outputs};
	char seen[128] = {0};
	int index = 0;
	if (letter == 'A' || letter == 'S')
		return letter == 'A' ? &scaler : &scalar;
	for (int i = 0; i < 4; i++)
		for (const char *l = lists[i]; l && *l; l++) {
			if (seen[(int)*l])
				continue;
			if (*l == letter)
				return &c->example->shapes[index];
			seen[(int)*l] = 1;
			index += *l != 'A' && *l != 'S';
		}
	fail_msg("%s: no operand '%c'", c->name, letter);
	return NULL;
}

/* ---- the graph ---- */

static dtrain_tensor declare_input(dtrain_graph *graph, const op_case *c, int index)
{
	char letter = dtrain__op_input_letter(c->kind, index), name[2] = {(char)('0' + index), 0};
	const dtrain_shape *shape = shape_of(c, letter);
	bool activation = letter && strchr("XYKL", letter);
	if (letter == 'A')
		return dtrain__graph_activation(graph, DTRAIN_F32, shape);
	if (!activation && dtrain__op_rules_of(c->kind)->updates >> index & 1)
		return dtrain__graph_buffer(graph, "b", name, shape, DTRAIN_INIT_ZERO);
	if (letter && strchr("leqrg", letter))
		return dtrain_graph_input(graph, name, dtrain__op_letter_type(letter, graph->dtype), shape);
	if (!activation)
		return dtrain__graph_param(graph, "p", name, shape, DTRAIN_INIT_ZERO, 0);
	dtrain_tensor x = dtrain_graph_input(graph, name, graph->dtype, shape);
	dtrain_graph_require_grad(graph, x);
	return x;
}

/* The rounded copy of a weight; run_op knows such a node by its lack of segments. */
static dtrain_tensor cast(dtrain_graph *graph, dtrain_tensor w)
{
	dtrain_shape shape = *dtrain_graph_shape(graph, w);
	dtrain__node node = {.kind = DTRAIN_OP_CAST, .num_inputs = 1, .num_outputs = 1, .inputs = {w}};
	node.outputs[0] = dtrain__graph_activation(graph, graph->dtype, &shape);
	dtrain_tensor copy = dtrain__graph_node(graph, &node);
	if (copy >= 0)
		graph->tensors[copy].original = w;
	return copy;
}

static void make_graph(setting *s)
{
	beton_error err = {0};
	const op_case *c = s->c;
	const dtrain__op_rules *rules = dtrain__op_rules_of(c->kind);
	dtrain_dtype real = s->dtype == DTRAIN_F64 ? DTRAIN_F64 : DTRAIN_F32;
	struct example *e = s->example;
	assert_int_equal(dtrain_params_create(s->device, real, &e->params, &err), BETON_OK);
	assert_int_equal(dtrain_graph_create(e->params, true, &e->graph, &err), BETON_OK);
	dtrain_graph_set_dtype(e->graph, s->dtype);
	dtrain__node node = {.kind = c->kind,
			     .attrs = c->example->attrs,
			     .num_inputs = (int)strlen(rules->inputs) + c->example->optional_inputs,
			     .num_outputs = (int)strlen(rules->outputs) + c->example->optional_outputs};
	for (int i = 0; i < node.num_inputs; i++)
		node.inputs[i] = declare_input(e->graph, c, i);
	for (int i = 0; i < node.num_inputs && c->copies; i++)
		if (dtrain__op_input_letter(c->kind, i) == 'W')
			node.inputs[i] = cast(e->graph, node.inputs[i]);
	e->op = e->graph->num_nodes;
	for (int i = 0; i < node.num_outputs; i++) {
		char letter = dtrain__op_output_letter(c->kind, i);
		node.outputs[i] = dtrain__graph_activation(e->graph, dtrain__op_letter_type(letter, s->dtype),
							   shape_of(c, letter));
	}
	s->output = dtrain__graph_node(e->graph, &node);
	if (dtrain__op_is_differentiable(c->kind)) {
		const char letter = dtrain__op_output_letter(c->kind, 0);
		const dtrain_shape y = *shape_of(c, letter);
		s->output_gradient = dtrain_graph_input(e->graph, "d_y", dtrain__op_letter_type(letter, s->dtype), &y);
		dtrain_graph_backward_from(e->graph, 1, &s->output, &s->output_gradient);
	}
	if (dtrain__graph_failed(e->graph))
		fail_msg("%s: %s", c->name, e->graph->error.message);
}

/* ---- the tensors ---- */

static tensor_kind kind_of(char letter, dtrain__role role)
{
	switch (letter) {
	case 'X':
	case 'Y':
	case 'K':
	case 'L':
		return ACTIVATION;
	case 'l':
	case 'e':
	case 'q':
	case 'r':
		return LABELS;
	case 'g':
		return SEGMENTS;
	case 'm':
	case 'i':
		return PRIVATE;
	case 'A':
		return SCALARS;
	default:
		return letter == 'W' && role == DTRAIN__PARAM ? WEIGHT : PARAMETER;
	}
}

static tensor_kind kind_of_tensor(const dtrain_graph *graph, dtrain_tensor t)
{
	for (int32_t n = 0; n < graph->num_nodes; n++) {
		const dtrain__node *node = &graph->nodes[n];
		for (int i = 0; i < node->num_inputs; i++)
			if (node->inputs[i] == t && node->kind == DTRAIN_OP_CAST)
				return WEIGHT;
			else if (node->inputs[i] == t)
				return kind_of(dtrain__op_input_letter(node->kind, i), graph->tensors[t].role);
		for (int i = 0; i < node->num_outputs; i++)
			if (node->outputs[i] == t)
				return kind_of(dtrain__op_output_letter(node->kind, i), graph->tensors[t].role);
	}
	return ACTIVATION; /* d_y, where the op's gradient is d_y itself */
}

/* Numbers that differ within a picture in any type. */
static void make_distinct(const tensor *t)
{
	int64_t plane = t->shape.dim[2] * t->shape.dim[3];
	assert_true(plane <= 128);
	for (int64_t i = 0; i < dtrain_shape_count(&t->shape); i++)
		t->values[i] = (double)((i % plane * 37 + i / plane * 11) % 128 - 64) / 64;
}

/* The gradients of a loss are the gradients of the mean over the rows that count, times the scaler's scale. The scaler
 * is the last input, and labels that may be ignored come before it. */
static void weigh_losses(setting *s, const dtrain__node *op, int gradients)
{
	int required = (int)strlen(dtrain__op_rules_of(op->kind)->inputs);
	bool labelled = dtrain__op_input_letter(op->kind, required - 1) == 'l';
	const double *label = labelled ? s->tensors[op->inputs[required - 1]].values : NULL;
	const dtrain_shape rows = s->tensors[s->output].shape;
	double scale = 1;
	int64_t counted = 0;
	if (s->c->example->optional_inputs)
		scale = s->tensors[op->inputs[required]].values[DTRAIN_SCALER_SCALE] = 8;
	for (int64_t i = 0; i < rows.dim[0]; i++)
		counted += !label || (int64_t)label[i] != op->attrs.loss.ignored;
	s->output_gradient = add_tensor(s, "d_y", PARAMETER, rows, false);
	for (int64_t i = 0; i < rows.dim[0] && counted; i++)
		s->tensors[s->output_gradient].values[i] = scale / (double)counted;
	for (int i = 0; i < gradients; i++)
		s->tensors[i].gradient = op->outputs[1 + i];
}

static void declare_tensors(setting *s)
{
	const dtrain_graph *graph = s->example->graph;
	const dtrain__op_rules *rules = dtrain__op_rules_of(s->c->kind);
	const dtrain__node *op = &graph->nodes[s->example->op];
	for (int32_t i = 0; i < graph->num_tensors; i++) {
		const dtrain__tensor *t = &graph->tensors[i];
		tensor_kind kind = kind_of_tensor(graph, i);
		dtrain__op_range range = {-1, 1};
		const dtrain__op_range *ranges = s->c->example->ranges ? s->c->example->ranges : rules->ranges;
		if (i < op->num_inputs && ranges)
			range = ranges[i];
		if (i < op->num_inputs || i == s->output_gradient)
			input(s, "operand", kind, t->shape, range.least, range.most);
		else
			add_tensor(s, t->role == DTRAIN__GRAD ? "gradient" : "tensor", kind, t->shape, false);
		bool given = t->role == DTRAIN__GRAD || t->keep || (t->producer == s->example->op && kind != PRIVATE);
		s->tensors[i].result =
			(given && t->role != DTRAIN__INPUT) || (i < op->num_inputs && rules->updates >> i & 1);
	}
	for (int i = 0; i < op->num_inputs; i++)
		s->tensors[i].gradient = graph->tensors[i].grad;
	if (rules->loss_gradients)
		weigh_losses(s, op, rules->loss_gradients);
	for (int i = 0; i < rules->num_edges && i < dtrain_shape_count(&s->tensors[0].shape); i++)
		s->tensors[0].values[i] = rules->edges[i];
	if (rules->distinct)
		make_distinct(&s->tensors[0]);
	int in_place = rules->in_place ? __builtin_ctz(rules->in_place) : -1;
	if (in_place >= 0 && in_place < op->num_inputs) {
		s->example->in_place = in_place;
		s->example->copy = s->count;
		input(s, "in place", s->tensors[in_place].kind, s->tensors[in_place].shape, -1, 1);
		s->tensors[s->example->copy].result = true;
	}
}

/* A product that is about zero may be on either side of it, so that its gradient is left out. */
static void leave_out_kinks(setting *s)
{
	const double *x = s->tensors[0].values, *w = s->tensors[1].values;
	const double *b = s->c->example->optional_inputs ? s->tensors[2].values : NULL;
	int64_t columns = s->tensors[1].shape.dim[1], out = s->tensors[1].shape.dim[0];
	for (int64_t i = 0; i < dtrain_shape_count(&s->tensors[s->output].shape); i++) {
		double sum = b ? b[i % out] : 0;
		for (int64_t k = 0; k < columns; k++)
			sum += x[i / out * columns + k] * w[i % out * columns + k];
		if (fabs(sum) < 0.1)
			s->tensors[s->output_gradient].values[i] = 0;
	}
}

int run_example(setting *s, beton_error *err)
{
	if (!s->count) {
		s->example = calloc(1, sizeof(*s->example));
		assert_non_null(s->example);
		s->example->copy = -1;
		s->output_gradient = -1;
		make_graph(s);
		declare_tensors(s);
		if (s->c->kind == DTRAIN_OP_LINEAR && s->c->example->attrs.relu)
			leave_out_kinks(s);
	}
	const dtrain_graph *graph = s->example->graph;
	int status = BETON_OK;
	for (int32_t i = 0; i < graph->num_nodes && status == BETON_OK; i++) {
		const dtrain__node *node = &graph->nodes[i];
		int inputs[DTRAIN_OP_MAX_OPERANDS + 1], outputs[DTRAIN_OP_MAX_OPERANDS + 1];
		memcpy(inputs, node->inputs, sizeof(node->inputs));
		memcpy(outputs, node->outputs, sizeof(node->outputs));
		inputs[node->num_inputs] = outputs[node->num_outputs] = -1;
		status = run_op(s, node->kind, &node->attrs, inputs, outputs, err);
		if (status != BETON_OK || i != s->example->op || s->example->copy < 0)
			continue;
		inputs[s->example->in_place] = outputs[0] = s->example->copy;
		status = run_op(s, node->kind, &node->attrs, inputs, outputs, err);
	}
	return status;
}

void close_example(setting *s)
{
	if (!s->example)
		return;
	dtrain_graph_destroy(&s->example->graph);
	dtrain_params_destroy(&s->example->params);
	free(s->example);
}
