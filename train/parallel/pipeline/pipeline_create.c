/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory, the lanes and the groups of a rank's part of a pipeline.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/group/group.h"
#include "comm/group/work.h"
#include "common/error.h"
#include "core/program.h"
#include "pipeline.h"

/* Sets of stages with common parameters that a rank has. */
enum { SHARINGS = 8 };

static int no_memory(beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory");
}

/* ---- borders ---- */

typedef const dtrain_crossing *crossing_at(const dtrain_stage *stage, int32_t index);

static int open_border(pipeline_border *border, const dtrain_pipeline_stage *of, crossing_at *at, int32_t peer,
		       beton_error *err)
{
	while (at(of->stage, border->count))
		border->count++;
	size_t count = (size_t)border->count + 1;
	border->peer = peer;
	border->crossings = calloc(count, sizeof(*border->crossings));
	border->elements = calloc(count, sizeof(*border->elements));
	border->dtypes = calloc(count, sizeof(*border->dtypes));
	if (!border->crossings || !border->elements || !border->dtypes)
		return no_memory(err);
	for (int32_t i = 0; i < border->count; i++) {
		dtrain_tensor value = at(of->stage, i)->value;
		border->crossings[i] = *at(of->stage, i);
		border->elements[i] = dtrain_shape_count(dtrain_program_shape(of->program, value));
		border->dtypes[i] = dtrain_program_dtype(of->program, value);
	}
	return border->count <= PIPELINE_MOST_CROSSINGS
		       ? BETON_OK
		       : bt_fail(err, BETON_UNSUPPORTED, "pipeline: %d tensors cross a border of stage %d, at most %d",
				 border->count, of->number, PIPELINE_MOST_CROSSINGS);
}

static void close_border(pipeline_border *border)
{
	free(border->crossings);
	free(border->elements);
	free(border->dtypes);
}

/* ---- inputs ---- */

static bool crosses(const pipeline_stage *stage, dtrain_tensor tensor)
{
	for (int32_t i = 0; i < stage->before.count; i++)
		if (stage->before.crossings[i].value == tensor)
			return true;
	for (int32_t i = 0; i < stage->after.count; i++)
		if (stage->after.crossings[i].gradient == tensor)
			return true;
	return false;
}

static int find_inputs(pipeline_stage *stage, beton_error *err)
{
	const dtrain_graph *graph = stage->program->graph;
	pipeline_inputs *inputs = &stage->inputs;
	inputs->tensors = calloc((size_t)graph->num_tensors + 1, sizeof(*inputs->tensors));
	if (!inputs->tensors)
		return no_memory(err);
	for (int32_t i = 0; i < graph->num_tensors; i++)
		if (graph->tensors[i].role == DTRAIN__INPUT && !crosses(stage, i))
			inputs->tensors[inputs->count++] = i;
	return BETON_OK;
}

/* ---- rooms ---- */

/* The actions between which a micro-batch has a room. */
typedef struct interval {
	int32_t first, last; /* last -1: it needs none */
	int32_t micro_batch;
} interval;

static void include(interval *of, int32_t at)
{
	of->first = of->last < 0 ? at : of->first;
	of->last = at;
}

/* Inputs, values and gradients are read until the last action that computes. The caller fills the inputs of all stages
 * before a micro-batch's first forward. */
static void find_intervals(const dtrain_pipeline *pipeline, int32_t number, interval *inputs, interval *values,
			   interval *grads)
{
	for (int32_t i = 0; i < pipeline->micro_batches; i++)
		inputs[i] = values[i] = grads[i] = (interval){.last = -1, .micro_batch = i};
	for (int32_t i = 0; i < pipeline->num_actions; i++) {
		const dtrain_action *action = &pipeline->actions[i];
		const int32_t m = action->micro_batch;
		bool forward = action->kind == DTRAIN_ACTION_FORWARD;
		bool computes = dtrain__action_computes(action->kind);
		if (forward || (computes && action->stage == number))
			include(&inputs[m], i);
		if (action->stage != number)
			continue;
		if (computes || action->kind == DTRAIN_ACTION_RECEIVE_FORWARD)
			include(&values[m], i);
		if ((computes && !forward) || action->kind == DTRAIN_ACTION_RECEIVE_BACKWARD)
			include(&grads[m], i);
	}
}

