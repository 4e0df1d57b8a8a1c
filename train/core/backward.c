/* SPDX-License-Identifier: Apache-2.0
 *
 * Reverse-mode differentiation of the node list.
 */
#include <stdlib.h>

#include "gradients/gradients.h"
#include "graph.h"
#include "op.h"
#include "params.h"
#include "shape.h"

static dtrain__gradient *const gradients[DTRAIN_OP_KIND_COUNT] = {
#define DTRAIN_OP(NAME, name)
#define DTRAIN_DIFFERENTIABLE_OP(NAME, name) [DTRAIN_OP_##NAME] = dtrain__##name##_gradient,
#include <dtrain/ops.def>
};

void dtrain_graph_require_grad(dtrain_graph *graph, dtrain_tensor tensor)
{
	if (!graph)
		return;
	if (!dtrain__graph_tensor(graph, tensor))
		return;
	if (graph->has_backward)
		dtrain__graph_fail(graph, BETON_STATE, "graph: a gradient is asked for after backward");
	graph->tensors[tensor].want_grad = true;
}

dtrain_tensor dtrain_graph_grad(const dtrain_graph *graph, dtrain_tensor tensor)
{
	if (!graph)
		return -1;
	return tensor >= 0 && tensor < graph->num_tensors ? graph->tensors[tensor].grad : -1;
}

bool dtrain__needs_grad(const dtrain_graph *graph, dtrain_tensor tensor)
{
	for (; tensor >= 0; tensor = graph->tensors[tensor].parent)
		if (graph->tensors[tensor].needs_grad)
			return true;
	return false;
}

dtrain_tensor dtrain__param_grad(dtrain_graph *graph, dtrain_tensor param)
{
	/* The gradient of a compute copy belongs to the parameter, in its type. */
	param = dtrain__graph_original(graph, param);
	const dtrain__tensor *tensor = dtrain__graph_tensor(graph, param);
	if (!tensor)
		return -1;
	dtrain_shape shape = tensor->shape;
	dtrain_tensor part = dtrain__graph_activation(graph, tensor->dtype, &shape);
	graph->pending[graph->num_pending].param = param;
	graph->pending[graph->num_pending++].part = part;
	return part;
}

/* Appends a node whose output has its input's type; for parts of a parameter's gradient this is not the graph's. */
static dtrain_tensor append_like(dtrain_graph *graph, dtrain__node *node, const dtrain_shape *shape)
{
	const dtrain__tensor *input = dtrain__graph_tensor(graph, node->inputs[0]);
	dtrain_shape copy = *shape;
	if (!input)
		return -1;
	node->outputs[0] = dtrain__graph_activation(graph, input->dtype, &copy);
	return dtrain__graph_node(graph, node);
}

/* Gradients never change once written, so tensors may share one. */
void dtrain__add_grad(dtrain_graph *graph, dtrain_tensor tensor, dtrain_tensor part)
{
	if (!dtrain__graph_tensor(graph, tensor) || !dtrain__graph_tensor(graph, part))
		return;
	dtrain_tensor before = graph->tensors[tensor].grad;
	if (before < 0) {
		graph->tensors[tensor].grad = part;
		return;
	}
	dtrain__node sum = {.kind = DTRAIN_OP_ADD, .num_inputs = 2, .num_outputs = 1, .inputs = {before, part}};
	/* This call may move the list of tensors, so the gradient is noted afterwards. */
	dtrain_tensor total = append_like(graph, &sum, dtrain_graph_shape(graph, part));
	graph->tensors[tensor].grad = total;
}

dtrain_tensor dtrain__grad_before_relu(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor y = node->outputs[0], d_y = dtrain_graph_grad(graph, y);
	if (!node->attrs.relu)
		return d_y;
	return dtrain__graph_op(graph, DTRAIN_OP_RELU_BWD, NULL, dtrain_graph_shape(graph, y), 2,
				(dtrain_tensor[]){y, d_y});
}

void dtrain__append_grad(dtrain_graph *graph, dtrain_tensor x, dtrain_op_kind kind, const dtrain_op_attrs *attrs,
			 int num_inputs, const dtrain_tensor *inputs)
{
	if (dtrain__needs_grad(graph, x))
		dtrain__add_grad(
			graph, x,
			dtrain__graph_op(graph, kind, attrs, dtrain_graph_shape(graph, x), num_inputs, inputs));
}

void dtrain__replace_grad(dtrain_graph *graph, dtrain_tensor tensor, dtrain_tensor sum)
{
	if (dtrain__graph_tensor(graph, tensor) && dtrain__graph_tensor(graph, sum))
		graph->tensors[tensor].grad = sum;
}

