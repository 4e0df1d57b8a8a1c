/* SPDX-License-Identifier: Apache-2.0 */
#include "alias.h"

#include <ctype.h>
#include <string.h>

#include "common/system.h"

#define LAYER "encoder.layers.encoder_layer_#."

/* Hugging Face's ViTModel, which ViTForImageClassification has as "vit", and so on. */
#define HF(prefix, ours, theirs)   \
	{ours, prefix "." theirs}, \
	{                          \
		ours, theirs       \
	}
#define HF_LAYER "encoder.layer.#."
#define HF_STEM "embedder.embedder."
#define HF_BLOCK "encoder.stages.%.layers.#."

/* # stands for a number, % for one that is less by 1 in theirs, * for the rest of a name, + in theirs for query, key
 * and value, which are joined. */
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
	HF("vit", "patch_embed.proj.*", "embeddings.patch_embeddings.projection.*"),
	HF("vit", "cls_token", "embeddings.cls_token"),
	HF("vit", "pos_embed", "embeddings.position_embeddings"),
	HF("vit", "blocks.#.norm1.*", HF_LAYER "layernorm_before.*"),
	HF("vit", "blocks.#.attn.qkv.*", HF_LAYER "attention.attention.+.*"),
	HF("vit", "blocks.#.attn.proj.*", HF_LAYER "attention.output.dense.*"),
	HF("vit", "blocks.#.norm2.*", HF_LAYER "layernorm_after.*"),
	HF("vit", "blocks.#.mlp.fc1.*", HF_LAYER "intermediate.dense.*"),
	HF("vit", "blocks.#.mlp.fc2.*", HF_LAYER "output.dense.*"),
	HF("vit", "norm.*", "layernorm.*"),
	{"head.*", "classifier.*"},
	HF("resnet", "conv1.*", HF_STEM "convolution.*"),
	HF("resnet", "bn1.*", HF_STEM "normalization.*"),
	HF("resnet", "layer%.#.conv%.*", HF_BLOCK "layer.%.convolution.*"),
	HF("resnet", "layer%.#.bn%.*", HF_BLOCK "layer.%.normalization.*"),
	HF("resnet", "layer%.#.downsample.0.*", HF_BLOCK "shortcut.convolution.*"),
	HF("resnet", "layer%.#.downsample.1.*", HF_BLOCK "shortcut.normalization.*"),
	{"fc.*", "classifier.1.*"},
	{"transformer.*", "*"},
	{"model.*", "*"},
	{"bert.*", "*"},
};

#define RULE_COUNT (sizeof(rules) / sizeof(rules[0]))

enum { NUMBERS = 3, DIGITS = 9 };

/* The parts of a name that a pattern leaves open. */
typedef struct parts {
	int numbers[NUMBERS];
	const char *rest;
} parts;

/* Reads a number of few digits at *name, and goes behind it. */
static bool take_number(const char **name, int *out)
{
	int digits = 0;
	for (*out = 0; isdigit((unsigned char)**name) && digits <= DIGITS; (*name)++, digits++)
		*out = 10 * *out + (**name - '0');
	return digits > 0 && digits <= DIGITS;
}

static bool matches(const char *pattern, const char *name, parts *out)
{
	int count = 0;
	*out = (parts){.rest = ""};
	for (; *pattern; pattern++) {
		if (*pattern == '*') {
			out->rest = name;
			return *name != 0;
		}
		bool number = *pattern == '#' || *pattern == '%';
		if (number ? !take_number(&name, &out->numbers[count++]) : *pattern != *name++)
			return false;
	}
	return *name == 0;
}

bool run_alias(const char *name, int index, char *out, size_t size)
{
	parts open;
	for (size_t i = 0; i < RULE_COUNT; i++) {
		int number = 0;
		if (!matches(rules[i].ours, name, &open) || index-- > 0)
			continue;
		*out = 0;
		for (const char *at = rules[i].theirs; *at; at++)
			if (*at == '#')
				bt_append(out, size, "%d", open.numbers[number++]);
			else if (*at == '%')
				bt_append(out, size, "%d", open.numbers[number++] - 1);
			else if (*at == '*')
				bt_append(out, size, "%s", open.rest);
			else
				bt_append(out, size, "%c", *at);
		return true;
	}
	return false;
}
