/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norms that the models share.
 */
#ifndef DTRAIN_NN_NORM_H
#define DTRAIN_NN_NORM_H

#include <dtrain/graph.h>

/* max(norm of x + norm of x2, 0), each with its own parameters. The second norm's parameters are declared first. One op
 * in training, if the device prefers that; else dtrain_batch_norm and dtrain_batch_norm_add. */
dtrain_tensor dtrain__batch_norm_pair(dtrain_graph *graph, const char *name, dtrain_tensor x, const char *second,
				      dtrain_tensor x2);

#endif
