/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam, AdamW and Lion. All are limited by memory: Adam moves 28 bytes for an element (36 with amsgrad), Lion 20. A
 * loop has few divisions, and no branch, so that vectors of four elements are fast enough for that.
 */
#include <math.h>

#include "cpu.h"

/* ---- Adam ---- */

typedef struct adam {
	float *w, *m, *v, *most;
	const float *g;
	float inverse, rise1, keep2, rise2, epsilon; /* inverse: of the divisor; rise: 1 - beta */
	float correction1, correction2;              /* the latter: its reciprocal */
} adam;

/* decoupled and amsgrad are constants of the caller, so that the loop has no branch. */
__attribute__((always_inline)) static inline void update(const adam *context, int64_t begin, int64_t count, float lr,
							 float decay, bool decoupled, bool amsgrad)
{
	const adam u = *context;
	float *restrict w = u.w + begin, *restrict m = u.m + begin, *restrict v = u.v + begin;
	float *restrict most = amsgrad ? u.most + begin : NULL;
	const float *restrict g = u.g + begin;
	const float keep = decoupled ? (float)(1 - (double)lr * (double)decay) : 1, rate = lr / u.correction1;
	for (int64_t i = 0; i < count; i++) {
		float x = w[i] * keep, gradient = g[i] * u.inverse;
		if (!decoupled)
			gradient += decay * x;
		m[i] += u.rise1 * (gradient - m[i]);
		v[i] = u.keep2 * v[i] + u.rise2 * gradient * gradient;
		float second = v[i];
		if (amsgrad)
			most[i] = second = most[i] > second ? most[i] : second;
		w[i] = x - rate * m[i] / (sqrtf(second) * u.correction2 + u.epsilon);
	}
}

static void update_adamw(const void *context, int64_t begin, int64_t count, float lr, float decay)
{
	update(context, begin, count, lr, decay, true, false);
}

static void update_adamw_amsgrad(const void *context, int64_t begin, int64_t count, float lr, float decay)
{
	update(context, begin, count, lr, decay, true, true);
}

static void update_adam(const void *context, int64_t begin, int64_t count, float lr, float decay)
{
	update(context, begin, count, lr, decay, false, false);
}

static void update_adam_amsgrad(const void *context, int64_t begin, int64_t count, float lr, float decay)
{
	update(context, begin, count, lr, decay, false, true);
}

static int run_adam(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)workspace;
	(void)err;
	static cpu_update *const updates[2][2] = {{update_adam, update_adam_amsgrad},
						  {update_adamw, update_adamw_amsgrad}};
	const dtrain_adam_attrs *a = &op->attrs.adam;
	const float *step = operands[6];
	if (step[DTRAIN_STEP_INFINITE] != 0)
		return BETON_OK;
	const adam u = {.w = operands[0],
			.g = operands[1],
			.m = operands[2],
			.v = operands[3],
			.most = a->amsgrad ? operands[7] : NULL,
			.inverse = 1 / ((float)a->grad_divisor * step[DTRAIN_STEP_SCALE]),
			.rise1 = (float)(1 - a->beta1),
			.keep2 = (float)a->beta2,
			.rise2 = (float)(1 - a->beta2),
			.epsilon = (float)a->epsilon,
			.correction1 = step[DTRAIN_STEP_CORRECTION1],
			.correction2 = 1 / step[DTRAIN_STEP_CORRECTION2]};
	cpu_update_all(op, updates[a->decoupled][a->amsgrad], &u, operands[4], operands[5]);
	return BETON_OK;
}

/* ---- Lion ---- */

typedef struct lion {
	float *w, *m;
	const float *g;
	float inverse, keep1, rise1, keep2, rise2;
} lion;

static void update_lion(const void *context, int64_t begin, int64_t count, float lr, float decay)
{
	const lion u = *(const lion *)context;
	float *restrict w = u.w + begin, *restrict m = u.m + begin;
	const float *restrict g = u.g + begin;
	const float keep = (float)(1 - (double)lr * (double)decay);
	for (int64_t i = 0; i < count; i++) {
		float gradient = g[i] * u.inverse, direction = u.keep1 * m[i] + u.rise1 * gradient;
		float x = w[i] * keep;
		w[i] = x - lr * (float)((direction > 0) - (direction < 0));
		m[i] = u.keep2 * m[i] + u.rise2 * gradient;
	}
}

static int run_lion(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)workspace;
	(void)err;
	const dtrain_lion_attrs *a = &op->attrs.lion;
	const float *scaler = op->num_inputs > 5 ? operands[5] : NULL;
	if (scaler && scaler[DTRAIN_SCALER_INFINITE] != 0)
		return BETON_OK;
	const lion u = {.w = operands[0],
			.g = operands[1],
			.m = operands[2],
			.inverse = 1 / ((float)a->grad_divisor * (scaler ? scaler[DTRAIN_SCALER_SCALE] : 1)),
			.keep1 = (float)a->beta1,
			.rise1 = (float)(1 - a->beta1),
			.keep2 = (float)a->beta2,
			.rise2 = (float)(1 - a->beta2)};
	cpu_update_all(op, update_lion, &u, operands[3], operands[4]);
	return BETON_OK;
}

void cpu_build_adaptive(cpu_build *build)
{
	for (int i = 0; i < build->desc->num_outputs; i++)
		cpu_output(build, i, cpu_plain_md(build, &build->desc->outputs[i]));
	build->op->finish = build->desc->kind == DTRAIN_OP_ADAM ? run_adam : run_lion;
}
