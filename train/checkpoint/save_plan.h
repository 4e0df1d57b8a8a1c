/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank writes what. */
#ifndef DTRAIN_CHECKPOINT_SAVE_PLAN_H
#define DTRAIN_CHECKPOINT_SAVE_PLAN_H

#include <dtrain/checkpoint.h>

#include "box.h"

/* A box of a tensor in a rank's memory, where its elements are contiguous. */
typedef struct checkpoint_piece {
	int set;
	const char *name;
	dtrain_dtype dtype;
	dtrain_shape shape; /* of the tensor */
	checkpoint_box box;
	int rank;
	const void *memory;    /* of the box's elements; NULL: another rank's */
	dtrain_device *device; /* of the memory; NULL: host memory */
} checkpoint_piece;

typedef struct checkpoint_plan {
	bool whole;               /* nothing is sharded, and rank 0 writes everything */
	checkpoint_piece *pieces; /* pieces that this rank writes, sorted by set, name and box */
	size_t count;
} checkpoint_plan;

/* Checks a view. stream: of the view's device. Errors: INVALID_ARGUMENT, which names the view. */
int dtrain__view_check(const dtrain_checkpoint_view *view, const dtrain_stream *stream, beton_error *err);
/* Splits a view into boxes, in the order of its memory. Returns their number: 0 for an empty view. */
int dtrain__view_split(const dtrain_checkpoint_view *view, checkpoint_box boxes[CHECKPOINT_BOXES_MAX]);

size_t dtrain__piece_bytes(const checkpoint_piece *piece);

/* Collective: plans the writing of all ranks' views, which must be checked; errors are the same on all ranks. content:
 * this rank's. Errors: MISMATCH, INVALID_ARGUMENT, NO_MEMORY. */
int dtrain__plan_make(const dtrain_checkpoint_content *content, const dtrain_checkpoint_ranks *ranks,
		      checkpoint_plan *out, beton_error *err);
void dtrain__plan_free(checkpoint_plan *plan);

#endif
