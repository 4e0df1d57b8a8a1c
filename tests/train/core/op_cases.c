/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "op_case.h"

/* Ops whose gradient is not what a backward op makes. */
static const op_case op_cases[] = {
	{ACTIVATED, {2, 16, 4, 4}, .kind = DTRAIN_OP_RELU, .bound = 2e-6},
	{ACTIVATED, {3, 5, 3, 7}, .kind = DTRAIN_OP_RELU, .bound = 2e-6},
	{ACTIVATED, {1, 27, 5, 3}, .kind = DTRAIN_OP_RELU, .bound = 2e-6},
	{ACTIVATED, {2, 16, 4, 4}, .kind = DTRAIN_OP_GELU, .bound = 2e-6},
	{ACTIVATED, {3, 5, 3, 7}, .kind = DTRAIN_OP_GELU, .bound = 2e-6},
	{ACTIVATED, {2, 24, 5, 5}, .kind = DTRAIN_OP_GELU, .bound = 2e-6},
	{ACTIVATED, {2, 16, 4, 4}, .kind = DTRAIN_OP_GELU, .tanh = true, .bound = 2e-6},
	{ACTIVATED, {1, 27, 5, 3}, .kind = DTRAIN_OP_GELU, .tanh = true, .bound = 2e-6},
	{ACTIVATED, {2, 16, 4, 4}, .kind = DTRAIN_OP_SILU, .bound = 2e-6},
	{ACTIVATED, {3, 27, 3, 7}, .kind = DTRAIN_OP_SILU, .bound = 2e-6},
	{LOSS, {4, 10}, .bound = 2e-6},
	{LOSS, {3, 7}, .smoothing = 0.1, .bound = 2e-6},
	{LOSS, {1, 1}, .smoothing = 0.3, .bound = 2e-6},
	{LOSS, {2, 1000}, .smoothing = 1, .bound = 2e-6},
	{LOSS, {4, 10}, .scaled = true, .scale = 1024, .bound = 2e-6},
	{LOSS, {3, 129}, .smoothing = 0.1, .scaled = true, .scale = 8, .bound = 2e-6},
	{LOSS, {7, 10}, .kind = DTRAIN_OP_SOFTMAX_XENT, .ignored = -100, .bound = 2e-6},
	{LOSS,
	 {5, 129},
	 .smoothing = 0.1,
	 .kind = DTRAIN_OP_SOFTMAX_XENT,
	 .ignored = -1,
	 .scaled = true,
	 .scale = 8,
	 .bound = 2e-6},
	{LOSS, {1, 3}, .kind = DTRAIN_OP_SOFTMAX_XENT, .ignored = -100, .bound = 2e-6},
	{LOSS, {4, 10}, .mixed = true, .bound = 2e-6},
	{LOSS, {3, 7}, .mixed = true, .smoothing = 0.1, .bound = 2e-6},
	{LOSS, {1, 1}, .mixed = true, .smoothing = 0.3, .bound = 2e-6},
	{LOSS, {2, 1000}, .mixed = true, .smoothing = 1, .bound = 2e-6},
	{LOSS, {9, 129}, .mixed = true, .smoothing = 0.1, .scaled = true, .scale = 8, .bound = 2e-6},
	{SGD, {1}, 1, .bound = 2e-6},
	{SGD, {1000}, 2, .nesterov = true, .bound = 2e-6},
	{SGD, {100003}, 3, .bound = 2e-6},
	{SGD, {100003}, DTRAIN_PARAM_GROUPS, .nesterov = true, .bound = 2e-6},
	{SGD, {1000}, 1, .scaled = true, .scale = 8, .bound = 2e-6},
	{SGD, {1003}, 5, .nesterov = true, .scaled = true, .scale = 4, .bound = 2e-6},
	{SGD, {1000}, 2, .scaled = true, .scale = 8, .spoil = INFINITE, .bound = 0},
	{UPDATE, {1}, 1, .kind = DTRAIN_OP_ADAM, .bound = 2e-6},
	{UPDATE, {1003}, 5, .kind = DTRAIN_OP_ADAM, .amsgrad = true, .bound = 2e-6},
	{UPDATE, {100003}, 3, .kind = DTRAIN_OP_ADAM, .decoupled = true, .bound = 2e-6},
	{UPDATE, {1000}, 256, .kind = DTRAIN_OP_ADAM, .decoupled = true, .amsgrad = true, .bound = 2e-6},
	{UPDATE, {1003}, 2, .kind = DTRAIN_OP_ADAM, .decoupled = true, .scaled = true, .scale = 8, .bound = 2e-6},
	{UPDATE, {1000}, 2, .kind = DTRAIN_OP_ADAM, .scaled = true, .scale = 8, .spoil = INFINITE, .bound = 0},
	{UPDATE, {1}, 1, .kind = DTRAIN_OP_LION, .bound = 2e-6},
	{UPDATE, {100003}, 3, .kind = DTRAIN_OP_LION, .bound = 2e-6},
	{UPDATE, {1003}, 5, .kind = DTRAIN_OP_LION, .scaled = true, .scale = 8, .bound = 2e-6},
	{UPDATE, {1000}, 5, .kind = DTRAIN_OP_LION, .scaled = true, .scale = 8, .spoil = INFINITE, .bound = 0},
	{UPDATE, {65}, 1, .kind = DTRAIN_OP_LAMB, .bound = 2e-6},
	{UPDATE, {100003}, 3, .kind = DTRAIN_OP_LAMB, .bound = 2e-6},
	{UPDATE, {1003}, 5, .kind = DTRAIN_OP_LAMB, .scaled = true, .scale = 8, .bound = 2e-6},
	{UPDATE, {1000}, 5, .kind = DTRAIN_OP_LAMB, .scaled = true, .scale = 8, .spoil = INFINITE, .bound = 0},
	{UPDATE, {1003}, 5, .kind = DTRAIN_OP_MUON, .decoupled = true, .bound = 2e-5},
	{UPDATE,
	 {100003},
	 3,
	 .kind = DTRAIN_OP_MUON,
	 .decoupled = true,
	 .nesterov = true,
	 .scaled = true,
	 .scale = 8,
	 .bound = 2e-5},
	{UPDATE,
	 {1003},
	 5,
	 .kind = DTRAIN_OP_MUON,
	 .decoupled = true,
	 .scaled = true,
	 .scale = 8,
	 .spoil = INFINITE,
	 .bound = 0},
	{UPDATE, {65}, 1, .kind = DTRAIN_OP_LARS, .bound = 2e-6},
	{UPDATE, {100003}, 3, .kind = DTRAIN_OP_LARS, .nesterov = true, .bound = 2e-6},
	{UPDATE, {1003}, 5, .kind = DTRAIN_OP_LARS, .scaled = true, .scale = 8, .bound = 2e-6},
	{UPDATE, {1000}, 5, .kind = DTRAIN_OP_LARS, .scaled = true, .scale = 8, .spoil = INFINITE, .bound = 0},
	{LOOKAHEAD, {1}, .scale = 0.25, .bound = 2e-7},
	{LOOKAHEAD, {1003}, .scale = 0.75, .bound = 2e-7},
	{LOOKAHEAD, {100003}, .scale = 0.999, .bound = 2e-7},
	/* Exact at both ends. */
	{LOOKAHEAD, {1000}, .scale = 0, .bound = 0},
	{LOOKAHEAD, {1000}, .scale = 1, .bound = 0},
	/* Codes and pairs are sent, and have the same bits everywhere. */
	{CODES, {1}, .bound = 0},
	{CODES, {1003}, .bound = 0},
	{CODES, {100003}, .bound = 0},
	{PAIRS, {1}, 1, .bound = 0},
	{PAIRS, {1003}, 1003, .bound = 0},
	{PAIRS, {100003}, 1000, .bound = 0},
	{COLUMNS, {1, 1}, .bound = 2e-6},
	{COLUMNS, {5, 5}, .bound = 2e-5},
	{COLUMNS, {1000, 4}, .bound = 2e-6},
	{NORMALIZE, {2, 3, 8, 8}, .bound = 2e-7},
	{NORMALIZE, {3, 3, 5, 7}, .bound = 2e-7},
	{NORMALIZE, {1, 1, 3, 1}, .bound = 2e-7},
	{NORMALIZE, {2, 4, 9, 2}, .bound = 2e-7},
	{NORM_SYNC, {2, 16, 4, 4}, .bound = 1e-5},
	{NORM_SYNC, {3, 5, 3, 7}, .relu = true, .bound = 1e-5},
	{NORM_SYNC, {5, 33, 1, 1}, .relu = true, .bound = 1e-5},
	{NORM_SYNC, {300, 20}, .bound = 1e-5},
	{NORM_SYNC, {3, 5, 5, 4}, .relu = true, .residual = true, .bound = 1e-5},
	{NORM_SYNC, {7, 12}, .relu = true, .residual = true, .bound = 1e-5},
	{NORM_SYNC, {2, 16, 4, 4}, .relu = true, .shared = true, .bound = 1e-5},
	{NORM_SYNC, {1, 3, 5, 7}, .shared = true, .bound = 1e-5},
	{NORM_SYNC, {1, 9}, .shared = true, .bound = 1e-5}, /* a value in each channel */
	{NORM_SYNC, {3, 24, 3, 3}, .relu = true, .residual = true, .shared = true, .bound = 1e-5},
	/* The scaler's arithmetic is exact. */
	{SCALER, {1000}, .scale = 65536, .bound = 0},
	{SCALER, {1000}, .scale = 65536, .good = 1998, .bound = 0},
	{SCALER, {1000}, .scale = 65536, .good = 1999, .bound = 0},
	{SCALER, {1}, .scale = 0x1p127, .good = 1999, .bound = 0}, /* twice that is infinite: it stays */
	{SCALER, {1000}, .scale = 65536, .good = 1999, .spoil = INFINITE, .bound = 0},
	{SCALER, {100003}, .scale = 1, .good = 5, .spoil = NOT_A_NUMBER, .bound = 0},
	{SCALER, {1}, .scale = 65536, .good = 3, .spoil = INFINITE, .bound = 0},
};

