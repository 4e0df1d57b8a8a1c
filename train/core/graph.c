/* SPDX-License-Identifier: Apache-2.0 */
#include "graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "op.h"
#include "params.h"
#include "shape.h"

int dtrain_graph_create(dtrain_params *params, bool training, dtrain_graph **out, beton_error *err)
{
	if (BT_MISSING(err, params, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	dtrain_graph *graph = calloc(1, sizeof(*graph));
	if (!graph)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a graph");
	graph->params = params;
	graph->training = training;
	graph->dtype = dtrain_params_dtype(params);
	graph->block_started = 0;
	graph->stage = -1;
	*out = graph;
	return BETON_OK;
}

void dtrain_graph_destroy(dtrain_graph **graph)
{
	if (!graph)
		return;
	if (!*graph)
		return;
	free((*graph)->tensors);
	free((*graph)->nodes);
	free((*graph)->used_params.has);
	free((*graph)->used_buffers.has);
	free(*graph);
	*graph = NULL;
}

bool dtrain_graph_training(const dtrain_graph *graph)
{
	if (!graph)
		return false;
	return graph->training;
}

const dtrain_shape *dtrain_graph_shape(const dtrain_graph *graph, dtrain_tensor tensor)
{
	if (!graph)
		return NULL;
	return tensor >= 0 && tensor < graph->num_tensors ? &graph->tensors[tensor].shape : NULL;
}

dtrain_dtype dtrain_graph_dtype(const dtrain_graph *graph, dtrain_tensor tensor)
{
	if (!graph)
		return DTRAIN_F32;
	return tensor >= 0 && tensor < graph->num_tensors ? graph->tensors[tensor].dtype : DTRAIN_F32;
}

dtrain_tensor dtrain__graph_fail(dtrain_graph *graph, int code, const char *format, ...)
{
	if (!dtrain__graph_failed(graph)) {
		char message[BETON_ERROR_MESSAGE_SIZE];
		va_list arguments;
		va_start(arguments, format);
		vsnprintf(message, sizeof(message), format, arguments);
		va_end(arguments);
		bt_fail(&graph->error, code, "%s", message);
	}
	return -1;
}

bool dtrain__graph_missing(dtrain_graph *graph, const char *function, const char *names, const void *const *given,
			   size_t count)
{
	beton_error fault;
	if (!bt_missing(&fault, function, names, given, count))
		return false;
	if (graph)
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "%s", fault.message);
	return true;
}

const dtrain__tensor *dtrain__graph_tensor(dtrain_graph *graph, dtrain_tensor tensor)
{
	if (dtrain__graph_failed(graph))
		return NULL;
	if (tensor < 0 || tensor >= graph->num_tensors) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "graph: tensor %d does not exist", tensor);
		return NULL;
	}
	return &graph->tensors[tensor];
}

const dtrain__tensor *dtrain__graph_operand(dtrain_graph *graph, const char *layer, dtrain_tensor tensor)
{
	const dtrain__tensor *known = dtrain__graph_tensor(graph, tensor);
	if (!known || known->dtype == graph->dtype)
		return known;
	dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "%s: its input is %s, the graph computes in %s", layer,
			   dtrain_dtype_name(known->dtype), dtrain_dtype_name(graph->dtype));
	return NULL;
}

void dtrain_graph_set_dtype(dtrain_graph *graph, dtrain_dtype dtype)
{
	if (!graph)
		return;
	dtrain_dtype real = dtrain_params_dtype(graph->params);
	dtrain_device_caps caps;
	graph->params->api->caps(graph->params->device, &caps);
	bool half = real == DTRAIN_F32 && (dtype == DTRAIN_F16 || dtype == DTRAIN_BF16);
	if (graph->num_tensors)
		dtrain__graph_fail(graph, BETON_STATE, "graph: the type is set after tensors were added");
	else if (dtype != real && !(half && caps.dtypes & 1u << dtype))
		dtrain__graph_fail(graph, BETON_UNSUPPORTED, "graph: device '%s' has no %s with parameters in %s",
				   graph->params->api->name, dtrain_dtype_name(dtype), dtrain_dtype_name(real));
	else
		graph->dtype = dtype;
	if (!dtrain__graph_failed(graph) && dtype != real)
		dtrain__copies_want(graph->params, dtype);
}

