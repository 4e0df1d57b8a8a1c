/* SPDX-License-Identifier: Apache-2.0
 *
 * The device table: everything that the graph needs of a place where tensors live and kernels run.
 *
 * A device is one dtrain_device_api. The core knows no other way to a device, so that `ref`, `cpu` and a CUDA module
 * loaded at run time are equals. Work is asynchronous: an op or copy put on a stream runs after everything put on that
 * stream before it, and only events order two streams or tell the host. A synchronous device (ref, cpu) does the work
 * inside the call; its events are complete as soon as recorded. That is allowed everywhere, and required nowhere.
 *
 * Threads: streams, events and ops belong to one thread at a time; event_synchronize may be called from any thread.
 *
 * Structs that begin with struct_size, their size in the caller's header, may be of another release, here and in the
 * other headers of <dtrain/...>. Options and positions that are handed in: members that a smaller struct lacks have
 * their defaults; what a larger one has beyond those that this library knows must be zero, else the call is refused
 * with INVALID_ARGUMENT, as is a size below that of struct_size itself or above 4096. Structs that are filled in: as
 * much is as the caller's has, and what is beyond this library's becomes zero.
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

#define DTRAIN_DEVICE_API_VERSION 10

typedef enum dtrain_dtype {
	DTRAIN_F32 = 0,
	DTRAIN_F64 = 1, /* the ref device only: for checking gradients */
	DTRAIN_F16 = 2,
	DTRAIN_BF16 = 3,
	DTRAIN_I64 = 4,
	DTRAIN_U8 = 5,
} dtrain_dtype;

BETON_API size_t dtrain_dtype_size(dtrain_dtype dtype);      /* bytes per element */
BETON_API const char *dtrain_dtype_name(dtrain_dtype dtype); /* "f32" ... */

#define DTRAIN_MAX_DIMS 6

/* Logical shape, outermost first; pictures are N, C, H, W whatever the device's own layout. ndim 0 is a scalar. */
typedef struct dtrain_shape {
	int32_t ndim;
	int64_t dim[DTRAIN_MAX_DIMS];
} dtrain_shape;

/* With an ndim outside 0 .. DTRAIN_MAX_DIMS: a shape of that ndim, which nothing accepts; dims is not read then. */
BETON_API dtrain_shape dtrain_shape_of(int ndim, const int64_t *dims);
/* Elements. 0: none, or ndim, a dimension or their product is out of its range. */
BETON_API int64_t dtrain_shape_count(const dtrain_shape *shape);

/* What an op is told of, and tells of, one operand. layout NULL: plain row-major. Otherwise it is the device's own
 * description, owned by the op that produced the tensor and alive as long as that op; only tensors between two ops of
 * one graph may have one. bytes: size of the memory, padding included. */
typedef struct dtrain_operand {
	dtrain_dtype dtype;
	dtrain_shape shape;
	const void *layout;
	size_t bytes;
} dtrain_operand;

/* Operands are listed as inputs -> outputs in <dtrain/ops.def>, which has one line for each kind of op.
 *
 * Mixed precision: x, y, their gradients, logits and residuals are all of one type, that of the first operand of these.
 * When it is F16 or BF16, everything else that is a real number (w, b, gamma, beta, statistics, loss, d_w ...) is F32,
 * as with PyTorch's autocast: the op rounds w to the type of x, and sums in F32. Otherwise all are of one type. */
typedef enum dtrain_op_kind {
#define DTRAIN_OP(NAME, name) DTRAIN_OP_##NAME,
#include <dtrain/ops.def>
	DTRAIN_OP_KIND_COUNT
} dtrain_op_kind;

typedef struct dtrain_window_attrs {
	int32_t stride[2];
	int32_t padding[2]; /* on both sides */
	int32_t kernel[2];  /* of a pool; that of a convolution is its weight's shape */
} dtrain_window_attrs;

typedef struct dtrain_norm_attrs {
	double epsilon;
	double momentum; /* running = (1 - momentum) * running + momentum * batch; 0: unchanged */
} dtrain_norm_attrs;

typedef struct dtrain_sgd_attrs {
	double momentum;
	double grad_divisor; /* > 0 */
	bool nesterov;
} dtrain_sgd_attrs;

typedef struct dtrain_clip_attrs {
	double grad_divisor; /* of GRAD_NORM: > 0 and finite */
	double max_norm;     /* of CLIP: > 0; infinity: gradients stay as they are */
} dtrain_clip_attrs;

typedef struct dtrain_pixel_attrs {
	float scale[4], shift[4]; /* for each channel */
} dtrain_pixel_attrs;

