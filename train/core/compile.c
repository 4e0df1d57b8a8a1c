/* SPDX-License-Identifier: Apache-2.0
 *
 * From a graph to a program: ops, liveness and memory.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "op.h"
#include "params.h"
#include "plan.h"
#include "program.h"
#include "shape.h"

/* The caller, the flat space and views need row-major tensors; the device chooses the layout of others. */
static bool is_plain(const dtrain__tensor *tensor)
{
	return tensor->role != DTRAIN__ACTIVATION || tensor->keep || tensor->plain;
}

/* A call of the schedule does the work. */
static int check_collective(const dtrain_program *program, int32_t index, const dtrain_op_desc *desc, beton_error *err)
{
	const dtrain__schedule *schedule = &program->schedule;
	for (int32_t i = 0; i < schedule->num_calls; i++)
		if (schedule->calls[i].num_tensors &&
		    schedule->calls[i].tensors[0] == program->graph->nodes[index].outputs[0])
			return dtrain__op_check(desc, err);
	return bt_fail(err, BETON_STATE, "op %s: ranks compute it in programs of dtrain_sync_compile alone",
		       dtrain__op_name(desc->kind));
}

static int create_op(dtrain_program *program, int32_t index, beton_error *err)
{
	const dtrain_graph *graph = program->graph;
	const dtrain__node *node = &graph->nodes[index];
	dtrain_op_desc desc = {.kind = node->kind,
			       .attrs = node->attrs,
			       .num_inputs = node->num_inputs,
			       .num_outputs = node->num_outputs};
	for (int i = 0; i < node->num_inputs; i++) {
		dtrain_tensor returns = graph->tensors[node->inputs[i]].returns;
		if (returns >= 0)
			program->operands[node->inputs[i]] = program->operands[returns];
		desc.inputs[i] = program->operands[node->inputs[i]];
	}
	for (int i = 0; i < node->num_outputs; i++) {
		desc.outputs[i] = program->operands[node->outputs[i]];
		desc.plain_output[i] = is_plain(&graph->tensors[node->outputs[i]]);
	}
	if (dtrain__op_rules_of(node->kind)->collective)
		return check_collective(program, index, &desc, err);
	int status = program->api->op_create(program->device, &desc, &program->steps[index].op, err);
	if (status != BETON_OK)
		return status;
	for (int i = 0; i < node->num_outputs; i++)
		program->operands[node->outputs[i]] = desc.outputs[i];
	if (desc.workspace_bytes > program->info.workspace_bytes)
		program->info.workspace_bytes = desc.workspace_bytes;
	program->steps[index].cost = dtrain__op_cost_of(&desc);
	if (node->is_repeated) {
		program->info.repeated++;
		program->info.repeated_flops += program->steps[index].cost.flops;
	} else {
		program->info.flops += program->steps[index].cost.flops;
	}
	return BETON_OK;
}

static int create_ops(dtrain_program *program, beton_error *err)
{
	const dtrain_graph *graph = program->graph;
	for (int32_t i = 0; i < graph->num_tensors; i++) {
		const dtrain__tensor *tensor = &graph->tensors[i];
		program->operands[i] = (dtrain_operand){.dtype = tensor->dtype,
							.shape = tensor->shape,
							.bytes = (size_t)dtrain_shape_count(&tensor->shape) *
								 dtrain_dtype_size(tensor->dtype)};
		if (tensor->role == DTRAIN__COPY)
			program->operands[i].layout = dtrain__copies_layout(graph->params, tensor->index);
	}
	int status = BETON_OK;
	for (int32_t i = 0; i < graph->num_nodes && status == BETON_OK; i++)
		status = create_op(program, i, err);
	return status;
}

static bool in_arena(const dtrain_graph *graph, const dtrain__tensor *tensor)
{
	bool owned = tensor->role == DTRAIN__ACTIVATION || (tensor->role == DTRAIN__INPUT && !graph->binds_inputs);
	return owned && tensor->parent < 0;
}

