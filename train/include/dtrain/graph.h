/* SPDX-License-Identifier: Apache-2.0
 *
 * Static graphs. A model is built once with static shapes as a list of nodes in execution order; backward appends its
 * nodes to the same list; compile plans memory by liveness in one arena, creates the device's ops, and yields a program
 * whose addresses never change (so that a device may capture it whole).
 *
 * The builders below return tensor handles and remember the first error; a handle < 0 may be passed on, and compile
 * reports that error. A graph belongs to one thread.
 */
#ifndef DTRAIN_GRAPH_H
#define DTRAIN_GRAPH_H

#include <dtrain/params.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtrain_graph dtrain_graph;
typedef int32_t dtrain_tensor; /* index in its graph; negative after an error */

/* training: batch norm uses batch statistics and backward may be added. params must outlive the graph. */
BETON_API int dtrain_graph_create(dtrain_params *params, bool training, dtrain_graph **out, beton_error *err);
BETON_API void dtrain_graph_destroy(dtrain_graph **graph);
BETON_API bool dtrain_graph_training(const dtrain_graph *graph);
/* A tensor's shape and type; NULL and F32 if it is invalid. */
BETON_API const dtrain_shape *dtrain_graph_shape(const dtrain_graph *graph, dtrain_tensor tensor);
BETON_API dtrain_dtype dtrain_graph_dtype(const dtrain_graph *graph, dtrain_tensor tensor);

/* Sets the type of activations and their gradients; call it before anything else is added to the graph. Default: the
 * parameters' type. With parameters in F32 also F16 or BF16, if the device supports it (dtrain_device_caps.dtypes).
 * Parameters, their gradients, statistics and the loss keep the parameters' type. Layers
 * read the parameters' compute copies, if there are any in this type (<dtrain/params.h>), and round weights themselves
 * otherwise. */
BETON_API void dtrain_graph_set_dtype(dtrain_graph *graph, dtrain_dtype dtype);

/* Multiplies the gradients of losses added after this call by a scale that changes from step to step; see
 * <dtrain/optim.h>. scaler: the result of dtrain_scaler_memory, which must outlive the program; NULL: no scale. */
BETON_API void dtrain_graph_set_scaler(dtrain_graph *graph, void *scaler);

/* Starts the next block of the model: see dtrain_params_next_block. */
BETON_API void dtrain_graph_next_block(dtrain_graph *graph);

/* ---- layers; name is the torchvision prefix ("layer1.0.conv1"), parameters are declared as name.weight and so on ----
 */
/* dtype: that of the graph or its parameters, I64 (labels, indices), I32 (indices, segments) or U8 (pixels for
 * dtrain_normalize). */
BETON_API dtrain_tensor dtrain_graph_input(dtrain_graph *graph, const char *name, dtrain_dtype dtype,
					   const dtrain_shape *shape);
/* A tensor in device memory of the caller, row-major and with the device's alignment, which outlives the program.
 * Several programs and all instances may share it. */
BETON_API dtrain_tensor dtrain_graph_memory(dtrain_graph *graph, dtrain_dtype dtype, const dtrain_shape *shape,
					    void *memory);
/* Pixels u8 [n, h, w, c], c at most 4, to (x - mean[c]) / std[c] as [n, c, h, w]. mean, std: c values on the 0..255
 * scale, std > 0. Used if the loader cannot normalize for the device (dtrain_device_caps.host_memory is false). */
BETON_API dtrain_tensor dtrain_normalize(dtrain_graph *graph, dtrain_tensor x, const float *mean, const float *std);
BETON_API dtrain_tensor dtrain_conv2d(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_channels,
				      int kernel, int stride, int padding);
/* dtrain_conv2d with a weight that is not trained: name.weight is a buffer, saved with the model, without gradient or
 * optimizer state. Its initial values are as in PyTorch's nn.Conv2d; other values can be copied to it
 * (dtrain_params_buffer_at). The input gets a gradient only if it needs one. */
BETON_API dtrain_tensor dtrain_conv2d_fixed(dtrain_graph *graph, const char *name, dtrain_tensor x,
					    int64_t out_channels, int kernel, int stride, int padding);
