/* SPDX-License-Identifier: Apache-2.0
 *
 * The network of FFCV's CIFAR-10 example (examples/cifar/train_cifar.py), which comes from KakaoBrain's torchskeleton.
 * The names are as in the example's state_dict, so weights can be exchanged; initial weights are PyTorch's defaults.
 */
#include <stdio.h>

#include "layers.h"
#include "models.h"

#define NAME_SIZE 32

static dtrain_tensor conv_bn(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t channels, int kernel,
			     int stride, int padding)
{
	char part[NAME_SIZE];
	snprintf(part, sizeof(part), "%s.0", name);
	x = dtrain__conv2d(graph, part, x, channels, kernel, stride, padding, DTRAIN_INIT_LINEAR_UNIFORM);
	snprintf(part, sizeof(part), "%s.1", name);
	return dtrain_batch_norm(graph, part, x, true);
}

/* x + two layers of x, without an activation after the sum. */
static dtrain_tensor residual(dtrain_graph *graph, const char *names[2], dtrain_tensor x, int64_t channels)
{
	dtrain_tensor y = conv_bn(graph, names[0], x, channels, 3, 1, 1);
	return dtrain_add(graph, x, conv_bn(graph, names[1], y, channels, 3, 1, 1), false);
}

dtrain_tensor dtrain__resnet9(dtrain_graph *graph, dtrain_tensor image, int64_t classes)
{
	dtrain_tensor x = conv_bn(graph, "0", image, 64, 3, 1, 1);
	x = conv_bn(graph, "1", x, 128, 5, 2, 2);
	x = residual(graph, (const char *[]){"2.module.0", "2.module.1"}, x, 128);
	dtrain_graph_next_block(graph);
	x = conv_bn(graph, "3", x, 256, 3, 1, 1);
	x = dtrain_max_pool(graph, x, 2, 2, 0);
	dtrain_graph_next_block(graph);
	x = residual(graph, (const char *[]){"5.module.0", "5.module.1"}, x, 256);
	dtrain_graph_next_block(graph);
	x = conv_bn(graph, "6", x, 128, 3, 1, 0);
	x = dtrain_global_max_pool(graph, x);
	return dtrain_scale(graph, dtrain_linear_without_bias(graph, "9", x, classes), 0.2);
}
