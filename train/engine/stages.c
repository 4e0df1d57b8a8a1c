/* SPDX-License-Identifier: Apache-2.0 */
#include "stages.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/list.h"
#include "common/system.h"

/* ---- the schedule ---- */

static bool has_action(const dtrain_pipeline_schedule *schedule, dtrain_action_kind kind)
{
	for (int32_t i = 0; i < schedule->ranks; i++)
		for (int32_t k = 0; k < schedule->lists[i].count; k++)
			if (schedule->lists[i].actions[k].kind == kind)
				return true;
	return false;
}

static int read_schedule(const engine_job *job, int32_t ranks, dtrain_pipeline_schedule **out, beton_error *err)
{
	int status = dtrain_pipeline_schedule_read(job->schedule_file, out, err);
	if (status != BETON_OK)
		return status;
	const int32_t found = (*out)->ranks, micro_batches = (*out)->micro_batches;
	status = dtrain_pipeline_schedule_check_order(*out, err);
	if (status != BETON_OK)
		bt_prefix(err, "%s", job->schedule_file);
	else if (found != ranks)
		status = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "%s: lists of %" PRId32 " rank%s, and the mesh has pipeline=%" PRId32,
				 job->schedule_file, found, bt_plural((uint64_t)found), ranks);
	else if (micro_batches != job->micro_batches)
		status = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "%s: lists of %" PRId32 " micro-batch%s; use --accumulate %" PRId32,
				 job->schedule_file, micro_batches, micro_batches == 1 ? "" : "es", micro_batches);
	else if ((*out)->stages > DTRAIN_MAX_STAGES)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %" PRId32 " stages, at most %d", job->schedule_file,
				 (*out)->stages, DTRAIN_MAX_STAGES);
	return status;
}

static int name_schedule(const engine_job *job, int32_t ranks, dtrain_pipeline_schedule **out, beton_error *err)
{
	dtrain_pipeline_options options;
	dtrain_pipeline_options_init(&options);
	options.schedule = job->evaluates ? "gpipe" : job->schedule;
	options.chunks = job->evaluates ? 0 : job->chunks;
	options.ranks = ranks;
	options.micro_batches = job->micro_batches;
	int status = dtrain_pipeline_schedule_create(&options, out, err);
	if (status == BETON_OK && (*out)->stages > DTRAIN_MAX_STAGES) {
		const int chunks = DTRAIN_MAX_STAGES / ranks;
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "%" PRId32 " stages, at most %d: %s%d", (*out)->stages,
				 DTRAIN_MAX_STAGES,
				 chunks ? "chunks of a rank can be at most " : "ranks can be at most ",
				 chunks ? chunks : DTRAIN_MAX_STAGES);
	}
	if (status != BETON_OK)
		bt_prefix(err, "--pipeline-schedule");
	return status;
}

static int make_schedule(const engine_job *job, int32_t ranks, dtrain_pipeline_schedule **out, beton_error *err)
{
	bool reads = job->schedule_file && !job->evaluates;
	*out = NULL;
	int status = reads ? read_schedule(job, ranks, out, err) : name_schedule(job, ranks, out, err);
	/* A file may have sends and receives. */
	if (status == BETON_OK && !has_action(*out, DTRAIN_ACTION_SEND_FORWARD))
		status = dtrain_pipeline_schedule_lower(*out, err);
	if (status != BETON_OK)
		dtrain_pipeline_schedule_destroy(out);
	return status;
}

int engine_stages_plan(engine_rank *engine, int32_t ranks, int32_t rank, beton_error *err)
{
	engine->stages = (engine_stages){.rank = rank};
	return ranks > 1 ? make_schedule(&engine->job, ranks, &engine->stages.schedule, err) : BETON_OK;
}

int engine_stages_open(engine_rank *engine, const dtrain_mesh *mesh, beton_error *err)
{
	const dtrain_group *line = mesh ? dtrain_mesh_group(mesh, "pipeline") : NULL;
	return engine_stages_plan(engine, line ? dtrain_group_size(line) : 1, line ? dtrain_group_rank(line) : 0, err);
}

