/* SPDX-License-Identifier: Apache-2.0
 *
 * Muon: one pass over all pieces computes the moments, and AdamW's update of parameters that are not matrices; one
 * writes the matrices, scaled by their norms, to scratch memory; then come the Newton-Schulz steps of all matrices of a
 * shape at once, and one pass for the values. Sums of squares are added in the order of pieces and products have tiles
 * of fixed size, so the bits do not depend on the threads.
 */
#include <math.h>
#include <string.h>

#include "cpu.h"

typedef struct muon {
	float *w, *m, *v;
	const float *g, *scalars;
	const uint8_t *group;
	const int64_t *pieces;
	float inverse; /* of the divisor */
	const dtrain_muon_attrs *attrs;
	float correction1, correction2; /* of AdamW; the latter: its reciprocal */
	double *squares;                /* [pieces]: of the update */
	float *inverses;                /* [pieces]: of the norm, at the first piece of each matrix */
	float *x, *y;                   /* all matrices; matrices of one shape */
	float *gram, *polynomial;       /* [count, edge, edge] of one shape */
} muon;

/* A pass over a piece; rates: its rate and decay. */
typedef void pass(const muon *t, int64_t index, const int64_t *piece, const float *rates);

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void update_rest(const muon *t, int64_t begin, int64_t count, float lr, float decay)
{
	const dtrain_adam_attrs *a = &t->attrs->adamw;
	const float rise1 = (float)(1 - a->beta1), keep2 = (float)a->beta2, rise2 = (float)(1 - a->beta2);
	const float epsilon = (float)a->epsilon, inverse = t->inverse, correction2 = t->correction2;
	const float rate = (float)((double)lr * t->attrs->adamw_lr_scale), keep = 1 - rate * decay;
	const float scaled = rate / t->correction1;
	float *restrict w = t->w + begin, *restrict m = t->m + begin, *restrict v = t->v + begin;
	const float *restrict g = t->g + begin;
	for (int64_t i = 0; i < count; i++) {
		float gradient = g[i] * inverse;
		m[i] += rise1 * (gradient - m[i]);
		v[i] = keep2 * v[i] + rise2 * gradient * gradient;
		w[i] = w[i] * keep - scaled * m[i] / (sqrtf(v[i]) * correction2 + epsilon);
	}
}

/* Nesterov's update of `count` elements, from the new momentum. */
static void find_update(const muon *t, int64_t begin, int64_t count, float factor, float *restrict out)
{
	const float momentum = (float)t->attrs->momentum, inverse = t->inverse;
	const float *restrict m = t->m + begin, *restrict g = t->g + begin;
	for (int64_t i = 0; i < count; i++) {
		float gradient = g[i] * inverse;
		out[i] = (gradient + momentum * (m[i] - gradient)) * factor;
	}
}

static void update_moments(const muon *t, int64_t index, const int64_t *piece, const float *rates)
{
	enum { BLOCK = 1024 };
	const float rise = (float)(1 - t->attrs->momentum), inverse = t->inverse;
	int64_t begin = piece[DTRAIN_PIECE_BEGIN], end = begin + piece[DTRAIN_PIECE_COUNT];
	t->squares[index] = 0;
	if (piece[DTRAIN_PIECE_PLACE] < 0) {
		update_rest(t, begin, end - begin, rates[0], rates[1]);
		return;
	}
	for (int64_t start = begin; start < end; start += BLOCK) {
		float update[BLOCK];
		int64_t count = least(BLOCK, end - start);
		float *restrict m = t->m + start;
		const float *restrict g = t->g + start;
		for (int64_t i = 0; i < count; i++)
			m[i] += rise * (g[i] * inverse - m[i]);
		find_update(t, start, count, 1, update);
		t->squares[index] += cpu_squares(update, count, 1);
	}
}

