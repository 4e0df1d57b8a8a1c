/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes of tensors: ranges of elements as boxes, what two boxes share, and where that lies in each of them. */
#ifndef DTRAIN_CHECKPOINT_BOX_H
#define DTRAIN_CHECKPOINT_BOX_H

#include <dtrain/device.h>

/* The number of dimensions is that of the tensor; what is beyond it is not looked at. */
typedef struct checkpoint_box {
	int64_t offset[DTRAIN_MAX_DIMS];
	int64_t extent[DTRAIN_MAX_DIMS];
} checkpoint_box;

/* A range of d dimensions: its first incomplete rows of each dimension but the last, what is whole, the last ones. */
#define CHECKPOINT_BOXES_MAX (2 * DTRAIN_MAX_DIMS - 1)

/* Elements. */
int64_t dtrain__box_count(int ndim, const checkpoint_box *box);

/* Splits `count` (at least 1) elements from `first` on of whole, in row-major order, into boxes, one behind the other
 * in that order. Returns how many. */
int dtrain__box_split(int ndim, const checkpoint_box *whole, int64_t first, int64_t count,
		      checkpoint_box boxes[CHECKPOINT_BOXES_MAX]);

/* False: they share nothing. */
bool dtrain__box_intersect(int ndim, const checkpoint_box *a, const checkpoint_box *b, checkpoint_box *out);

/* Order by offsets, then extents, the outermost dimension first. */
int dtrain__box_compare(int ndim, const checkpoint_box *a, const checkpoint_box *b);

/* Runs of elements that lie one behind the other both in `from` and in `to`, whose elements are in row-major order:
 * those of part, a box in both of them. */
typedef struct checkpoint_runs {
	int64_t from, to; /* where the run begins, in elements */
	int64_t count;    /* elements of each run */
	int64_t pitch;    /* in from, to the next run; of the innermost dimension that is not part of a run */
	int64_t left;     /* runs, this one included */
	int outer;        /* dimensions that are not part of a run */
	int64_t at[DTRAIN_MAX_DIMS];
	int64_t extent[DTRAIN_MAX_DIMS];
	int64_t from_stride[DTRAIN_MAX_DIMS], to_stride[DTRAIN_MAX_DIMS];
} checkpoint_runs;

void dtrain__runs_begin(int ndim, const checkpoint_box *part, const checkpoint_box *from, const checkpoint_box *to,
			checkpoint_runs *runs);
/* False behind the last. */
bool dtrain__runs_next(checkpoint_runs *runs);

#endif