static int by_first(const void *a, const void *b)
{
	const interval *x = a, *y = b;
	return (x->first > y->first) - (x->first < y->first);
}

/* Gives each micro-batch the first room that is free, by their first actions. */
static int assign(pipeline_rooms *rooms, interval *of, int32_t count, beton_error *err)
{
	int32_t *ends = calloc((size_t)count, sizeof(*ends));
	rooms->of = calloc((size_t)count, sizeof(*rooms->of));
	if (!ends || !rooms->of) {
		free(ends);
		return no_memory(err);
	}
	qsort(of, (size_t)count, sizeof(*of), by_first);
	for (int32_t i = 0; i < count; i++) {
		int32_t room = 0;
		if (of[i].last < 0)
			continue;
		while (room < rooms->count && ends[room] >= of[i].first)
			room++;
		rooms->count = room == rooms->count ? room + 1 : rooms->count;
		ends[room] = of[i].last;
		rooms->of[of[i].micro_batch] = room;
	}
	free(ends);
	return BETON_OK;
}

static int open_rooms(const dtrain_pipeline *pipeline, pipeline_stage *stage, beton_error *err)
{
	const int32_t count = pipeline->micro_batches;
	interval *of = calloc(3 * (size_t)count, sizeof(*of));
	if (!of)
		return no_memory(err);
	find_intervals(pipeline, stage->number, of, of + count, of + 2 * count);
	int status = assign(&stage->of_inputs, of, count, err);
	if (status == BETON_OK)
		status = assign(&stage->of_values, of + count, count, err);
	if (status == BETON_OK)
		status = assign(&stage->of_grads, of + 2 * count, count, err);
	free(of);
	return status;
}

/* ---- instances ---- */

/* Other ranks find transient buffers in the memory of the program's own instances, and an instance with its own scratch
 * memory costs more than its activations. */
static bool has_own_memory(const dtrain_program *program)
{
	return program->schedule.num_transients || !program->graph->shares_scratch;
}

static int assign_slots(dtrain_pipeline *pipeline, const dtrain_pipeline_schedule *schedule, int32_t rank,
			const dtrain_pipeline_stage *stages, int32_t count, beton_error *err)
{
	dtrain_stage_memory *sizes = calloc((size_t)schedule->stages, sizeof(*sizes));
	if (!sizes)
		return no_memory(err);
	for (int32_t i = 0; i < count; i++) {
		const dtrain_program_info *info = &stages[i].program->info;
		sizes[stages[i].number] = (dtrain_stage_memory){.arena = info->arena_bytes - info->shared_bytes,
								.host = info->host_bytes,
								.own = has_own_memory(stages[i].program)};
	}
	int status = dtrain__slots_assign(schedule, rank, sizes, &pipeline->slots, err);
	free(sizes);
	pipeline->memory = calloc((size_t)pipeline->slots.count + 1, sizeof(*pipeline->memory));
	pipeline->users = calloc((size_t)pipeline->slots.count + 1, sizeof(*pipeline->users));
	return status == BETON_OK && (!pipeline->memory || !pipeline->users) ? no_memory(err) : status;
}

