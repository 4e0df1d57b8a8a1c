/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers with what the public ones leave to their defaults.
 */
#ifndef DTRAIN_NN_LAYERS_H
#define DTRAIN_NN_LAYERS_H

#include <dtrain/graph.h>

/* dtrain_conv2d with initial weights of another kind. DTRAIN_INIT_LINEAR_UNIFORM is what PyTorch's nn.Conv2d has when
 * nobody sets them. */
dtrain_tensor dtrain__conv2d(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_channels, int kernel,
			     int stride, int padding, dtrain_init init);

#endif
