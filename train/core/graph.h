/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a graph, and what layers are built from: a layer declares its parameters and adds nodes.
 */
#ifndef DTRAIN_CORE_GRAPH_H
#define DTRAIN_CORE_GRAPH_H

#include <dtrain/graph.h>

#include "params.h"

typedef enum dtrain__role {
	DTRAIN__INPUT,       /* filled by the caller; lives as long as the program */
	DTRAIN__PARAM,       /* values of params[index] */
	DTRAIN__GRAD,        /* gradient of params[index], in the flat array */
	DTRAIN__COPY,        /* compute copy of params[index] */
	DTRAIN__BUFFER,      /* params' buffers[index] */
	DTRAIN__STEP_METRIC, /* params->step_metrics[index] */
	DTRAIN__ACTIVATION,  /* in the arena */
	DTRAIN__MEMORY,      /* device memory owned by the caller */
} dtrain__role;

typedef struct dtrain__tensor {
	dtrain__role role;
	dtrain_dtype dtype;
	dtrain_shape shape;
	int32_t index;          /* of the parameter, buffer or step metric */
	void *memory;           /* of DTRAIN__MEMORY */
	int32_t producer;       /* the node that writes it; -1: none */
	dtrain_tensor parent;   /* of a view: the tensor that contains it; -1: not a view */
	int64_t offset;         /* in elements, in that memory */
	uint32_t summed_axes;   /* of a view: its gradient is summed over the ranks along these axes */
	bool plain;             /* views need it row-major */
	dtrain_tensor copy;     /* of a weight: its compute copy; -1: none */
	dtrain_tensor original; /* of a compute copy: the weight; -1: no copy */
	dtrain_tensor returns;  /* the activation that it is, come back from the host (swap.c); -1: none */
	dtrain_tensor grad;
	bool keep;
	bool want_grad;  /* requested by the caller */
	bool needs_grad; /* depends on a parameter, or is requested; set in backward */
} dtrain__tensor;

typedef struct dtrain__node {
	dtrain_op_kind kind;
	dtrain_op_attrs attrs;
	dtrain_tensor inputs[DTRAIN_OP_MAX_OPERANDS];
	dtrain_tensor outputs[DTRAIN_OP_MAX_OPERANDS];
	int32_t num_inputs, num_outputs;
	int32_t block;
	bool is_backward;
	bool is_repeated; /* in backward: computes again what a forward node computed */
	bool is_deferred; /* in backward: only gradients of parameters depend on it, and it comes after all others */
} dtrain__node;

/* The rows of the model that is being built; samples 0: this rank has all of them (nn/token_rows.h). */
typedef struct dtrain__rows {
	int64_t samples, positions;
} dtrain__rows;

/* The last rows that all ranks' were gathered to; count 0: none. */
typedef struct dtrain__joined_rows {
	int count;
	dtrain_tensor rows, parts[DTRAIN_OP_MAX_OPERANDS];
} dtrain__joined_rows;

/* Indices of parameters or buffers. */
typedef struct dtrain__indices {
	bool *has;
	int32_t capacity;
} dtrain__indices;

struct dtrain_graph {
	dtrain_params *params;
	bool training;
	dtrain_dtype dtype; /* of activations */
	void *scaler;       /* of later losses; NULL: none */
	beton_error error;  /* the first error; code OK: none */

	dtrain__tensor *tensors;
	int32_t num_tensors, tensor_capacity;
	dtrain__node *nodes;
	int32_t num_nodes, node_capacity;
	int32_t num_views;
	dtrain__indices used_params, used_buffers; /* indices with a tensor */
	/* Parts of parameter gradients that a gradient function has requested (gradients/gradients.h). */
	struct {
		dtrain_tensor param, part;
	} pending[DTRAIN_OP_MAX_OPERANDS];
	int num_pending;

	dtrain__rows rows;
	dtrain__joined_rows joined;

	int32_t block;         /* of new nodes */
	int32_t block_started; /* first node since next_block whose block is not yet known; -1: none */
	bool has_backward, in_backward;
	bool has_repeated; /* dtrain_graph_recompute was called */
	bool has_swaps;    /* dtrain_graph_offload was called */
	bool interleaves;  /* dtrain_graph_interleave was called; so the next two */
	bool shares_scratch, binds_inputs;
	int32_t stage;  /* of a pipeline; -1: the whole model */
	bool continues; /* backward begins with the next stage's gradients */
};

/* Whether a unit's parameters are in the graph. A stage has the parameters of its blocks. */
static inline bool dtrain__graph_has_unit(const dtrain_graph *graph, const dtrain_unit *unit)
{
	return graph->stage < 0 || (unit->stages >> graph->stage & 1);
}

/* Whether the graph is the first, or the last, of a rank's stages. */
static inline bool dtrain__graph_is_first(const dtrain_graph *graph)
{
	return graph->stage < 0 || (graph->params->own_stages & ((UINT64_C(1) << graph->stage) - 1)) == 0;
}

static inline bool dtrain__graph_is_last(const dtrain_graph *graph)
{
	return graph->stage < 0 || graph->params->own_stages >> graph->stage == 1;
}

static inline bool dtrain__graph_failed(const dtrain_graph *graph)
{
	return graph->error.code != BETON_OK;
}

/* Remembers the first error; returns -1, an invalid handle. */
BETON_PRINTF(3, 4) dtrain_tensor dtrain__graph_fail(dtrain_graph *graph, int code, const char *format, ...);

/* BT_MISSING for a function that adds to a graph: the graph, if it is there, keeps the error. */
#define DTRAIN__MISSING(graph, ...)                                                                                 \
	dtrain__graph_missing(graph, __func__, #graph ", " #__VA_ARGS__, (const void *const[]){graph, __VA_ARGS__}, \
			      sizeof((const void *const[]){graph, __VA_ARGS__}) / sizeof(const void *))