typedef struct dtrain_slice_attrs {
	int32_t dim;
	uint32_t places; /* of SLICE_BWD */
	int64_t begin;
} dtrain_slice_attrs;

typedef struct dtrain_permute_attrs {
	int32_t order[DTRAIN_MAX_DIMS];
} dtrain_permute_attrs;

/* The kind of the op says which member of the union it has. */
typedef struct dtrain_op_attrs {
	bool relu; /* of LINEAR, ADD and batch norm: y = max(what the op computes, 0) */
	union {
		dtrain_window_attrs window;   /* CONV2D and MAX_POOL with their backward ops */
		dtrain_norm_attrs norm;       /* BATCH_NORM_...; of LAYER_NORM the epsilon */
		double factor;                /* SCALE */
		double label_smoothing;       /* SOFTMAX_XENT and SOFTMAX_XENT_MIXED: 0 .. 1 */
		dtrain_sgd_attrs sgd;         /* SGD */
		dtrain_clip_attrs clip;       /* GRAD_NORM, CLIP */
		dtrain_pixel_attrs pixels;    /* NORMALIZE */
		dtrain_slice_attrs slice;     /* SLICE, SLICE_BWD */
		dtrain_permute_attrs permute; /* PERMUTE */
	};
} dtrain_op_attrs;

/* DTRAIN_OP_SGD is PyTorch's update of g / attrs.sgd.grad_divisor: g += weight_decay * w; m = momentum * m + g; w -= lr
 * * (nesterov ? g + momentum * m : m). Each run of DTRAIN_PARAM_ALIGN elements belongs to a group, which has its lr and
 * weight_decay. The operand scalars, f32 [groups, DTRAIN_SGD_SCALARS], is lr and weight_decay of each of up to
 * DTRAIN_PARAM_GROUPS groups; the operand group, u8 [n / DTRAIN_PARAM_ALIGN, rounded up], is the group of each run,
 * which must be one that there is: nobody checks. Both live in device-readable memory so that a captured step can be
 * replayed with others. */
enum { DTRAIN_SGD_SCALARS = 2, DTRAIN_PARAM_GROUPS = 256 };
#define DTRAIN_PARAM_ALIGN 16

/* The state of dynamic loss scaling, f32 [DTRAIN_SCALERS] in device memory, PyTorch's torch.amp.GradScaler: d_logits is
 * multiplied by the scale; SCALER_INSPECT sets INFINITE to 1 when a gradient is not finite and to 0 otherwise; SGD
 * divides the gradients by the scale too, and leaves w and m as they are when INFINITE is not 0; SCALER_UPDATE then
 * halves the scale and sets GOOD_STEPS to 0, or else counts GOOD_STEPS up, and at every 2000th doubles the scale,
 * unless that would be infinite, and sets GOOD_STEPS to 0. INFINITE stays until the next SCALER_INSPECT. */
enum dtrain_scaler_element {
	DTRAIN_SCALER_SCALE = 0, /* 65536 at first */
	DTRAIN_SCALER_GOOD_STEPS = 1,
	DTRAIN_SCALER_INFINITE = 2,
	DTRAIN_SCALERS = 4, /* the last is not used */
};

/* The state of clipping, f32 [DTRAIN_CLIPS] in device memory, PyTorch's torch.nn.utils.clip_grad_norm_ (2-norm) of the
 * gradients that the optimizer uses: what is in memory, divided by attrs.clip.grad_divisor and by the scale of the
 * scaler, if there is one. GRAD_NORM adds the sum of their squares to SQUARES, in an order that depends on their
 * number, their alignment and the kind of device alone. CLIP makes the root of SQUARES the NORM, and SQUARES 0.
 * Gradients are always multiplied with c = min(1, max_norm / (NORM + 1e-6)), so that a NORM of infinity makes finite
 * ones 0 and infinite ones NaN, and a NORM that is NaN makes all of them NaN. An update takes such a state in place of
 * a scaler's: SCALE is that of the scaler (1: none) divided by c, INFINITE that of the scaler (0: none). */
enum dtrain_clip_element {
	DTRAIN_CLIP_SCALE = DTRAIN_SCALER_SCALE,
	DTRAIN_CLIP_NORM = 1,
	DTRAIN_CLIP_INFINITE = DTRAIN_SCALER_INFINITE,
	DTRAIN_CLIP_SQUARES = 3, /* 0 at first */
	DTRAIN_CLIPS = DTRAIN_SCALERS,
};

#define DTRAIN_OP_MAX_OPERANDS 8