/* A tensor is alive from the first step that touches it to the last. Touching a view is touching its root. */
static void touch(dtrain_program *program, dtrain_tensor tensor, int32_t step)
{
	dtrain__span *span = &program->spans[dtrain__graph_root(program->graph, tensor)];
	span->first = step < span->first ? step : span->first;
	span->last = step > span->last ? step : span->last;
}

static int32_t step_of(const dtrain__schedule *schedule, dtrain__step_kind kind, int32_t index)
{
	for (int32_t i = 0; i < schedule->count; i++)
		if (schedule->steps[i].kind == kind && schedule->steps[i].index == index)
			return i;
	return -1;
}

static dtrain__span life_of_transient(const dtrain_program *program, int32_t index)
{
	const dtrain__schedule *schedule = &program->schedule;
	const dtrain__transient *transient = &schedule->transients[index];
	int32_t end = transient->end < 0 ? -1 : step_of(schedule, DTRAIN__WAIT, transient->end);
	int32_t used = transient->last_node < 0 ? -1 : step_of(schedule, DTRAIN__RUN, transient->last_node);
	return (dtrain__span){.bytes = transient->bytes,
			      .first = step_of(schedule, DTRAIN__CALL, transient->begin),
			      .last = end > used ? end : used,
			      .home = program->graph->num_tensors + index};
}

static void touch_operands(dtrain_program *program, int32_t step)
{
	const dtrain__scheduled *scheduled = &program->schedule.steps[step];
	if (scheduled->kind != DTRAIN__RUN) {
		const dtrain__call *call = &program->schedule.calls[scheduled->index];
		for (int32_t i = 0; i < call->num_tensors; i++)
			touch(program, call->tensors[i], step);
		return;
	}
	const dtrain__node *node = &program->graph->nodes[scheduled->index];
	for (int i = 0; i < node->num_inputs; i++)
		touch(program, node->inputs[i], step);
	for (int i = 0; i < node->num_outputs; i++)
		touch(program, node->outputs[i], step);
}

/* Inputs live from before the first step, kept tensors until after the last. */
static void find_lives(dtrain_program *program)
{
	const dtrain_graph *graph = program->graph;
	int32_t steps = program->schedule.count;
	for (int32_t i = 0; i < graph->num_tensors; i++) {
		const dtrain__tensor *tensor = &graph->tensors[i];
		bool input = tensor->role == DTRAIN__INPUT;
		program->spans[i] = (dtrain__span){.bytes = in_arena(graph, tensor) ? program->operands[i].bytes : 0,
						   .first = input ? -1 : steps,
						   .last = input || tensor->keep ? steps : -1,
						   .home = i};
	}
	for (int32_t i = 0; i < steps; i++)
		touch_operands(program, i);
	for (int32_t i = 0; i < graph->num_tensors; i++)
		if (program->spans[i].last < program->spans[i].first)
			program->spans[i] = (dtrain__span){.home = i};
	for (int32_t i = 0; i < program->schedule.num_transients; i++)
		program->spans[graph->num_tensors + i] = life_of_transient(program, i);
}

static bool is_read_besides(const dtrain_graph *graph, const dtrain__node *node, int index)
{
	for (int k = 0; k < node->num_inputs; k++)
		if (k != index && dtrain__graph_root(graph, node->inputs[k]) == node->inputs[index])
			return true;
	return false;
}

static bool may_lie_in(const dtrain_program *program, const dtrain__node *node, int index, int32_t step)
{
	const dtrain_graph *graph = program->graph;
	int32_t from = node->inputs[index], to = node->outputs[0];
	const dtrain_operand *input = &program->operands[from], *output = &program->operands[to];
	const dtrain__tensor *a = &graph->tensors[from], *b = &graph->tensors[to];
	bool activations = a->role == DTRAIN__ACTIVATION && b->role == DTRAIN__ACTIVATION && a->parent < 0;
	return activations && program->spans[from].last == step && !is_read_besides(graph, node, index) &&
	       input->layout == output->layout && input->bytes == output->bytes;
}