/* x [n, c, h, w] + name.bias [c], which starts at zero. */
BETON_API dtrain_tensor dtrain_channel_bias(dtrain_graph *graph, const char *name, dtrain_tensor x);
/* A parameter by its full name, for several layers: its gradient is the sum of theirs. */
BETON_API dtrain_tensor dtrain_graph_parameter(dtrain_graph *graph, const char *name, const dtrain_shape *shape,
					       dtrain_init init, int64_t fan_in);
/* The same if this rank has a part of the parameter: the tensor has the part's shape. shape, fan_in: the whole
 * parameter's. placement: see dtrain_params_declare_placed. */
BETON_API dtrain_tensor dtrain_graph_placed_parameter(dtrain_graph *graph, const char *name, const dtrain_shape *shape,
						      const dtrain_placement *placement, dtrain_init init,
						      int64_t fan_in);
/* x [n, ..., in] to [n, ..., out_features]. */
BETON_API dtrain_tensor dtrain_linear(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_features);
/* The same with an existing weight w [out, in] and bias b [out] (negative: none), optionally followed by relu. */
BETON_API dtrain_tensor dtrain_linear_of(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w, dtrain_tensor b,
					 bool relu);

typedef struct dtrain_linear_options {
	size_t struct_size;
	dtrain_activation activation; /* default: none */
	bool weight_in_out;           /* w is [in, out], as Hugging Face's Conv1D (GPT-2); default false */
} dtrain_linear_options;

BETON_API void dtrain_linear_options_init_sized(dtrain_linear_options *options, size_t size);
static inline void dtrain_linear_options_init(dtrain_linear_options *options)
{
	dtrain_linear_options_init_sized(options, sizeof(*options));
}
/* dtrain_linear_of with options. In training the value before the activation is kept for the gradient. */
BETON_API dtrain_tensor dtrain_linear_with(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w, dtrain_tensor b,
					   const dtrain_linear_options *options);
/* relu(dtrain_linear(...)) as one op. */
BETON_API dtrain_tensor dtrain_linear_relu(dtrain_graph *graph, const char *name, dtrain_tensor x,
					   int64_t out_features);
BETON_API dtrain_tensor dtrain_linear_without_bias(dtrain_graph *graph, const char *name, dtrain_tensor x,
						   int64_t out_features);
/* PyTorch's nn.BatchNorm2d with its defaults, optionally followed by relu; in training nn.SyncBatchNorm, if the
 * parameters have a sync with that option (<dtrain/sync.h>). */
BETON_API dtrain_tensor dtrain_batch_norm(dtrain_graph *graph, const char *name, dtrain_tensor x, bool relu);

typedef struct dtrain_batch_norm_options {
	size_t struct_size;
	bool relu;         /* default false */
	bool fixed_weight; /* name.weight is a buffer of ones that is not trained; default false */
	double epsilon;    /* > 0, finite; default 1e-5 */
	double momentum;   /* 0 .. 1, the new value's share in the running statistics; default 0.1 */
} dtrain_batch_norm_options;

BETON_API void dtrain_batch_norm_options_init_sized(dtrain_batch_norm_options *options, size_t size);
static inline void dtrain_batch_norm_options_init(dtrain_batch_norm_options *options)
{
	dtrain_batch_norm_options_init_sized(options, sizeof(*options));
}
/* dtrain_batch_norm with options. NULL: the defaults. */
BETON_API dtrain_tensor dtrain_batch_norm_with(dtrain_graph *graph, const char *name, dtrain_tensor x,
					       const dtrain_batch_norm_options *options);
/* relu(batch norm of x + residual): one op if the device has it, else two. */
BETON_API dtrain_tensor dtrain_batch_norm_add(dtrain_graph *graph, const char *name, dtrain_tensor x,
					      dtrain_tensor residual);
/* PyTorch's nn.LayerNorm over the last dimension of [n, ..., c]. PyTorch's default epsilon is 1e-5. */
BETON_API dtrain_tensor dtrain_layer_norm(dtrain_graph *graph, const char *name, dtrain_tensor x, double epsilon);
/* The same without name.bias (nn.LayerNorm's bias=False). */
BETON_API dtrain_tensor dtrain_layer_norm_without_bias(dtrain_graph *graph, const char *name, dtrain_tensor x,
						       double epsilon);
