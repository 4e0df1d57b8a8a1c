/* SPDX-License-Identifier: Apache-2.0
 *
 * The device table: all functions that the graph needs of a device, which holds tensors and runs kernels.
 *
 * A device is one dtrain_device_api. The core uses devices through it alone, so that `ref`, `cpu` and a CUDA module
 * loaded at run time are equals. Work is asynchronous: an op or copy runs after everything that was put on its stream
 * before it, and only events order two streams or inform the host. A device may be synchronous (ref, cpu): it works
 * inside the call, and its events are complete when recorded. Callers must not rely on that.
 *
 * Threads: streams, events and ops belong to one thread at a time; event_synchronize may be called from any thread.
 *
 * NULL, in all headers of <dtrain/...>, where a function says nothing else: err may be NULL. Functions that destroy,
 * close or release take the address of a handle and set the handle to NULL; the handle may be NULL, and so may the
 * address. A function that returns a status refuses a NULL object, name, path or result with INVALID_ARGUMENT. A
 * function that adds to a graph returns -1, and the graph keeps the error. Others do nothing, and return 0, false or
 * NULL.
 *
 * Structs that begin with struct_size, the size in the caller's header, may come from another release, here and in the
 * other headers of <dtrain/...>. Input structs: members that a smaller struct lacks have their defaults. Members of a
 * larger struct that this library does not know must be zero. Otherwise, and for a size below that of struct_size
 * itself or above 4096, the call fails with INVALID_ARGUMENT. NAME_init_sized is for other languages than C and C++,
 * see <beton/beton.h>. Output structs: the library fills the members that the caller's struct has, and sets unknown
 * ones to zero.
 */
#ifndef DTRAIN_DEVICE_H
#define DTRAIN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the tables of devices. */
#define DTRAIN_DEVICE_API_VERSION 27

/* Types of elements. */
typedef enum dtrain_dtype {
	DTRAIN_F32 = 0,
	DTRAIN_F64 = 1, /* on ref only, for checking gradients */
	DTRAIN_F16 = 2,
	DTRAIN_BF16 = 3,
	DTRAIN_I64 = 4,
	DTRAIN_U8 = 5,
	DTRAIN_I32 = 6, /* operands of ops only: no parameter has it, and no group moves it */
} dtrain_dtype;

BETON_API size_t dtrain_dtype_size(dtrain_dtype dtype);      /* bytes per element */
BETON_API const char *dtrain_dtype_name(dtrain_dtype dtype); /* "f32" ... */

/* Dimensions of a tensor. */
#define DTRAIN_MAX_DIMS 6

/* Logical shape, outermost dimension first; pictures are N, C, H, W in any layout. ndim 0 is a scalar. */
typedef struct dtrain_shape {
	int32_t ndim;
	int64_t dim[DTRAIN_MAX_DIMS];
} dtrain_shape;

/* An ndim outside 0 .. DTRAIN_MAX_DIMS gives a shape that all functions refuse; dims is not read then. */
BETON_API dtrain_shape dtrain_shape_of(int ndim, const int64_t *dims);
/* Number of elements. 0 if there are none, or if ndim, a dimension or their product is out of range. */
BETON_API int64_t dtrain_shape_count(const dtrain_shape *shape);

/* Description of one operand. layout NULL: plain row-major. Otherwise a description of the device's own, which belongs
 * to the op that produces the tensor and lives as long as that op; only tensors between two ops of a graph may have
 * one, and the segments of a CAST. bytes: size of the memory with padding. */
typedef struct dtrain_operand {
	dtrain_dtype dtype;
	dtrain_shape shape;
	const void *layout;
	size_t bytes;
} dtrain_operand;

/* Operands are listed as inputs -> outputs in <dtrain/ops.def>, which has one line for each kind of op.
 *
 * Mixed precision: x, y, their gradients, logits and residuals have one type. If it is F16 or BF16, all other
 * floating-point operands (w, b, gamma, beta, statistics, loss, d_w ...) are F32, as in PyTorch's autocast: the op
 * rounds w to the type of x, and sums in F32. An input w may have the type of x instead, rounded before: in the layout
 * of the CAST that made it, or plain. Otherwise all operands have one type. */
typedef enum dtrain_op_kind {
#define DTRAIN_OP(NAME, name) DTRAIN_OP_##NAME,
#include <dtrain/ops.def>
	DTRAIN_OP_KIND_COUNT
} dtrain_op_kind;