/* The memory that several stages may use: that of a program, or of the pipeline. */
static int open_slot(dtrain_pipeline *pipeline, const dtrain__slot *slot, dtrain__instance_memory *memory,
		     beton_error *err)
{
	const dtrain_device_api *api = pipeline->api;
	const dtrain_program *program = dtrain__pipeline_stage(pipeline, slot->stage)->program;
	int status = BETON_OK;
	if (has_own_memory(program))
		return BETON_OK;
	if (slot->is_first) {
		status = dtrain__instance_enlarge(program->first, slot->memory.arena, slot->memory.host, err);
		memory->arena = program->first->arena;
		memory->host = program->first->swapped;
		return status;
	}
	if (slot->memory.arena)
		status = api->alloc(pipeline->device, slot->memory.arena, &memory->arena, err);
	if (status == BETON_OK && slot->memory.host)
		status = api->host_alloc(pipeline->device, slot->memory.host, &memory->host, err);
	if (status != BETON_OK)
		bt_prefix(err, "activations of micro-batches");
	return status;
}

/* The program's own instance is the first. */
static int open_instances(dtrain_pipeline *pipeline, pipeline_stage *stage, beton_error *err)
{
	int status = BETON_OK;
	stage->instances = calloc((size_t)pipeline->slots.count + 1, sizeof(*stage->instances));
	if (!stage->instances)
		return no_memory(err);
	stage->slot_of = pipeline->slots.of + (size_t)stage->number * (size_t)pipeline->micro_batches;
	for (int32_t i = 0; i < pipeline->slots.count && status == BETON_OK; i++) {
		const dtrain__slot *slot = &pipeline->slots.slots[i];
		if (!(slot->stages >> stage->number & 1))
			continue;
		if (slot->is_first && slot->stage == stage->number)
			stage->instances[i] = stage->program->first;
		else if (has_own_memory(stage->program))
			status = dtrain_instance_create(stage->program, &stage->instances[i], err);
		else
			status = dtrain__instance_create_in(stage->program, &pipeline->memory[i], &stage->instances[i],
							    err);
	}
	return status;
}

static int open_slots(dtrain_pipeline *pipeline, beton_error *err)
{
	int status = BETON_OK;
	for (int32_t i = 0; i < pipeline->slots.count && status == BETON_OK; i++)
		status = open_slot(pipeline, &pipeline->slots.slots[i], &pipeline->memory[i], err);
	for (int32_t i = 0; i < pipeline->num_stages && status == BETON_OK; i++)
		status = open_instances(pipeline, &pipeline->stages[i], err);
	return status;
}

static void close_slots(dtrain_pipeline *pipeline)
{
	for (int32_t i = 0; i < pipeline->num_stages; i++) {
		pipeline_stage *stage = &pipeline->stages[i];
		for (int32_t k = 0; stage->instances && k < pipeline->slots.count; k++)
			if (stage->instances[k] != stage->program->first)
				dtrain_instance_destroy(&stage->instances[k]);
		free(stage->instances);
	}
	for (int32_t i = 0; pipeline->memory && i < pipeline->slots.count; i++) {
		if (pipeline->slots.slots[i].is_first)
			continue;
		pipeline->api->free(pipeline->device, pipeline->memory[i].arena);
		pipeline->api->host_free(pipeline->device, pipeline->memory[i].host);
	}
	free(pipeline->memory);
	free(pipeline->users);
	dtrain__slots_free(&pipeline->slots);
}

/* ---- stages ---- */

static int open_memory(const dtrain_pipeline *pipeline, const pipeline_border *border, int32_t rooms, bool grads,
		       void ***out, beton_error *err)
{
	int status = BETON_OK;
	*out = calloc((size_t)rooms * (size_t)border->count + 1, sizeof(**out));
	if (!*out)
		return no_memory(err);
	for (int32_t i = 0; i < rooms * border->count && status == BETON_OK; i++) {
		int32_t k = i % border->count;
		if (!grads || border->crossings[k].gradient >= 0)
			status = pipeline->api->alloc(
				pipeline->device, (size_t)border->elements[k] * dtrain_dtype_size(border->dtypes[k]),
				&(*out)[i], err);
	}
	return status;
}

