/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of ops: each differentiable kind of <dtrain/ops.def> has a function that appends the nodes which compute
 * the gradients of a node's inputs from its outputs' gradients.
 */
#ifndef DTRAIN_CORE_GRADIENTS_GRADIENTS_H
#define DTRAIN_CORE_GRADIENTS_GRADIENTS_H

#include "core/graph.h"

/* node is a copy. At least one of its outputs has a gradient (dtrain_graph_grad; -1: none). */
typedef void dtrain__gradient(dtrain_graph *graph, const dtrain__node *node);

#define DTRAIN_OP(NAME, name)
#define DTRAIN_DIFFERENTIABLE_OP(NAME, name) dtrain__gradient dtrain__##name##_gradient;
#include <dtrain/ops.def>

/* Marks the tensors that need a gradient: parameters that are not frozen, requested tensors, and all tensors that
 * depend on these. */
void dtrain__mark_needed(dtrain_graph *graph);
/* Whether a gradient of the tensor is needed, after that. */
bool dtrain__needs_grad(const dtrain_graph *graph, dtrain_tensor tensor);

/* A tensor for a part of a parameter's gradient. A node that the function appends must write it. */
dtrain_tensor dtrain__param_grad(dtrain_graph *graph, dtrain_tensor param);

/* Adds a part of the gradient of an activation or input. */
void dtrain__add_grad(dtrain_graph *graph, dtrain_tensor tensor, dtrain_tensor part);

/* Replaces the gradient: an op has added its own part to the previous one. */
void dtrain__replace_grad(dtrain_graph *graph, dtrain_tensor tensor, dtrain_tensor sum);

/* The gradient of an op's output y; with attrs.relu, of the value before the relu. */
dtrain_tensor dtrain__grad_before_relu(dtrain_graph *graph, const dtrain__node *node);

/* If x needs a gradient: appends one op of that kind and attributes, from inputs to a part of the gradient. */
void dtrain__append_grad(dtrain_graph *graph, dtrain_tensor x, dtrain_op_kind kind, const dtrain_op_attrs *attrs,
			 int num_inputs, const dtrain_tensor *inputs);

#endif
