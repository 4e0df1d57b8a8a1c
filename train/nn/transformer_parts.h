/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the transformers, and the function that builds each transformer.
 */
#ifndef DTRAIN_NN_TRANSFORMER_PARTS_H
#define DTRAIN_NN_TRANSFORMER_PARTS_H

#include <dtrain/transformer.h>

#include "dense.h"
#include "token_rows.h"
#include "vocabulary.h"

/* The layer norm "prefix.suffix" with the description's epsilon, and with a bias if the description has biases. */
dtrain_tensor dtrain__norm(dtrain_graph *graph, const dtrain_transformer *t, const char *prefix, const char *suffix,
			   dtrain_tensor x);
/* x [b, t, c] + table [t, c] for each b. table: a parameter or a view of one. */
dtrain_tensor dtrain__add_to_each(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor table);
/* The options of attention in a layer, with the description's heads and dropout. With the mesh's axis "tensor" the
 * heads are this rank's part of them. */
dtrain_attention_options dtrain__attention_options(const dtrain_graph *graph, const dtrain_transformer *t,
						   dtrain_tensor random, int layer);
/* Whether the ranks of the mesh's axis "tensor" can divide the heads and the MLP. On failure the graph has the error.
 */
bool dtrain__transformer_check_split(dtrain_graph *graph, const dtrain_transformer *t);
/* A parameter [rows, columns] with normal initial values. */
dtrain_tensor dtrain__table(dtrain_graph *graph, const char *name, int64_t rows, int64_t columns, double deviation);
/* Adds to embeddings the rows of a table of positions for each token: at inputs->position, or the first t. */
dtrain_tensor dtrain__add_positions(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor table,
				    const dtrain_transformer_inputs *inputs);

typedef dtrain_tensor dtrain__transformer_builder(dtrain_graph *graph, const dtrain_transformer *t,
						  const dtrain_transformer_inputs *inputs,
						  dtrain_transformer_outputs *outputs);

/* Whether a model's name is that of a file. */
bool dtrain__is_config_path(const char *name);

/* The name of a description of a ViT that comes with the library; NULL past the end. */
const char *dtrain__vit_name(int index);

dtrain__transformer_builder dtrain__bert;
dtrain__transformer_builder dtrain__gpt2;
dtrain__transformer_builder dtrain__llama;

/* Whether there is an input of random numbers where training needs one. On failure the graph has the error. */
bool dtrain__transformer_check_random(dtrain_graph *graph, const dtrain_transformer *t, dtrain_tensor random);

/* Whether the members of a description are in range and fit together; what: for the message. Errors: FORMAT,
 * UNSUPPORTED. */
int dtrain__transformer_check(const dtrain_transformer *t, const char *what, beton_error *err);

#endif
