/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers with parameters for which the public ones have defaults.
 */
#ifndef DTRAIN_NN_LAYERS_H
#define DTRAIN_NN_LAYERS_H

#include <dtrain/graph.h>

/* dtrain_conv2d with other initial weights. DTRAIN_INIT_LINEAR_UNIFORM is the default of PyTorch's nn.Conv2d. */
dtrain_tensor dtrain__conv2d(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_channels, int kernel,
			     int stride, int padding, dtrain_init init);

#endif