/* An op that can work in place overwrites an input that no later op reads. */
static void reuse_inputs(dtrain_program *program)
{
	dtrain__span *spans = program->spans;
	for (int32_t step = 0; step < program->schedule.count; step++) {
		if (program->schedule.steps[step].kind != DTRAIN__RUN)
			continue;
		const dtrain__node *node = &program->graph->nodes[program->schedule.steps[step].index];
		uint32_t in_place = dtrain__op_rules_of(node->kind)->in_place;
		for (int k = 0; k < node->num_inputs; k++) {
			if (!(in_place >> k & 1) || !may_lie_in(program, node, k, step))
				continue;
			dtrain__span *to = &spans[node->outputs[0]];
			to->home = spans[node->inputs[k]].home;
			to->bytes = 0;
			if (spans[to->home].last < to->last)
				spans[to->home].last = to->last;
			break;
		}
	}
}

/* Adds a span's bytes to the differences between the bytes alive at each step and at the one before. Lives begin at
 * step -1 and end at the number of steps. */
static void add_life(const dtrain__span *span, int64_t *changes)
{
	if (!span->bytes)
		return;
	changes[span->first + 1] += (int64_t)span->bytes;
	changes[span->last + 2] -= (int64_t)span->bytes;
}

/* Leases' bytes at the step with most bytes alive. */
static int find_transient_bytes(dtrain_program *program, beton_error *err)
{
	int32_t steps = program->schedule.count + 3, tensors = program->graph->num_tensors;
	int64_t *all = calloc(2 * (size_t)steps, sizeof(*all)), *transients = all + steps;
	int64_t alive = 0, leased = 0, most = 0;
	if (!all)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for planning %d steps", steps);
	for (int32_t i = 0; i < program->num_spans; i++) {
		add_life(&program->spans[i], all);
		if (i >= tensors)
			add_life(&program->spans[i], transients);
	}
	for (int32_t i = 0; i < steps; i++) {
		alive += all[i];
		leased += transients[i];
		if (alive > most)
			program->info.transient_bytes = (size_t)leased;
		most = alive > most ? alive : most;
	}
	free(all);
	return BETON_OK;
}

static int32_t phase_of(const dtrain__schedule *schedule, int32_t step)
{
	int32_t phase = 0;
	while (phase + 1 < DTRAIN__PHASES && step >= schedule->phase_ends[phase])
		phase++;
	return phase;
}

/* A tensor that lives in one phase alone is dead when another instance runs. */
static void find_shared(dtrain_program *program)
{
	const dtrain__schedule *schedule = &program->schedule;
	for (int32_t i = 0; i < program->num_spans; i++) {
		dtrain__span *span = &program->spans[i];
		bool within = span->first >= 0 && span->last < schedule->count;
		span->shared =
			span->bytes && within && phase_of(schedule, span->first) == phase_of(schedule, span->last);
	}
	for (int32_t i = 0; i < program->num_spans; i++)
		program->spans[i].shared = program->spans[program->spans[i].home].shared;
}

static int plan_arena(dtrain_program *program, beton_error *err)
{
	dtrain_device_caps caps;
	program->api->caps(program->device, &caps);
	int32_t count = program->graph->num_tensors + program->schedule.num_transients;
	program->spans = calloc((size_t)count + 1, sizeof(*program->spans));
	if (!program->spans)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for planning %d tensors", count);
	program->num_spans = count;
	find_lives(program);
	for (int32_t i = 0; i < count; i++)
		program->info.unshared_bytes += program->spans[i].bytes;

	reuse_inputs(program);
	if (program->graph->shares_scratch)
		find_shared(program);
	size_t own = 0, shared = 0;
	int status = program->schedule.num_transients ? find_transient_bytes(program, err) : BETON_OK;
	if (status == BETON_OK)
		status = dtrain__plan(program->spans, count, false, caps.alignment, &own, err);
	if (status == BETON_OK && program->graph->shares_scratch)
		status = dtrain__plan(program->spans, count, true, caps.alignment, &shared, err);
	program->info.arena_bytes = own + shared;
	program->info.shared_bytes = shared;
	return status;
}