static int open_inputs(const dtrain_pipeline *pipeline, pipeline_stage *stage, beton_error *err)
{
	const pipeline_inputs *inputs = &stage->inputs;
	const int32_t count = stage->of_inputs.count * inputs->count;
	int status = BETON_OK;
	stage->filled = calloc((size_t)count + 1, sizeof(*stage->filled));
	if (!stage->filled)
		return no_memory(err);
	for (int32_t i = 0; i < count && status == BETON_OK; i++)
		status = pipeline->api->alloc(pipeline->device,
					      stage->program->operands[inputs->tensors[i % inputs->count]].bytes,
					      &stage->filled[i], err);
	return status;
}

static int open_messages(const dtrain_pipeline *pipeline, pipeline_stage *stage, beton_error *err)
{
	int status = BETON_OK;
	for (int d = 0; d < PIPELINE_DIRECTIONS; d++) {
		size_t count = (size_t)dtrain__pipeline_border(stage, (pipeline_direction)d)->count + 1;
		stage->messages[d] = calloc((size_t)pipeline->micro_batches, sizeof(*stage->messages[d]));
		if (!stage->messages[d])
			return no_memory(err);
		for (int32_t m = 0; m < pipeline->micro_batches && status == BETON_OK; m++) {
			stage->messages[d][m].works = calloc(count, sizeof(dtrain_work *));
			status = stage->messages[d][m].works
					 ? pipeline->api->event_create(pipeline->device, &stage->messages[d][m].ready,
								       err)
					 : no_memory(err);
		}
	}
	return status;
}

static int open_stage(dtrain_pipeline *pipeline, const dtrain_pipeline_schedule *schedule,
		      const dtrain_pipeline_stage *given, pipeline_stage *stage, beton_error *err)
{
	const int32_t number = given->number;
	stage->number = number;
	stage->program = given->program;
	int status = open_border(&stage->before, given, dtrain_stage_received,
				 number > 0 ? schedule->rank_of_stage[number - 1] : -1, err);
	if (status == BETON_OK)
		status = open_border(&stage->after, given, dtrain_stage_sent,
				     number + 1 < schedule->stages ? schedule->rank_of_stage[number + 1] : -1, err);
	if (status == BETON_OK)
		status = find_inputs(stage, err);
	if (status == BETON_OK)
		status = open_rooms(pipeline, stage, err);
	if (status == BETON_OK)
		status = open_inputs(pipeline, stage, err);
	if (status == BETON_OK)
		status = open_memory(pipeline, &stage->before, stage->of_values.count, false, &stage->values, err);
	if (status == BETON_OK)
		status = open_memory(pipeline, &stage->after, stage->of_grads.count, true, &stage->grads, err);
	return status == BETON_OK ? open_messages(pipeline, stage, err) : status;
}

static void free_memory(const dtrain_pipeline *pipeline, void **memory, int32_t count)
{
	for (int32_t i = 0; memory && i < count; i++)
		pipeline->api->free(pipeline->device, memory[i]);
	free(memory);
}

static void close_stage(const dtrain_pipeline *pipeline, pipeline_stage *stage)
{
	for (int d = 0; d < PIPELINE_DIRECTIONS; d++) {
		for (int32_t m = 0; stage->messages[d] && m < pipeline->micro_batches; m++) {
			free(stage->messages[d][m].works);
			if (stage->messages[d][m].ready)
				pipeline->api->event_destroy(stage->messages[d][m].ready);
		}
		free(stage->messages[d]);
	}
	free_memory(pipeline, stage->filled, stage->of_inputs.count * stage->inputs.count);
	free_memory(pipeline, stage->values, stage->of_values.count * stage->before.count);
	free_memory(pipeline, stage->grads, stage->of_grads.count * stage->after.count);
	free(stage->inputs.tensors);
	free(stage->of_inputs.of);
	free(stage->of_values.of);
	free(stage->of_grads.of);
	close_border(&stage->before);
	close_border(&stage->after);
}

/* ---- groups ---- */