/* The batch norm in training whose x is a CONV2D's y. A hint: a device may compute the norm's statistics along with y,
 * and keep them after y's elements, in a layout and with bytes of its own. */
typedef enum dtrain_fusion {
	DTRAIN_FUSION_NONE = 0,
	DTRAIN_FUSION_NORM,
	DTRAIN_FUSION_NORM_RELU,
	DTRAIN_FUSION_NORM_ADD_RELU, /* with a residual */
} dtrain_fusion;

typedef struct dtrain_window_attrs {
	int32_t stride[2];
	int32_t padding[2];   /* on both sides */
	int32_t kernel[2];    /* of a pool; a convolution's is in its weight's shape */
	dtrain_fusion fusion; /* of CONV2D */
} dtrain_window_attrs;

typedef struct dtrain_norm_attrs {
	double epsilon;
	double momentum; /* running = (1 - momentum) * running + momentum * batch; 0: unchanged */
	int32_t rank;    /* of BATCH_NORM_MOMENTS: the row of moments */
} dtrain_norm_attrs;

typedef struct dtrain_sgd_attrs {
	double momentum;
	double grad_divisor; /* > 0 */
	bool nesterov;
} dtrain_sgd_attrs;

/* ADAM is torch.optim.Adam of g / grad_divisor, or torch.optim.AdamW if decoupled: in the order of PyTorch,
 * decoupled: w *= 1 - lr * weight_decay; otherwise g += weight_decay * w;
 * m += (1 - beta1) * (g - m); v = beta2 * v + (1 - beta2) * g * g; with amsgrad most = max(most, v);
 * w -= lr / (1 - beta1^t) * m / (sqrt(v or most) / sqrt(1 - beta2^t) + epsilon), t: the number of the step, from 1.
 *
 * LAMB is timm's Lamb without its clipping: m and v as above; u = m / (1 - beta1^t) / (sqrt(v) / sqrt(1 - beta2^t) +
 * epsilon) + weight_decay * w; w -= lr * ratio * u. The ratio is norm(w) / norm(u) of each parameter, and 1 if a norm
 * or the weight decay is 0. decoupled and amsgrad are ignored. */
typedef struct dtrain_adam_attrs {
	double beta1, beta2; /* 0 .. <1 */
	double epsilon;      /* > 0 */
	double grad_divisor; /* > 0 */
	bool decoupled, amsgrad;
} dtrain_adam_attrs;

/* timm's Lion of g / grad_divisor: w *= 1 - lr * weight_decay; w -= lr * sign(beta1 * m + (1 - beta1) * g);
 * m = beta2 * m + (1 - beta2) * g. */
typedef struct dtrain_lion_attrs {
	double beta1, beta2; /* 0 .. <1 */
	double grad_divisor; /* > 0 */
} dtrain_lion_attrs;

/* timm's Lars of g / grad_divisor: g = (g + weight_decay * w) * ratio, then as SGD without weight decay. The ratio is
 * trust * norm(w) / (norm(g) + weight_decay * norm(w) + epsilon) of each parameter, and 1 if a norm or the weight decay
 * is 0. */
typedef struct dtrain_lars_attrs {
	double momentum;
	double trust, epsilon; /* > 0 */
	double grad_divisor;   /* > 0 */
	bool nesterov;
} dtrain_lars_attrs;

/* Matrices of equal shape that MUON updates: consecutive in the op's operands. */
typedef struct dtrain_matrices {
	int64_t rows, columns, count;
	int64_t place; /* of the first matrix's first element there: a multiple of DTRAIN_MATRIX_ALIGN */
} dtrain_matrices;

/* MUON updates matrices as torch.optim.Muon with Nesterov's momentum: g /= grad_divisor; m += (1 - momentum) * (g - m);
 * u = g + momentum * (m - g); x = u / max(norm(u), 1e-7); `steps` times x = a x + b (x x^T) x + c (x x^T)^2 x with a =
 * 3.4445, b = -4.775, c = 2.0315 (for more rows than columns of the transposed matrix); w *= 1 - lr * weight_decay; w
 * -= lr * factor * x. The factor is sqrt(max(1, rows / columns)), or with match_rms_adamw 0.2 * sqrt(max(rows,
 * columns)). All other elements are updated as by ADAM, decoupled, with the rate lr * adamw_lr_scale. x and products
 * may be BF16, as PyTorch's are; then sums are F32. */
