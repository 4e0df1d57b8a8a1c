/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "cpu.h"

/* Elements of one piece of work: the arrays' pieces fit the second-level cache. */
#define PIECE CPU_UPDATE_PIECE

typedef struct sgd {
	float *w, *m;
	const float *g;
	float divisor, momentum;
	bool nesterov;
} sgd;

static void update_sgd(const void *context, int64_t begin, int64_t count, float lr, float decay)
{
	const sgd u = *(const sgd *)context;
	float *restrict w = u.w + begin, *restrict m = u.m + begin;
	const float *restrict g = u.g + begin;
	if (u.nesterov)
		for (int64_t i = 0; i < count; i++) {
			float gradient = g[i] / u.divisor + decay * w[i];
			m[i] = u.momentum * m[i] + gradient;
			w[i] -= lr * (gradient + u.momentum * m[i]);
		}
	else
		for (int64_t i = 0; i < count; i++) {
			m[i] = u.momentum * m[i] + g[i] / u.divisor + decay * w[i];
			w[i] -= lr * m[i];
		}
}

/* Updates the parts of a piece that belong to one group at once. */
static void update_piece(cpu_update *update, const void *context, int64_t begin, int64_t count, const float *scalars,
			 const uint8_t *group)
{
	int64_t runs = (count + DTRAIN_PARAM_ALIGN - 1) / DTRAIN_PARAM_ALIGN;
	for (int64_t first = 0, end; first < runs; first = end) {
		for (end = first + 1; end < runs && group[end] == group[first];)
			end++;
		int64_t start = first * DTRAIN_PARAM_ALIGN, stop = end * DTRAIN_PARAM_ALIGN;
		const float *rates = scalars + DTRAIN_UPDATE_SCALARS * group[first];
		update(context, begin + start, (stop < count ? stop : count) - start, rates[0], rates[1]);
	}
}

void cpu_update_all(const struct dtrain_op *op, cpu_update *update, const void *context, const float *scalars,
		    const uint8_t *group)
{
	int64_t count = op->count;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (count > 4 * PIECE)
#endif
	for (int64_t start = 0; start < count; start += PIECE)
		update_piece(update, context, start, count - start < PIECE ? count - start : PIECE, scalars,
			     group + start / DTRAIN_PARAM_ALIGN);
}

static int run_sgd(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)workspace;
	(void)err;
	const float *scaler = op->num_inputs > 5 ? operands[5] : NULL;
	if (scaler && scaler[DTRAIN_SCALER_INFINITE] != 0)
		return BETON_OK;
	const sgd u = {.w = operands[0],
		       .g = operands[1],
		       .m = operands[2],
		       .divisor = (float)op->attrs.sgd.grad_divisor * (scaler ? scaler[DTRAIN_SCALER_SCALE] : 1),
		       .momentum = (float)op->attrs.sgd.momentum,
		       .nesterov = op->attrs.sgd.nesterov};
	cpu_update_all(op, update_sgd, &u, operands[3], operands[4]);
	return BETON_OK;
}

/* Like torch.lerp, which is exact at both ends. */
static void average(float *restrict slow, const float *restrict w, int64_t count, float weight)
{
	if (weight < 0.5f)
		for (int64_t i = 0; i < count; i++)
			slow[i] += weight * (w[i] - slow[i]);
	else
		for (int64_t i = 0; i < count; i++)
			slow[i] = w[i] - (1 - weight) * (w[i] - slow[i]);
}

/* With a second output the values go back to their average, which is still in the cache. */
static int run_average(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)workspace;
	(void)err;
	float *slow = operands[0], *w = operands[1], weight = *(const float *)operands[2];
	bool back = op->num_outputs > 1;
	int64_t all = op->count;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (all > 4 * PIECE)
#endif
	for (int64_t start = 0; start < all; start += PIECE) {
		int64_t count = all - start < PIECE ? all - start : PIECE;
		average(slow + start, w + start, count, weight);
		if (back)
			memcpy(w + start, slow + start, (size_t)count * sizeof(float));
	}
	return BETON_OK;
}

/* As many sums as a register has numbers, each of them of few squares, so that floats are good enough. */
double cpu_squares(const float *g, int64_t count, float inverse)
{
	enum { LANES = 16, ROUNDS = 16 };
	double sum = 0;
	for (int64_t start = 0; start < count; start += LANES * ROUNDS) {
		float lanes[LANES] = {0};
		int64_t left = count - start, rounds = left < LANES * ROUNDS ? left / LANES : ROUNDS;
		const float *x = g + start;
		for (int64_t i = 0; i < rounds; i++, x += LANES)
			for (int k = 0; k < LANES; k++)
				lanes[k] += x[k] * inverse * (x[k] * inverse);
		for (int k = 0; rounds < ROUNDS && k < left % LANES; k++)
			lanes[k] += x[k] * inverse * (x[k] * inverse);
		for (int k = 0; k < LANES; k++)
			sum += (double)lanes[k];
	}
	return sum;
}

