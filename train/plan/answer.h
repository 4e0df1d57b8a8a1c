/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAN_ANSWER_H
#define PLAN_ANSWER_H

#include "engine/example.h"
#include "engine/recompute.h"
#include "run/device_choice.h"

typedef struct plan_options {
	engine_example_options example;
	const char *optimizer; /* NULL: the task's usual one */
	run_device_choice device;
	int precision; /* engine_precision */
	engine_recompute recompute;
	int offload;                 /* engine_offload */
	uint64_t ranks, shard, runs; /* shard 0: none is asked for */
	uint64_t memory;             /* bytes of a rank; 0: not given */
	double prefetch_mb;          /* below 0: the default */
	bool keep_gathered;
	dtrain_compression compression; /* method: a name, which outlives the answer */
} plan_options;

/* Prints the table, and what fits. *fits: whether anything does, or no memory was given. */
int plan_answer(const plan_options *options, bool *fits, beton_error *err);

#endif
