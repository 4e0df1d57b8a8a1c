/* SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "engine/memory/memory_search.h"

/* A table of strategies. */
typedef struct answer {
	plan_question asked;
	bool has_times;
	engine_layout layouts[ENGINE_LAYOUTS];
	engine_memory_row rows[ENGINE_LAYOUTS];
	engine_layout cheapest[ENGINE_LAYOUTS]; /* the same, sorted by the bytes that they send */
	int count;
} answer;

/* Whether the layout can send gradients by the method. */
static bool can_send(const answer *a, const char *strategy)
{
	return dtrain_compression_is_for_shards(a->asked.options->compression.method) || strcmp(strategy, "ddp") == 0 ||
	       strcmp(strategy, "hsdp") == 0;
}

static void find_layouts(answer *a)
{
	engine_layout all[ENGINE_LAYOUTS];
	int count = engine_layouts((int32_t)a->asked.options->ranks, (int32_t)a->asked.options->shard, NULL, all);
	for (int i = 0; i < count; i++)
		if (can_send(a, all[i].strategy))
			a->layouts[a->count++] = all[i];
}

static int open_answer(answer *a, const plan_options *options, beton_error *err)
{
	*a = (answer){.count = 0};
	int status = plan_question_open(&a->asked, options, err);
	if (status != BETON_OK)
		return status;
	a->has_times = !options->offload && strcmp(options->compression.method, "none") == 0 &&
		       engine_speed_is_known(&a->asked.speed, (int32_t)options->ranks);
	find_layouts(a);
	return BETON_OK;
}

/* ---- the table ---- */

static int make_row(const answer *a, engine_memory_row *row, beton_error *err)
{
	engine_rank engine = a->asked.engine;
	int status = BETON_OK;
	row->batch = engine.job.batch_size;
	if (a->asked.finds_batch)
		status = engine_memory_largest(&a->asked.engine, &row->layout, a->asked.limit, &row->batch, err);
	/* The row of a layout that does not fit has one sample. */
	engine.job.batch_size = row->batch > 0 ? row->batch : 1;
	if (status != BETON_OK)
		return status;
	return a->has_times ? engine_time_plan(&engine, &row->layout, &a->asked.speed, &row->memory, &row->time, err)
			    : engine_memory_plan(&engine, &row->layout, &row->memory, err);
}

static int make_rows(answer *a, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < a->count && status == BETON_OK; i++) {
		a->rows[i].layout = a->layouts[i];
		status = make_row(a, &a->rows[i], err);
	}
	/* An insertion sort: equal ones stay as they are. */
	for (int i = 0; i < a->count; i++) {
		uint64_t sent = engine_memory_traffic(&a->rows[i].memory);
		int at = 0;
		for (int k = 0; k < i; k++)
			at += engine_memory_traffic(&a->rows[k].memory) <= sent;
		memmove(&a->cheapest[at + 1], &a->cheapest[at], (size_t)(i - at) * sizeof(*a->cheapest));
		a->cheapest[at] = a->layouts[i];
	}
	return status;
}

static const char *size_text(double bytes, char text[32])
{
	if (bytes < 1e9)
		snprintf(text, 32, "%g MB", bytes / 1e6);
	else
		snprintf(text, 32, "%.1f GB", bytes / 1e9);
	return text;
}

static void print_heading(const answer *a)
{
	const plan_options *o = a->asked.options;
	const engine_rank *engine = &a->asked.engine;
	printf("%s: %.1f million parameters, %s; %" PRIu64 " rank%s, ", o->example.model,
	       (double)a->rows[0].memory.elements / 1e6, a->asked.example.job.optimizer, o->ranks, bt_plural(o->ranks));
	if (a->asked.finds_batch)
		printf("the largest batches that fit, ");
	else
		printf("batches of %" PRId64 ", ", engine->job.batch_size);
	printf("%s, training on ", dtrain_dtype_name(engine->dtype));
	if (a->asked.gpu)
		printf("%s\n", a->asked.gpu->product);
	else
		printf("device %s\n", engine->api->name);
	if (a->asked.gpu && !o->gpu)
		printf("(this machine has no GPU, and --gpu names none: a plan for --gpu %s)\n", a->asked.gpu->name);
	if (a->asked.gpu)
		puts("(scratch memory of cuDNN's operations is not counted)");
}

