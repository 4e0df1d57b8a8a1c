/* SPDX-License-Identifier: Apache-2.0
 *
 * LAMB and LARS, whose rates depend on norms of whole parameters: one pass for each piece's sums of squares, one over
 * the sums of a parameter in the order of its pieces, and one for the values. So the bits do not depend on the threads.
 * LAMB moves 40 bytes for an element, LARS 28.
 */
#include <math.h>

#include "cpu.h"

/* A piece's sums of squares: of its values, and of the gradients or updates they are compared with. */
typedef struct sums {
	double weights, others;
} sums;

typedef struct trust {
	float *w, *m, *v;
	const float *g, *scalars;
	const uint8_t *group;
	float inverse; /* of the divisor */
	const dtrain_op_attrs *attrs;
	float correction1, correction2; /* of LAMB: their reciprocals */
	sums *sums;                     /* [pieces] */
	float *ratios;                  /* [pieces], set for the first piece of each parameter */
} trust;

typedef void first_pass(const trust *t, int64_t begin, int64_t count, float decay, sums *out);
typedef float ratio_of(const trust *t, double weights, double others, float decay);
typedef void last_pass(const trust *t, int64_t begin, int64_t count, float lr, float decay, float ratio);

/* Elements of u that are in memory at once. */
enum { BLOCK = 1024 };

static inline float direction(const trust *t, float w, float m, float v, float epsilon, float decay)
{
	return m * t->correction1 / (sqrtf(v) * t->correction2 + epsilon) + decay * w;
}

static void first_of_lamb(const trust *t, int64_t begin, int64_t count, float decay, sums *out)
{
	const dtrain_adam_attrs *a = &t->attrs->adam;
	const trust u = *t;
	const float rise1 = (float)(1 - a->beta1), keep2 = (float)a->beta2, rise2 = (float)(1 - a->beta2);
	const float epsilon = (float)a->epsilon;
	float *restrict m = u.m + begin, *restrict v = u.v + begin;
	const float *restrict g = u.g + begin, *restrict w = u.w + begin;
	out->weights = cpu_squares(w, count, 1);
	for (int64_t start = 0, end; start < count; start = end) {
		float x[BLOCK];
		end = count - start < BLOCK ? count : start + BLOCK;
		for (int64_t i = start; i < end; i++) {
			float gradient = g[i] * u.inverse;
			m[i] += rise1 * (gradient - m[i]);
			v[i] = keep2 * v[i] + rise2 * gradient * gradient;
			x[i - start] = direction(&u, w[i], m[i], v[i], epsilon, decay);
		}
		out->others += cpu_squares(x, end - start, 1);
	}
}

static float ratio_of_lamb(const trust *t, double weights, double others, float decay)
{
	(void)t;
	return decay != 0 && weights > 0 && others > 0 ? (float)(sqrt(weights) / sqrt(others)) : 1;
}

static void last_of_lamb(const trust *t, int64_t begin, int64_t count, float lr, float decay, float ratio)
{
	const trust u = *t;
	const float epsilon = (float)u.attrs->adam.epsilon;
	float *restrict w = u.w + begin;
	const float *restrict m = u.m + begin, *restrict v = u.v + begin;
	for (int64_t i = 0; i < count; i++)
		w[i] -= lr * (direction(&u, w[i], m[i], v[i], epsilon, decay) * ratio);
}

static void first_of_lars(const trust *t, int64_t begin, int64_t count, float decay, sums *out)
{
	(void)decay;
	out->weights = cpu_squares(t->w + begin, count, 1);
	out->others = cpu_squares(t->g + begin, count, t->inverse);
}

static float ratio_of_lars(const trust *t, double weights, double others, float decay)
{
	const dtrain_lars_attrs *a = &t->attrs->lars;
	double norm = sqrt(weights), gradient = sqrt(others);
	return decay != 0 && norm > 0 && gradient > 0
		       ? (float)(a->trust * norm / (gradient + (double)decay * norm + a->epsilon))
		       : 1;
}

static void last_of_lars(const trust *t, int64_t begin, int64_t count, float lr, float decay, float ratio)
{
	const trust u = *t;
	const float momentum = (float)u.attrs->lars.momentum;
	const bool nesterov = u.attrs->lars.nesterov;
	float *restrict w = u.w + begin, *restrict m = u.m + begin;
	const float *restrict g = u.g + begin;
	for (int64_t i = 0; i < count; i++) {
		float gradient = (g[i] * u.inverse + decay * w[i]) * ratio;
		m[i] = momentum * m[i] + gradient;
		w[i] -= lr * (nesterov ? gradient + momentum * m[i] : m[i]);
	}
}

