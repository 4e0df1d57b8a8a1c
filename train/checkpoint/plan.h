/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank writes what. */
#ifndef DTRAIN_CHECKPOINT_PLAN_H
#define DTRAIN_CHECKPOINT_PLAN_H

#include <dtrain/checkpoint.h>

#include "box.h"

/* A box of a tensor that a rank has. Its elements are one behind the other in the rank's memory, too. */
typedef struct checkpoint_piece {
	int set;
	const char *name;
	dtrain_dtype dtype;
	dtrain_shape shape; /* of the tensor */
	checkpoint_box box;
	int rank;
	const dtrain_checkpoint_view *view; /* of this rank's pieces; NULL: another rank's */
	int64_t first;                      /* in the view's memory, elements */
} checkpoint_piece;

typedef struct checkpoint_plan {
	bool whole;               /* nothing is sharded, and rank 0 writes all of it */
	checkpoint_piece *pieces; /* that this rank writes, by set, name, and box */
	size_t count;
} checkpoint_plan;

/* Is the view one? stream: that of its device. Errors: INVALID_ARGUMENT, which names it. */
int dtrain__view_check(const dtrain_checkpoint_view *view, const dtrain_stream *stream, beton_error *err);
/* Its boxes, one behind the other in its memory. Returns how many: 0 for an empty view. */
int dtrain__view_split(const dtrain_checkpoint_view *view, checkpoint_box boxes[CHECKPOINT_BOXES_MAX]);

/* For all ranks together: the views of each of them, checked; the same result on all. content: this rank's. Errors:
 * MISMATCH, INVALID_ARGUMENT, NO_MEMORY. */
int dtrain__plan_make(const dtrain_checkpoint_content *content, const dtrain_checkpoint_ranks *ranks,
		      checkpoint_plan *out, beton_error *err);
void dtrain__plan_free(checkpoint_plan *plan);

#endif
