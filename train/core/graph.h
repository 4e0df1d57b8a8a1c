/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a graph, and what layers are built from: a layer declares its parameters and adds nodes.
 */
#ifndef DTRAIN_CORE_GRAPH_H
#define DTRAIN_CORE_GRAPH_H

#include <dtrain/graph.h>

typedef enum dtrain__role {
	DTRAIN__INPUT,      /* filled by the caller; lives as long as the program */
	DTRAIN__PARAM,      /* values of params[index] */
	DTRAIN__GRAD,       /* gradient of params[index], in the flat array */
	DTRAIN__BUFFER,     /* params' buffers[index] */
	DTRAIN__FIGURE,     /* params' figure of that index */
	DTRAIN__ACTIVATION, /* in the arena */
	DTRAIN__MEMORY,     /* the caller's device memory */
} dtrain__role;

typedef struct dtrain__tensor {
	dtrain__role role;
	dtrain_dtype dtype;
	dtrain_shape shape;
	int32_t index;        /* of the parameter, buffer or figure */
	void *memory;         /* of DTRAIN__MEMORY */
	int32_t producer;     /* node that writes it; -1 */
	dtrain_tensor parent; /* of a view: whose memory it is a piece of; -1 */
	int64_t offset;       /* elements in that memory */
	bool plain;           /* views need it row-major */
	dtrain_tensor copy;   /* of a weight: its compute copy; -1 */
	dtrain_tensor grad;
	bool keep;
	bool want_grad;  /* asked for by the caller */
	bool needs_grad; /* leads to a parameter, or is asked for; known in backward */
} dtrain__tensor;

typedef struct dtrain__node {
	dtrain_op_kind kind;
	dtrain_op_attrs attrs;
	dtrain_tensor inputs[DTRAIN_OP_MAX_OPERANDS];
	dtrain_tensor outputs[DTRAIN_OP_MAX_OPERANDS];
	int32_t num_inputs, num_outputs;
	int32_t block;
	bool is_backward;
} dtrain__node;

struct dtrain_graph {
	dtrain_params *params;
	bool training;
	dtrain_dtype dtype; /* of activations */
	void *scaler;       /* of the losses that follow; NULL */
	beton_error error;  /* the first; code OK while there is none */

	dtrain__tensor *tensors;
	int32_t num_tensors, tensor_capacity;
	dtrain__node *nodes;
	int32_t num_nodes, node_capacity;
	int32_t num_views;
	/* Parts of gradients of parameters that a gradient function has asked for (gradients/gradients.h). */
	struct {
		dtrain_tensor param, part;
	} pending[DTRAIN_OP_MAX_OPERANDS];
	int num_pending;

	int32_t block;         /* of new nodes */
	int32_t block_started; /* first node since next_block whose block is not known yet; -1 */
	bool has_backward, in_backward;
};

static inline bool dtrain__graph_failed(const dtrain_graph *graph)
{
	return graph->error.code != BETON_OK;
}

/* Remembers the first error; returns -1, the handle of nothing. */
BETON_PRINTF(3, 4) dtrain_tensor dtrain__graph_fail(dtrain_graph *graph, int code, const char *format, ...);

/* NULL after an error and for a handle that is none (which then is an error). */
const dtrain__tensor *dtrain__graph_tensor(dtrain_graph *graph, dtrain_tensor tensor);

/* The same for an input of a layer that computes with it: it must have the graph's type. layer is for the message. */
const dtrain__tensor *dtrain__graph_operand(dtrain_graph *graph, const char *layer, dtrain_tensor tensor);

/* "prefix.suffix" as a parameter or buffer of the model, and a tensor for it. */
dtrain_tensor dtrain__graph_param(dtrain_graph *graph, const char *prefix, const char *suffix,
				  const dtrain_shape *shape, dtrain_init init, int64_t fan_in);
dtrain_tensor dtrain__graph_buffer(dtrain_graph *graph, const char *prefix, const char *suffix,
				   const dtrain_shape *shape, dtrain_init init);
/* A buffer for a weight that is not trained. */
dtrain_tensor dtrain__graph_fixed(dtrain_graph *graph, const char *prefix, const char *suffix,
				  const dtrain_shape *shape, dtrain_init init);

/* A new tensor between nodes. dtype: DTRAIN_U8 for what only the device reads, that of the graph, or that of the
 * parameters for statistics and losses. */
dtrain_tensor dtrain__graph_activation(dtrain_graph *graph, dtrain_dtype dtype, const dtrain_shape *shape);

/* A piece of a tensor's memory from element `offset` on, with a shape of its own. */
dtrain_tensor dtrain__graph_view(dtrain_graph *graph, dtrain_tensor parent, const dtrain_shape *shape, int64_t offset);
/* The tensor whose memory a view is in (the tensor itself when it is none), and the place in it in elements. */
dtrain_tensor dtrain__graph_root(const dtrain_graph *graph, dtrain_tensor tensor);
int64_t dtrain__graph_offset(const dtrain_graph *graph, dtrain_tensor tensor);

/* A tensor in device memory that somebody else owns. */
dtrain_tensor dtrain__graph_memory(dtrain_graph *graph, dtrain_dtype dtype, const dtrain_shape *shape, void *memory);

/* What an op reads as its weight: w rounded to the graph's type by a CAST, which stands in front of the first op that
 * reads it; or w, where the device wants no copy or the types are the same. And what a copy was made of; any other
 * tensor itself. */
dtrain_tensor dtrain__graph_copy(dtrain_graph *graph, dtrain_tensor w);
dtrain_tensor dtrain__graph_original(const dtrain_graph *graph, dtrain_tensor tensor);

/* Appends a node; returns its first output. */
dtrain_tensor dtrain__graph_node(dtrain_graph *graph, const dtrain__node *node);

/* A node with one output, which is a new activation of the graph's type and that shape. Of a weight among the inputs it
 * reads the compute copy. attrs NULL: zeros. */
dtrain_tensor dtrain__graph_op(dtrain_graph *graph, dtrain_op_kind kind, const dtrain_op_attrs *attrs,
			       const dtrain_shape *shape, int num_inputs, const dtrain_tensor *inputs);

#endif
