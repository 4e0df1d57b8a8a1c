/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops on rows: norms, gates, dropout and the rotation of positions.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "core/chunks.h"
#include "core/shape.h"
#include "cpu.h"

/* Rows, or elements, of a piece of work. The sums of gradients over the rows of a piece are added in the order of the
 * pieces, so that they do not depend on threads. */
enum { ROWS = 32, ELEMENTS = 16384 };

static int64_t piece_end(int64_t first, int64_t piece, int64_t count)
{
	return count - first < piece ? count : first + piece;
}

static int norm_forward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const void *x = cpu_plain(op, 0, operands, workspace);
	const float *gamma = cpu_plain(op, 1, operands, workspace);
	const float *beta = op->num_inputs > 2 ? cpu_plain(op, 2, operands, workspace) : NULL;
	void *y = operands[op->num_inputs];
	float *const *figures = (float *const *)operands + op->num_inputs + 1;
	float epsilon = (float)op->attrs.norm.epsilon;
	int64_t columns = op->channels, rows = op->count / columns;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > 4 * ELEMENTS)
#endif
	for (int64_t i = 0; i < rows; i++) {
		const void *row = cpu_from(op, x, i * columns);
		void *to = cpu_to(op, y, i * columns);
		if (op->num_outputs > 2)
			op->rows->layer_norm(to, row, gamma, beta, columns, epsilon, figures[0] + i, figures[1] + i);
		else
			op->rows->rms_norm(to, row, gamma, columns, epsilon, figures[0] + i);
	}
	return BETON_OK;
}

/* x, d_y, gamma, statistics, [addend] -> d_x, d_gamma, [d_beta] */
static int norm_backward(const struct dtrain_op *op, void *const *operands, void *workspace, bool centered)
{
	const void *x = cpu_plain(op, 0, operands, workspace), *d_y = cpu_plain(op, 1, operands, workspace);
	const float *gamma = cpu_plain(op, 2, operands, workspace), *first = cpu_plain(op, 3, operands, workspace);
	const float *var = centered ? cpu_plain(op, 4, operands, workspace) : NULL;
	const int last = centered ? 5 : 4;
	const void *addend = op->num_inputs > last ? cpu_plain(op, last, operands, workspace) : NULL;
	void *d_x = operands[op->num_inputs];
	float *const *out = (float *const *)operands + op->num_inputs, epsilon = (float)op->attrs.norm.epsilon;
	int64_t columns = op->channels, rows = op->count / columns, pieces = (rows + ROWS - 1) / ROWS;
	int sums = op->num_outputs - 1;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > 4 * ELEMENTS)
#endif
	for (int64_t p = 0; p < pieces; p++) {
		float *d_gamma = cpu_own_scratch(op, (int)p, workspace), *d_beta = sums > 1 ? d_gamma + columns : NULL;
		memset(d_gamma, 0, (size_t)(sums * columns) * sizeof(float));
		for (int64_t i = p * ROWS; i < piece_end(p * ROWS, ROWS, rows); i++) {
			const void *row = cpu_from(op, x, i * columns), *d_row = cpu_from(op, d_y, i * columns);
			const void *more = addend ? cpu_from(op, addend, i * columns) : NULL;
			void *to = cpu_to(op, d_x, i * columns);
			if (centered)
				op->rows->layer_norm_back(to, d_gamma, d_beta, row, d_row, more, gamma, columns,
							  first[i], 1 / sqrtf(var[i] + epsilon));
			else
				op->rows->rms_norm_back(to, d_gamma, row, d_row, more, gamma, columns, first[i]);
		}
	}
	for (int k = 0; k < sums; k++)
		memset(out[1 + k], 0, (size_t)columns * sizeof(float));
	for (int64_t p = 0; p < pieces; p++)
		for (int k = 0; k < sums; k++)
			op->device->vector->f32->add(
				out[1 + k], (float *)cpu_own_scratch(op, (int)p, workspace) + k * columns, columns);
	return BETON_OK;
}

static int layer_norm_backward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	return norm_backward(op, operands, workspace, true);
}

static int rms_norm_backward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	return norm_backward(op, operands, workspace, false);
}

void cpu_build_row_norm(cpu_build *build)
{
	const dtrain_op_desc *desc = build->desc;
	bool forward = desc->kind == DTRAIN_OP_LAYER_NORM || desc->kind == DTRAIN_OP_RMS_NORM;
	int64_t columns = build->op->channels = dtrain_shape_count(&desc->inputs[forward ? 1 : 2].shape);
	int64_t pieces = (build->op->count / columns + ROWS - 1) / ROWS;
	if (forward)
		cpu_build_function(build, 0, 0, norm_forward);
	else
		cpu_build_function(build, (size_t)((desc->num_outputs - 1) * columns) * sizeof(float), (int)pieces,
				   desc->kind == DTRAIN_OP_LAYER_NORM_BWD ? layer_norm_backward : rms_norm_backward);
}

static int gate(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const void *a = cpu_plain(op, 0, operands, workspace), *b = cpu_plain(op, 1, operands, workspace);
	const void *d_y = op->num_inputs > 2 ? cpu_plain(op, 2, operands, workspace) : NULL;
	void *const *out = operands + op->num_inputs;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > 4 * ELEMENTS)
