/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that a program runs in, and its runs.
 */
#include <stdlib.h>

#include "capture.h"
#include "common/error.h"
#include "op.h"
#include "params.h"
#include "program.h"

/* Ranks exchange what is in transient buffers. */
static int allocate_arena(const dtrain_program *program, size_t bytes, void **out, dtrain__memory_owner **owner,
			  beton_error *err)
{
	if (!bytes)
		return BETON_OK;
	int status = program->schedule.num_transients
			     ? dtrain__params_take(program->graph->params, DTRAIN__MEMORY_ARENA, program, bytes, out,
						   owner, err)
			     : program->api->alloc(program->device, bytes, out, err);
	if (status != BETON_OK)
		bt_prefix(err, "activations");
	return status;
}

static int allocate_workspace(const dtrain_program *program, void **out, beton_error *err)
{
	size_t bytes = program->info.workspace_bytes;
	int status = bytes ? program->api->alloc(program->device, bytes, out, err) : BETON_OK;
	if (status != BETON_OK)
		bt_prefix(err, "scratch memory of ops");
	return status;
}

int dtrain__program_allocate(dtrain_program *program, beton_error *err)
{
	if (!program->graph->shares_scratch)
		return BETON_OK;
	int status = allocate_arena(program, program->info.shared_bytes, &program->shared, &program->shared_owner, err);
	return status == BETON_OK ? allocate_workspace(program, &program->workspace, err) : status;
}

static int allocate(dtrain_instance *instance, beton_error *err)
{
	const dtrain_program *program = instance->program;
	const dtrain_program_info *info = &program->info;
	int status = allocate_arena(program, info->arena_bytes - info->shared_bytes, &instance->arena,
				    &instance->arena_owner, err);
	if (status != BETON_OK || !info->host_bytes)
		return status;
	status = program->api->host_alloc(program->device, info->host_bytes, &instance->swapped, err);
	if (status != BETON_OK)
		bt_prefix(err, "pinned memory of activations");
	return status;
}

static dtrain_event **event_at(void *state, size_t offset)
{
	return (dtrain_event **)((char *)state + offset);
}

static int open_states(dtrain_instance *instance, beton_error *err)
{
	const dtrain_program *program = instance->program;
	const dtrain__schedule *schedule = &program->schedule;
	int status = BETON_OK;
	instance->states = calloc((size_t)schedule->num_states + 1, sizeof(*instance->states));
	if (!instance->states)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for an instance");
	for (int32_t i = 0; i < schedule->num_states && status == BETON_OK; i++) {
		const dtrain__state *state = &schedule->states[i];
		instance->states[i] = calloc(1, state->bytes);
		if (!instance->states[i])
			status = bt_fail(err, BETON_NO_MEMORY, "out of memory for an instance");
		for (int k = 0; k < state->num_events && status == BETON_OK; k++)
			status = program->api->event_create(program->device,
							    event_at(instance->states[i], state->events[k]), err);
	}
	return status;
}

static void close_states(dtrain_instance *instance)
{
	const dtrain__schedule *schedule = &instance->program->schedule;
	for (int32_t i = 0; instance->states && i < schedule->num_states; i++) {
		for (int k = 0; instance->states[i] && k < schedule->states[i].num_events; k++) {
			dtrain_event *event = *event_at(instance->states[i], schedule->states[i].events[k]);
			if (event)
				instance->program->api->event_destroy(event);
		}
		free(instance->states[i]);
	}
	free(instance->states);
}

static void set_bases(dtrain_instance *instance)
{
	const dtrain_program *program = instance->program;
	const dtrain_graph *graph = program->graph;
	const dtrain_params *params = graph->params;
	uintptr_t *bases = instance->bases, arena = (uintptr_t)instance->arena;
	bases[DTRAIN__BASE_BUFFERS] = (uintptr_t)params->buffer_memory;
	bases[DTRAIN__BASE_STEP_METRICS] = (uintptr_t)dtrain_params_step_metrics(params);
	bases[DTRAIN__BASE_ARENA] = arena;
	bases[DTRAIN__BASE_SHARED] = (uintptr_t)program->shared;
	for (int i = 0; i < dtrain_params_unit_count(params); i++) {
		/* An array that is not whole is in the arena, from the beginning of a transient buffer on. */
		const dtrain__unit_memory *memory = &params->memory[i];
		bases[dtrain__base_of_values(i)] = memory->whole_values ? (uintptr_t)memory->values : 0;
		bases[dtrain__base_of_grads(i)] = memory->whole_grads ? (uintptr_t)memory->grads : 0;
		bases[dtrain__base_of_copies(i)] = memory->whole_copies ? (uintptr_t)memory->copies : 0;
	}
	for (int32_t i = 0; i < graph->num_tensors; i++)
		if (graph->tensors[i].role == DTRAIN__INPUT && !graph->binds_inputs)
			bases[program->places[i].base] = arena + program->spans[i].offset;
}

