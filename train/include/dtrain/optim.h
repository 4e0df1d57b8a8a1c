/* SPDX-License-Identifier: Apache-2.0
 *
 * Companions of an optimizer (<dtrain/optimizer.h>): dynamic loss scaling as torch.amp.GradScaler, and schedules of
 * learning rates and of Lookahead.
 */
#ifndef DTRAIN_OPTIM_H
#define DTRAIN_OPTIM_H

#include <dtrain/params.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Dynamic loss scaling, for graphs in F16, where small gradients would become 0. The graph gets the scaler's memory
 * (dtrain_graph_set_scaler) and multiplies all gradients by its scale. The optimizer gets the scaler, divides by the
 * scale, and skips a step if a gradient is infinite or NaN. Everything runs on the device: the scale starts at 65536,
 * is halved with each skipped step, and doubled after 2000 steps in a row that were not skipped. */
typedef struct dtrain_scaler dtrain_scaler;

/* The device must outlive the scaler, and the scaler its graphs and optimizers. The initial state is put on the
 * stream. */
BETON_API int dtrain_scaler_create(dtrain_device *device, dtrain_stream *stream, dtrain_scaler **out, beton_error *err);
BETON_API void dtrain_scaler_destroy(dtrain_scaler **scaler);
/* The state, f32 [DTRAIN_SCALERS] in device memory (enum dtrain_scaler_element): for graphs, step metrics and
 * checkpoints.
 */
BETON_API void *dtrain_scaler_memory(const dtrain_scaler *scaler);

/* Lookahead's weight (dtrain_optimizer_look_ahead) after step `step` (from 1) of total_steps; pure. If every divides
 * step: 1 - 0.95^every * (step / total_steps)^3, as in the CIFAR-10 recipe airbench94 (K. Jordan 2024), where every is
 * 5. At the last step: 0, which leaves the slow weights. At other steps, and if every or total_steps is
 * below 1: -1, nothing to do. */
BETON_API double dtrain_lookahead_weight(int64_t every, int64_t step, int64_t total_steps);

/* The weight of a moving average's (dtrain_optimizer_average) update number `update`, from 1; pure. Without warm_up:
 * 1 - decay, as timm's ModelEmaV2. With it the average begins as a copy and its decay rises to `decay`, as timm's
 * ModelEmaV3 with use_warmup: after n updates 1 - (n + 1)^(-2/3), if that is less. */
BETON_API double dtrain_average_weight(double decay, bool warm_up, int64_t update);

/* Schedules of the learning rate. */
typedef enum dtrain_schedule_kind {
	DTRAIN_SCHEDULE_CONSTANT = 0,
	DTRAIN_SCHEDULE_LINEAR = 1, /* falls to final_lr */
	DTRAIN_SCHEDULE_COSINE = 2, /* half a cosine, falls to final_lr */
	DTRAIN_SCHEDULE_WSD = 3,    /* warm-up, stable, decay: falls linearly to final_lr in the last decay_steps */
	/* final_lr + (lr - final_lr) * (1 - share)^power, share: of the steps after the warm-up. Without a warm-up and
	 * with final_lr 0: torch.optim.lr_scheduler.PolynomialLR */
	DTRAIN_SCHEDULE_POLYNOMIAL = 4,
	/* lr * factor^n, n: milestones at or before the step; torch.optim.lr_scheduler.MultiStepLR */
	DTRAIN_SCHEDULE_STEP = 5,
} dtrain_schedule_kind;

/* The rate rises linearly over warmup_steps to lr, then follows kind until total_steps. */
typedef struct dtrain_schedule {
	dtrain_schedule_kind kind;
	double lr;
	double final_lr;
	int64_t warmup_steps;
	int64_t total_steps;
	double initial_lr;   /* at step 0; rises linearly to lr at step warmup_steps. 0: starts at lr / warmup_steps and
				rises linearly to lr at the last step of the warm-up */
	int64_t decay_steps; /* of WSD, without those in the warm-up */
	double power;        /* of POLYNOMIAL: > 0 */
	const int64_t *milestones; /* of STEP: steps of the whole run, as many as num_milestones */
	int32_t num_milestones;
	double factor; /* of STEP */
} dtrain_schedule;

/* The rate for a step, counted from 0; pure. At total_steps it is final_lr, except of CONSTANT and STEP. */
BETON_API double dtrain_schedule_lr(const dtrain_schedule *schedule, int64_t step);

#ifdef __cplusplus
}
#endif

#endif