static void print_times(const answer *a)
{
	const engine_speed *s = &a->asked.speed;
	printf("\nA step takes at least that long: each operation at %.4g TFLOP/s or %.4g GB/s of memory",
	       s->flops / 1e12, s->bandwidth / 1e9);
	if (a->asked.options->ranks > 1 && s->host_ranks > 1)
		printf(", links of %.4g GB/s between the %" PRId64 " ranks of a host", s->link / 1e9,
		       (int64_t)a->asked.options->ranks < s->host_ranks ? (int64_t)a->asked.options->ranks
									: s->host_ranks);
	if ((int64_t)a->asked.options->ranks > s->host_ranks)
		printf(", %.4g GB/s from each rank to other hosts", s->network / 1e9);
	puts(".");
}

static int print_table(answer *a, beton_error *err)
{
	const engine_memory_table_options options = {
		.limit = a->asked.limit, .batches = a->asked.finds_batch, .times = a->has_times};
	char *table = NULL;
	int status = make_rows(a, err);
	if (status == BETON_OK)
		status = engine_memory_table(&a->asked.engine, a->rows, a->count, &options, &table, err);
	if (status == BETON_OK) {
		print_heading(a);
		printf("\n%s", table);
		if (a->has_times)
			print_times(a);
	}
	free(table);
	return status;
}

/* A change with which something fits. */
typedef struct change {
	const engine_layout *layout; /* the fitting one that sends least; NULL: none fits */
	int64_t batch;
	const char *recompute, *offload;
} change;

/* The largest batch with which any layout fits. Of layouts with the same one the first sends least. */
static int find_batch(const answer *a, const engine_rank *engine, size_t limit, change *out, beton_error *err)
{
	int status = BETON_OK;
	*out = (change){0};
	for (int i = 0; i < a->count && status == BETON_OK; i++) {
		int64_t batch = 0;
		status = engine_memory_batch(engine, &a->cheapest[i], limit, &batch, err);
		if (status != BETON_OK || batch <= out->batch)
			continue;
		out->layout = &a->cheapest[i];
		out->batch = batch;
	}
	return status;
}

static int find_recompute(const answer *a, size_t limit, change *out, beton_error *err)
{
	int status = BETON_OK;
	*out = (change){0};
	for (int i = 0; i < a->count && !out->layout && status == BETON_OK; i++) {
		status = engine_memory_recompute(&a->asked.engine, &a->cheapest[i], limit, &out->recompute, err);
		out->layout = out->recompute ? &a->cheapest[i] : NULL;
	}
	return status;
}

/* Finds the --offload that fits, on a device with memory of its own. */
static int find_offload(const answer *a, size_t limit, change *out, beton_error *err)
{
	static const engine_offload all[] = {ENGINE_OFFLOAD_OPTIMIZER, ENGINE_OFFLOAD_ALL};
	int status = BETON_OK;
	*out = (change){0};
	bool can = engine_offload_check(a->asked.engine.api, all[0], NULL) == BETON_OK;
	if (a->asked.options->offload || !can)
		return BETON_OK;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && !out->layout && status == BETON_OK; i++) {
		plan_options options = *a->asked.options;
		answer other;
		int index = -1;
		options.offload = all[i];
		status = open_answer(&other, &options, err);
		if (status == BETON_OK)
			status =
				engine_memory_best(&other.asked.engine, other.layouts, other.count, limit, &index, err);
		out->layout = index < 0 ? NULL : &a->layouts[index];
		out->offload = engine_offload_names[all[i]];
		plan_question_close(&other.asked);
	}
	return status;
}

/* "--strategy hsdp --shard 8" */
static void print_layout(const engine_layout *layout)
{
	printf("  --strategy %s", layout->strategy);
	if (layout->shard > 0)
		printf(" --shard %" PRId32, layout->shard);
}

/* Tries changes of one thing, from the cheapest in time to the most expensive; found: whether any fits. */
static int try_alone(const answer *a, size_t limit, bool *found, beton_error *err)
{
	const engine_layout growing = {.strategy = "zero3", .ranks = (int32_t)a->asked.options->ranks};
	change batch, recompute, offload;
	int32_t ranks = 0;
	int status = find_batch(a, &a->asked.engine, limit, &batch, err);
	if (status == BETON_OK)
		status = find_recompute(a, limit, &recompute, err);
	if (status == BETON_OK)
		status = find_offload(a, limit, &offload, err);
	if (status == BETON_OK && can_send(a, growing.strategy))
		status = engine_memory_ranks(&a->asked.engine, &growing, limit, &ranks, err);
	if (status != BETON_OK)
		return status;
	*found = batch.layout || recompute.layout || offload.layout || ranks > 0;
	if (*found)
		puts("; these would:");
	if (batch.layout) {
		print_layout(batch.layout);
		printf(" --batch-size %" PRId64 "\n", batch.batch);
	}
	if (recompute.layout) {
		print_layout(recompute.layout);
		printf(" --recompute %s\n", recompute.recompute);
	}
	if (offload.layout) {
		print_layout(offload.layout);
		printf(" --offload %s\n", offload.offload);
	}
	if (ranks > 0)
		printf("  --strategy zero3 --world-size %" PRId32 "\n", ranks);
	return BETON_OK;
}