/* DTRAIN__MISSING calls it. */
bool dtrain__graph_missing(dtrain_graph *graph, const char *function, const char *names, const void *const *given,
			   size_t count);

/* NULL after an error, or for an invalid handle (which is recorded as an error). */
const dtrain__tensor *dtrain__graph_tensor(dtrain_graph *graph, dtrain_tensor tensor);

/* The same for an input that a layer computes with: it must have the graph's type. layer: for the message. */
const dtrain__tensor *dtrain__graph_operand(dtrain_graph *graph, const char *layer, dtrain_tensor tensor);

/* Declares "prefix.suffix" as a parameter or buffer of the model, and adds a tensor for it. */
dtrain_tensor dtrain__graph_param(dtrain_graph *graph, const char *prefix, const char *suffix,
				  const dtrain_shape *shape, dtrain_init init, int64_t fan_in);
/* placement: see dtrain_params_declare_placed. */
dtrain_tensor dtrain__graph_placed(dtrain_graph *graph, const char *prefix, const char *suffix,
				   const dtrain_shape *shape, const dtrain_placement *placement, dtrain_init init,
				   int64_t fan_in);
dtrain_tensor dtrain__graph_buffer(dtrain_graph *graph, const char *prefix, const char *suffix,
				   const dtrain_shape *shape, dtrain_init init);
/* A buffer for a weight that is not trained. */
dtrain_tensor dtrain__graph_fixed(dtrain_graph *graph, const char *prefix, const char *suffix,
				  const dtrain_shape *shape, dtrain_init init);

/* A new tensor between nodes. dtype: DTRAIN_U8 for data that only the device reads, otherwise the graph's type, or the
 * parameters' type for statistics and losses. */
dtrain_tensor dtrain__graph_activation(dtrain_graph *graph, dtrain_dtype dtype, const dtrain_shape *shape);

/* Adds a tensor of another graph, as it is before backward. Its index, parent and original are this graph's. */
dtrain_tensor dtrain__graph_copy_tensor(dtrain_graph *graph, const dtrain__tensor *tensor);

/* A piece of a tensor's memory from element `offset` on, with its own shape. */
dtrain_tensor dtrain__graph_view(dtrain_graph *graph, dtrain_tensor parent, const dtrain_shape *shape, int64_t offset);
/* root: the tensor whose memory contains a view, or the tensor itself if it is not a view. The other: the position
 * there, in elements. */
dtrain_tensor dtrain__graph_root(const dtrain_graph *graph, dtrain_tensor tensor);
/* The number of forward nodes, which come before all backward nodes. */
int32_t dtrain__graph_forward_nodes(const dtrain_graph *graph);
int64_t dtrain__graph_offset(const dtrain_graph *graph, dtrain_tensor tensor);

/* copy: the tensor that an op reads as its weight: the compute copy of w, which is a parameter or a view of one, or w
 * itself if there is none in the graph's type. Ops round such a w as they read it. original: the tensor that a copy is
 * of; any other tensor itself. */
dtrain_tensor dtrain__graph_copy(dtrain_graph *graph, dtrain_tensor w);
dtrain_tensor dtrain__graph_original(const dtrain_graph *graph, dtrain_tensor tensor);

/* Tells each convolution of a complete graph which batch norm reads its result (dtrain_fusion), and each NORMALIZE
 * whether convolutions alone do. */
void dtrain__note_fusions(dtrain_graph *graph);

/* Appends a node; returns its first output. */
dtrain_tensor dtrain__graph_node(dtrain_graph *graph, const dtrain__node *node);

/* Adds the graph's scaler, if there is one, to the inputs of a loss. */
void dtrain__graph_add_scaler(dtrain_graph *graph, dtrain__node *node);

/* A node with one output, a new activation of the graph's type and that shape. Weights among the inputs are read
 * through their compute copies. attrs NULL: zeros. */
dtrain_tensor dtrain__graph_op(dtrain_graph *graph, dtrain_op_kind kind, const dtrain_op_attrs *attrs,
			       const dtrain_shape *shape, int num_inputs, const dtrain_tensor *inputs);

/* The ranks that differ from this one along the axis alone; one without a mesh. */
dtrain__line dtrain__graph_line(const dtrain_graph *graph, dtrain_axis axis);
/* A placement over them, with as many parts; none if there is one rank. */
dtrain_placement dtrain__graph_placement(const dtrain_graph *graph, dtrain_axis axis, int dim, int32_t blocks);

/* A number of things that the ranks along an axis share out evenly. */
typedef struct dtrain__shared {
	const char *name; /* plural */
	int64_t count;
} dtrain__shared;

/* Whether the ranks along the axis divide each of them. If not, the graph has failed, and the message says how many
 * ranks would. model: for the message. */
bool dtrain__graph_check_shared(dtrain_graph *graph, const char *model, dtrain_axis axis, const dtrain__shared *list,
				int count);

/* A collective among the ranks along the axes (bits): one axis, or all data axes. ALL_REDUCE, or ALL_GATHER of a tensor
 * that has a part for each rank. */
dtrain_tensor dtrain__graph_collective(dtrain_graph *graph, dtrain_op_kind kind, dtrain_tensor x, uint32_t axes);
/* ALL_GATHER of x, the part of this rank: all ranks' parts, one after the other. differ: see dtrain_collective_attrs.
 */
dtrain_tensor dtrain__graph_gather(dtrain_graph *graph, dtrain_tensor x, uint32_t axes, bool differ);
/* This rank's part of the sum of x over the ranks. */
dtrain_tensor dtrain__graph_reduce_scatter(dtrain_graph *graph, dtrain_tensor x, uint32_t axes);

#endif
