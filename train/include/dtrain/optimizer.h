/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers: kinds in one table, and what one of them keeps for a range of the flat space of parameters.
 */
#ifndef DTRAIN_OPTIMIZER_H
#define DTRAIN_OPTIMIZER_H

#include <dtrain/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A numeric parameter of an optimizer kind. */
typedef struct dtrain_hyper {
	const char *name;
	double standard;     /* default */
	double least, below; /* least <= value < below; below may be infinity */
	bool flag;           /* 0 or 1 */
	bool by_group;       /* may differ between groups, and change between steps */
} dtrain_hyper;

/* A state is an array of the parameters' type, with one element for each in the range, initially zero. */
typedef struct dtrain_optimizer_kind {
	const char *name;
	const dtrain_hyper *hypers; /* the first is "lr_scale", by group: a factor of the step's learning rate */
	int32_t num_hypers;
	const char *const *states; /* "momentum": stored in checkpoints as the parameter's name + ".momentum" */
	int32_t num_states;
	double lr;        /* usual learning rate, for programs: that of PyTorch or timm, of "sgd" 0.1 */
	double clip_norm; /* usual dtrain_optimizer_options.clip_norm: 0, of "lamb" 1 */
	bool whole;       /* needs whole parameters: dtrain_unit_policy.whole, where units are sharded */
} dtrain_optimizer_kind;

/* The kind at an index from 0; NULL: no more. lr_scale and weight_decay are by group, all other numbers for all groups.
 *
 * "sgd": torch.optim.SGD with dampening 0. momentum 0 .. <1, default 0.9; nesterov, which needs momentum > 0;
 * weight_decay >= 0, default 0, by group. State: momentum.
 *
 * "adam", "adamw": torch.optim.Adam and AdamW. beta1 0.9, beta2 0.999, 0 .. <1; epsilon > 0, default 1e-8; amsgrad, the
 * largest v before its correction; weight_decay, default 0 and 0.01. States: exp_avg, exp_avg_sq, with amsgrad
 * max_exp_avg_sq.
 *
 * "lion": timm's Lion. beta1 0.9, beta2 0.99; weight_decay, default 0. State: exp_avg.
 *
 * "lars": timm's Lars. momentum, default 0.9; nesterov; trust > 0, default 0.001; epsilon > 0, default 1e-8;
 * weight_decay, default 1e-4, without which a parameter is updated as by sgd. State: momentum.
 *
 * "lamb": timm's Lamb; the gradients are to be clipped to a norm of 1 by clip_norm. beta1 0.9, beta2 0.999; epsilon >
 * 0, default 1e-6; weight_decay, default 0.01, without which the update of a parameter is not scaled. States: exp_avg,
 * exp_avg_sq.
 *
 * "muon": torch.optim.Muon for the matrices of hidden layers, with Nesterov's momentum, and AdamW for the rest.
 * Matrices are the parameters of two or more dimensions, with all but the first taken as one (the filters of a
 * convolution are rows), that are neither frozen nor named by dtrain_optimizer_options.adamw. momentum 0.95; ns_steps 1
 * .. 99, default 5; match_rms_adamw, the factor of the rate that gives updates the size of AdamW's; weight_decay,
 * default 0.1. Of AdamW: adamw_lr_scale >= 0, default 1, a factor of its rate; beta1 0.9, beta2 0.95, epsilon 1e-8.
 * States: exp_avg, which is Muon's momentum_buffer, and exp_avg_sq, zero for matrices.
 *
 * lars and lamb need the norms of whole parameters, and muon needs whole matrices: a range, a shard, or a placement,
 * that divides one is UNSUPPORTED. All others compute each element by itself, so an optimizer for a range gives the
 * same bits as one for all.
 *
 * A parameter with no gradient (PyTorch's None) is one in a group of lr_scale 0 and weight_decay 0 whose gradient is
 * zero: it and its states stay as they are. */
BETON_API const dtrain_optimizer_kind *dtrain_optimizer_kind_at(int index);

/* A hyperparameter by name. */
typedef struct dtrain_hyper_value {
	const char *name;
	double value;
} dtrain_hyper_value;

