/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a pipeline's stage, as a part of the whole model's graph.
 */
#include <dtrain/stage.h>

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "gradients/gradients.h"
#include "graph.h"
#include "op.h"
#include "params.h"

struct dtrain_stage {
	dtrain_graph *graph;    /* NULL: the caller has it */
	dtrain_tensor *tensors; /* of each tensor of the whole graph; -1: not here */
	int32_t num_tensors;
	dtrain_crossing *received, *sent;
	int32_t num_received, num_sent;
	bool is_last;
};

/* ---- borders ---- */

/* The operations of a node's products. */
static double cost_of(const dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_op_desc desc = {.kind = node->kind,
			       .attrs = node->attrs,
			       .num_inputs = node->num_inputs,
			       .num_outputs = node->num_outputs};
	for (int i = 0; i < node->num_inputs; i++)
		desc.inputs[i] = (dtrain_operand){.dtype = graph->tensors[node->inputs[i]].dtype,
						  .shape = graph->tensors[node->inputs[i]].shape};
	for (int i = 0; i < node->num_outputs; i++)
		desc.outputs[i] = (dtrain_operand){.dtype = graph->tensors[node->outputs[i]].dtype,
						   .shape = graph->tensors[node->outputs[i]].shape};
	return dtrain__op_cost_of(&desc).flops;
}

int32_t dtrain_stage_costs(const dtrain_graph *whole, double *costs, int32_t capacity)
{
	int32_t blocks = 1;
	if (!whole)
		return 1;
	for (int32_t i = 0; i < whole->num_nodes; i++)
		blocks = whole->nodes[i].block >= blocks ? whole->nodes[i].block + 1 : blocks;
	for (int32_t i = 0; costs && i < blocks && i < capacity; i++)
		costs[i] = 0;
	for (int32_t i = 0; costs && i < whole->num_nodes; i++)
		if (!whole->nodes[i].is_backward && whole->nodes[i].block < capacity)
			costs[whole->nodes[i].block] += cost_of(whole, &whole->nodes[i]);
	return blocks;
}

/* Whether so many stages suffice if none costs more than `most`. first NULL: not wanted. */
static bool fits(const double *costs, int32_t blocks, int32_t stages, double most, int32_t *first)
{
	int32_t stage = 0;
	double sum = 0;
	for (int32_t i = 0; i < blocks; i++) {
		/* Each later stage needs a block. */
		bool must = i > 0 && blocks - i == stages - stage - 1;
		if (i == 0 || must || sum + costs[i] > most) {
			stage += i > 0;
			if (stage == stages)
				return false;
			if (first)
				first[stage] = i;
			sum = 0;
		}
		sum += costs[i];
		if (sum > most)
			return false;
	}
	return true;
}

int dtrain_stage_divide(const double *costs, int32_t blocks, int32_t stages, int32_t *first, beton_error *err)
{
	if (BT_MISSING(err, costs, first))
		return BETON_INVALID_ARGUMENT;
	if (stages < 1 || stages > blocks || stages > DTRAIN_MAX_STAGES)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "pipeline: %d stages of %d blocks; a stage has at least one block, and there are at "
			       "most %d stages",
			       stages, blocks, DTRAIN_MAX_STAGES);
	/* The cost of the most expensive stage is the cost of some range of blocks. */
	double best = -1;
	for (int32_t i = 0; i < blocks; i++) {
		double sum = 0;
		for (int32_t k = i; k < blocks; k++) {
			sum += costs[k];
			if ((best < 0 || sum < best) && fits(costs, blocks, stages, sum, NULL))
				best = sum;
		}
	}
	fits(costs, blocks, stages, best, first);
	return BETON_OK;
}

/* ---- tensors ---- */

/* The stages of a root: -1: none. */
typedef struct usage {
	int32_t producer; /* writes it; -1: no node does */
	int32_t last;     /* the last one that reads it */
	uint64_t stages;  /* all that use it, as bits */
	bool used;        /* here */
} usage;

typedef struct cut {
	const dtrain_graph *whole;
	const int32_t *first;
	int32_t stages, stage;
	dtrain_params *params;
	dtrain_stage *out;
	usage *usages; /* of roots */
} cut;

static int32_t stage_of(const cut *c, int32_t block)
{
	int32_t stage = 0;
	while (stage + 1 < c->stages && c->first[stage + 1] <= block)
		stage++;
	return stage;
}

