/* SPDX-License-Identifier: Apache-2.0
 *
 * The question of the command line, with the model's engine open for plans. */
#ifndef PROGRAMS_PLAN_QUESTION_H
#define PROGRAMS_PLAN_QUESTION_H

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

typedef struct plan_question {
	const plan_options *options;
	engine_example example;
	engine_rank engine;
	const dtrain__gpu *gpu; /* that is described; NULL: the device is here */
	size_t limit;           /* bytes of a rank; 0: not known */
	bool finds_batch;       /* the largest that fits, for each layout */
	engine_speed speed;     /* 0: not known */
} plan_question;

/* options must outlive out, whose address must not change. Close it even on failure. */
int plan_question_open(plan_question *out, const plan_options *options, beton_error *err);
void plan_question_close(plan_question *question);

#endif