typedef struct dtrain_optimizer_options {
	size_t struct_size;
	const char *kind;                 /* default "sgd" */
	const dtrain_hyper_value *hypers; /* for all groups; default NULL. Copied */
	int32_t num_hypers;
	int32_t num_groups;          /* 1 to DTRAIN_PARAM_GROUPS, like PyTorch's param groups; default 1 */
	const uint8_t *group_of;     /* the group of each parameter, by index; copied. NULL (default): group 0 */
	const dtrain_scaler *scaler; /* the scaler of the loss; default NULL */
	double grad_divisor; /* > 0 and finite: gradients are divided by it first; default 1. With DDP, which sums over
				the ranks, the size of the group */
	/* > 0: gradients (of whole parameters: see dtrain_placement) are clipped to this norm like
	 * torch.nn.utils.clip_grad_norm_ (see dtrain_clip_element in <dtrain/device.h>), after
	 * division by grad_divisor and the scaler's scale. Infinity: the norm is computed, but gradients are not
	 * clipped. 0 (default): neither. */
	double clip_norm;
	dtrain_norm norm; /* default DTRAIN_NORM_2 */
	bool lookahead;   /* default false; see dtrain_optimizer_look_ahead */
	/* Elements begin to end - 1 of the flat space are updated; both must be multiples of DTRAIN_PARAM_ALIGN, except
	 * that end may be the end of the flat space. Default: 0 and 0, which means the ranges that this rank keeps
	 * (dtrain_params_range_at). Gradients outside the range do not count in the norm. */
	int64_t begin, end;
	/* Device memory of the range's values and gradients, of the parameters' type; must outlive the optimizer. NULL
	 * (default): the parameters' own; values of sharded parameters need memory of their own. With values of the
	 * caller's, the parameters' compute copies stay as they are. */
	void *values, *grads;
	bool average; /* default false; see dtrain_optimizer_average */
	/* For "muon": whether AdamW updates a parameter of two or more dimensions, by index; others are ignored.
	 * Copied. NULL (default): none. Usual for embeddings and the last layer. */
	const bool *adamw;
	/* Adds F32 numbers on the stream over the ranks that have the other shards of the parameters: what norms
	 * are made of, and whether any gradient is infinite. dtrain_sync_add_shards with the sync as context. NULL
	 * (default): this rank has all that counts. */
	int (*add)(void *context, void *memory, int64_t count, dtrain_stream *stream, beton_error *err);
	void *add_context;
	/* > 0: what norms are made of is added up in an order that does not depend on how ranks share the
	 * parameters: that of norm_parts pieces of each unit. Shards must be whole pieces, and the padding of units a
	 * multiple of them (dtrain_sync_options.deterministic_shards, and units of the same policy). Default 0. */
	int norm_parts;
	/* The same as add, over the ranks that compute one model (dtrain_mesh_model_group), with the same context:
	 * dtrain_sync_add_model. Needed for norms and a scaler where the mesh has a model axis. NULL (default): this
	 * rank computes its model alone. */
	int (*add_model)(void *context, void *memory, int64_t count, dtrain_stream *stream, beton_error *err);
	/* Gathers, with the same context, numbers of the parameters' type of all ranks along an axis, on the stream:
	 * out is [ranks][count]. dtrain_sync_gather_axis. Needed by lars, lamb and muon where ranks have parts of
	 * parameters (dtrain_placement), which must be equal in size. NULL (default): none. */
	int (*gather)(void *context, dtrain_axis axis, void *out, const void *in, int64_t count, dtrain_stream *stream,
		      beton_error *err);
} dtrain_optimizer_options;

BETON_API void dtrain_optimizer_options_init_sized(dtrain_optimizer_options *options, size_t size);
static inline void dtrain_optimizer_options_init(dtrain_optimizer_options *options)
{
	dtrain_optimizer_options_init_sized(options, sizeof(*options));
}

typedef struct dtrain_optimizer dtrain_optimizer;

/* params must be allocated and outlive the optimizer. One thread at a time. With offloaded parameters
 * (dtrain_params_offload) states and updates are on their host device, and each apply moves gradients there and values
 * back; not with the options begin, end, values, grads, lookahead and average, nor, of offloaded units, norm_parts.
 * Errors: INVALID_ARGUMENT (the message begins with the kind's name), STATE (parameters are not allocated), UNSUPPORTED
 * (the device lacks an op), NO_MEMORY. */
BETON_API int dtrain_optimizer_create(dtrain_params *params, const dtrain_optimizer_options *options,
				      dtrain_optimizer **out, beton_error *err);
/* Bytes of scratch memory that updates by such an optimizer have, on the device that has its states, with the whole
 * parameters of ranks that have parts; nothing is allocated there, and params may be only planned
 * (dtrain_params_only_plan). Without what options add besides the kind. Errors: as for create. */
BETON_API int dtrain_optimizer_measure(dtrain_params *params, const dtrain_optimizer_options *options, size_t *bytes,
				       beton_error *err);
/* The optimizer's work on streams must be complete. */
BETON_API void dtrain_optimizer_destroy(dtrain_optimizer **optimizer);

/* Puts the initialization of states on the stream, unless they come from a checkpoint: Lookahead's slow weights and the
 * moving average are set to the current values and buffers. Other states need none. */
BETON_API int dtrain_optimizer_start(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err);

/* One update of all parameters of the range, in two parts. set_rate copies the step's numbers to the device; lr: at
 * least 0, and finite as a float (INVALID_ARGUMENT). apply puts
 * only ops on the stream, the same in each step, so that it can be captured. With a scaler, apply first inspects the
 * gradients (reduced over the ranks, so that all ranks see the same), and finally updates the scaler; with clip_norm it
 * computes the norm before the update. The last op makes the parameters' compute copies, of all values, whatever the
 * range. */
BETON_API int dtrain_optimizer_set_rate(dtrain_optimizer *optimizer, double lr, dtrain_stream *stream,
					beton_error *err);
