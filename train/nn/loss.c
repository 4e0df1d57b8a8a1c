/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sized.h"
#include "core/graph.h"
#include "core/op.h"
#include "core/shape.h"

static bool is_of_rows(const dtrain__tensor *tensor, dtrain_dtype dtype, int64_t rows)
{
	return tensor->dtype == dtype && tensor->shape.ndim == 1 && tensor->shape.dim[0] == rows;
}

/* The loss op also computes the gradient of the logits, so it has no backward node. inputs: the
 * logits, and for each row a label, or two labels and lambda. */
static dtrain_tensor add_loss(dtrain_graph *graph, dtrain_op_kind kind, int num_inputs, const dtrain_tensor *inputs,
			      const dtrain_loss_attrs *attrs)
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
			     .attrs = {.loss = *attrs},
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
	dtrain__graph_add_scaler(graph, &node);
	node.outputs[0] = dtrain__graph_activation(graph, dtype, &rows);
	node.outputs[1] = dtrain__graph_activation(graph, graph->dtype, &shape);
	return dtrain__graph_node(graph, &node);
}

dtrain_tensor dtrain_softmax_cross_entropy(dtrain_graph *graph, dtrain_tensor logits, dtrain_tensor label,
					   double label_smoothing)
{
	if (!graph)
		return -1;
	return add_loss(graph, DTRAIN_OP_SOFTMAX_XENT, 2, (dtrain_tensor[]){logits, label},
			&(dtrain_loss_attrs){.label_smoothing = label_smoothing});
}

dtrain_tensor dtrain_softmax_cross_entropy_mixed(dtrain_graph *graph, dtrain_tensor logits, dtrain_tensor label,
						 dtrain_tensor mixed, dtrain_tensor lambda, double label_smoothing)
{
	if (!graph)
		return -1;
	return add_loss(graph, DTRAIN_OP_SOFTMAX_XENT_MIXED, 4, (dtrain_tensor[]){logits, label, mixed, lambda},
			&(dtrain_loss_attrs){.label_smoothing = label_smoothing});
}

void dtrain_loss_options_init_sized(dtrain_loss_options *options, size_t size)
{
	const dtrain_loss_options defaults = {.struct_size = sizeof(defaults), .ignored = -100};
	bt_sized_init(options, size, &defaults);
}

/* False after a failure. */
static bool take_options(dtrain_graph *graph, const dtrain_loss_options *given, dtrain_loss_attrs *out)
{
	dtrain_loss_options options;
	beton_error fault;
	dtrain_loss_options_init(&options);
	if (bt_sized_take(&options, given, "options", &fault) != BETON_OK) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "cross entropy: %s", fault.message);
		return false;
	}
	*out = (dtrain_loss_attrs){options.label_smoothing, options.ignored, options.chunk, options.threshold};
	return true;
}

dtrain_tensor dtrain_softmax_cross_entropy_with(dtrain_graph *graph, dtrain_tensor logits, dtrain_tensor label,
						const dtrain_loss_options *options)
{
	if (!graph)
		return -1;
	dtrain_loss_attrs attrs;
	if (!take_options(graph, options, &attrs))
		return -1;
	return add_loss(graph, DTRAIN_OP_SOFTMAX_XENT, 2, (dtrain_tensor[]){logits, label}, &attrs);
}

