/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules of pipeline parallelism. A schedule has a list of actions for each rank: forward and backward of
 * micro-batches through the rank's stages of the model, in order. Nothing here computes or communicates.
 *
 * A stage is a part of the model between two cuts; stage 0 reads the samples, the last one computes the loss. A rank
 * may have several stages, which are called its chunks.
 */
#ifndef DTRAIN_PIPELINE_H
#define DTRAIN_PIPELINE_H

#include <beton/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of actions, with their letters in the text of a schedule. */
typedef enum dtrain_action_kind {
	DTRAIN_ACTION_FORWARD = 0,          /* F */
	DTRAIN_ACTION_BACKWARD = 1,         /* B: I, then W */
	DTRAIN_ACTION_INPUT_GRADIENT = 2,   /* I: the gradients of activations */
	DTRAIN_ACTION_WEIGHT_GRADIENT = 3,  /* W: the gradients of weights */
	DTRAIN_ACTION_SEND_FORWARD = 4,     /* SEND_F: the stage's outputs, to the next stage */
	DTRAIN_ACTION_RECEIVE_FORWARD = 5,  /* RECV_F: the stage's inputs, from the stage before */
	DTRAIN_ACTION_SEND_BACKWARD = 6,    /* SEND_B: the gradients of the stage's inputs, to the stage before */
	DTRAIN_ACTION_RECEIVE_BACKWARD = 7, /* RECV_B: the gradients of the stage's outputs, from the next stage */
} dtrain_action_kind;

/* An action of one stage for one micro-batch. The first four kinds compute. Sends and receives are asynchronous: the
 * action starts the transfer, which ends before the first action that needs it. */
typedef struct dtrain_action {
	dtrain_action_kind kind;
	int32_t stage, micro_batch;
} dtrain_action;

/* The actions of a rank, in order. */
typedef struct dtrain_action_list {
	dtrain_action *actions; /* [count] */
	int32_t count;
} dtrain_action_list;

/* A schedule: compute lists, or lowered lists, which have the sends and receives too. */
typedef struct dtrain_pipeline_schedule {
	int32_t ranks, stages, micro_batches;
	int32_t *rank_of_stage;    /* [stages] */
	dtrain_action_list *lists; /* [ranks] */
} dtrain_pipeline_schedule;

/* Options of a schedule; dtrain_pipeline_options_init sets the defaults. p: ranks, m: micro_batches, v: chunks. */
typedef struct dtrain_pipeline_options {
	size_t struct_size;
	/* The default is "1f1b".
	 *   "naive"        a micro-batch goes through all stages and back before the next one begins
	 *   "gpipe"        all forwards, then all backwards; with chunks, chunk by chunk
	 *   "1f1b"         p - r - 1 forwards on rank r, then a forward and a backward in turns
	 *   "interleaved"  1f1b over chunks: a group of micro-batches after the other goes through all chunks of a rank
	 *   "zb1p"         like 1f1b, with W apart from I, r pairs later, where it fills the bubble
	 *   "zbv"          two chunks in the shape of a V: rank r has the stages r and 2 p - 1 - r; W apart from I
	 */
	const char *schedule;
	int32_t ranks;         /* p >= 1; default: 1 */
	int32_t chunks;        /* v: stages of a rank. 0, the default: 2 for interleaved and zbv, else 1 */
	int32_t micro_batches; /* m >= 1; default: 1 */
	/* interleaved, zb1p with chunks: micro-batches of a chunk before the next chunk, at least p; the last group may
	 * be smaller, but not smaller than p. 0, the default: p, or the next number that is legal. */
	int32_t group;
} dtrain_pipeline_options;

BETON_API void dtrain_pipeline_options_init_sized(dtrain_pipeline_options *options, size_t size); /* NULL allowed */
static inline void dtrain_pipeline_options_init(dtrain_pipeline_options *options)
{
	dtrain_pipeline_options_init_sized(options, sizeof(*options));
}

