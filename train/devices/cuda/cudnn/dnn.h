/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN's graphs of operations: describes a graph, finds engines for it, and runs it.
 *
 * A graph consists of tensors and operations on them. cuDNN's heuristics propose engines for it, for the GPU of a
 * handle or for a described GPU (cuDNN's deviceless mode), so that tests can plan without a GPU. An engine with its
 * settings is a configuration; a configuration that is ready to run is a plan.
 */
#ifndef DTRAIN_CUDA_CUDNN_DNN_H
#define DTRAIN_CUDA_CUDNN_DNN_H

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <dtrain/device.h>

typedef cudnnBackendDescriptor_t dnn_descriptor;

/* How to get plans of engines that cuDNN compiles. */
typedef enum dnn_origin {
	DNN_STORED_OR_COMPILED,
	DNN_STORED,   /* from the store only */
	DNN_COMPILED, /* compiled, to replace a stored plan that does not work */
} dnn_origin;

/* The target of planning. */
typedef struct dnn_target {
	cudnnHandle_t handle;
	dnn_descriptor properties; /* without a handle: a CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR */
	bool tf32;                 /* products may round F32 inputs to TF32 */
	bool deterministic;
	size_t workspace_limit;  /* bytes; engines that need more are not used */
	struct dnn_store *store; /* of compiled plans; NULL: none */
	int driver; /* the driver's version in CUDA's numbering, for stored plans; 0: keep the plans' version */
	dnn_origin origin;
	const bool *stop; /* atomic; once it is true, no further plan is compiled; NULL: never */
} dnn_target;

#define DNN_MAX_DESCRIPTORS 96
#define DNN_MAX_OPERATIONS 24
#define DNN_MAX_TENSORS 12
#define DNN_MAX_SCALARS 3
#define DNN_SIGNATURE_SIZE 2048

/* For tensors that exist only inside the graph. */
#define DNN_VIRTUAL (-1)
/* Memory in the op's workspace, by the number of an operand. */
#define DNN_SCRATCH (DNN_MAX_TENSORS - 1)
/* cuDNN's unique ids of tensors: 1 + index for operands, and DNN_MAX_TENSORS more for each further tensor in the memory
 * of the same operand; scalars from this number on, then virtual tensors. */
#define DNN_FIRST_SCALAR 100

typedef struct dnn_dims {
	int64_t n, c, h, w; /* for weights: k, c, r, s */
} dnn_dims;

/* A view of four dimensions, in elements. */
typedef struct dnn_view {
	int64_t dims[4], strides[4];
} dnn_view;

typedef struct dnn_window {
	int64_t kernel[2], stride[2], padding[2];
} dnn_window;

/* While a graph is described, the first failure stays in status, and later calls do nothing. */
typedef struct dnn_graph {
	cudnnDataType_t type; /* of activations */
	bool multiplies;      /* contains convolutions or products, whose inputs an engine may round */
	dnn_descriptor made[DNN_MAX_DESCRIPTORS];
	int num_made;
	dnn_descriptor operations[DNN_MAX_OPERATIONS];
	int num_operations;
	dnn_descriptor graph;
	struct {
		int operand;
		int64_t number; /* cuDNN's unique id */
		size_t offset;  /* in the operand's memory, in bytes */
		size_t bytes;   /* of the operand up to the tensor's end */
		cudnnDataType_t type;
	} tensors[DNN_MAX_TENSORS];
	int num_tensors;
	size_t scratch_bytes; /* of DNN_SCRATCH; 0: there is none */
	float scalars[DNN_MAX_SCALARS];
	int num_scalars;
	int64_t next_virtual;
	char signature[DNN_SIGNATURE_SIZE]; /* everything that engines depend on; graphs with equal signatures are equal
					     */
	size_t signature_length;
	int status;
	beton_error error;
} dnn_graph;

/* Fills err from cuDNN's status and its last message, and returns the code: UNSUPPORTED, NO_MEMORY or DEVICE. */
BETON_PRINTF(3, 4) int dnn_fail(beton_error *err, cudnnStatus_t status, const char *format, ...);

cudnnDataType_t dnn_type(dtrain_dtype dtype);

/* name: the op's, a literal. NULL: out of memory. */
dnn_graph *dnn_graph_create(const char *name, dtrain_dtype dtype);
void dnn_graph_destroy(dnn_graph *graph); /* NULL allowed */

/* Tensors are NHWC (weights KRSC), aligned to 16 bytes. operand: index among the pointers for dnn_plan_run,
 * DNN_SCRATCH, or DNN_VIRTUAL. */
dnn_descriptor dnn_tensor(dnn_graph *graph, int operand, cudnnDataType_t type, dnn_dims dims);
/* Any strides. offset: of the tensor in the operand's memory, in bytes, a multiple of 16; 0 for DNN_VIRTUAL. */
dnn_descriptor dnn_strided(dnn_graph *graph, int operand, size_t offset, cudnnDataType_t type, const dnn_view *view);
dnn_descriptor dnn_channels(dnn_graph *graph, int operand, int64_t channels); /* F32, one for each channel */
dnn_descriptor dnn_scalar(dnn_graph *graph, double value);                    /* F32, by value */

void dnn_conv(dnn_graph *graph, const dnn_window *window, dnn_descriptor x, dnn_descriptor w, dnn_descriptor y);
/* adds: adds to the content of d_x. */
void dnn_conv_bwd_data(dnn_graph *graph, const dnn_window *window, dnn_descriptor d_y, dnn_descriptor w,
		       dnn_descriptor d_x, bool adds);
void dnn_conv_bwd_weight(dnn_graph *graph, const dnn_window *window, dnn_descriptor x, dnn_descriptor d_y,
			 dnn_descriptor d_w);
/* b: NULL for functions of one argument. */
void dnn_pointwise(dnn_graph *graph, cudnnPointwiseMode_t mode, dnn_descriptor x, dnn_descriptor b, dnn_descriptor y);

/* y = the index of each of x's elements along the dimension axis (I32). */
void dnn_index(dnn_graph *graph, int axis, dnn_descriptor x, dnn_descriptor y);
/* y = mask ? x : other. */
void dnn_select(dnn_graph *graph, dnn_descriptor x, dnn_descriptor other, dnn_descriptor mask, dnn_descriptor y);
/* c = a b for the last two dimensions of each; in the others, heads of b are shared by equally many of a. */
void dnn_product(dnn_graph *graph, dnn_descriptor a, dnn_descriptor b, dnn_descriptor c);
/* Reduces the dimensions where y has fewer elements. */
void dnn_reduction(dnn_graph *graph, cudnnReduceTensorOp_t reduce_op, dnn_descriptor x, dnn_descriptor y);
/* y: x with its dimensions in the order of y's strides. */
void dnn_reshape(dnn_graph *graph, dnn_descriptor x, dnn_descriptor y);

/* F32 sums of x and of its squares over all but the channels. */
void dnn_channel_sums(dnn_graph *graph, dnn_descriptor x, dnn_descriptor sum, dnn_descriptor squares);

typedef struct dnn_norm {
	dnn_descriptor x, gamma, beta, y;
	dnn_descriptor mean, inverse; /* inverse: 1 / sqrt(biased variance + epsilon) */
	double epsilon;
} dnn_norm;
void dnn_batch_norm(dnn_graph *graph, const dnn_norm *norm);

typedef struct dnn_norm_bwd {
	dnn_descriptor x, d_y, gamma, mean, inverse, d_x, d_gamma, d_beta;
} dnn_norm_bwd;
void dnn_batch_norm_bwd(dnn_graph *graph, const dnn_norm_bwd *norm);

void dnn_max_pool(dnn_graph *graph, const dnn_window *window, dnn_descriptor x, dnn_descriptor y, dnn_descriptor index);
void dnn_max_pool_bwd(dnn_graph *graph, const dnn_window *window, dnn_descriptor d_y, dnn_descriptor index,
		      dnn_descriptor d_x);

/* Ends the description. Errors: the first failure of the functions above, or cuDNN's refusal. */
int dnn_graph_finish(dnn_graph *graph, const dnn_target *target, beton_error *err);

/* ---- the graphs of our ops (dnn_op.c; attention: dnn_attention.c); operands are the op's ---- */

#define DNN_MAX_VARIANTS 4

typedef void dnn_describe(dnn_graph *graph, const dtrain_op_desc *desc);

/* The graphs that can run an op, best first; not finished. That of a CONV2D with a follower also computes the sums of
 * cuda_nhwc_sums. Batch norm's graphs have 1 / sqrt(var + epsilon) instead of
 * var. UNSUPPORTED: there is none. */
int dnn_op_graphs(const dtrain_op_desc *desc, bool deterministic, dnn_graph *graphs[DNN_MAX_VARIANTS], int *count,
		  beton_error *err);

#define DNN_MAX_CANDIDATES 16
#define DNN_MAX_COMPILED 8

/* The plans tried for an op to find the fastest. The heuristics' first proposals are usually the fastest. For the
 * gradients of attention they propose two or three of eight kernels; of a large one, all are tried. */
typedef struct dnn_limits {
	int candidates; /* plans that are timed */
	int compiled;   /* of a graph's configurations: each takes half a second to two seconds of a core */
	bool extended;  /* dnn_configs_find_all's */
} dnn_limits;
dnn_limits dnn_op_limits(const dtrain_op_desc *desc);

/* Whether cuDNN may have an engine that also makes the sums of a CONV2D's channels: not for F32. */
bool dnn_conv_has_sums(const dtrain_op_desc *desc);

dnn_describe dnn_attention_graph;
/* Returns how many there are. */
int dnn_attention_bwd_graphs(const dtrain_op_desc *desc, dnn_describe *out[DNN_MAX_VARIANTS]);
/* Bytes of workspace that grow with queries and keys, not with their product: what engines for attention need. */
size_t dnn_attention_workspace(const dtrain_op_desc *desc);
/* Whether cuDNN may have an engine: not for F32, segments, and causal attention to more keys than queries. */
bool dnn_attention_is_suitable(const dtrain_op_desc *desc);

/* The limit of an op's workspace in bytes, of a device whose limit is `most`. */
size_t dnn_op_workspace(const dtrain_op_desc *desc, size_t most);

/* ---- configurations and plans (dnn_plan.c) ---- */

#define DNN_MAX_CONFIGS 64
#define DNN_MAX_KNOBS 24

/* An engine and its settings, to make a plan again without the heuristics. */
typedef struct dnn_choice {
	int64_t engine; /* cuDNN's global index, of this version of cuDNN */
	int num_knobs;
	int64_t knobs[DNN_MAX_KNOBS][2]; /* cudnnBackendKnobType_t, value */
} dnn_choice;

typedef struct dnn_configs {
	dnn_descriptor list[DNN_MAX_CONFIGS];
	int count;
} dnn_configs;

/* The configurations that cuDNN proposes for a finished graph, best first, without the ones whose notes break the
 * target's promises. If there are none, count is 0, the result is OK, and err (NULL allowed) has cuDNN's text. Some of
 * them cannot be planned. */
int dnn_configs_find(const dnn_graph *graph, const dnn_target *target, cudnnBackendHeurMode_t mode, dnn_configs *out,
		     beton_error *err);
/* The same for each of an op's graphs whose status is OK. Of a graph with DNN_SCRATCH only for the engines that use it.
 * extended: and then the same engines with all other numbers of kernels, CUDNN_KNOB_TYPE_KERNEL_CFG, which the
 * heuristics leave out. On failure some may be there; the caller frees all. */
int dnn_configs_find_all(dnn_graph *const *graphs, int num_graphs, const dnn_target *target,
			 cudnnBackendHeurMode_t mode, bool extended, dnn_configs *out, beton_error *err);
void dnn_configs_free(dnn_configs *configs);
/* Makes a configuration from a choice. UNSUPPORTED also if its notes break the target's promises. */
int dnn_config_from_choice(const dnn_graph *graph, const dnn_target *target, const dnn_choice *choice,
			   dnn_descriptor *out, beton_error *err);
int dnn_config_choice(dnn_descriptor config, dnn_choice *out, beton_error *err);

/* Whether cuDNN compiles the engine for a plan. */
bool dnn_config_is_compiled(dnn_descriptor config);

typedef struct dnn_plan {
	dnn_graph *graph;
	dnn_descriptor config, plan;
	size_t workspace_bytes;
	bool stored;  /* from the store */
	bool refused; /* the stored plan was refused, and is replaced */
} dnn_plan;

/* The addresses of an op's last run of a plan, which rarely change. Zero-initialise. */
typedef struct dnn_pack {
	dnn_descriptor descriptor;
	void *addresses[DNN_MAX_TENSORS];
	void *workspace;
} dnn_pack;

void dnn_pack_clear(dnn_pack *pack);

/* Takes ownership of the configuration, on failure too. The graph must outlive the plan. A compiled plan is written to
 * the target's store. UNSUPPORTED: the plan does not work, or needs more workspace than allowed. NOT_FOUND: with
 * DNN_STORED, the stored plan is missing or does not load. */
int dnn_plan_create(dnn_graph *graph, const dnn_target *target, dnn_descriptor config, dnn_plan **out,
		    beton_error *err);
void dnn_plan_destroy(dnn_plan *plan); /* NULL allowed; not the graph */
/* A configuration of one of an op's graphs. */
typedef struct dnn_job {
	int graph; /* index among dnn_op_graphs */
	dnn_choice choice;
} dnn_job;

/* Compiles the plans that the target's store lacks, in order, with several threads (dnn_compile.c); begins none after
 * `until` (bt_now_ns()). target: with properties and without a handle, which only one thread may use. */
void dnn_compile(const dtrain_op_desc *desc, const dnn_target *target, const dnn_job *jobs, int count, uint64_t until);
/* Whether the target's store has the plan of a choice. */
bool dnn_plan_is_stored(const dnn_graph *graph, const dnn_target *target, const dnn_choice *choice);

/* The description of a GPU (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) from a handle, or from cuDNN's JSON. */
int dnn_properties_of_handle(cudnnHandle_t handle, dnn_descriptor *out, beton_error *err);
int dnn_properties_from_text(const char *json, size_t length, dnn_descriptor *out, beton_error *err);

/* pack: used with this plan only. addresses: by operand. workspace: aligned to 16 bytes. */
int dnn_plan_run(const dnn_plan *plan, dnn_pack *pack, cudnnHandle_t handle, cudaStream_t stream,
		 void *const *addresses, void *workspace, beton_error *err);

#endif
