/* SPDX-License-Identifier: Apache-2.0
 *
 * The family NORM_SYNC: the ops of batch norm over ranks one after the other. A single rank has the only row of the
 * moments that is not 0, so that its gradients are differences of y; with other ranks moments and sums are given.
 */
#include <string.h>

#include "op_run.h"

/* Ranks; this is number RANK, and the third one has no values. */
enum { RANKS = 4, RANK = 1, EMPTY = 2 };

enum {
	X,
	GAMMA,
	BETA,
	RUNNING_MEAN,
	RUNNING_VAR,
	RESIDUAL,
	D_Y,
	MOMENTS,
	Y,
	MEAN,
	VAR,
	MASK,
	SUMS,
	D_GAMMA,
	D_BETA,
	D_X,
	D_RESIDUAL,
	TOTALS,
};

/* Uneven ranks, whose means are far apart; in the last channel all numbers of a rank are the same. */
static void give_ranks(setting *s, int64_t channels)
{
	double *row = s->tensors[MOMENTS].values, *totals = s->tensors[TOTALS].values;
	for (int64_t rank = 0; rank < RANKS; rank++, row += 2 * channels + 1) {
		double count = rank == EMPTY ? 0 : (double)(5 + 37 * rank);
		row[0] = count;
		for (int64_t c = 0; c < channels; c++) {
			row[1 + c] = count > 0 ? (double)((rank * 7 + c * 3) % 11 - 5) / 4 : 0;
			row[1 + channels + c] = c == channels - 1 ? 0 : count * (double)(1 + (rank + c) % 3);
		}
		totals[0] += count;
	}
}

static void declare(setting *s)
{
	const int64_t *size = s->c->x;
	int64_t c = size[1];
	dtrain_shape x = dtrain_shape_of(size[2] ? 4 : 2, size), channels = dtrain_shape_of(1, &c);
	dtrain_shape moments = dtrain_shape_of(2, (int64_t[]){RANKS, 2 * c + 1});
	dtrain_shape sums = dtrain_shape_of(1, (int64_t[]){2 * c + 1});
	bool alone = !s->c->shared;
	s->output = Y;
	s->output_gradient = D_Y;
	input(s, "x", ACTIVATION, x, -2, 3);
	input(s, "gamma", PARAMETER, channels, 0.5, 1.5);
	input(s, "beta", PARAMETER, channels, -1, 1);
	input(s, "running_mean", PARAMETER, channels, -1, 1);
	input(s, "running_var", PARAMETER, channels, 0.5, 2);
	s->tensors[RUNNING_MEAN].result = s->tensors[RUNNING_VAR].result = true;
	input(s, "residual", ACTIVATION, x, -2, 2);
	input(s, "d_y", ACTIVATION, x, -1, 1);
	add_tensor(s, "moments", PARAMETER, moments, alone);
	add_tensor(s, "y", ACTIVATION, x, true);
	add_tensor(s, "mean", PARAMETER, channels, true);
	add_tensor(s, "var", PARAMETER, channels, true);
	add_tensor(s, "mask", PRIVATE, x, false);
	add_tensor(s, "sums", PARAMETER, sums, true);
	add_tensor(s, "d_gamma", PARAMETER, channels, true);
	add_tensor(s, "d_beta", PARAMETER, channels, true);
	add_tensor(s, "d_x", ACTIVATION, x, true);
	add_tensor(s, "d_residual", ACTIVATION, x, s->c->residual);
	input(s, "totals", PARAMETER, sums, -30, 30);
	if (!alone) {
		s->tensors[TOTALS].values[0] = 0;
		give_ranks(s, c);
		return;
	}
	s->tensors[X].gradient = D_X;
	s->tensors[GAMMA].gradient = D_GAMMA;
	s->tensors[BETA].gradient = D_BETA;
	s->tensors[RESIDUAL].gradient = s->c->residual ? D_RESIDUAL : -1;
}

/* One op with its tensors up to the first -1; the mask and the residual are left out where the case has none. */
static int run_one(setting *s, dtrain_op_kind kind, const int *inputs, const int *outputs, beton_error *err)
{
	const dtrain_op_attrs attrs = {.relu = s->c->relu && kind != DTRAIN_OP_BATCH_NORM_MOMENTS,
				       .norm = {.epsilon = 1e-5, .momentum = 0.1, .rank = RANK}};
	int lists[2][DTRAIN_OP_MAX_OPERANDS + 1];
	for (int k = 0; k < 2; k++) {
		int count = 0;
		for (const int *at = k ? outputs : inputs; *at >= 0; at++)
			if (!(*at == MASK && !s->c->relu) &&
			    !((*at == RESIDUAL || *at == D_RESIDUAL) && !s->c->residual))
				lists[k][count++] = *at;
		lists[k][count] = -1;
	}
	return run_op(s, kind, &attrs, lists[0], lists[1], err);
}

int run_norm_sync(setting *s, beton_error *err)
{
	int status = BETON_OK;
	if (!s->count)
		declare(s);
	if (!s->c->shared)
		status =
			run_one(s, DTRAIN_OP_BATCH_NORM_MOMENTS, (const int[]){X, -1}, (const int[]){MOMENTS, -1}, err);
	if (status == BETON_OK)
		status = run_one(s, DTRAIN_OP_BATCH_NORM_SYNC,
				 (const int[]){X, GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR, MOMENTS, RESIDUAL, -1},
				 (const int[]){Y, MEAN, VAR, MASK, -1}, err);
	if (status == BETON_OK)
		status = run_one(s, DTRAIN_OP_BATCH_NORM_SUMS, (const int[]){X, D_Y, MEAN, VAR, MASK, -1},
				 (const int[]){SUMS, D_GAMMA, D_BETA, -1}, err);
	if (status == BETON_OK)
		status = run_one(s, DTRAIN_OP_BATCH_NORM_SYNC_BWD,
				 (const int[]){X, D_Y, GAMMA, MEAN, VAR, s->c->shared ? TOTALS : SUMS, MASK, -1},
				 (const int[]){D_X, D_RESIDUAL, -1}, err);
	return status;
}
