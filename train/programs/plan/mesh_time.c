/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh_plan.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

bool plan_mesh_fits(const plan_costs *costs, const plan_mesh_row *row)
{
	return costs->machine->memory <= 0 || row->memory.total <= costs->machine->memory;
}

int32_t plan_mesh_ranks(const plan_mesh *mesh)
{
	return mesh->pipeline * mesh->replicate * mesh->shard * mesh->context * mesh->tensor;
}

plan_line plan_mesh_tensor(const plan_mesh *mesh)
{
	return (plan_line){mesh->tensor, 1};
}

plan_line plan_mesh_context(const plan_mesh *mesh)
{
	return (plan_line){mesh->context, mesh->tensor};
}

/* Ranks of the axis context have gradients of the same parameters. */
plan_line plan_mesh_shard(const plan_mesh *mesh)
{
	return (plan_line){mesh->shard, mesh->tensor * mesh->context};
}

plan_line plan_mesh_replicate(const plan_mesh *mesh)
{
	return (plan_line){mesh->replicate, mesh->tensor * mesh->context * mesh->shard};
}

plan_line plan_mesh_pipeline(const plan_mesh *mesh)
{
	return (plan_line){mesh->pipeline, mesh->tensor * mesh->context * mesh->shard * mesh->replicate};
}

/* ---- a micro-batch ---- */

/* A stage's times for a micro-batch. */
typedef struct stage_time {
	double compute, tensor, context, gathers;
	double exchanges; /* over the axis tensor: sums, or gathers and reductions to shards */
	dtrain_stage_cost cost;
} stage_time;

static double above(double a, double b)
{
	return a > b ? a - b : 0;
}

static bool is(const plan_mesh *mesh, const char *strategy)
{
	return strcmp(mesh->strategy, strategy) == 0;
}

static double bytes_of_values(const plan_costs *costs, double elements)
{
	return elements * (double)dtrain_dtype_size(costs->question->engine.dtype);
}

/* Each layer adds up twice in forward and twice in backward; sums are kept, also if a layer is computed again.
 * Embedding and head of texts add up once each. With divided rows each sum is a reduction to shards and a gather, and
 * the gradients of two weights of a layer need a gather more; the head of a ViT gathers once. */
static double count_exchanges(const plan_costs *costs, const plan_mesh *mesh, const plan_cost *stage, int32_t number)
{
	const bool text = costs->question->example.job.task == &lm_task;
	const bool first = number == 0, last = number + 1 == mesh->pipeline * mesh->chunks;
	if (mesh->tensor == 1)
		return 0;
	if (mesh->sequence)
		return 10 * stage->layers + (text ? 2 * first + 2 * last : last);
	return 4 * stage->layers + (text ? first + last : 0);
}

/* All exchanges of a stage have about the same size. Of each array a rank sends (t - 1) / t, and in a sum twice that.
 */
static double tensor_seconds(const plan_costs *costs, const plan_mesh *mesh, const plan_cost *stage, double exchanges)
{
	const plan_line line = plan_mesh_tensor(mesh);
	if (exchanges <= 0)
		return 0;
	const double bytes = stage->exchanged / exchanges * mesh->tensor / (mesh->tensor - 1);
	return exchanges * (mesh->sequence ? plan_gather(costs->machine, line, bytes)
					   : plan_all_reduce(costs->machine, line, bytes / 2));
}

/* Forward is a third of a step without recomputation; the gradients of weights are another third. */
static double forward_of(const plan_cost *once, const plan_cost *stage)
{
	double share = once->products > 0 ? once->products / 3 / stage->products : 1. / 3;
	return share * stage->seconds;
}

/* zero3 gathers the values for forward and again for backward; zero2 and zero3 reduce the gradients of each
 * micro-batch. Both happen while the stage computes, as far as that takes as long. */
static void add_gathers(const plan_costs *costs, const plan_mesh *mesh, const plan_cost *stage, stage_time *out)
{
	const plan_line line = plan_mesh_shard(mesh);
	const bool each = is(mesh, "zero2") || is(mesh, "zero3");
	double values =
		is(mesh, "zero3") ? plan_gather(costs->machine, line, bytes_of_values(costs, stage->elements)) : 0;
	double gradients = each && mesh->micro_batches > 1
				   ? plan_gather(costs->machine, line, stage->elements * sizeof(float))
				   : 0;
	const bool hides = costs->machine->hides;
	double forward = above(values, hides ? out->cost.forward : 0);
	double backward = above(values + gradients, hides ? out->cost.input_gradient + out->cost.weight_gradient : 0);
	out->gathers = forward + backward;
	out->cost.forward += forward;
	out->cost.input_gradient += backward;
}

