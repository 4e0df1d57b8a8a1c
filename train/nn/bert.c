/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018), with
 * the names of Hugging Face's BertForMaskedLM: norms after attention and MLP, learned positions and token types, and a
 * head with a layer of its own before the tied weight.
 */
#include <stdio.h>

#include "transformer_parts.h"

static dtrain__dense layer_of(const dtrain_transformer *t, int64_t features, dtrain_activation activation,
			      dtrain__split split)
{
	return (dtrain__dense){.features = features,
			       .bias = true,
			       .initial = dtrain__normal(t->deviation),
			       .activation = activation,
			       .split = split};
}

/* The norm of x + dropout(y). */
static dtrain_tensor add_and_norm(dtrain_graph *graph, const dtrain_transformer *t, const char *block, const char *name,
				  dtrain_tensor x, dtrain_tensor y, dtrain_tensor random, int layer)
{
	y = dtrain_dropout(graph, y, random, t->dropout, layer, false);
	return dtrain__norm(graph, t, block, name, dtrain_add(graph, x, y, false));
}

static dtrain_tensor block(dtrain_graph *graph, const dtrain_transformer *t, const dtrain_transformer_inputs *inputs,
			   dtrain_tensor x, int layer)
{
	static const char *const parts[] = {"attention.self.query", "attention.self.key", "attention.self.value"};
	char name[DTRAIN__NAME_SIZE];
	const dtrain_attention_options options = dtrain__attention_options(graph, t, inputs->random, layer);
	const dtrain__dense heads = layer_of(t, t->width, DTRAIN_ACTIVATION_NONE, DTRAIN__SPLIT_COLUMN);
	const dtrain__dense output = layer_of(t, t->width, DTRAIN_ACTIVATION_NONE, DTRAIN__SPLIT_ROW);
	const dtrain__mlp_layers mlp = {"intermediate.dense", NULL, "output.dense",
					layer_of(t, t->inner, t->activation, DTRAIN__SPLIT_COLUMN), output};
	snprintf(name, sizeof(name), "bert.encoder.layer.%d", layer);
	dtrain_tensor y, qkv[3];
	for (int i = 0; i < 3; i++)
		qkv[i] = dtrain__dense_layer(graph, name, parts[i], x, &heads);
	y = dtrain_attention(graph, qkv[0], qkv[1], qkv[2], inputs->segment, &options);
	y = dtrain__dense_layer(graph, name, "attention.output.dense", y, &output);
	x = add_and_norm(graph, t, name, "attention.output.LayerNorm", x, y, inputs->random, 2 * layer + 1);
	y = dtrain__dense_mlp(graph, name, x, &mlp);
	return add_and_norm(graph, t, name, "output.LayerNorm", x, y, inputs->random, 2 * layer + 2);
}

/* Without token types all tokens have type 0. */
static dtrain_tensor add_types(dtrain_graph *graph, const dtrain_transformer *t,
			       const dtrain_transformer_inputs *inputs, dtrain_tensor x)
{
	dtrain_tensor types = dtrain__table(graph, "bert.embeddings.token_type_embeddings.weight", t->token_types,
					    t->width, t->deviation);
	if (inputs->token_types >= 0)
		return dtrain_add(graph, x,
				  dtrain__rows_once(graph, dtrain_embedding(graph, types, inputs->token_types)), false);
	const dtrain_shape *known = dtrain_graph_shape(graph, x);
	if (!known)
		return -1;
	dtrain_shape shape = *known;
	dtrain_shape rows = dtrain_shape_of(3, (int64_t[]){shape.dim[0] * shape.dim[1], 1, t->width});
	types = dtrain__rows_once(graph, dtrain_slice(graph, types, 0, 0, 1));
	x = dtrain__add_to_each(graph, dtrain_reshape(graph, x, &rows), types);
	return dtrain_reshape(graph, x, &shape);
}

dtrain_tensor dtrain__bert(dtrain_graph *graph, const dtrain_transformer *t, const dtrain_transformer_inputs *inputs,
			   dtrain_transformer_outputs *outputs)
{
	static const char embeddings[] = "bert.embeddings";
	dtrain_tensor tokens = dtrain__vocabulary_table(graph, "bert.embeddings.word_embeddings.weight", t);
	dtrain_tensor places = dtrain__table(graph, "bert.embeddings.position_embeddings.weight", t->positions,
					     t->width, t->deviation);
	dtrain_tensor x = dtrain__vocabulary_embedding(graph, tokens, inputs->tokens);
	x = add_types(graph, t, inputs, dtrain__add_positions(graph, x, places, inputs));
	x = dtrain__vocabulary_rows(graph, x);
	x = dtrain__norm(graph, t, embeddings, "LayerNorm", x);
	x = dtrain_dropout(graph, x, inputs->random, t->embedding_dropout, 0, false);
	for (int layer = 0; layer < t->layers; layer++) {
		dtrain_graph_next_block(graph);
		x = block(graph, t, inputs, x, layer);
	}
	dtrain_graph_next_block(graph);
	const dtrain__dense transform = layer_of(t, t->width, t->activation, DTRAIN__SPLIT_NONE);
	x = dtrain__dense_layer(graph, "cls.predictions.transform", "dense", x, &transform);
	outputs->hidden = dtrain__norm(graph, t, "cls.predictions.transform", "LayerNorm", x);
	outputs->head = t->tied ? tokens : dtrain__vocabulary_table(graph, "cls.predictions.decoder.weight", t);
	outputs->head_bias = dtrain__vocabulary_bias(graph, "cls.predictions.bias", t);
	return outputs->hidden;
}