/* The compute lists of a schedule. The caller destroys it. Errors: INVALID_ARGUMENT (the schedule does not exist, or
 * not for these numbers; the message has numbers that would do), NO_MEMORY. */
BETON_API int dtrain_pipeline_schedule_create(const dtrain_pipeline_options *options, dtrain_pipeline_schedule **out,
					      beton_error *err);
/* Compute lists with the stages of `of` on the same ranks: each micro-batch goes through all stages and back before the
 * next one begins. The caller destroys it. Errors: INVALID_ARGUMENT (no micro-batch), NO_MEMORY. */
BETON_API int dtrain_pipeline_schedule_serial(const dtrain_pipeline_schedule *of, int32_t micro_batches,
					      dtrain_pipeline_schedule **out, beton_error *err);
BETON_API void dtrain_pipeline_schedule_destroy(dtrain_pipeline_schedule **schedule); /* NULL allowed */

/* The most micro-batches that the stage keeps at a time, from F until B or W. 0: there is no such stage. */
BETON_API int32_t dtrain_pipeline_schedule_live(const dtrain_pipeline_schedule *schedule, int32_t stage);

/* The memory that a stage needs for a micro-batch. */
typedef struct dtrain_stage_memory {
	size_t arena; /* bytes on the device */
	size_t host;  /* bytes in pinned memory of the host */
	bool own;     /* it cannot be another stage's afterwards */
} dtrain_stage_memory;

/* The memory that a rank needs for its micro-batches. */
typedef struct dtrain_rank_memory {
	size_t arena, host;    /* bytes, as in dtrain_stage_memory */
	int32_t micro_batches; /* that it has memory for at a time, of all its stages */
} dtrain_rank_memory;

/* The memory for the micro-batches that a rank keeps, from F until B or W and until their results are sent or copied,
 * at least for one in each stage. A stage uses memory that another stage of the rank has left, where that saves memory.
 * sizes: [schedule->stages]; other ranks' stages are not read. Errors: INVALID_ARGUMENT (no such rank, or more than
 * DTRAIN_MAX_STAGES stages), NO_MEMORY. */
BETON_API int dtrain_pipeline_schedule_memory(const dtrain_pipeline_schedule *schedule, int32_t rank,
					      const dtrain_stage_memory *sizes, dtrain_rank_memory *out,
					      beton_error *err);

/* Adds sends and receives to compute lists: none where both stages are on one rank. There is one order of all
 * transfers that agrees with each list, so they cannot deadlock, even if each of them waits for its peer. A receive
 * comes before the action that the rank runs when the data is ready. After an error the schedule is unchanged. Errors:
 * STATE (the lists have transfers already), NO_MEMORY, and as dtrain_pipeline_schedule_check. */
BETON_API int dtrain_pipeline_schedule_lower(dtrain_pipeline_schedule *schedule, beton_error *err);

/* Whether ranks can run the lists: each stage is on one rank and has, for each micro-batch, one F and then either one B
 * or one I and then one W; lowered lists have each transfer once at both ends, after the action that makes the data and
 * before the action that needs it; and the lists end when a rank runs its transfers one at a time, in order, each when
 * both ranks have reached it. Errors: INVALID_ARGUMENT (the message has rank and action, or the action for which each
 * rank waits), NO_MEMORY. */
BETON_API int dtrain_pipeline_schedule_check(const dtrain_pipeline_schedule *schedule, beton_error *err);

/* Whether each stage runs the micro-batches in their order: F, the gradients of activations (B or I), and the gradients
 * of weights (B or W). dtrain_pipeline_create requires it, because gradients are added up in that order. schedule: one
 * that dtrain_pipeline_schedule_check accepts. Errors: INVALID_ARGUMENT (the message has rank and action), NO_MEMORY.
 */
BETON_API int dtrain_pipeline_schedule_check_order(const dtrain_pipeline_schedule *schedule, beton_error *err);

