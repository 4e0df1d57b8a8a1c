/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include <stdlib.h>

#include "common/error.h"
#include "common/sized.h"
#include "op.h"

static int run_metrics(const dtrain_program *program, dtrain_stream *stream, beton_error *err)
{
	const dtrain_graph *graph = program->graph;
	size_t element = dtrain_dtype_size(dtrain_params_dtype(graph->params));
	int status = BETON_OK;
	for (int i = 0; i < graph->num_metrics && status == BETON_OK; i++) {
		char *grads = dtrain_params_grads(graph->params);
		status = program->api->copy(stream, grads - (DTRAIN_GRAD_EXTRA - graph->metrics[i].slot) * (int)element,
					    program->data[graph->metrics[i].scalar], element, DTRAIN_DEVICE_TO_DEVICE,
					    err);
	}
	return status;
}

/* Where a run stands: which block it is in, and how many gradients it has reported. */
typedef struct program_walk {
	const dtrain_program *program;
	dtrain_stream *stream;
	const dtrain_program_hooks *hooks;
	int32_t block; /* -1: in none */
	bool backward;
	int reported;
} program_walk;

static int leave_block(program_walk *walk, beton_error *err)
{
	int32_t block = walk->block;
	walk->block = -1;
	if (block < 0 || !walk->hooks->block_end)
		return BETON_OK;
	return walk->hooks->block_end(walk->hooks->context, block, walk->backward, walk->stream, err);
}

static int enter_block(program_walk *walk, const dtrain__node *node, beton_error *err)
{
	if (walk->block == node->block && walk->backward == node->is_backward)
		return BETON_OK;
	int status = leave_block(walk, err);
	walk->block = node->block;
	walk->backward = node->is_backward;
	if (status != BETON_OK || !walk->hooks->block_begin)
		return status;
	return walk->hooks->block_begin(walk->hooks->context, node->block, node->is_backward, walk->stream, err);
}

static int finish_forward(program_walk *walk, beton_error *err)
{
	int status = leave_block(walk, err);
	if (status == BETON_OK)
		status = run_metrics(walk->program, walk->stream, err);
	if (status == BETON_OK && walk->hooks->forward_done)
		status = walk->hooks->forward_done(walk->hooks->context, walk->stream, err);
	return status;
}

static int report_ready(program_walk *walk, int32_t node, beton_error *err)
{
	const dtrain_program *program = walk->program;
	int status = BETON_OK;
	for (; status == BETON_OK && walk->reported < program->num_ready; walk->reported++) {
		const dtrain__ready *ready = &program->ready[walk->reported];
		if (ready->node > node)
			break;
		if (walk->hooks->grad_ready)
			status = walk->hooks->grad_ready(walk->hooks->context, ready->param, walk->stream, err);
	}
	return status;
}

static int run_node(const dtrain_program *program, int32_t index, dtrain_stream *stream, beton_error *err)
{
	const dtrain__step *step = &program->steps[index];
	int status = program->api->op_run(step->op, stream, step->operands, program->workspace, err);
	if (status != BETON_OK)
		bt_prefix(err, "op %s", dtrain__op_name(program->graph->nodes[index].kind));
	return status;
}

int dtrain_program_run(dtrain_program *program, dtrain_stream *stream, const dtrain_program_hooks *hooks,
		       beton_error *err)
{
	const dtrain_program_hooks none = {0};
	program_walk walk = {.program = program, .stream = stream, .hooks = hooks ? hooks : &none, .block = -1};
	const dtrain_graph *graph = program->graph;
	int status = BETON_OK;
	for (int32_t i = 0; i < graph->num_nodes && status == BETON_OK; i++) {
		if (i == program->num_forward)
			status = finish_forward(&walk, err);
		if (status == BETON_OK)
			status = enter_block(&walk, &graph->nodes[i], err);
		if (status == BETON_OK)
			status = run_node(program, i, stream, err);
		if (status == BETON_OK)
			status = report_ready(&walk, i, err);
	}
	if (status == BETON_OK && program->num_forward == graph->num_nodes)
		status = finish_forward(&walk, err);
	return status == BETON_OK ? leave_block(&walk, err) : status;
}

void *dtrain_program_data(const dtrain_program *program, dtrain_tensor tensor)
{
	if (tensor < 0 || tensor >= program->graph->num_tensors)
		return NULL;
	const dtrain__tensor *known = &program->graph->tensors[dtrain__graph_root(program->graph, tensor)];
	return known->role == DTRAIN__INPUT || known->keep ? program->data[tensor] : NULL;
}

const dtrain_shape *dtrain_program_shape(const dtrain_program *program, dtrain_tensor tensor)
{
	return dtrain_graph_shape(program->graph, tensor);
}

dtrain_dtype dtrain_program_dtype(const dtrain_program *program, dtrain_tensor tensor)
{
	return program->graph->tensors[tensor].dtype;
}

void dtrain_program_get_facts(const dtrain_program *program, dtrain_program_facts *out)
{
	bt_sized_give(out, &program->facts);
}

void dtrain__program_release(dtrain_program *program)
{
	for (int32_t i = 0; program->steps && i < program->graph->num_nodes; i++)
		if (program->steps[i].op)
			program->api->op_destroy(program->steps[i].op);
	program->api->free(program->device, program->arena);
	program->api->free(program->device, program->workspace);
	free(program->steps);
	free(program->operands);
	free(program->data);
	free(program->ready);
	free(program);
}

void dtrain_program_destroy(dtrain_program **program)
{
	if (!*program)
		return;
	dtrain_graph *graph = (*program)->graph;
	dtrain__program_release(*program);
	dtrain_graph_destroy(&graph);
	*program = NULL;
}
