/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"

/* The loss op gives the gradient of the logits along with the loss, so that it has no backward node. */
dtrain_tensor dtrain_softmax_cross_entropy(dtrain_graph *graph, dtrain_tensor logits, dtrain_tensor label,
					   double label_smoothing)
{
	const dtrain__tensor *source = dtrain__graph_operand(graph, "softmax cross entropy", logits);
	const dtrain__tensor *target = dtrain__graph_tensor(graph, label);
	if (!source || !target)
		return -1;
	dtrain_shape shape = source->shape;
	if (shape.ndim != 2)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "softmax cross entropy: logits of %d dimensions; needs [n, c]", shape.ndim);
	if (target->dtype != DTRAIN_I64 || target->shape.ndim != 1 || target->shape.dim[0] != shape.dim[0])
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "softmax cross entropy: needs an i64 label for each of %lld rows",
					  (long long)shape.dim[0]);
	dtrain_shape rows = dtrain_shape_of(1, &shape.dim[0]);
	dtrain__node node = {.kind = DTRAIN_OP_SOFTMAX_XENT,
			     .attrs = {.label_smoothing = label_smoothing},
			     .num_inputs = 2,
			     .num_outputs = 2,
			     .inputs = {logits, label}};
	if (graph->scaler)
		node.inputs[node.num_inputs++] = dtrain__graph_memory(
			graph, DTRAIN_F32, &(dtrain_shape){.ndim = 1, .dim = {DTRAIN_SCALERS}}, graph->scaler);
	node.outputs[0] = dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), &rows);
	node.outputs[1] = dtrain__graph_activation(graph, graph->dtype, &shape);
	return dtrain__graph_node(graph, &node);
}

dtrain_tensor dtrain_mean(dtrain_graph *graph, dtrain_tensor x)
{
	const dtrain__tensor *source = dtrain__graph_tensor(graph, x);
	if (!source)
		return -1;
	if (source->shape.ndim != 1)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "mean: %d dimensions; needs a vector",
					  source->shape.ndim);
	dtrain_shape scalar = dtrain_shape_of(0, NULL);
	dtrain__node node = {.kind = DTRAIN_OP_MEAN, .num_inputs = 1, .num_outputs = 1, .inputs = {x}};
	node.outputs[0] = dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), &scalar);
	return dtrain__graph_node(graph, &node);
}