dtrain_tensor dtrain_one_hot(dtrain_graph *graph, dtrain_tensor label, dtrain_tensor mixed, dtrain_tensor lambda,
			     int64_t classes)
{
	if (!graph)
		return -1;
	const dtrain__tensor *labels = dtrain__graph_tensor(graph, label);
	dtrain_dtype dtype = dtrain_params_dtype(graph->params);
	if (!labels)
		return -1;
	int64_t rows = labels->shape.ndim == 1 ? labels->shape.dim[0] : 0;
	bool good = labels->dtype == DTRAIN_I64 && rows > 0 && classes > 0;
	if (good && mixed >= 0) {
		const dtrain__tensor *others = dtrain__graph_tensor(graph, mixed);
		const dtrain__tensor *shares = dtrain__graph_tensor(graph, lambda);
		if (!others || !shares)
			return -1;
		good = is_of_rows(others, DTRAIN_I64, rows) && is_of_rows(shares, dtype, rows);
	}
	if (!good)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "one-hot targets of %lld classes: needs an i64 label for each row, or two "
					  "and an %s share",
					  (long long)classes, dtrain_dtype_name(dtype));
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){rows, classes});
	dtrain__node node = {.kind = DTRAIN_OP_ONE_HOT,
			     .num_inputs = mixed < 0 ? 1 : 3,
			     .num_outputs = 1,
			     .inputs = {label, mixed, lambda}};
	node.outputs[0] = dtrain__graph_activation(graph, dtype, &shape);
	return dtrain__graph_node(graph, &node);
}

static dtrain_tensor add_target_loss(dtrain_graph *graph, dtrain_op_kind kind, const char *what, dtrain_tensor x,
				     dtrain_tensor target, const dtrain_loss_attrs *attrs)
{
	const dtrain__tensor *source = dtrain__graph_operand(graph, what, x);
	const dtrain__tensor *goal = dtrain__graph_tensor(graph, target);
	dtrain_dtype dtype = dtrain_params_dtype(graph->params);
	char text[2][DTRAIN__SHAPE_TEXT];
	if (!source || !goal)
		return -1;
	dtrain_shape shape = source->shape;
	if (shape.ndim != 2 || goal->dtype != dtype || !dtrain__shape_equal(&shape, &goal->shape))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "%s: %s with a target %s %s; needs [n, c] and an %s target of that shape",
					  what, dtrain__shape_text(&shape, text[0]), dtrain_dtype_name(goal->dtype),
					  dtrain__shape_text(&goal->shape, text[1]), dtrain_dtype_name(dtype));
	dtrain_shape rows = dtrain_shape_of(1, &shape.dim[0]);
	dtrain__node node = {
		.kind = kind,
		.attrs = {.loss = {.label_smoothing = attrs->label_smoothing, .threshold = attrs->threshold}},
		.num_inputs = 2,
		.num_outputs = 2,
		.inputs = {x, target}};
	dtrain__graph_add_scaler(graph, &node);
	node.outputs[0] = dtrain__graph_activation(graph, dtype, &rows);
	node.outputs[1] = dtrain__graph_activation(graph, graph->dtype, &shape);
	return dtrain__graph_node(graph, &node);
}

dtrain_tensor dtrain_softmax_cross_entropy_soft(dtrain_graph *graph, dtrain_tensor logits, dtrain_tensor target,
						const dtrain_loss_options *options)
{
	if (!graph)
		return -1;
	dtrain_loss_attrs attrs;
	if (!take_options(graph, options, &attrs))
		return -1;
	return add_target_loss(graph, DTRAIN_OP_SOFTMAX_XENT_SOFT, "softmax cross entropy", logits, target, &attrs);
}

dtrain_tensor dtrain_binary_cross_entropy(dtrain_graph *graph, dtrain_tensor logits, dtrain_tensor target,
					  const dtrain_loss_options *options)
{
	if (!graph)
		return -1;
	dtrain_loss_attrs attrs;
	if (!take_options(graph, options, &attrs))
		return -1;
	return add_target_loss(graph, DTRAIN_OP_SIGMOID_XENT, "binary cross entropy", logits, target, &attrs);
}

dtrain_tensor dtrain_squared_error(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor target)
{
	if (!graph)
		return -1;
	return add_target_loss(graph, DTRAIN_OP_SQUARED_ERROR, "squared error", x, target, &(dtrain_loss_attrs){0});
}