/* memory: of the instance's activations, which the caller owns; NULL: the instance allocates its own. */
static int create(const dtrain_program *program, const dtrain__instance_memory *memory, dtrain_instance **out,
		  beton_error *err)
{
	dtrain_instance *instance = calloc(1, sizeof(*instance));
	*out = NULL;
	if (!instance)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for an instance");
	instance->program = program;
	instance->bases = calloc(program->num_bases, sizeof(*instance->bases));
	int status = instance->bases ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for an instance");
	if (memory) {
		instance->borrows = true;
		instance->arena = memory->arena;
		instance->swapped = memory->host;
	} else if (status == BETON_OK) {
		status = allocate(instance, err);
	}
	if (status == BETON_OK && !program->graph->shares_scratch)
		status = allocate_workspace(program, &instance->workspace, err);
	if (status == BETON_OK)
		status = open_states(instance, err);
	if (status != BETON_OK) {
		dtrain_instance_destroy(&instance);
		return status;
	}
	set_bases(instance);
	*out = instance;
	return BETON_OK;
}

int dtrain_instance_create(const dtrain_program *program, dtrain_instance **out, beton_error *err)
{
	return BT_MISSING(err, program, out) ? BETON_INVALID_ARGUMENT : create(program, NULL, out, err);
}

/* Replaces memory of the instance by more. After an error it has as much as before, if the device still has so much. */
static int enlarge(dtrain_instance *instance, void **memory, size_t had, size_t bytes, bool host, beton_error *err)
{
	const dtrain_device_api *api = instance->program->api;
	dtrain_device *device = instance->program->device;
	int (*alloc)(dtrain_device *, size_t, void **, beton_error *) = host ? api->host_alloc : api->alloc;
	if (bytes <= had)
		return BETON_OK;
	if (host)
		api->host_free(device, *memory);
	else
		api->free(device, *memory);
	*memory = NULL;
	int status = alloc(device, bytes, memory, err);
	if (status == BETON_OK)
		return status;
	bt_prefix(err, host ? "pinned memory of activations" : "activations");
	if (had)
		alloc(device, had, memory, NULL);
	return status;
}

int dtrain__instance_enlarge(dtrain_instance *instance, size_t arena, size_t host, beton_error *err)
{
	const dtrain_program_info *info = &instance->program->info;
	int status = enlarge(instance, &instance->arena, info->arena_bytes - info->shared_bytes, arena, false, err);
	if (status == BETON_OK)
		status = enlarge(instance, &instance->swapped, info->host_bytes, host, true, err);
	set_bases(instance);
	return status;
}

int dtrain__instance_create_in(const dtrain_program *program, const dtrain__instance_memory *memory,
			       dtrain_instance **out, beton_error *err)
{
	return create(program, memory, out, err);
}

void dtrain_instance_destroy(dtrain_instance **instance)
{
	if (!instance)
		return;
	if (!*instance)
		return;
	const dtrain_program *program = (*instance)->program;
	dtrain_instance_abandon(*instance);
	dtrain__captures_destroy(*instance, (*instance)->captures);
	close_states(*instance);
	if ((*instance)->swapped && !(*instance)->borrows)
		program->api->host_free(program->device, (*instance)->swapped);
	if (!(*instance)->borrows)
		dtrain__params_give(program->api, program->device, (*instance)->arena, (*instance)->arena_owner);
	program->api->free(program->device, (*instance)->workspace);
	free((*instance)->bases);
	free(*instance);
	*instance = NULL;
}

void *dtrain_instance_data(const dtrain_instance *instance, dtrain_tensor tensor)
{
	if (!instance)
		return NULL;
	const dtrain_graph *graph = instance->program->graph;
	if (tensor < 0 || tensor >= graph->num_tensors)
		return NULL;
	const dtrain__tensor *root = &graph->tensors[dtrain__graph_root(graph, tensor)];
	if (root->role != DTRAIN__INPUT && root->role != DTRAIN__STEP_METRIC && !root->keep)
		return NULL;
	return dtrain__address(instance, instance->program->places[tensor]);
}

