/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a rank's actions of a pipeline's schedule: forward and backward of micro-batches through the rank's stages, and
 * the messages to the ranks of the stages before and after.
 *
 *   a program for each stage of the rank (dtrain_sync_compile) -> create -> for each micro-batch: fill the inputs of
 *   dtrain_pipeline_input, dtrain_pipeline_run
 */
#ifndef DTRAIN_PIPELINE_RUN_H
#define DTRAIN_PIPELINE_RUN_H

#include <dtrain/mesh.h>
#include <dtrain/pipeline.h>
#include <dtrain/stage.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A stage of this rank. Both must outlive the pipeline. */
typedef struct dtrain_pipeline_stage {
	int32_t number;
	const dtrain_stage *stage;
	dtrain_program *program; /* of the stage's graph */
} dtrain_pipeline_stage;

typedef struct dtrain_pipeline dtrain_pipeline;

/* Collective over the mesh's axis "pipeline", which gets groups for messages, and whose coordinate is the schedule's
 * rank; the mesh must outlive the pipeline, and has as many ranks along the axis as the schedule. schedule: with sends
 * and receives (dtrain_pipeline_schedule_lower), for all ranks the same; it may be destroyed afterwards. stages: all
 * that the schedule gives to this rank, in their order. Programs without backward run the forward actions alone. Has
 * memory for as many micro-batches as the rank keeps at a time, in all of its stages. Errors: INVALID_ARGUMENT,
 * NO_MEMORY, errors of groups and devices. */
BETON_API int dtrain_pipeline_create(dtrain_mesh *mesh, const dtrain_pipeline_schedule *schedule,
				     const dtrain_pipeline_stage *stages, int32_t count, dtrain_pipeline **out,
				     beton_error *err);
/* Waits for messages in flight. NULL allowed. */
BETON_API void dtrain_pipeline_destroy(dtrain_pipeline **pipeline);

/* The memory of an input of the rank's stage `stage` for a micro-batch. It may be filled when the micro-batch before
 * has been run; of micro-batch 0 when the last step is complete. NULL: not an input, or one that another stage sends.
 */
BETON_API void *dtrain_pipeline_input(const dtrain_pipeline *pipeline, int32_t stage, int32_t micro_batch,
				      dtrain_tensor input);

/* The micro-batches for which this rank has memory at a time, of all of its stages. NULL: 0. */
BETON_API int32_t dtrain_pipeline_live(const dtrain_pipeline *pipeline);

/* Bytes of device memory for inputs, for messages, and for the activations of all micro-batches but the first of each
 * stage; and bytes of pinned memory for these activations. NULL: 0. */
BETON_API size_t dtrain_pipeline_bytes(const dtrain_pipeline *pipeline);
BETON_API size_t dtrain_pipeline_host_bytes(const dtrain_pipeline *pipeline);
/* The bytes of device memory for inputs and messages alone: any recomputation and strategy needs as much. NULL: 0. */
BETON_API size_t dtrain_pipeline_message_bytes(const dtrain_pipeline *pipeline);
/* How long the caller of dtrain_pipeline_run has waited for messages, in milliseconds of all steps so far. Little on
 * streams that wait themselves. NULL: 0. */
BETON_API double dtrain_pipeline_waited_ms(const dtrain_pipeline *pipeline);
/* Bytes that this rank sends to ranks of other stages in a step. NULL: 0. */
BETON_API uint64_t dtrain_pipeline_sent(const dtrain_pipeline *pipeline);

/* Runs this rank's actions until one reads the inputs of the next micro-batch; with the last micro-batch all that are
 * left, and adds up the gradients of parameters that several stages have. Micro-batches come in their order. Errors: of
 * programs and groups, with stage and action; STATE (another micro-batch). After an error of an action all messages are
 * given up, and the pipeline can only be destroyed (STATE). */
BETON_API int dtrain_pipeline_run(dtrain_pipeline *pipeline, dtrain_stream *stream, int32_t micro_batch,
				  beton_error *err);

/* Later runs capture the ops that follow each other without a message, reduction or gather in between, each micro-batch
 * for itself when it comes to them first, and launch them as a whole from then on. It may be called between two
 * micro-batches; a second call does nothing. Ops should have run once before, because a device may allocate then. The
 * captures belong to the instances of the programs. Errors: UNSUPPORTED (the device has no captures), NO_MEMORY. Errors
 * of captures are errors of the run that makes them. */
BETON_API int dtrain_pipeline_capture(dtrain_pipeline *pipeline, beton_error *err);

/* A micro-batch's messages without its actions, of a pipeline without backward: the results are undefined. So a rank
 * that cannot compute does not keep the others waiting. */
BETON_API int dtrain_pipeline_run_messages(dtrain_pipeline *pipeline, dtrain_stream *stream, int32_t micro_batch,
					   beton_error *err);

/* When an action of this rank ran, in milliseconds from the beginning of its first action. Messages: when they were
 * issued. */
typedef struct dtrain_pipeline_time {
	dtrain_action action;
	double begin_ms; /* the rank reached the action */
	double ready_ms; /* messages had come: until then the rank waited for other stages */
	double end_ms;
} dtrain_pipeline_time;

/* Records the times of each step with backward from now on. A step then waits for the stream before its first action.
 * Errors: NO_MEMORY, errors of the device. */
BETON_API int dtrain_pipeline_record_times(dtrain_pipeline *pipeline, beton_error *err);

/* The number of this rank's actions in a step, sends and receives included. */
BETON_API int32_t dtrain_pipeline_actions(const dtrain_pipeline *pipeline);

/* Whether there are the times of a complete step. */
BETON_API bool dtrain_pipeline_has_times(const dtrain_pipeline *pipeline);

/* The times of the last step, which the stream has completed, in the order of actions. out: dtrain_pipeline_actions
 * elements. *began_ns: the host's monotonic clock when the first action began. Errors: STATE (no such step), errors of
 * the device. */
BETON_API int dtrain_pipeline_get_times(const dtrain_pipeline *pipeline, dtrain_pipeline_time *out, uint64_t *began_ns,
					beton_error *err);

/* A step of all ranks of a pipeline, as it was measured. */
typedef struct dtrain_pipeline_step {
	dtrain_pipeline_schedule *schedule; /* the actions that compute */
	dtrain_pipeline_time **times;       /* [ranks]: an element for each action, in milliseconds; the first is 0 */
	/* The same for dtrain_pipeline_schedule_svg; a rank is idle while it waits for messages. */
	dtrain_pipeline_timeline *timeline;
} dtrain_pipeline_step;

/* Collective over the axis "pipeline": the last step of all its ranks, as dtrain_pipeline_get_times. Ranks of one
 * machine have the same clock; the clocks of several are brought in line by the messages, which no rank has before
 * they are sent. The caller destroys the step. Errors: as dtrain_pipeline_get_times, NO_MEMORY, errors of groups. */
BETON_API int dtrain_pipeline_gather_times(const dtrain_pipeline *pipeline, dtrain_pipeline_step **out,
					   beton_error *err);
BETON_API void dtrain_pipeline_step_destroy(dtrain_pipeline_step **step); /* NULL allowed */

#ifdef __cplusplus
}
#endif

#endif
