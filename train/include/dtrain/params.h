/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's persistent tensors: parameters, their gradients, and buffers (batch norm's running statistics, weights that
 * are not trained).
 *
 * All parameters are in one flat space of elements, in reverse order of declaration: backward completes
 * their gradients in this order. Values, gradients and optimizer state are arrays over that space, so
 *   - a unit is a contiguous range: parameters that are reduced, gathered, sharded and updated together (a DDP bucket
 *     is a unit with one shard);
 *   - the optimizer updates a whole range in one op.
 * Each parameter starts at a multiple of DTRAIN_PARAM_ALIGN elements. Each unit is padded to a multiple of
 * DTRAIN_PARAM_ALIGN times the number of its shards, so that it divides evenly among ranks. Padding is always zero.
 *
 * Step metrics are a few numbers of a step (the loss, whether a rank got a request to stop). They have an array of
 * their own, of the parameters' type.
 *
 * A parameter that several ranks share (tensor parallelism) has a placement: each of them declares the whole parameter
 * and has one part of it. Initial values and checkpoints do not depend on the number of parts.
 *
 * Compute copies are all values once more, rounded to a 16-bit type, which graphs of that type (dtrain_graph_set_dtype)
 * read as their weights. They exist if, before the parameters are allocated, such a graph is begun on a device with
 * weight_copies; the first one decides the type. An optimizer of the parameters makes them anew with each update, in
 * captured steps too, and so does every function that is given the parameters and writes values. Other code that writes
 * values calls dtrain_params_changed.
 *
 * Graphs for training and for evaluation share one dtrain_params.
 */
#ifndef DTRAIN_PARAMS_H
#define DTRAIN_PARAMS_H

#include <dtrain/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Step metrics of a step. */
#define DTRAIN_STEP_METRICS 16

/* Initial values of parameters. */
typedef enum dtrain_init {
	DTRAIN_INIT_ZERO,
	DTRAIN_INIT_ONE,
	DTRAIN_INIT_KAIMING_NORMAL_FAN_OUT, /* torchvision's conv: normal, std = sqrt(2 / (out * kh * kw)) */
	DTRAIN_INIT_LINEAR_UNIFORM,         /* PyTorch's nn.Linear: uniform in +-1 / sqrt(fan_in); weights and bias */
	DTRAIN_INIT_DIRAC, /* [out, in, kh, kw]: output i < in copies input i (1 at kh / 2, kw / 2, else 0, as PyTorch's
			      nn.init.dirac_); the others LINEAR_UNIFORM */
	/* [1, s * s, c], c a multiple of 4 and at least 8: sines and cosines of the place in a square, as
	 * big_vision's posemb_sincos_2d */
	DTRAIN_INIT_SINCOS_2D,
	DTRAIN_INIT_NORMAL,            /* normal, std = 1 / sqrt(fan_in): 0.02 with fan_in 2500 */
	DTRAIN_INIT_NORMAL_MILLIONTHS, /* normal, std = fan_in / 1e6: for a large one, which few values of NORMAL are
					  near to */
} dtrain_init;

/* The axes of a mesh (<dtrain/mesh.h>), the slowest first. Sets of axes have the bits 1 << axis. */
typedef enum dtrain_axis {
	DTRAIN_AXIS_PIPELINE,
	DTRAIN_AXIS_REPLICATE,
	DTRAIN_AXIS_SHARD,
	DTRAIN_AXIS_CONTEXT,
	DTRAIN_AXIS_TENSOR,
	DTRAIN_AXES
} dtrain_axis;

/* Which part of a parameter a rank has: part `part` of `parts` along dimension `dim`. Part p of a dimension with n
 * indices starts at index p * n / parts, so the parts' sizes differ by at most one. With blocks the dimension is so
 * many equal blocks, which must divide it, and a rank has that part of each block, one after the other: of a weight
 * that has queries, keys and values next to each other, with 3 blocks, it has its heads' part of each. */
typedef struct dtrain_placement {
	const char *axis; /* of the mesh (<dtrain/mesh.h>), "tensor" for example; NULL: each rank has all of it */
	int32_t dim;
	int32_t parts, part;
	int32_t blocks; /* 0: 1 */
} dtrain_placement;