/* x / sqrt(mean of x^2 + epsilon) * name.weight over the last dimension, like PyTorch's nn.RMSNorm. */
BETON_API dtrain_tensor dtrain_rms_norm(dtrain_graph *graph, const char *name, dtrain_tensor x, double epsilon);
BETON_API dtrain_tensor dtrain_relu(dtrain_graph *graph, dtrain_tensor x);
/* x * Phi(x), where Phi is the standard normal distribution function (with erf), like PyTorch's nn.GELU. */
BETON_API dtrain_tensor dtrain_gelu(dtrain_graph *graph, dtrain_tensor x);
/* The approximation with tanh, like PyTorch's nn.GELU(approximate="tanh") and Hugging Face's gelu_new. */
BETON_API dtrain_tensor dtrain_gelu_tanh(dtrain_graph *graph, dtrain_tensor x);
/* x / (1 + exp(-x)), like PyTorch's nn.SiLU; silu(a) * b as one op. */
BETON_API dtrain_tensor dtrain_silu(dtrain_graph *graph, dtrain_tensor x);
BETON_API dtrain_tensor dtrain_swiglu(dtrain_graph *graph, dtrain_tensor a, dtrain_tensor b);
BETON_API dtrain_tensor dtrain_add(dtrain_graph *graph, dtrain_tensor a, dtrain_tensor b, bool relu);
/* x * factor. */
BETON_API dtrain_tensor dtrain_scale(dtrain_graph *graph, dtrain_tensor x, double factor);
BETON_API dtrain_tensor dtrain_max_pool(dtrain_graph *graph, dtrain_tensor x, int kernel, int stride, int padding);
/* The largest element of each channel, [n, c, h, w] to [n, c]; pictures of at most 256 pixels. */
BETON_API dtrain_tensor dtrain_global_max_pool(dtrain_graph *graph, dtrain_tensor x);
BETON_API dtrain_tensor dtrain_global_avg_pool(dtrain_graph *graph, dtrain_tensor x);
BETON_API dtrain_tensor dtrain_flatten(dtrain_graph *graph, dtrain_tensor x);
/* ---- transformers ----
 */
/* The rows of w [v, c] that index (i64 or i32, [n, ...]) names: [n, ..., c]. w may also be the weight of another layer:
 * its gradient is the sum of both. An index outside of 0 .. v - 1 is an error of the run. */
BETON_API dtrain_tensor dtrain_embedding(dtrain_graph *graph, dtrain_tensor w, dtrain_tensor index);

typedef struct dtrain_attention_options {
	size_t struct_size;
	int32_t heads;    /* >= 1; no default */
	int32_t kv_heads; /* divides heads; default 0: heads */
	bool causal;      /* query i of t attends to keys 0 .. i + s - t of s; default false */
	double scale;     /* of the products, >= 0; default 0: 1 / sqrt(head size) */
	/* Share of the probabilities that training sets to 0, drawn as by dtrain_dropout of [b, heads, t, s]; default
	 * 0. random and layer: as for dtrain_dropout. */
	double dropout;
	dtrain_tensor random;
	int layer;
	/* For dropout: these are the heads first_head, first_head + 1 ... of all_heads; other ranks have the rest.
	 * Default 0: all_heads is heads. */
	int32_t all_heads, first_head;
} dtrain_attention_options;

/* How the ranks along the mesh's axis "context" divide the rows of sequences; ranks 0: they do not. This rank then has
 * two chunks of each sequence: inputs of tokens, labels and positions have these rows alone, and positions are given.
 * dtrain_attention and dtrain_attention_packed gather the keys and values of all ranks, and again for backward; their
 * segments are of whole sequences. */
BETON_API dtrain_chunk_attrs dtrain_graph_chunks(const dtrain_graph *graph);
/* The position in the whole sequence of row i, 0 <= i < rows, of a rank that has so many rows in its two chunks; i if
 * the sequence is not divided. Of 2 rows: the numbers of the chunks. */
