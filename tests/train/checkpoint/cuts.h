/* SPDX-License-Identifier: Apache-2.0
 *
 * A small model, whose elements are known, and ways to cut it for ranks. */
#ifndef TESTS_TRAIN_CHECKPOINT_CUTS_H
#define TESTS_TRAIN_CHECKPOINT_CUTS_H

#include <dtrain/checkpoint.h>

enum cut_kind {
	CUT_WHOLE,     /* each rank has everything */
	CUT_FLAT,      /* a range of all tensors one after another, as in FSDP; the first rank's is short */
	CUT_EMPTY,     /* the same, and every second rank has nothing */
	CUT_ROWS,      /* the first dimension, in equal parts as far as it goes */
	CUT_COLUMNS,   /* the second dimension; the others have vectors as a whole */
	CUT_GRID,      /* both, for an even number of ranks */
	CUT_GRID_FLAT, /* columns for two ranks each, which have a range of their box each */
	CUT_TWICE,     /* CUT_FLAT over half of the ranks, which the other half has too */
	CUT_OPTIMIZER, /* the model as a whole, the optimizer as CUT_FLAT */
	CUT_STAGES,    /* whole tensors, each on one rank */
};

enum { CUT_TENSORS = 6, CUT_VIEWS_MAX = 64, CUT_BYTES_MAX = 4096 };

/* A rank's views of both sets, and their memory. */
struct cut {
	dtrain_checkpoint_view views[DTRAIN_CHECKPOINT_SETS][CUT_VIEWS_MAX];
	dtrain_checkpoint_list lists[DTRAIN_CHECKPOINT_SETS];
	char memory[2 * CUT_BYTES_MAX];
	size_t used;
};

/* The views, on memory that is zero. */
void cut_make(struct cut *out, enum cut_kind kind, int rank, int size);

/* Expected elements; seed: which model. */
void cut_fill(struct cut *cut, int seed);
bool cut_is_filled(const struct cut *cut, int seed, beton_error *err);

#endif
