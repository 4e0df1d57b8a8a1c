/* SPDX-License-Identifier: Apache-2.0 */
#include "group_history.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/system.h"
#include "group.h"

group_history *dtrain__history_create(void)
{
	group_history *history = calloc(1, sizeof(*history));
	if (history)
		pthread_mutex_init(&history->mutex, NULL);
	return history;
}

void dtrain__history_destroy(group_history *history)
{
	if (!history)
		return;
	pthread_mutex_destroy(&history->mutex);
	free(history);
}

const char *dtrain__reduce_name(dtrain_reduce_op op)
{
	static const char *const names[] = {
		[DTRAIN_SUM] = "sum", [DTRAIN_MAX] = "max",         [DTRAIN_MIN] = "min",
		[DTRAIN_AVG] = "avg", [DTRAIN_PRODUCT] = "product",
	};
	return names[op];
}

static bool has_peer(const dtrain_group_call *call)
{
	return dtrain__is_message(call->op) || call->op == DTRAIN_GROUP_BROADCAST || call->op == DTRAIN_GROUP_REDUCE ||
	       call->op == DTRAIN_GROUP_GATHER || call->op == DTRAIN_GROUP_SCATTER;
}

static bool reduces(const dtrain_group_call *call)
{
	return call->op == DTRAIN_GROUP_ALLREDUCE || call->op == DTRAIN_GROUP_REDUCE ||
	       call->op == DTRAIN_GROUP_REDUCE_SCATTER;
}

uint64_t dtrain__history_add(group_history *history, const work_item *items, int count, bool in_batch,
			     const char *label)
{
	uint64_t now = bt_now_ns();
	pthread_mutex_lock(&history->mutex);
	uint64_t first = history->count + 1;
	for (int i = 0; i < count; i++) {
		const dtrain_group_call *call = &items[i].call;
		dtrain_record *record = &history->records[++history->count % DTRAIN_HISTORY_LENGTH];
		*record = (dtrain_record){.number = history->count,
					  .batch = in_batch ? first : 0,
					  .sequence = call->sequence + 1,
					  .kind = dtrain__group_op_name(call->op),
					  .count = call->count,
					  .dtype = call->dtype,
					  .bytes = call->count * (int64_t)dtrain_dtype_size(call->dtype),
					  .reduce = reduces(call) ? (int)call->reduce : -1,
					  .peer = has_peer(call) ? call->root : -1,
					  .tag = dtrain__is_message(call->op) ? call->tag : -1,
					  .enqueued_ns = now};
		snprintf(record->label, sizeof(record->label), "%s", label ? label : "");
	}
	pthread_mutex_unlock(&history->mutex);
	return first;
}

/* With the mutex held. NULL: the record was overwritten. */
static dtrain_record *find(group_history *history, uint64_t number)
{
	return number + DTRAIN_HISTORY_LENGTH > history->count ? &history->records[number % DTRAIN_HISTORY_LENGTH]
							       : NULL;
}

void dtrain__history_set(group_history *history, uint64_t first, int count, dtrain_record_state state, uint64_t now_ns)
{
	pthread_mutex_lock(&history->mutex);
	for (int i = 0; i < count; i++) {
		dtrain_record *record = find(history, first + (uint64_t)i);
		if (!record)
			continue;
		record->state = state;
		if (state == DTRAIN_RECORD_STARTED)
			record->started_ns = now_ns;
		else if (state != DTRAIN_RECORD_CAPTURED)
			record->ended_ns = now_ns;
	}
	pthread_mutex_unlock(&history->mutex);
}

void dtrain__history_set_duration(group_history *history, uint64_t first, int count, uint64_t duration_ns)
{
	pthread_mutex_lock(&history->mutex);
	for (int i = 0; i < count; i++) {
		dtrain_record *record = find(history, first + (uint64_t)i);
		if (record)
			record->started_ns = record->ended_ns - duration_ns;
	}
	pthread_mutex_unlock(&history->mutex);
}

bool dtrain__history_waits(group_history *history, int peer, uint64_t before_ns)
{
	bool waits = false;
	pthread_mutex_lock(&history->mutex);
	for (uint64_t back = 0; back < history->count && back < DTRAIN_HISTORY_LENGTH && !waits; back++) {
		const dtrain_record *record = &history->records[(history->count - back) % DTRAIN_HISTORY_LENGTH];
		bool concerned = peer < 0 || (record->tag >= 0 && record->peer == peer);
		waits = concerned && record->state == DTRAIN_RECORD_STARTED && record->started_ns < before_ns;
	}
	pthread_mutex_unlock(&history->mutex);
	return waits;
}

int dtrain__history_read(group_history *history, dtrain_record *records, int capacity)
{
	pthread_mutex_lock(&history->mutex);
	uint64_t kept = history->count < DTRAIN_HISTORY_LENGTH ? history->count : DTRAIN_HISTORY_LENGTH;
	int count = capacity < 0 ? 0 : (uint64_t)capacity < kept ? capacity : (int)kept;
	for (int i = 0; i < count; i++)
		records[i] = history->records[(history->count - (uint64_t)(count - 1 - i)) % DTRAIN_HISTORY_LENGTH];
	pthread_mutex_unlock(&history->mutex);
	return count;
}