static void use(cut *c, dtrain_tensor tensor, int32_t stage, bool writes)
{
	dtrain_tensor root = dtrain__graph_root(c->whole, tensor);
	usage *of = &c->usages[root];
	of->stages |= UINT64_C(1) << stage;
	of->last = stage > of->last ? stage : of->last;
	of->producer = writes ? stage : of->producer;
	of->used = of->used || stage == c->stage;
	/* Its gradient is the parameter's. */
	if (c->whole->tensors[root].original >= 0)
		use(c, c->whole->tensors[root].original, stage, false);
}

static void find_usages(cut *c)
{
	for (int32_t i = 0; i < c->whole->num_tensors; i++)
		c->usages[i] = (usage){.producer = -1, .last = -1};
	for (int32_t i = 0; i < c->whole->num_nodes; i++) {
		const dtrain__node *node = &c->whole->nodes[i];
		int32_t stage = stage_of(c, node->block);
		for (int k = 0; k < node->num_inputs; k++)
			use(c, node->inputs[k], stage, false);
		for (int k = 0; k < node->num_outputs; k++)
			use(c, node->outputs[k], stage, true);
	}
	/* A parameter that no node reads is saved all the same. */
	for (int32_t i = 0; i < c->whole->num_tensors; i++)
		if (c->whole->tensors[i].role == DTRAIN__PARAM && !c->usages[i].stages)
			use(c, i, stage_of(c, dtrain_params_at(c->whole->params, c->whole->tensors[i].index)->block),
			    false);
}

static bool crosses_in(const cut *c, dtrain_tensor root)
{
	const usage *of = &c->usages[root];
	return of->producer >= 0 && of->producer < c->stage && of->last >= c->stage;
}

static bool crosses_out(const cut *c, dtrain_tensor root)
{
	const usage *of = &c->usages[root];
	return of->producer >= 0 && of->producer <= c->stage && of->last > c->stage;
}

static int add_parameter(const cut *c, dtrain_tensor tensor, dtrain__tensor *copy, beton_error *err)
{
	const usage *of = &c->usages[tensor];
	const dtrain_param *param = dtrain_params_at(c->whole->params, copy->index);
	int index = dtrain__params_declare_of(c->params, param, of->stages,
					      (of->stages & ((UINT64_C(1) << c->stage) - 1)) != 0, err);
	copy->index = index;
	return index < 0 ? index : BETON_OK;
}

static int add_buffer(const cut *c, dtrain__tensor *copy, beton_error *err)
{
	const dtrain_buffer *buffer = dtrain_params_buffer_at(c->whole->params, copy->index);
	int index = (buffer->fixed ? dtrain_params_declare_fixed : dtrain_params_declare_buffer)(
		c->params, buffer->name, &buffer->shape, buffer->init, err);
	copy->index = index;
	return index < 0 ? index : BETON_OK;
}

/* Tensors keep their order, so a parent and an original come before a view and a copy. */
static int add_tensor(const cut *c, dtrain_tensor tensor, beton_error *err)
{
	const dtrain_graph *whole = c->whole;
	dtrain_stage *out = c->out;
	dtrain_tensor root = dtrain__graph_root(whole, tensor);
	const usage *of = &c->usages[root];
	bool received = crosses_in(c, root);
	int status = BETON_OK;
	out->tensors[tensor] = -1;
	if (!of->used && !received)
		return BETON_OK;
	dtrain__tensor copy = whole->tensors[tensor];
	if (root == tensor && received)
		copy.role = DTRAIN__INPUT;
	if (root == tensor && copy.role == DTRAIN__PARAM)
		status = add_parameter(c, tensor, &copy, err);
	else if (root == tensor && copy.role == DTRAIN__BUFFER)
		status = add_buffer(c, &copy, err);
	if (status != BETON_OK)
		return status;
	copy.parent = copy.parent < 0 ? -1 : out->tensors[copy.parent];
	copy.original = copy.original < 0 ? -1 : out->tensors[copy.original];
	if (copy.role == DTRAIN__COPY && copy.parent < 0) {
		copy.index = out->graph->tensors[copy.original].index;
		c->params->params[copy.index].copied = true;
	}
	out->tensors[tensor] = dtrain__graph_copy_tensor(out->graph, &copy);
	return BETON_OK;
}

