/* SPDX-License-Identifier: Apache-2.0 */
#include "alias.h"

#include <ctype.h>
#include <string.h>

#include "common/system.h"

#define LAYER "encoder.layers.encoder_layer_#."

/* Hugging Face's ViTModel, which ViTForImageClassification has as "vit". */
#define HF(ours, theirs)       \
	{ours, "vit." theirs}, \
	{                      \
		ours, theirs   \
	}
#define HF_LAYER "encoder.layer.#."

/* # stands for a number, * for the rest of a name, + in theirs for query, key and value, which are joined. */
static const struct {
	const char *ours, *theirs;
} rules[] = {
	{"patch_embed.proj.*", "conv_proj.*"},
	{"cls_token", "class_token"},
	{"pos_embed", "encoder.pos_embedding"},
	{"blocks.#.norm1.*", LAYER "ln_1.*"},
	{"blocks.#.attn.qkv.weight", LAYER "self_attention.in_proj_weight"},
	{"blocks.#.attn.qkv.bias", LAYER "self_attention.in_proj_bias"},
	{"blocks.#.attn.proj.*", LAYER "self_attention.out_proj.*"},
	{"blocks.#.norm2.*", LAYER "ln_2.*"},
	{"blocks.#.mlp.fc1.*", LAYER "mlp.0.*"},
	{"blocks.#.mlp.fc2.*", LAYER "mlp.3.*"},
	{"blocks.#.mlp.fc1.*", LAYER "mlp.linear_1.*"}, /* before torchvision 0.14 */
	{"blocks.#.mlp.fc2.*", LAYER "mlp.linear_2.*"},
	{"norm.*", "encoder.ln.*"},
	{"head.*", "heads.head.*"},
	HF("patch_embed.proj.*", "embeddings.patch_embeddings.projection.*"),
	HF("cls_token", "embeddings.cls_token"),
	HF("pos_embed", "embeddings.position_embeddings"),
	HF("blocks.#.norm1.*", HF_LAYER "layernorm_before.*"),
	HF("blocks.#.attn.qkv.*", HF_LAYER "attention.attention.+.*"),
	HF("blocks.#.attn.proj.*", HF_LAYER "attention.output.dense.*"),
	HF("blocks.#.norm2.*", HF_LAYER "layernorm_after.*"),
	HF("blocks.#.mlp.fc1.*", HF_LAYER "intermediate.dense.*"),
	HF("blocks.#.mlp.fc2.*", HF_LAYER "output.dense.*"),
	HF("norm.*", "layernorm.*"),
	{"head.*", "classifier.*"},
	{"transformer.*", "*"},
	{"model.*", "*"},
	{"bert.*", "*"},
};

#define RULE_COUNT (sizeof(rules) / sizeof(rules[0]))

/* The parts of a name that a pattern leaves open. */
typedef struct parts {
	const char *number, *rest;
	int digits;
} parts;

static bool matches(const char *pattern, const char *name, parts *out)
{
	*out = (parts){.number = "", .rest = ""};
	for (; *pattern; pattern++) {
		if (*pattern == '*') {
			out->rest = name;
			return *name != 0;
		}
		if (*pattern != '#') {
			if (*pattern != *name++)
				return false;
			continue;
		}
		for (out->number = name; isdigit((unsigned char)*name); name++)
			out->digits++;
		if (!out->digits)
			return false;
	}
	return *name == 0;
}

bool run_alias(const char *name, int index, char *out, size_t size)
{
	parts open;
	for (size_t i = 0; i < RULE_COUNT; i++) {
		if (!matches(rules[i].ours, name, &open) || index-- > 0)
			continue;
		*out = 0;
		for (const char *at = rules[i].theirs; *at; at++)
			if (*at == '#')
				bt_append(out, size, "%.*s", open.digits, open.number);
			else if (*at == '*')
				bt_append(out, size, "%s", open.rest);
			else
				bt_append(out, size, "%c", *at);
		return true;
	}
	return false;
}