int dtrain_instance_bind(dtrain_instance *instance, dtrain_tensor input, void *memory, beton_error *err)
{
	if (BT_MISSING(err, instance))
		return BETON_INVALID_ARGUMENT;
	const dtrain_program *program = instance->program;
	const dtrain_graph *graph = program->graph;
	if (input < 0 || input >= graph->num_tensors || graph->tensors[input].role != DTRAIN__INPUT)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "tensor %d is not an input", input);
	dtrain_device_caps caps;
	program->api->caps(program->device, &caps);
	if (memory && (uintptr_t)memory % caps.alignment != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "memory for input %d is not a multiple of %zu bytes", input,
			       caps.alignment);
	uintptr_t own = graph->binds_inputs ? 0 : (uintptr_t)instance->arena + program->spans[input].offset;
	instance->bases[program->places[input].base] = memory ? (uintptr_t)memory : own;
	return BETON_OK;
}

void *dtrain__instance_transient(const dtrain_instance *instance, int32_t transient)
{
	const dtrain_program *program = instance->program;
	const dtrain__span *span = &program->spans[program->graph->num_tensors + transient];
	return (char *)(span->shared ? program->shared : instance->arena) + span->offset;
}

void dtrain__instance_use_transient(dtrain_instance *instance, int32_t transient)
{
	uint32_t base = instance->program->schedule.transients[transient].base;
	instance->bases[base] = (uintptr_t)dtrain__instance_transient(instance, transient);
}

/* Gives the call that follows the tensor that it changes in place. A call between parts and the whole reads the input
 * itself. */
static int copy_input(const dtrain_instance *instance, int32_t node, dtrain_stream *stream, beton_error *err)
{
	const dtrain_program *program = instance->program;
	const dtrain__step *step = &program->steps[node];
	void *x = dtrain__address(instance, step->operands[0]), *y = dtrain__address(instance, step->operands[1]);
	const dtrain__node *of = &program->graph->nodes[node];
	size_t bytes = program->operands[of->outputs[0]].bytes;
	return x == y || bytes != program->operands[of->inputs[0]].bytes
		       ? BETON_OK
		       : program->api->copy(stream, y, x, bytes, DTRAIN_DEVICE_TO_DEVICE, err);
}

int dtrain__instance_run_node(const dtrain_instance *instance, int32_t node, dtrain_stream *stream, beton_error *err)
{
	const dtrain_program *program = instance->program;
	const dtrain__step *step = &program->steps[node];
	if (!step->op)
		return copy_input(instance, node, stream, err);
	void *operands[2 * DTRAIN_OP_MAX_OPERANDS];
	for (int i = 0; i < step->num_operands; i++) {
		const uint32_t base = step->operands[i].base;
		if (base >= program->first_input && !instance->bases[base])
			return bt_fail(err, BETON_STATE, "run: input %d of the graph is bound to no memory",
				       (int)(base - program->first_input));
		operands[i] = dtrain__address(instance, step->operands[i]);
	}
	void *workspace = program->graph->shares_scratch ? program->workspace : instance->workspace;
	int status = program->api->op_run(step->op, stream, operands, workspace, err);
	if (status != BETON_OK)
		bt_prefix(err, "op %s", dtrain__op_name(program->graph->nodes[node].kind));
	return status;
}

/* ---- phases ---- */

static int run_call(const dtrain__run *run, const dtrain__scheduled *step, beton_error *err)
{
	const dtrain__call *call = &run->instance->program->schedule.calls[step->index];
	int (*part)(void *, const dtrain__run *, beton_error *) = step->kind == DTRAIN__CALL ? call->issue : call->wait;
	dtrain__run own = *run;
	own.state = call->state ? run->instance->states[call->state - 1] : NULL;
	int status = part ? part(call->context, &own, err) : BETON_OK;
	if (status != BETON_OK)
		bt_prefix(err, "%s", call->name);
	return status;
}

void dtrain_instance_abandon(dtrain_instance *instance)
{
	if (!instance || !instance->next_phase)
		return;
	const dtrain__schedule *schedule = &instance->program->schedule;
	instance->next_phase = 0;
	for (int32_t i = 0; i < schedule->num_calls; i++) {
		const dtrain__call *call = &schedule->calls[i];
		if (call->abandon)
			call->abandon(call->context, call->state ? instance->states[call->state - 1] : NULL);
	}
}