BETON_API int64_t dtrain_chunk_position(dtrain_chunk_attrs chunks, int64_t rows, int64_t i);

BETON_API void dtrain_attention_options_init_sized(dtrain_attention_options *options, size_t size);
static inline void dtrain_attention_options_init(dtrain_attention_options *options)
{
	dtrain_attention_options_init_sized(options, sizeof(*options));
}
/* Multi-head attention of q [b, t, heads * d] to k, v [b, s, kv_heads * d]: [b, t, heads * d]. Head h reads head h *
 * kv_heads / heads of k and v. segment (negative: none): i32 [b, t], with s = t; a position attends only to positions
 * with its own segment. */
BETON_API dtrain_tensor dtrain_attention(dtrain_graph *graph, dtrain_tensor q, dtrain_tensor k, dtrain_tensor v,
					 dtrain_tensor segment, const dtrain_attention_options *options);
/* The same with q, k and v next to each other in rows: qkv [b, t, (heads + 2 * kv_heads) * d]. */
BETON_API dtrain_tensor dtrain_attention_packed(dtrain_graph *graph, dtrain_tensor qkv, dtrain_tensor segment,
						const dtrain_attention_options *options);
/* Causal attention to a text that grows from run to run: dtrain_attention of q [b, t, heads * d] to keys and values
 * [b, s, kv_heads * d]; this run adds k, v [b, t, kv_heads * d] to them. keys and values: of dtrain_graph_memory, in
 * the graph's type. past: i64 [1], the rows of keys and values that earlier runs have added, 0 .. s - t; anything else
 * is an error of the run. It has no gradient. */
BETON_API dtrain_tensor dtrain_attention_cached(dtrain_graph *graph, dtrain_tensor q, dtrain_tensor k, dtrain_tensor v,
						dtrain_tensor keys, dtrain_tensor values, dtrain_tensor past,
						const dtrain_attention_options *options);
/* Rotary position embedding of x [b, t, heads * head_dim]: pair i of a head is rotated by position * theta^(-2 i /
 * head_dim). position (negative: 0 .. t - 1 in each row): i64 [b, t] or [t]. interleaved: a pair is two neighbours
 * instead of elements i and i + head_dim / 2, which are Hugging Face's. */
BETON_API dtrain_tensor dtrain_rotary(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor position, int head_dim,
				      double theta, bool interleaved);
/* x with a share p (0 <= p < 1) of its elements set to zero, the others divided by 1 - p; with per_row of its rows x[i]
 * (stochastic depth). x itself in graphs for evaluation and with p = 0. random: i64 [DTRAIN_RANDOMS], see enum
 * dtrain_random_element: an input whose step the caller changes. layer: another number for each call in a model. What
 * is kept depends on p, layer, random's numbers and the position in the batch of all ranks. */
BETON_API dtrain_tensor dtrain_dropout(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor random, double p, int layer,
				       bool per_row);
/* alpha * a b for matrices a [..., m, k], b [..., k, n] with the same leading dimensions; a [..., k, m] with
 * transpose_a, b [..., n, k] with transpose_b. */
BETON_API dtrain_tensor dtrain_matmul(dtrain_graph *graph, dtrain_tensor a, bool transpose_a, dtrain_tensor b,
				      bool transpose_b, double alpha);
/* ---- other shapes and parts; what is a piece of x's memory is not copied ----
 */
/* The same elements in row-major order. */
BETON_API dtrain_tensor dtrain_reshape(dtrain_graph *graph, dtrain_tensor x, const dtrain_shape *shape);
/* Elements begin .. begin + count - 1 of a dimension. Not copied if the dimension is the outermost one that is not 1
 * and the part's address has the device's alignment. */
BETON_API dtrain_tensor dtrain_slice(dtrain_graph *graph, dtrain_tensor x, int dim, int64_t begin, int64_t count);
/* Splits a dimension into `parts` equal parts (at most DTRAIN_OP_MAX_OPERANDS), stored in out. */
BETON_API void dtrain_split(dtrain_graph *graph, dtrain_tensor x, int dim, int parts, dtrain_tensor *out);
/* x [n, t, c] with the row w [c], a parameter or a view of one, before each t: [n, t + 1, c]. */
BETON_API dtrain_tensor dtrain_prepend(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w);
/* Dimension i of the result is dimension order[i] of x. */
BETON_API dtrain_tensor dtrain_permute(dtrain_graph *graph, dtrain_tensor x, const int *order);

