/* SPDX-License-Identifier: Apache-2.0 */
#include "transformer_parts.h"

#include "core/graph.h"

dtrain_tensor dtrain__norm(dtrain_graph *graph, const dtrain_transformer *t, const char *prefix, const char *suffix,
			   dtrain_tensor x)
{
	char name[DTRAIN__NAME_SIZE];
	dtrain__name(name, prefix, suffix);
	return t->bias ? dtrain_layer_norm(graph, name, x, t->epsilon)
		       : dtrain_layer_norm_without_bias(graph, name, x, t->epsilon);
}

/* A bias of t * c channels, each of one element. */
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
dtrain_attention_options dtrain__attention_options(const dtrain_graph *graph, const dtrain_transformer *t,
						   dtrain_tensor random, int layer)
{
	const dtrain__line line = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR);
	dtrain_attention_options options;
	dtrain_attention_options_init(&options);
	options.heads = (int32_t)t->heads / line.size;
	options.kv_heads = (int32_t)t->kv_heads / line.size;
	options.all_heads = (int32_t)t->heads;
	options.first_head = line.rank * options.heads;
	options.dropout = t->attention_dropout;
	options.random = random;
	options.layer = -1 - layer;
	return options;
}

bool dtrain__transformer_check_split(dtrain_graph *graph, const dtrain_transformer *t)
{
	const dtrain__shared shared[] = {
		{"heads", t->heads}, {"heads of keys", t->kv_heads}, {"features of the MLP", t->inner}};
	return dtrain__graph_check_shared(graph, "transformer", DTRAIN_AXIS_TENSOR, shared, 3);
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
		return dtrain_add(graph, x, dtrain__rows_once(graph, dtrain_embedding(graph, table, inputs->position)),
				  false);
	const dtrain_shape *shape = dtrain_graph_shape(graph, x);
	if (!shape)
		return -1;
	return dtrain__add_to_each(graph, x, dtrain__rows_once(graph, dtrain_slice(graph, table, 0, 0, shape->dim[1])));
}