int32_t engine_stages_count(const engine_stages *stages)
{
	int32_t count = stages->schedule ? 0 : 1;
	for (int32_t i = 0; stages->schedule && i < stages->schedule->stages; i++)
		count += stages->schedule->rank_of_stage[i] == stages->rank;
	return count;
}

/* ---- the stages ---- */

/* The blocks of each stage, as the user gives them. */
static int read_borders(const char *list, int32_t blocks, int32_t stages, int32_t *first, beton_error *err)
{
	int64_t sum = 0;
	int32_t count = 0;
	int status = BETON_OK;
	for (const char *at = list; at && status == BETON_OK; count++) {
		char text[32];
		uint64_t size = 0;
		status = bt_list_next("--stages", &at, text, sizeof(text), err);
		if (status == BETON_OK)
			status = bt_parse_u64("--stages", text, 1, INT32_MAX, &size, err);
		if (count < stages)
			first[count] = (int32_t)(sum < blocks ? sum : blocks);
		sum += (int64_t)size;
	}
	if (status == BETON_OK && (count != stages || sum != blocks))
		status = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "--stages: %" PRId32 " stage%s with %" PRId64 " blocks; the schedule has %" PRId32
				 " stages, and the model %" PRId32 " blocks",
				 count, bt_plural((uint64_t)count), sum, stages, blocks);
	return status;
}

static int find_borders(const engine_job *job, const dtrain_graph *whole, int32_t stages, int32_t *first,
			beton_error *err)
{
	int32_t blocks = dtrain_stage_costs(whole, NULL, 0);
	if (job->stages)
		return read_borders(job->stages, blocks, stages, first, err);
	double *costs = calloc((size_t)blocks, sizeof(*costs));
	if (!costs)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the costs of %d blocks", blocks);
	dtrain_stage_costs(whole, costs, blocks);
	int status = dtrain_stage_divide(costs, blocks, stages, first, err);
	free(costs);
	return status;
}

int engine_stages_check(const engine_job *job, const dtrain_graph *whole, beton_error *err)
{
	dtrain_pipeline_schedule *schedule;
	int32_t first[DTRAIN_MAX_STAGES];
	if (job->pipeline <= 1)
		return BETON_OK;
	int status = make_schedule(job, job->pipeline, &schedule, err);
	if (status == BETON_OK)
		status = find_borders(job, whole, schedule->stages, first, err);
	dtrain_pipeline_schedule_destroy(&schedule);
	return status;
}

static void take_tensors(const dtrain_stage *stage, engine_network *network)
{
	dtrain_tensor *tensors[ENGINE_INPUTS + ENGINE_RESULTS + 4] = {&network->hits, &network->random,
								      &network->more[0], &network->more[1]};
	int count = 4;
	for (int i = 0; i < network->num_inputs; i++)
		tensors[count++] = &network->inputs[i].tensor;
	for (int i = 0; i < network->num_results; i++)
		tensors[count++] = &network->results[i];
	for (int i = 0; i < count; i++)
		*tensors[i] = dtrain_stage_tensor(stage, *tensors[i]);
	if (network->num_results && network->results[0] < 0)
		network->num_results = 0;
}

/* Each stage of this rank in a network of its own. */
static int create_stages(engine_rank *engine, dtrain_graph *whole, engine_network *network, beton_error *err)
{
	engine_stages *stages = &engine->stages;
	const dtrain_pipeline_schedule *schedule = stages->schedule;
	const engine_network tensors = *network;
	engine_network *last = NULL;
	int status = BETON_OK;
	for (int32_t i = 0; i < schedule->stages && status == BETON_OK; i++) {
		if (schedule->rank_of_stage[i] != stages->rank)
			continue;
		engine_network *at = last ? calloc(1, sizeof(*at)) : network;
		if (!at)
			return bt_fail(err, BETON_NO_MEMORY, "out of memory for a stage");
		*at = tensors;
		at->graph = NULL;
		at->number = i;
		if (last)
			last->next = at;
		last = at;
		status =
			dtrain_stage_create(whole, stages->first, schedule->stages, i, engine->params, &at->stage, err);
		if (status == BETON_OK)
			take_tensors(at->stage, at);
	}
	return status;
}

