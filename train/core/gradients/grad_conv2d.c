/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

static bool device_adds(const dtrain_graph *graph)
{
	dtrain_device *device = dtrain_params_device(graph->params);
	dtrain_device_caps caps;
	dtrain_device_get_api(device)->caps(device, &caps);
	return caps.conv_bwd_add;
}

/* The op adds the previous gradient itself, if the device supports it. */
static void append_data_gradient(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor d_y, dtrain_tensor w,
				 const dtrain_op_attrs *attrs)
{
	dtrain_tensor before = dtrain_graph_grad(graph, x);
	bool adds = before >= 0 && device_adds(graph);
	dtrain_tensor d_x = dtrain__graph_op(graph, DTRAIN_OP_CONV2D_BWD_DATA, attrs, dtrain_graph_shape(graph, x),
					     adds ? 3 : 2, (dtrain_tensor[]){d_y, w, before});
	if (adds)
		dtrain__replace_grad(graph, x, d_x);
	else
		dtrain__add_grad(graph, x, d_x);
}

void dtrain__conv2d_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], w = node->inputs[1];
	dtrain_tensor d_y = dtrain_graph_grad(graph, node->outputs[0]);
	/* The weight's gradient comes first, so that its reduction over the ranks starts while d_x is computed. */
	if (dtrain__needs_grad(graph, w))
		dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_CONV2D_BWD_WEIGHT,
							  .attrs = node->attrs,
							  .num_inputs = 2,
							  .num_outputs = 1,
							  .inputs = {x, d_y},
							  .outputs = {dtrain__param_grad(graph, w)}});
	if (dtrain__needs_grad(graph, x))
		append_data_gradient(graph, x, d_y, w, &node->attrs);
}
