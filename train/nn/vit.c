/* SPDX-License-Identifier: Apache-2.0
 *
 * Vision transformers (Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020), with timm's names and initial
 * values. The plain kind is that of big_vision (Beyer et al., "Better plain ViT baselines for ImageNet-1k", 2022), with
 * its initial values.
 */
#include <stdio.h>

#include "common/sized.h"
#include "core/graph.h"
#include "models.h"
#include "transformer_parts.h"

/* Weights are normal, or in plain ViTs Xavier-uniform: within sqrt(6 / (in + out)). */
static dtrain__dense layer_of(const dtrain_transformer *t, int64_t features, int64_t fans, dtrain__split split)
{
	const dtrain__initial uniform = {DTRAIN_INIT_LINEAR_UNIFORM, fans / 6};
	return (dtrain__dense){.features = features,
			       .bias = true,
			       .initial = t->plain ? uniform : dtrain__normal(t->deviation),
			       .split = split};
}

static dtrain_tensor attend(dtrain_graph *graph, const dtrain_transformer *t, const char *prefix, dtrain_tensor x,
			    const dtrain_attention_options *options)
{
	dtrain__dense qkv = layer_of(t, 3 * t->width, 2 * t->width, DTRAIN__SPLIT_COLUMN);
	const dtrain__dense proj = layer_of(t, t->width, 2 * t->width, DTRAIN__SPLIT_ROW);
	qkv.blocks = 3;
	x = dtrain_attention_packed(graph, dtrain__dense_layer(graph, prefix, "attn.qkv", x, &qkv), -1, options);
	return dtrain__dense_layer(graph, prefix, "attn.proj", x, &proj);
}

static dtrain_tensor mlp(dtrain_graph *graph, const dtrain_transformer *t, const char *prefix, dtrain_tensor x)
{
	dtrain__mlp_layers mlp = {"mlp.fc1", NULL, "mlp.fc2",
				  layer_of(t, t->inner, t->width + t->inner, DTRAIN__SPLIT_COLUMN),
				  layer_of(t, t->width, t->width + t->inner, DTRAIN__SPLIT_ROW)};
	mlp.first.activation = t->activation;
	return dtrain__dense_mlp(graph, prefix, x, &mlp);
}

/* x + y, where y is subject to dropout and to stochastic depth. branch: the number of y in the model, from 0. Each
 * dropout draws by a number of its own; 0 is that of the embeddings. */
static dtrain_tensor residual(dtrain_graph *graph, const dtrain_transformer *t, dtrain_tensor x, dtrain_tensor y,
			      dtrain_tensor random, int branch)
{
	const int count = 2 * (int)t->layers;
	double share = t->layers > 1 ? (double)(branch / 2) / (double)(t->layers - 1) : 0;
	y = dtrain_dropout(graph, y, random, t->dropout, 1 + branch, false);
	y = dtrain_dropout(graph, y, random, t->drop_path * share, 1 + count + branch, true);
	return dtrain_add(graph, x, y, false);
}

static dtrain_tensor block(dtrain_graph *graph, const dtrain_transformer *t, dtrain_tensor x, dtrain_tensor random,
			   int layer)
{
	char name[DTRAIN__NAME_SIZE];
	const dtrain_attention_options attention = dtrain__attention_options(graph, t, random, layer);
	snprintf(name, sizeof(name), "blocks.%d", layer);
	dtrain_tensor y = attend(graph, t, name, dtrain__norm(graph, t, name, "norm1", x), &attention);
	x = residual(graph, t, x, y, random, 2 * layer);
	y = mlp(graph, t, name, dtrain__norm(graph, t, name, "norm2", x));
	return residual(graph, t, x, y, random, 2 * layer + 1);
}

/* Pictures [b, 3, h, w] to tokens [b, patches, width]: a convolution without overlap. timm's initial values are
 * nn.Conv2d's; big_vision's are LeCun's and zeros. */
