/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), with the names and layouts of
 * Hugging Face's GPT2LMHeadModel: norms before attention and MLP, learned positions, and weights [in, out].
 */
#include <math.h>
#include <stdio.h>

#include "transformer_parts.h"

/* blocks: of the features, which the ranks of the mesh's axis "tensor" divide each. */
static dtrain__dense column(const dtrain_transformer *t, int64_t features, int32_t blocks, dtrain_activation activation)
{
	return (dtrain__dense){.features = features,
			       .bias = t->bias,
			       .in_out = true,
			       .initial = dtrain__normal(t->deviation),
			       .activation = activation,
			       .split = DTRAIN__SPLIT_COLUMN,
			       .blocks = blocks};
}

/* 2 * layers of them add up along the residual stream, so each starts smaller. */
static dtrain__dense row(const dtrain_transformer *t)
{
	return (dtrain__dense){.features = t->width,
			       .bias = t->bias,
			       .in_out = true,
			       .initial = dtrain__normal(t->deviation / sqrt(2 * (double)t->layers)),
			       .split = DTRAIN__SPLIT_ROW};
}

/* x + dropout(y) */
static dtrain_tensor residual(dtrain_graph *graph, const dtrain_transformer *t, dtrain_tensor x, dtrain_tensor y,
			      dtrain_tensor random, int layer)
{
	return dtrain_add(graph, x, dtrain_dropout(graph, y, random, t->dropout, layer, false), false);
}

/* y: queries, keys and values next to each other. */
static dtrain_tensor attend_cached(dtrain_graph *graph, const dtrain_transformer_inputs *inputs, dtrain_tensor y,
				   int layer, const dtrain_attention_options *options)
{
	dtrain_tensor parts[3];
	dtrain_split(graph, y, 2, 3, parts);
	return dtrain_attention_cached(graph, parts[0], parts[1], parts[2], inputs->keys[layer], inputs->values[layer],
				       inputs->past, options);
}

static dtrain_tensor block(dtrain_graph *graph, const dtrain_transformer *t, const dtrain_transformer_inputs *inputs,
			   dtrain_tensor x, int layer)
{
	char name[DTRAIN__NAME_SIZE];
	dtrain_attention_options attention = dtrain__attention_options(graph, t, inputs->random, layer);
	attention.causal = true;
	snprintf(name, sizeof(name), "transformer.h.%d", layer);
	const dtrain__dense qkv = column(t, 3 * t->width, 3, DTRAIN_ACTIVATION_NONE), proj = row(t);
	const dtrain__mlp_layers mlp = {"mlp.c_fc", NULL, "mlp.c_proj", column(t, t->inner, 1, t->activation), row(t)};
	dtrain_tensor y = dtrain__norm(graph, t, name, "ln_1", x);
	y = dtrain__dense_layer(graph, name, "attn.c_attn", y, &qkv);
	y = inputs->keys ? attend_cached(graph, inputs, y, layer, &attention)
			 : dtrain_attention_packed(graph, y, inputs->segment, &attention);
	y = dtrain__dense_layer(graph, name, "attn.c_proj", y, &proj);
	x = residual(graph, t, x, y, inputs->random, 2 * layer + 1);
	y = dtrain__dense_mlp(graph, name, dtrain__norm(graph, t, name, "ln_2", x), &mlp);
	return residual(graph, t, x, y, inputs->random, 2 * layer + 2);
}

dtrain_tensor dtrain__gpt2(dtrain_graph *graph, const dtrain_transformer *t, const dtrain_transformer_inputs *inputs,
			   dtrain_transformer_outputs *outputs)
{
	dtrain_tensor tokens = dtrain__vocabulary_table(graph, "transformer.wte.weight", t);
	dtrain_tensor places = dtrain__table(graph, "transformer.wpe.weight", t->positions, t->width, t->deviation);
	dtrain_tensor x = dtrain__vocabulary_embedding(graph, tokens, inputs->tokens);
	x = dtrain__vocabulary_rows(graph, dtrain__add_positions(graph, x, places, inputs));
	x = dtrain_dropout(graph, x, inputs->random, t->embedding_dropout, 0, false);
	for (int layer = 0; layer < t->layers; layer++) {
		dtrain_graph_next_block(graph);
		x = block(graph, t, inputs, x, layer);
	}
	dtrain_graph_next_block(graph);
	outputs->hidden = dtrain__norm(graph, t, "transformer", "ln_f", x);
	outputs->head = t->tied ? tokens : dtrain__vocabulary_table(graph, "lm_head.weight", t);
	return outputs->hidden;
}
