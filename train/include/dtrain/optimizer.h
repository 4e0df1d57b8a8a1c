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

/* A number that a kind of optimizer takes. */
typedef struct dtrain_hyper {
	const char *name;
	double standard;     /* where none is given */
	double least, below; /* least <= number < below, which may be infinity */
	bool flag;           /* 0 or 1 */
	bool by_group;       /* groups may differ in it, and it may be changed between steps */
} dtrain_hyper;

/* States are arrays of the parameters' type with an element for each of the range's, zero at first. */
typedef struct dtrain_optimizer_kind {
	const char *name;
	const dtrain_hyper *hypers; /* the first is "lr_scale", by group: the rate of a step is multiplied with it */
	int32_t num_hypers;
	const char *const *states; /* "momentum": a checkpoint has them under the parameter's name + "." + this */
	int32_t num_states;
} dtrain_optimizer_kind;

/* All kinds, from index 0; NULL: there are no more. One so far:
 *   "sgd": torch.optim.SGD with dampening 0. momentum 0 .. <1, default 0.9; nesterov, which needs a momentum above 0;
 *   weight_decay >= 0, default 0, by group. State: momentum. */
BETON_API const dtrain_optimizer_kind *dtrain_optimizer_kind_at(int index);

typedef struct dtrain_hyper_value {
	const char *name;
	double value;
} dtrain_hyper_value;

typedef struct dtrain_optimizer_options {
	size_t struct_size;
	const char *kind;                 /* default "sgd" */
	const dtrain_hyper_value *hypers; /* of all groups; default NULL. Copied */
	int32_t num_hypers;
	int32_t num_groups;      /* 1 to DTRAIN_PARAM_GROUPS, as PyTorch's param groups; default 1 */
	const uint8_t *group_of; /* of each parameter, by its index, the group; copied. NULL, the default: group 0 */
	const dtrain_scaler *scaler; /* of the loss whose gradients are used; default NULL */
	double grad_divisor;         /* > 0 and finite: gradients are divided by it before all else; default 1. The size
					of the group where DDP has added up the gradients of its ranks */
	/* > 0: gradients are clipped to this norm as torch.nn.utils.clip_grad_norm_ does it with norm_type 2 (see
	 * dtrain_clip_element in <dtrain/device.h>), divided by grad_divisor and the scaler's scale before; infinity:
	 * their norm is computed and they stay as they are. 0, the default: neither. */
	double clip_norm;
	bool lookahead; /* default false: see dtrain_optimizer_look_ahead */
	/* Elements begin to end - 1 of the flat space are updated; both multiples of DTRAIN_PARAM_ALIGN, or end the
	 * flat space's. Default: 0 and 0, which is all of it. Gradients outside of the range do not count in the norm.
	 */
	int64_t begin, end;
	/* Device memory of the range's values and gradients, of the parameters' type, which must outlive the optimizer.
	 * NULL, the default: those of the parameters. */
	void *values, *grads;
} dtrain_optimizer_options;

BETON_API void dtrain_optimizer_options_init(dtrain_optimizer_options *options);

typedef struct dtrain_optimizer dtrain_optimizer;

/* params must be allocated, and outlive it. One thread at a time. Errors: INVALID_ARGUMENT, whose message begins with
 * the kind's name; STATE, parameters are not allocated; UNSUPPORTED, the device lacks an op; NO_MEMORY. */
BETON_API int dtrain_optimizer_create(dtrain_params *params, const dtrain_optimizer_options *options,
				      dtrain_optimizer **out, beton_error *err);
/* What was put on streams must be complete. */
BETON_API void dtrain_optimizer_destroy(dtrain_optimizer **optimizer);

/* Puts on the stream what states are before the first step, unless they come from a checkpoint: Lookahead's slow
 * weights become the values and buffers as they are. Nothing for other states. */
BETON_API int dtrain_optimizer_start(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err);

/* One update of all parameters of the range, in two parts. set_rate copies the step's numbers to the device. apply puts
 * ops alone on the stream, the same in each step, so that it can be part of a capture: with a scaler it first inspects
 * the gradients (reduced over the ranks, so that all ranks see the same), and at last updates the scaler; with
 * clip_norm it computes the norm before the update. */
BETON_API int dtrain_optimizer_set_rate(dtrain_optimizer *optimizer, double lr, dtrain_stream *stream,
					beton_error *err);
BETON_API int dtrain_optimizer_apply(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err);
/* Both in turn. */
BETON_API int dtrain_optimizer_step(dtrain_optimizer *optimizer, double lr, dtrain_stream *stream, beton_error *err);

/* Changes a number of one group from the next set_rate on; a captured step follows. INVALID_ARGUMENT: no such group,
 * number, or value, or the number is not by group. */
BETON_API int dtrain_optimizer_set(dtrain_optimizer *optimizer, int32_t group, const char *name, double value,
				   beton_error *err);

/* Lookahead (Zhang et al. 2019): beside each value and each element of a buffer a slow one (the state "slow"), which
 * now and then is drawn towards it, and which it then starts from again. Puts on the stream: slow += weight * (fast -
 * slow); fast = slow. weight: 0 (back to the slow ones) to 1 (they catch up). Waits only for the copy of the weight of
 * the time before. STATE: the optimizer was made without. */
BETON_API int dtrain_optimizer_look_ahead(dtrain_optimizer *optimizer, double weight, dtrain_stream *stream,
					  beton_error *err);

/* The state of clipping, f32 [DTRAIN_CLIPS] in device memory (enum dtrain_clip_element), for figures; NULL: there is
 * none. */
BETON_API void *dtrain_optimizer_clip(const dtrain_optimizer *optimizer);

/* A state, for checkpoints and for ranks that share it. memory is the optimizer's, on the device. */
typedef struct dtrain_optimizer_state {
	const char *name;
	void *memory;  /* element 0 is that of `begin` of the flat space */
	int64_t count; /* elements, of the parameters' type: of the range and, behind it, of the buffers */
	void *buffers; /* where in memory those of the buffers begin; NULL: it has none */
} dtrain_optimizer_state;

/* From index 0: the kind's, then "slow"; NULL: there are no more. */
BETON_API const dtrain_optimizer_state *dtrain_optimizer_state_at(const dtrain_optimizer *optimizer, int index);
/* NULL: it has none of that name. */
BETON_API const dtrain_optimizer_state *dtrain_optimizer_state_find(const dtrain_optimizer *optimizer,
								    const char *name);
/* Where a state has the elements of the buffer of that index. NULL: it has none, or there is no such buffer. */
BETON_API void *dtrain_optimizer_state_buffer(const dtrain_optimizer *optimizer, const dtrain_optimizer_state *state,
					      int index);

#ifdef __cplusplus
}
#endif

#endif