/* Collectives over the ranks along an axis of the mesh, in graphs of parameters whose sync has a mesh. Without such an
 * axis both return x. reduce_from: the sum of x over these ranks. All of them compute the same from it, so its gradient
 * passes unchanged. copy_to: x itself. From here on the ranks compute different parts, so its gradient is summed over
 * them. A linear layer whose weight is divided along its outputs reads copy_to; a linear layer whose weight is divided
 * along its inputs is followed by reduce_from (Shoeybi et al., "Megatron-LM", 2019, section 3). */
BETON_API dtrain_tensor dtrain_reduce_from_axis(dtrain_graph *graph, dtrain_tensor x, dtrain_axis axis);
BETON_API dtrain_tensor dtrain_copy_to_axis(dtrain_graph *graph, dtrain_tensor x, dtrain_axis axis);

typedef struct dtrain_loss_options {
	size_t struct_size;
	double label_smoothing; /* 0 .. 1; default 0 */
	int64_t ignored;        /* rows with this label have loss 0 and do not count; negative, default -100; 0: none */
	int64_t chunk;    /* of dtrain_linear_cross_entropy: rows whose logits exist at a time; default 0: automatic */
	double threshold; /* of dtrain_binary_cross_entropy; 0 .. 1; default 0: none */
} dtrain_loss_options;

BETON_API void dtrain_loss_options_init_sized(dtrain_loss_options *options, size_t size);
static inline void dtrain_loss_options_init(dtrain_loss_options *options)
{
	dtrain_loss_options_init_sized(options, sizeof(*options));
}
/* Softmax cross entropy of the logits x w^T + b without the memory for all of them: x [n, ..., c], w [v, c], b [v]
 * (negative: no bias), label i64 [n, ...]; the result has one dimension, a loss for each row. */
BETON_API dtrain_tensor dtrain_linear_cross_entropy(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w,
						    dtrain_tensor b, dtrain_tensor label,
						    const dtrain_loss_options *options);
BETON_API dtrain_tensor dtrain_softmax_cross_entropy_with(dtrain_graph *graph, dtrain_tensor logits,
							  dtrain_tensor label, const dtrain_loss_options *options);
/* The mean of losses over the rows whose label is not ignored; 0 if there are none. losses: the result of a cross
 * entropy.
 */
BETON_API dtrain_tensor dtrain_mean_loss(dtrain_graph *graph, dtrain_tensor losses);
/* Loss of each sample [n], ignoring none; mean of a vector []. */
BETON_API dtrain_tensor dtrain_softmax_cross_entropy(dtrain_graph *graph, dtrain_tensor logits, dtrain_tensor label,
						     double label_smoothing);
/* The same for samples mixed from two, as by MixUp and CutMix: lambda * loss(label) + (1 - lambda) * loss(mixed).
 * Equals PyTorch's cross entropy of the target lambda * onehot(label) + (1 - lambda) * onehot(mixed). lambda [n], of
 * the parameters' type, is the share of label, 0 .. 1; the range is not checked. */
BETON_API dtrain_tensor dtrain_softmax_cross_entropy_mixed(dtrain_graph *graph, dtrain_tensor logits,
							   dtrain_tensor label, dtrain_tensor mixed,
							   dtrain_tensor lambda, double label_smoothing);
/* Targets [n, classes] of the parameters' type: 1 at the label, i64 [n], and 0 elsewhere. mixed, lambda: as above, the
 * target then is lambda at label and 1 - lambda at mixed; both negative: none. */
BETON_API dtrain_tensor dtrain_one_hot(dtrain_graph *graph, dtrain_tensor label, dtrain_tensor mixed,
				       dtrain_tensor lambda, int64_t classes);