/* All dimensions but the last one as one. */
static dtrain_tensor as_rows(dtrain_graph *graph, dtrain_tensor tensor, int64_t rows, int64_t columns)
{
	dtrain_shape shape = dtrain_shape_of(columns ? 2 : 1, (int64_t[]){rows, columns});
	return dtrain__shape_equal(&shape, dtrain_graph_shape(graph, tensor)) ? tensor
									      : dtrain_reshape(graph, tensor, &shape);
}

/* Whether the operands fit; if not, the graph has failed. b: negative without a bias. */
static bool check_linear_loss(dtrain_graph *graph, const dtrain__tensor *x, const dtrain__tensor *w, dtrain_tensor b,
			      const dtrain__tensor *label)
{
	char text[2][DTRAIN__SHAPE_TEXT];
	const dtrain__tensor *bias = b >= 0 ? dtrain__graph_tensor(graph, b) : NULL;
	if (b >= 0 && !bias)
		return false;
	int64_t columns = x->shape.ndim < 2 ? 0 : x->shape.dim[x->shape.ndim - 1];
	int64_t rows = columns ? dtrain_shape_count(&x->shape) / columns : 0;
	if (w->shape.ndim != 2 || w->shape.dim[1] != columns || label->dtype != DTRAIN_I64 ||
	    dtrain_shape_count(&label->shape) != rows) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
				   "linear cross entropy: %s with a weight of %s; needs [n, ..., c], [v, c] and an "
				   "i64 label for each row",
				   dtrain__shape_text(&x->shape, text[0]), dtrain__shape_text(&w->shape, text[1]));
		return false;
	}
	if (bias && !is_of_rows(bias, dtrain_params_dtype(graph->params), w->shape.dim[0])) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
				   "linear cross entropy: a bias %s of type %s for a weight of %s",
				   dtrain__shape_text(&bias->shape, text[0]), dtrain_dtype_name(bias->dtype),
				   dtrain__shape_text(&w->shape, text[1]));
		return false;
	}
	return true;
}

dtrain_tensor dtrain_linear_cross_entropy(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w, dtrain_tensor b,
					  dtrain_tensor label, const dtrain_loss_options *options)
{
	if (!graph)
		return -1;
	const dtrain__tensor *source = dtrain__graph_operand(graph, "linear cross entropy", x);
	const dtrain__tensor *weight = dtrain__graph_tensor(graph, w), *labels = dtrain__graph_tensor(graph, label);
	dtrain_loss_attrs attrs;
	if (!source || !weight || !labels || !take_options(graph, options, &attrs) ||
	    !check_linear_loss(graph, source, weight, b, labels))
		return -1;
	static const dtrain_op_kind kinds[2][2] = {{DTRAIN_OP_LINEAR_XENT_EVAL, DTRAIN_OP_LINEAR_XENT},
						   {DTRAIN_OP_LINEAR_XENT_BIAS_EVAL, DTRAIN_OP_LINEAR_XENT_BIAS}};
	dtrain_shape of_w = weight->shape, of_b = dtrain_shape_of(1, &of_w.dim[0]);
	int64_t rows = dtrain_shape_count(&source->shape) / of_w.dim[1];
	dtrain_dtype dtype = dtrain_params_dtype(graph->params);
	dtrain_shape of_x = dtrain_shape_of(2, (int64_t[]){rows, of_w.dim[1]}), of_loss = dtrain_shape_of(1, &rows);
	dtrain__node node = {.kind = kinds[b >= 0][graph->training], .attrs = {.loss = attrs}};
	node.inputs[node.num_inputs++] = as_rows(graph, x, rows, of_w.dim[1]);
	node.inputs[node.num_inputs++] = dtrain__graph_copy(graph, w);
	if (b >= 0)
		node.inputs[node.num_inputs++] = b;
	node.inputs[node.num_inputs++] = as_rows(graph, label, rows, 0);
	node.outputs[node.num_outputs++] = dtrain__graph_activation(graph, dtype, &of_loss);
	if (graph->training) {
		dtrain__graph_add_scaler(graph, &node);
		node.outputs[node.num_outputs++] = dtrain__graph_activation(graph, graph->dtype, &of_x);
		node.outputs[node.num_outputs++] = dtrain__graph_activation(graph, dtype, &of_w);
	}
	if (graph->training && b >= 0)
		node.outputs[node.num_outputs++] = dtrain__graph_activation(graph, dtype, &of_b);
	return dtrain__graph_node(graph, &node);
}