/* The place of a tensor in its parameter's unit, relative to that base. */
static dtrain__place place_in_unit(const dtrain_params *params, const dtrain__tensor *tensor,
				   uint32_t (*base_of)(int32_t unit))
{
	const dtrain_param *param = dtrain_params_at(params, tensor->index);
	int64_t offset = param->offset - dtrain_params_unit_at(params, param->unit)->offset;
	return (dtrain__place){base_of(param->unit), (uint64_t)offset * dtrain_dtype_size(tensor->dtype)};
}

static dtrain__place place_of(dtrain_program *program, int32_t index)
{
	const dtrain_graph *graph = program->graph;
	const dtrain__tensor *tensor = &graph->tensors[index];
	const dtrain_params *params = graph->params;
	if (tensor->parent >= 0) {
		dtrain__place place = program->places[dtrain__graph_root(graph, index)];
		place.offset += (uint64_t)dtrain__graph_offset(graph, index) * dtrain_dtype_size(tensor->dtype);
		return place;
	}
	switch (tensor->role) {
	case DTRAIN__PARAM:
		return place_in_unit(params, tensor, dtrain__base_of_values);
	case DTRAIN__GRAD:
		return place_in_unit(params, tensor, dtrain__base_of_grads);
	case DTRAIN__COPY:
		return place_in_unit(params, tensor, dtrain__base_of_copies);
	case DTRAIN__STEP_METRIC:
		return (dtrain__place){DTRAIN__BASE_STEP_METRICS,
				       (uint64_t)tensor->index * dtrain_dtype_size(tensor->dtype)};
	case DTRAIN__BUFFER:
		return (dtrain__place){DTRAIN__BASE_BUFFERS,
				       (uint64_t)((char *)dtrain_params_buffer_at(params, tensor->index)->data -
						  (char *)params->buffer_memory)};
	case DTRAIN__MEMORY:
		return (dtrain__place){DTRAIN__BASE_NONE, (uintptr_t)tensor->memory};
	case DTRAIN__INPUT:
		return (dtrain__place){program->num_bases++, 0};
	default:
		return (dtrain__place){program->spans[index].shared ? DTRAIN__BASE_SHARED : DTRAIN__BASE_ARENA,
				       program->spans[index].offset};
	}
}

static int place_tensors(dtrain_program *program, beton_error *err)
{
	const dtrain_graph *graph = program->graph;
	int status = plan_arena(program, err);
	if (status != BETON_OK)
		return status;
	program->num_bases = program->first_input = dtrain__base_of_values(dtrain_params_unit_count(graph->params));
	for (int32_t i = 0; i < graph->num_tensors; i++)
		program->places[i] = place_of(program, i);
	for (int32_t i = 0; i < graph->num_nodes; i++) {
		const dtrain__node *node = &graph->nodes[i];
		dtrain__step *step = &program->steps[i];
		for (int k = 0; k < node->num_inputs; k++)
			step->operands[step->num_operands++] = program->places[node->inputs[k]];
		for (int k = 0; k < node->num_outputs; k++)
			step->operands[step->num_operands++] = program->places[node->outputs[k]];
	}
	return BETON_OK;
}

static int allocate_tables(dtrain_program *program, beton_error *err)
{
	const dtrain_graph *graph = program->graph;
	program->steps = calloc((size_t)graph->num_nodes, sizeof(*program->steps));
	program->operands = calloc((size_t)graph->num_tensors, sizeof(*program->operands));
	program->places = calloc((size_t)graph->num_tensors, sizeof(*program->places));
	if (!program->steps || !program->operands || !program->places)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a program of %d nodes", graph->num_nodes);
	program->info.struct_size = sizeof(program->info);
	program->info.nodes = graph->num_nodes;
	return BETON_OK;
}