/* A parameter. */
typedef struct dtrain_param {
	const char *name;   /* torchvision's: "layer1.0.conv1.weight" */
	dtrain_shape shape; /* of this rank's part, which is what graphs, units and optimizers see */
	dtrain_shape global_shape;
	int64_t first; /* the part's first index along the placement's dimension, in the first block */
	dtrain_placement placement;
	int64_t offset; /* in the flat space, elements */
	int64_t count;
	int32_t block; /* of the model: see dtrain_params_next_block */
	int32_t unit;
	dtrain_init init;
	int64_t fan_in;
	bool frozen; /* see dtrain_params_freeze */
	bool copied; /* ops read a compute copy of it; known when the parameters are allocated */
	/* Bits of the stages of a pipeline that have the parameter; 0: without one. repeated: an earlier stage has it,
	 * too, and counts it. */
	uint64_t stages;
	bool repeated;
	/* Bits 1 << dtrain_axis: along these axes each rank computes a part of the gradient, from the rows that it has,
	 * and the parts are added up. */
	uint32_t partial_axes;
} dtrain_param;

/* A buffer: saved with the model, without gradient. */
typedef struct dtrain_buffer {
	const char *name; /* "bn1.running_mean" */
	dtrain_shape shape;
	void *data; /* on the device, plain */
	dtrain_init init;
	bool fixed; /* no step changes it, so ranks do not average it */
} dtrain_buffer;

/* Consecutive parameters that are gathered and reduced together. */
typedef struct dtrain_unit {
	int64_t offset; /* in the flat space, elements */
	int64_t count;  /* including padding: a multiple of DTRAIN_PARAM_ALIGN times the shards */
	int32_t block;  /* of its last parameter */
	bool frozen;    /* all its parameters are, and all later units */
	bool shared;    /* ranks that shard the others have all of this one */
	/* The axis of its parameters' placements, which is one for all of them; DTRAIN_AXES: they have no placement. */
	dtrain_axis axis;
	uint64_t stages; /* as its parameters, which have the same; so the next */
	bool repeated;
	uint32_t partial_axes;
} dtrain_unit;

/* A range of the flat space that this rank keeps and updates. Without sharding and placements there is one, with
 * everything. Otherwise there is one for each unit, in their order: this rank's shard, or all of a unit. */
typedef struct dtrain_range {
	int64_t offset; /* in the flat space, elements: a multiple of DTRAIN_PARAM_ALIGN */
	int64_t count;
	void *values, *grads; /* of the range's first element */
	/* That of values and grads; NULL: they are in host memory, where an optimizer gets the gradients that backward
	 * leaves on the parameters' device (see dtrain_params_offload). */
	dtrain_device *device;
	bool shared; /* other shards have the same range */
	/* This rank counts the range's gradients in a norm: of the ranks of one model that have the same range, the one
	 * with coordinate 0; of the stages that have it, the first one. */
	bool counts;
} dtrain_range;

/* How the flat space is divided, in flat order. A unit has whole parameters, and ends when it is full; or
 * earlier, where a new block, or a new module whose name matches the pattern, begins or ends. */
typedef struct dtrain_unit_policy {
	size_t struct_size;
	size_t first_bytes; /* size at which the first unit is full; default: never */
	size_t bytes;       /* size at which any other unit is full; default: never */
	int32_t shards;     /* number of equal parts that each unit can be divided into, >= 1; default 1 */
	bool by_block;      /* a unit's parameters are of one block of the model; default false */
	/* No shard begins or ends within a parameter: for optimizers that need whole ones. Shards are as large as the
	 * fullest one, so units of many parameters lose least; default false. */
	bool whole;
	/* "transformer.h.*": the parameters of each module with a matching name (fnmatch, from the left to some dot)
	 * are not in one unit with others. Copied. Default NULL: none. */
	const char *pattern;
} dtrain_unit_policy;

typedef struct dtrain_params dtrain_params;

