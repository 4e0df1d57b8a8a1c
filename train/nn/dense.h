/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers that the ranks of the mesh's axis "tensor" may divide.
 */
#ifndef DTRAIN_NN_DENSE_H
#define DTRAIN_NN_DENSE_H

#include <dtrain/graph.h>

/* Room for a parameter's or layer's name: "bert.encoder.layer.2147483647.attention.output.LayerNorm.weight". */
#define DTRAIN__NAME_SIZE 96

/* The initial values of a parameter. */
typedef struct dtrain__initial {
	dtrain_init init;
	int64_t fan_in;
} dtrain__initial;

/* How the ranks of the mesh's axis "tensor" divide a linear layer. */
typedef enum dtrain__split {
	DTRAIN__SPLIT_NONE,   /* all of it */
	DTRAIN__SPLIT_COLUMN, /* a part of the outputs, from all inputs: x is rows, see dtrain__rows_join */
	DTRAIN__SPLIT_ROW,    /* a part of the inputs; the result is rows of the sum, see dtrain__rows_sum */
} dtrain__split;

typedef struct dtrain__dense {
	int64_t features; /* of the output, on all ranks together */
	bool bias;
	bool relu;                    /* the result is max(0, result); without an activation */
	bool in_out;                  /* the weight is [in, out] */
	dtrain__initial initial;      /* of the weight */
	dtrain__initial bias_initial; /* default: zeros */
	dtrain_activation activation; /* NONE with SPLIT_ROW */
	dtrain__split split;
	int32_t blocks; /* of the outputs, with SPLIT_COLUMN: see dtrain_placement; 0: 1 */
} dtrain__dense;

/* "prefix.suffix", or without a prefix (NULL) "suffix", in `name`, which is returned. */
const char *dtrain__name(char name[DTRAIN__NAME_SIZE], const char *prefix, const char *suffix);
/* Normal initial values of that standard deviation. */
dtrain__initial dtrain__normal(double deviation);

/* A linear layer "prefix.suffix". */
dtrain_tensor dtrain__dense_layer(dtrain_graph *graph, const char *prefix, const char *suffix, dtrain_tensor x,
				  const dtrain__dense *dense);

/* The layers of an MLP: second(activation(first(x))), or second(swiglu(gate(x), first(x))). The ranks divide the first
 * ones along their outputs and the second one along its inputs. */
typedef struct dtrain__mlp_layers {
	const char *up, *gate, *down; /* names; gate NULL: none */
	dtrain__dense first, second;  /* first: of `gate`, too, which has no activation then */
} dtrain__mlp_layers;

/* Each part of the rows goes through all layers before the next one, so parts need not be merged between layers. */
dtrain_tensor dtrain__dense_mlp(dtrain_graph *graph, const char *prefix, dtrain_tensor x,
				const dtrain__mlp_layers *mlp);

#endif