/* Keys and values of all ranks are gathered for forward and again for backward, and their gradients are reduced. */
static double context_seconds(const plan_costs *costs, const plan_mesh *mesh, const plan_cost *stage)
{
	const engine_job *job = &costs->question->example.job;
	if (mesh->context == 1)
		return 0;
	double tokens = (double)(costs->question->example.lm.context_length ? costs->question->example.lm.context_length
									    : job->transformer->positions);
	double bytes = 2 * (double)mesh->batch * tokens *
		       (double)(job->transformer->kv_heads * job->transformer->head_size) / mesh->tensor *
		       (double)dtrain_dtype_size(costs->question->engine.dtype);
	return 3 * stage->layers * plan_gather(costs->machine, plan_mesh_context(mesh), bytes);
}

static void find_stage_time(const plan_costs *costs, const plan_mesh *mesh, const plan_cost *stage,
			    const plan_cost *once, int32_t number, stage_time *out)
{
	*out = (stage_time){.compute = stage->seconds, .exchanges = count_exchanges(costs, mesh, stage, number)};
	out->tensor = tensor_seconds(costs, mesh, stage, out->exchanges);
	out->context = context_seconds(costs, mesh, stage);
	double forward = forward_of(once, stage), waits = out->tensor + out->context;
	double forward_waits = waits / 2;
	out->cost = (dtrain_stage_cost){.forward = forward + forward_waits,
					.input_gradient = stage->seconds - 2 * forward + waits - forward_waits,
					.weight_gradient = forward};
	add_gathers(costs, mesh, stage, out);
}

/* ---- once a step ---- */

/* Communication that may happen while something else is computed: its last part is for what is computed last. */
static double exposed(double seconds, double hidden, double parts)
{
	double usual = above(seconds, hidden * (parts - 1) / parts), least = seconds / parts;
	return usual > least ? usual : least;
}

static void add_data(const plan_costs *costs, const plan_mesh *mesh, const plan_cost *stage, const stage_time *time,
		     plan_mesh_time *out)
{
	const plan_machine *machine = costs->machine;
	const plan_line shard = plan_mesh_shard(mesh), replicate = plan_mesh_replicate(mesh),
			context = plan_mesh_context(mesh);
	const double gradients = stage->elements * sizeof(float), parts = stage->layers + 1;
	const double backward = machine->hides ? time->cost.input_gradient + time->cost.weight_gradient : 0;
	double reduced = plan_all_reduce(machine, replicate, gradients / mesh->shard) +
			 plan_all_reduce(machine, context, gradients / mesh->shard);
	double gathered = 0;
	if (mesh->shard > 1 && (is(mesh, "zero1") || mesh->micro_batches == 1))
		reduced += plan_gather(machine, shard, gradients);
	if (is(mesh, "zero1") || is(mesh, "zero2"))
		gathered = plan_gather(machine, shard, bytes_of_values(costs, stage->elements));
	out->data_seconds = reduced + gathered;
	out->data_hidden = backward;
	out->data =
		exposed(reduced, backward, parts) + exposed(gathered, machine->hides ? time->cost.forward : 0, parts);
}

/* Gradients of a tied embedding, which the first and the last stage have. */
static double shared_seconds(const plan_costs *costs, const plan_mesh *mesh, const plan_cost *stages)
{
	plan_line ends = plan_mesh_pipeline(mesh);
	if (mesh->pipeline == 1)
		return 0;
	ends.stride *= mesh->pipeline - 1;
	ends.ranks = 2;
	return plan_all_reduce(costs->machine, ends, stages[0].shared * sizeof(float));
}

/* The memory that an update reads and writes: values and states, gradients, and the copies of the values. */
static double update_bytes(const plan_costs *costs, const plan_mesh_memory *memory, const plan_mesh *mesh)
{
	double part = memory->elements / mesh->shard * sizeof(float);
	double copies = costs->question->engine.dtype == DTRAIN_F32 ? 0 : part / 2;
	return 3 * part + 2 * memory->states + copies;
}

static plan_cost_key key_of(const plan_mesh *mesh)
{
	return (plan_cost_key){.tensor = mesh->tensor,
			       .context = mesh->context,
			       .batch = mesh->batch,
			       .recompute = mesh->recompute,
			       .family = mesh->shard == 1    ? PLAN_FAMILY_WHOLE
					 : is(mesh, "zero2") ? PLAN_FAMILY_ZERO2
					 : is(mesh, "zero3") ? PLAN_FAMILY_ZERO3
							     : PLAN_FAMILY_WHOLE,
			       .sequence = mesh->sequence,
			       .splits_backward = mesh->pipeline > 1 && plan_mesh_splits_backward(mesh->schedule)};
}

/* ---- the whole ---- */

/* Memory of a prediction. */
typedef struct scratch {
	plan_cost stages[DTRAIN_MAX_STAGES], once[DTRAIN_MAX_STAGES];
	stage_time times[DTRAIN_MAX_STAGES];
	dtrain_stage_cost costs[DTRAIN_MAX_STAGES];
} scratch;

