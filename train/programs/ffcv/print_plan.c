/* SPDX-License-Identifier: Apache-2.0 */
#include "print_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "engine/memory/memory_plan.h"
#include "engine/memory/recompute_option.h"
#include "options/options_table.h"
#include "report/device_activity.h"

/* Tensors that are listed, unless all are wanted. */
enum { LARGEST = 8 };

static void print_bytes(const char *what, size_t bytes)
{
	if (bytes)
		printf("  %-26s %12.3f MB\n", what, (double)bytes / 1e6);
}

/* All ranks need as much, unless they have stages of a pipeline. */
static const char *rank_name(const run_session *session)
{
	return session->engine.stages.schedule ? "rank 0" : "each rank";
}

static void print_memory(const run_session *session, const engine_memory *memory)
{
	const engine_rank *engine = &session->engine;
	/* The shared parameters and their momentum. */
	size_t outer = session->local ? 2 * memory->parameters : 0;
	/* Gathered values, and gradients on their way to a shard, are placed with the activations. */
	const struct {
		const char *what;
		size_t bytes;
	} lines[] = {{"parameters", memory->parameters},
		     {"gradients", memory->gradients},
		     {"optimizer state", memory->states - outer},
		     {"outer optimizer", outer},
		     {"scratch memory, updates", memory->updates},
		     {"compute copies", memory->copies},
		     {"sums of gradients", memory->sums},
		     {"compression of gradients", memory->compression},
		     {"buffers", memory->buffers},
		     {"activations, training", memory->activations[0]},
		     {"units in flight, training", memory->transients[0]},
		     {"scratch memory, training", memory->scratch[0]},
		     {"activations, evaluation", memory->activations[1]},
		     {"units in flight, evaluation", memory->transients[1]},
		     {"scratch memory, evaluation", memory->scratch[1]},
		     {engine->staged ? "batches" : "batches, training", memory->batches[0]},
		     {engine->staged ? "batches" : "batches, evaluation", memory->batches[1]},
		     {"all of these", engine_memory_total(memory)}};
	printf("memory of %s on device %s:\n", rank_name(session), engine->api->name);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		print_bytes(lines[i].what, lines[i].bytes);
}

/* Before the run: a device that is busy, hot or slow now will be so in training. */
static void print_activity(const engine_rank *engine)
{
	dtrain_device_activity now;
	char text[RUN_ACTIVITY_TEXT], reasons[RUN_ACTIVITY_TEXT];
	if (!engine->api->get_activity || engine->api->get_activity(engine->device, &now, NULL) != BETON_OK)
		return;
	if (!*run_activity_text(&now, text))
		return;
	run_activity_reasons(now.throttled, reasons);
	printf("the device now: %s%s%s", text, *reasons ? "; throttled: " : "", reasons);
	if (now.memory_used >= 0 && now.memory_total > 0)
		printf("; %.1f of %.1f GB used by all processes", (double)now.memory_used / 1e9,
		       (double)now.memory_total / 1e9);
	putchar('\n');
}

static void print_traffic(const engine_memory *memory, const char *who)
{
	if (!engine_memory_traffic(memory))
		return;
	printf("sent by %s in a step:\n", who);
	print_bytes("gathers of units", memory->gathered);
	print_bytes("gradients to shards", memory->scattered);
	print_bytes("sums over data ranks", memory->added_up);
	print_bytes("collectives of layers", memory->exchanged);
	print_bytes("messages to other stages", memory->passed);
}

/* A rank of a pipeline, as the other ranks hear of it. */
typedef struct stage_memory {
	int32_t rank;
	engine_memory memory;
} stage_memory;

/* Collective. The memory of each rank of the pipeline; all ranks of a stage have as much. */
static int print_stages(const run_session *session, const engine_memory *memory, beton_error *err)
{
	const dtrain_pipeline_schedule *schedule = session->engine.stages.schedule;
	const stage_memory mine = {.rank = session->engine.stages.rank, .memory = *memory};
	dtrain_work *work = NULL;
	if (!schedule)
		return BETON_OK;
	stage_memory *all = calloc((size_t)session->world_size, sizeof(*all));
	if (!all)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the plans of %d ranks", session->world_size);
	int status =
		dtrain_all_gather(session->slow_group, all, &mine, (int64_t)sizeof(mine), DTRAIN_U8, NULL, &work, err);
	if (status == BETON_OK)
		status = dtrain_work_wait(&work, err);
	if (status == BETON_OK && session->rank == 0)
		puts("memory of each rank of the pipeline, in MB:\n"
		     "  rank stages     parameters    gradients    optimizer  activations          all");
	for (int32_t rank = 0; rank < schedule->ranks && status == BETON_OK && session->rank == 0; rank++) {
		const stage_memory *at = all;
		char stages[64] = "";
		while (at->rank != rank)
			at++;
		const engine_memory *m = &at->memory;
		for (int32_t i = 0; i < schedule->stages; i++)
			if (schedule->rank_of_stage[i] == rank)
				bt_append(stages, sizeof(stages), "%s%d", *stages ? "," : "", i);
		printf("  %4d %-7s %13.3f %12.3f %12.3f %12.3f %12.3f\n", rank, stages,
		       (double)(m->parameters + m->copies + m->buffers) / 1e6,
		       (double)(m->gradients + m->sums + m->compression) / 1e6, (double)(m->states + m->updates) / 1e6,
		       (double)(m->activations[0] + m->scratch[0] + m->transients[0]) / 1e6,
		       (double)engine_memory_total(m) / 1e6);
	}
	free(all);
	return status;
}