static dtrain_tensor embed_patches(dtrain_graph *graph, const dtrain_transformer *t, dtrain_tensor image)
{
	static const char name[] = "patch_embed.proj";
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, image);
	if (!source)
		return -1;
	int64_t batch = source->shape.dim[0], depth = source->shape.dim[1], side = t->patch_size;
	int64_t height = source->shape.dim[2] / side, width = source->shape.dim[3] / side;
	int64_t fan_in = depth * side * side, patches = height * width;
	dtrain_shape kernel = dtrain_shape_of(4, (int64_t[]){t->width, depth, side, side});
	dtrain_shape out = dtrain_shape_of(4, (int64_t[]){batch, t->width, height, width});
	dtrain_shape vector = dtrain_shape_of(1, &t->width);
	dtrain_shape rows = dtrain_shape_of(3, (int64_t[]){batch, t->width, patches});
	dtrain_init init = t->plain ? DTRAIN_INIT_NORMAL : DTRAIN_INIT_LINEAR_UNIFORM;
	dtrain_tensor w = dtrain__graph_param(graph, name, "weight", &kernel, init, fan_in);
	dtrain_tensor b = dtrain__graph_param(graph, name, "bias", &vector, t->plain ? DTRAIN_INIT_ZERO : init, fan_in);
	const dtrain_op_attrs attrs = {.window = {.stride = {(int32_t)side, (int32_t)side}}};
	dtrain_tensor x = dtrain__graph_op(graph, DTRAIN_OP_CONV2D, &attrs, &out, 2, (dtrain_tensor[]){image, w});
	x = dtrain__graph_op(graph, DTRAIN_OP_CHANNEL_BIAS, NULL, &out, 2, (dtrain_tensor[]){x, b});
	return dtrain_permute(graph, dtrain_reshape(graph, x, &rows), (const int[]){0, 2, 1});
}

/* Prepends the class token, if any, to each picture's tokens, and adds the positions. */
static dtrain_tensor add_class_and_positions(dtrain_graph *graph, const dtrain_transformer *t, dtrain_tensor x)
{
	const dtrain_shape *known = dtrain_graph_shape(graph, x);
	if (!known)
		return -1;
	dtrain_shape one = dtrain_shape_of(3, (int64_t[]){1, 1, t->width}), row = dtrain_shape_of(1, &t->width);
	dtrain_shape all = dtrain_shape_of(3, (int64_t[]){1, known->dim[1], t->width});
	if (t->plain)
		return dtrain__add_to_each(
			graph, x, dtrain__graph_fixed(graph, "pos_embed", "sincos2d", &all, DTRAIN_INIT_SINCOS_2D));
	if (!t->no_class_token) {
		dtrain__initial small = dtrain__normal(1e-6);
		dtrain_tensor token = dtrain_graph_parameter(graph, "cls_token", &one, small.init, small.fan_in);
		x = dtrain_prepend(graph, x, dtrain_reshape(graph, token, &row));
		all.dim[1]++;
	}
	dtrain__initial initial = dtrain__normal(t->deviation);
	dtrain_tensor places = dtrain_graph_parameter(graph, "pos_embed", &all, initial.init, initial.fan_in);
	return dtrain__add_to_each(graph, x, places);
}

/* The mean of tokens [b, t, width]: [b, width]. */
static dtrain_tensor mean_of(dtrain_graph *graph, dtrain_tensor x)
{
	const dtrain_shape *known = dtrain_graph_shape(graph, x);
	if (!known)
		return -1;
	dtrain_shape planes = dtrain_shape_of(4, (int64_t[]){known->dim[0], known->dim[2], known->dim[1], 1});
	x = dtrain_permute(graph, x, (const int[]){0, 2, 1});
	return dtrain_global_avg_pool(graph, dtrain_reshape(graph, x, &planes));
}

