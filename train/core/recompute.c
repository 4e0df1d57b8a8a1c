/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation checkpointing: forward nodes are repeated before the backward nodes that read what they computed, so
 * that it need not stay in memory in between. The plan of the memory follows from the new list of nodes.
 */
#include <stdlib.h>

#include "op.h"
#include "program.h"
#include "shape.h"

/* For SELECTIVE: the bytes that a repeated op may move for each byte that it saves. Elementwise ops and norms move two
 * to four. */
#define MOST_TRAFFIC 4

/* The part of a forward node that is computed again where backward reads it. */
typedef enum repetition {
	NOTHING,
	ALL,        /* the node */
	ACTIVATION, /* output 0 of a layer with an activation, from output 1 */
} repetition;

typedef struct recompute_pass {
	dtrain_graph *graph;
	int32_t forward;      /* number of forward nodes */
	int32_t tensors;      /* number of tensors before the pass */
	int32_t last_block;   /* whose backward follows its forward at once; INT32_MAX: no block's does */
	bool *stays;          /* for each tensor: it is in memory anyway */
	bool *read;           /* for each tensor: some backward node reads it */
	repetition *of;       /* for each forward node */
	dtrain_tensor *again; /* for each tensor: what replaces it in backward; -1: nothing yet */
	dtrain__node *nodes;  /* the new list */
	int32_t count;
} recompute_pass;

/* The one collective that is repeated, because its input, a part of its result, is kept; and the op that puts gathered
 * rows in order. */
static bool gathers_rows(const dtrain__node *node)
{
	bool orders = node->kind == DTRAIN_OP_JOIN_CHUNKS;
	return orders || (node->kind == DTRAIN_OP_ALL_GATHER && node->attrs.collective.differ);
}

static bool may_repeat(const dtrain_graph *graph, const dtrain__node *node)
{
	const dtrain__op_rules *rules = dtrain__op_rules_of(node->kind);
	bool inside = true;
	for (int i = 0; i < node->num_outputs; i++)
		inside = inside && graph->tensors[node->outputs[i]].role == DTRAIN__ACTIVATION;
	return inside && (!rules->collective || gathers_rows(node)) && (!rules->updates || rules->repeat);
}

static bool may_repeat_producer(const dtrain_graph *graph, int32_t node)
{
	return !dtrain__op_rules_of(graph->nodes[node].kind)->collective || gathers_rows(&graph->nodes[node]);
}

/* Notes the tensors that backward reads, and the tensors that stay in memory anyway: inputs, parameters, kept tensors,
 * tensors of one block that another block reads, and tensors that other ranks share. */
static void look_at_tensors(recompute_pass *pass)
{
	const dtrain_graph *graph = pass->graph;
	for (int32_t i = 0; i < pass->tensors; i++) {
		const dtrain__tensor *tensor = &graph->tensors[i];
		pass->again[i] = -1;
		pass->stays[i] = tensor->role != DTRAIN__ACTIVATION || tensor->keep || tensor->producer < 0 ||
				 tensor->producer >= pass->forward || !may_repeat_producer(graph, tensor->producer);
	}
	for (int32_t i = 0; i < graph->num_nodes; i++)
		for (int k = 0; k < graph->nodes[i].num_inputs; k++) {
			dtrain_tensor root = dtrain__graph_root(graph, graph->nodes[i].inputs[k]);
			int32_t producer = graph->tensors[root].producer;
			if (i >= pass->forward)
				pass->read[root] = true;
			else if (producer >= 0 && graph->nodes[producer].block != graph->nodes[i].block)
				pass->stays[root] = true;
		}
}

/* Whether backward computes the root tensor again. */
static bool is_dropped(const recompute_pass *pass, dtrain_tensor root)
{
	if (root >= pass->tensors || pass->stays[root])
		return false;
	int32_t producer = pass->graph->tensors[root].producer;
	repetition of = pass->of[producer];
	return of == ALL || (of == ACTIVATION && pass->graph->nodes[producer].outputs[0] == root);
}

/* Gathered rows are gathered again, so that a rank keeps its part alone. A stage's last block waits for the next stage
 * before its backward. */
static bool chooses_gather(const recompute_pass *pass, const dtrain__node *node)
{
	return gathers_rows(node) && (node->block < pass->last_block || pass->graph->interleaves);
}

static void choose_gathers(recompute_pass *pass)
{
	for (int32_t i = 0; i < pass->forward; i++)
		if (chooses_gather(pass, &pass->graph->nodes[i]))
			pass->of[i] = ALL;
}

