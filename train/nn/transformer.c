/* SPDX-License-Identifier: Apache-2.0 */
#include <dtrain/transformer.h>

#include <string.h>

#include "common/sized.h"
#include "common/system.h"
#include "core/graph.h"
#include "core/shape.h"
#include "transformer_parts.h"

#define GPT2(layer_count, head_count, columns, rest...)                                                            \
	{                                                                                                          \
		.struct_size = sizeof(dtrain_transformer), .type = DTRAIN_TRANSFORMER_GPT2, .width = (columns),    \
		.layers = (layer_count), .heads = (head_count), .kv_heads = (head_count),                          \
		.head_size = (columns) / (head_count), .inner = 4 * (columns), .epsilon = 1e-5, .deviation = 0.02, \
		.tied = true, rest                                                                                 \
	}
#define OF_OPENAI_3 .vocabulary = 50257, .positions = 2048, .activation = DTRAIN_ACTIVATION_GELU_TANH, .bias = true
#define OF_OPENAI .vocabulary = 50257, .positions = 1024, .activation = DTRAIN_ACTIVATION_GELU_TANH, .bias = true

/* Llama 2. */
#define LLAMA(layer_count, head_count, kv_head_count, columns, inner_columns)                                    \
	{                                                                                                        \
		.struct_size = sizeof(dtrain_transformer), .type = DTRAIN_TRANSFORMER_LLAMA, .width = (columns), \
		.layers = (layer_count), .heads = (head_count), .kv_heads = (kv_head_count),                     \
		.head_size = (columns) / (head_count), .inner = (inner_columns), .vocabulary = 32000,            \
		.positions = 4096, .activation = DTRAIN_ACTIVATION_SILU, .epsilon = 1e-5, .theta = 10000,        \
		.deviation = 0.02                                                                                \
	}

#define BERT(layer_count, head_count, columns)                                                                        \
	{                                                                                                             \
		.struct_size = sizeof(dtrain_transformer), .type = DTRAIN_TRANSFORMER_BERT, .width = (columns),       \
		.layers = (layer_count), .heads = (head_count), .kv_heads = (head_count),                             \
		.head_size = (columns) / (head_count), .inner = 4 * (columns), .vocabulary = 30522, .positions = 512, \
		.token_types = 2, .activation = DTRAIN_ACTIVATION_GELU, .bias = true, .tied = true, .epsilon = 1e-12, \
		.deviation = 0.02                                                                                     \
	}

#define VIT(patch, layer_count, head_count, columns, is_plain)                                                        \
	{                                                                                                             \
		.struct_size = sizeof(dtrain_transformer), .type = DTRAIN_TRANSFORMER_VIT, .width = (columns),        \
		.layers = (layer_count), .heads = (head_count), .kv_heads = (head_count),                             \
		.head_size = (columns) / (head_count), .inner = 4 * (columns), .image_size = (patch) == 4 ? 32 : 224, \
		.patch_size = (patch), .activation = DTRAIN_ACTIVATION_GELU, .bias = true, .plain = is_plain,         \
		.epsilon = 1e-6, .deviation = 0.02                                                                    \
	}

/* Models of tokens, then models of pictures. */
static const struct {
	const char *name;
	dtrain_transformer description;
} known[] = {
	{"gpt2", GPT2(12, 12, 768, OF_OPENAI)},
	{"gpt2-medium", GPT2(24, 16, 1024, OF_OPENAI)},
	{"gpt2-large", GPT2(36, 20, 1280, OF_OPENAI)},
	{"gpt2-xl", GPT2(48, 25, 1600, OF_OPENAI)},
	{"gpt2-baby", GPT2(6, 6, 384, .vocabulary = 65, .positions = 256, .activation = DTRAIN_ACTIVATION_GELU,
			   .embedding_dropout = 0.2, .dropout = 0.2, .attention_dropout = 0.2)},
	{"gpt3-175b", GPT2(96, 96, 12288, OF_OPENAI_3)},
	{"llama-7b", LLAMA(32, 32, 32, 4096, 11008)},
	{"llama-13b", LLAMA(40, 40, 40, 5120, 13824)},
	{"llama-70b", LLAMA(80, 64, 8, 8192, 28672)},
	{"bert-tiny", BERT(2, 2, 128)},
	{"bert-base", BERT(12, 12, 768)},
	{"bert-large", BERT(24, 16, 1024)},
	{"vit-s16", VIT(16, 12, 6, 384, false)},
	{"vit-b16", VIT(16, 12, 12, 768, false)},
	{"vit-l16", VIT(16, 24, 16, 1024, false)},
	{"vit-h14", VIT(14, 32, 16, 1280, false)},
	{"vit-ti4", VIT(4, 12, 3, 192, false)},
	{"vit-mini4", VIT(4, 6, 3, 96, false)},
	{"vit-s16-plain", VIT(16, 12, 6, 384, true)},
	{"vit-b16-plain", VIT(16, 12, 12, 768, true)},
	{"vit-ti4-plain", VIT(4, 12, 3, 192, true)},
	{"vit-mini4-plain", VIT(4, 6, 3, 96, true)},
};