typedef struct dtrain_muon_attrs {
	dtrain_adam_attrs adamw; /* without amsgrad */
	double adamw_lr_scale;
	double momentum; /* 0 .. <1 */
	int32_t steps;   /* 1 .. 99 */
	bool match_rms_adamw;
	int32_t num_matrices;
	const dtrain_matrices *matrices; /* by place; they outlive the op */
} dtrain_muon_attrs;

enum { DTRAIN_MATRIX_ALIGN = 128 };

/* Norms of all gradients: PyTorch's norm_type 2, 1 and infinity. */
typedef enum dtrain_norm {
	DTRAIN_NORM_2 = 0,   /* the root of the sum of squares */
	DTRAIN_NORM_1 = 1,   /* the sum of magnitudes */
	DTRAIN_NORM_MAX = 2, /* the largest magnitude; NaN if any is */
} dtrain_norm;

typedef struct dtrain_clip_attrs {
	double grad_divisor; /* of GRAD_NORM: > 0 and finite */
	dtrain_norm norm;
	double max_norm; /* of CLIP: > 0; infinity: gradients stay as they are */
} dtrain_clip_attrs;

typedef struct dtrain_inspect_attrs {
	bool more; /* INFINITE stays 1 if it is: other gradients of the step were inspected before */
} dtrain_inspect_attrs;

typedef struct dtrain_pixel_attrs {
	float scale[4], shift[4]; /* for each channel */
	/* The window, with kernel, of the convolutions that alone read y, with their weights' gradients. kernel 0:
	 * other ops read y, or convolutions with different windows. A hint: a device may store y as these convolutions
	 * read it best, in a layout and with bytes of its own. */
	dtrain_window_attrs convolution;
} dtrain_pixel_attrs;

typedef struct dtrain_slice_attrs {
	int32_t dim;
	uint32_t places; /* of SLICE_BWD */
	int64_t begin;
} dtrain_slice_attrs;

typedef struct dtrain_permute_attrs {
	int32_t order[DTRAIN_MAX_DIMS];
} dtrain_permute_attrs;

/* A tensor in a flat range. */
typedef struct dtrain_segment {
	int64_t offset; /* in the range, elements: a multiple of DTRAIN_PARAM_ALIGN */
	dtrain_shape shape;
	const void *layout; /* of y's part, set by op_create: one for equal shapes, as long as the device lives */
} dtrain_segment;

/* Activations whose gradient needs what they were given. */
typedef enum dtrain_activation {
	DTRAIN_ACTIVATION_NONE = 0,
	DTRAIN_ACTIVATION_GELU,
	DTRAIN_ACTIVATION_GELU_TANH,
	DTRAIN_ACTIVATION_SILU,
} dtrain_activation;

typedef struct dtrain_linear_attrs {
	dtrain_activation activation; /* of LINEAR, without relu, and of LINEAR_BWD_DATA with z */
	bool weight_in_out;
	bool exact; /* LINEAR: y is computed from z as z is stored */
} dtrain_linear_attrs;

typedef struct dtrain_gelu_attrs {
	bool tanh;
} dtrain_gelu_attrs;

typedef struct dtrain_rotary_attrs {
	int32_t head_dim; /* even */
	bool interleaved; /* pairs are neighbours (GPT-NeoX's are not); false: element i and i + head_dim / 2 */
	bool inverse;     /* rotates back */
	double theta;     /* > 0 */
} dtrain_rotary_attrs;

/* `ranks` ranks divide the rows of each sequence into 2 ranks chunks, and this one has the chunks rank and 2 ranks - 1
 * - rank: under a causal mask all ranks have as much to do. ranks 0: this one has all rows. */
typedef struct dtrain_chunk_attrs {
	int32_t ranks, rank;
} dtrain_chunk_attrs;

typedef struct dtrain_attention_attrs {
	int32_t heads, kv_heads; /* heads is a multiple of kv_heads */
	bool causal, packed;
	double scale;   /* 0: 1 / sqrt(d) */
	double dropout; /* ATTENTION_DROPOUT: 0 <= dropout < 1 */
	int32_t layer;  /* the same: as of dtrain_dropout_attrs */
	/* The same: the op's heads are the heads first_head, first_head + 1 ... of all_heads, so that ranks that have
	 * parts of a model's heads drop the probabilities that one rank drops. all_heads 0: heads. */
	int32_t all_heads, first_head;
	dtrain_chunk_attrs chunks; /* of q and y; k and v have the rows of all ranks in their order */
} dtrain_attention_attrs;