static void find_norm(const muon *t, int64_t index, const int64_t *piece, const float *rates)
{
	(void)rates;
	double sum = 0;
	for (int64_t i = 0; piece[DTRAIN_PIECE_FIRST] == index && i < piece[DTRAIN_PIECE_PARTS]; i++)
		sum += t->squares[index + i];
	t->inverses[index] = (float)(1 / fmax(sqrt(sum), 1e-7));
}

static void write_matrix(const muon *t, int64_t index, const int64_t *piece, const float *rates)
{
	(void)index;
	(void)rates;
	if (piece[DTRAIN_PIECE_PLACE] >= 0)
		find_update(t, piece[DTRAIN_PIECE_BEGIN], piece[DTRAIN_PIECE_COUNT],
			    t->inverses[piece[DTRAIN_PIECE_FIRST]], t->x + piece[DTRAIN_PIECE_PLACE]);
}

static void update_values(const muon *t, int64_t index, const int64_t *piece, const float *rates)
{
	(void)index;
	if (piece[DTRAIN_PIECE_PLACE] < 0)
		return;
	const float lr = rates[0], keep = 1 - rates[0] * rates[1];
	float *restrict w = t->w + piece[DTRAIN_PIECE_BEGIN];
	const float *restrict x = t->x + piece[DTRAIN_PIECE_PLACE];
	for (int64_t i = 0; i < piece[DTRAIN_PIECE_COUNT]; i++)
		w[i] = w[i] * keep - lr * x[i];
}

static void run_pass(const struct dtrain_op *op, const muon *t, pass *run)
{
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->pieces > 4)
#endif
	for (int64_t k = 0; k < op->pieces; k++) {
		const int64_t *piece = t->pieces + k * DTRAIN_PIECE_NUMBERS;
		int64_t group = t->group[piece[DTRAIN_PIECE_BEGIN] / DTRAIN_PARAM_ALIGN];
		run(t, k, piece, t->scalars + DTRAIN_UPDATE_SCALARS * group);
	}
}

static double factor_of(const dtrain_muon_attrs *attrs, const dtrain_matrices *shape)
{
	double rows = (double)shape->rows, columns = (double)shape->columns;
	return attrs->match_rms_adamw ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
}

/* polynomial = factor * (a + b gram + c gram gram), which is in its memory at first. */
static void add_polynomial(const struct dtrain_op *op, const muon *t, int64_t count, int64_t edge, double factor)
{
	const float a = (float)(3.4445 * factor), b = (float)(-4.7750 * factor), c = (float)(2.0315 * factor);
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (count * edge * edge > 65536)
#endif
	for (int64_t row = 0; row < count * edge; row++) {
		float *restrict out = t->polynomial + row * edge;
		const float *restrict gram = t->gram + row * edge;
		for (int64_t k = 0; k < edge; k++)
			out[k] = b * gram[k] + c * out[k];
		out[row % edge] += a;
	}
	(void)op;
}

/* The product with the shorter side's Gram matrix is from the left for wide matrices, and from the right for tall ones.
 */