dtrain_group *dtrain__pipeline_sharers(const dtrain_pipeline *pipeline, uint64_t stages)
{
	for (int32_t i = 0; i < pipeline->num_sharings; i++)
		if (pipeline->sharings[i].stages == stages)
			return pipeline->sharings[i].group;
	return NULL;
}

static void add_sharing(uint64_t *list, int *count, int most, uint64_t stages)
{
	bool several = (stages & (stages - 1)) != 0, known = false;
	for (int i = 0; i < *count; i++)
		known = known || list[i] == stages;
	if (several && !known && *count < most)
		list[(*count)++] = stages;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* The ranks of a set of stages; one rank alone has nothing to add up. */
static bool has_stage_of(const dtrain_pipeline_schedule *schedule, uint64_t stages, int32_t rank)
{
	bool has = false;
	for (int32_t i = 0; i < schedule->stages; i++)
		has = has || ((stages >> i & 1) && schedule->rank_of_stage[i] == rank);
	return has;
}

/* All ranks of the line split it in the same order, though a rank knows the sets of its own stages alone. */
static int open_sharings(dtrain_pipeline *pipeline, const dtrain_pipeline_schedule *schedule, dtrain_group *line,
			 beton_error *err)
{
	const int ranks = dtrain_group_size(line);
	const dtrain_params *params = pipeline->params;
	uint64_t mine[SHARINGS] = {0}, *all = calloc((size_t)ranks * SHARINGS * 2, sizeof(*all));
	int count = 0;
	if (!all)
		return no_memory(err);
	for (int i = 0; i < params->unit_count; i++)
		add_sharing(mine, &count, SHARINGS, params->units[i].stages);
	int status = dtrain__group_gather_host(line, mine, sizeof(mine), all, err), found = 0;
	uint64_t *sets = all + (size_t)ranks * SHARINGS;
	for (int i = 0; i < ranks * SHARINGS; i++)
		add_sharing(sets, &found, ranks * SHARINGS, all[i]);
	qsort(sets, (size_t)found, sizeof(*sets), by_value);
	pipeline->sharings = calloc((size_t)found + 1, sizeof(*pipeline->sharings));
	if (status == BETON_OK && !pipeline->sharings)
		status = no_memory(err);
	for (int i = 0; i < found && status == BETON_OK; i++) {
		bool in = has_stage_of(schedule, sets[i], dtrain_group_rank(line));
		pipeline_sharing *sharing = &pipeline->sharings[pipeline->num_sharings++];
		sharing->stages = sets[i];
		status = dtrain_group_split(line, in ? 0 : -1, dtrain_group_rank(line), NULL, &sharing->group, err);
		if (status == BETON_OK && sharing->group)
			status = dtrain__group_use_device(sharing->group, pipeline->device, err);
	}
	free(all);
	return status;
}

static int open_lanes(dtrain_pipeline *pipeline, beton_error *err)
{
	int lanes = pipeline->trains ? DTRAIN__MESH_LANES : DTRAIN__LANE_FORWARD + 1, status = BETON_OK;
	for (int i = 0; i < lanes && status == BETON_OK; i++)
		status = dtrain__mesh_open_lane(pipeline->mesh, (dtrain__mesh_lane)i, pipeline->device, err);
	return status;
}

/* ---- creation ---- */

static int check(const dtrain_group *line, const dtrain_pipeline_schedule *schedule,
		 const dtrain_pipeline_stage *stages, int32_t count, beton_error *err)
{
	if (!line || dtrain_group_size(line) != schedule->ranks)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "pipeline: a schedule of %d ranks, and the mesh's axis \"pipeline\" has %d",
			       schedule->ranks, line ? dtrain_group_size(line) : 1);
	const int rank = dtrain_group_rank(line);
	int32_t own = 0;
	for (int32_t i = 0; i < schedule->stages; i++)
		own += schedule->rank_of_stage[i] == rank;
	for (int32_t i = 0; i < count; i++)
		if (!stages[i].stage || !stages[i].program || stages[i].number < 0 ||
		    stages[i].number >= schedule->stages || schedule->rank_of_stage[stages[i].number] != rank ||
		    (i > 0 && stages[i].number <= stages[i - 1].number))
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "pipeline: stage %d is not one of rank %d, or not in their order",
				       stages[i].number, rank);
	if (count != own || own == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "pipeline: %d stages of rank %d, which has %d", count, rank,
			       own);
	return dtrain_pipeline_schedule_check_order(schedule, err);
}

