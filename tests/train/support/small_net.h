/* SPDX-License-Identifier: Apache-2.0
 *
 * A small network of the layers that no model in resnet.c has, one after the other so that each takes the layout that a
 * device gave to the layer before; make-torch-trace.py has the same. Its name among models is SMALL_NET.
 */
#ifndef TESTS_TRAIN_SUPPORT_SMALL_NET_H
#define TESTS_TRAIN_SUPPORT_SMALL_NET_H

#include <string.h>

#include <dtrain/model.h>

#define SMALL_NET "small"

/* Pictures of at least 5 x 5. */
static inline dtrain_tensor small_net(dtrain_graph *graph, dtrain_tensor image, int64_t classes)
{
	dtrain_batch_norm_options norm;
	dtrain_batch_norm_options_init(&norm);
	norm.fixed_weight = true;
	norm.epsilon = 1e-12;
	norm.momentum = 0.4;
	dtrain_tensor y = dtrain_conv2d_fixed(graph, "first", image, 6, 2, 1, 0);
	y = dtrain_gelu(graph, dtrain_channel_bias(graph, "first", y));
	dtrain_graph_next_block(graph);
	y = dtrain_max_pool(graph, dtrain_conv2d(graph, "conv1", y, 16, 3, 1, 1), 2, 2, 0);
	y = dtrain_gelu(graph, dtrain_batch_norm_with(graph, "norm1", y, &norm));
	y = dtrain_conv2d(graph, "conv2", y, 17, 3, 1, 1);
	y = dtrain_gelu(graph, dtrain_batch_norm_with(graph, "norm2", y, &norm));
	dtrain_graph_next_block(graph);
	y = dtrain_linear_without_bias(graph, "head", dtrain_global_max_pool(graph, y), classes);
	return dtrain_scale(graph, y, 0.5);
}

/* dtrain_model_build, with this one. */
static inline dtrain_tensor build_net(dtrain_graph *graph, const char *model, dtrain_tensor image, int64_t classes)
{
	return strcmp(model, SMALL_NET) == 0 ? small_net(graph, image, classes)
					     : dtrain_model_build(graph, model, image, classes);
}

#endif