/* dtype: F32, or F64 on ref. The device must outlive the set. */
BETON_API int dtrain_params_create(dtrain_device *device, dtrain_dtype dtype, dtrain_params **out, beton_error *err);
BETON_API void dtrain_params_destroy(dtrain_params **params);

/* The last block of the model that has a parameter, also if these are the parameters of a stage (<dtrain/stage.h>). */
BETON_API int32_t dtrain_params_last_block(const dtrain_params *params);
/* Declare a parameter or buffer or, for a second graph of the same model, find it; shape and kind must be as in the
 * first declaration. Return an index >= 0, or a status. LINEAR_UNIFORM, DIRAC, NORMAL and NORMAL_MILLIONTHS use fan_in;
 * a buffer's fan_in is the product of its dimensions except the first. declare_fixed: a buffer for weights that are not
 * trained; other initial values can be copied to its data. next_block: later parameters belong to the model's next
 * block (a residual block, a transformer layer). */
BETON_API int dtrain_params_declare(dtrain_params *params, const char *name, const dtrain_shape *shape,
				    dtrain_init init, int64_t fan_in, beton_error *err);
BETON_API int dtrain_params_declare_buffer(dtrain_params *params, const char *name, const dtrain_shape *shape,
					   dtrain_init init, beton_error *err);
BETON_API int dtrain_params_declare_fixed(dtrain_params *params, const char *name, const dtrain_shape *shape,
					  dtrain_init init, beton_error *err);
BETON_API void dtrain_params_next_block(dtrain_params *params);
/* Declares a parameter that this rank has a part of. shape and fan_in: the whole parameter's. The placement is copied
 * (NULL: the whole parameter). Each part must have at least one index: INVALID_ARGUMENT. */
BETON_API int dtrain_params_declare_placed(dtrain_params *params, const char *name, const dtrain_shape *shape,
					   const dtrain_placement *placement, dtrain_init init, int64_t fan_in,
					   beton_error *err);

/* Freezes parameters and buffers that are declared later and whose name, or the part of it before some dot, matches
 * the pattern (fnmatch; * matches dots, too): "conv1", "layer[12]", "*.bias". A frozen parameter gets no gradient, so
 * that backward ends before the last trained layer; its part of the gradients stays zero, and its units are not
 * reduced; optimizers have to have it in a group with lr_scale and weight_decay 0. A frozen buffer does not change: a
 * batch norm whose running statistics are frozen normalizes with them in training, too, and then neither it nor an
 * earlier layer can be trained. STATE: something has been declared. */
BETON_API int dtrain_params_freeze(dtrain_params *params, const char *pattern, beton_error *err);
/* Whether such a pattern matches a name; pure. */
BETON_API bool dtrain_pattern_matches(const char *pattern, const char *name);
/* A pattern that has matched nothing so far; NULL: none. */
BETON_API const char *dtrain_params_unused_pattern(const dtrain_params *params);

/* Call set_units before allocation. INVALID_ARGUMENT: shards; STATE: the parameters are allocated. */
BETON_API void dtrain_unit_policy_init_sized(dtrain_unit_policy *policy, size_t size);
static inline void dtrain_unit_policy_init(dtrain_unit_policy *policy)
{
	dtrain_unit_policy_init_sized(policy, sizeof(*policy));
}
/* Sets the policy of units, before the parameters are allocated. */
BETON_API int dtrain_params_set_units(dtrain_params *params, const dtrain_unit_policy *policy, beton_error *err);

/* Lays out the flat space and allocates values, compute copies, gradients and buffers. No new declarations are possible
 * afterwards. */
BETON_API int dtrain_params_allocate(dtrain_params *params, beton_error *err);
/* Before allocation: allocate only lays the parameters out, and gives them no memory. So programs of a model of any
 * size can be measured (dtrain_graph_measure, dtrain_sync_measure), and all that needs memory fails with STATE:
 * compiling, initial values, an optimizer. STATE: the parameters are allocated. */
BETON_API int dtrain_params_only_plan(dtrain_params *params, beton_error *err);

