/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of a model of tokens, whose rows the ranks of the mesh's axis "tensor" divide: the table of tokens,
 * and the loss of the last layer. Parts differ by one row at most, and no rank has rows that are not the model's.
 */
#include "vocabulary.h"

#include "common/sized.h"
#include "core/graph.h"
#include "core/shape.h"
#include "token_rows.h"

dtrain_tensor dtrain__vocabulary_table(dtrain_graph *graph, const char *name, const dtrain_transformer *t)
{
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){t->vocabulary, t->width});
	const dtrain__initial initial = dtrain__normal(t->deviation);
	const dtrain_placement rows = dtrain__graph_placement(graph, DTRAIN_AXIS_TENSOR, 0, 0);
	return dtrain_graph_placed_parameter(graph, name, &shape, &rows, initial.init, initial.fan_in);
}

dtrain_tensor dtrain__vocabulary_bias(dtrain_graph *graph, const char *name, const dtrain_transformer *t)
{
	dtrain_shape shape = dtrain_shape_of(1, &t->vocabulary);
	const dtrain_placement rows = dtrain__graph_placement(graph, DTRAIN_AXIS_TENSOR, 0, 0);
	return dtrain_graph_placed_parameter(graph, name, &shape, &rows, DTRAIN_INIT_ZERO, 0);
}

/* The declaration of a divided parameter; NULL: this rank has all of it. */
static const dtrain_param *part_of(dtrain_graph *graph, dtrain_tensor tensor)
{
	const dtrain__tensor *known = dtrain__graph_tensor(graph, tensor);
	const dtrain_param *param =
		known && known->role == DTRAIN__PARAM ? dtrain_params_at(graph->params, known->index) : NULL;
	return param && param->placement.axis ? param : NULL;
}

bool dtrain__vocabulary_is_divided(dtrain_graph *graph, dtrain_tensor table)
{
	return part_of(graph, table) != NULL;
}

dtrain_tensor dtrain__vocabulary_embedding(dtrain_graph *graph, dtrain_tensor table, dtrain_tensor index)
{
	const dtrain_param *part = part_of(graph, table);
	if (!part)
		return dtrain_embedding(graph, table, index);
	const dtrain__tensor *numbers = dtrain__graph_tensor(graph, index);
	if (!numbers)
		return -1;
	const dtrain_op_attrs attrs = {.table = {part->first, part->global_shape.dim[0]}};
	dtrain_shape shape = numbers->shape;
	shape.dim[shape.ndim++] = part->shape.dim[1];
	/* One rank has the row, and the others zeros. */
	dtrain_tensor x =
		dtrain__graph_op(graph, DTRAIN_OP_EMBEDDING, &attrs, &shape, 2, (dtrain_tensor[]){table, index});
	return dtrain__rows_divided(graph) ? x : dtrain_reduce_from_axis(graph, x, DTRAIN_AXIS_TENSOR);
}

dtrain_tensor dtrain__vocabulary_rows(dtrain_graph *graph, dtrain_tensor x)
{
	return dtrain__rows_divided(graph) ? dtrain__rows_sum(graph, &(dtrain__row_parts){.count = 1, .of = {x}}) : x;
}

/* All rows [n, width] on every rank, of x [..., width], before a divided layer. */
static dtrain_tensor join_rows(dtrain_graph *graph, dtrain_tensor x)
{
	const dtrain_shape *known = dtrain_graph_shape(graph, x);
	if (!known)
		return -1;
	int64_t columns = known->dim[known->ndim - 1];
	const dtrain_shape rows = dtrain_shape_of(2, (int64_t[]){dtrain_shape_count(known) / columns, columns});
	x = dtrain_reshape(graph, x, &rows);
	return graph->training && graph->params->divides_rows
		       ? dtrain__graph_gather(graph, x, 1u << DTRAIN_AXIS_TENSOR, true)
		       : dtrain_copy_to_axis(graph, x, DTRAIN_AXIS_TENSOR);
}

dtrain_tensor dtrain__vocabulary_logits(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor rows, dtrain_tensor w,
					dtrain_tensor b)
{
	const dtrain_param *part = part_of(graph, w);
	x = join_rows(graph, x);
	if (rows >= 0)
		x = dtrain_embedding(graph, x, rows);
	dtrain_tensor logits = dtrain_linear_of(graph, x, w, b, false);
	const dtrain_shape *known = dtrain_graph_shape(graph, logits);
	if (!known || !part)
		return logits;
	const dtrain_op_attrs attrs = {.slice = {.dim = 1, .begin = part->first, .places = 1}};
	const dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){known->dim[0], part->global_shape.dim[0]});
	/* One rank has a column, and the others zeros. A gather would need parts of one size. */
	return dtrain_reduce_from_axis(graph, dtrain__graph_op(graph, DTRAIN_OP_SLICE_BWD, &attrs, &shape, 1, &logits),
				       DTRAIN_AXIS_TENSOR);
}

/* All ranks' numbers of each row: [ranks, 3, rows]. */
static dtrain_tensor numbers_of(dtrain_graph *graph, dtrain_tensor logits, dtrain_tensor label,
				const dtrain_loss_attrs *attrs)
{
	const dtrain__line line = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR);
	const dtrain_shape *rows = dtrain_graph_shape(graph, logits);
	if (!rows)
		return -1;
	dtrain_shape shape = dtrain_shape_of(3, (int64_t[]){line.size, 3, rows->dim[0]});
	dtrain__node node = {.kind = DTRAIN_OP_XENT_PART,
			     .attrs.loss = *attrs,
			     .num_inputs = 2,
			     .num_outputs = 1,
			     .inputs = {logits, label}};
	node.outputs[0] = dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), &shape);
	return dtrain__graph_collective(graph, DTRAIN_OP_ALL_GATHER, dtrain__graph_node(graph, &node),
					1u << DTRAIN_AXIS_TENSOR);
}

dtrain_tensor dtrain__vocabulary_losses(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w, dtrain_tensor b,
					dtrain_tensor label, const dtrain_loss_options *given)
{
	const dtrain_param *part = part_of(graph, w);
	dtrain_loss_options options;
	beton_error fault;
	dtrain_loss_options_init(&options);
	if (!part || !dtrain__graph_operand(graph, "cross entropy", x))
		return -1;
	if (bt_sized_take(&options, given, "options", &fault) != BETON_OK)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "cross entropy: %s", fault.message);
	const dtrain_loss_attrs attrs = {.label_smoothing = options.label_smoothing,
					 .ignored = options.ignored,
					 .first = part->first,
					 .classes = part->global_shape.dim[0],
					 .rank = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR).rank};
	x = join_rows(graph, x);
	const dtrain_shape *joined = dtrain_graph_shape(graph, x);
	if (!joined)
		return -1;
	int64_t count = joined->dim[0];
	dtrain_shape each = dtrain_shape_of(1, &count);
	label = dtrain_reshape(graph, label, &each);
	dtrain_tensor numbers = numbers_of(graph, dtrain_linear_of(graph, x, w, b, false), label, &attrs);
	const dtrain_shape *known = dtrain_graph_shape(graph, numbers);
	if (!known)
		return -1;
	dtrain_shape shape = *known;
	dtrain__node node = {.kind = DTRAIN_OP_XENT_JOIN,
			     .attrs.loss = attrs,
			     .num_inputs = 2,
			     .num_outputs = 2,
			     .inputs = {numbers, label}};
	dtrain__graph_add_scaler(graph, &node);
	node.outputs[0] = dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), &each);
	node.outputs[1] = dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), &shape);
	return dtrain__graph_node(graph, &node);
}
