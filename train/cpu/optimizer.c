/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"

/* Elements of one piece of work, a multiple of DTRAIN_PARAM_ALIGN: the three arrays' pieces fit the second-level cache.
 */
#define PIECE 16384

typedef struct update {
	float divisor, lr, decay, momentum;
	bool nesterov;
} update;

static void update_piece(float *restrict w, const float *restrict g, float *restrict m, int64_t count, update u)
{
	if (u.nesterov)
		for (int64_t i = 0; i < count; i++) {
			float gradient = g[i] / u.divisor + u.decay * w[i];
			m[i] = u.momentum * m[i] + gradient;
			w[i] -= u.lr * (gradient + u.momentum * m[i]);
		}
	else
		for (int64_t i = 0; i < count; i++) {
			m[i] = u.momentum * m[i] + g[i] / u.divisor + u.decay * w[i];
			w[i] -= u.lr * m[i];
		}
}

/* What one group has of the piece is updated at once. */
static void update_groups(float *w, const float *g, float *m, int64_t count, const uint8_t *group, const float *scalars,
			  update u)
{
	int64_t runs = (count + DTRAIN_PARAM_ALIGN - 1) / DTRAIN_PARAM_ALIGN;
	for (int64_t first = 0, end; first < runs; first = end) {
		for (end = first + 1; end < runs && group[end] == group[first];)
			end++;
		int64_t start = first * DTRAIN_PARAM_ALIGN, stop = end * DTRAIN_PARAM_ALIGN;
		u.lr = scalars[DTRAIN_SGD_SCALARS * group[first]];
		u.decay = scalars[DTRAIN_SGD_SCALARS * group[first] + 1];
		update_piece(w + start, g + start, m + start, (stop < count ? stop : count) - start, u);
	}
}

static int run_sgd(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)workspace;
	(void)err;
	float *w = operands[0], *m = operands[2];
	const float *g = operands[1], *scalars = operands[3];
	const uint8_t *group = operands[4];
	update u = {.divisor = (float)op->attrs.sgd.grad_divisor,
		    .momentum = (float)op->attrs.sgd.momentum,
		    .nesterov = op->attrs.sgd.nesterov};
	int64_t count = op->count;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (count > 4 * PIECE)
#endif
	for (int64_t start = 0; start < count; start += PIECE)
		update_groups(w + start, g + start, m + start, count - start < PIECE ? count - start : PIECE,
			      group + start / DTRAIN_PARAM_ALIGN, scalars, u);
	return BETON_OK;
}

/* As torch.lerp, which is exact at both ends. */
static void look_ahead(float *restrict slow, float *restrict w, int64_t count, float weight)
{
	if (weight < 0.5f)
		for (int64_t i = 0; i < count; i++)
			w[i] = slow[i] += weight * (w[i] - slow[i]);
	else
		for (int64_t i = 0; i < count; i++)
			w[i] = slow[i] = w[i] - (1 - weight) * (w[i] - slow[i]);
}

static int run_lookahead(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)workspace;
	(void)err;
	float *slow = operands[0], *w = operands[1], weight = *(const float *)operands[2];
	int64_t count = op->count;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (count > 4 * PIECE)
#endif
	for (int64_t start = 0; start < count; start += PIECE)
		look_ahead(slow + start, w + start, count - start < PIECE ? count - start : PIECE, weight);
	return BETON_OK;
}

void cpu_build_optimizer(cpu_build *build)
{
	for (int i = 0; i < 2; i++)
		cpu_output(build, i, cpu_plain_md(build, &build->desc->outputs[i].shape));
	build->op->finish = build->desc->kind == DTRAIN_OP_SGD ? run_sgd : run_lookahead;
}
