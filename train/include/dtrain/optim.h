/* SPDX-License-Identifier: Apache-2.0
 *
 * SGD as PyTorch's torch.optim.SGD, and learning-rate schedules.
 */
#ifndef DTRAIN_OPTIM_H
#define DTRAIN_OPTIM_H

#include <dtrain/params.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtrain_sgd_options {
	size_t struct_size;
	double momentum;     /* 0 .. <1; default 0.9 */
	bool nesterov;       /* default false; needs momentum > 0 */
	double weight_decay; /* >= 0, on every parameter; default 0 */
} dtrain_sgd_options;

typedef struct dtrain_sgd dtrain_sgd;

BETON_API void dtrain_sgd_options_init(dtrain_sgd_options *options);
BETON_API int dtrain_sgd_create(dtrain_params *params, const dtrain_sgd_options *options, dtrain_sgd **out,
				beton_error *err);
BETON_API void dtrain_sgd_destroy(dtrain_sgd **sgd);
/* Puts one update of all parameters on the stream. */
BETON_API int dtrain_sgd_step(dtrain_sgd *sgd, double lr, dtrain_stream *stream, beton_error *err);
/* The momentum array over the flat space (device memory), for checkpoints. */
BETON_API void *dtrain_sgd_momentum(const dtrain_sgd *sgd);

typedef enum dtrain_schedule_kind {
	DTRAIN_SCHEDULE_CONSTANT = 0,
	DTRAIN_SCHEDULE_LINEAR = 1, /* down to final_lr */
	DTRAIN_SCHEDULE_COSINE = 2, /* half a cosine down to final_lr */
} dtrain_schedule_kind;

/* lr rises linearly over warmup_steps, then follows kind until total_steps. */
typedef struct dtrain_schedule {
	dtrain_schedule_kind kind;
	double lr;
	double final_lr;
	int64_t warmup_steps;
	int64_t total_steps;
} dtrain_schedule;

/* The rate for a step counted from 0; pure. The first warm-up step has lr / warmup_steps, step total_steps has
 * final_lr. */
BETON_API double dtrain_schedule_lr(const dtrain_schedule *schedule, int64_t step);

#ifdef __cplusplus
}
#endif

#endif