static void add_nodes(const cut *c)
{
	dtrain_graph *graph = c->out->graph;
	for (int32_t i = 0; i < c->whole->num_nodes; i++) {
		dtrain__node node = c->whole->nodes[i];
		if (stage_of(c, node.block) != c->stage)
			continue;
		for (int k = 0; k < node.num_inputs; k++)
			node.inputs[k] = c->out->tensors[node.inputs[k]];
		for (int k = 0; k < node.num_outputs; k++)
			node.outputs[k] = c->out->tensors[node.outputs[k]];
		graph->block = node.block;
		dtrain__graph_node(graph, &node);
	}
}

/* A crossing's gradient that backward will make. */
enum { WANTED = 0, NONE = -1 };

/* All stages find the same, in the whole graph. */
static void add_crossings(const cut *c)
{
	const dtrain_graph *whole = c->whole;
	dtrain_stage *out = c->out;
	for (int32_t i = 0; i < whole->num_tensors; i++) {
		const dtrain_crossing crossing = {.value = out->tensors[i],
						  .gradient = whole->training && dtrain__needs_grad(whole, i) ? WANTED
													      : NONE};
		if (whole->tensors[i].parent >= 0)
			continue;
		if (crosses_in(c, i))
			out->received[out->num_received++] = crossing;
		if (crosses_out(c, i))
			out->sent[out->num_sent++] = crossing;
	}
	for (int32_t i = 0; i < out->num_sent; i++)
		dtrain_graph_keep(out->graph, out->sent[i].value);
	for (int32_t i = 0; i < out->num_received; i++)
		if (out->received[i].gradient == WANTED)
			dtrain_graph_require_grad(out->graph, out->received[i].value);
}

static int check_borders(const dtrain_graph *whole, const int32_t *first, int32_t stages, int32_t stage,
			 beton_error *err)
{
	int32_t blocks = dtrain_stage_costs(whole, NULL, 0);
	if (stages < 1 || stages > DTRAIN_MAX_STAGES || stage < 0 || stage >= stages)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "pipeline: stage %d of %d, not of 1 to %d", stage, stages,
			       DTRAIN_MAX_STAGES);
	for (int32_t i = 0; i < stages; i++)
		if (first[i] != 0 && (i == 0 || first[i] <= first[i - 1] || first[i] >= blocks))
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "pipeline: stage %d begins at block %d; the model has %d blocks, and the "
				       "stages' first blocks rise from 0",
				       i, first[i], blocks);
		else if (first[i] == 0 && i > 0)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "pipeline: stage %d begins at block 0", i);
	return BETON_OK;
}

static int allocate(cut *c, beton_error *err)
{
	size_t count = (size_t)c->whole->num_tensors + 1;
	dtrain_stage *out = calloc(1, sizeof(*out));
	c->out = out;
	c->usages = calloc(count, sizeof(*c->usages));
	if (out) {
		out->tensors = calloc(count, sizeof(*out->tensors));
		out->received = calloc(count, sizeof(*out->received));
		out->sent = calloc(count, sizeof(*out->sent));
		out->num_tensors = c->whole->num_tensors;
		out->is_last = c->stage + 1 == c->stages;
	}
	if (!out || !c->usages || !out->tensors || !out->received || !out->sent)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a stage");
	int status = dtrain_graph_create(c->params, c->whole->training, &out->graph, err);
	if (status != BETON_OK)
		return status;
	dtrain_graph_set_dtype(out->graph, c->whole->dtype);
	dtrain_graph_set_scaler(out->graph, c->whole->scaler);
	out->graph->block_started = -1;
	out->graph->stage = c->stage;
	c->params->own_stages |= UINT64_C(1) << c->stage;
	return BETON_OK;
}

static int fill(cut *c, beton_error *err)
{
	dtrain_graph *graph = c->out->graph;
	int status = BETON_OK;
	find_usages(c);
	for (int32_t i = 0; i < c->whole->num_tensors && status == BETON_OK; i++)
		status = add_tensor(c, i, err);
	if (status != BETON_OK)
		return status;
	add_nodes(c);
	add_crossings(c);
	dtrain__params_note_whole(c->params, c->whole->params);
	if (dtrain__graph_failed(graph))
		return bt_fail(err, graph->error.code, "%s", graph->error.message);
	return BETON_OK;
}