static int make_schedule(dtrain_program *program, const dtrain__pass *passes, int num_passes, beton_error *err)
{
	int status = dtrain__schedule_create(program->graph, &program->schedule, err);
	for (int i = 0; i < num_passes && status == BETON_OK; i++)
		status = passes[i].run(passes[i].context, &program->schedule, err);
	if (status == BETON_OK)
		status = dtrain__swaps_plan(program, &program->swaps, err);
	if (status == BETON_OK)
		dtrain__schedule_cut(&program->schedule);
	return status;
}

/* The device has only a copy of an offloaded parameter, if ops read one when the parameters were allocated; or
 * nothing, and a pass has to copy it there. */
static int check_readers(const dtrain_program *program, int num_passes, beton_error *err)
{
	const dtrain_graph *graph = program->graph;
	if (graph->params->offload.units && !num_passes)
		return bt_fail(err, BETON_STATE, "offloaded units come to programs of dtrain_sync_compile alone");
	for (int32_t i = 0; i < graph->num_nodes; i++) {
		for (int k = 0; k < graph->nodes[i].num_inputs; k++) {
			const dtrain__tensor *tensor =
				&graph->tensors[dtrain__graph_root(graph, graph->nodes[i].inputs[k])];
			const dtrain_param *param =
				tensor->role == DTRAIN__PARAM ? dtrain_params_at(graph->params, tensor->index) : NULL;
			const dtrain__unit_memory *memory = param ? &graph->params->memory[param->unit] : NULL;
			if (memory && memory->offloaded && !memory->prefetched)
				return bt_fail(err, BETON_UNSUPPORTED,
					       "op %s reads the values of '%s', which are offloaded: the device has "
					       "copies of 16 bits",
					       dtrain__op_name(graph->nodes[i].kind), param->name);
		}
	}
	return BETON_OK;
}

static bool has_early_grads(const dtrain_graph *graph)
{
	for (int32_t i = 0; i < graph->num_tensors; i++)
		if (graph->tensors[i].role == DTRAIN__GRAD && graph->tensors[i].producer >= 0 &&
		    !graph->nodes[graph->tensors[i].producer].is_backward)
			return true;
	return false;
}

/* Everything but memory to run in. */
static int make_program(dtrain_graph *graph, const dtrain__pass *passes, int num_passes, dtrain_program **out,
			beton_error *err)
{
	*out = NULL;
	if (dtrain__graph_failed(graph)) {
		if (err)
			*err = graph->error;
		return graph->error.code;
	}
	if (graph->num_nodes == 0)
		return bt_fail(err, BETON_STATE, "the graph is empty");
	dtrain__note_fusions(graph);
	int status = dtrain_params_allocate(graph->params, err);
	if (status != BETON_OK)
		return status;
	dtrain_program *program = calloc(1, sizeof(*program));
	if (!program)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a program");
	program->graph = graph;
	program->device = dtrain_params_device(graph->params);
	program->api = dtrain_device_get_api(program->device);
	program->has_early_grads = has_early_grads(graph);
	status = allocate_tables(program, err);
	if (status == BETON_OK)
		status = check_readers(program, num_passes, err);
	if (status == BETON_OK)
		status = make_schedule(program, passes, num_passes, err);
	if (status == BETON_OK)
		status = create_ops(program, err);
	if (status == BETON_OK)
		status = place_tensors(program, err);
	program->info.host_bytes = dtrain__swaps_bytes(program->swaps);
	if (status != BETON_OK) {
		dtrain__program_release(program);
		return status;
	}
	*out = program;
	return BETON_OK;
}

