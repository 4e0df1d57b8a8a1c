/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of a model of tokens, whose rows the ranks of the mesh's axis "tensor" divide.
 */
#ifndef DTRAIN_NN_VOCABULARY_H
#define DTRAIN_NN_VOCABULARY_H

#include <dtrain/transformer.h>

#include "dense.h"

/* The table of tokens [vocabulary, width], or the last layer's weight of that shape; the last layer's bias. */
dtrain_tensor dtrain__vocabulary_table(dtrain_graph *graph, const char *name, const dtrain_transformer *t);
dtrain_tensor dtrain__vocabulary_bias(dtrain_graph *graph, const char *name, const dtrain_transformer *t);
/* Whether ranks have parts of the table. */
bool dtrain__vocabulary_is_divided(dtrain_graph *graph, dtrain_tensor table);
/* dtrain_embedding: the same on all ranks. Where rows are divided (token_rows.h), this rank's term of it, to which
 * others may be added. The second function makes such a sum of terms the rank's rows. */
dtrain_tensor dtrain__vocabulary_embedding(dtrain_graph *graph, dtrain_tensor table, dtrain_tensor index);
dtrain_tensor dtrain__vocabulary_rows(dtrain_graph *graph, dtrain_tensor x);
/* The logits [n, vocabulary] of the rows i64 [n] (negative: of all), the same on all ranks. x [..., width] has all
 * rows, or where rows are divided this rank's. */
dtrain_tensor dtrain__vocabulary_logits(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor rows, dtrain_tensor w,
					dtrain_tensor b);
/* dtrain_linear_cross_entropy of a divided weight. x has all rows, or where rows are divided this rank's: the same
 * losses on all ranks, which exchange three numbers of each row. A rank has the logits of its part of the vocabulary,
 * for all rows at once. */
dtrain_tensor dtrain__vocabulary_losses(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w, dtrain_tensor b,
					dtrain_tensor label, const dtrain_loss_options *options);

#endif