static bool is_trained(const dtrain_graph *graph, const dtrain__tensor *tensor)
{
	return (tensor->role == DTRAIN__PARAM || tensor->role == DTRAIN__COPY) &&
	       !dtrain_params_at(graph->params, tensor->index)->frozen;
}

void dtrain__mark_needed(dtrain_graph *graph)
{
	for (int32_t i = 0; i < graph->num_tensors; i++)
		graph->tensors[i].needs_grad = is_trained(graph, &graph->tensors[i]) || graph->tensors[i].want_grad;
	for (int32_t i = 0; i < graph->num_nodes; i++) {
		const dtrain__node *node = &graph->nodes[i];
		bool needs = false;
		for (int k = 0; k < node->num_inputs; k++)
			needs = needs || dtrain__needs_grad(graph, node->inputs[k]);
		for (int k = 0; k < node->num_outputs && needs; k++)
			graph->tensors[node->outputs[k]].needs_grad = true;
	}
}

static bool begin_backward(dtrain_graph *graph)
{
	if (!graph->training || graph->has_backward) {
		dtrain__graph_fail(graph, BETON_STATE, "backward: %s",
				   graph->training ? "called twice" : "the graph is one for evaluation");
		return false;
	}
	graph->has_backward = graph->in_backward = true;
	dtrain__mark_needed(graph);
	return true;
}

static bool has_grad(const dtrain_graph *graph, const dtrain__node *node)
{
	for (int i = 0; i < node->num_outputs; i++)
		if (graph->tensors[node->outputs[i]].grad >= 0)
			return true;
	return false;
}

/* Adds a view's gradient to its parent's. */
static void fold_view(dtrain_graph *graph, dtrain_tensor view)
{
	const dtrain__tensor *tensor = &graph->tensors[view];
	dtrain_tensor parent = tensor->parent, grad = tensor->grad;
	dtrain_shape shape = tensor->shape, whole = graph->tensors[parent].shape;
	if (tensor->summed_axes)
		grad = dtrain__graph_collective(graph, DTRAIN_OP_ALL_REDUCE, grad, tensor->summed_axes);
	if (dtrain_shape_count(&shape) == dtrain_shape_count(&whole)) {
		dtrain__add_grad(graph, parent, dtrain__graph_view(graph, grad, &whole, 0));
		return;
	}
	dtrain_op_attrs attrs = {.slice = {.places = 1}};
	while (shape.dim[attrs.slice.dim] == whole.dim[attrs.slice.dim])
		attrs.slice.dim++;
	int64_t stride = dtrain_shape_count(&shape) / shape.dim[attrs.slice.dim];
	attrs.slice.begin = tensor->offset / stride;
	dtrain__node pad = {
		.kind = DTRAIN_OP_SLICE_BWD, .attrs = attrs, .num_inputs = 1, .num_outputs = 1, .inputs = {grad}};
	dtrain__add_grad(graph, parent, append_like(graph, &pad, &whole));
}

/* The views that each tensor had before backward, inner views first. -1: no more. */
struct views {
	dtrain_tensor *first, *next;
};

static bool list_views(dtrain_graph *graph, struct views *out)
{
	size_t count = (size_t)graph->num_tensors;
	out->first = malloc(2 * count * sizeof(*out->first));
	if (!out->first) {
		dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for the views of %zu tensors", count);
		return false;
	}
	out->next = out->first + count;
	for (dtrain_tensor i = 0; i < graph->num_tensors; i++) {
		out->first[i] = out->next[i] = -1;
		if (graph->tensors[i].parent < 0)
			continue;
		dtrain_tensor root = dtrain__graph_root(graph, i);
		out->next[i] = out->first[root];
		out->first[root] = i;
	}
	return true;
}

static void fold_views(dtrain_graph *graph, const struct views *views, dtrain_tensor root)
{
	dtrain_tensor i = dtrain__needs_grad(graph, root) ? views->first[root] : -1;
	for (; i >= 0 && !dtrain__graph_failed(graph); i = views->next[i])
		if (graph->tensors[i].grad >= 0)
			fold_view(graph, i);
}

/* The trained parameter nearest to the node: its own, or that of an earlier node. NULL: there is none. */
static const char *find_trained(const dtrain_graph *graph, const dtrain__node *node)
{
	while (node) {
		int32_t before = -1;
		for (int k = 0; k < node->num_inputs; k++) {
			dtrain_tensor root = dtrain__graph_original(graph, dtrain__graph_root(graph, node->inputs[k]));
			const dtrain__tensor *tensor = &graph->tensors[root];
			if (is_trained(graph, tensor))
				return dtrain_params_at(graph->params, tensor->index)->name;
			if (before < 0 && dtrain__needs_grad(graph, node->inputs[k]))
				before = tensor->producer;
		}
		node = before >= 0 ? &graph->nodes[before] : NULL;
	}
	return NULL;
}