static void choose_blocks(recompute_pass *pass, int64_t blocks)
{
	for (int32_t i = 0; i < pass->forward; i++) {
		const dtrain__node *node = &pass->graph->nodes[i];
		if (node->block < pass->last_block && node->block <= blocks && may_repeat(pass->graph, node))
			pass->of[i] = ALL;
	}
}

/* ---- SELECTIVE ---- */

static size_t bytes_of(const dtrain_graph *graph, dtrain_tensor tensor)
{
	return (size_t)dtrain_shape_count(&graph->tensors[tensor].shape) *
	       dtrain_dtype_size(graph->tensors[tensor].dtype);
}

/* Whether all inputs are in memory in backward without this node, or are computed again themselves. */
static bool has_inputs(const recompute_pass *pass, const dtrain__node *node)
{
	for (int k = 0; k < node->num_inputs; k++) {
		dtrain_tensor root = dtrain__graph_root(pass->graph, node->inputs[k]);
		if (!pass->stays[root] && !pass->read[root] && !is_dropped(pass, root))
			return false;
	}
	return true;
}

static bool has_activation(const dtrain__node *node)
{
	return node->kind == DTRAIN_OP_LINEAR && node->attrs.linear.activation != DTRAIN_ACTIVATION_NONE &&
	       node->num_outputs > 1;
}

/* Bytes that need not be kept because of the node: outputs that backward, or a node that is repeated, reads. */
static double saved_bytes(const recompute_pass *pass, int32_t index, const bool *wanted)
{
	const dtrain__node *node = &pass->graph->nodes[index];
	double bytes = 0;
	for (int i = 0; i < node->num_outputs; i++) {
		dtrain_tensor output = node->outputs[i];
		if (!pass->stays[output] && (pass->read[output] || wanted[output]))
			bytes += (double)bytes_of(pass->graph, output);
	}
	return bytes;
}

/* First forward: ops without products whose inputs backward has anyway, so that no other tensor must stay for them.
 * Then from the end: the ops that save enough. */
static void choose_cheap(recompute_pass *pass, bool *wanted)
{
	dtrain_graph *graph = pass->graph;
	for (int32_t i = 0; i < pass->forward; i++) {
		const dtrain__node *node = &graph->nodes[i];
		if (node->block >= pass->last_block || gathers_rows(node))
			continue;
		if (has_activation(node) && pass->read[node->outputs[1]]) {
			pass->of[i] = ACTIVATION;
			graph->nodes[i].attrs.linear.exact = true;
		} else if (may_repeat(graph, node) && !dtrain__op_rules_of(node->kind)->flops &&
			   has_inputs(pass, node)) {
			pass->of[i] = ALL;
		}
	}
	for (int32_t i = pass->forward - 1; i >= 0; i--) {
		const dtrain__node *node = &graph->nodes[i];
		if (pass->of[i] != ALL)
			continue;
		if (!gathers_rows(node) &&
		    dtrain__node_cost(graph, node).bytes > MOST_TRAFFIC * saved_bytes(pass, i, wanted))
			pass->of[i] = NOTHING;
		for (int k = 0; k < node->num_inputs && pass->of[i] == ALL; k++)
			wanted[dtrain__graph_root(graph, node->inputs[k])] = true;
	}
}

/* ---- the new list ---- */

static dtrain_tensor renew(recompute_pass *pass, dtrain_tensor tensor);

/* A layer's activation as an op of its own, which gives the same bits. */
static dtrain__node activation_of(const dtrain__node *linear)
{
	dtrain_activation activation = linear->attrs.linear.activation;
	bool silu = activation == DTRAIN_ACTIVATION_SILU;
	dtrain__node node = {.kind = silu ? DTRAIN_OP_SILU : DTRAIN_OP_GELU,
			     .num_inputs = 1,
			     .num_outputs = 1,
			     .inputs = {linear->outputs[1]},
			     .outputs = {linear->outputs[0]},
			     .block = linear->block};
	if (!silu)
		node.attrs.gelu.tanh = activation == DTRAIN_ACTIVATION_GELU_TANH;
	return node;
}

static void repeat(recompute_pass *pass, int32_t index)
{
	dtrain_graph *graph = pass->graph;
	dtrain__node node = graph->nodes[index];
	const dtrain__op_rules *rules = dtrain__op_rules_of(node.kind);
	if (pass->of[index] == ACTIVATION)
		node = activation_of(&graph->nodes[index]);
	else if (rules->repeat)
		rules->repeat(&node.attrs);
	for (int i = 0; i < node.num_inputs; i++)
		node.inputs[i] = renew(pass, node.inputs[i]);
	for (int i = 0; i < node.num_outputs; i++) {
		const dtrain__tensor first = graph->tensors[node.outputs[i]]; /* the list moves when it grows */
		dtrain_tensor output = dtrain__graph_activation(graph, first.dtype, &first.shape);
		if (output < 0)
			return;
		/* The same layout gives the same bits. */
		graph->tensors[output].plain = first.plain || first.keep;
		pass->again[node.outputs[i]] = output;
		node.outputs[i] = output;
	}
	node.is_backward = node.is_repeated = true;
	pass->nodes[pass->count++] = node;
}

