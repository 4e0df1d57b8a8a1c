/* SPDX-License-Identifier: Apache-2.0
 *
 * The network of airbench94 (legacy/airbench94.py of KellerJordan/cifar10-airbench): a 2 x 2 convolution with weights
 * that are computed from the training pictures and not trained, and three groups of two convolutions. The names are as
 * in its state_dict, so weights can be exchanged. Its last max pool is 3 x 3, which for 32 x 32 pictures is the whole
 * input; here the pool covers the whole input for other sizes too.
 */
#include <stdio.h>

#include "layers.h"
#include "models.h"

enum { NAME_SIZE = 32, WHITENED = 24 };

static dtrain_tensor conv(dtrain_graph *graph, const char *group, int number, dtrain_tensor x, int64_t channels)
{
	char name[NAME_SIZE];
	snprintf(name, sizeof(name), "%s.conv%d", group, number);
	return dtrain__conv2d(graph, name, x, channels, 3, 1, 1, DTRAIN_INIT_DIRAC);
}

/* Batch norm without a trained weight, and gelu. PyTorch's momentum is the share of the new value. */
static dtrain_tensor norm(dtrain_graph *graph, const char *group, int number, dtrain_tensor x)
{
	char name[NAME_SIZE];
	dtrain_batch_norm_options options;
	dtrain_batch_norm_options_init(&options);
	options.fixed_weight = true;
	options.epsilon = 1e-12;
	options.momentum = 0.4;
	snprintf(name, sizeof(name), "%s.norm%d", group, number);
	return dtrain_gelu(graph, dtrain_batch_norm_with(graph, name, x, &options));
}

static dtrain_tensor group(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t channels)
{
	dtrain_graph_next_block(graph);
	x = dtrain_max_pool(graph, conv(graph, name, 1, x, channels), 2, 2, 0);
	x = norm(graph, name, 1, x);
	return norm(graph, name, 2, conv(graph, name, 2, x, channels));
}

dtrain_tensor dtrain__airbench94(dtrain_graph *graph, dtrain_tensor image, int64_t classes)
{
	dtrain_tensor x = dtrain_conv2d_fixed(graph, "0", image, WHITENED, 2, 1, 0);
	x = dtrain_gelu(graph, dtrain_channel_bias(graph, "0", x));
	x = group(graph, "2", x, 64);
	x = group(graph, "3", x, 256);
	x = group(graph, "4", x, 256);
	x = dtrain_global_max_pool(graph, x);
	return dtrain_scale(graph, dtrain_linear_without_bias(graph, "7", x, classes), 1.0 / 9);
}
