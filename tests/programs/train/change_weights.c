/* SPDX-License-Identifier: Apache-2.0
 *
 * change-weights IN OUT CHANGE [NAME]: a copy of a safetensors file, without metadata, with changed weights: "f16",
 * "bf16", "f64": of that type; "f16-wide", "bf16-wide": rounded to it, but F32; "prefix": with "module." before each
 * name; "nan": the last number of tensor NAME is NaN; "drop": without tensors whose names begin with NAME; "flat":
 * tensor NAME has one dimension; "torchvision": a vision transformer with torchvision's names; "gamma": a BERT with the
 * names of the published bert-base-uncased; "extra": with a tensor more, called NAME. change-weights A B differ: prints
 * the names of the tensors that differ. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/safetensors.h"
#include "common/half.h"
#include "common/system.h"

static const char *change, *name;

static bool is_change(const char *what)
{
	return strcmp(change, what) == 0;
}

static dtrain_dtype type_of(dtrain_dtype dtype)
{
	if (dtype != DTRAIN_F32)
		return dtype;
	return is_change("f16") ? DTRAIN_F16 : is_change("bf16") ? DTRAIN_BF16 : is_change("f64") ? DTRAIN_F64 : dtype;
}

static void store(dtrain_dtype dtype, float value, char *out)
{
	const uint16_t half = dtype == DTRAIN_F16 ? bt_float16(value) : bt_bfloat16(value);
	const double wide = (double)value;
	if (is_change("f16-wide"))
		value = bt_widen_float16(bt_float16(value));
	if (is_change("bf16-wide"))
		value = bt_widen_bfloat16(bt_bfloat16(value));
	memcpy(out,
	       dtype == DTRAIN_F32   ? (const void *)&value
	       : dtype == DTRAIN_F64 ? (const void *)&wide
				     : &half,
	       dtrain_dtype_size(dtype));
}

static int fetch(void *context, size_t index, uint64_t at, void *out, size_t bytes, beton_error *err)
{
	(void)err;
	memcpy(out, ((char **)context)[index] + at, bytes);
	return BETON_OK;
}

/* timm's name in torchvision's words. */
static char *torchvision_name(const char *from)
{
	static const char *const words[][2] = {{"patch_embed.proj.weight", "conv_proj.weight"},
					       {"patch_embed.proj.bias", "conv_proj.bias"},
					       {"cls_token", "class_token"},
					       {"pos_embed", "encoder.pos_embedding"},
					       {"norm.weight", "encoder.ln.weight"},
					       {"norm.bias", "encoder.ln.bias"},
					       {"head.weight", "heads.head.weight"},
					       {"head.bias", "heads.head.bias"},
					       {"norm1.weight", "ln_1.weight"},
					       {"norm1.bias", "ln_1.bias"},
					       {"norm2.weight", "ln_2.weight"},
					       {"norm2.bias", "ln_2.bias"},
					       {"attn.qkv.weight", "self_attention.in_proj_weight"},
					       {"attn.qkv.bias", "self_attention.in_proj_bias"},
					       {"attn.proj.weight", "self_attention.out_proj.weight"},
					       {"attn.proj.bias", "self_attention.out_proj.bias"},
					       {"mlp.fc1.weight", "mlp.0.weight"},
					       {"mlp.fc1.bias", "mlp.0.bias"},
					       {"mlp.fc2.weight", "mlp.3.weight"},
					       {"mlp.fc2.bias", "mlp.3.bias"}};
	int layer, begin = 0;
	bool in_layer = sscanf(from, "blocks.%d.%n", &layer, &begin) == 1;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(words[i][0], from + begin) == 0)
			return in_layer ? bt_format("encoder.layers.encoder_layer_%d.%s", layer, words[i][1])
					: strdup(words[i][1]);
	exit(1);
}

/* Hugging Face's name of a BERT's tensor as its first files have it. */
static char *gamma_name(const char *from)
{
	int stem = (int)(strlen(from) - strlen("weight"));
	if (bt_ends_with(from, "LayerNorm.weight"))
		return bt_format("%.*sgamma", stem, from);
	return bt_ends_with(from, "LayerNorm.bias") ? bt_format("%.*sbeta", stem + 2, from) : strdup(from);
}