typedef struct dtrain_dropout_attrs {
	double p;                  /* share of what becomes 0: 0 <= p < 1 */
	int32_t layer;             /* different layers of a model draw different numbers */
	bool per_row;              /* a row is kept or dropped as a whole (stochastic depth) */
	dtrain_chunk_attrs chunks; /* of x [b, t, ...]; not per_row */
	/* parts > 0: a row of the batch has so many parts, and x [m, ...] has this rank's parts, from number `first`
	 * on. */
	int64_t parts, first;
} dtrain_dropout_attrs;

typedef struct dtrain_loss_attrs {
	double label_smoothing; /* 0 .. 1 */
	int64_t ignored;        /* < 0: rows with this label do not count; 0: all rows count */
	int64_t chunk;          /* LINEAR_XENT...: rows */
	double threshold;       /* SIGMOID_XENT: 0 .. 1; 0: none */
	int64_t first, classes; /* XENT_PART...: the class of the first logit. XENT_JOIN: all ranks' classes */
	int32_t rank;           /* XENT_PART...: the row of part */
} dtrain_loss_attrs;

/* Where ranks have parts of a table: `all` rows on all ranks, and the number of this part's first. all 0: the table is
 * whole. */
typedef struct dtrain_table_attrs {
	int64_t first, all;
} dtrain_table_attrs;

typedef struct dtrain_matmul_attrs {
	bool transpose_a, transpose_b;
	double alpha;
	bool deterministic; /* as on a device that was opened so: for what every rank computes by itself */
} dtrain_matmul_attrs;

/* Elements of y outside of the segments are not specified. With plain_output all layouts are NULL. */
typedef struct dtrain_cast_attrs {
	dtrain_segment *segments; /* by offset, without overlap; the op keeps no pointer to them */
	int32_t num_segments;     /* >= 1 */
} dtrain_cast_attrs;

/* The op's kind selects the member of the union. */
typedef struct dtrain_collective_attrs {
	uint32_t axes;       /* of the mesh: bits 1 << enum dtrain_axis (<dtrain/params.h>) */
	int32_t rank, ranks; /* this rank among the ranks of these axes */
	bool differ;         /* ALL_GATHER: the ranks compute different things from y */
} dtrain_collective_attrs;

typedef struct dtrain_op_attrs {
	bool relu; /* LINEAR, ADD, batch norm: y = max(result, 0) */
	union {
		dtrain_window_attrs window;       /* CONV2D and MAX_POOL with their backward ops */
		dtrain_norm_attrs norm;           /* BATCH_NORM_...; of LAYER_NORM and RMS_NORM the epsilon */
		double factor;                    /* SCALE, NARROW, WIDEN, CARRY */
		dtrain_loss_attrs loss;           /* SOFTMAX_XENT..., LINEAR_XENT..., SIGMOID_XENT, XENT_..., MEAN */
		dtrain_table_attrs table;         /* EMBEDDING, EMBEDDING_BWD */
		dtrain_sgd_attrs sgd;             /* SGD */
		dtrain_adam_attrs adam;           /* ADAM, LAMB; of COUNT_STEP the betas */
		dtrain_lion_attrs lion;           /* LION */
		dtrain_lars_attrs lars;           /* LARS */
		dtrain_muon_attrs muon;           /* MUON */
		dtrain_clip_attrs clip;           /* GRAD_NORM, CLIP */
		dtrain_inspect_attrs inspect;     /* SCALER_INSPECT */
		dtrain_pixel_attrs pixels;        /* NORMALIZE */
		dtrain_slice_attrs slice;         /* SLICE, SLICE_BWD */
		dtrain_permute_attrs permute;     /* PERMUTE */
		dtrain_cast_attrs cast;           /* CAST */
		dtrain_linear_attrs linear;       /* LINEAR with its backward ops */
		dtrain_gelu_attrs gelu;           /* GELU, GELU_BWD */
		dtrain_rotary_attrs rotary;       /* ROTARY */
		dtrain_attention_attrs attention; /* ATTENTION...; ATTENTION_CACHED: causal, not packed */
		dtrain_dropout_attrs dropout;     /* DROPOUT */
		dtrain_matmul_attrs matmul;       /* MATMUL */
		dtrain_collective_attrs collective;
	};
} dtrain_op_attrs;