/* Statistics that are frozen, of a batch norm whose gradient is needed. */
static void refuse_frozen(dtrain_graph *graph, const dtrain__node *node)
{
	const char *statistics = dtrain_params_buffer_at(graph->params, graph->tensors[node->inputs[3]].index)->name;
	const char *pattern = dtrain__params_pattern_of(graph->params, statistics);
	const char *trained = find_trained(graph, node);
	dtrain__graph_fail(graph, BETON_UNSUPPORTED,
			   "the pattern '%s' freezes the statistics '%s', but '%s', which is in their layer or in "
			   "front of it, is trained: freeze that, too, or leave the statistics out",
			   pattern ? pattern : "", statistics, trained ? trained : "a tensor");
}

static void append_gradients(dtrain_graph *graph, const struct views *views, int32_t index)
{
	dtrain__node node = graph->nodes[index]; /* a copy: the list moves when it grows */
	graph->block = node.block;
	for (int i = 0; i < node.num_outputs; i++)
		fold_views(graph, views, node.outputs[i]);
	if (node.kind == DTRAIN_OP_BATCH_NORM_EVAL && has_grad(graph, &node) &&
	    dtrain__needs_grad(graph, node.outputs[0]))
		refuse_frozen(graph, &node);
	if (!has_grad(graph, &node))
		return;
	if (!gradients[node.kind]) {
		/* The gradient of a compute copy is its parameter's already. */
		bool is_copy = dtrain__graph_original(graph, node.outputs[0]) != node.outputs[0];
		if (dtrain__needs_grad(graph, node.outputs[0]) && !is_copy)
			dtrain__graph_fail(graph, BETON_UNSUPPORTED,
					   "backward: the loss depends on what op %s computes, which has no gradient",
					   dtrain__op_name(node.kind));
		return;
	}
	gradients[node.kind](graph, &node);
	for (int i = 0; i < graph->num_pending; i++)
		if (dtrain__needs_grad(graph, graph->pending[i].param))
			dtrain__add_grad(graph, graph->pending[i].param, graph->pending[i].part);
	graph->num_pending = 0;
}

/* How often each root's memory is of use: to an op, or as a gradient of a parameter or for the caller. NULL: the graph
 * has failed. */
static int32_t *count_uses(dtrain_graph *graph)
{
	int32_t *uses = calloc((size_t)graph->num_tensors, sizeof(*uses));
	if (!uses) {
		dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for %d tensors", graph->num_tensors);
		return NULL;
	}
	for (int32_t i = 0; i < graph->num_nodes; i++)
		for (int k = 0; k < graph->nodes[i].num_inputs; k++)
			uses[dtrain__graph_root(graph, graph->nodes[i].inputs[k])]++;
	for (int32_t i = 0; i < graph->num_tensors; i++) {
		const dtrain__tensor *tensor = &graph->tensors[i];
		if ((tensor->role == DTRAIN__PARAM || tensor->want_grad) && tensor->grad >= 0)
			uses[dtrain__graph_root(graph, tensor->grad)]++;
	}
	return uses;
}

/* Puts the sum of a parameter's gradients into the flat array, where it is reduced as soon as it is complete: so memory
 * that anybody else reads is copied. */
static void place_param_grad(dtrain_graph *graph, const int32_t *uses, dtrain_tensor param)
{
	dtrain_tensor grad = graph->tensors[param].grad, root = dtrain__graph_root(graph, grad);
	const dtrain__tensor *memory = &graph->tensors[root];
	bool larger = dtrain_shape_count(&memory->shape) != dtrain_shape_count(&graph->tensors[param].shape);
	/* Forward of the next micro-batch would write the flat array before this one's backward adds it up. */
	bool early = graph->interleaves && memory->producer >= 0 && !graph->nodes[memory->producer].is_backward;
	/* The parameter is one use. A copy that is made for it reads the memory in its place. */
	if (early || memory->role != DTRAIN__ACTIVATION || larger || uses[root] > 1 || memory->keep) {
		dtrain__node copy = {.kind = DTRAIN_OP_SCALE,
				     .attrs.factor = 1,
				     .num_inputs = 1,
				     .num_outputs = 1,
				     .inputs = {grad}};
		root = grad = append_like(graph, &copy, dtrain_graph_shape(graph, grad));
		if (root < 0)
			return;
	}
	graph->tensors[root].role = DTRAIN__GRAD;
	graph->tensors[root].index = graph->tensors[param].index;
	graph->tensors[param].grad = grad;
}