int engine_stages_cut(engine_rank *engine, dtrain_params **outline, dtrain_tensor loss, engine_network *network,
		      beton_error *err)
{
	engine_stages *stages = &engine->stages;
	dtrain_graph *whole = network->graph;
	const bool trains = dtrain_graph_training(whole);
	/* Evaluation has the borders of training. A graph that failed has no loss and no blocks; creating a stage says
	 * why. */
	bool known = stages->first[stages->schedule->stages - 1] > 0, failed = trains && loss < 0;
	int status = known || failed ? BETON_OK
				     : find_borders(&engine->job, whole, stages->schedule->stages, stages->first, err);
	network->graph = NULL;
	stages->blocks = dtrain_stage_costs(whole, NULL, 0);
	if (status == BETON_OK)
		status = create_stages(engine, whole, network, err);
	dtrain_graph_destroy(&whole);
	if (status == BETON_OK && !stages->outline) {
		stages->outline = *outline;
		*outline = NULL;
	}
	for (engine_network *at = network; at && status == BETON_OK; at = at->next) {
		if (trains)
			dtrain_stage_backward(at->stage, loss);
		at->graph = dtrain_stage_take_graph(at->stage);
		dtrain_graph_bind_inputs(at->graph);
		if (trains && dtrain_pipeline_schedule_live(stages->schedule, at->number) > 1)
			dtrain_graph_share_scratch(at->graph);
		if (trains && has_action(stages->schedule, DTRAIN_ACTION_WEIGHT_GRADIENT))
			dtrain_graph_defer_weights(at->graph);
	}
	return status;
}

/* ---- the pipeline ---- */

static int connect(dtrain_mesh *mesh, const dtrain_pipeline_schedule *schedule, engine_network *network,
		   beton_error *err)
{
	dtrain_pipeline_stage own[DTRAIN_MAX_STAGES] = {{0}};
	int32_t count = 0;
	for (const engine_network *at = network; at; at = at->next)
		own[count++] =
			(dtrain_pipeline_stage){.number = at->number, .stage = at->stage, .program = at->program};
	int status = dtrain_pipeline_create(mesh, schedule, own, count, &network->pipeline, err);
	for (engine_network *at = network; at; at = at->next)
		at->pipeline = network->pipeline;
	return status;
}

int engine_stages_connect(engine_rank *engine, dtrain_mesh *mesh, engine_network *network, int micro_batches,
			  beton_error *err)
{
	dtrain_pipeline_schedule *schedule = engine->stages.schedule, *serial = NULL;
	if (!network->stage)
		return BETON_OK;
	bool trains = network == &engine->train;
	int status = trains ? BETON_OK : dtrain_pipeline_schedule_serial(schedule, micro_batches, &serial, err);
	if (status == BETON_OK && !trains)
		status = dtrain_pipeline_schedule_lower(serial, err);
	if (status == BETON_OK)
		status = connect(mesh, trains ? schedule : serial, network, err);
	dtrain_pipeline_schedule_destroy(&serial);
	return status;
}

const dtrain_params *engine_whole_params(const engine_rank *engine)
{
	return engine->stages.outline ? engine->stages.outline : engine->params;
}

static void disconnect(engine_network *network)
{
	dtrain_pipeline_destroy(&network->pipeline);
	for (engine_network *at = network; at; at = at->next)
		at->pipeline = NULL;
}

void engine_stages_disconnect(engine_rank *engine)
{
	disconnect(&engine->train);
	disconnect(&engine->val);
}