/* Losses [n] of targets [n, c], which have the parameters' type and are not checked. Of the options the label smoothing
 * s counts, which makes a target t (1 - s) t + s / c, as PyTorch's cross entropy and timm's targets do.
 *   softmax_cross_entropy_soft  PyTorch's cross_entropy of class probabilities
 *   binary_cross_entropy        the mean over c of PyTorch's binary_cross_entropy_with_logits; with options->threshold
 *                               a target counts as 1 above it and as 0 elsewhere, as in timm's BinaryCrossEntropy
 *   squared_error               the mean over c of (x - target)^2; it has no label hits */
BETON_API dtrain_tensor dtrain_softmax_cross_entropy_soft(dtrain_graph *graph, dtrain_tensor logits,
							  dtrain_tensor target, const dtrain_loss_options *options);
BETON_API dtrain_tensor dtrain_binary_cross_entropy(dtrain_graph *graph, dtrain_tensor logits, dtrain_tensor target,
						    const dtrain_loss_options *options);
BETON_API dtrain_tensor dtrain_squared_error(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor target);
BETON_API dtrain_tensor dtrain_mean(dtrain_graph *graph, dtrain_tensor x);

/* Before backward: phases of several micro-batches may interleave (dtrain_instance_run), forward of the next one before
 * backward of this one. A gradient that a forward op computes, as dtrain_linear_cross_entropy does, is then kept until
 * backward, at the cost of its memory and a copy. */
BETON_API void dtrain_graph_interleave(dtrain_graph *graph);

/* Before compilation. All instances of the program share the memory of tensors that live in one phase alone, and the
 * scratch memory of ops, so their phases run one after the other on one stream. It saves memory if there are several
 * instances; for one, tensors of different phases then lie side by side. */
BETON_API void dtrain_graph_share_scratch(dtrain_graph *graph);

/* Before compilation. Instances have no memory of inputs: each input needs dtrain_instance_bind before a run (STATE).
 */
BETON_API void dtrain_graph_bind_inputs(dtrain_graph *graph);

/* Appends the backward nodes for a loss of one element: a mean (of a loss or of any other tensor), sums and multiples
 * of means, or another scalar. A loss is read by means, additions and dtrain_scale alone: anything else has no gradient
 * with respect to it (UNSUPPORTED). Parameter gradients are written to the flat gradient array.
 * require_grad requests the gradient of a tensor (for gradient checks), readable like any kept tensor. */
BETON_API void dtrain_graph_require_grad(dtrain_graph *graph, dtrain_tensor tensor);
BETON_API dtrain_tensor dtrain_graph_grad(const dtrain_graph *graph, dtrain_tensor tensor);
BETON_API void dtrain_graph_backward(dtrain_graph *graph, dtrain_tensor loss);
/* The same from `count` tensors of any shape, each with a gradient tensor of its shape and type, which is an input or
 * computed by the graph. */
BETON_API void dtrain_graph_backward_from(dtrain_graph *graph, int count, const dtrain_tensor *tensors,
					  const dtrain_tensor *gradients);

/* Activations that backward computes again, instead of keeping them from forward. Each choice gives the same
 * bits: statistics of batch norm change once, and dropout draws the same. With each, also NONE, rows that ranks gather
 * before a layer (sequence_parallel of <dtrain/sync.h>) or for attention (dtrain_graph_chunks) are gathered again, so
 * that a rank keeps its part alone. */
typedef enum dtrain_recompute {
	DTRAIN_RECOMPUTE_NONE,
	/* Ops without products that move few bytes (norms, activations, gates, dropout), where backward needs their
	 * inputs in any case. */
	DTRAIN_RECOMPUTE_SELECTIVE,
	/* Everything between the inputs of blocks (dtrain_graph_next_block). */
	DTRAIN_RECOMPUTE_FULL,
} dtrain_recompute;

/* After dtrain_graph_backward, once: repeats forward ops before the backward ops that need their results. The
 * last block, whose backward begins when its forward ends, is never repeated. blocks: of FULL, the first so many
 * blocks, and all ops before the first one; INT64_MAX: all. Gradients are completed in the same order. */
BETON_API void dtrain_graph_recompute(dtrain_graph *graph, dtrain_recompute what, int64_t blocks);