/* The tensor that backward reads in its place. */
static dtrain_tensor renew(recompute_pass *pass, dtrain_tensor tensor)
{
	dtrain_graph *graph = pass->graph;
	if (tensor >= pass->tensors || !is_dropped(pass, dtrain__graph_root(graph, tensor)))
		return tensor;
	if (pass->again[tensor] < 0 && graph->tensors[tensor].parent >= 0) {
		dtrain_tensor parent = renew(pass, graph->tensors[tensor].parent);
		const dtrain__tensor view = graph->tensors[tensor];
		pass->again[tensor] = dtrain__graph_view(graph, parent, &view.shape, view.offset);
	} else if (pass->again[tensor] < 0) {
		repeat(pass, graph->tensors[tensor].producer);
	}
	return pass->again[tensor];
}

/* Repeats each node as late as possible: before the first backward node that reads its results. */
static void rewrite(recompute_pass *pass)
{
	dtrain_graph *graph = pass->graph;
	for (int32_t i = 0; i < graph->num_nodes && !dtrain__graph_failed(graph); i++) {
		dtrain__node node = graph->nodes[i];
		for (int k = 0; k < node.num_inputs && i >= pass->forward; k++)
			node.inputs[k] = renew(pass, node.inputs[k]);
		pass->nodes[pass->count++] = node;
	}
	if (dtrain__graph_failed(graph))
		return;
	free(graph->nodes);
	graph->nodes = pass->nodes;
	graph->num_nodes = graph->node_capacity = pass->count;
	pass->nodes = NULL;
	for (int32_t i = 0; i < graph->num_nodes; i++)
		for (int k = 0; k < graph->nodes[i].num_outputs; k++)
			graph->tensors[graph->nodes[i].outputs[k]].producer = i;
}

static bool has_gathers(const dtrain_graph *graph)
{
	bool has = false;
	for (int32_t i = 0; i < graph->num_nodes && graph->has_backward; i++)
		has = has || gathers_rows(&graph->nodes[i]);
	return has;
}

/* With several micro-batches in flight, other ones come between forward and backward of a stage before the last. */
static int32_t find_last_block(const dtrain_graph *graph, int32_t forward)
{
	return graph->continues && graph->shares_scratch ? INT32_MAX : graph->nodes[forward - 1].block;
}

void dtrain_graph_recompute(dtrain_graph *graph, dtrain_recompute what, int64_t blocks)
{
	if (!graph)
		return;
	int32_t forward = dtrain__graph_forward_nodes(graph);
	if (dtrain__graph_failed(graph) || (what == DTRAIN_RECOMPUTE_NONE && !has_gathers(graph)))
		return;
	if (!graph->has_backward || graph->has_repeated || forward == 0) {
		dtrain__graph_fail(graph, BETON_STATE, "recompute: %s",
				   graph->has_repeated ? "called twice" : "the graph has no backward");
		return;
	}
	graph->has_repeated = true;
	size_t tensors = (size_t)graph->num_tensors;
	recompute_pass pass = {.graph = graph,
			       .forward = forward,
			       .tensors = graph->num_tensors,
			       .last_block = find_last_block(graph, forward),
			       .stays = calloc(3 * tensors, sizeof(bool)),
			       .of = calloc((size_t)forward, sizeof(repetition)),
			       .again = calloc(tensors, sizeof(dtrain_tensor)),
			       .nodes = calloc((size_t)(graph->num_nodes + forward), sizeof(dtrain__node))};
	pass.read = pass.stays + tensors;
	if (pass.stays && pass.of && pass.again && pass.nodes) {
		look_at_tensors(&pass);
		choose_gathers(&pass);
		if (what == DTRAIN_RECOMPUTE_SELECTIVE)
			choose_cheap(&pass, pass.read + tensors);
		else if (what != DTRAIN_RECOMPUTE_NONE)
			choose_blocks(&pass, blocks);
		rewrite(&pass);
	} else {
		dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for %d nodes", graph->num_nodes);
	}
	free(pass.stays);
	free(pass.of);
	free(pass.again);
	free(pass.nodes);
}
