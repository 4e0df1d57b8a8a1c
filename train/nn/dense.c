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

dtrain_tensor dtrain__dense_layer(dtrain_graph *graph, const char *prefix, const char *suffix, dtrain_tensor x,
				  const dtrain__dense *dense)
{
	char name[DTRAIN__NAME_SIZE];
	dtrain__name(name, prefix, suffix);
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, x);
	if (!source)
		return -1;
	bool row = dense->split == DTRAIN__SPLIT_ROW, column = dense->split == DTRAIN__SPLIT_COLUMN;
	int32_t ranks = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR).size;
	int64_t in = source->shape.dim[source->shape.ndim - 1] * (row ? ranks : 1), out = dense->features;
	dtrain_shape matrix = dtrain_shape_of(2, dense->in_out ? (int64_t[]){in, out} : (int64_t[]){out, in});
	dtrain_shape vector = dtrain_shape_of(1, &out);
	const dtrain_placement of_weight =
		dtrain__graph_placement(graph, DTRAIN_AXIS_TENSOR, dense->in_out == column, row ? 0 : dense->blocks);
	const dtrain_placement of_bias = dtrain__graph_placement(graph, DTRAIN_AXIS_TENSOR, 0, dense->blocks);
	dtrain_tensor w = dtrain__graph_placed(graph, name, "weight", &matrix, row || column ? &of_weight : NULL,
					       dense->initial.init, dense->initial.fan_in),
		      b = -1;
	if (dense->bias)
		b = dtrain__graph_placed(graph, name, "bias", &vector, column ? &of_bias : NULL,
					 dense->bias_initial.init, dense->bias_initial.fan_in);
	dtrain_linear_options options;
	dtrain_linear_options_init(&options);
	options.activation = dense->activation;
	options.weight_in_out = dense->in_out;
	if (!row || ranks == 1)
		return dense->relu ? dtrain_linear_of(graph, x, w, b, true)
				   : dtrain_linear_with(graph, x, w, b, &options);
	/* The bias is added once, to the sum. */
	x = dtrain__rows_sum(graph, dtrain_linear_with(graph, x, w, -1, &options));
	x = b < 0 ? x : add_to_last(graph, x, b);
	return dense->relu ? dtrain_relu(graph, x) : x;
}