static double magnitudes(const float *g, int64_t count, float inverse)
{
	enum { LANES = 16, ROUNDS = 16 };
	double sum = 0;
	for (int64_t start = 0; start < count; start += LANES * ROUNDS) {
		float lanes[LANES] = {0};
		int64_t here = count - start < LANES * ROUNDS ? count - start : LANES * ROUNDS;
		for (int64_t i = 0; i < here; i++)
			lanes[i % LANES] += fabsf(g[start + i] * inverse);
		for (int k = 0; k < LANES; k++)
			sum += (double)lanes[k];
	}
	return sum;
}

static double greater(double a, double b)
{
	return a > b || isnan(a) ? a : b;
}

static double largest(const float *g, int64_t count, float inverse)
{
	float most = 0;
	int nans = 0;
	for (int64_t i = 0; i < count; i++) {
		float x = fabsf(g[i] * inverse);
		most = x > most ? x : most;
		nans |= x != x;
	}
	return nans ? NAN : (double)most;
}

static double total_of(dtrain_norm norm, const float *g, int64_t count, float inverse)
{
	switch (norm) {
	case DTRAIN_NORM_1:
		return magnitudes(g, count, inverse);
	case DTRAIN_NORM_MAX:
		return largest(g, count, inverse);
	default:
		return cpu_squares(g, count, inverse);
	}
}

/* Whichever thread adds up a piece, the pieces' sums are added in their order. */
static int run_grad_norm(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const float *g = operands[0], *scaler = op->num_inputs > 2 ? operands[2] : NULL;
	float inverse = 1 / ((float)op->attrs.clip.grad_divisor * (scaler ? scaler[DTRAIN_SCALER_SCALE] : 1));
	float *clip = operands[op->num_inputs];
	double *sums = workspace, sum = 0;
	dtrain_norm norm = op->attrs.clip.norm;
	int64_t count = op->count, pieces = (count + PIECE - 1) / PIECE;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (count > 4 * PIECE)
#endif
	for (int64_t i = 0; i < pieces; i++)
		sums[i] = total_of(norm, g + i * PIECE, i + 1 < pieces ? PIECE : count - i * PIECE, inverse);
	for (int64_t i = 0; i < pieces; i++)
		sum = norm == DTRAIN_NORM_MAX ? greater(sums[i], sum) : sum + sums[i];
	memmove(clip, operands[1], DTRAIN_CLIPS * sizeof(*clip));
	float *total = &clip[DTRAIN_CLIP_TOTAL];
	*total = norm == DTRAIN_NORM_MAX ? (float)greater(sum, (double)*total) : *total + (float)sum;
	return BETON_OK;
}

static int has_infinite(const float *g, int64_t count)
{
	int found = 0;
	for (int64_t i = 0; i < count; i++)
		found |= !(fabsf(g[i]) <= FLT_MAX);
	return found;
}

/* g, scaler -> scaler: in place */
static int run_inspect(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)workspace;
	(void)err;
	const float *g = operands[0];
	int64_t count = op->count;
	int found = 0;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) reduction(| : found) if (count > 4 * PIECE)
#endif
	for (int64_t start = 0; start < count; start += PIECE)
		found |= has_infinite(g + start, count - start < PIECE ? count - start : PIECE);
	float *infinite = (float *)operands[2] + DTRAIN_SCALER_INFINITE;
	*infinite = found ? 1 : op->attrs.inspect.more ? *infinite : 0;
	return BETON_OK;
}

void cpu_build_grad_norm(cpu_build *build)
{
	cpu_output(build, 0, cpu_plain_md(build, &build->desc->outputs[0]));
	build->workspace = (size_t)((build->op->count + PIECE - 1) / PIECE) * sizeof(double);
	build->op->finish = run_grad_norm;
}

void cpu_build_optimizer(cpu_build *build)
{
	for (int i = 0; i < build->desc->num_outputs; i++)
		cpu_output(build, i, cpu_plain_md(build, &build->desc->outputs[i]));
	build->op->finish = build->desc->kind == DTRAIN_OP_SGD              ? run_sgd
			    : build->desc->kind == DTRAIN_OP_SCALER_INSPECT ? run_inspect
									    : run_average;
}
