/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh_search.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "options/options_table.h"

/* The largest micro-batch that is tried, and the most stages of a rank. */
enum { MOST_SAMPLES = 64, MOST_CHUNKS = 4 };

typedef struct search {
	plan_costs *costs;
	const plan_search_options *options;
	plan_found *found;
	plan_schedules schedules;
	double least; /* bytes of the smallest mesh with a size of micro-batches, without sums over them */
} search;

bool plan_mesh_runs(const plan_mesh *mesh)
{
	const option_row *schedules = &run_rows[run_row_find("pipeline-schedule")];
	const run_options with_context = {.mesh = "context=2"};
	run_axes axes;
	bool known = mesh->pipeline == 1;
	const char *name;
	for (int i = 0; !known && (name = run_row_possible(schedules, i)); i++)
		known = strcmp(name, mesh->schedule) == 0;
	return known && (mesh->context == 1 || run_axes_read(&with_context, &axes, NULL) == BETON_OK);
}

/* ---- what is found ---- */

static int no_memory(beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "out of memory for meshes");
}

static void *grow(void *memory, int count, int *capacity, size_t size)
{
	if (count < *capacity)
		return memory;
	int wanted = *capacity ? 2 * *capacity : 64;
	void *grown = realloc(memory, (size_t)wanted * size);
	*capacity = grown ? wanted : *capacity;
	return grown;
}

static int keep(plan_found *found, const plan_mesh_row *row, beton_error *err)
{
	plan_mesh_row *grown = grow(found->rows, found->count, &found->capacity, sizeof(*row));
	if (!grown)
		return no_memory(err);
	found->rows = grown;
	found->rows[found->count++] = *row;
	return BETON_OK;
}

/* row NULL: it is not memory. */
static int refuse(plan_found *found, const char *reason, const plan_mesh_row *row, beton_error *err)
{
	int i = 0;
	while (i < found->num_refusals && strcmp(found->refusals[i].reason, reason) != 0)
		i++;
	if (i == found->num_refusals) {
		plan_refusal *grown = grow(found->refusals, i, &found->refusals_capacity, sizeof(*found->refusals));
		if (!grown)
			return no_memory(err);
		found->refusals = grown;
		grown[i] = (plan_refusal){.count = 0};
		snprintf(grown[i].reason, sizeof(grown[i].reason), "%s", reason);
		found->num_refusals++;
	}
	plan_refusal *refusal = &found->refusals[i];
	refusal->count++;
	if (row && (refusal->closest.memory.total <= 0 || row->memory.total < refusal->closest.memory.total))
		refusal->closest = *row;
	if (row && row->memory.total > refusal->most)
		refusal->most = row->memory.total;
	return BETON_OK;
}

void plan_found_close(plan_found *found)
{
	free(found->rows);
	free(found->refusals);
	*found = (plan_found){0};
}

/* ---- the search, from the outer loop to the inner one ---- */

/* An impossible mesh is counted by its reason. */
static int refuse_fault(plan_found *found, int status, const beton_error *fault, beton_error *err)
{
	if (status == BETON_NO_MEMORY)
		return bt_fail(err, status, "%s", fault->message);
	return refuse(found, fault->message, NULL, err);
}

static bool is_done(const search *s)
{
	return s->options->only_first && s->found->count > 0;
}

/* Meshes with too few micro-batches are counted together; other faults have their own message. */
static int refuse_schedule(search *s, const plan_mesh *mesh, const beton_error *fault, beton_error *err)
{
	char reason[256];
	const bool few = mesh->chunks > 1 && mesh->micro_batches < mesh->chunks * mesh->pipeline;
	snprintf(reason, sizeof(reason), "--schedule %s: %.200s", mesh->schedule,
		 few ? "a step has too few micro-batches for its ranks" : fault->message);
	return refuse(s->found, reason, NULL, err);
}

static int try_mesh(search *s, const plan_mesh *mesh, beton_error *err)
{
	plan_mesh_row row = {.mesh = *mesh};
	const plan_schedule *schedule;
	beton_error fault = {0};
	if (is_done(s))
		return BETON_OK;
	s->found->considered++;
	if (plan_mesh_schedule(&s->schedules, mesh, &schedule, &fault) == BETON_INVALID_ARGUMENT)
		return refuse_schedule(s, mesh, &fault, err);
	int status = plan_mesh_predict(s->costs, &s->schedules, &row, &fault);
	if (status != BETON_OK)
		return refuse_fault(s->found, status, &fault, err);
	const double bytes = row.memory.total - row.memory.sums;
	s->least = bytes < s->least ? bytes : s->least;
	if (plan_mesh_fits(s->costs, &row))
		return keep(s->found, &row, err);
	char reason[96];
	snprintf(reason, sizeof(reason), "--strategy %s, --recompute %s: too much memory", mesh->strategy,
		 engine_recompute_name(mesh->recompute));
	return refuse(s->found, reason, &row, err);
}