#endif
	for (int64_t i = 0; i < op->count; i += ELEMENTS) {
		int64_t count = piece_end(i, ELEMENTS, op->count) - i;
		const void *from = cpu_from(op, a, i), *other = cpu_from(op, b, i);
		if (d_y)
			op->rows->swiglu_back(cpu_to(op, out[0], i), cpu_to(op, out[1], i), from, other,
					      cpu_from(op, d_y, i), count);
		else
			op->rows->swiglu(cpu_to(op, out[0], i), from, other, count);
	}
	return BETON_OK;
}

void cpu_build_gated(cpu_build *build)
{
	cpu_build_function(build, 0, 0, gate);
}

/* Elements first ... end of a row. */
static void drop(const struct dtrain_op *op, const void *x, void *y, const int64_t *random, int64_t row, int64_t first,
		 int64_t end, int64_t each)
{
	const dtrain_dropout_attrs *a = &op->attrs.dropout;
	float factor = (float)(1 / (1 - a->p));
	uint64_t at = (uint64_t)dtrain__dropout_number(*a, random, row);
	/* The least word that keeps: its quotient by 2^32 is at least p. */
	double limit = ceil(a->p * 0x1p32);
	bool none = limit > UINT32_MAX;
	uint32_t threshold = none ? UINT32_MAX : (uint32_t)limit;
	const void *from = cpu_from(op, x, row * each + first);
	void *to = cpu_to(op, y, row * each + first);
	float one = 1;
	if (a->per_row)
		op->device->vector->f32->dropout(&one, &one, 1, at, random, a->layer, threshold, factor);
	if (none || (a->per_row && one == 0))
		memset(to, 0, (size_t)(end - first) * op->element);
	else if (a->per_row)
		op->rows->scale(to, from, factor, end - first);
	else
		op->rows->dropout(to, from, end - first, at * (uint64_t)each + (uint64_t)first, random, a->layer,
				  threshold, factor);
}

static int run_dropout(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const void *x = cpu_plain(op, 0, operands, workspace);
	const int64_t *random = cpu_plain(op, 1, operands, workspace);
	void *y = operands[op->num_inputs];
	int64_t rows = dtrain__dropout_pieces(op->attrs.dropout, op->shapes[0].dim[0]);
	int64_t each = op->count / rows, pieces = (each + ELEMENTS - 1) / ELEMENTS;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > 4 * ELEMENTS)
#endif
	for (int64_t i = 0; i < rows * pieces; i++) {
		int64_t first = i % pieces * ELEMENTS;
		drop(op, x, y, random, i / pieces, first, piece_end(first, ELEMENTS, each), each);
	}
	return BETON_OK;
}

void cpu_build_dropout(cpu_build *build)
{
	cpu_build_function(build, 0, 0, run_dropout);
}

/* ---- rotation: the cosines and sines of a position serve all heads of a row ---- */

/* speed [half]: of each pair, in radians. */
static void turn(const double *speed, int64_t half, int64_t position, bool inverse, float *cosine, float *sine)
{
	for (int64_t i = 0; i < half; i++) {
		double angle = (double)position * speed[i];
		cosine[i] = (float)cos(angle);
		sine[i] = (float)(inverse ? -sin(angle) : sin(angle));
	}
}

/* The op's table has the speeds, and without positions as an operand the cosines and sines of 0 ... t - 1. */
static int run_rotary(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const dtrain_rotary_attrs *a = &op->attrs.rotary;
	const void *x = cpu_plain(op, 0, operands, workspace);
	const int64_t *position = op->num_inputs > 1 ? cpu_plain(op, 1, operands, workspace) : NULL;
	void *y = operands[op->num_inputs];
	int64_t t = op->shapes[0].dim[1], columns = op->shapes[0].dim[2], half = a->head_dim / 2;
	bool of_rows = position && op->shapes[1].ndim == 2;
	const double *speed = op->table;
	const float *turns = (const float *)(speed + half);
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > 4 * ELEMENTS)
#endif
	for (int64_t row = 0; row < op->count / columns; row++) {
		const float *cosine = turns + row % t * 2 * half;
		float *own = cpu_own_scratch(op, omp_get_thread_num(), workspace);
		if (position)
			turn(speed, half, position[of_rows ? row : row % t], a->inverse, own, own + half);
		if (position)
			cosine = own;
		op->rows->rotate(cpu_to(op, y, row * columns), cpu_from(op, x, row * columns), columns, a->head_dim,
				 a->interleaved, cosine, cosine + half);
	}
	return BETON_OK;
}

void cpu_build_rotary(cpu_build *build)
{
	const dtrain_rotary_attrs *a = &build->desc->attrs.rotary;
	int64_t half = a->head_dim / 2, t = build->desc->num_inputs > 1 ? 0 : build->desc->inputs[0].shape.dim[1];
	double *speed = malloc((size_t)half * sizeof(double) + 2 * (size_t)(t * half) * sizeof(float));
	float *turns = (float *)(speed + half);
	build->op->table = speed;
	if (!speed) {
		build->status = bt_fail(build->err, BETON_NO_MEMORY, "out of memory for rotations of %lld positions",
					(long long)t);
		return;
	}
	for (int64_t i = 0; i < half; i++)
		speed[i] = pow(a->theta, -2 * (double)i / a->head_dim);
	for (int64_t row = 0; row < t; row++)
		turn(speed, half, row, a->inverse, turns + row * 2 * half, turns + (row * 2 + 1) * half);
	cpu_build_function(build, 2 * (size_t)half * sizeof(float), build->device->threads, run_rotary);
}