void dtrain_graph_set_scaler(dtrain_graph *graph, void *scaler)
{
	if (!graph)
		return;
	graph->scaler = scaler;
}

void dtrain__graph_add_scaler(dtrain_graph *graph, dtrain__node *node)
{
	if (graph->scaler)
		node->inputs[node->num_inputs++] = dtrain_graph_memory(
			graph, DTRAIN_F32, &(dtrain_shape){.ndim = 1, .dim = {DTRAIN_SCALERS}}, graph->scaler);
}

static dtrain_tensor add_tensor(dtrain_graph *graph, const dtrain__tensor *tensor)
{
	if (dtrain__graph_failed(graph))
		return -1;
	if (graph->num_tensors == graph->tensor_capacity) {
		int32_t capacity = graph->tensor_capacity ? 2 * graph->tensor_capacity : 256;
		dtrain__tensor *grown = realloc(graph->tensors, (size_t)capacity * sizeof(*grown));
		if (!grown)
			return dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for %d tensors",
						  capacity);
		graph->tensors = grown;
		graph->tensor_capacity = capacity;
	}
	char text[DTRAIN__SHAPE_TEXT];
	if (!dtrain__shape_valid(&tensor->shape))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "graph: bad shape %s",
					  dtrain__shape_text(&tensor->shape, text));
	graph->tensors[graph->num_tensors] = *tensor;
	graph->tensors[graph->num_tensors].producer = -1;
	graph->tensors[graph->num_tensors].grad = -1;
	graph->tensors[graph->num_tensors].parent = -1;
	graph->tensors[graph->num_tensors].copy = -1;
	graph->tensors[graph->num_tensors].original = -1;
	graph->tensors[graph->num_tensors].returns = -1;
	return graph->num_tensors++;
}

dtrain_tensor dtrain__graph_copy_tensor(dtrain_graph *graph, const dtrain__tensor *tensor)
{
	dtrain_tensor added = add_tensor(graph, tensor);
	if (added < 0)
		return -1;
	graph->tensors[added].parent = tensor->parent;
	graph->tensors[added].original = tensor->original;
	if (tensor->original >= 0)
		graph->tensors[tensor->original].copy = added;
	graph->num_views += tensor->parent >= 0;
	return added;
}

dtrain_tensor dtrain_graph_input(dtrain_graph *graph, const char *name, dtrain_dtype dtype, const dtrain_shape *shape)
{
	if (DTRAIN__MISSING(graph, name, shape))
		return -1;
	char text[DTRAIN__SHAPE_TEXT];
	if (!dtrain__shape_valid(shape))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "input '%s': bad shape %s", name,
					  dtrain__shape_text(shape, text));
	dtrain_dtype of_params = dtrain_params_dtype(graph->params);
	if (dtype != graph->dtype && dtype != of_params && dtype != DTRAIN_I64 && dtype != DTRAIN_I32 &&
	    dtype != DTRAIN_U8)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "input '%s': type %s is neither the graph's (%s), its parameters' (%s), i64, "
					  "i32 nor u8",
					  name, dtrain_dtype_name(dtype), dtrain_dtype_name(graph->dtype),
					  dtrain_dtype_name(of_params));
	return add_tensor(graph, &(dtrain__tensor){.role = DTRAIN__INPUT, .dtype = dtype, .shape = *shape});
}

static int reserve_index(dtrain_graph *graph, dtrain__indices *indices, int32_t index)
{
	if (index < indices->capacity)
		return 0;
	int32_t capacity = index < 128 ? 256 : 2 * index;
	bool *grown = realloc(indices->has, (size_t)capacity * sizeof(*grown));
	if (!grown)
		return dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for %d parameters", capacity);
	memset(grown + indices->capacity, 0, (size_t)(capacity - indices->capacity) * sizeof(*grown));
	*indices = (dtrain__indices){grown, capacity};
	return 0;
}