/* DTRAIN_OP_SGD is PyTorch's update of g / attrs.sgd.grad_divisor: g += weight_decay * w; m = momentum * m + g; w -= lr
 * * (nesterov ? g + momentum * m : m). Each run of DTRAIN_PARAM_ALIGN elements belongs to a group with its own lr and
 * weight_decay. The operand scalars, f32 [groups, DTRAIN_UPDATE_SCALARS], has lr and weight_decay of up to
 * DTRAIN_PARAM_GROUPS groups; the operand group, u8 [n / DTRAIN_PARAM_ALIGN, rounded up], has the group of each run,
 * which is not checked. Both are in device-readable memory, so that a captured step can be replayed with other values.
 */
enum { DTRAIN_UPDATE_SCALARS = 2, DTRAIN_PARAM_GROUPS = 256 };
#define DTRAIN_PARAM_ALIGN 16

/* The state of an update that counts its steps, f32 [DTRAIN_STEPS] in device memory. COUNT_STEP sets SCALE and INFINITE
 * to the scaler's (1 and 0 without one). If INFINITE is 0 it adds 1 to COUNT and sets the corrections; otherwise the
 * step is skipped, as with found_inf of PyTorch's fused optimizers: COUNT stays, and the update changes nothing. */
enum dtrain_step_element {
	DTRAIN_STEP_SCALE = 0, /* as in a scaler, which the update takes these for */
	DTRAIN_STEP_INFINITE = 2,
	DTRAIN_STEP_COUNT = 4,       /* modulo DTRAIN_STEP_WRAP, up to which floats are exact */
	DTRAIN_STEP_WRAPS = 5,       /* how many times COUNT became 0 */
	DTRAIN_STEP_CORRECTION1 = 6, /* 1 - beta1^t, t: the number of all steps */
	DTRAIN_STEP_CORRECTION2 = 7, /* sqrt(1 - beta2^t) */
	DTRAIN_STEPS = 8,            /* the other elements are unused */
	DTRAIN_STEP_WRAP = 1 << 24,
};

/* A part of a parameter, in the operand `pieces`, i64 [pieces, DTRAIN_PIECE_NUMBERS], of updates that need norms of
 * whole parameters, or whole matrices. The pieces of a parameter are neighbours, and their sums of squares are added in
 * their order. */
enum dtrain_piece {
	DTRAIN_PIECE_BEGIN = 0, /* element of the range: a multiple of DTRAIN_PARAM_ALIGN */
	DTRAIN_PIECE_COUNT = 1, /* elements: at most DTRAIN_PIECE_ELEMENTS */
	DTRAIN_PIECE_FIRST = 2, /* index of the parameter's first piece */
	DTRAIN_PIECE_PARTS = 3, /* number of the parameter's pieces */
	DTRAIN_PIECE_PLACE = 4, /* of MUON: place of the piece in the matrices (dtrain_matrices); -1: ADAM's rule */
	DTRAIN_PIECE_NUMBERS = 5,
	DTRAIN_PIECE_ELEMENTS = 16384,
};

/* The state of dynamic loss scaling, f32 [DTRAIN_SCALERS] in device memory, PyTorch's torch.amp.GradScaler: d_logits is
 * multiplied by the scale; SCALER_INSPECT sets INFINITE to 1 when a gradient is not finite and, without
 * attrs.inspect.more, to 0 otherwise; an update divides the gradients by the scale too, and leaves w and its states as
 * they are when INFINITE is not 0; SCALER_UPDATE then halves the scale and sets GOOD_STEPS to 0, or else counts
 * GOOD_STEPS up, and at every 2000th doubles the scale, unless that would be infinite, and sets GOOD_STEPS to 0.
 * INFINITE keeps its value until the next SCALER_INSPECT. */
enum dtrain_scaler_element {
	DTRAIN_SCALER_SCALE = 0, /* 65536 at first */
	DTRAIN_SCALER_GOOD_STEPS = 1,
	DTRAIN_SCALER_INFINITE = 2,
	DTRAIN_SCALERS = 4, /* the last element is unused */
};