static int orthogonalize(const struct dtrain_op *op, const muon *t, const dtrain_matrices *shape, beton_error *err)
{
	const bool tall = shape->rows > shape->columns;
	const int64_t rows = shape->rows, columns = shape->columns, edge = tall ? columns : rows;
	float *x = t->x + shape->place, *y = t->y;
	for (int32_t k = 0; k < t->attrs->steps; k++) {
		const cpu_product gram = {.of_a = tall ? 'T' : 'N',
					  .of_b = tall ? 'N' : 'T',
					  .m = edge,
					  .n = edge,
					  .k = tall ? rows : columns,
					  .alpha = 1,
					  .a = x,
					  .b = x,
					  .a_step = columns,
					  .b_step = columns,
					  .c = t->gram};
		const cpu_product square = {.of_a = 'N',
					    .of_b = 'N',
					    .m = edge,
					    .n = edge,
					    .k = edge,
					    .alpha = 1,
					    .a = t->gram,
					    .b = t->gram,
					    .a_step = edge,
					    .b_step = edge,
					    .c = t->polynomial};
		const cpu_product next = {.of_a = 'N',
					  .of_b = 'N',
					  .m = rows,
					  .n = columns,
					  .k = edge,
					  .alpha = 1,
					  .a = tall ? x : t->polynomial,
					  .b = tall ? t->polynomial : x,
					  .a_step = tall ? columns : edge,
					  .b_step = columns,
					  .c = y};
		int64_t step = rows * columns, square_step = edge * edge;
		float *other = x;
		int status = cpu_products(op, &gram, shape->count, step, step, NULL, err);
		if (status == BETON_OK)
			status = cpu_products(op, &square, shape->count, square_step, square_step, NULL, err);
		if (status != BETON_OK)
			return status;
		add_polynomial(op, t, shape->count, edge, k + 1 < t->attrs->steps ? 1 : factor_of(t->attrs, shape));
		status = cpu_products(op, &next, shape->count, tall ? step : square_step, tall ? square_step : step,
				      NULL, err);
		if (status != BETON_OK)
			return status;
		x = y;
		y = other;
	}
	if (x != t->x + shape->place)
		memcpy(y, x, (size_t)(shape->count * rows * columns) * sizeof(float));
	return BETON_OK;
}

/* The elements of a scratch memory's parts. */
typedef struct sizes {
	int64_t all, one, squares;
} sizes;

static sizes sizes_of(const dtrain_muon_attrs *attrs)
{
	sizes s = {0};
	for (int32_t i = 0; i < attrs->num_matrices; i++) {
		const dtrain_matrices *m = &attrs->matrices[i];
		int64_t edge = least(m->rows, m->columns), elements = m->count * m->rows * m->columns;
		int64_t squares = m->count * edge * edge;
		s.all = m->place + elements;
		s.one = elements > s.one ? elements : s.one;
		s.squares = squares > s.squares ? squares : s.squares;
	}
	return s;
}

static int run(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	const float *step = operands[6];
	const dtrain_muon_attrs *attrs = &op->attrs.muon;
	if (step[DTRAIN_STEP_INFINITE] != 0)
		return BETON_OK;
	const sizes s = sizes_of(attrs);
	muon t = {.w = operands[0],
		  .g = operands[1],
		  .m = operands[2],
		  .v = operands[3],
		  .scalars = operands[4],
		  .group = operands[5],
		  .pieces = operands[7],
		  .inverse = 1 / ((float)attrs->adamw.grad_divisor * step[DTRAIN_STEP_SCALE]),
		  .attrs = attrs,
		  .correction1 = step[DTRAIN_STEP_CORRECTION1],
		  .correction2 = 1 / step[DTRAIN_STEP_CORRECTION2],
		  .squares = workspace};
	t.inverses = (float *)(t.squares + op->pieces);
	t.x = t.inverses + op->pieces;
	t.y = t.x + s.all;
	t.gram = t.y + s.one;
	t.polynomial = t.gram + s.squares;
	run_pass(op, &t, update_moments);
	if (!attrs->num_matrices)
		return BETON_OK;
	run_pass(op, &t, find_norm);
	run_pass(op, &t, write_matrix);
	int status = BETON_OK;
	for (int32_t i = 0; i < attrs->num_matrices && status == BETON_OK; i++)
		status = orthogonalize(op, &t, &attrs->matrices[i], err);
	if (status == BETON_OK)
		run_pass(op, &t, update_values);
	return status;
}

void cpu_build_muon(cpu_build *build)
{
	const sizes s = sizes_of(&build->desc->attrs.muon);
	for (int i = 0; i < build->desc->num_outputs; i++)
		cpu_output(build, i, cpu_plain_md(build, &build->desc->outputs[i]));
	build->op->pieces = build->desc->inputs[7].shape.dim[0];
	build->workspace = (size_t)build->op->pieces * (sizeof(double) + sizeof(float)) +
			   (size_t)(s.all + s.one + 2 * s.squares) * sizeof(float);
	build->op->finish = run;
}
