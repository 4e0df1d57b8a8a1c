/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that a program runs in, and running it.
 */
#include <stdlib.h>

#include "common/error.h"
#include "op.h"
#include "params.h"
#include "program.h"

static int allocate(dtrain_instance *instance, beton_error *err)
{
	const dtrain_program *program = instance->program;
	const dtrain_program_facts *facts = &program->facts;
	instance->bases = calloc(program->num_bases, sizeof(*instance->bases));
	if (!instance->bases)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for an instance");
	int status = program->api->alloc(program->device, facts->arena_bytes, &instance->arena, err);
	if (status == BETON_OK && facts->workspace_bytes)
		status = program->api->alloc(program->device, facts->workspace_bytes, &instance->workspace, err);
	return status;
}

int dtrain_instance_create(const dtrain_program *program, dtrain_instance **out, beton_error *err)
{
	const dtrain_graph *graph = program->graph;
	dtrain_instance *instance = calloc(1, sizeof(*instance));
	*out = NULL;
	if (!instance)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for an instance");
	instance->program = program;
	int status = allocate(instance, err);
	if (status != BETON_OK) {
		dtrain_instance_destroy(&instance);
		return status;
	}
	instance->bases[DTRAIN__BASE_VALUES] = (uintptr_t)dtrain_params_values(graph->params);
	instance->bases[DTRAIN__BASE_GRADS] = (uintptr_t)dtrain_params_grads(graph->params);
	instance->bases[DTRAIN__BASE_BUFFERS] = (uintptr_t)graph->params->buffer_memory;
	instance->bases[DTRAIN__BASE_ARENA] = (uintptr_t)instance->arena;
	for (int32_t i = 0; i < graph->num_tensors; i++)
		if (graph->tensors[i].role == DTRAIN__INPUT)
			instance->bases[program->places[i].base] =
				(uintptr_t)instance->arena + program->spans[i].offset;
	*out = instance;
	return BETON_OK;
}

void dtrain_instance_destroy(dtrain_instance **instance)
{
	if (!*instance)
		return;
	const dtrain_program *program = (*instance)->program;
	program->api->free(program->device, (*instance)->arena);
	program->api->free(program->device, (*instance)->workspace);
	free((*instance)->bases);
	free(*instance);
	*instance = NULL;
}

void *dtrain_instance_data(const dtrain_instance *instance, dtrain_tensor tensor)
{
	const dtrain_graph *graph = instance->program->graph;
	if (tensor < 0 || tensor >= graph->num_tensors)
		return NULL;
	const dtrain__tensor *root = &graph->tensors[dtrain__graph_root(graph, tensor)];
	if (root->role != DTRAIN__INPUT && !root->keep)
		return NULL;
	return dtrain__address(instance, instance->program->places[tensor]);
}

int dtrain_instance_bind(dtrain_instance *instance, dtrain_tensor input, void *memory, beton_error *err)
{
	const dtrain_program *program = instance->program;
	const dtrain_graph *graph = program->graph;
	if (input < 0 || input >= graph->num_tensors || graph->tensors[input].role != DTRAIN__INPUT)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "tensor %d is no input", input);
	dtrain_device_caps caps;
	program->api->caps(program->device, &caps);
	if (memory && (uintptr_t)memory % caps.alignment != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "memory for input %d is no multiple of %zu bytes", input,
			       caps.alignment);
	instance->bases[program->places[input].base] =
		memory ? (uintptr_t)memory : (uintptr_t)instance->arena + program->spans[input].offset;
	return BETON_OK;
}

static int run_metrics(const dtrain_instance *instance, dtrain_stream *stream, beton_error *err)
{
	const dtrain_program *program = instance->program;
	const dtrain_graph *graph = program->graph;
	size_t element = dtrain_dtype_size(dtrain_params_dtype(graph->params));
	int status = BETON_OK;
	for (int i = 0; i < graph->num_metrics && status == BETON_OK; i++) {
		char *grads = dtrain_params_grads(graph->params);
		status = program->api->copy(stream, grads - (DTRAIN_GRAD_EXTRA - graph->metrics[i].slot) * (int)element,
					    dtrain__address(instance, program->places[graph->metrics[i].scalar]),
					    element, DTRAIN_DEVICE_TO_DEVICE, err);
	}
	return status;
}

/* Where a run stands: which block it is in, and how many gradients it has reported. */
typedef struct program_walk {
	dtrain_instance *instance;
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
		status = run_metrics(walk->instance, walk->stream, err);
	if (status == BETON_OK && walk->hooks->forward_done)
		status = walk->hooks->forward_done(walk->hooks->context, walk->stream, err);
	return status;
}

static int report_ready(program_walk *walk, int32_t node, beton_error *err)
{
	const dtrain_program *program = walk->instance->program;
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

int dtrain__instance_run_node(const dtrain_instance *instance, int32_t node, dtrain_stream *stream, beton_error *err)
{
	const dtrain_program *program = instance->program;
	const dtrain__step *step = &program->steps[node];
	void *operands[2 * DTRAIN_OP_MAX_OPERANDS];
	for (int i = 0; i < step->num_operands; i++)
		operands[i] = dtrain__address(instance, step->operands[i]);
	int status = program->api->op_run(step->op, stream, operands, instance->workspace, err);
	if (status != BETON_OK)
		bt_prefix(err, "op %s", dtrain__op_name(program->graph->nodes[node].kind));
	return status;
}

static int run_call(program_walk *walk, const dtrain__scheduled *step, beton_error *err)
{
	dtrain_instance *instance = walk->instance;
	const dtrain__call *call = &instance->program->schedule.calls[step->index];
	int status =
		(step->kind == DTRAIN__CALL ? call->issue : call->wait)(call->context, instance, walk->stream, err);
	if (status != BETON_OK)
		bt_prefix(err, "%s", call->name);
	return status;
}

static int run_op(program_walk *walk, int32_t node, beton_error *err)
{
	const dtrain_program *program = walk->instance->program;
	int status = node == program->num_forward ? finish_forward(walk, err) : BETON_OK;
	if (status == BETON_OK)
		status = enter_block(walk, &program->graph->nodes[node], err);
	if (status == BETON_OK)
		status = dtrain__instance_run_node(walk->instance, node, walk->stream, err);
	return status == BETON_OK ? report_ready(walk, node, err) : status;
}

int dtrain_instance_run(dtrain_instance *instance, dtrain_stream *stream, const dtrain_program_hooks *hooks,
			beton_error *err)
{
	const dtrain_program_hooks none = {0};
	program_walk walk = {.instance = instance, .stream = stream, .hooks = hooks ? hooks : &none, .block = -1};
	const dtrain__schedule *schedule = &instance->program->schedule;
	int status = BETON_OK;
	for (int32_t i = 0; i < schedule->count && status == BETON_OK; i++) {
		const dtrain__scheduled *step = &schedule->steps[i];
		status = step->kind == DTRAIN__RUN ? run_op(&walk, step->index, err) : run_call(&walk, step, err);
	}
	if (status == BETON_OK && instance->program->num_forward == instance->program->graph->num_nodes)
		status = finish_forward(&walk, err);
	return status == BETON_OK ? leave_block(&walk, err) : status;
}