static const float *rates_of(const trust *t, const int64_t *piece)
{
	return t->scalars + DTRAIN_UPDATE_SCALARS * t->group[piece[DTRAIN_PIECE_BEGIN] / DTRAIN_PARAM_ALIGN];
}

/* If `first` is the first piece of a parameter, its ratio from the sums of all its pieces. */
static void add_up(const trust *t, const int64_t *pieces, int64_t first, ratio_of *ratio)
{
	const int64_t *piece = pieces + first * DTRAIN_PIECE_NUMBERS;
	sums sum = {0};
	for (int64_t k = first; piece[DTRAIN_PIECE_FIRST] == first && k < first + piece[DTRAIN_PIECE_PARTS]; k++) {
		sum.weights += t->sums[k].weights;
		sum.others += t->sums[k].others;
	}
	t->ratios[first] = ratio(t, sum.weights, sum.others, rates_of(t, piece)[1]);
}

static void run_passes(const struct dtrain_op *op, const trust *t, const int64_t *pieces, first_pass *first,
		       ratio_of *ratio, last_pass *last)
{
	int64_t count = op->pieces;
#ifdef _OPENMP
#pragma omp parallel num_threads(op->device->threads) if (count > 4)
#endif
	{
#ifdef _OPENMP
#pragma omp for
#endif
		for (int64_t k = 0; k < count; k++) {
			const int64_t *piece = pieces + k * DTRAIN_PIECE_NUMBERS;
			t->sums[k] = (sums){0};
			first(t, piece[DTRAIN_PIECE_BEGIN], piece[DTRAIN_PIECE_COUNT], rates_of(t, piece)[1],
			      &t->sums[k]);
		}
#ifdef _OPENMP
#pragma omp for
#endif
		for (int64_t k = 0; k < count; k++)
			add_up(t, pieces, k, ratio);
#ifdef _OPENMP
#pragma omp for
#endif
		for (int64_t k = 0; k < count; k++) {
			const int64_t *piece = pieces + k * DTRAIN_PIECE_NUMBERS;
			const float *rates = rates_of(t, piece);
			last(t, piece[DTRAIN_PIECE_BEGIN], piece[DTRAIN_PIECE_COUNT], rates[0], rates[1],
			     t->ratios[piece[DTRAIN_PIECE_FIRST]]);
		}
	}
}

static int run_lamb(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const float *step = operands[6];
	if (step[DTRAIN_STEP_INFINITE] != 0)
		return BETON_OK;
	const trust t = {.w = operands[0],
			 .g = operands[1],
			 .m = operands[2],
			 .v = operands[3],
			 .scalars = operands[4],
			 .group = operands[5],
			 .inverse = 1 / ((float)op->attrs.adam.grad_divisor * step[DTRAIN_STEP_SCALE]),
			 .attrs = &op->attrs,
			 .correction1 = 1 / step[DTRAIN_STEP_CORRECTION1],
			 .correction2 = 1 / step[DTRAIN_STEP_CORRECTION2],
			 .sums = workspace,
			 .ratios = (float *)((sums *)workspace + op->pieces)};
	run_passes(op, &t, operands[7], first_of_lamb, ratio_of_lamb, last_of_lamb);
	return BETON_OK;
}

static int run_lars(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const float *scaler = op->num_inputs > 6 ? operands[6] : NULL;
	if (scaler && scaler[DTRAIN_SCALER_INFINITE] != 0)
		return BETON_OK;
	const trust t = {.w = operands[0],
			 .g = operands[1],
			 .m = operands[2],
			 .scalars = operands[3],
			 .group = operands[4],
			 .inverse =
				 1 / ((float)op->attrs.lars.grad_divisor * (scaler ? scaler[DTRAIN_SCALER_SCALE] : 1)),
			 .attrs = &op->attrs,
			 .sums = workspace,
			 .ratios = (float *)((sums *)workspace + op->pieces)};
	run_passes(op, &t, operands[5], first_of_lars, ratio_of_lars, last_of_lars);
	return BETON_OK;
}

void cpu_build_trust(cpu_build *build)
{
	bool is_lamb = build->desc->kind == DTRAIN_OP_LAMB;
	for (int i = 0; i < build->desc->num_outputs; i++)
		cpu_output(build, i, cpu_plain_md(build, &build->desc->outputs[i]));
	build->op->pieces = build->desc->inputs[is_lamb ? 7 : 5].shape.dim[0];
	build->workspace = (size_t)build->op->pieces * (sizeof(sums) + sizeof(float));
	build->op->finish = is_lamb ? run_lamb : run_lars;
}