static void place_param_grads(dtrain_graph *graph, int32_t count)
{
	int32_t *uses = dtrain__graph_failed(graph) ? NULL : count_uses(graph);
	for (int32_t i = 0; i < count && !dtrain__graph_failed(graph); i++)
		if (graph->tensors[i].role == DTRAIN__PARAM && graph->tensors[i].grad >= 0)
			place_param_grad(graph, uses, i);
	free(uses);
}

/* Appends the backward nodes from node `last` down to the first. */
static void append_backward(dtrain_graph *graph, int32_t last)
{
	int32_t block = graph->block, count = graph->num_tensors;
	struct views views;
	if (!list_views(graph, &views))
		return;
	for (int32_t i = last; i >= 0 && !dtrain__graph_failed(graph); i--)
		append_gradients(graph, &views, i);
	for (int32_t i = 0; i < count && !dtrain__graph_failed(graph); i++)
		if (graph->tensors[i].producer < 0 && graph->tensors[i].parent < 0)
			fold_views(graph, &views, i);
	free(views.first);
	place_param_grads(graph, count);
	graph->block = block;
	graph->in_backward = false;
	for (int32_t i = 0; i < graph->num_tensors; i++)
		if (graph->tensors[i].want_grad && graph->tensors[i].grad >= 0)
			dtrain_graph_keep(graph, graph->tensors[i].grad);
}

/* The sum of what the loss is made of: weight[t] times the mean of tensor t's elements, for each t. */
struct terms {
	double *weight;
	dtrain_tensor count; /* of tensors, before backward */
};

/* Reshaped elements have the same mean. */
static void add_term(const dtrain_graph *graph, const struct terms *terms, dtrain_tensor tensor, double weight)
{
	int64_t count = dtrain_shape_count(&graph->tensors[tensor].shape);
	dtrain_tensor parent = graph->tensors[tensor].parent;
	while (parent >= 0 && dtrain_shape_count(&graph->tensors[parent].shape) == count) {
		tensor = parent;
		parent = graph->tensors[tensor].parent;
	}
	terms->weight[tensor] += weight;
}

static dtrain_tensor scaled(dtrain_graph *graph, dtrain_tensor x, double factor)
{
	dtrain__node scale = {
		.kind = DTRAIN_OP_SCALE, .attrs.factor = factor, .num_inputs = 1, .num_outputs = 1, .inputs = {x}};
	return factor == 1 ? x : append_like(graph, &scale, dtrain_graph_shape(graph, x));
}

/* A tensor like x whose elements are all 1 / their number, times the scaler's scale. No op fills memory:
 * it is twice the gradient of a binary cross entropy of zeros with the targets 0, which takes the scaler, as losses do.
 */
static dtrain_tensor gradient_of_mean(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_shape shape = *dtrain_graph_shape(graph, x);
	int64_t count = dtrain_shape_count(&shape);
	dtrain_shape column = dtrain_shape_of(2, (int64_t[]){count, 1}), rows = dtrain_shape_of(1, &count);
	dtrain_tensor zero = scaled(graph, dtrain__graph_view(graph, x, &column, 0), 0);
	dtrain__node node = {.kind = DTRAIN_OP_SIGMOID_XENT, .num_inputs = 2, .num_outputs = 2, .inputs = {zero, zero}};
	dtrain__graph_add_scaler(graph, &node);
	node.outputs[0] = dtrain__graph_activation(graph, graph->dtype, &rows);
	node.outputs[1] = dtrain__graph_activation(graph, graph->dtype, &column);
	dtrain__graph_node(graph, &node);
	return dtrain__graph_view(graph, scaled(graph, node.outputs[1], 2), &shape, 0);
}

/* The tensor is not a sum of others. */
static void start_at(dtrain_graph *graph, dtrain_tensor tensor, double weight)
{
	const dtrain__tensor *source = &graph->tensors[tensor];
	if (!dtrain__needs_grad(graph, tensor))
		return;
	if (source->dtype != graph->dtype) {
		dtrain__graph_fail(
			graph, BETON_UNSUPPORTED,
			"backward: the loss has a tensor in %s that a loss op did not compute; the graph is in %s",
			dtrain_dtype_name(source->dtype), dtrain_dtype_name(graph->dtype));
		return;
	}
	dtrain_tensor grad = gradient_of_mean(graph, tensor);
	if (!dtrain__graph_failed(graph))
		dtrain__add_grad(graph, tensor, scaled(graph, grad, weight));
}

