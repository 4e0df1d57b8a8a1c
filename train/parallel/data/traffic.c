/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that a rank keeps and sends for its strategy.
 */
#include "common/sized.h"
#include "core/params.h"
#include "sync.h"
#include "traffic.h"

void dtrain__sync_note_traffic(dtrain_sync *sync, const dtrain_graph *graph, const sync_program *program)
{
	sync_traffic *traffic = &sync->traffic[sync_number(graph)];
	*traffic = (sync_traffic){0};
	for (int i = 0; i < program->num_exchanges; i++) {
		const sync_exchange *exchange = &program->exchanges[i];
		uint64_t bytes = (uint64_t)exchange->count * dtrain_dtype_size(exchange->dtype);
		traffic->exchanges_of_micro_batch +=
			exchange->kind != SYNC_ALLREDUCE
				? dtrain__sent_of_parts(bytes * (uint64_t)exchange->ranks, exchange->ranks)
				: dtrain__sent_for_sum(bytes, exchange->ranks);
	}
	for (int i = 0; i < program->num_gathers; i++) {
		const sync_form *form = &program->gathers[i].form;
		uint64_t bytes = dtrain__sent_of_parts((uint64_t)form->count * (uint64_t)sync->num_shards *
							       dtrain_dtype_size(form->dtype),
						       sync->num_shards);
		if (form->is_whole)
			traffic->gathers_of_step += bytes;
		else
			traffic->gathers_of_micro_batch += bytes;
	}
}

/* For the sum of the parts of a unit's gradients that the ranks of one model have. */
static uint64_t sent_for_parts(const dtrain_sync *sync, const sync_reduction *reduction)
{
	uint32_t axes = reduction->unit < 0 ? 0 : sync->params->units[reduction->unit].partial_axes;
	int64_t count = reduction->shard_count ? reduction->shard_count : reduction->count;
	uint64_t bytes = 0;
	for (int axis = 0; axis < DTRAIN_AXES; axis++)
		if (axes >> axis & 1)
			bytes += dtrain__sent_for_sum((uint64_t)count * dtrain_dtype_size(sync->params->dtype),
						      sync->params->lines.along[axis].size);
	return bytes;
}

/* By an allreduce of `count` elements over so many ranks, or by the hook in its place. */
static uint64_t sent_for_sum(const dtrain_sync *sync, const sync_reduction *reduction, int64_t count, int32_t ranks)
{
	const dtrain_hook *hook = &sync->hook;
	uint64_t bytes = 0;
	if (!reduction->state || !hook->sent)
		return dtrain__sent_for_sum((uint64_t)count * dtrain_dtype_size(sync->params->dtype), ranks);
	for (int round = 0; round < hook->rounds; round++)
		bytes += hook->sent(reduction->state, round);
	return bytes;
}

static void add_reduction(const dtrain_sync *sync, const sync_reduction *reduction, int micro_batches,
			  dtrain_sync_info *info)
{
	info->exchanged += sent_for_parts(sync, reduction);
	if (!reduction->shard_count) {
		info->added_up +=
			sent_for_sum(sync, reduction, reduction->count, sync->num_shards * sync->num_replicas);
		return;
	}
	uint64_t times = reduction->each_micro_batch ? (uint64_t)micro_batches : 1;
	uint64_t shard = (uint64_t)reduction->shard_count * dtrain_dtype_size(sync->params->dtype);
	info->scattered += times * dtrain__sent_of_parts((uint64_t)reduction->count * dtrain_dtype_size(sync->sent),
							 sync->num_shards);
	/* In the order of parts each replica gets all the others' shards, after each sum over shards. */
	info->added_up += reduction->tree ? times * shard * (uint64_t)(sync->num_replicas - 1)
					  : sent_for_sum(sync, reduction, reduction->shard_count, sync->num_replicas);
}

void dtrain_sync_get_info(const dtrain_sync *sync, int micro_batches, dtrain_sync_info *out)
{
	if (!sync || !out)
		return;
	dtrain_sync_info info = {.struct_size = sizeof(info),
				 .shards = sync->num_shards,
				 .replicas = sync->num_replicas,
				 .sums_bytes = sync->sums_bytes};
	for (int i = 0; i < DTRAIN_MAX_STAGES; i++) {
		const sync_traffic *traffic = &sync->traffic[i];
		info.exchanged += (uint64_t)micro_batches * traffic->exchanges_of_micro_batch;
		info.gathered += traffic->gathers_of_step + (uint64_t)micro_batches * traffic->gathers_of_micro_batch;
	}
	for (int i = 0; i < sync->count && sync->covered; i++)
		add_reduction(sync, &sync->reductions[i], micro_batches, &info);
	bt_sized_give(out, &info);
}
