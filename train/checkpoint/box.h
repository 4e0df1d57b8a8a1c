/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes of tensors: ranges of elements as boxes, what two boxes share, and where that lies in each of them. */
#ifndef DTRAIN_CHECKPOINT_BOX_H
#define DTRAIN_CHECKPOINT_BOX_H

#include <dtrain/device.h>

/* Has the tensor's number of dimensions; further elements are ignored. */
typedef struct checkpoint_box {
	int64_t offset[DTRAIN_MAX_DIMS];
	int64_t extent[DTRAIN_MAX_DIMS];
} checkpoint_box;

/* A range in d dimensions has at most these boxes: incomplete first and last rows for each dimension but the last, and
 * a whole part. */
#define CHECKPOINT_BOXES_MAX (2 * DTRAIN_MAX_DIMS - 1)

/* Number of elements. */
int64_t dtrain__box_count(int ndim, const checkpoint_box *box);

/* Splits `count` (at least 1) elements of whole, starting at `first`, into boxes in row-major order. Returns the number
 * of boxes. */
int dtrain__box_split(int ndim, const checkpoint_box *whole, int64_t first, int64_t count,
		      checkpoint_box boxes[CHECKPOINT_BOXES_MAX]);

/* False: they do not overlap. */
bool dtrain__box_intersect(int ndim, const checkpoint_box *a, const checkpoint_box *b, checkpoint_box *out);

/* Orders by offsets, then extents, outermost dimension first. */
int dtrain__box_compare(int ndim, const checkpoint_box *a, const checkpoint_box *b);

/* Iterates over a part, which is a box in both `from` and `to`, in runs of elements that are contiguous in both. `from`
 * and `to` store their elements in row-major order. */
typedef struct checkpoint_runs {
	int64_t from, to; /* position of the run, in elements */
	int64_t count;    /* elements of each run */
	int64_t pitch;    /* from one run to the next in `from`, in the innermost dimension outside a run */
	int64_t left;     /* remaining runs, including this one */
	int outer;        /* number of dimensions outside a run */
	int64_t at[DTRAIN_MAX_DIMS];
	int64_t extent[DTRAIN_MAX_DIMS];
	int64_t from_stride[DTRAIN_MAX_DIMS], to_stride[DTRAIN_MAX_DIMS];
} checkpoint_runs;

void dtrain__runs_begin(int ndim, const checkpoint_box *part, const checkpoint_box *from, const checkpoint_box *to,
			checkpoint_runs *runs);
/* False after the last run. */
bool dtrain__runs_next(checkpoint_runs *runs);

#endif