static int try_recomputes(search *s, plan_mesh *mesh, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; engine_recompute_name(i) && status == BETON_OK; i++) {
		mesh->recompute = i;
		if (s->options->recompute < 0 || s->options->recompute == i)
			status = try_mesh(s, mesh, err);
	}
	return status;
}

/* The division into one stage for each rank has been checked. */
static int refuse_stages(search *s, const char *schedule, int32_t stages, beton_error *err)
{
	char reason[128];
	if (stages > s->costs->blocks)
		snprintf(reason, sizeof(reason), "--schedule %s: %d stages of %d blocks; a stage has at least one",
			 schedule, stages, s->costs->blocks);
	else
		snprintf(reason, sizeof(reason), "--schedule %s: %d stages; there are at most %d", schedule, stages,
			 DTRAIN_MAX_STAGES);
	return refuse(s->found, reason, NULL, err);
}

static int try_schedules(search *s, plan_mesh *mesh, beton_error *err)
{
	static const struct {
		const char *name;
		int32_t chunks;
		bool usual;
	} all[] = {{"1f1b", 1, true}, {"zb1p", 1, true},   {"interleaved", 2, true}, {"interleaved", MOST_CHUNKS, true},
		   {"zbv", 2, true},  {"gpipe", 1, false}, {"naive", 1, false}};
	int status = BETON_OK;
	mesh->schedule = all[0].name;
	mesh->chunks = 1;
	if (mesh->pipeline == 1)
		return try_recomputes(s, mesh, err);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && status == BETON_OK; i++) {
		const char *given = s->options->schedule;
		const int32_t stages = mesh->pipeline * all[i].chunks;
		if (given ? strcmp(given, all[i].name) != 0 : !all[i].usual)
			continue;
		mesh->schedule = all[i].name;
		mesh->chunks = all[i].chunks;
		status = stages > DTRAIN_MAX_STAGES || stages > s->costs->blocks
				 ? refuse_stages(s, mesh->schedule, stages, err)
				 : try_recomputes(s, mesh, err);
	}
	return status;
}

/* The divisors next to the given number. */
static int refuse_batch(search *s, int64_t given, int64_t each, beton_error *err)
{
	char reason[160], others[64] = "";
	int64_t below = given < each ? given : each, above = given;
	while (below > 1 && each % below != 0)
		below--;
	while (above < each && each % above != 0)
		above++;
	bt_append(others, sizeof(others), "%" PRId64, below);
	if (above <= each)
		bt_append(others, sizeof(others), " and %" PRId64, above);
	snprintf(reason, sizeof(reason),
		 "--micro-batch %" PRId64 " does not divide a data rank's %" PRId64 " samples of a step; %s %s", given,
		 each, others, above <= each ? "do" : "does");
	return refuse(s->found, reason, NULL, err);
}

static int64_t limit_of(const char *option)
{
	return (int64_t)run_rows[run_row_find(option)].most;
}

/* More micro-batches than dtrain-ffcv has: the next larger divisor that would do. */
static int refuse_micro_batches(search *s, int64_t batch, int64_t each, beton_error *err)
{
	char reason[160], other[64] = "; more data ranks have fewer";
	const int64_t most = limit_of("accumulate"), largest = limit_of("batch-size");
	int64_t larger = each / most;
	while (larger <= largest && (each % larger != 0 || each / larger > most))
		larger++;
	if (larger <= largest)
		snprintf(other, sizeof(other), "; --micro-batch %" PRId64 " has %" PRId64, larger, each / larger);
	snprintf(reason, sizeof(reason),
		 "--micro-batch %" PRId64 ": a step of %" PRId64 " micro-batches, and --accumulate is at most %" PRId64
		 "%s",
		 batch, each / batch, most, other);
	return refuse(s->found, reason, NULL, err);
}

/* Larger micro-batches need more; if this size is none, another one may be. */
static bool is_hopeless(const search *s)
{
	const double memory = s->costs->machine->memory;
	return memory > 0 && s->least > memory && isfinite(s->least);
}

/* Divisors of a data rank's samples: powers of two, and all of them. */
static int try_batches(search *s, plan_mesh *mesh, beton_error *err)
{
	const int32_t data_ranks = mesh->replicate * mesh->shard;
	const int64_t given = s->options->batch, each = s->options->samples / data_ranks;
	int status = BETON_OK;
	if (given && each % given != 0)
		return refuse_batch(s, given, each, err);
	for (int64_t batch = given ? given : 1; batch <= each && status == BETON_OK; batch++) {
		const bool power = (batch & (batch - 1)) == 0;
		if (batch > (given ? given : MOST_SAMPLES))
			break;
		if ((!given && !power && batch != each) || each % batch != 0)
			continue;
		if (each / batch > limit_of("accumulate")) {
			status = refuse_micro_batches(s, batch, each, err);
			continue;
		}
		mesh->batch = batch;
		mesh->micro_batches = (int32_t)(each / batch);
		s->least = HUGE_VAL;
		status = try_schedules(s, mesh, err);
		if (is_hopeless(s))
			break;
	}
	return status;
}

