/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross entropy of logits whose classes are divided among ranks: this rank's numbers of each row, and the gradient of
 * its logits. A thread has whole rows, so that sums do not depend on threads.
 */
#include <math.h>
#include <string.h>

#include "cpu.h"

/* A rank's numbers: the logarithm of the sum of exponentials, the label's logit, the sum of logits. */
enum { LOG_SUM, CHOSEN, TOTAL, NUMBERS };

typedef struct part {
	const struct dtrain_op *op;
	const void *logits;
	const int64_t *label;
	int64_t rows, classes;
	void *workspace;
} part;

static part part_of(const struct dtrain_op *op, void *const *operands, void *workspace)
{
	return (part){.op = op,
		      .logits = cpu_plain(op, 0, operands, workspace),
		      .label = cpu_plain(op, 1, operands, workspace),
		      .rows = op->shapes[0].dim[0],
		      .classes = op->shapes[0].dim[1],
		      .workspace = workspace};
}

static bool is_ignored(const part *p, int64_t row)
{
	int64_t ignored = p->op->attrs.loss.ignored;
	return ignored < 0 && p->label[row] == ignored;
}

/* The label's class among this rank's; -1: another rank has it. */
static int64_t own_class(const part *p, int64_t row)
{
	int64_t class_number = p->label[row] - p->op->attrs.loss.first;
	return class_number >= 0 && class_number < p->classes ? class_number : -1;
}

/* The logits of a row as floats, in the thread's memory. */
static float *row_of(const part *p, int64_t row)
{
	float *floats = cpu_own_scratch(p->op, omp_get_thread_num(), p->workspace);
	p->op->rows->widen(floats, cpu_from(p->op, p->logits, row * p->classes), p->classes);
	return floats;
}

/* The sum that softmax_sums returns is of differences to the largest logit, whose size hides a small sum. */
static float sum_of(const float *x, int64_t count)
{
	double lanes[8] = {0}, sum = 0;
	int64_t whole = count & ~INT64_C(7);
	for (int64_t i = 0; i < whole; i += 8)
		for (int k = 0; k < 8; k++)
			lanes[k] += (double)x[i + k];
	for (int64_t i = whole; i < count; i++)
		sum += (double)x[i];
	for (int k = 0; k < 8; k++)
		sum += lanes[k];
	return (float)sum;
}

static int forward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const part p = part_of(op, operands, workspace);
	float *out = operands[op->num_inputs], *own = out + op->attrs.loss.rank * NUMBERS * p.rows;
	memset(out, 0, (size_t)(op->ranks * NUMBERS * p.rows) * sizeof(float));
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(op->device->threads)
#endif
	for (int64_t n = 0; n < p.rows; n++) {
		if (is_ignored(&p, n))
			continue;
		const float *logits = row_of(&p, n);
		float most, sum, unused;
		op->device->vector->softmax_sums(logits, p.classes, &most, &sum, &unused);
		own[LOG_SUM * p.rows + n] = most + logf(sum);
		own[CHOSEN * p.rows + n] = own_class(&p, n) >= 0 ? logits[own_class(&p, n)] : 0;
		own[TOTAL * p.rows + n] = sum_of(logits, p.classes);
	}
	return BETON_OK;
}

/* d_log_sum * exp(logit - log_sum) + d_total, and at the label d_chosen. */
static int backward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const part p = part_of(op, operands, workspace);
	const int64_t at = op->attrs.loss.rank * NUMBERS * p.rows;
	const float *numbers = (const float *)cpu_plain(op, 2, operands, workspace) + at;
	const float *gradients = (const float *)cpu_plain(op, 3, operands, workspace) + at;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(op->device->threads)
#endif
	for (int64_t n = 0; n < p.rows; n++) {
		void *to = cpu_to(op, operands[op->num_inputs], n * p.classes);
		if (is_ignored(&p, n)) {
			memset(to, 0, (size_t)p.classes * op->element);
			continue;
		}
		float *row = row_of(&p, n);
		float d_total = gradients[TOTAL * p.rows + n];
		op->device->vector->softmax_gradient(row, p.classes, numbers[LOG_SUM * p.rows + n],
						     gradients[LOG_SUM * p.rows + n], -d_total, 1);
		if (own_class(&p, n) >= 0)
			row[own_class(&p, n)] += gradients[CHOSEN * p.rows + n];
		op->rows->narrow(to, row, 1, p.classes);
	}
	return BETON_OK;
}

void cpu_build_xent_part(cpu_build *build)
{
	const dtrain_op_desc *desc = build->desc;
	bool trains = desc->kind == DTRAIN_OP_XENT_PART_BWD;
	const dtrain_operand *numbers = trains ? &desc->inputs[2] : &desc->outputs[0];
	build->op->ranks = numbers->shape.dim[0];
	cpu_build_function(build, (size_t)desc->inputs[0].shape.dim[1] * sizeof(float), build->device->threads,
			   trains ? backward : forward);
}
