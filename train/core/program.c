/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include <stdlib.h>

#include "common/sized.h"

int dtrain_program_run(dtrain_program *program, dtrain_stream *stream, int32_t micro_batch, int32_t micro_batches,
		       beton_error *err)
{
	if (BT_MISSING(err, program, stream))
		return BETON_INVALID_ARGUMENT;
	return dtrain_instance_run(program->first, stream, DTRAIN_ALL_PHASES, micro_batch, micro_batches, err);
}

void *dtrain_program_data(const dtrain_program *program, dtrain_tensor tensor)
{
	if (!program)
		return NULL;
	return dtrain_instance_data(program->first, tensor);
}

const dtrain_shape *dtrain_program_shape(const dtrain_program *program, dtrain_tensor tensor)
{
	if (!program)
		return NULL;
	return dtrain_graph_shape(program->graph, tensor);
}

dtrain_dtype dtrain_program_dtype(const dtrain_program *program, dtrain_tensor tensor)
{
	if (!program)
		return DTRAIN_F32;
	return program->graph->tensors[tensor].dtype;
}

void dtrain_program_get_info(const dtrain_program *program, dtrain_program_info *out)
{
	if (!program || !out)
		return;
	bt_sized_give(out, &program->info);
}

dtrain__op_cost dtrain__node_cost(const dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_op_desc desc = {.kind = node->kind,
			       .attrs = node->attrs,
			       .num_inputs = node->num_inputs,
			       .num_outputs = node->num_outputs};
	for (int i = 0; i < node->num_inputs + node->num_outputs; i++) {
		bool input = i < node->num_inputs;
		const dtrain__tensor *tensor =
			&graph->tensors[input ? node->inputs[i] : node->outputs[i - node->num_inputs]];
		dtrain_operand *operand = input ? &desc.inputs[i] : &desc.outputs[i - node->num_inputs];
		*operand = (dtrain_operand){.dtype = tensor->dtype,
					    .shape = tensor->shape,
					    .bytes = (size_t)dtrain_shape_count(&tensor->shape) *
						     dtrain_dtype_size(tensor->dtype)};
	}
	return dtrain__op_cost_of(&desc);
}

void dtrain__program_release_ops(dtrain_program *program)
{
	for (int32_t i = 0; program->steps && i < program->graph->num_nodes; i++)
		if (program->steps[i].op)
			program->api->op_destroy(program->steps[i].op);
	free(program->steps);
	free(program->operands);
	free(program->places);
	free(program->spans);
}

void dtrain__program_release(dtrain_program *program)
{
	dtrain_instance_destroy(&program->first);
	dtrain__params_give(program->api, program->device, program->shared, program->shared_owner);
	program->api->free(program->device, program->workspace);
	dtrain__swaps_destroy(program->swaps);
	dtrain__schedule_free(&program->schedule);
	dtrain__program_release_ops(program);
	free(program);
}

void dtrain_program_destroy(dtrain_program **program)
{
	if (!program)
		return;
	if (!*program)
		return;
	dtrain_graph *graph = (*program)->graph;
	dtrain__program_release(*program);
	dtrain_graph_destroy(&graph);
	*program = NULL;
}