/* The new content of an entry. */
static char *convert(const safetensors_file *in, size_t index, safetensors_entry *entry, beton_error *err)
{
	const safetensors_entry *from = &in->entries[index];
	int64_t count = dtrain_shape_count(&from->shape);
	char *stored = malloc(from->bytes + 8), *out = calloc((size_t)count + 1, 8);
	if (!stored || !out || dtrain__safetensors_read(in, from, stored, err) != BETON_OK)
		exit(1);
	*entry = (safetensors_entry){.name = from->name, .dtype = type_of(from->dtype), .shape = from->shape};
	for (int64_t i = 0; i < count && from->dtype == DTRAIN_F32; i++)
		store(entry->dtype, ((float *)stored)[i], out + (size_t)i * dtrain_dtype_size(entry->dtype));
	if (from->dtype != DTRAIN_F32)
		memcpy(out, stored, from->bytes);
	if (is_change("nan") && strcmp(from->name, name) == 0)
		store(entry->dtype, NAN, out + (size_t)(count - 1) * dtrain_dtype_size(entry->dtype));
	if (is_change("prefix"))
		entry->name = bt_format("module.%s", from->name);
	if (is_change("torchvision"))
		entry->name = torchvision_name(from->name);
	if (is_change("gamma"))
		entry->name = gamma_name(from->name);
	if (is_change("flat") && strcmp(from->name, name) == 0)
		entry->shape = dtrain_shape_of(1, &count);
	free(stored);
	return out;
}

/* Prints the names of the tensors of one file that are others in the other one. */
static int tell_differences(const char *first, const char *second)
{
	safetensors_file files[2];
	beton_error err;
	if (dtrain__safetensors_open(&files[0], first, &err) != BETON_OK ||
	    dtrain__safetensors_open(&files[1], second, &err) != BETON_OK)
		return 2;
	for (size_t i = 0; i < files[0].count; i++) {
		const safetensors_entry *a = &files[0].entries[i], *b = dtrain__safetensors_find(&files[1], a->name);
		char *bytes[2] = {malloc(a->bytes + 1), malloc(a->bytes + 1)};
		if (!b || b->bytes != a->bytes || dtrain__safetensors_read(&files[0], a, bytes[0], &err) != BETON_OK ||
		    dtrain__safetensors_read(&files[1], b, bytes[1], &err) != BETON_OK)
			return 2;
		if (memcmp(bytes[0], bytes[1], a->bytes) != 0)
			puts(a->name);
		free(bytes[0]);
		free(bytes[1]);
	}
	dtrain__safetensors_close(&files[0]);
	dtrain__safetensors_close(&files[1]);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[3], "differ") == 0)
		return tell_differences(argv[1], argv[2]);
	safetensors_file in;
	beton_error err;
	checkpoint_digest digest = {0};
	size_t count = 0;
	if (argc < 4 || dtrain__safetensors_open(&in, argv[1], &err) != BETON_OK)
		return 2;
	change = argv[3];
	name = argc > 4 ? argv[4] : "";
	safetensors_entry *entries = calloc(in.count + 1, sizeof(*entries));
	char **memory = calloc(in.count + 1, sizeof(*memory));
	for (size_t i = 0; entries && memory && i < in.count; i++)
		if (!is_change("drop") || strncmp(in.entries[i].name, name, strlen(name)) != 0) {
			memory[count] = convert(&in, i, &entries[count], &err);
			count++;
		}
	if (is_change("extra")) {
		memory[count] = calloc(1, sizeof(float));
		entries[count++] = (safetensors_entry){.name = name, .dtype = DTRAIN_F32};
	}
	int fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0666);
	int status = dtrain__digest_begin(&digest, UINT64_MAX, &err);
	if (status == BETON_OK)
		status = dtrain__safetensors_write(fd, argv[2], entries, count, NULL, fetch, memory, &digest, &err);
	if (status != BETON_OK)
		fprintf(stderr, "change-weights: %s\n", err.message);
	for (size_t i = 0; i < count; i++) {
		free(memory[i]);
		if (is_change("prefix") || is_change("torchvision") || is_change("gamma"))
			free((char *)entries[i].name);
	}
	free(memory);
	free(entries);
	dtrain__digest_free(&digest);
	dtrain__safetensors_close(&in);
	return status != BETON_OK || close(fd) != 0;
}
