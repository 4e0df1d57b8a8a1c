/* SPDX-License-Identifier: Apache-2.0
 *
 * How gradients flow through ops: for each differentiable kind of <dtrain/ops.def> a function that appends the nodes
 * from the gradients of a node's outputs to those of its inputs.
 */
#ifndef DTRAIN_CORE_GRADIENTS_GRADIENTS_H
#define DTRAIN_CORE_GRADIENTS_GRADIENTS_H

#include "core/graph.h"

/* node is a copy; at least one of its outputs has a gradient (dtrain_graph_grad; -1: none). */
typedef void dtrain__gradient(dtrain_graph *graph, const dtrain__node *node);

#define DTRAIN_OP(NAME, name)
#define DTRAIN_DIFFERENTIABLE_OP(NAME, name) dtrain__gradient dtrain__##name##_gradient;
#include <dtrain/ops.def>

/* Whether a gradient of tensor is of use. */
bool dtrain__needs_grad(const dtrain_graph *graph, dtrain_tensor tensor);

/* The tensor for a part of a parameter's gradient, which a node that the function appends must write. */
dtrain_tensor dtrain__param_grad(dtrain_graph *graph, dtrain_tensor param);

/* Hands over a (further) part of the gradient of an activation or input. */
void dtrain__add_grad(dtrain_graph *graph, dtrain_tensor tensor, dtrain_tensor part);

/* Instead of handing a part over: sum is what an op made of the gradient that was there and its own part. */
void dtrain__replace_grad(dtrain_graph *graph, dtrain_tensor tensor, dtrain_tensor sum);

/* The gradient of y, which is the output of an op; with attrs.relu that in front of the relu. */
dtrain_tensor dtrain__grad_before_relu(dtrain_graph *graph, const dtrain__node *node);

/* If x needs a gradient: one op of that kind and attributes, from inputs to a part of it. */
void dtrain__append_grad(dtrain_graph *graph, dtrain_tensor x, dtrain_op_kind kind, const dtrain_op_attrs *attrs,
			 int num_inputs, const dtrain_tensor *inputs);

#endif