/* After dtrain_graph_backward and dtrain_graph_recompute: ops on which only gradients of parameters depend come after
 * all others, as the phase DTRAIN_WEIGHTS of dtrain_instance_run. The bits are the same; activations that these ops
 * read are kept longer. Error (when the graph is compiled): STATE if the graph has no backward. */
BETON_API void dtrain_graph_defer_weights(dtrain_graph *graph);

/* After dtrain_graph_backward and dtrain_graph_recompute, once: activations that backward reads are kept in pinned
 * host memory in between, but for small ones and the last ones. Copies go on beside ops. The bits are the same. Error
 * (when the graph is compiled): UNSUPPORTED on devices in host memory. */
BETON_API void dtrain_graph_offload(dtrain_graph *graph);

/* Keeps a tensor's memory, plain row-major, until the end of the program, so that it can be read after a run. */
BETON_API void dtrain_graph_keep(dtrain_graph *graph, dtrain_tensor tensor);

/* For the losses of one of the two: 1 for each row whose label has the highest logit (of equal ones the first), else 0.
 * With mixed labels it is the first label that counts, with a target the class with the largest one. */
BETON_API dtrain_tensor dtrain_label_hits(dtrain_graph *graph, dtrain_tensor losses);

/* Writes a scalar (the mean loss) as step metric `slot`, 0 .. DTRAIN_STEP_METRICS - 1, of the parameters
 * (dtrain_params_step_metrics). With <dtrain/sync.h> the step metric is the sum over the ranks after a run. The scalar
 * has the parameters' type and is not a view. */
BETON_API void dtrain_graph_step_metric(dtrain_graph *graph, dtrain_tensor scalar, int slot);

typedef struct dtrain_program dtrain_program;

/* Allocates params if necessary, plans and creates everything. The program takes ownership of the graph, whose handles
 * stay valid for dtrain_program_data; on failure the caller keeps it. */
BETON_API int dtrain_graph_compile(dtrain_graph **graph, dtrain_program **out, beton_error *err);
BETON_API void dtrain_program_destroy(dtrain_program **program);

/* Creates the ops again, and plans their memory: a device opened with tune_later has found faster algorithms. Runs must
 * be complete. Later runs use the new ops; captured ones are invalid. Contents and addresses of inputs and kept tensors
 * change. The program has no instances besides its own. Errors: UNSUPPORTED (it exchanges memory with ranks, instances
 * or the host), NO_MEMORY and DEVICE; the program is unchanged, unless its memory could not be allocated again: then
 * it only can be destroyed. */
BETON_API int dtrain_program_recompile(dtrain_program *program, beton_error *err);

/* Device memory of an input or kept tensor, plain and of the type dtrain_program_dtype; the address never changes but
 * by dtrain_program_recompile. NULL for any other tensor. */
BETON_API void *dtrain_program_data(const dtrain_program *program, dtrain_tensor tensor);
BETON_API const dtrain_shape *dtrain_program_shape(const dtrain_program *program, dtrain_tensor tensor);
/* tensor: a tensor of the program. */
BETON_API dtrain_dtype dtrain_program_dtype(const dtrain_program *program, dtrain_tensor tensor);

/* Puts the whole program on the stream, for micro-batch `micro_batch` (0 .. micro_batches - 1) of a step. With
 * <dtrain/sync.h> the gradients of a step's micro-batches are added up, and the last one reduces them; without it each
 * run overwrites them. A step of one micro-batch: 0, 1. Errors: INVALID_ARGUMENT (no such micro-batch), DEVICE, and
 * the errors of calls in the program's schedule. */
BETON_API int dtrain_program_run(dtrain_program *program, dtrain_stream *stream, int32_t micro_batch,
				 int32_t micro_batches, beton_error *err);
/* Puts a run's collectives alone on the stream, without its ops. If an op of the last run failed, only the collectives
 * after it are put there. A rank that cannot compute thus does not keep the others waiting; all ranks must ignore the
 * results. Errors: STATE (the program has a backward, or a collective of the last run failed), and errors of
 * collectives. */
BETON_API int dtrain_program_run_collectives(dtrain_program *program, dtrain_stream *stream, beton_error *err);