/* A name must be new in this graph: two layers with one name are a mistake, and layers that share a weight share its
 * tensor. */
static dtrain_tensor add_persistent(dtrain_graph *graph, dtrain__role role, int index, const char *name,
				    const dtrain_shape *shape, beton_error *err)
{
	if (index < 0)
		return dtrain__graph_fail(graph, index, "%s", err->message);
	dtrain__indices *used = role == DTRAIN__PARAM ? &graph->used_params : &graph->used_buffers;
	if (reserve_index(graph, used, index) != 0)
		return -1;
	if (used->has[index])
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "'%s' is used by two layers", name);
	used->has[index] = true;
	return add_tensor(graph, &(dtrain__tensor){.role = role,
						   .dtype = dtrain_params_dtype(graph->params),
						   .shape = *shape,
						   .index = index});
}

/* Assigns nodes added since next_block to the next parameter's block. */
static void enter_block(dtrain_graph *graph, int32_t block)
{
	if (graph->block_started < 0)
		return;
	graph->block = block;
	for (int32_t i = graph->block_started; i < graph->num_nodes; i++)
		graph->nodes[i].block = block;
	graph->block_started = -1;
}

dtrain_tensor dtrain_graph_parameter(dtrain_graph *graph, const char *name, const dtrain_shape *shape, dtrain_init init,
				     int64_t fan_in)
{
	if (DTRAIN__MISSING(graph, name, shape))
		return -1;
	return dtrain_graph_placed_parameter(graph, name, shape, NULL, init, fan_in);
}

dtrain_tensor dtrain_graph_placed_parameter(dtrain_graph *graph, const char *name, const dtrain_shape *shape,
					    const dtrain_placement *placement, dtrain_init init, int64_t fan_in)
{
	if (DTRAIN__MISSING(graph, name, shape))
		return -1;
	if (dtrain__graph_failed(graph))
		return -1;
	beton_error error = {0};
	int index = dtrain_params_declare_placed(graph->params, name, shape, placement, init, fan_in, &error);
	const dtrain_param *param = dtrain_params_at(graph->params, index);
	if (param)
		enter_block(graph, param->block);
	return add_persistent(graph, DTRAIN__PARAM, index, name, param ? &param->shape : shape, &error);
}

dtrain_tensor dtrain__graph_param(dtrain_graph *graph, const char *prefix, const char *suffix,
				  const dtrain_shape *shape, dtrain_init init, int64_t fan_in)
{
	return dtrain__graph_placed(graph, prefix, suffix, shape, NULL, init, fan_in);
}

dtrain_tensor dtrain__graph_placed(dtrain_graph *graph, const char *prefix, const char *suffix,
				   const dtrain_shape *shape, const dtrain_placement *placement, dtrain_init init,
				   int64_t fan_in)
{
	char *name = bt_format("%s.%s", prefix, suffix);
	if (!name)
		return dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for a name");
	dtrain_tensor tensor = dtrain_graph_placed_parameter(graph, name, shape, placement, init, fan_in);
	free(name);
	return tensor;
}

static dtrain_tensor add_buffer(dtrain_graph *graph, const char *prefix, const char *suffix, const dtrain_shape *shape,
				dtrain_init init, bool fixed)
{
	if (dtrain__graph_failed(graph))
		return -1;
	char *name = bt_format("%s.%s", prefix, suffix);
	if (!name)
		return dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for a name");
	beton_error error = {0};
	int index = (fixed ? dtrain_params_declare_fixed : dtrain_params_declare_buffer)(graph->params, name, shape,
											 init, &error);
	dtrain_tensor tensor = add_persistent(graph, DTRAIN__BUFFER, index, name, shape, &error);
	free(name);
	return tensor;
}

