/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama (Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023), with the names of Hugging
 * Face's LlamaForCausalLM: RMS norms before attention and MLP, rotary positions, gated MLPs, and no biases. Several
 * heads may share their keys and values.
 */
#include <stdio.h>

#include "transformer_parts.h"

static dtrain__dense layer_of(const dtrain_transformer *t, int64_t features, dtrain__split split)
{
	return (dtrain__dense){.features = features, .initial = dtrain__normal(t->deviation), .split = split};
}

static dtrain_tensor norm(dtrain_graph *graph, const dtrain_transformer *t, const char *block, const char *suffix,
			  dtrain_tensor x)
{
	char name[DTRAIN__NAME_SIZE];
	return dtrain_rms_norm(graph, dtrain__name(name, block, suffix), x, t->epsilon);
}

static dtrain_tensor attention(dtrain_graph *graph, const dtrain_transformer *t,
			       const dtrain_transformer_inputs *inputs, const char *block, int layer, dtrain_tensor x)
{
	int head_size = (int)t->head_size;
	const dtrain__dense heads = layer_of(t, t->heads * t->head_size, DTRAIN__SPLIT_COLUMN);
	const dtrain__dense keys = layer_of(t, t->kv_heads * t->head_size, DTRAIN__SPLIT_COLUMN);
	const dtrain__dense output = layer_of(t, t->width, DTRAIN__SPLIT_ROW);
	dtrain_attention_options options = dtrain__attention_options(graph, t, inputs->random, layer);
	options.causal = true;
	dtrain_tensor q = dtrain__dense_layer(graph, block, "self_attn.q_proj", x, &heads);
	dtrain_tensor k = dtrain__dense_layer(graph, block, "self_attn.k_proj", x, &keys);
	dtrain_tensor v = dtrain__dense_layer(graph, block, "self_attn.v_proj", x, &keys);
	q = dtrain_rotary(graph, q, inputs->position, head_size, t->theta, false);
	k = dtrain_rotary(graph, k, inputs->position, head_size, t->theta, false);
	if (inputs->keys)
		x = dtrain_attention_cached(graph, q, k, v, inputs->keys[layer], inputs->values[layer], inputs->past,
					    &options);
	else
		x = dtrain_attention(graph, q, k, v, inputs->segment, &options);
	return dtrain__dense_layer(graph, block, "self_attn.o_proj", x, &output);
}

static dtrain_tensor block(dtrain_graph *graph, const dtrain_transformer *t, const dtrain_transformer_inputs *inputs,
			   dtrain_tensor x, int layer)
{
	char name[DTRAIN__NAME_SIZE];
	const dtrain__mlp_layers mlp = {"mlp.up_proj", "mlp.gate_proj", "mlp.down_proj",
					layer_of(t, t->inner, DTRAIN__SPLIT_COLUMN),
					layer_of(t, t->width, DTRAIN__SPLIT_ROW)};
	snprintf(name, sizeof(name), "model.layers.%d", layer);
	dtrain_tensor y = attention(graph, t, inputs, name, layer, norm(graph, t, name, "input_layernorm", x));
	x = dtrain_add(graph, x, dtrain_dropout(graph, y, inputs->random, t->dropout, 2 * layer + 1, false), false);
	y = dtrain__dense_mlp(graph, name, norm(graph, t, name, "post_attention_layernorm", x), &mlp);
	return dtrain_add(graph, x, dtrain_dropout(graph, y, inputs->random, t->dropout, 2 * layer + 2, false), false);
}

dtrain_tensor dtrain__llama(dtrain_graph *graph, const dtrain_transformer *t, const dtrain_transformer_inputs *inputs,
			    dtrain_transformer_outputs *outputs)
{
	dtrain_tensor tokens = dtrain__vocabulary_table(graph, "model.embed_tokens.weight", t);
	dtrain_tensor x = dtrain__vocabulary_rows(graph, dtrain__vocabulary_embedding(graph, tokens, inputs->tokens));
	x = dtrain_dropout(graph, x, inputs->random, t->embedding_dropout, 0, false);
	for (int layer = 0; layer < t->layers; layer++) {
		dtrain_graph_next_block(graph);
		x = block(graph, t, inputs, x, layer);
	}
	dtrain_graph_next_block(graph);
	outputs->hidden = norm(graph, t, "model", "norm", x);
	outputs->head = t->tied ? tokens : dtrain__vocabulary_table(graph, "lm_head.weight", t);
	return outputs->hidden;
}