/* A loss op computes the gradient of its mean itself. */
static void start_at_loss(dtrain_graph *graph, const dtrain__node *node, double weight)
{
	for (int i = 0; i < dtrain__op_rules_of(node->kind)->loss_gradients; i++) {
		dtrain_tensor input = dtrain__graph_original(graph, node->inputs[i]);
		if (dtrain__needs_grad(graph, input))
			dtrain__add_grad(graph, input, scaled(graph, node->outputs[1 + i], weight));
	}
}

static void start_at_node(dtrain_graph *graph, const struct terms *terms, int32_t index)
{
	dtrain__node node = graph->nodes[index]; /* a copy: the list moves when it grows */
	double weight = terms->weight[node.outputs[0]];
	bool is_loss = dtrain__op_rules_of(node.kind)->loss_gradients > 0;
	if (weight != 0 && node.kind == DTRAIN_OP_SCALE) {
		add_term(graph, terms, node.inputs[0], weight * node.attrs.factor);
	} else if (weight != 0 && node.kind == DTRAIN_OP_ADD && !node.attrs.relu) {
		add_term(graph, terms, node.inputs[0], weight);
		add_term(graph, terms, node.inputs[1], weight);
	} else if (weight != 0 && node.kind == DTRAIN_OP_MEAN) {
		add_term(graph, terms, node.inputs[0], weight);
	} else if (weight != 0 && is_loss) {
		start_at_loss(graph, &node, weight);
	} else if (weight != 0) {
		start_at(graph, node.outputs[0], weight);
	}
	for (int i = 1; i < node.num_outputs; i++)
		if (terms->weight[node.outputs[i]] != 0)
			start_at(graph, node.outputs[i], terms->weight[node.outputs[i]]);
}

void dtrain_graph_backward(dtrain_graph *graph, dtrain_tensor loss)
{
	if (!graph)
		return;
	const dtrain__tensor *tensor = dtrain__graph_tensor(graph, loss);
	if (tensor && dtrain_shape_count(&tensor->shape) != 1) {
		char text[DTRAIN__SHAPE_TEXT];
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "backward: a loss of the shape %s; needs a scalar",
				   dtrain__shape_text(&tensor->shape, text));
	}
	if (!tensor || dtrain__graph_failed(graph) || !begin_backward(graph))
		return;
	int32_t last = graph->num_nodes - 1;
	struct terms terms = {.weight = calloc((size_t)graph->num_tensors, sizeof(*terms.weight)),
			      .count = graph->num_tensors};
	if (!terms.weight) {
		dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for %d tensors", graph->num_tensors);
		return;
	}
	add_term(graph, &terms, loss, 1);
	for (int32_t i = last; i >= 0 && !dtrain__graph_failed(graph); i--)
		start_at_node(graph, &terms, i);
	for (dtrain_tensor i = 0; i < terms.count && !dtrain__graph_failed(graph); i++)
		if (graph->tensors[i].producer < 0 && terms.weight[i] != 0)
			start_at(graph, i, terms.weight[i]);
	free(terms.weight);
	append_backward(graph, last);
}

void dtrain_graph_backward_from(dtrain_graph *graph, int count, const dtrain_tensor *tensors,
				const dtrain_tensor *grads)
{
	if (!graph)
		return;
	for (int i = 0; i < count; i++) {
		const dtrain__tensor *tensor = dtrain__graph_tensor(graph, tensors[i]);
		const dtrain__tensor *grad = dtrain__graph_tensor(graph, grads[i]);
		if (!tensor || !grad)
			return;
		if (tensor->dtype != grad->dtype || !dtrain__shape_equal(&tensor->shape, &grad->shape)) {
			char text[2][DTRAIN__SHAPE_TEXT];
			dtrain__graph_fail(
				graph, BETON_INVALID_ARGUMENT, "backward: a gradient %s in %s for a tensor %s in %s",
				dtrain__shape_text(&grad->shape, text[0]), dtrain_dtype_name(grad->dtype),
				dtrain__shape_text(&tensor->shape, text[1]), dtrain_dtype_name(tensor->dtype));
			return;
		}
	}
	if (dtrain__graph_failed(graph) || !begin_backward(graph))
		return;
	int32_t last = graph->num_nodes - 1;
	for (int i = 0; i < count; i++)
		dtrain__add_grad(graph, tensors[i], grads[i]);
	append_backward(graph, last);
}