dtrain_tensor dtrain__graph_buffer(dtrain_graph *graph, const char *prefix, const char *suffix,
				   const dtrain_shape *shape, dtrain_init init)
{
	return add_buffer(graph, prefix, suffix, shape, init, false);
}

dtrain_tensor dtrain__graph_fixed(dtrain_graph *graph, const char *prefix, const char *suffix,
				  const dtrain_shape *shape, dtrain_init init)
{
	return add_buffer(graph, prefix, suffix, shape, init, true);
}

dtrain_tensor dtrain__graph_activation(dtrain_graph *graph, dtrain_dtype dtype, const dtrain_shape *shape)
{
	return add_tensor(graph, &(dtrain__tensor){.role = DTRAIN__ACTIVATION, .dtype = dtype, .shape = *shape});
}

dtrain_tensor dtrain_graph_memory(dtrain_graph *graph, dtrain_dtype dtype, const dtrain_shape *shape, void *memory)
{
	if (DTRAIN__MISSING(graph, shape, memory))
		return -1;
	char text[DTRAIN__SHAPE_TEXT];
	if (!dtrain__shape_valid(shape) || !memory)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "memory of shape %s: bad shape, or no memory",
					  dtrain__shape_text(shape, text));
	return add_tensor(graph,
			  &(dtrain__tensor){.role = DTRAIN__MEMORY, .dtype = dtype, .shape = *shape, .memory = memory});
}

static int reserve_node(dtrain_graph *graph)
{
	if (graph->num_nodes < graph->node_capacity)
		return 0;
	int32_t capacity = graph->node_capacity ? 2 * graph->node_capacity : 128;
	dtrain__node *grown = realloc(graph->nodes, (size_t)capacity * sizeof(*grown));
	if (!grown)
		return dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for %d nodes", capacity);
	graph->nodes = grown;
	graph->node_capacity = capacity;
	return 0;
}

dtrain_tensor dtrain__graph_node(dtrain_graph *graph, const dtrain__node *node)
{
	for (int i = 0; i < node->num_inputs; i++)
		if (!dtrain__graph_tensor(graph, node->inputs[i]))
			return -1;
	for (int i = 0; i < node->num_outputs; i++)
		if (!dtrain__graph_tensor(graph, node->outputs[i]))
			return -1;
	if (graph->has_backward && !graph->in_backward)
		return dtrain__graph_fail(graph, BETON_STATE, "graph: a layer was added after backward");
	if (reserve_node(graph) != 0)
		return -1;
	dtrain__node *added = &graph->nodes[graph->num_nodes];
	*added = *node;
	added->is_backward = graph->in_backward;
	added->block = graph->block;
	for (int i = 0; i < node->num_outputs; i++)
		graph->tensors[node->outputs[i]].producer = graph->num_nodes;
	graph->num_nodes++;
	return node->outputs[0];
}

/* The copy of a view is the same part of its parameter's copy, which must be row-major for that: copies of four
 * dimensions may not be. */
static bool has_copy(const dtrain_graph *graph, dtrain_tensor w)
{
	const dtrain__tensor *root = &graph->tensors[dtrain__graph_root(graph, w)];
	bool whole = graph->tensors[w].parent < 0;
	return dtrain__copies_are_in(graph->params, graph->dtype) && root->role == DTRAIN__PARAM &&
	       (whole || root->shape.ndim != 4);
}

dtrain_tensor dtrain__graph_copy(dtrain_graph *graph, dtrain_tensor w)
{
	const dtrain__tensor *weight = dtrain__graph_tensor(graph, w);
	/* Backward ops read the same tensors as the forward op. */
	if (!weight || graph->in_backward || !has_copy(graph, w))
		return w;
	if (weight->copy >= 0)
		return weight->copy;
	const dtrain__tensor of = *weight; /* the list of tensors moves when it grows */
	dtrain_tensor copy;
	if (of.parent >= 0)
		copy = dtrain__graph_view(graph, dtrain__graph_copy(graph, of.parent), &of.shape, of.offset);
	else
		copy = add_tensor(graph, &(dtrain__tensor){.role = DTRAIN__COPY,
							   .dtype = graph->dtype,
							   .shape = of.shape,
							   .index = of.index});
	if (of.parent < 0)
		graph->params->params[of.index].copied = true;
	if (copy < 0)
		return -1;
	graph->tensors[w].copy = copy;
	graph->tensors[copy].original = w;
	return copy;
}