/* The node whose losses they are; NULL, and the graph has failed. */
static dtrain__node *node_of(dtrain_graph *graph, const char *what, dtrain_tensor losses)
{
	const dtrain__tensor *tensor = dtrain__graph_tensor(graph, losses);
	if (!tensor)
		return NULL;
	dtrain__node *node = tensor->producer >= 0 ? &graph->nodes[tensor->producer] : NULL;
	bool is_loss =
		node && (dtrain__op_rules_of(node->kind)->loss_gradients || node->kind == DTRAIN_OP_LINEAR_XENT_EVAL ||
			 node->kind == DTRAIN_OP_LINEAR_XENT_BIAS_EVAL);
	if (is_loss && node->outputs[0] == losses)
		return node;
	dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "%s: the tensor is not a loss of each row", what);
	return NULL;
}

dtrain_tensor dtrain_label_hits(dtrain_graph *graph, dtrain_tensor losses)
{
	if (!graph)
		return -1;
	dtrain__node *node = node_of(graph, "label hits", losses);
	if (!node)
		return -1;
	int place = 1 + dtrain__op_rules_of(node->kind)->loss_gradients;
	if (!dtrain__op_output_letter(node->kind, place))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "label hits: %s has none",
					  dtrain__op_name(node->kind));
	if (node->num_outputs > place)
		return node->outputs[place];
	dtrain_shape rows = graph->tensors[losses].shape; /* a copy: the list of tensors moves when it grows */
	dtrain_tensor hits = dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), &rows);
	if (hits < 0)
		return -1;
	node->outputs[node->num_outputs++] = hits;
	graph->tensors[hits].producer = graph->tensors[losses].producer;
	return hits;
}

/* label: negative for none. */
static dtrain_tensor mean_of(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor label, const dtrain_loss_attrs *attrs)
{
	const dtrain__tensor *source = dtrain__graph_tensor(graph, x);
	if (!source)
		return -1;
	if (source->shape.ndim != 1)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "mean: %d dimensions; needs a vector",
					  source->shape.ndim);
	dtrain_shape scalar = dtrain_shape_of(0, NULL);
	dtrain__node node = {.kind = DTRAIN_OP_MEAN,
			     .attrs = {.loss = *attrs},
			     .num_inputs = label < 0 ? 1 : 2,
			     .num_outputs = 1,
			     .inputs = {x, label}};
	node.outputs[0] = dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), &scalar);
	return dtrain__graph_node(graph, &node);
}

dtrain_tensor dtrain_mean(dtrain_graph *graph, dtrain_tensor x)
{
	if (!graph)
		return -1;
	return mean_of(graph, x, -1, &(dtrain_loss_attrs){0});
}

/* Index of the label among the inputs of a loss that can ignore rows. */
static int label_index(dtrain_op_kind kind)
{
	int index = 0;
	while (dtrain__op_input_letter(kind, index) != 'l')
		index++;
	return index;
}

dtrain_tensor dtrain_mean_loss(dtrain_graph *graph, dtrain_tensor losses)
{
	if (!graph)
		return -1;
	const dtrain__node *node = node_of(graph, "mean loss", losses);
	if (!node)
		return -1;
	bool ignores = node->attrs.loss.ignored < 0 && node->kind != DTRAIN_OP_SOFTMAX_XENT_MIXED;
	dtrain_loss_attrs attrs = {.ignored = ignores ? node->attrs.loss.ignored : 0};
	return mean_of(graph, losses, ignores ? node->inputs[label_index(node->kind)] : -1, &attrs);
}
