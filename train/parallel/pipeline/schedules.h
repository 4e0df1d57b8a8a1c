/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules of a pipeline inside of the library.
 */
#ifndef DTRAIN_PARALLEL_SCHEDULES_H
#define DTRAIN_PARALLEL_SCHEDULES_H

#include <dtrain/pipeline.h>
#include <stdbool.h>

#include "common/error.h"

/* A schedule without actions, zero-filled but for the numbers. NULL: out of memory. */
dtrain_pipeline_schedule *dtrain__schedule_new(int32_t ranks, int32_t stages, int32_t micro_batches);

enum { DTRAIN__ACTION_KINDS = 8 };
extern const char *const dtrain__action_names[DTRAIN__ACTION_KINDS]; /* "F", "SEND_F" */

/* The text of an action, such as "3SEND_F1". */
enum { DTRAIN__ACTION_TEXT = 40 };
const char *dtrain__action_text(const dtrain_action *action, char out[DTRAIN__ACTION_TEXT]);

static inline bool dtrain__action_computes(dtrain_action_kind kind)
{
	return kind <= DTRAIN_ACTION_WEIGHT_GRADIENT;
}

static inline bool dtrain__action_sends(dtrain_action_kind kind)
{
	return kind == DTRAIN_ACTION_SEND_FORWARD || kind == DTRAIN_ACTION_SEND_BACKWARD;
}

/* "rank 2"; of a file "line 3 (rank 2)". file: NULL allowed. */
enum { DTRAIN__RANK_TEXT = 48 };
const char *dtrain__rank_text(const char *file, int32_t rank, char out[DTRAIN__RANK_TEXT]);

/* Whether the lists have sends and receives. */
bool dtrain__schedule_is_lowered(const dtrain_pipeline_schedule *schedule);

/* The send of an action's data. False: it has none, or for a stage of the same rank. */
bool dtrain__action_send(const dtrain_pipeline_schedule *schedule, const dtrain_action *action, dtrain_action *out);

/* The other end of a transfer: the RECV_F of a SEND_F, and so on. */
dtrain_action dtrain__action_peer(const dtrain_action *action);

/* dtrain_pipeline_schedule_check; file: of the lists, NULL allowed. Messages name it and its lines, one for each rank.
 */
int dtrain__schedule_verify(const dtrain_pipeline_schedule *schedule, const char *file, beton_error *err);

/* An array for each rank with an element for each action of its list. The caller frees it at once. NULL: out of memory.
 */
dtrain_action_time **dtrain__action_times(const dtrain_pipeline_schedule *schedule);

/* Runs the lists as ranks would. A rank computes one action at a time. A transfer of a compute list begins when its
 * data is ready. In lowered lists a rank's transfers begin in order, each when both ranks have reached it, and a rank
 * sends one and receives one at a time. The actions must be in range and on their ranks. costs: [stages]; times: see
 * dtrain__action_times; file: of the lists, NULL allowed. Errors: INVALID_ARGUMENT (no rank can go on; the message has
 * the action for which each waits), NO_MEMORY; the caller puts a name before the message. */
int dtrain__schedule_run(const dtrain_pipeline_schedule *schedule, const dtrain_stage_cost *costs,
			 dtrain_action_time *const *times, const char *file, beton_error *err);

/* Memory for one micro-batch at a time. */
typedef struct dtrain__slot {
	dtrain_stage_memory memory;
	int32_t stage;   /* whose micro-batch needed it first */
	bool is_first;   /* the memory that the stage's program was compiled with, or more */
	uint64_t stages; /* a bit for each stage that uses it */
} dtrain__slot;

/* The memory of a rank's micro-batches: of each stage's first one, in the order of the stages, then the rest. */
typedef struct dtrain__slots {
	int32_t count;
	dtrain__slot *slots;
	int32_t *of; /* [stages][micro_batches]; -1: a stage of another rank */
} dtrain__slots;

/* See dtrain_pipeline_schedule_memory. The caller frees the slots, also after an error. */
int dtrain__slots_assign(const dtrain_pipeline_schedule *schedule, int32_t rank, const dtrain_stage_memory *sizes,
			 dtrain__slots *out, beton_error *err);
void dtrain__slots_free(dtrain__slots *slots);

#endif