/* Ranks with different samples. */
static int ranks_of(const run_session *session)
{
	return session->mesh ? session->data_ranks : session->world_size;
}

/* The layout that the run has. */
static engine_layout layout_of(const run_session *session)
{
	dtrain_sync_info info = {.struct_size = sizeof(info)};
	dtrain_sync_get_info(session->engine.sync, 1, &info);
	return (engine_layout){.strategy = session->engine.strategy.strategy,
			       .ranks = ranks_of(session),
			       .shard = info.shards < ranks_of(session) ? info.shards : 0};
}

/* A table of the memory that each strategy would need. */
static int make_strategies(const run_session *session, char **out, beton_error *err)
{
	const engine_layout chosen = layout_of(session);
	engine_layout layouts[ENGINE_LAYOUTS];
	engine_memory_row rows[ENGINE_LAYOUTS];
	const engine_memory_table_options options = {.chosen = &chosen};
	int count = engine_layouts(ranks_of(session), chosen.shard, &chosen, layouts);
	*out = NULL;
	/* Unsynchronized ranks have nothing in common with these. */
	if (count == 1 || session->local)
		return BETON_OK;
	int status = engine_memory_rows(&session->engine, layouts, count, rows, err);
	return status == BETON_OK ? engine_memory_table(&session->engine, rows, count, &options, out, err) : status;
}

/* Prints the host memory of --offload and --checkpoint-async. */
static void print_host(const engine_memory *memory, size_t saving)
{
	size_t bytes = engine_memory_host(memory) + saving;
	if (!bytes)
		return;
	puts("in the memory of the host:");
	print_bytes("parameters, gradients", memory->host_parameters);
	print_bytes("optimizer state", memory->host_states);
	print_bytes("scratch memory, updates", memory->host_updates);
	print_bytes("activations, training", memory->host_activations);
	print_bytes("copy of a checkpoint", saving);
	print_bytes("all of these", bytes);
}

/* The end of the totals and of the largest tensors, which the text of a plan begins with. */
static int short_length(const char *text)
{
	const char *end = text;
	for (int line = 0; line < 2 + LARGEST && *end && *end != '\n'; line++) {
		end += strcspn(end, "\n");
		end += *end == '\n';
	}
	return (int)(end - text);
}

int run_plan_print(run_session *session, beton_error *err)
{
	engine_rank *engine = &session->engine;
	const dtrain_program *program = engine->train.program ? engine->train.program : engine->val.program;
	char *text = NULL, *table = NULL, *strategies = NULL;
	engine_memory memory;
	int status = engine_memory_read(engine, &memory, err);
	if (status != BETON_OK || session->rank > 0)
		return status == BETON_OK ? print_stages(session, &memory, err) : status;
	status = dtrain_program_plan(program, &text, err);
	if (status == BETON_OK && engine->train.program)
		status = engine_recompute_table(engine, &table, err);
	if (status == BETON_OK && engine->train.program)
		status = make_strategies(session, &strategies, err);
	if (status == BETON_OK) {
		print_memory(session, &memory);
		print_activity(engine);
		status = print_stages(session, &memory, err);
	}
	if (status == BETON_OK) {
		print_host(&memory, session->saving_bytes);
		/* Unsynchronized ranks send once a round. */
		if (!session->local)
			print_traffic(&memory, rank_name(session));
		bool full = session->options->plan == RUN_PLAN_FULL;
		int length = full ? (int)strlen(text) : short_length(text);
		int printed = printf("\n%s%s%s%s%.*s%s", strategies ? strategies : "", strategies ? "\n" : "",
				     table ? table : "", table ? "\n" : "", length, text,
				     full ? "" : "(--plan=full lists all tensors, and each step of the program)\n");
		if (printed < 0 || fflush(stdout) != 0)
			status = bt_fail_errno(err, errno, "standard output");
	}
	free(text);
	free(table);
	free(strategies);
	return status;
}