dtrain_tensor dtrain__graph_original(const dtrain_graph *graph, dtrain_tensor tensor)
{
	bool is_copy = tensor >= 0 && graph->tensors[tensor].original >= 0;
	return is_copy ? graph->tensors[tensor].original : tensor;
}

dtrain_tensor dtrain__graph_op(dtrain_graph *graph, dtrain_op_kind kind, const dtrain_op_attrs *attrs,
			       const dtrain_shape *shape, int num_inputs, const dtrain_tensor *inputs)
{
	dtrain__node node = {.kind = kind, .num_inputs = num_inputs, .num_outputs = 1};
	if (dtrain__graph_failed(graph))
		return -1;
	if (attrs)
		node.attrs = *attrs;
	dtrain_shape own_shape =
		*shape; /* a copy: shape may point into the list of tensors, which moves when it grows */
	for (int i = 0; i < num_inputs; i++)
		node.inputs[i] =
			dtrain__op_input_letter(kind, i) == 'W' ? dtrain__graph_copy(graph, inputs[i]) : inputs[i];
	node.outputs[0] = dtrain__graph_activation(graph, graph->dtype, &own_shape);
	return dtrain__graph_node(graph, &node);
}

void dtrain_graph_next_block(dtrain_graph *graph)
{
	if (!graph)
		return;
	dtrain_params_next_block(graph->params);
	graph->block_started = graph->num_nodes;
}

int32_t dtrain__graph_forward_nodes(const dtrain_graph *graph)
{
	int32_t count = 0;
	while (count < graph->num_nodes && !graph->nodes[count].is_backward)
		count++;
	return count;
}

void dtrain_graph_interleave(dtrain_graph *graph)
{
	if (!graph)
		return;
	if (graph->has_backward)
		dtrain__graph_fail(graph, BETON_STATE, "graph: phases of micro-batches interleave after backward");
	graph->interleaves = true;
}

void dtrain_graph_share_scratch(dtrain_graph *graph)
{
	if (graph)
		graph->shares_scratch = true;
}

void dtrain_graph_bind_inputs(dtrain_graph *graph)
{
	if (graph)
		graph->binds_inputs = true;
}

void dtrain_graph_keep(dtrain_graph *graph, dtrain_tensor tensor)
{
	if (!graph)
		return;
	if (dtrain__graph_tensor(graph, tensor))
		graph->tensors[dtrain__graph_root(graph, tensor)].keep = true;
}

void dtrain_graph_step_metric(dtrain_graph *graph, dtrain_tensor scalar, int slot)
{
	if (!graph)
		return;
	const dtrain__tensor *tensor = dtrain__graph_tensor(graph, scalar);
	if (!tensor)
		return;
	if (slot < 0 || slot >= DTRAIN_STEP_METRICS) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "step metric: slot %d is not in 0..%d", slot,
				   DTRAIN_STEP_METRICS - 1);
		return;
	}
	for (int32_t i = 0; i < graph->num_tensors; i++)
		if (graph->tensors[i].role == DTRAIN__STEP_METRIC && graph->tensors[i].index == slot) {
			dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "step metric: slot %d is taken", slot);
			return;
		}
	bool scalar_of_op = tensor->role == DTRAIN__ACTIVATION && tensor->shape.ndim == 0 && tensor->parent < 0 &&
			    tensor->producer >= 0;
	if (!scalar_of_op || tensor->dtype != dtrain_params_dtype(graph->params)) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "step metric: slot %d needs an op's scalar", slot);
		return;
	}
	graph->tensors[scalar].role = DTRAIN__STEP_METRIC;
	graph->tensors[scalar].index = slot;
}
