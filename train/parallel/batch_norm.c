/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm over the ranks' batches. A batch norm's op writes its row of the moments of all ranks, and its backward op
 * this rank's sums; a call behind each of them gathers the rows, or adds up the sums, in place. The next op needs the
 * result, so nothing is computed meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "core/params.h"
#include "core/program.h"
#include "sync.h"

void dtrain__sync_set_norms(dtrain_sync *sync, bool on)
{
	int ranks = on && sync->group ? dtrain_group_size(sync->group) : 1;
	sync->params->norm_ranks = ranks > 1 ? ranks : 0;
	sync->params->norm_rank = ranks > 1 ? dtrain_group_rank(sync->group) : 0;
}

static int issue(void *context, const dtrain__run *run, beton_error *err)
{
	sync_exchange *exchange = context;
	const dtrain_sync *sync = exchange->operation.sync;
	if (!sync->started)
		return BETON_OK;
	char *memory = dtrain__address(run->instance, run->instance->program->places[exchange->tensor]);
	dtrain_dtype dtype = dtrain_params_dtype(sync->params);
	size_t row = (size_t)exchange->count * dtrain_dtype_size(dtype) * (size_t)dtrain_group_rank(sync->group);
	const sync_transfer transfer = {.kind = exchange->gathers ? SYNC_ALL_GATHER : SYNC_ALLREDUCE,
					.group = sync->group,
					.output = memory,
					.input = memory + (exchange->gathers ? row : 0),
					.count = exchange->count,
					.dtype = dtype};
	return dtrain__operation_issue(&exchange->operation, &transfer, run->stream, false, err);
}

static int wait(void *context, const dtrain__run *run, beton_error *err)
{
	sync_exchange *exchange = context;
	return dtrain__operation_wait(&exchange->operation, run->stream, err);
}

static void abandon(void *context)
{
	sync_exchange *exchange = context;
	dtrain__operation_abandon(&exchange->operation);
}

/* The first node that reads the tensor; the number of nodes: none. */
static int32_t first_reader(const dtrain_graph *graph, dtrain_tensor tensor)
{
	for (int32_t i = 0; i < graph->num_nodes; i++)
		for (int k = 0; k < graph->nodes[i].num_inputs; k++)
			if (graph->nodes[i].inputs[k] == tensor)
				return i;
	return graph->num_nodes;
}

/* number: among those of the kind. */
static int add_call(dtrain_sync *sync, sync_exchange *exchange, dtrain__schedule *schedule, int32_t node, int number,
		    beton_error *err)
{
	const dtrain_graph *graph = schedule->graph;
	dtrain_tensor tensor = graph->nodes[node].outputs[0];
	const dtrain_shape *shape = &graph->tensors[tensor].shape;
	exchange->tensor = tensor;
	exchange->count = shape->dim[shape->ndim - 1];
	exchange->gathers = graph->nodes[node].kind == DTRAIN_OP_BATCH_NORM_MOMENTS;
	snprintf(exchange->operation.label, sizeof(exchange->operation.label), "%s %d of batch norm",
		 exchange->gathers ? "moments" : "sums", number);
	const dtrain__call call = {.name = exchange->operation.label,
				   .issue = issue,
				   .wait = wait,
				   .abandon = abandon,
				   .context = exchange,
				   .tensors = {tensor},
				   .num_tensors = 1};
	int status = dtrain__operation_open(&exchange->operation, sync, -1, false, err);
	return status == BETON_OK ? dtrain__schedule_add(schedule, &call, node, first_reader(graph, tensor), err)
				  : status;
}

/* Sums that nothing reads are of batch norms in front of which no gradient is needed. */
static bool needs_call(const dtrain_graph *graph, int32_t node)
{
	dtrain_op_kind kind = graph->nodes[node].kind;
	return (kind == DTRAIN_OP_BATCH_NORM_MOMENTS || kind == DTRAIN_OP_BATCH_NORM_SUMS) &&
	       first_reader(graph, graph->nodes[node].outputs[0]) < graph->num_nodes;
}

int dtrain__sync_plan_norms(dtrain_sync *sync, sync_program *program, dtrain__schedule *schedule, beton_error *err)
{
	const dtrain_graph *graph = schedule->graph;
	int count = 0, moments = 0, sums = 0, status = BETON_OK;
	for (int32_t i = 0; i < graph->num_nodes; i++)
		count += needs_call(graph, i);
	if (count == 0)
		return BETON_OK;
	program->exchanges = calloc((size_t)count, sizeof(*program->exchanges));
	if (!program->exchanges)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	for (int32_t i = 0; i < graph->num_nodes && status == BETON_OK; i++) {
		bool gathers = graph->nodes[i].kind == DTRAIN_OP_BATCH_NORM_MOMENTS;
		if (needs_call(graph, i))
			status = add_call(sync, &program->exchanges[program->num_exchanges++], schedule, i,
					  gathers ? ++moments : ++sums, err);
	}
	return status;
}

void dtrain__sync_close_norms(sync_program *program)
{
	for (int i = 0; i < program->num_exchanges; i++)
		if (program->exchanges[i].operation.sync)
			dtrain__operation_close(&program->exchanges[i].operation);
	free(program->exchanges);
}