int dtrain_stage_create(dtrain_graph *whole, const int32_t *first, int32_t stages, int32_t stage, dtrain_params *params,
			dtrain_stage **out, beton_error *err)
{
	if (BT_MISSING(err, whole, first, params, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	if (dtrain__graph_failed(whole))
		return bt_fail(err, whole->error.code, "%s", whole->error.message);
	if (whole->has_backward)
		return bt_fail(err, BETON_STATE, "pipeline: the whole graph has a backward");
	int status = check_borders(whole, first, stages, stage, err);
	if (status != BETON_OK)
		return status;
	if (whole->training)
		dtrain__mark_needed(whole);
	cut c = {.whole = whole, .first = first, .stages = stages, .stage = stage, .params = params};
	status = allocate(&c, err);
	if (status == BETON_OK)
		status = fill(&c, err);
	free(c.usages);
	if (status != BETON_OK)
		dtrain_stage_destroy(&c.out);
	*out = c.out;
	return status;
}

void dtrain_stage_destroy(dtrain_stage **stage)
{
	if (!stage || !*stage)
		return;
	dtrain_graph_destroy(&(*stage)->graph);
	free((*stage)->tensors);
	free((*stage)->received);
	free((*stage)->sent);
	free(*stage);
	*stage = NULL;
}

dtrain_graph *dtrain_stage_graph(const dtrain_stage *stage)
{
	return stage ? stage->graph : NULL;
}

dtrain_graph *dtrain_stage_take_graph(dtrain_stage *stage)
{
	dtrain_graph *graph = stage ? stage->graph : NULL;
	if (stage)
		stage->graph = NULL;
	return graph;
}

dtrain_tensor dtrain_stage_tensor(const dtrain_stage *stage, dtrain_tensor of_whole)
{
	return stage && of_whole >= 0 && of_whole < stage->num_tensors ? stage->tensors[of_whole] : -1;
}

/* ---- backward ---- */

/* Appends backward from the gradients that the next stage will send. */
static void continue_backward(dtrain_stage *stage)
{
	dtrain_graph *graph = stage->graph;
	dtrain_tensor *tensors = calloc(2 * (size_t)stage->num_sent + 1, sizeof(*tensors));
	dtrain_tensor *gradients = tensors + stage->num_sent;
	int count = 0;
	if (!tensors) {
		dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for a stage");
		return;
	}
	for (int32_t i = 0; i < stage->num_sent; i++) {
		dtrain_crossing *crossing = &stage->sent[i];
		if (crossing->gradient == NONE)
			continue;
		const dtrain_shape shape = *dtrain_graph_shape(graph, crossing->value);
		crossing->gradient = dtrain_graph_input(graph, "gradient of a sent tensor",
							dtrain_graph_dtype(graph, crossing->value), &shape);
		tensors[count] = crossing->value;
		gradients[count++] = crossing->gradient;
	}
	graph->continues = true;
	dtrain_graph_backward_from(graph, count, tensors, gradients);
	free(tensors);
}

void dtrain_stage_backward(dtrain_stage *stage, dtrain_tensor loss)
{
	if (!stage || !stage->graph)
		return;
	dtrain_graph *graph = stage->graph;
	dtrain_graph_interleave(graph);
	if (stage->is_last)
		dtrain_graph_backward(graph, dtrain_stage_tensor(stage, loss));
	else
		continue_backward(stage);
	for (int32_t i = 0; i < stage->num_received; i++) {
		dtrain_crossing *crossing = &stage->received[i];
		if (crossing->gradient == NONE)
			continue;
		crossing->gradient = dtrain_graph_grad(graph, crossing->value);
		if (crossing->gradient < 0)
			dtrain__graph_fail(graph, BETON_UNSUPPORTED,
					   "pipeline: a tensor that the stage receives has no gradient there");
	}
}

const dtrain_crossing *dtrain_stage_received(const dtrain_stage *stage, int32_t index)
{
	return stage && index >= 0 && index < stage->num_received ? &stage->received[index] : NULL;
}

const dtrain_crossing *dtrain_stage_sent(const dtrain_stage *stage, int32_t index)
{
	return stage && index >= 0 && index < stage->num_sent ? &stage->sent[index] : NULL;
}