/* outputs[].dtype and .shape are filled by the caller; op_create fills outputs[].layout and .bytes and workspace_bytes.
 */
typedef struct dtrain_op_desc {
	dtrain_op_kind kind;
	dtrain_op_attrs attrs;
	int32_t num_inputs;
	int32_t num_outputs;
	dtrain_operand inputs[DTRAIN_OP_MAX_OPERANDS];
	dtrain_operand outputs[DTRAIN_OP_MAX_OPERANDS];
	bool plain_output[DTRAIN_OP_MAX_OPERANDS]; /* the caller needs this output row-major (a parameter's gradient) */
	size_t workspace_bytes; /* scratch that the op needs while it runs; shared between ops of one stream */
} dtrain_op_desc;

typedef struct dtrain_device dtrain_device; /* each device defines its own; the first member is the api pointer */
typedef struct dtrain_stream dtrain_stream;
typedef struct dtrain_event dtrain_event;
typedef struct dtrain_op dtrain_op;

typedef struct dtrain_device_options {
	size_t struct_size;
	int32_t index;      /* of several devices of the kind */
	int32_t threads;    /* compute threads of a CPU device; 0 = one for each core this process may use */
	bool tf32;          /* F32 convolutions and products may round their inputs to TF32 where that is faster */
	bool deterministic; /* the same results for the same inputs, bit for bit, on the same device and versions */
} dtrain_device_options;

typedef struct dtrain_device_caps {
	bool asynchronous;   /* work may still run after the call returned */
	bool graph_capture;  /* the capture functions are there */
	bool host_memory;    /* device pointers may be read and written by the host (after synchronizing) */
	bool batch_norm_add; /* batch norm takes a residual */
	bool conv_bwd_add;   /* CONV2D_BWD_DATA takes an addend */
	uint32_t dtypes;     /* bit 1 << dtrain_dtype */
	size_t alignment;    /* of allocations and of arena offsets, bytes */
	int32_t threads;
	double bandwidth; /* of the device's memory by its clock and width, bytes a second; 0: not known */
	/* Products of a type, by dtrain_dtype F32 (TF32 where that is on), F64, F16, BF16: 2 for each multiply-add, a
	 * second, by the device's highest clock; 0: not known. */
	double flops[4];
	char description[128];
} dtrain_device_caps;

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
	void (*close)(dtrain_device *device); /* NULL allowed; all of its objects must be gone */
	void (*caps)(const dtrain_device *device, dtrain_device_caps *out);

	/* Memory of the device (zeroed), and host memory that it copies from and to fastest, which the host frees when
	 * no copy of it is under way. Freeing NULL is allowed. */
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
	/* Between two events that were recorded or marked, and are complete. */
	int (*event_elapsed_ms)(dtrain_event *start, dtrain_event *end, double *out, beton_error *err);
	/* As event_record, but for its time alone: it orders nothing, and may be read after each launch of the capture
	 * that it is part of. */
	int (*event_mark)(dtrain_event *event, dtrain_stream *stream, beton_error *err);

	/* Host memory must stay, and stay as it is, until the stream has been through the copy. */
	int (*copy)(dtrain_stream *stream, void *destination, const void *source, size_t bytes, dtrain_copy kind,
		    beton_error *err);
	int (*zero)(dtrain_stream *stream, void *memory, size_t bytes, beton_error *err);

	/* Plans an op for its static shapes: primitives, algorithms and reorders are made here, not when it runs.
	 * UNSUPPORTED names what is not. The op keeps no pointer into desc. */
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
} dtrain_device_api;

/* The registered tables ("ref", "cpu" where built with oneDNN, those of modules): by name ("auto" = the fastest that
 * is built in; opening tries modules first), or by index (NULL past the end). A name that is not built in is looked for
 * as a module: see <dtrain/module.h>. */
BETON_API const dtrain_device_api *dtrain_device_find(const char *name);
BETON_API const dtrain_device_api *dtrain_device_at(int index);

/* Opens a device by name. Errors: NOT_FOUND (lists the names, and says why a module of that name cannot be loaded),
 * INVALID_ARGUMENT, UNSUPPORTED (a module of another version), DEVICE, NO_MEMORY. */
BETON_API int dtrain_device_open(const char *name, const dtrain_device_options *options, dtrain_device **out,
				 beton_error *err);
BETON_API void dtrain_device_close(dtrain_device **device);
BETON_API const dtrain_device_api *dtrain_device_get_api(const dtrain_device *device);

#ifdef __cplusplus
}
#endif

#endif
