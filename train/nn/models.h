/* SPDX-License-Identifier: Apache-2.0
 *
 * The models, each from a picture batch [n, 3, h, w] to logits [n, classes].
 */
#ifndef DTRAIN_NN_MODELS_H
#define DTRAIN_NN_MODELS_H

#include <dtrain/graph.h>

dtrain_tensor dtrain__airbench94(dtrain_graph *graph, dtrain_tensor image, int64_t classes);
dtrain_tensor dtrain__mlp(dtrain_graph *graph, dtrain_tensor image, int64_t classes);
dtrain_tensor dtrain__resnet9(dtrain_graph *graph, dtrain_tensor image, int64_t classes);
dtrain_tensor dtrain__resnet20(dtrain_graph *graph, dtrain_tensor image, int64_t classes);
dtrain_tensor dtrain__resnet18(dtrain_graph *graph, dtrain_tensor image, int64_t classes);
dtrain_tensor dtrain__resnet34(dtrain_graph *graph, dtrain_tensor image, int64_t classes);
dtrain_tensor dtrain__resnet50(dtrain_graph *graph, dtrain_tensor image, int64_t classes);
dtrain_tensor dtrain__resnet101(dtrain_graph *graph, dtrain_tensor image, int64_t classes);
dtrain_tensor dtrain__resnet152(dtrain_graph *graph, dtrain_tensor image, int64_t classes);

/* Whether no ranks divide sequences. On failure the graph has the error. */
bool dtrain__model_check_context(dtrain_graph *graph, const char *model);

#endif
