/* SPDX-License-Identifier: Apache-2.0
 *
 * Residual networks (He et al., "Deep Residual Learning for Image Recognition", 2015), with torchvision's names.
 */
#include <stdio.h>

#include "models.h"
#include "norm.h"

/* "layer3.12", also followed by ".downsample.0". */
#define BLOCK_NAME_SIZE 32
#define NAME_SIZE (BLOCK_NAME_SIZE + 32)

typedef dtrain_tensor (*residual_block)(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t width,
					int stride);

static dtrain_tensor conv(dtrain_graph *graph, const char *block, int index, dtrain_tensor x, int64_t channels,
			  int kernel, int stride)
{
	char name[NAME_SIZE];
	snprintf(name, sizeof(name), "%s.conv%d", block, index);
	return dtrain_conv2d(graph, name, x, channels, kernel, stride, kernel / 2);
}

static dtrain_tensor conv_norm_relu(dtrain_graph *graph, const char *block, int index, dtrain_tensor x,
				    int64_t channels, int kernel, int stride)
{
	char name[NAME_SIZE];
	x = conv(graph, block, index, x, channels, kernel, stride);
	snprintf(name, sizeof(name), "%s.bn%d", block, index);
	return dtrain_batch_norm(graph, name, x, true);
}

/* The last batch norm of a block, which adds the shortcut: the identity or, if the shape changes, a 1x1 convolution
 * with a batch norm (the paper's option B). It comes after the shortcut on all devices, including devices that add in a
 * separate op, so that the order of parameters is the same. */
static dtrain_tensor norm_add(dtrain_graph *graph, const char *block, int index, dtrain_tensor y, dtrain_tensor x,
			      int64_t channels, int stride)
{
	const dtrain_shape *shape = dtrain_graph_shape(graph, x);
	char name[NAME_SIZE], shortcut[NAME_SIZE];
	snprintf(name, sizeof(name), "%s.bn%d", block, index);
	if (!shape || (stride == 1 && shape->dim[1] == channels))
		return dtrain_batch_norm_add(graph, name, y, x);
	snprintf(shortcut, sizeof(shortcut), "%s.downsample.0", block);
	x = dtrain_conv2d(graph, shortcut, x, channels, 1, stride, 0);
	snprintf(shortcut, sizeof(shortcut), "%s.downsample.1", block);
	return dtrain__batch_norm_pair(graph, name, y, shortcut, x);
}

static dtrain_tensor basic_block(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t width, int stride)
{
	dtrain_tensor y = conv_norm_relu(graph, name, 1, x, width, 3, stride);
	y = conv(graph, name, 2, y, width, 3, 1);
	return norm_add(graph, name, 2, y, x, width, stride);
}

/* v1.5: the stride is in the 3x3 convolution. */
static dtrain_tensor bottleneck(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t width, int stride)
{
	dtrain_tensor y = conv_norm_relu(graph, name, 1, x, width, 1, 1);
	y = conv_norm_relu(graph, name, 2, y, width, 3, stride);
	y = conv(graph, name, 3, y, 4 * width, 1, 1);
	return norm_add(graph, name, 3, y, x, 4 * width, stride);
}

/* Stages of blocks[] residual blocks; the width doubles and the side halves from one stage to the next. */
static dtrain_tensor stages_and_head(dtrain_graph *graph, dtrain_tensor x, residual_block block, int64_t width,
				     const int *blocks, int stages, int64_t classes)
{
	for (int stage = 0; stage < stages; stage++)
		for (int i = 0; i < blocks[stage]; i++) {
			char name[BLOCK_NAME_SIZE];
			snprintf(name, sizeof(name), "layer%d.%d", stage + 1, i);
			dtrain_graph_next_block(graph);
			x = block(graph, name, x, width << stage, stage > 0 && i == 0 ? 2 : 1);
		}
	dtrain_graph_next_block(graph);
	return dtrain_linear(graph, "fc", dtrain_global_avg_pool(graph, x), classes);
}

static dtrain_tensor imagenet_stem(dtrain_graph *graph, dtrain_tensor image)
{
	dtrain_tensor x = dtrain_conv2d(graph, "conv1", image, 64, 7, 2, 3);
	x = dtrain_batch_norm(graph, "bn1", x, true);
	return dtrain_max_pool(graph, x, 3, 2, 1);
}

dtrain_tensor dtrain__resnet18(dtrain_graph *graph, dtrain_tensor image, int64_t classes)
{
	dtrain_tensor x = imagenet_stem(graph, image);
	return stages_and_head(graph, x, basic_block, 64, (const int[]){2, 2, 2, 2}, 4, classes);
}

dtrain_tensor dtrain__resnet34(dtrain_graph *graph, dtrain_tensor image, int64_t classes)
{
	dtrain_tensor x = imagenet_stem(graph, image);
	return stages_and_head(graph, x, basic_block, 64, (const int[]){3, 4, 6, 3}, 4, classes);
}

dtrain_tensor dtrain__resnet50(dtrain_graph *graph, dtrain_tensor image, int64_t classes)
{
	dtrain_tensor x = imagenet_stem(graph, image);
	return stages_and_head(graph, x, bottleneck, 64, (const int[]){3, 4, 6, 3}, 4, classes);
}

dtrain_tensor dtrain__resnet101(dtrain_graph *graph, dtrain_tensor image, int64_t classes)
{
	dtrain_tensor x = imagenet_stem(graph, image);
	return stages_and_head(graph, x, bottleneck, 64, (const int[]){3, 4, 23, 3}, 4, classes);
}

dtrain_tensor dtrain__resnet152(dtrain_graph *graph, dtrain_tensor image, int64_t classes)
{
	dtrain_tensor x = imagenet_stem(graph, image);
	return stages_and_head(graph, x, bottleneck, 64, (const int[]){3, 8, 36, 3}, 4, classes);
}

/* Section 4.2 of the paper, but with option B instead of A (subsampling, zeros for new channels): the two projections
 * add 1% of parameters, need no further op, and match torchvision's blocks. */
dtrain_tensor dtrain__resnet20(dtrain_graph *graph, dtrain_tensor image, int64_t classes)
{
	dtrain_tensor x = dtrain_conv2d(graph, "conv1", image, 16, 3, 1, 1);
	x = dtrain_batch_norm(graph, "bn1", x, true);
	return stages_and_head(graph, x, basic_block, 16, (const int[]){3, 3, 3}, 3, classes);
}
