/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages of a pipeline. A model is built once as a whole, on an outline of the parameters; a stage is the graph of the
 * blocks (dtrain_graph_next_block) that one rank computes. Builders need no case for it. A tensor that one stage
 * computes and a later one reads crosses the stages in between: a stage receives it from the stage before and sends it
 * to the next one, and their gradients go the other way.
 *
 *   outline of the parameters -> whole graph, forward alone -> dtrain_stage_create -> dtrain_stage_backward -> compile
 */
#ifndef DTRAIN_STAGE_H
#define DTRAIN_STAGE_H

#include <dtrain/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most stages of a pipeline. */
#define DTRAIN_MAX_STAGES 64

/* Parameters that are declared like the given ones, with their device, type, mesh and patterns of frozen ones, and
 * that are never allocated. `like` may have no declared parameter. Errors: NO_MEMORY, STATE. */
BETON_API int dtrain_params_create_outline(const dtrain_params *like, dtrain_params **out, beton_error *err);

/* The cost of each block's forward: the floating-point operations of its products. costs NULL: none is written.
 * Returns the number of blocks, at least 1; at most `capacity` costs are written. whole: a graph without error. */
BETON_API int32_t dtrain_stage_costs(const dtrain_graph *whole, double *costs, int32_t capacity);

/* Divides consecutive blocks among stages so that the most expensive stage costs least. first: each stage's first
 * block; first[0] is 0. Errors: INVALID_ARGUMENT (more stages than blocks). */
BETON_API int dtrain_stage_divide(const double *costs, int32_t blocks, int32_t stages, int32_t *first,
				  beton_error *err);

typedef struct dtrain_stage dtrain_stage;

/* A tensor that crosses a border of stages, in the stage's graph. */
typedef struct dtrain_crossing {
	dtrain_tensor value;    /* received: an input; sent: a kept tensor, or an input that is passed on */
	dtrain_tensor gradient; /* received: a kept tensor, to be sent back; sent: an input. Negative: it has none */
} dtrain_crossing;

/* Takes stage `stage` of `stages` out of a whole graph without backward. first: each stage's first block, rising, of
 * dtrain_stage_divide for example. params: the real ones; they get the stage's parameters, with the block numbers
 * of the whole. A rank with several stages creates all of them before it compiles the first. A parameter that several
 * stages use is declared in each (dtrain_param.stages). whole may be destroyed afterwards. Errors: the whole graph's
 * error; INVALID_ARGUMENT (borders); NO_MEMORY. */
BETON_API int dtrain_stage_create(dtrain_graph *whole, const int32_t *first, int32_t stages, int32_t stage,
				  dtrain_params *params, dtrain_stage **out, beton_error *err);
BETON_API void dtrain_stage_destroy(dtrain_stage **stage); /* NULL allowed */

/* The graph, without backward at first. It stays the stage's until dtrain_stage_take_graph. */
BETON_API dtrain_graph *dtrain_stage_graph(const dtrain_stage *stage);
/* The graph, which now belongs to the caller, for compilation. */
BETON_API dtrain_graph *dtrain_stage_take_graph(dtrain_stage *stage);
/* The stage's tensor for one of the whole graph; -1: the stage does not have it. */
BETON_API dtrain_tensor dtrain_stage_tensor(const dtrain_stage *stage, dtrain_tensor of_whole);

/* Appends backward: from the loss in the last stage, which must have it, otherwise from the gradients of the tensors
 * that are sent. loss: of the whole graph. The graph keeps errors. */
BETON_API void dtrain_stage_backward(dtrain_stage *stage, dtrain_tensor loss);

/* The tensors that the stage receives from the one before, and sends to the next one, in an order that both have. After
 * dtrain_stage_backward with their gradients. NULL past the end. */
BETON_API const dtrain_crossing *dtrain_stage_received(const dtrain_stage *stage, int32_t index);
BETON_API const dtrain_crossing *dtrain_stage_sent(const dtrain_stage *stage, int32_t index);

#ifdef __cplusplus
}
#endif

#endif