int dtrain__graph_compile(dtrain_graph **graph, const dtrain__pass *passes, int num_passes, dtrain_program **out,
			  beton_error *err)
{
	dtrain_program *program = NULL;
	*out = NULL;
	int status = (*graph)->params->only_plan
			     ? bt_fail(err, BETON_STATE, "a graph of parameters that are only planned is compiled")
			     : make_program(*graph, passes, num_passes, &program, err);
	if (status == BETON_OK)
		status = dtrain__swaps_open(program->swaps, err);
	if (status == BETON_OK)
		status = dtrain__program_allocate(program, err);
	if (status == BETON_OK)
		status = dtrain_instance_create(program, &program->first, err);
	if (status != BETON_OK) {
		if (program)
			dtrain__program_release(program);
		return status;
	}
	*graph = NULL;
	*out = program;
	return BETON_OK;
}

int dtrain_graph_compile(dtrain_graph **graph, dtrain_program **out, beton_error *err)
{
	if (BT_MISSING(err, graph, out) || BT_MISSING(err, *graph))
		return BETON_INVALID_ARGUMENT;
	return dtrain__graph_compile(graph, NULL, 0, out, err);
}

/* The same graph and schedule with ops of its own, without memory to run in. */
static int make_again(const dtrain_program *program, dtrain_program *fresh, beton_error *err)
{
	*fresh = *program;
	fresh->steps = NULL;
	fresh->operands = NULL;
	fresh->places = NULL;
	fresh->spans = NULL;
	fresh->first = NULL;
	fresh->info = (dtrain_program_info){0};
	int status = allocate_tables(fresh, err);
	if (status == BETON_OK)
		status = create_ops(fresh, err);
	return status == BETON_OK ? place_tensors(fresh, err) : status;
}

static size_t memory_of(const dtrain_program *program)
{
	return program->info.arena_bytes + program->info.workspace_bytes;
}

static bool has_memory(const dtrain_program *program, const dtrain_program *fresh)
{
	size_t more = memory_of(fresh) > memory_of(program) ? memory_of(fresh) - memory_of(program) : 0;
	return !more || program->api->free_memory(program->device) > more;
}

int dtrain_program_recompile(dtrain_program *program, beton_error *err)
{
	if (BT_MISSING(err, program))
		return BETON_INVALID_ARGUMENT;
	/* Ranks have agreed on the places of transient buffers, and instances on what they share. */
	if (program->swaps || program->schedule.num_transients || program->graph->shares_scratch)
		return bt_fail(err, BETON_UNSUPPORTED,
			       "a program that exchanges memory with other ranks, instances or the host keeps its ops");
	dtrain_program fresh;
	int status = make_again(program, &fresh, err);
	if (status == BETON_OK && !has_memory(program, &fresh))
		status = bt_fail(err, BETON_NO_MEMORY, "the ops' new algorithms need %zu bytes more",
				 memory_of(&fresh) - memory_of(program));
	if (status != BETON_OK) {
		dtrain__program_release_ops(&fresh);
		return status;
	}
	dtrain_instance_destroy(&program->first);
	dtrain__program_release_ops(program);
	*program = fresh;
	return dtrain_instance_create(program, &program->first, err);
}

int dtrain__graph_measure(dtrain_graph **graph, const dtrain__pass *passes, int num_passes, dtrain_program_info *out,
			  beton_error *err)
{
	dtrain_program *program = NULL;
	int status = make_program(*graph, passes, num_passes, &program, err);
	if (status == BETON_OK) {
		dtrain_program_get_info(program, out);
		dtrain__program_release(program);
	}
	dtrain_graph_destroy(graph);
	return status;
}

int dtrain_graph_measure(dtrain_graph **graph, dtrain_program_info *out, beton_error *err)
{
	if (BT_MISSING(err, graph, out) || BT_MISSING(err, *graph))
		return BETON_INVALID_ARGUMENT;
	return dtrain__graph_measure(graph, NULL, 0, out, err);
}