/* Reads lists in the form of torch.distributed.pipelining: a line for each rank, with an action such as 0F1, 2B0, 1I3,
 * 1W3, 1SEND_F3 or 2RECV_F3 in each cell and commas between them. Empty cells are ignored, and PyTorch's actions of
 * sharded parameters (UNSHARD, RESHARD, REDUCE_GRAD) and of waiting; (0F1;7B0)OVERLAP_F_B is read as 0F1,7B0. The lists
 * are checked: see dtrain_pipeline_schedule_check. The caller destroys the schedule. Errors name the file, the line and
 * the action: NOT_FOUND, IO, NO_MEMORY, FORMAT (not such a text), INVALID_ARGUMENT (no text; ranks cannot run the
 * lists). */
BETON_API int dtrain_pipeline_schedule_read(const char *path, dtrain_pipeline_schedule **out, beton_error *err);

/* The same for the text of such a file. name: for messages. */
BETON_API int dtrain_pipeline_schedule_parse(const char *text, const char *name, dtrain_pipeline_schedule **out,
					     beton_error *err);

/* The text of lists, malloc'ed. PyTorch reads the text of compute lists. Error: NO_MEMORY. */
BETON_API int dtrain_pipeline_schedule_text(const dtrain_pipeline_schedule *schedule, char **out, beton_error *err);

/* Times of the actions of a stage for one micro-batch, in any unit. B takes I and W together. */
typedef struct dtrain_stage_cost {
	double forward, input_gradient, weight_gradient;
	double transfer; /* of the stage's outputs to the next stage, and of their gradients back */
} dtrain_stage_cost;

/* When an action runs. Sends and receives: when the data moves. */
typedef struct dtrain_action_time {
	double start, end;
} dtrain_action_time;

/* A rank of a simulated schedule. */
typedef struct dtrain_pipeline_rank_times {
	double busy;       /* the rank computes */
	double idle;       /* the share of the makespan that is left, 0 to 1 */
	int32_t peak_live; /* the most micro-batches, counted in each stage, that are between F and the end of B or W */
} dtrain_pipeline_rank_times;

/* A simulated schedule. */
typedef struct dtrain_pipeline_timeline {
	double makespan;                   /* the end of the last action; the first one starts at 0 */
	dtrain_action_time **times;        /* [ranks]: an element for each action of the list */
	dtrain_pipeline_rank_times *ranks; /* [ranks] */
} dtrain_pipeline_timeline;

/* The times of a schedule. A rank computes one action at a time, in order. Between ranks, the data of a compute list
 * takes its transfer time from the end of the action that makes it. In lowered lists a transfer starts when both ranks
 * have reached it, and a rank sends one and receives one at a time. costs: [stages], 0 to 1e12. The caller destroys the
 * timeline. Errors: as dtrain_pipeline_schedule_check, INVALID_ARGUMENT (a cost), NO_MEMORY. */
BETON_API int dtrain_pipeline_simulate(const dtrain_pipeline_schedule *schedule, const dtrain_stage_cost *costs,
				       dtrain_pipeline_timeline **out, beton_error *err);
BETON_API void dtrain_pipeline_timeline_destroy(dtrain_pipeline_timeline **timeline); /* NULL allowed */

/* A picture, SVG, of a schedule and its timeline: a lane for each rank, a box for each action with the number of the
 * micro-batch, and the rank's idle share; later chunks of a rank are paler. The same text for the same input. *out is
 * malloc'ed. Error: NO_MEMORY. */
BETON_API int dtrain_pipeline_schedule_svg(const dtrain_pipeline_schedule *schedule,
					   const dtrain_pipeline_timeline *timeline, const char *title, char **out,
					   beton_error *err);

/* The makespan and the peak by formula, if each of F, I and W takes a rank 1 for a micro-batch, in v equal chunks, and
 * transfers take no time. A rank is idle for 1 - 3 m / makespan of it. peak_live: [ranks], NULL allowed; Errors: as
 * dtrain_pipeline_schedule_create. */
BETON_API int dtrain_pipeline_predict(const dtrain_pipeline_options *options, double *makespan, int32_t *peak_live,
				      beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