#define KNOWN_COUNT ((int)(sizeof(known) / sizeof(known[0])))

void dtrain_transformer_init_sized(dtrain_transformer *description, size_t size)
{
	bt_sized_init(description, size, &known[0].description);
}

static bool is_vit(int index)
{
	return index >= 0 && index < KNOWN_COUNT && known[index].description.type == DTRAIN_TRANSFORMER_VIT;
}

const char *dtrain_transformer_name(int index)
{
	return index >= 0 && index < KNOWN_COUNT && !is_vit(index) ? known[index].name : NULL;
}

const char *dtrain__vit_name(int index)
{
	int tokens = 0;
	while (!is_vit(tokens))
		tokens++;
	return index >= 0 && index < KNOWN_COUNT - tokens ? known[tokens + index].name : NULL;
}

bool dtrain__is_config_path(const char *name)
{
	return strchr(name, '/') || bt_ends_with(name, ".json");
}

int dtrain_transformer_find(const char *name, dtrain_transformer *out, beton_error *err)
{
	if (BT_MISSING(err, name, out))
		return BETON_INVALID_ARGUMENT;
	char names[400] = "";
	if (dtrain__is_config_path(name))
		return dtrain_transformer_read(name, out, err);
	for (int i = 0; i < KNOWN_COUNT; i++) {
		if (strcmp(known[i].name, name) == 0) {
			*out = known[i].description;
			return BETON_OK;
		}
		bt_append(names, sizeof(names), "%s%s", i ? ", " : "", known[i].name);
	}
	return bt_fail(err, BETON_NOT_FOUND, "no model '%s'; there are: %s; a file's name has a slash or ends in .json",
		       name, names);
}

void dtrain_transformer_inputs_init_sized(dtrain_transformer_inputs *inputs, size_t size)
{
	const dtrain_transformer_inputs defaults = {.struct_size = sizeof(defaults),
						    .tokens = -1,
						    .position = -1,
						    .segment = -1,
						    .token_types = -1,
						    .random = -1,
						    .past = -1};
	bt_sized_init(inputs, size, &defaults);
}

void dtrain_transformer_outputs_init_sized(dtrain_transformer_outputs *outputs, size_t size)
{
	const dtrain_transformer_outputs defaults = {
		.struct_size = sizeof(defaults), .hidden = -1, .head = -1, .head_bias = -1};
	bt_sized_init(outputs, size, &defaults);
}

bool dtrain__transformer_check_random(dtrain_graph *graph, const dtrain_transformer *t, dtrain_tensor random)
{
	bool drops = t->dropout > 0 || t->embedding_dropout > 0 || t->attention_dropout > 0 || t->drop_path > 0;
	if (!graph->training || !drops || random >= 0)
		return true;
	dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "transformer: dropout needs the input of random numbers");
	return false;
}

/* Why the model cannot compute a text in several runs; NULL if it can, or need not. */
static const char *find_cache_problem(const dtrain_graph *graph, const dtrain_transformer *t,
				      const dtrain_transformer_inputs *inputs)
{
	if (!inputs->keys && !inputs->values)
		return NULL;
	if (!inputs->keys || !inputs->values || inputs->past < 0 || inputs->position < 0)
		return "keys, values, past and position belong together";
	if (t->type == DTRAIN_TRANSFORMER_BERT || graph->training || inputs->segment >= 0)
		return "kept keys and values are for causal models in evaluation, without segments";
	return NULL;
}

