/* SPDX-License-Identifier: Apache-2.0
 *
 * Models by name: mlp, airbench94 (the network of airbench94 for CIFAR-10; its first convolution's weights, a buffer,
 * are to be set by who trains it), resnet9 (the network of FFCV's CIFAR-10 example), resnet20 (CIFAR, He et al. 2015
 * section 4.2), resnet18, resnet50 (v1.5: the stride sits in the 3x3 convolution). Parameter names and shapes of the
 * last two are torchvision's; resnet9's are those of FFCV's example, airbench94's those of its peer.
 */
#ifndef DTRAIN_MODEL_H
#define DTRAIN_MODEL_H

#include <dtrain/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From a picture batch [n, 3, h, w] to logits [n, classes]; -1 with the graph's error for an unknown name or a picture
 * too small or too large for the model. */
BETON_API dtrain_tensor dtrain_model_build(dtrain_graph *graph, const char *model, dtrain_tensor image,
					   int64_t classes);

/* The known names, NULL past the end. */
BETON_API const char *dtrain_model_name(int index);

#ifdef __cplusplus
}
#endif

#endif