/* The state of clipping, f32 [DTRAIN_CLIPS] in device memory, PyTorch's torch.nn.utils.clip_grad_norm_ of the gradients
 * that the optimizer uses: what is in memory, divided by attrs.clip.grad_divisor and by the scale of the scaler, if
 * there is one. GRAD_NORM adds the sum of their squares to TOTAL, or that of their magnitudes (NORM_1), in an order
 * that depends on their number, their alignment and the kind of device alone; of NORM_MAX the TOTAL becomes the largest
 * magnitude, if it is not larger. CLIP makes TOTAL, or its root (NORM_2), the NORM, and TOTAL 0.
 * Gradients are always multiplied with c = min(1, max_norm / (NORM + 1e-6)), so that a NORM of infinity makes finite
 * ones 0 and infinite ones NaN, and a NORM that is NaN makes all of them NaN. An update takes such a state in place of
 * a scaler's: SCALE is that of the scaler (1: none) divided by c, INFINITE that of the scaler (0: none). */
enum dtrain_clip_element {
	DTRAIN_CLIP_SCALE = DTRAIN_SCALER_SCALE,
	DTRAIN_CLIP_NORM = 1,
	DTRAIN_CLIP_INFINITE = DTRAIN_SCALER_INFINITE,
	DTRAIN_CLIP_TOTAL = 3, /* 0 at first */
	DTRAIN_CLIPS = DTRAIN_SCALERS,
};

/* The operand random of DROPOUT, i64 [DTRAIN_RANDOMS] in device memory, so that a captured step is replayed with other
 * numbers. Row i of this rank is row first + i * stride of the batch of all ranks. */
enum dtrain_random_element {
	DTRAIN_RANDOM_SEED = 0,
	DTRAIN_RANDOM_STEP = 1, /* its low 32 bits count */
	DTRAIN_RANDOM_FIRST_ROW = 2,
	DTRAIN_RANDOM_ROW_STRIDE = 3,
	DTRAIN_RANDOMS = 4,
};

/* Compressed gradients: bytes of a block of QUANTIZE and of the elements in it, and of a pair of TOP_K. Numbers are in
 * the byte order of the device: a job's machines have the same. */
enum {
	DTRAIN_CODE_BLOCK = 256,
	DTRAIN_CODE_BYTES = 4 + DTRAIN_CODE_BLOCK,
	DTRAIN_PAIR_BYTES = 8,
};

/* Inputs or outputs of an op. */
#define DTRAIN_OP_MAX_OPERANDS 10

/* The caller fills outputs[].dtype and .shape; op_create fills outputs[].layout and .bytes, and workspace_bytes. */
typedef struct dtrain_op_desc {
	dtrain_op_kind kind;
	dtrain_op_attrs attrs;
	int32_t num_inputs;
	int32_t num_outputs;
	dtrain_operand inputs[DTRAIN_OP_MAX_OPERANDS];
	dtrain_operand outputs[DTRAIN_OP_MAX_OPERANDS];
	bool plain_output[DTRAIN_OP_MAX_OPERANDS]; /* the output must be row-major (a parameter's gradient) */
	size_t workspace_bytes;                    /* scratch memory while the op runs; ops of one stream share it */
} dtrain_op_desc;

typedef struct dtrain_device dtrain_device; /* each device defines its own; the first member is the api pointer */
typedef struct dtrain_stream dtrain_stream;
typedef struct dtrain_event dtrain_event;
typedef struct dtrain_op dtrain_op;

typedef struct dtrain_device_options {
	size_t struct_size;
	int32_t index;      /* among several devices of the kind */
	int32_t threads;    /* compute threads of a CPU device; 0 = one for each core this process may use */
	bool tf32;          /* F32 convolutions and products may have the errors of TF32 where that is faster */
	bool deterministic; /* the same inputs give the same bits, on the same device and versions */
	/* Ops begin with algorithms that are ready at once, if the device does not know the fastest ones. It finds them
	 * later, in calls of `tune`. Has no effect on deterministic devices, and on devices without `tune`. */
	bool tune_later;
} dtrain_device_options;

/* The search for the fastest algorithms of the ops that exist. */
typedef struct dtrain_tuning {
	int32_t ops;   /* whose algorithms were not known when they were created */
	int32_t left;  /* ops whose search has not ended */
	int32_t found; /* algorithms that the search has found so far; counted when left is 0 */
	bool waits;    /* the search cannot go on without the device */
	double ms;     /* of this call */
} dtrain_tuning;

