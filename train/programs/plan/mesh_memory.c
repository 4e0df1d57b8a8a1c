/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "mesh_plan.h"

/* Values and gradients are F32; in 16-bit types there are copies of the values, which zero1 and zero2 gather in their
 * place. ZeRO (1910.02054), section 5: of `shard` ranks each keeps a part. */
static void keep(const plan_costs *costs, const plan_mesh *mesh, double elements, plan_mesh_memory *out)
{
	const double f32 = sizeof(float), part = elements / mesh->shard;
	const bool zero3 = strcmp(mesh->strategy, "zero3") == 0;
	const bool whole_gradients = strcmp(mesh->strategy, "ddp") == 0 || strcmp(mesh->strategy, "zero1") == 0;
	const bool has_copies = costs->question->engine.dtype != DTRAIN_F32;
	const bool whole_values = strcmp(mesh->strategy, "ddp") == 0 || (!zero3 && !has_copies);
	out->elements = elements;
	out->values = f32 * (whole_values ? elements : part);
	out->copies = has_copies ? 2 * (zero3 ? part : elements) : 0;
	out->gradients = f32 * (whole_gradients ? elements : part);
	out->sums = mesh->micro_batches > 1 ? out->gradients : 0;
	out->states = costs->question->example.job.states * f32 * part;
}

/* A rank keeps activations of its micro-batches, and the tensors that it received for them. */
static int keep_micro_batches(const plan_mesh *mesh, const plan_cost *stages, const plan_schedule *schedule,
			      plan_mesh_memory *rank, beton_error *err)
{
	const int32_t count = mesh->pipeline * mesh->chunks;
	const bool has_transients = strcmp(mesh->strategy, "ddp") != 0 && strcmp(mesh->strategy, "zero1") != 0;
	dtrain_stage_memory sizes[DTRAIN_MAX_STAGES] = {{0}};
	dtrain_rank_memory kept;
	int status = BETON_OK;
	for (int32_t i = 0; i < count; i++) {
		if (plan_mesh_rank_of_stage(mesh, i) != rank->rank)
			continue;
		const bool last = i + 1 == count;
		sizes[i].arena = (size_t)(stages[i].arena - stages[i].common);
		sizes[i].own = has_transients || stages[i].common == 0;
		rank->arena += stages[i].arena;
		rank->common += stages[i].common;
		rank->messages += schedule->live[i] * stages[i].received + (last ? 0 : stages[i + 1].received);
	}
	if (mesh->chunks == 1) {
		/* No other stage can use its memory. */
		kept.micro_batches = schedule->live[rank->rank];
		kept.arena = (size_t)kept.micro_batches * sizes[rank->rank].arena;
	} else {
		status = dtrain_pipeline_schedule_memory(schedule->lists, rank->rank, sizes, &kept, err);
	}
	rank->activations = (double)kept.arena + rank->common;
	rank->live = kept.micro_batches;
	return status;
}

int plan_mesh_remember(const plan_costs *costs, const plan_mesh *mesh, const plan_schedule *schedule,
		       const plan_cost *stages, plan_mesh_memory *out, beton_error *err)
{
	int status = BETON_OK;
	*out = (plan_mesh_memory){0};
	for (int32_t r = 0; r < mesh->pipeline && status == BETON_OK; r++) {
		plan_mesh_memory rank = {.rank = r};
		double elements = 0;
		for (int32_t i = 0; i < mesh->pipeline * mesh->chunks; i++) {
			if (plan_mesh_rank_of_stage(mesh, i) != r)
				continue;
			elements += stages[i].elements;
			rank.batches += mesh->micro_batches > 1 ? stages[i].batches : stages[i].batch;
		}
		keep(costs, mesh, elements, &rank);
		status = keep_micro_batches(mesh, stages, schedule, &rank, err);
		rank.total = rank.values + rank.copies + rank.gradients + rank.sums + rank.states + rank.activations +
			     rank.messages + rank.batches;
		if (rank.total > out->total)
			*out = rank;
	}
	return status;
}
