/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank keeps and sends for its strategy.
 */
#include "common/sized.h"
#include "core/params.h"
#include "sync.h"

/* Of `bytes` that `ranks` ranks gather, or reduce to shards: what one of them sends. */
static uint64_t sent(uint64_t bytes, int32_t ranks)
{
	return bytes / (uint64_t)ranks * (uint64_t)(ranks - 1);
}

/* The same for arrays that need not divide, and are reduced and gathered again. */
static uint64_t sent_for_sum(uint64_t bytes, int32_t ranks)
{
	return 2 * bytes * (uint64_t)(ranks - 1) / (uint64_t)ranks;
}

void dtrain__sync_note_gathers(dtrain_sync *sync, const sync_program *program)
{
	sync->gathers_of_run = sync->gathers_of_step = 0;
	for (int i = 0; i < program->num_gathers; i++) {
		const sync_form *form = &program->gathers[i].form;
		uint64_t bytes =
			sent((uint64_t)form->count * (uint64_t)sync->num_shards * dtrain_dtype_size(form->dtype),
			     sync->num_shards);
		if (form->is_whole)
			sync->gathers_of_step += bytes;
		else
			sync->gathers_of_run += bytes;
	}
}

static void add_reduction(const dtrain_sync *sync, const sync_reduction *reduction, int runs, dtrain_sync_facts *facts)
{
	size_t element = dtrain_dtype_size(sync->params->dtype);
	uint64_t bytes = (uint64_t)reduction->count * element;
	if (!reduction->shard_count) {
		facts->added_up += sent_for_sum(bytes, sync->num_shards * sync->num_replicas);
		return;
	}
	facts->scattered += (reduction->each_run ? (uint64_t)runs : 1) *
			    sent((uint64_t)reduction->count * dtrain_dtype_size(sync->sent), sync->num_shards);
	facts->added_up += sent_for_sum((uint64_t)reduction->shard_count * element, sync->num_replicas);
}

void dtrain_sync_get_facts(const dtrain_sync *sync, int runs, dtrain_sync_facts *out)
{
	dtrain_sync_facts facts = {.struct_size = sizeof(facts),
				   .shards = sync->num_shards,
				   .replicas = sync->num_replicas,
				   .sums_bytes = sync->sums_bytes,
				   .gathered = sync->gathers_of_step + (uint64_t)runs * sync->gathers_of_run};
	for (int i = 0; i < sync->count && sync->covered; i++)
		add_reduction(sync, &sync->reductions[i], runs, &facts);
	bt_sized_give(out, &facts);
}
