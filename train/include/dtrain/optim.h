/* SPDX-License-Identifier: Apache-2.0
 *
 * SGD as PyTorch's torch.optim.SGD, Lookahead, dynamic loss scaling as torch.amp.GradScaler, and learning-rate
 * schedules.
 */
#ifndef DTRAIN_OPTIM_H
#define DTRAIN_OPTIM_H

#include <dtrain/params.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Dynamic loss scaling, for graphs in F16: small gradients would be lost there. The loss is given the scaler's memory
 * (dtrain_graph_set_scaler), which multiplies all gradients by its scale; SGD is given the scaler, divides by the
 * scale, and leaves a step out when a gradient has become infinite or NaN. All of that goes on on the device: the scale
 * starts at 65536, is halved with each step left out, and doubled after 2000 steps in a row that were not. */
typedef struct dtrain_scaler dtrain_scaler;

/* The device must outlive the scaler, the scaler whoever was given it. The initial state is put on the stream. */
BETON_API int dtrain_scaler_create(dtrain_device *device, dtrain_stream *stream, dtrain_scaler **out, beton_error *err);
BETON_API void dtrain_scaler_destroy(dtrain_scaler **scaler);
/* The state, f32 [DTRAIN_SCALERS] in device memory (enum dtrain_scaler_element): for graphs, figures and checkpoints.
 */
BETON_API void *dtrain_scaler_memory(const dtrain_scaler *scaler);

/* Parameters that are updated alike, as PyTorch's param groups. */
typedef struct dtrain_sgd_group {
	double lr_scale;     /* >= 0; the rate is lr_scale times that of the step */
	double weight_decay; /* >= 0 */
} dtrain_sgd_group;

typedef struct dtrain_sgd_options {
	size_t struct_size;
	double momentum;             /* 0 .. <1; default 0.9 */
	bool nesterov;               /* default false; needs momentum > 0 */
	double weight_decay;         /* >= 0, on every parameter; default 0; with groups not used */
	const dtrain_scaler *scaler; /* of the loss whose gradients are used; default NULL */
	/* 1 to DTRAIN_SGD_GROUPS groups, and for each parameter, by its index, the number of its group; NULL: all in
	 * group 0. Both are copied. Default: none, which is one group of lr_scale 1 and the weight_decay above. */
	const dtrain_sgd_group *groups;
	int32_t num_groups;
	const uint8_t *group_of;
	double grad_divisor; /* > 0 and finite: gradients are divided by it before all else; default 1. The size of the
				group where DDP has added up the gradients of its ranks */
} dtrain_sgd_options;

typedef struct dtrain_sgd dtrain_sgd;

BETON_API void dtrain_sgd_options_init(dtrain_sgd_options *options);
BETON_API int dtrain_sgd_create(dtrain_params *params, const dtrain_sgd_options *options, dtrain_sgd **out,
				beton_error *err);
BETON_API void dtrain_sgd_destroy(dtrain_sgd **sgd);
/* One update of all parameters, in two parts. set_rate copies the step's scalars to the device. apply puts ops alone on
 * the stream, the same in each step, so that it can be part of a capture: with a scaler it first inspects the gradients
 * (reduced over the ranks, so that all ranks see the same), and at last updates the scaler. */
BETON_API int dtrain_sgd_set_rate(dtrain_sgd *sgd, double lr, dtrain_stream *stream, beton_error *err);
BETON_API int dtrain_sgd_apply(dtrain_sgd *sgd, dtrain_stream *stream, beton_error *err);
/* Both in turn. */
BETON_API int dtrain_sgd_step(dtrain_sgd *sgd, double lr, dtrain_stream *stream, beton_error *err);
/* Changes a group from the next set_rate on; a captured step follows. INVALID_ARGUMENT when there is no such group, or
 * a number is negative or not finite. */
BETON_API int dtrain_sgd_set_group(dtrain_sgd *sgd, int32_t group, double lr_scale, double weight_decay,
				   beton_error *err);
/* The momentum array over the flat space (device memory), for checkpoints. */
BETON_API void *dtrain_sgd_momentum(const dtrain_sgd *sgd);

/* Lookahead (Zhang et al. 2019): beside each weight and each element of a buffer a slow one, which now and then is
 * drawn towards it, and which it then starts from again. */
typedef struct dtrain_lookahead dtrain_lookahead;

/* params must be allocated, and outlive it. STATE: they are not. */
BETON_API int dtrain_lookahead_create(dtrain_params *params, dtrain_lookahead **out, beton_error *err);
/* What was put on streams must be complete. */
BETON_API void dtrain_lookahead_destroy(dtrain_lookahead **lookahead);
/* Puts on the stream: the slow weights become the parameters and buffers as they are. Before the first step, unless the
 * state comes from a checkpoint. */
BETON_API int dtrain_lookahead_start(dtrain_lookahead *lookahead, dtrain_stream *stream, beton_error *err);
/* Puts on the stream: slow += weight * (fast - slow); fast = slow. weight: 0 (back to the slow ones) to 1 (they catch
 * up). Waits only for the copy of the weight of the step before. */
BETON_API int dtrain_lookahead_step(dtrain_lookahead *lookahead, double weight, dtrain_stream *stream,
				    beton_error *err);
/* The weight for a step that was the step'th (from 1) of total_steps; pure. 1 - 0.95^every * (step / total_steps)^3, as
 * in the CIFAR-10 recipe airbench94 (K. Jordan 2024), where every is 5, when every divides step. At other steps there
 * is nothing to do, which is -1, but at the last, where what is left are the slow weights: 0. */
BETON_API double dtrain_lookahead_weight(int64_t every, int64_t step, int64_t total_steps);
/* The slow weights, for checkpoints: an array on the device, over the flat space and, behind that, over the buffers.
 * count: of its elements. */
BETON_API void *dtrain_lookahead_slow(const dtrain_lookahead *lookahead, int64_t *count);
/* Where in it the buffer of that index is. */
BETON_API void *dtrain_lookahead_slow_buffer(const dtrain_lookahead *lookahead, int index);

typedef enum dtrain_schedule_kind {
	DTRAIN_SCHEDULE_CONSTANT = 0,
	DTRAIN_SCHEDULE_LINEAR = 1, /* down to final_lr */
	DTRAIN_SCHEDULE_COSINE = 2, /* half a cosine down to final_lr */
} dtrain_schedule_kind;

/* The rate rises linearly over warmup_steps to lr, then follows kind until total_steps. */
typedef struct dtrain_schedule {
	dtrain_schedule_kind kind;
	double lr;
	double final_lr;
	int64_t warmup_steps;
	int64_t total_steps;
	double initial_lr; /* of step 0, from where it is a line to lr at step warmup_steps; 0: lr / warmup_steps, from
			      where it is one to lr at the last step of the warm-up */
} dtrain_schedule;

/* The rate for a step counted from 0; pure. Step total_steps has final_lr. */
BETON_API double dtrain_schedule_lr(const dtrain_schedule *schedule, int64_t step);

#ifdef __cplusplus
}
#endif

#endif