/* Tries changes together: each rank count and batch with --recompute full. */
static int try_together(const answer *a, size_t limit, beton_error *err)
{
	engine_layout growing = {.strategy = "zero3", .ranks = (int32_t)a->asked.options->ranks};
	engine_rank leaner = a->asked.engine, leanest_job;
	change batch = {0};
	int32_t ranks = 0, fewer = 0;
	int status = engine_recompute_parse("--recompute", "full", &leaner.job.recompute, err);
	if (status == BETON_OK)
		status = find_batch(a, &leaner, limit, &batch, err);
	bool grows = can_send(a, growing.strategy);
	if (status == BETON_OK && grows)
		status = engine_memory_ranks(&leaner, &growing, limit, &ranks, err);
	leanest_job = leaner;
	leanest_job.job.batch_size = 1;
	if (status == BETON_OK && grows && !batch.layout && !ranks)
		status = engine_memory_ranks(&leanest_job, &growing, limit, &fewer, err);
	/* The ranks may have room for more than one sample. */
	int64_t samples = 0;
	const engine_layout grown = {.strategy = "zero3", .ranks = fewer};
	if (status == BETON_OK && fewer)
		status = engine_memory_batch(&leaner, &grown, limit, &samples, err);
	if (status != BETON_OK)
		return status;
	puts(batch.layout || ranks || fewer ? "; these would, together:"
	     : grows ? ", nor with --batch-size 1, --recompute full and up to 65,536 ranks together"
		     : ", nor with --batch-size 1 and --recompute full together");
	if (batch.layout) {
		print_layout(batch.layout);
		printf(" --recompute full --batch-size %" PRId64 "\n", batch.batch);
	}
	if (ranks)
		printf("  --strategy zero3 --recompute full --world-size %" PRId32 "\n", ranks);
	if (fewer)
		printf("  --strategy zero3 --recompute full --batch-size %" PRId64 " --world-size %" PRId32 "\n",
		       samples, fewer);
	return BETON_OK;
}

/* The fitting row that sends least for a sample; -1: none fits. */
static int find_best(const answer *a)
{
	int best = -1;
	double least = 0;
	for (int i = 0; i < a->count; i++) {
		const engine_memory_row *row = &a->rows[i];
		double sent = (double)engine_memory_traffic(&row->memory) / (double)(row->batch > 0 ? row->batch : 1);
		if (engine_memory_total(&row->memory) > a->asked.limit || (best >= 0 && sent >= least))
			continue;
		best = i;
		least = sent;
	}
	return best;
}

static int print_fitting(const answer *a, bool *fits, beton_error *err)
{
	char size[32], whole[32];
	int best = find_best(a);
	*fits = best >= 0;
	printf("\n%s", *fits ? a->rows[best].layout.strategy : "none");
	if (*fits && a->rows[best].layout.shard > 0)
		printf(" --shard %" PRId32, a->rows[best].layout.shard);
	if (*fits && a->asked.finds_batch)
		printf(" --batch-size %" PRId64, a->rows[best].batch);
	printf(" fits in %s", size_text((double)a->asked.limit, size));
	if (!a->asked.options->memory)
		printf(" (of %s; CUDA and its libraries have the rest)", size_text(a->asked.gpu->memory, whole));
	if (*fits) {
		putchar('\n');
		return BETON_OK;
	}
	bool found = false;
	int status = try_alone(a, a->asked.limit, &found, err);
	return status == BETON_OK && !found ? try_together(a, a->asked.limit, err) : status;
}

int plan_answer(const plan_options *options, bool *fits, beton_error *err)
{
	answer a;
	int status = open_answer(&a, options, err);
	*fits = true;
	if (status == BETON_OK)
		status = print_table(&a, err);
	if (status == BETON_OK && a.asked.limit)
		status = print_fitting(&a, fits, err);
	if (status == BETON_OK && fflush(stdout) != 0)
		status = bt_fail_errno(err, errno, "standard output");
	plan_question_close(&a.asked);
	return status;
}