BETON_API int dtrain_optimizer_apply(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err);
/* For offloaded parameters, and optional: the gradients of a unit are complete on the stream (for
 * dtrain_sync_set_listener, with the optimizer as context). They go to the host meanwhile, and unless a norm or a
 * scaler needs all units first, the host updates the unit. The next apply belongs to the same step. Does nothing if
 * nothing is offloaded. Of offloaded units, whose gradients leave the device, a norm or a scaler needs the call:
 * without it apply fails with STATE. STATE: a second call for the unit in this step. */
BETON_API int dtrain_optimizer_unit_complete(void *optimizer, int unit, dtrain_stream *stream, beton_error *err);
/* Gives up a step that has complete units and gets no apply: its run failed, or its gradients are not wanted. Later
 * work on the stream finds the state of a step's beginning. Units that the host has updated stay so, and their step
 * counts; if a norm or a scaler needs all units first, the host has updated none. The scaler's scale stays. Does
 * nothing if nothing is offloaded, since then a step begins with apply. Errors: as for the device. */
BETON_API int dtrain_optimizer_abandon(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err);
/* The first failure of an update on the host; the values must not be used after it. */
BETON_API int dtrain_optimizer_check(const dtrain_optimizer *optimizer, beton_error *err);
/* The device of the states and of the number of the step; NULL: they are in host memory. */
BETON_API dtrain_device *dtrain_optimizer_memory_device(const dtrain_optimizer *optimizer);
/* set_rate, then apply. */
BETON_API int dtrain_optimizer_step(dtrain_optimizer *optimizer, double lr, dtrain_stream *stream, beton_error *err);

/* Changes a number of one group, effective from the next set_rate, also in captured steps. INVALID_ARGUMENT: no such
 * group or number, an invalid value, or a number that is not by group. */
BETON_API int dtrain_optimizer_set(dtrain_optimizer *optimizer, int32_t group, const char *name, double value,
				   beton_error *err);

/* Lookahead (Zhang et al. 2019) keeps a slow copy (the state "slow") of each value and each element of a buffer. Puts
 * on the stream: slow += weight * (fast - slow); fast = slow. weight: 0 (return to the slow copy) to 1 (the slow copy
 * catches up). Waits only for the copy of the previous call's weight. STATE: the optimizer was created without
 * lookahead. */
BETON_API int dtrain_optimizer_look_ahead(dtrain_optimizer *optimizer, double weight, dtrain_stream *stream,
					  beton_error *err);

/* An exponential moving average (the state "ema") of each value and each element of a buffer. average puts on the
 * stream: ema += weight * (value - ema). weight: 0 to 1; see dtrain_average_weight. It waits only for the copy of the
 * previous call's weight. exchange swaps the average and what is trained, bit for bit, and waits for the stream: called
 * once before an evaluation and once after it, it makes the evaluation that of the average. STATE: the optimizer was
 * created without average. */
BETON_API int dtrain_optimizer_average(dtrain_optimizer *optimizer, double weight, dtrain_stream *stream,
				       beton_error *err);
BETON_API int dtrain_optimizer_exchange_average(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err);

/* The state of clipping, f32 [DTRAIN_CLIPS] in device memory (enum dtrain_clip_element), for step metrics; NULL: none.
 */
BETON_API void *dtrain_optimizer_clip(const dtrain_optimizer *optimizer);

/* The name of its kind. */
BETON_API const char *dtrain_optimizer_name(const dtrain_optimizer *optimizer);
/* The number of steps that were not skipped by the loss scaler, f32 [2] in memory as states are, for checkpoints:
 * biases are corrected by it. It is the first element plus 2^24 times the second (DTRAIN_STEP_COUNT,
 * DTRAIN_STEP_WRAPS). NULL: the kind counts no steps. */
BETON_API void *dtrain_optimizer_step_count(const dtrain_optimizer *optimizer);

/* A state, for checkpoints and for ranks that share it. memory is owned by the optimizer, on
 * dtrain_optimizer_memory_device. */
typedef struct dtrain_optimizer_state {
	const char *name;
	void *memory;  /* the elements of the ranges, one range after the other */
	int64_t count; /* elements of the parameters' type: the ranges', then the buffers' */
	void *buffers; /* the buffers' elements in memory; NULL: none */
} dtrain_optimizer_state;

/* The ranges of the flat space that are updated. *first: the element of a state's memory that belongs to the range's
 * first element. index: less than the count. */
BETON_API int dtrain_optimizer_range_count(const dtrain_optimizer *optimizer);
BETON_API dtrain_range dtrain_optimizer_range_at(const dtrain_optimizer *optimizer, int index, int64_t *first);

/* The state at an index from 0: the kind's own, then "slow" and "ema"; NULL: no more. */
BETON_API const dtrain_optimizer_state *dtrain_optimizer_state_at(const dtrain_optimizer *optimizer, int index);
/* NULL: no state of that name. */
BETON_API const dtrain_optimizer_state *dtrain_optimizer_state_find(const dtrain_optimizer *optimizer,
								    const char *name);
/* A state's elements for the buffer at that index. NULL: the state has none, or there is no such buffer. */
BETON_API void *dtrain_optimizer_state_buffer(const dtrain_optimizer *optimizer, const dtrain_optimizer_state *state,
					      int index);

#ifdef __cplusplus
}
#endif

#endif
