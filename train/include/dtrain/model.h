/* SPDX-License-Identifier: Apache-2.0
 *
 * Models by name: mlp, airbench94 (the network of airbench94 for CIFAR-10; the caller must set its first convolution's
 * weights, a buffer), resnet9 (the network of FFCV's CIFAR-10 example), resnet20 (CIFAR, He et al. 2015 section 4.2),
 * resnet18, resnet34, resnet50, resnet101, resnet152 (the last three: v1.5, the stride is in the 3x3 convolution).
 * Parameters have the names and shapes of torchvision (the last five), of FFCV's example (resnet9) and of airbench94's
 * own program.
 *
 * Vision transformers, with timm's names: vit-s16, vit-b16 and vit-l16 (patches of 16 pixels), vit-h14 (14), vit-ti4
 * (width 192, 12 layers, 3 heads) and vit-mini4 (width 96, 6 layers, 3 heads) with patches of 4 pixels for small
 * pictures. vit-s16, vit-b16, vit-ti4 and vit-mini4 followed by "-plain" are the kind of dtrain_transformer.plain. A
 * name with a slash or one that ends in ".json" is that of a description (<dtrain/transformer.h>) with model_type vit;
 * one with dropout needs dtrain_vit_build to be trained. Positions are for the pictures' size.
 */
#ifndef DTRAIN_MODEL_H
#define DTRAIN_MODEL_H

#include <dtrain/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Builds a model from a picture batch [n, 3, h, w] to logits [n, classes]. Returns -1 and sets the graph's error for an
 * unknown name, or if the pictures are too small or too large for the model, or not divisible into its patches. */
BETON_API dtrain_tensor dtrain_model_build(dtrain_graph *graph, const char *model, dtrain_tensor image,
					   int64_t classes);

/* The known names, NULL past the end. */
BETON_API const char *dtrain_model_name(int index);

#ifdef __cplusplus
}
#endif

#endif
