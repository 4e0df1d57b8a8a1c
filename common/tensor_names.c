/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "system.h"

const char *const bt_name_givers[] = {[BT_NAMES_TIMM] = "timm",
				      [BT_NAMES_TORCHVISION] = "torchvision",
				      [BT_NAMES_HUGGING_FACE] = "huggingface",
				      NULL};

#define TIMM (1 << BT_NAMES_TIMM)
#define TORCHVISION (1 << BT_NAMES_TORCHVISION)
#define HUGGING_FACE (1 << BT_NAMES_HUGGING_FACE)

/* Names that we share with other programs. */
static const struct {
	const char *name;
	int givers;
} shared[] = {
	{"patch_embed.proj.*", TIMM},
	{"cls_token", TIMM},
	{"pos_embed", TIMM},
	{"blocks.#.*", TIMM},
	{"norm.*", TIMM},
	{"fc_norm.*", TIMM},
	{"head.*", TIMM},
	{"conv1.*", TIMM | TORCHVISION},
	{"bn1.*", TIMM | TORCHVISION},
	{"layer#.#.*", TIMM | TORCHVISION},
	{"fc.*", TIMM | TORCHVISION},
	{"transformer.*", HUGGING_FACE},
	{"lm_head.*", HUGGING_FACE},
	{"model.*", HUGGING_FACE},
	{"bert.*", HUGGING_FACE},
	{"cls.*", HUGGING_FACE},
};

#define SHARED_COUNT (sizeof(shared) / sizeof(shared[0]))

#define LAYER "encoder.layers.encoder_layer_#."

/* Hugging Face's ViTModel, which ViTForImageClassification has as "vit", and so on. */
#define HF(prefix, ours, theirs)                 \
	{ours, prefix "." theirs, HUGGING_FACE}, \
	{                                        \
		ours, theirs, HUGGING_FACE       \
	}
#define HF_LAYER "encoder.layer.#."
#define HF_STEM "embedder.embedder."
#define HF_BLOCK "encoder.stages.%.layers.#."

/* # stands for a number, % for one that is less by 1 in theirs, * for the rest of a name, + in theirs for query, key
 * and value, which are joined. */
static const struct {
	const char *ours, *theirs;
	int giver;
} rules[] = {
	{"patch_embed.proj.*", "conv_proj.*", TORCHVISION},
	{"cls_token", "class_token", TORCHVISION},
	{"pos_embed", "encoder.pos_embedding", TORCHVISION},
	{"blocks.#.norm1.*", LAYER "ln_1.*", TORCHVISION},
	{"blocks.#.attn.qkv.weight", LAYER "self_attention.in_proj_weight", TORCHVISION},
	{"blocks.#.attn.qkv.bias", LAYER "self_attention.in_proj_bias", TORCHVISION},
	{"blocks.#.attn.proj.*", LAYER "self_attention.out_proj.*", TORCHVISION},
	{"blocks.#.norm2.*", LAYER "ln_2.*", TORCHVISION},
	{"blocks.#.mlp.fc1.*", LAYER "mlp.0.*", TORCHVISION},
	{"blocks.#.mlp.fc2.*", LAYER "mlp.3.*", TORCHVISION},
	{"blocks.#.mlp.fc1.*", LAYER "mlp.linear_1.*", TORCHVISION}, /* before torchvision 0.14 */
	{"blocks.#.mlp.fc2.*", LAYER "mlp.linear_2.*", TORCHVISION},
	{"norm.*", "encoder.ln.*", TORCHVISION},
	{"head.*", "heads.head.*", TORCHVISION},
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
	{"head.*", "classifier.*", HUGGING_FACE},
	HF("resnet", "conv1.*", HF_STEM "convolution.*"),
	HF("resnet", "bn1.*", HF_STEM "normalization.*"),
	HF("resnet", "layer%.#.conv%.*", HF_BLOCK "layer.%.convolution.*"),
	HF("resnet", "layer%.#.bn%.*", HF_BLOCK "layer.%.normalization.*"),
	HF("resnet", "layer%.#.downsample.0.*", HF_BLOCK "shortcut.convolution.*"),
	HF("resnet", "layer%.#.downsample.1.*", HF_BLOCK "shortcut.normalization.*"),
	{"fc.*", "classifier.1.*", HUGGING_FACE},
	{"transformer.*", "*", HUGGING_FACE},
	{"model.*", "*", HUGGING_FACE},
	{"bert.*", "*", HUGGING_FACE},
};

#define RULE_COUNT (sizeof(rules) / sizeof(rules[0]))

enum { NUMBERS = 3, DIGITS = 9 };

/* The parts of a name that a pattern leaves open. */
typedef struct parts {
	int numbers[NUMBERS];
	const char *rest;
} parts;

/* Reads a number of few digits at *name, and moves *name past it. */
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

static void write_name(const char *pattern, const parts *open, char out[BT_TENSOR_NAME_SIZE])
{
	int number = 0;
	*out = 0;
	for (; *pattern; pattern++)
		if (*pattern == '#')
			bt_append(out, BT_TENSOR_NAME_SIZE, "%d", open->numbers[number++]);
		else if (*pattern == '%')
			bt_append(out, BT_TENSOR_NAME_SIZE, "%d", open->numbers[number++] - 1);
		else if (*pattern == '*')
			bt_append(out, BT_TENSOR_NAME_SIZE, "%s", open->rest);
		else
			bt_append(out, BT_TENSOR_NAME_SIZE, "%c", *pattern);
}

bool bt_tensor_alias(const char *name, int index, char out[BT_TENSOR_NAME_SIZE])
{
	parts open;
	for (size_t i = 0; i < RULE_COUNT; i++) {
		if (!matches(rules[i].ours, name, &open) || index-- > 0)
			continue;
		write_name(rules[i].theirs, &open, out);
		return true;
	}
	return false;
}

bool bt_tensor_name(const char *name, bt_name_giver giver, char out[BT_TENSOR_NAME_SIZE])
{
	parts open;
	if (strlen(name) >= BT_TENSOR_NAME_SIZE / 2)
		return false;
	for (size_t i = 0; i < SHARED_COUNT; i++)
		if ((shared[i].givers & 1 << giver) && matches(shared[i].name, name, &open)) {
			snprintf(out, BT_TENSOR_NAME_SIZE, "%s", name);
			return true;
		}
	for (size_t i = 0; i < RULE_COUNT; i++)
		if (rules[i].giver == 1 << giver && matches(rules[i].ours, name, &open)) {
			write_name(rules[i].theirs, &open, out);
			return true;
		}
	return false;
}

void bt_tensor_part(const char *name, int part, char out[BT_TENSOR_NAME_SIZE])
{
	static const char *const words[BT_TENSOR_PARTS] = {"query", "key", "value"};
	const char *plus = strchr(name, '+');
	snprintf(out, BT_TENSOR_NAME_SIZE, "%.*s%s%s", (int)(plus - name), name, words[part], plus + 1);
}