static int open_pipeline(dtrain_pipeline *pipeline, const dtrain_pipeline_schedule *schedule, dtrain_group *line,
			 const dtrain_pipeline_stage *stages, int32_t count, beton_error *err)
{
	const dtrain_action_list *list = &schedule->lists[dtrain_group_rank(line)];
	pipeline->actions = calloc((size_t)list->count + 1, sizeof(*pipeline->actions));
	pipeline->stages = calloc((size_t)count, sizeof(*pipeline->stages));
	if (!pipeline->actions || !pipeline->stages)
		return no_memory(err);
	memcpy(pipeline->actions, list->actions, (size_t)list->count * sizeof(*list->actions));
	pipeline->num_actions = list->count;
	pipeline->micro_batches = schedule->micro_batches;
	int status = pipeline->api->event_create(pipeline->device, &pipeline->complete, err);
	for (int32_t i = 0; i < count && status == BETON_OK; i++)
		status = open_stage(pipeline, schedule, &stages[i], &pipeline->stages[pipeline->num_stages++], err);
	if (status == BETON_OK)
		status = assign_slots(pipeline, schedule, dtrain_group_rank(line), stages, count, err);
	if (status == BETON_OK)
		status = open_slots(pipeline, err);
	if (status == BETON_OK)
		status = open_lanes(pipeline, err);
	return status == BETON_OK && pipeline->trains ? open_sharings(pipeline, schedule, line, err) : status;
}

int dtrain_pipeline_create(dtrain_mesh *mesh, const dtrain_pipeline_schedule *schedule,
			   const dtrain_pipeline_stage *stages, int32_t count, dtrain_pipeline **out, beton_error *err)
{
	if (BT_MISSING(err, mesh, schedule, stages, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_group *line = dtrain_mesh_group(mesh, "pipeline");
	*out = NULL;
	int status = check(line, schedule, stages, count, err);
	if (status != BETON_OK)
		return status;
	dtrain_pipeline *pipeline = calloc(1, sizeof(*pipeline));
	if (!pipeline)
		return no_memory(err);
	pipeline->mesh = mesh;
	pipeline->device = stages[0].program->device;
	pipeline->api = stages[0].program->api;
	pipeline->params = stages[0].program->graph->params;
	pipeline->trains = stages[0].program->graph->has_backward;
	status = open_pipeline(pipeline, schedule, line, stages, count, err);
	if (status != BETON_OK)
		dtrain_pipeline_destroy(&pipeline);
	*out = pipeline;
	return status;
}

void dtrain_pipeline_destroy(dtrain_pipeline **out)
{
	if (!out || !*out)
		return;
	dtrain_pipeline *pipeline = *out;
	dtrain__pipeline_drain(pipeline);
	dtrain__pipeline_forget_times(pipeline);
	for (int32_t i = 0; i < pipeline->num_sharings; i++)
		dtrain_group_destroy(&pipeline->sharings[i].group);
	free(pipeline->sharings);
	close_slots(pipeline);
	for (int32_t i = 0; i < pipeline->num_stages; i++)
		close_stage(pipeline, &pipeline->stages[i]);
	if (pipeline->complete)
		pipeline->api->event_destroy(pipeline->complete);
	free(pipeline->stages);
	free(pipeline->actions);
	free(pipeline);
	*out = NULL;
}
