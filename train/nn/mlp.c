/* SPDX-License-Identifier: Apache-2.0 */
#include "models.h"

/* Two hidden layers: small enough to train in seconds. Without batch norm the losses do not depend on the division of a
 * batch among ranks. */
#define HIDDEN 512

dtrain_tensor dtrain__mlp(dtrain_graph *graph, dtrain_tensor image, int64_t classes)
{
	dtrain_tensor x = dtrain_flatten(graph, image);
	x = dtrain_linear_relu(graph, "fc1", x, HIDDEN);
	dtrain_graph_next_block(graph);
	x = dtrain_linear_relu(graph, "fc2", x, HIDDEN);
	dtrain_graph_next_block(graph);
	return dtrain_linear(graph, "fc3", x, classes);
}