#define OP_CASES ((int)(sizeof(op_cases) / sizeof(op_cases[0])))

/* Whether an example is run with a copy of its weight, too: one in three of the examples with a weight. */
static bool runs_with_copy(dtrain_op_kind kind, int index)
{
	return kind != DTRAIN_OP_CAST && strchr(dtrain__op_rules_of(kind)->inputs, 'W') && index % 3 == 0;
}

const op_case *all_cases(int *count)
{
	static op_case list[512];
	int n = 0;
	for (int k = 0; k < DTRAIN_OP_KIND_COUNT; k++) {
		const dtrain__op_rules *rules = dtrain__op_rules_of((dtrain_op_kind)k);
		for (int i = 0; i < rules->num_cases; i++) {
			op_case *c = &list[n++];
			assert_true(n + OP_CASES <= (int)(sizeof(list) / sizeof(list[0])));
			*c = (op_case){
				.kind = (dtrain_op_kind)k, .example = &rules->cases[i], .bound = rules->cases[i].bound};
			snprintf(c->name, sizeof(c->name), "example %d of %s", i, dtrain__op_name(c->kind));
			if (!runs_with_copy(c->kind, i))
				continue;
			op_case *with_copy = &list[n++];
			*with_copy = *c;
			with_copy->copies = true;
			snprintf(with_copy->name, sizeof(with_copy->name), "example %d of %s with a copy", i,
				 dtrain__op_name(c->kind));
		}
	}
	for (int i = 0; i < OP_CASES; i++, n++) {
		list[n] = op_cases[i];
		snprintf(list[n].name, sizeof(list[n].name), "case %d", i);
	}
	*count = n;
	return list;
}
