/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"

static bool is_of_rows(const dtrain__tensor *tensor, dtrain_dtype dtype, int64_t rows)
{
	return tensor->dtype == dtype && tensor->shape.ndim == 1 && tensor->shape.dim[0] == rows;
}

/* The loss op also computes the gradient of the logits, so it has no backward node. inputs: the
 * logits, and for each row a label, or two labels and lambda. */
static dtrain_tensor add_loss(dtrain_graph *graph, dtrain_op_kind kind, int num_inputs, const dtrain_tensor *inputs,
			      double label_smoothing)
{
	const dtrain__tensor *logits = dtrain__graph_operand(graph, "softmax cross entropy", inputs[0]);
	dtrain_dtype dtype = dtrain_params_dtype(graph->params);
	if (!logits)
		return -1;
	dtrain_shape shape = logits->shape;
	if (shape.ndim != 2)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "softmax cross entropy: logits of %d dimensions; needs [n, c]", shape.ndim);
	dtrain__node node = {.kind = kind,
			     .attrs = {.label_smoothing = label_smoothing},
			     .num_inputs = num_inputs,
			     .num_outputs = 2,
			     .inputs = {inputs[0]}};
	for (int i = 1; i < num_inputs; i++) {
		dtrain_dtype needed = i < 3 ? DTRAIN_I64 : dtype;
		const dtrain__tensor *tensor = dtrain__graph_tensor(graph, inputs[i]);
		if (!tensor)
			return -1;
		if (!is_of_rows(tensor, needed, shape.dim[0]))
			return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
						  "softmax cross entropy: needs an %s %s for each of %lld rows",
						  dtrain_dtype_name(needed), i < 3 ? "label" : "lambda",
						  (long long)shape.dim[0]);
		node.inputs[i] = inputs[i];
	}
	dtrain_shape rows = dtrain_shape_of(1, &shape.dim[0]);
	if (graph->scaler)
		node.inputs[node.num_inputs++] = dtrain__graph_memory(
			graph, DTRAIN_F32, &(dtrain_shape){.ndim = 1, .dim = {DTRAIN_SCALERS}}, graph->scaler);
	node.outputs[0] = dtrain__graph_activation(graph, dtype, &rows);
	node.outputs[1] = dtrain__graph_activation(graph, graph->dtype, &shape);
	return dtrain__graph_node(graph, &node);
}

dtrain_tensor dtrain_softmax_cross_entropy(dtrain_graph *graph, dtrain_tensor logits, dtrain_tensor label,
					   double label_smoothing)
{
	return add_loss(graph, DTRAIN_OP_SOFTMAX_XENT, 2, (dtrain_tensor[]){logits, label}, label_smoothing);
}

dtrain_tensor dtrain_softmax_cross_entropy_mixed(dtrain_graph *graph, dtrain_tensor logits, dtrain_tensor label,
						 dtrain_tensor mixed, dtrain_tensor lambda, double label_smoothing)
{
	return add_loss(graph, DTRAIN_OP_SOFTMAX_XENT_MIXED, 4, (dtrain_tensor[]){logits, label, mixed, lambda},
			label_smoothing);
}

dtrain_tensor dtrain_label_hits(dtrain_graph *graph, dtrain_tensor losses)
{
	const dtrain__tensor *tensor = dtrain__graph_tensor(graph, losses);
	if (!tensor)
		return -1;
	int32_t producer = tensor->producer;
	dtrain__node *node = producer >= 0 ? &graph->nodes[producer] : NULL;
	bool is_loss = node && (node->kind == DTRAIN_OP_SOFTMAX_XENT || node->kind == DTRAIN_OP_SOFTMAX_XENT_MIXED);
	if (!is_loss || node->outputs[0] != losses)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "label hits: the tensor is no loss of softmax cross entropy");
	if (node->num_outputs > 2)
		return node->outputs[2];
	dtrain_shape rows = tensor->shape; /* a copy: the list of tensors moves when it grows */
	dtrain_tensor hits = dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), &rows);
	if (hits < 0)
		return -1;
	node->outputs[node->num_outputs++] = hits;
	graph->tensors[hits].producer = producer;
	return hits;
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