/* Abilities of a device. */
typedef struct dtrain_device_caps {
	bool asynchronous;    /* work may still run after the call returned */
	bool graph_capture;   /* the device has the capture functions */
	bool host_memory;     /* the host may read and write device memory (after synchronizing) */
	bool batch_norm_add;  /* batch norm accepts a residual */
	bool batch_norm_pair; /* BATCH_NORM_PAIR is faster than the two norms that it replaces */
	bool conv_bwd_add;    /* CONV2D_BWD_DATA accepts an addend */
	bool gelu_bwd_fused;  /* LINEAR_BWD_DATA accepts the argument of a GELU with tanh */
	bool weight_copies;   /* in F16 and BF16, ops should get weights that CAST has rounded; the device has it */
	uint32_t dtypes;      /* bit 1 << dtrain_dtype */
	size_t alignment;     /* of allocations and of arena offsets, bytes */
	int32_t threads;
	double bandwidth; /* of device memory at its nominal clock and width, bytes a second; 0: not known */
	/* Floating-point operations a second at the highest clock, 2 for each multiply-add, by dtrain_dtype: F32 (TF32
	 * if enabled), F64, F16, BF16; 0: not known. */
	double flops[4];
	char description[256];
} dtrain_device_caps;

/* Why a device runs below the clock that it could have; an idle device has none. Bits. */
typedef enum dtrain_throttle {
	DTRAIN_THROTTLE_POWER_CAP = 1,   /* the limit of power: usual under full load */
	DTRAIN_THROTTLE_HEAT = 2,        /* the driver or the hardware cools the device down */
	DTRAIN_THROTTLE_POWER_BRAKE = 4, /* the power supply asks for less */
	DTRAIN_THROTTLE_CLOCK_LIMIT = 8, /* somebody has set lower clocks */
	DTRAIN_THROTTLE_SYNC_BOOST = 16, /* the clock of a slower device of its group */
	DTRAIN_THROTTLE_HARDWARE = 32,   /* the hardware, which does not say whether for heat or power */
} dtrain_throttle;

/* The activity of a whole device, for all processes. Unknown values are negative. */
typedef struct dtrain_device_activity {
	double busy;                       /* share of the last sampling period during which kernels ran, 0 .. 1 */
	int64_t memory_used, memory_total; /* bytes */
	double power, power_limit;         /* W */
	double clock, highest_clock;       /* of the multiprocessors, MHz */
	double memory_clock;               /* MHz */
	double temperature;                /* degrees Celsius */
	int32_t throttled;                 /* dtrain_throttle bits; 0: it is not */
} dtrain_device_activity;

/* Directions of copies. */
typedef enum dtrain_copy {
	DTRAIN_HOST_TO_DEVICE,
	DTRAIN_DEVICE_TO_HOST,
	DTRAIN_DEVICE_TO_DEVICE,
} dtrain_copy;