static bool is_asked(int64_t given, int64_t size)
{
	return given == 0 || given == size;
}

static int try_shard(search *s, plan_mesh *mesh, const char *strategy, int32_t shard, int32_t data_ranks,
		     beton_error *err)
{
	mesh->strategy = strategy;
	mesh->shard = shard;
	mesh->replicate = data_ranks / shard;
	return try_batches(s, mesh, err);
}

/* The given strategy is not for shards of this size. */
static int refuse_strategy(search *s, const char *strategy, int32_t shard, int32_t data_ranks, beton_error *err)
{
	char reason[160];
	if (shard > 1)
		snprintf(
			reason, sizeof(reason),
			"--strategy %s: shard=%d; zero1, zero2 and zero3 have shards, and replicate=%d would be for %s",
			strategy, shard, data_ranks, strategy);
	else
		snprintf(reason, sizeof(reason),
			 "--strategy %s: shard=1 of %d data rank%s, which is ddp; %s needs shard=2 or more", strategy,
			 data_ranks, bt_plural((uint64_t)data_ranks), strategy);
	return s->options->strategy ? refuse(s->found, reason, NULL, err) : BETON_OK;
}

/* given: ranks of a shard. 0: all data ranks; zero3 also tries the ranks of a host, with copies on the hosts. */
static int try_strategy(search *s, plan_mesh *mesh, const char *strategy, int32_t given, int32_t data_ranks,
			beton_error *err)
{
	const bool shards = strcmp(strategy, "ddp") != 0;
	const int32_t neighbours = s->costs->machine->host_ranks / (mesh->tensor * mesh->context);
	const int32_t shard = given ? given : shards ? data_ranks : 1;
	if (shards != (shard > 1))
		return refuse_strategy(s, strategy, shard, data_ranks, err);
	int status = try_shard(s, mesh, strategy, shard, data_ranks, err);
	if (status != BETON_OK || given || strcmp(strategy, "zero3") != 0)
		return status;
	return neighbours > 1 && neighbours < data_ranks && data_ranks % neighbours == 0
		       ? try_shard(s, mesh, strategy, neighbours, data_ranks, err)
		       : BETON_OK;
}

/* Ranks of a shard, as --mesh has them with so many data ranks; 0: it says nothing. False: it is not for so many. */
static bool find_shard(const search *s, int32_t data_ranks, int32_t *out)
{
	const int64_t *axes = s->options->axes.size;
	int64_t shard = axes[DTRAIN_AXIS_SHARD], replicate = axes[DTRAIN_AXIS_REPLICATE];
	*out = 0;
	if (shard == 0 && replicate == 0)
		return true;
	shard = shard ? shard : data_ranks / replicate;
	replicate = replicate ? replicate : data_ranks / shard;
	*out = (int32_t)shard;
	return shard * replicate == data_ranks;
}

static int try_strategies(search *s, plan_mesh *mesh, int32_t data_ranks, beton_error *err)
{
	static const char *const all[] = {"ddp", "zero1", "zero2", "zero3"};
	const char *given = s->options->strategy;
	int32_t shard;
	int status = BETON_OK;
	if (!find_shard(s, data_ranks, &shard))
		return BETON_OK;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && status == BETON_OK; i++)
		if (!given || strcmp(given, all[i]) == 0)
			status = try_strategy(s, mesh, all[i], shard, data_ranks, err);
	return status;
}

/* Refuses axes that divide no model, no text or no samples, once for all that they contain. */
static int try_axes(search *s, plan_mesh *mesh, beton_error *err)
{
	const int32_t model = mesh->pipeline * mesh->context * mesh->tensor, data_ranks = s->options->ranks / model;
	/* So many samples have rows that can be divided. */
	const plan_cost_key key = {.tensor = mesh->tensor,
				   .context = mesh->context,
				   .batch = mesh->sequence ? mesh->tensor : 1,
				   .sequence = mesh->sequence};
	plan_cost stages[DTRAIN_MAX_STAGES];
	beton_error fault = {0};
	char reason[256];
	if (is_done(s))
		return BETON_OK;
	/* A model that the axis tensor does not divide has no stages, either. */
	int status = plan_costs_of(s->costs, &key, 1, NULL, stages, &fault);
	if (status == BETON_OK)
		status = plan_costs_of(s->costs, &key, mesh->pipeline, NULL, stages, &fault);
	if (status != BETON_OK)
		return refuse_fault(s->found, status, &fault, err);
	if (s->options->samples % data_ranks != 0) {
		snprintf(reason, sizeof(reason), "%d data ranks do not divide --global-batch %" PRId64, data_ranks,
			 s->options->samples);
		return refuse(s->found, reason, NULL, err);
	}
	return try_strategies(s, mesh, data_ranks, err);
}