static const char *const phase_names[] = {"forward", "backward", "the gradients of weights"};

static int check_run(const dtrain_instance *instance, unsigned phases, int32_t micro_batch, int32_t micro_batches,
		     int *first, int *end, beton_error *err)
{
	for (*first = 0; *first < DTRAIN__PHASES && !(phases >> *first & 1);)
		++*first;
	for (*end = *first; phases >> *end & 1;)
		++*end;
	if (*first == *end || *end > DTRAIN__PHASES || phases >> *end)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "run: phases %#x are none, or do not follow each other",
			       phases);
	if (micro_batch < 0 || micro_batch >= micro_batches)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "run: micro-batch %d of %d", micro_batch, micro_batches);
	if (phases != DTRAIN_ALL_PHASES && instance->program->has_early_grads)
		return bt_fail(err, BETON_STATE,
			       "run: %s alone, and forward computes gradients: build the graph with "
			       "dtrain_graph_interleave",
			       phase_names[*first]);
	if (*first != instance->next_phase)
		return bt_fail(err, BETON_STATE, "run: %s, and the instance's next phase is %s", phase_names[*first],
			       phase_names[instance->next_phase]);
	if (*first > 0 && (micro_batch != instance->micro_batch || micro_batches != instance->micro_batches))
		return bt_fail(err, BETON_STATE,
			       "run: %s of micro-batch %d of %d, and the instance has begun micro-batch %d of %d",
			       phase_names[*first], micro_batch, micro_batches, instance->micro_batch,
			       instance->micro_batches);
	return BETON_OK;
}

int dtrain_instance_run(dtrain_instance *instance, dtrain_stream *stream, unsigned phases, int32_t micro_batch,
			int32_t micro_batches, beton_error *err)
{
	if (BT_MISSING(err, instance, stream))
		return BETON_INVALID_ARGUMENT;
	int first, end, status = check_run(instance, phases, micro_batch, micro_batches, &first, &end, err);
	if (status != BETON_OK)
		return status;
	const dtrain__run run = {
		.instance = instance, .stream = stream, .micro_batch = micro_batch, .micro_batches = micro_batches};
	const dtrain__schedule *schedule = &instance->program->schedule;
	instance->next_phase = end;
	instance->micro_batch = micro_batch;
	instance->micro_batches = micro_batches;
	instance->left_from = 0;
	int32_t next;
	for (int32_t i = first ? schedule->phase_ends[first - 1] : 0;
	     i < schedule->phase_ends[end - 1] && status == BETON_OK; i = next) {
		const dtrain__scheduled *step = &schedule->steps[i];
		next = i + 1;
		status = step->kind == DTRAIN__RUN ? dtrain__captures_run(&run, i, &next, err)
						   : run_call(&run, step, err);
		if (status != BETON_OK)
			instance->left_from = step->kind == DTRAIN__RUN ? next : -1;
	}
	if (status != BETON_OK)
		dtrain_instance_abandon(instance);
	else if (end == DTRAIN__PHASES || !instance->program->graph->has_backward)
		instance->next_phase = 0;
	return status;
}

/* Calls that were issued before an op failed are complete: waiting for them again does nothing. */
int dtrain_program_run_collectives(dtrain_program *program, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, program, stream))
		return BETON_INVALID_ARGUMENT;
	dtrain_instance *instance = program->first;
	const dtrain__schedule *schedule = &program->schedule;
	const dtrain__run run = {.instance = instance, .stream = stream, .micro_batches = 1};
	int status = BETON_OK;
	if (program->graph->has_backward || instance->left_from < 0)
		return bt_fail(err, BETON_STATE, "collectives without ops: %s",
			       instance->left_from < 0 ? "one has failed" : "the program has a backward");
	instance->next_phase = DTRAIN__PHASES;
	for (int32_t i = instance->left_from; i < schedule->count && status == BETON_OK; i++)
		if (schedule->steps[i].kind != DTRAIN__RUN)
			status = run_call(&run, &schedule->steps[i], err);
	instance->left_from = status == BETON_OK ? 0 : -1;
	if (status != BETON_OK)
		dtrain_instance_abandon(instance);
	instance->next_phase = 0;
	return status;
}