/* Tokens to [b, width]: the class token, or the mean. A norm works on each token, so it comes after the choice. */
static dtrain_tensor pool(dtrain_graph *graph, const dtrain_transformer *t, dtrain_tensor x)
{
	const dtrain_shape *known = dtrain_graph_shape(graph, x);
	if (!known)
		return -1;
	dtrain_shape row = dtrain_shape_of(2, (int64_t[]){known->dim[0], t->width});
	int64_t patches = known->dim[1] - 1;
	if (t->plain)
		return mean_of(graph, dtrain__norm(graph, t, NULL, "norm", x));
	if (t->mean_pool && !t->no_class_token)
		x = dtrain_slice(graph, x, 1, 1, patches);
	if (t->mean_pool)
		return dtrain__norm(graph, t, NULL, "fc_norm", mean_of(graph, x));
	x = dtrain_reshape(graph, dtrain_slice(graph, x, 1, 0, 1), &row);
	return dtrain__norm(graph, t, NULL, "norm", x);
}

/* Whether pictures of that shape can be cut into patches, in plain ViTs a square of them. */
static bool check_image(dtrain_graph *graph, const dtrain_transformer *t, const dtrain_shape *image)
{
	if (image->ndim != 4) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "vit: the input is not a batch of pictures");
		return false;
	}
	int64_t height = image->dim[2], width = image->dim[3];
	if (height % t->patch_size || width % t->patch_size || (t->plain && height != width)) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
				   "vit: a picture of %lld x %lld pixels is not divisible into %spatches of %lld",
				   (long long)height, (long long)width, t->plain ? "a square of " : "",
				   (long long)t->patch_size);
		return false;
	}
	if (t->plain && (t->width % 4 || t->width < 8)) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "vit: width %lld has no quarters for positions",
				   (long long)t->width);
		return false;
	}
	return true;
}

/* Tokens of a picture. */
static int64_t positions_of(const dtrain_transformer *t, const dtrain_shape *image)
{
	bool has_class = !t->plain && !t->no_class_token;
	return image->dim[2] / t->patch_size * (image->dim[3] / t->patch_size) + has_class;
}

/* The head has each picture alone, so a rank computes the logits of its own. */
static dtrain_tensor build(dtrain_graph *graph, const dtrain_transformer *t, dtrain_tensor image, dtrain_tensor random,
			   int64_t classes)
{
	dtrain_tensor own = dtrain__rows_own_samples(graph, image);
	dtrain_tensor x = add_class_and_positions(graph, t, embed_patches(graph, t, own));
	x = dtrain_dropout(graph, x, random, t->embedding_dropout, 0, false);
	for (int layer = 0; layer < t->layers; layer++) {
		dtrain_graph_next_block(graph);
		x = block(graph, t, x, random, layer);
	}
	dtrain_graph_next_block(graph);
	x = dtrain__dense_layer(graph, NULL, "head", pool(graph, t, x),
				&(dtrain__dense){.features = classes,
						 .bias = true,
						 .initial = t->plain ? (dtrain__initial){DTRAIN_INIT_ZERO, 0}
								     : dtrain__normal(t->deviation)});
	return dtrain__rows_all_samples(graph, x);
}

dtrain_tensor dtrain_vit_build(dtrain_graph *graph, const dtrain_transformer *given, dtrain_tensor image,
			       dtrain_tensor random, int64_t classes)
{
	if (!graph)
		return -1;
	dtrain_transformer description, *t = &description;
	beton_error fault;
	dtrain_transformer_init(t);
	if (bt_sized_take(t, given, "description", &fault) != BETON_OK ||
	    dtrain__transformer_check(t, "vit", &fault) != BETON_OK)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "%s", fault.message);
	if (t->type != DTRAIN_TRANSFORMER_VIT || classes < 1)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "vit: no model of pictures, or %lld classes",
					  (long long)classes);
	const dtrain_shape *shape = dtrain_graph_shape(graph, image);
	if (!shape || !dtrain__model_check_context(graph, "vit") || !check_image(graph, t, shape) ||
	    !dtrain__transformer_check_random(graph, t, random) || !dtrain__transformer_check_split(graph, t) ||
	    !dtrain__rows_begin(graph, "vit", shape->dim[0], positions_of(t, shape), true))
		return -1;
	dtrain_tensor logits = build(graph, t, image, random, classes);
	dtrain__rows_end(graph);
	return logits;
}
