/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRAMS_PLAN_ANSWER_H
#define PROGRAMS_PLAN_ANSWER_H

#include "engine/example.h"
#include "engine/memory/recompute_option.h"
#include "engine/memory/time_plan.h"
#include "gpus.h"
#include "options/device_choice.h"

typedef struct plan_options {
	engine_example_options
		example;       /* batch_size 0: the largest that fits, or the usual one if no memory is known */
	const char *optimizer; /* NULL: the task's usual one */
	run_device_choice device;
	const dtrain__gpu *gpu; /* a GPU that is described in place of a device; NULL: none is named */
	int precision;          /* engine_precision; -1: what the device is made for */
	engine_recompute recompute;
	int offload;                          /* engine_offload */
	uint64_t ranks, shard, micro_batches; /* shard 0: none is asked for */
	uint64_t memory;                      /* bytes of a rank; 0: the described GPU's */
	engine_speed speed;                   /* 0: the device's, or the described GPU's */
	double prefetch_mb;                   /* below 0: the default */
	bool keep_gathered;
	dtrain_compression compression; /* method: a name, which outlives the answer */
} plan_options;

/* Prints the table, and what fits. *fits: whether anything does, or no memory was given. */
int plan_answer(const plan_options *options, bool *fits, beton_error *err);

#endif
