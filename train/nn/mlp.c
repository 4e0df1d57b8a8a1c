/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"
#include "dense.h"
#include "models.h"

/* Two hidden layers: small enough to train in seconds. Without batch norm the losses do not depend on the division of a
 * batch among ranks. The ranks of the mesh's axis "tensor" have parts of the first layer's features, and so of the
 * second layer's inputs. */
#define HIDDEN 512

static dtrain_tensor hidden(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t inputs, dtrain__split split)
{
	const dtrain__initial initial = {DTRAIN_INIT_LINEAR_UNIFORM, inputs};
	return dtrain__dense_layer(graph, NULL, name, x,
				   &(dtrain__dense){.features = HIDDEN,
						    .bias = true,
						    .relu = true,
						    .initial = initial,
						    .bias_initial = initial,
						    .split = split});
}

dtrain_tensor dtrain__mlp(dtrain_graph *graph, dtrain_tensor image, int64_t classes)
{
	const dtrain__shared features = {"hidden features", HIDDEN};
	dtrain_tensor x = dtrain_flatten(graph, image);
	const dtrain_shape *rows = dtrain_graph_shape(graph, x);
	if (graph->params->divides_rows)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "mlp: sequence parallelism divides the rows of transformers");
	if (!rows || !dtrain__graph_check_shared(graph, "mlp", DTRAIN_AXIS_TENSOR, &features, 1))
		return -1;
	int64_t pixels = rows->dim[1];
	x = hidden(graph, "fc1", x, pixels, DTRAIN__SPLIT_COLUMN);
	dtrain_graph_next_block(graph);
	x = hidden(graph, "fc2", x, HIDDEN, DTRAIN__SPLIT_ROW);
	dtrain_graph_next_block(graph);
	return dtrain_linear(graph, "fc3", x, classes);
}