/* Required unless marked (optional). Every int is a beton_status; err may be NULL. */
typedef struct dtrain_device_api {
	uint32_t api_version; /* DTRAIN_DEVICE_API_VERSION; checked at registration */
	const char *name;

	int (*open)(const dtrain_device_options *options, dtrain_device **out, beton_error *err);
	void (*close)(dtrain_device *device); /* NULL allowed; all objects of the device must be destroyed */
	void (*caps)(const dtrain_device *device, dtrain_device_caps *out);

	/* Bytes of device memory that can still be allocated; UINT64_MAX: not known. */
	uint64_t (*free_memory)(dtrain_device *device);

	/* Device memory (zeroed), and host memory for fast copies, which must not be freed while a copy uses it.
	 * Freeing NULL is allowed. */
	int (*alloc)(dtrain_device *device, size_t bytes, void **out, beton_error *err);
	void (*free)(dtrain_device *device, void *memory);
	int (*host_alloc)(dtrain_device *device, size_t bytes, void **out, beton_error *err);
	void (*host_free)(dtrain_device *device, void *memory);

	int (*stream_create)(dtrain_device *device, dtrain_stream **out, beton_error *err);
	void (*stream_destroy)(dtrain_stream *stream);
	int (*stream_synchronize)(dtrain_stream *stream, beton_error *err);
	int (*stream_wait)(dtrain_stream *stream, dtrain_event *event, beton_error *err);

	/* An event that was never recorded counts as complete. */
	int (*event_create)(dtrain_device *device, dtrain_event **out, beton_error *err);
	void (*event_destroy)(dtrain_event *event);
	int (*event_record)(dtrain_event *event, dtrain_stream *stream, beton_error *err);
	int (*event_synchronize)(dtrain_event *event, beton_error *err);
	/* Time between two events that were recorded or marked, and are complete. */
	int (*event_elapsed_ms)(dtrain_event *start, dtrain_event *end, double *out, beton_error *err);
	/* event_record for the time only: the event orders nothing, and can be read after each launch of the capture
	 * that it is part of. */
	int (*event_mark)(dtrain_event *event, dtrain_stream *stream, beton_error *err);

	/* Host memory must stay valid and unchanged until the stream has completed the copy. */
	int (*copy)(dtrain_stream *stream, void *destination, const void *source, size_t bytes, dtrain_copy kind,
		    beton_error *err);
	int (*zero)(dtrain_stream *stream, void *memory, size_t bytes, beton_error *err);

	/* Plans an op for its static shapes: primitives, algorithms and reorders are made here, not when the op runs.
	 * UNSUPPORTED names the unsupported part. The op keeps no pointer into desc. */
	int (*op_create)(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err);
	void (*op_destroy)(dtrain_op *op);
	/* Puts the op on the stream. operands: num_inputs pointers, then num_outputs; in-place operands repeat. */
	int (*op_run)(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err);

	/* (optional, caps.graph_capture) Everything put on the stream between begin and end becomes one replayable
	 * unit. */
	int (*capture_begin)(dtrain_stream *stream, beton_error *err);
	int (*capture_end)(dtrain_stream *stream, void **captured, beton_error *err);
	int (*capture_launch)(void *captured, dtrain_stream *stream, beton_error *err);
	void (*capture_destroy)(void *captured);

	/* (optional, not of devices in host memory) Calls the function once all earlier work on the stream is
	 * complete, in a thread of the device's; later work on the stream waits for its end. A capture calls it
	 * at each launch. The function must not use the device. It reports failures by means of its context, which must
	 * stay valid. */
	int (*call_host)(dtrain_stream *stream, void (*function)(void *context), void *context, beton_error *err);

	/* (optional, of devices that do not know caps.flops) The speed of a large product of two matrices of that type
	 * (F32, F16, BF16) on all threads, timed now: floating-point operations a second, 2 for each multiply-add. The
	 * call takes about 50 ms of CPU time, and some MiB while it runs. */
	int (*measure_flops)(dtrain_device *device, dtrain_dtype dtype, double *out, beton_error *err);

	/* (optional) Lends the device to the search for algorithms that tune_later has postponed, for about
	 * `milliseconds`, or less if the search does not need the device; one measurement that has begun is completed.
	 * The caller's streams are idle. 0: only fills *out. When none are left, ops that are created again have the
	 * fastest algorithms. */
	void (*tune)(dtrain_device *device, double milliseconds, dtrain_tuning *out);

	/* (optional) What the device does now. A call takes up to some milliseconds, may be made in any thread, and
	 * does not wait for streams. UNSUPPORTED: nothing is known; the message says why. */
	int (*get_activity)(dtrain_device *device, dtrain_device_activity *out, beton_error *err);
} dtrain_device_api;

/* The registered tables ("ref", "cpu" if built with oneDNN, those from modules) by name or by index (NULL past the
 * end). "auto" is the fastest built-in device; opening tries modules first. Other names are searched for as modules:
 * see <dtrain/module.h>. While "cpu" computes, oneDNN may use memory of the heap as the stack: a program that catches
 * signals in such a thread needs sigaltstack and SA_ONSTACK. */
BETON_API const dtrain_device_api *dtrain_device_find(const char *name);
BETON_API const dtrain_device_api *dtrain_device_at(int index);

/* Opens a device by name. Errors: NOT_FOUND (the message lists the names, and why the module of that name cannot be
 * loaded), INVALID_ARGUMENT, UNSUPPORTED (a module of another version), DEVICE, NO_MEMORY. */
BETON_API int dtrain_device_open(const char *name, const dtrain_device_options *options, dtrain_device **out,
				 beton_error *err);
BETON_API void dtrain_device_close(dtrain_device **device);
BETON_API const dtrain_device_api *dtrain_device_get_api(const dtrain_device *device);

#ifdef __cplusplus
}
#endif

#endif