static int find_costs(plan_costs *costs, const plan_mesh *mesh, const int32_t *live, scratch *s, beton_error *err)
{
	const int32_t stages = mesh->pipeline * mesh->chunks;
	plan_cost_key key = key_of(mesh);
	int status = plan_costs_of(costs, &key, stages, live, s->stages, err);
	key.recompute = DTRAIN_RECOMPUTE_NONE;
	if (status == BETON_OK && mesh->recompute == DTRAIN_RECOMPUTE_NONE)
		memcpy(s->once, s->stages, (size_t)stages * sizeof(*s->once));
	else if (status == BETON_OK)
		status = plan_costs_of(costs, &key, stages, live, s->once, err);
	for (int32_t i = 0; i < stages && status == BETON_OK; i++) {
		find_stage_time(costs, mesh, &s->stages[i], &s->once[i], i, &s->times[i]);
		s->costs[i] = s->times[i].cost;
		/* Between two stages of a rank is a copy. */
		if (i + 1 < stages)
			s->costs[i].transfer =
				plan_send(costs->machine, plan_mesh_pipeline(mesh), s->stages[i + 1].received);
	}
	return status;
}

/* Sums over the busiest rank's stages. */
static void find_busiest(const plan_mesh *mesh, const scratch *s, plan_mesh_time *out)
{
	double most = -1;
	for (int32_t r = 0; r < mesh->pipeline; r++) {
		plan_mesh_time rank = {.stage = r};
		double busy = 0;
		for (int32_t i = 0; i < mesh->pipeline * mesh->chunks; i++) {
			if (plan_mesh_rank_of_stage(mesh, i) != r)
				continue;
			const stage_time *t = &s->times[i];
			busy += t->compute + t->tensor + t->context + t->gathers;
			rank.compute += t->compute * mesh->micro_batches;
			rank.tensor += t->tensor * mesh->micro_batches;
			rank.context += t->context * mesh->micro_batches;
			rank.gathers += t->gathers * mesh->micro_batches;
			rank.tensor_exchanges += t->exchanges;
			rank.tensor_bytes += s->stages[i].exchanged;
		}
		if (busy > most) {
			most = busy;
			*out = rank;
		}
	}
}

/* The costs of a rank's stages together. */
static plan_cost rank_cost(const plan_mesh *mesh, const scratch *s, int32_t rank, stage_time *time)
{
	plan_cost sum = {0};
	*time = (stage_time){0};
	for (int32_t i = 0; i < mesh->pipeline * mesh->chunks; i++) {
		if (plan_mesh_rank_of_stage(mesh, i) != rank)
			continue;
		sum.elements += s->stages[i].elements;
		sum.layers += s->stages[i].layers;
		time->cost.forward += s->costs[i].forward;
		time->cost.input_gradient += s->costs[i].input_gradient;
		time->cost.weight_gradient += s->costs[i].weight_gradient;
	}
	return sum;
}

static int predict(plan_costs *costs, plan_schedules *schedules, plan_mesh_row *row, scratch *s, beton_error *err)
{
	const plan_mesh *mesh = &row->mesh;
	plan_mesh_time *time = &row->time;
	const plan_schedule *schedule;
	double makespan;
	int status = plan_mesh_schedule(schedules, mesh, &schedule, err);
	if (status == BETON_OK)
		status = find_costs(costs, mesh, schedule->live, s, err);
	if (status == BETON_OK)
		status = plan_mesh_remember(costs, mesh, schedule, s->stages, &row->memory, err);
	if (status != BETON_OK || !plan_mesh_fits(costs, row))
		return status;
	status = plan_mesh_simulate(schedules, mesh, s->costs, &makespan, err);
	if (status != BETON_OK)
		return status;
	find_busiest(mesh, s, time);
	time->pipeline = above(makespan, time->compute + time->tensor + time->context + time->gathers) +
			 shared_seconds(costs, mesh, s->stages);
	stage_time busiest;
	const plan_cost rank = rank_cost(mesh, s, time->stage, &busiest);
	add_data(costs, mesh, &rank, &busiest, time);
	time->update = update_bytes(costs, &row->memory, mesh) / costs->machine->bandwidth;
	time->total = time->compute + time->tensor + time->context + time->gathers + time->pipeline + time->data +
		      time->update;
	const double samples = (double)mesh->batch * mesh->micro_batches * mesh->replicate * mesh->shard;
	time->utilization =
		costs->sample_products * samples / time->total / plan_mesh_ranks(mesh) / costs->machine->peak;
	return BETON_OK;
}

int plan_mesh_predict(plan_costs *costs, plan_schedules *schedules, plan_mesh_row *row, beton_error *err)
{
	scratch *s = calloc(1, sizeof(*s));
	if (!s)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a mesh");
	int status = predict(costs, schedules, row, s, err);
	free(s);
	return status;
}