/* Bytes that this rank has, or would have: in its device's memory, where nothing else is said. */
typedef struct dtrain_params_memory {
	size_t struct_size; /* set by the caller before the call */
	size_t values, grads, copies, buffers;
	size_t updated; /* values of the rank's ranges: each state of an optimizer has as many */
	size_t host;    /* pinned memory of the host: see dtrain_params_offload */
} dtrain_params_memory;
/* The parameters must be allocated; otherwise all are 0. */
BETON_API void dtrain_params_get_memory(const dtrain_params *params, dtrain_params_memory *out);

/* Keeps the values of this rank's ranges in pinned host memory, where optimizers of the parameters work, on the device
 * `host` (cpu or ref), which must outlive the parameters. The parameters' own device has what ops read: the values, or,
 * where ops read compute copies, the copies alone. Each unit has a range of its own.
 *
 * units: what ops read is in host memory, too. Programs then have memory for the units in use alone, and copy each unit
 * there ahead of its readers, for forward and again for backward; dtrain_sync_compile makes such programs, and nothing
 * else does. Parameters that ops read in F32 beside compute copies of others stay on the device.
 *
 * Call it before the parameters are allocated. Errors: UNSUPPORTED (the parameters' device computes in host memory
 * itself, or cannot call the host), INVALID_ARGUMENT (`host` does not), STATE. */
BETON_API int dtrain_params_offload(dtrain_params *params, dtrain_device *host, bool units, beton_error *err);
/* The device `host`; NULL: values are on the parameters' device. */
BETON_API dtrain_device *dtrain_params_host(const dtrain_params *params);

/* Fills the values of this rank's ranges, and buffers, as declared, using the device's threads. A seed gives the same
 * values on every device, rank and number of threads, and however the parameters are sharded. */
BETON_API int dtrain_params_initialize(dtrain_params *params, uint64_t seed, dtrain_stream *stream, beton_error *err);

/* The declared parameters and buffers, by index. */
BETON_API int dtrain_params_count(const dtrain_params *params);
BETON_API const dtrain_param *dtrain_params_at(const dtrain_params *params, int index);
BETON_API int dtrain_params_buffer_count(const dtrain_params *params);
BETON_API const dtrain_buffer *dtrain_params_buffer_at(const dtrain_params *params, int index);
/* Units in flat order; none before allocation. */
BETON_API int dtrain_params_unit_count(const dtrain_params *params);
BETON_API const dtrain_unit *dtrain_params_unit_at(const dtrain_params *params, int index);

/* This rank's ranges, in flat order; none before allocation. */
BETON_API int dtrain_params_range_count(const dtrain_params *params);
BETON_API const dtrain_range *dtrain_params_range_at(const dtrain_params *params, int index);

/* Puts ops on the stream that make the compute copies of this rank's ranges; nothing if there are none. Call it after
 * values of a range were written (by the caller or by dtrain_checkpoint_load), on the same stream, before a program
 * runs. A captured call makes the copies at each launch. Errors: DEVICE. */
BETON_API int dtrain_params_changed(dtrain_params *params, dtrain_stream *stream, beton_error *err);
/* Bytes of the compute copies on the device, for facts; 0: it has none. */
BETON_API size_t dtrain_params_copy_bytes(const dtrain_params *params);

/* The flat arrays on the device: index 0 is offset 0. flat_count includes padding. After values were written:
 * dtrain_params_changed. NULL: this rank does not keep the whole array (see dtrain_params_range_at). Of a whole array
 * of sharded parameters, only this rank's ranges are true between steps. */
BETON_API int64_t dtrain_params_flat_count(const dtrain_params *params);
BETON_API void *dtrain_params_values(const dtrain_params *params);
BETON_API void *dtrain_params_grads(const dtrain_params *params);
/* Device memory with DTRAIN_STEP_METRICS elements, initially zero. */
BETON_API void *dtrain_params_step_metrics(const dtrain_params *params);
BETON_API dtrain_dtype dtrain_params_dtype(const dtrain_params *params);
BETON_API dtrain_device *dtrain_params_device(const dtrain_params *params);

#ifdef __cplusplus
}
#endif

#endif