/* The memory that a program runs in: activations, inputs, and the state of its calls. A program has one instance, used
 * by the functions above. More instances allow several micro-batches at the same time; parameters, gradients and
 * buffers are shared. An instance belongs to one thread at a time, and so does the program. */
typedef struct dtrain_instance dtrain_instance;

/* The phases of a run, in their order. A program without backward has only the first. */
typedef enum dtrain_phase {
	DTRAIN_FORWARD = 1,
	DTRAIN_BACKWARD = 2, /* the gradients of activations; also of weights unless they are deferred */
	DTRAIN_WEIGHTS = 4,  /* the gradients of weights after dtrain_graph_defer_weights; nothing otherwise */
	DTRAIN_ALL_PHASES = 7
} dtrain_phase;

/* program must outlive the instance. Errors: NO_MEMORY, DEVICE. */
BETON_API int dtrain_instance_create(const dtrain_program *program, dtrain_instance **out, beton_error *err);
BETON_API void dtrain_instance_destroy(dtrain_instance **instance); /* NULL allowed */
/* Like dtrain_program_data and dtrain_program_run. */
BETON_API void *dtrain_instance_data(const dtrain_instance *instance, dtrain_tensor tensor);
/* phases: one, or several that follow each other. An instance runs the phases of a micro-batch in their order; other
 * instances may run in between. With <dtrain/sync.h> each phase runs for the micro-batches of a step in their order, on
 * all ranks alike. Errors: as dtrain_program_run; STATE (not the instance's next phase, or another micro-batch; some
 * phases of a graph whose forward computes gradients, without dtrain_graph_interleave). After an error the instance
 * begins with forward. */
BETON_API int dtrain_instance_run(dtrain_instance *instance, dtrain_stream *stream, unsigned phases,
				  int32_t micro_batch, int32_t micro_batches, beton_error *err);
/* Gives up a micro-batch whose last phase has not run, and with it the step. NULL, and an instance that has run all
 * phases, are allowed. */
BETON_API void dtrain_instance_abandon(dtrain_instance *instance);
/* Later runs read the input from other device memory, which is owned by the caller and has the device's alignment;
 * NULL: from the instance's own again. A captured run keeps the memory that it was captured with. Errors:
 * INVALID_ARGUMENT. */
BETON_API int dtrain_instance_bind(dtrain_instance *instance, dtrain_tensor input, void *memory, beton_error *err);

/* arena_bytes: shared by the activations; shared_bytes: the part of it, and workspace_bytes too, that a second instance
 * does not need (dtrain_graph_share_scratch); unshared_bytes: as arena_bytes, without sharing; workspace_bytes: scratch
 * memory;
 * flops: one run's products (2 per multiply-add), without the ones repeated by dtrain_graph_recompute; repeated_flops:
 * of these; nodes: all of them; repeated: the repeated ones; lease_bytes: the part of arena_bytes that is not for
 * activations and inputs but for units of parameters that are gathered, and gradients on their way to a shard, where
 * most is alive; host_bytes: activations in pinned host memory. */
typedef struct dtrain_program_info {
	size_t struct_size; /* set by the caller before the call */
	size_t arena_bytes;
	size_t unshared_bytes;
	size_t workspace_bytes;
	int32_t nodes;
	int32_t repeated;
	double flops;
	double repeated_flops;
	size_t transient_bytes;
	size_t host_bytes;
	size_t shared_bytes;
} dtrain_program_info;

/* The facts of the program that the graph would become, without its memory; parameters are allocated. The graph is
 * used up, also on failure. Errors: as for dtrain_graph_compile. */
BETON_API int dtrain_graph_measure(dtrain_graph **graph, dtrain_program_info *out, beton_error *err);
BETON_API void dtrain_program_get_info(const dtrain_program *program, dtrain_program_info *out);

/* A text for people, freed by the caller: the arena's bytes; the step with most bytes alive, and the tensors alive
 * there, largest first, with the steps that write and last read each; then each step with its bytes alive. Errors:
 * NO_MEMORY. */
BETON_API int dtrain_program_plan(const dtrain_program *program, char **out, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
