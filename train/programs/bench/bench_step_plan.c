/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_step_plan.h"

#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "common/error.h"
#include "engine/memory/recompute_option.h"

static int print_text(bench_job *job, beton_error *err)
{
	char *table = NULL, *text = NULL;
	int status = engine_recompute_table(&job->engine, &table, err);
	if (status == BETON_OK)
		status = dtrain_program_plan(job->engine.train.program, &text, err);
	if (status == BETON_OK && printf("%s\n%s", table, text) < 0)
		status = bt_fail(err, BETON_IO, "cannot write the plan");
	free(table);
	free(text);
	return status;
}

static int add_plan(bench_job *job, json_t *plans, int index, beton_error *err)
{
	dtrain_program_info info = {.struct_size = sizeof(info)};
	const char *name = engine_recompute_name(index);
	engine_recompute how;
	int status = engine_recompute_parse("--recompute", name, &how, err);
	if (status == BETON_OK)
		status = engine_recompute_measure(&job->engine, how, &info, err);
	if (status != BETON_OK)
		return status;
	json_t *plan = json_pack("{s:I, s:I, s:I, s:f, s:f}", "arena_bytes", (json_int_t)info.arena_bytes,
				 "workspace_bytes", (json_int_t)info.workspace_bytes, "repeated_ops",
				 (json_int_t)info.repeated, "flops", info.flops, "repeated_flops", info.repeated_flops);
	return json_object_set_new(plans, name, plan) == 0 ? BETON_OK
							   : bt_fail(err, BETON_NO_MEMORY, "out of memory for plans");
}

static int print_json(bench_job *job, beton_error *err)
{
	json_t *plans = json_object();
	int status = BETON_OK;
	for (int i = 0; engine_recompute_name(i) && status == BETON_OK; i++)
		status = add_plan(job, plans, i, err);
	json_t *all = json_pack("{s:s, s:I, s:o}", "model", job->options->model, "batch_size",
				(json_int_t)job->options->batch, "plans", plans);
	if (status == BETON_OK && (json_dumpf(all, stdout, 0) != 0 || putchar('\n') == EOF))
		status = bt_fail(err, BETON_IO, "cannot write the plan");
	json_decref(all);
	return status;
}

int bench_step_plan(const bench_step_options *options, beton_error *err)
{
	bench_job job;
	int status = bench_job_open(&job, options, err);
	if (status == BETON_OK)
		status = options->json ? print_json(&job, err) : print_text(&job, err);
	bench_job_close(&job);
	return status;
}
