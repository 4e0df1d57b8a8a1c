/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of a transformer, samples x positions, between the layers that the ranks of the mesh's axis "tensor" divide.
 * Without sequence parallelism each rank has all of them, [samples, positions, width]. With it, in graphs that train,
 * rank r has part r of them (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
 * 2022), in the same form if they are whole samples, otherwise as [rows, width]: fewer activations to keep, and a part
 * of the work of norms, dropout and residual sums.
 */
#ifndef DTRAIN_NN_TOKEN_ROWS_H
#define DTRAIN_NN_TOKEN_ROWS_H

#include <dtrain/graph.h>

/* Layers between begin and end belong to a model of so many samples, each of so many positions. Where the rows are
 * divided, a rank's gradient of a parameter without a placement comes from its rows alone. by_samples: a part has whole
 * samples. False: the rows cannot be divided, and the graph has failed. */
bool dtrain__rows_begin(dtrain_graph *graph, const char *model, int64_t samples, int64_t positions, bool by_samples);
void dtrain__rows_end(dtrain_graph *graph);
/* Whether this rank has a part of the rows. */
bool dtrain__rows_divided(const dtrain_graph *graph);

/* All rows, in the parts that ranks exchange one by one (tensor_overlap of <dtrain/sync.h>): part i has the i-th piece
 * of each rank's rows, rank after rank. A single part has them in their own order. */
typedef struct dtrain__row_parts {
	int count;
	dtrain_tensor of[DTRAIN_OP_MAX_OPERANDS];
} dtrain__row_parts;

/* From rows to all rows, which layers read that are divided along their outputs. A single part is [samples, positions,
 * width], others are [rows, width]. Layers that read the same x share the parts. */
void dtrain__rows_join(dtrain_graph *graph, dtrain_tensor x, dtrain__row_parts *out);
/* From parts to [samples, positions, width]. */
dtrain_tensor dtrain__rows_merge(dtrain_graph *graph, const dtrain__row_parts *parts);
/* Back. */
void dtrain__rows_cut(dtrain_graph *graph, dtrain_tensor x, dtrain__row_parts *out);
/* From a term on each rank (the results of a layer that is divided along its inputs, or embeddings) to the rows of the
 * sum over the ranks. */
dtrain_tensor dtrain__rows_sum(dtrain_graph *graph, const dtrain__row_parts *terms);
/* A term that is the first rank's alone: zeros on the others. */
dtrain_tensor dtrain__rows_once(dtrain_graph *graph, dtrain_tensor x);

/* The samples of x [samples, ...] that this rank's rows belong to; all of them where rows are not divided. */
dtrain_tensor dtrain__rows_own_samples(dtrain_graph *graph, dtrain_tensor x);
/* Back: what each rank has computed of its samples, for all of them; the ranks go on with the same. */
dtrain_tensor dtrain__rows_all_samples(dtrain_graph *graph, dtrain_tensor x);

#endif
