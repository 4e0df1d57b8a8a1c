/* SPDX-License-Identifier: Apache-2.0 */
#include "transformer_parts.h"

#include <math.h>
#include <stdio.h>

#include "core/graph.h"

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

dtrain_tensor dtrain__dense_layer(dtrain_graph *graph, const char *prefix, const char *suffix, dtrain_tensor x,
				  const dtrain__dense *dense)
{
	char name[DTRAIN__NAME_SIZE];
	dtrain__name(name, prefix, suffix);
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, x);
	if (!source)
		return -1;
	int64_t in = source->shape.dim[source->shape.ndim - 1], out = dense->features;
	dtrain_shape matrix = dtrain_shape_of(2, dense->in_out ? (int64_t[]){in, out} : (int64_t[]){out, in});
	dtrain_shape vector = dtrain_shape_of(1, &out);
	dtrain_tensor w = dtrain__graph_param(graph, name, "weight", &matrix, dense->initial.init,
					      dense->initial.fan_in),
		      b = -1;
	if (dense->bias)
		b = dtrain__graph_param(graph, name, "bias", &vector, DTRAIN_INIT_ZERO, 0);
	dtrain_linear_options options;
	dtrain_linear_options_init(&options);
	options.activation = dense->activation;
	options.weight_in_out = dense->in_out;
	return dtrain_linear_with(graph, x, w, b, &options);
}

dtrain_tensor dtrain__norm(dtrain_graph *graph, const dtrain_transformer *t, const char *prefix, const char *suffix,
			   dtrain_tensor x)
{
	char name[DTRAIN__NAME_SIZE];
	dtrain__name(name, prefix, suffix);
	return t->bias ? dtrain_layer_norm(graph, name, x, t->epsilon)
		       : dtrain_layer_norm_without_bias(graph, name, x, t->epsilon);
}

/* A bias of t * c channels, of which each has one element. */
dtrain_tensor dtrain__add_to_each(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor table)
{
	const dtrain_shape *known = dtrain_graph_shape(graph, x);
	if (!known || table < 0)
		return -1;
	dtrain_shape shape = *known;
	int64_t count = dtrain_shape_count(&shape) / shape.dim[0];
	dtrain_shape channels = dtrain_shape_of(4, (int64_t[]){shape.dim[0], count, 1, 1});
	dtrain_shape row = dtrain_shape_of(1, &count);
	dtrain_tensor inputs[] = {dtrain_reshape(graph, x, &channels), dtrain_reshape(graph, table, &row)};
	return dtrain_reshape(graph, dtrain__graph_op(graph, DTRAIN_OP_CHANNEL_BIAS, NULL, &channels, 2, inputs),
			      &shape);
}

/* Other dropouts of the model have the numbers from 0 on. */
dtrain_attention_options dtrain__attention_options(const dtrain_transformer *t, dtrain_tensor random, int layer)
{
	dtrain_attention_options options;
	dtrain_attention_options_init(&options);
	options.heads = (int32_t)t->heads;
	options.dropout = t->attention_dropout;
	options.random = random;
	options.layer = -1 - layer;
	return options;
}

dtrain_tensor dtrain__table(dtrain_graph *graph, const char *name, int64_t rows, int64_t columns, double deviation)
{
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){rows, columns});
	dtrain__initial initial = dtrain__normal(deviation);
	return dtrain_graph_parameter(graph, name, &shape, initial.init, initial.fan_in);
}

dtrain_tensor dtrain__add_positions(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor table,
				    const dtrain_transformer_inputs *inputs)
{
	if (inputs->position >= 0)
		return dtrain_add(graph, x, dtrain_embedding(graph, table, inputs->position), false);
	const dtrain_shape *shape = dtrain_graph_shape(graph, x);
	return shape ? dtrain__add_to_each(graph, x, dtrain_slice(graph, table, 0, 0, shape->dim[1])) : -1;
}
