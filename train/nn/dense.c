/* SPDX-License-Identifier: Apache-2.0 */
#include "dense.h"

#include <math.h>
#include <stdio.h>

#include "core/graph.h"
#include "token_rows.h"

const char *dtrain__name(char name[DTRAIN__NAME_SIZE], const char *prefix, const char *suffix)
{
	snprintf(name, DTRAIN__NAME_SIZE, "%s%s%s", prefix ? prefix : "", prefix ? "." : "", suffix);
	return name;
}

/* Where the whole number of one rule would be small, the other one's is large. */
#define NORMAL_MOST 0.2

dtrain__initial dtrain__normal(double deviation)
{
	if (deviation > NORMAL_MOST)
		return (dtrain__initial){DTRAIN_INIT_NORMAL_MILLIONTHS, llround(deviation * 1e6)};
	return (dtrain__initial){DTRAIN_INIT_NORMAL, llround(fmin(1 / (deviation * deviation), 1e18))};
}

/* x [..., c] + b [c] */
static dtrain_tensor add_to_last(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor b)
{
	const dtrain_shape *known = dtrain_graph_shape(graph, x);
	if (!known || b < 0)
		return -1;
	dtrain_shape shape = *known;
	int64_t channels = shape.dim[shape.ndim - 1], rows = dtrain_shape_count(&shape) / channels;
	dtrain_shape pixels = dtrain_shape_of(4, (int64_t[]){rows, channels, 1, 1});
	dtrain_tensor inputs[] = {dtrain_reshape(graph, x, &pixels), b};
	return dtrain_reshape(graph, dtrain__graph_op(graph, DTRAIN_OP_CHANNEL_BIAS, NULL, &pixels, 2, inputs), &shape);
}

/* The parameters of a layer. */
typedef struct declared_layer {
	dtrain_tensor w, b; /* b -1: none */
	dtrain_linear_options options;
} declared_layer;

static bool declare(dtrain_graph *graph, const char *prefix, const char *suffix, dtrain_tensor x,
		    const dtrain__dense *dense, declared_layer *out)
{
	char name[DTRAIN__NAME_SIZE];
	dtrain__name(name, prefix, suffix);
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, x);
	*out = (declared_layer){-1, -1, {0}};
	if (!source)
		return false;
	bool row = dense->split == DTRAIN__SPLIT_ROW, column = dense->split == DTRAIN__SPLIT_COLUMN;
	int32_t ranks = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR).size;
	int64_t in = source->shape.dim[source->shape.ndim - 1] * (row ? ranks : 1), features = dense->features;
	dtrain_shape matrix = dtrain_shape_of(2, dense->in_out ? (int64_t[]){in, features} : (int64_t[]){features, in});
	dtrain_shape vector = dtrain_shape_of(1, &features);
	const dtrain_placement of_weight =
		dtrain__graph_placement(graph, DTRAIN_AXIS_TENSOR, dense->in_out == column, row ? 0 : dense->blocks);
	const dtrain_placement of_bias = dtrain__graph_placement(graph, DTRAIN_AXIS_TENSOR, 0, dense->blocks);
	out->w = dtrain__graph_placed(graph, name, "weight", &matrix, row || column ? &of_weight : NULL,
				      dense->initial.init, dense->initial.fan_in);
	if (dense->bias)
		out->b = dtrain__graph_placed(graph, name, "bias", &vector, column ? &of_bias : NULL,
					      dense->bias_initial.init, dense->bias_initial.fan_in);
	dtrain_linear_options_init(&out->options);
	out->options.activation = dense->activation;
	out->options.weight_in_out = dense->in_out;
	return true;
}

static dtrain_tensor multiply(dtrain_graph *graph, const declared_layer *layer, dtrain_tensor x, bool relu)
{
	return relu ? dtrain_linear_of(graph, x, layer->w, layer->b, true)
		    : dtrain_linear_with(graph, x, layer->w, layer->b, &layer->options);
}

/* The sum over the ranks that have parts of the layer's inputs. The bias is added once. */
static dtrain_tensor sum_up(dtrain_graph *graph, const dtrain__row_parts *terms, dtrain_tensor b, bool relu)
{
	dtrain_tensor x = dtrain__rows_sum(graph, terms);
	x = b < 0 ? x : add_to_last(graph, x, b);
	return relu ? dtrain_relu(graph, x) : x;
}

static bool is_alone(const dtrain_graph *graph)
{
	return dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR).size == 1;
}

dtrain_tensor dtrain__dense_layer(dtrain_graph *graph, const char *prefix, const char *suffix, dtrain_tensor x,
				  const dtrain__dense *dense)
{
	dtrain__row_parts parts = {.count = 1, .of = {x}};
	const bool row = !is_alone(graph) && dense->split == DTRAIN__SPLIT_ROW;
	declared_layer layer;
	if (!declare(graph, prefix, suffix, x, dense, &layer))
		return -1;
	const dtrain_tensor b = layer.b;
	if (row)
		dtrain__rows_cut(graph, x, &parts);
	else if (!is_alone(graph) && dense->split == DTRAIN__SPLIT_COLUMN)
		dtrain__rows_join(graph, x, &parts);
	if (row)
		layer.b = -1;
	for (int i = 0; i < parts.count; i++)
		parts.of[i] = multiply(graph, &layer, parts.of[i], dense->relu && !row);
	return row ? sum_up(graph, &parts, b, dense->relu) : dtrain__rows_merge(graph, &parts);
}

dtrain_tensor dtrain__dense_mlp(dtrain_graph *graph, const char *prefix, dtrain_tensor x, const dtrain__mlp_layers *mlp)
{
	const bool alone = is_alone(graph);
	dtrain__row_parts parts = {.count = 1, .of = {x}};
	declared_layer gate, up, down = {0};
	if ((mlp->gate && !declare(graph, prefix, mlp->gate, x, &mlp->first, &gate)) ||
	    !declare(graph, prefix, mlp->up, x, &mlp->first, &up))
		return -1;
	if (!alone)
		dtrain__rows_join(graph, x, &parts);
	for (int i = 0; i < parts.count; i++) {
		dtrain_tensor y = mlp->gate ? multiply(graph, &gate, parts.of[i], false) : -1;
		dtrain_tensor z = multiply(graph, &up, parts.of[i], mlp->first.relu);
		z = mlp->gate ? dtrain_swiglu(graph, y, z) : z;
		if (i == 0 && !declare(graph, prefix, mlp->down, z, &mlp->second, &down))
			return -1;
		const declared_layer product = {down.w, alone ? down.b : -1, down.options};
		parts.of[i] = multiply(graph, &product, z, alone && mlp->second.relu);
	}
	return alone ? parts.of[0] : sum_up(graph, &parts, down.b, mlp->second.relu);
}