/* With and without rows that the axis tensor divides. */
static int try_sequences(search *s, plan_mesh *mesh, beton_error *err)
{
	int status = try_axes(s, mesh, err);
	mesh->sequence = true;
	return status == BETON_OK && mesh->tensor > 1 ? try_axes(s, mesh, err) : status;
}

/* Chunks of a text that are attended to by equally many tokens are two for each rank. Shorter texts of a rank are tried
 * only if the axis is given. */
static bool divides_text(const plan_costs *costs, int32_t context, bool given)
{
	enum { SHORTEST = 512 };
	const engine_example *example = &costs->question->example;
	if (context == 1)
		return true;
	if (example->job.task != &lm_task || example->job.transformer->type == DTRAIN_TRANSFORMER_BERT)
		return false;
	int64_t length = example->lm.context_length ? example->lm.context_length : example->job.transformer->positions;
	return length % (2 * context) == 0 && (given || length / context >= SHORTEST);
}

/* As dtrain-ffcv says it. */
static void explain_context(const plan_costs *costs, int32_t context, beton_error *fault)
{
	engine_job job = costs->question->example.job;
	job.context_ranks = context;
	if (job.task == &lm_task)
		job.task->check(&job, &costs->question->example.data, true, fault);
	else
		bt_fail(fault, BETON_INVALID_ARGUMENT, "--mesh context=%d: is for GPT-2 and Llama, and %s is not",
			context, job.model);
}

/* The search found no mesh with the given sizes, and had no other reason. */
static int refuse_axes(search *s, beton_error *err)
{
	char reason[160];
	snprintf(reason, sizeof(reason),
		 "--mesh: the axes that it does not name cannot have the rest of %d ranks; give sizes with this "
		 "product, "
		 "or fewer of them",
		 s->options->ranks);
	return refuse(s->found, reason, NULL, err);
}

/* Why no mesh has the sizes that are given. */
static int refuse_sizes(search *s, beton_error *err)
{
	const int64_t context = s->options->axes.size[DTRAIN_AXIS_CONTEXT];
	const int64_t pipeline = s->options->axes.size[DTRAIN_AXIS_PIPELINE];
	beton_error fault = {0};
	if (pipeline > DTRAIN_MAX_STAGES)
		bt_fail(&fault, BETON_INVALID_ARGUMENT, "pipeline=%" PRId64 ": at most %d stages", pipeline,
			DTRAIN_MAX_STAGES);
	else if (context > 1 && !divides_text(s->costs, (int32_t)context, true))
		explain_context(s->costs, (int32_t)context, &fault);
	return *fault.message ? refuse(s->found, fault.message, NULL, err) : BETON_OK;
}

static int compare(const void *a, const void *b)
{
	const plan_mesh_row *first = a, *second = b;
	return (first->time.total > second->time.total) - (first->time.total < second->time.total);
}

int plan_search(plan_costs *costs, const plan_search_options *options, plan_found *out, beton_error *err)
{
	search s = {.costs = costs, .options = options, .found = out};
	const int64_t *axes = options->axes.size;
	const int32_t most = options->ranks < DTRAIN_MAX_STAGES ? options->ranks : DTRAIN_MAX_STAGES;
	*out = (plan_found){0};
	int status = refuse_sizes(&s, err);
	for (int32_t p = 1; p <= most && status == BETON_OK; p++)
		for (int32_t c = 1; c <= options->ranks / p && status == BETON_OK; c++)
			for (int32_t t = 1; t <= options->ranks / p / c && status == BETON_OK; t++) {
				plan_mesh mesh = {.pipeline = p, .context = c, .tensor = t};
				if (options->ranks % ((int64_t)p * c * t) == 0 &&
				    divides_text(costs, c, axes[DTRAIN_AXIS_CONTEXT] > 0) &&
				    is_asked(axes[DTRAIN_AXIS_PIPELINE], p) && is_asked(axes[DTRAIN_AXIS_CONTEXT], c) &&
				    is_asked(axes[DTRAIN_AXIS_TENSOR], t))
					status = try_sequences(&s, &mesh, err);
			}
	if (status == BETON_OK && !out->count && !out->num_refusals)
		status = refuse_axes(&s, err);
	if (out->count) /* qsort refuses a null pointer, also for no rows */
		qsort(out->rows, (size_t)out->count, sizeof(*out->rows), compare);
	plan_schedules_close(&s.schedules);
	return status;
}