/* Ranks along "context" have other tokens of the same sequences. */
static bool check_context(dtrain_graph *graph, const dtrain_transformer_inputs *inputs)
{
	if (dtrain_graph_chunks(graph).ranks == 0 || (inputs->position >= 0 && !inputs->keys))
		return true;
	dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
			   "transformer: the mesh's axis \"context\" needs the input of positions, and keeps no keys");
	return false;
}

/* False after a failure. */
static bool check_inputs(dtrain_graph *graph, const dtrain_transformer *t, const dtrain_transformer_inputs *inputs)
{
	const dtrain__tensor *tokens = dtrain__graph_tensor(graph, inputs->tokens);
	char text[DTRAIN__SHAPE_TEXT];
	if (!tokens)
		return false;
	if (tokens->shape.ndim != 2 || tokens->shape.dim[1] > t->positions) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
				   "transformer: tokens %s; needs [b, t] with t at most %lld",
				   dtrain__shape_text(&tokens->shape, text), (long long)t->positions);
		return false;
	}
	const char *problem = find_cache_problem(graph, t, inputs);
	if (problem) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "transformer: %s", problem);
		return false;
	}
	return check_context(graph, inputs) && dtrain__transformer_check_random(graph, t, inputs->random);
}

static dtrain__transformer_builder *const builders[] = {
	[DTRAIN_TRANSFORMER_GPT2] = dtrain__gpt2,
	[DTRAIN_TRANSFORMER_LLAMA] = dtrain__llama,
	[DTRAIN_TRANSFORMER_BERT] = dtrain__bert,
};

dtrain_tensor dtrain_transformer_build(dtrain_graph *graph, const dtrain_transformer *given,
				       const dtrain_transformer_inputs *given_inputs,
				       dtrain_transformer_outputs *outputs)
{
	if (DTRAIN__MISSING(graph, outputs))
		return -1;
	dtrain_transformer t;
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs built;
	beton_error fault;
	dtrain_transformer_init(&t);
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&built);
	if (bt_sized_take(&t, given, "description", &fault) != BETON_OK ||
	    bt_sized_take(&inputs, given_inputs, "inputs", &fault) != BETON_OK ||
	    dtrain__transformer_check(&t, "transformer", &fault) != BETON_OK)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "%s", fault.message);
	if ((size_t)t.type >= sizeof(builders) / sizeof(builders[0]) || !builders[t.type])
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "transformer: no model of tokens");
	if (!check_inputs(graph, &t, &inputs) || !dtrain__transformer_check_split(graph, &t))
		return -1;
	const dtrain_shape tokens = *dtrain_graph_shape(graph, inputs.tokens);
	if (!dtrain__rows_begin(graph, "transformer", tokens.dim[0], tokens.dim[1], false))
		return -1;
	dtrain_tensor hidden = builders[t.type](graph, &t, &inputs, &built);
	dtrain__rows_end(graph);
	if (!bt_sized_give(outputs, &built))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "transformer: outputs are not initialised");
	return hidden;
}

dtrain_tensor dtrain_transformer_logits(dtrain_graph *graph, const dtrain_transformer_outputs *outputs,
					dtrain_tensor rows)
{
	if (DTRAIN__MISSING(graph, outputs))
		return -1;
	return dtrain__vocabulary_logits(graph, outputs->hidden, rows, outputs->head, outputs->head_bias);
}

dtrain_tensor dtrain_transformer_losses(dtrain_graph *graph, const dtrain_transformer_outputs *outputs,
					dtrain_tensor label, const dtrain_loss_options *options)
{
	if (DTRAIN__MISSING(graph, outputs))
		return -1;
	if (dtrain__vocabulary_is_divided(graph, outputs->head))
		return dtrain__vocabulary_losses(graph, outputs->hidden, outputs->head, outputs->head_bias, label,
						 options);
	return dtrain_linear_cross_entropy(graph, outputs->hidden, outputs->head, outputs->head_bias, label, options);
}
