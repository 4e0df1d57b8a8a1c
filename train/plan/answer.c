/* SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apart.h"
#include "common/error.h"
#include "common/system.h"
#include "engine/memory_search.h"

/* What is asked, open. */
typedef struct question {
	const plan_options *options;
	engine_example example;
	engine_rank engine;
	engine_layout layouts[ENGINE_LAYOUTS];
	int count;
} question;

static int find_optimizer(question *q, bool *whole, beton_error *err)
{
	const dtrain_optimizer_kind *kind;
	char names[160] = "";
	const char *wanted = q->options->optimizer             ? q->options->optimizer
			     : q->example.job.task == &lm_task ? "adamw"
							       : "sgd";
	for (int i = 0; (kind = dtrain_optimizer_kind_at(i)); i++) {
		bt_append(names, sizeof(names), "%s%s", i ? ", " : "", kind->name);
		if (strcmp(kind->name, wanted) != 0)
			continue;
		q->example.job.optimizer = kind->name;
		q->example.job.states = kind->num_states;
		*whole = kind->whole;
		return BETON_OK;
	}
	return bt_fail(err, BETON_INVALID_ARGUMENT, "--optimizer: '%s' is not one of %s", wanted, names);
}

/* Whether the layout can send gradients by the method. */
static bool can_send(const question *q, const char *strategy)
{
	return dtrain_compression_is_for_shards(q->options->compression.method) || strcmp(strategy, "ddp") == 0 ||
	       strcmp(strategy, "hsdp") == 0;
}

static void find_layouts(question *q)
{
	engine_layout all[ENGINE_LAYOUTS];
	int count = engine_layouts((int32_t)q->options->ranks, (int32_t)q->options->shard, NULL, all);
	for (int i = 0; i < count; i++)
		if (can_send(q, all[i].strategy))
			q->layouts[q->count++] = all[i];
}

/* Another device stands in for the GPU that a plan without --device is for. */
static bool has_no_gpu(const question *q, const dtrain_device_api *api)
{
	return strcmp(q->options->device.name, "auto") == 0 && strcmp(api->name, "cuda") != 0;
}

static int open_question(question *q, beton_error *err)
{
	const plan_options *o = q->options;
	dtrain_device_options device_options = {.struct_size = sizeof(device_options),
						.index = run_device_index(&o->device, 0, false),
						.threads = 1,
						.tf32 = o->precision == ENGINE_PRECISION_TF32};
	dtrain_sync_options sync;
	dtrain_device *device = NULL;
	dtrain_sync_options_init(&sync);
	if (o->prefetch_mb >= 0)
		sync.prefetch_bytes = (size_t)(o->prefetch_mb * (1 << 20));
	sync.keep_gathered = o->keep_gathered;
	sync.compression = &o->compression;
	int status = engine_example_open(&q->example, &o->example, err);
	if (status == BETON_OK)
		status = find_optimizer(q, &sync.whole_params, err);
	q->example.job.recompute = o->recompute;
	q->example.job.runs = (int)o->runs;
	q->example.job.offload = (engine_offload)o->offload;
	if (status == BETON_OK)
		status = dtrain_device_open(o->device.name, &device_options, &device, err);
	/* Whoever asks what is offloaded, and names no device, has a GPU in mind. */
	if (status == BETON_OK && o->offload && has_no_gpu(q, dtrain_device_get_api(device)))
		status = plan_set_apart(&device, err);
	if (status == BETON_OK)
		status = engine_open_plan(&q->engine, &q->example.job, &q->example.data, device,
					  (engine_precision)o->precision, &sync, err);
	find_layouts(q);
	return status;
}

static int print_table(const question *q, beton_error *err)
{
	const plan_options *o = q->options;
	engine_memory first;
	char *table = NULL;
	bool other = has_no_gpu(q, q->engine.api);
	const char *note = other ? "(there is no GPU here, so another device stands in for one, whose operations need "
				   "other scratch memory)\n"
				 : "";
	int status = engine_memory_plan(&q->engine, &q->layouts[0], &first, err);
	if (status == BETON_OK)
		status = engine_memory_table(&q->engine, q->layouts, q->count, NULL, (size_t)o->memory, &table, err);
	if (status == BETON_OK)
		printf("%s: %.1f million parameters, %s; %" PRIu64 " rank%s, batches of %" PRId64
		       ", training on device %s\n%s\n%s",
		       o->example.model, (double)first.elements / 1e6, q->example.job.optimizer, o->ranks,
		       o->ranks == 1 ? "" : "s", o->example.batch_size, q->engine.api->name, note, table);
	free(table);
	return status;
}

/* A change with which something fits. */
typedef struct change {
	const engine_layout *layout; /* the first that fits; NULL: none does */
	int64_t batch;
	const char *recompute, *offload;
} change;

/* The largest batch with which any layout fits. Of layouts with the same one the first sends least. */
static int find_batch(const question *q, const engine_rank *engine, size_t limit, change *out, beton_error *err)
{
	int status = BETON_OK;
	*out = (change){0};
	for (int i = 0; i < q->count && status == BETON_OK; i++) {
		int64_t batch = 0;
		status = engine_memory_batch(engine, &q->layouts[i], limit, &batch, err);
		if (status != BETON_OK || batch <= out->batch)
			continue;
		out->layout = &q->layouts[i];
		out->batch = batch;
	}
	return status;
}

static int find_recompute(const question *q, size_t limit, change *out, beton_error *err)
{
	int status = BETON_OK;
	*out = (change){0};
	for (int i = 0; i < q->count && !out->layout && status == BETON_OK; i++) {
		status = engine_memory_recompute(&q->engine, &q->layouts[i], limit, &out->recompute, err);
		out->layout = out->recompute ? &q->layouts[i] : NULL;
	}
	return status;
}

static void close_question(question *q)
{
	engine_close(&q->engine);
	engine_example_close(&q->example);
}

/* What the host would have to keep, on a device with memory of its own. */
static int find_offload(const question *q, size_t limit, change *out, beton_error *err)
{
	static const engine_offload all[] = {ENGINE_OFFLOAD_OPTIMIZER, ENGINE_OFFLOAD_ALL};
	int status = BETON_OK;
	*out = (change){0};
	bool can = has_no_gpu(q, q->engine.api) || engine_offload_check(q->engine.api, all[0], NULL) == BETON_OK;
	if (q->options->offload || !can)
		return BETON_OK;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && !out->layout && status == BETON_OK; i++) {
		plan_options options = *q->options;
		question other = {.options = &options};
		int index = -1;
		options.offload = all[i];
		status = open_question(&other, err);
		if (status == BETON_OK)
			status = engine_memory_first(&other.engine, other.layouts, other.count, limit, &index, err);
		out->layout = index < 0 ? NULL : &q->layouts[index];
		out->offload = engine_offload_names[all[i]];
		close_question(&other);
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

/* What fits if one thing is changed, from what takes the least time to what takes the most; found: whether anything
 * does. */
static int try_alone(const question *q, size_t limit, bool *found, beton_error *err)
{
	const engine_layout growing = {.strategy = "zero3", .ranks = (int32_t)q->options->ranks};
	change batch, recompute, offload;
	int32_t ranks = 0;
	int status = find_batch(q, &q->engine, limit, &batch, err);
	if (status == BETON_OK)
		status = find_recompute(q, limit, &recompute, err);
	if (status == BETON_OK)
		status = find_offload(q, limit, &offload, err);
	if (status == BETON_OK && can_send(q, growing.strategy))
		status = engine_memory_ranks(&q->engine, &growing, limit, &ranks, err);
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

/* The same with changes together, of which each rank count and batch is tried with --recompute full. */
static int try_together(const question *q, size_t limit, beton_error *err)
{
	engine_layout growing = {.strategy = "zero3", .ranks = (int32_t)q->options->ranks};
	engine_rank leaner = q->engine, leanest_job;
	change batch = {0};
	int32_t ranks = 0, fewer = 0;
	int status = engine_recompute_parse("--recompute", "full", &leaner.job.recompute, err);
	if (status == BETON_OK)
		status = find_batch(q, &leaner, limit, &batch, err);
	bool grows = can_send(q, growing.strategy);
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

static int print_fitting(const question *q, bool *fits, beton_error *err)
{
	size_t limit = (size_t)q->options->memory;
	int index;
	int status = engine_memory_first(&q->engine, q->layouts, q->count, limit, &index, err);
	*fits = index >= 0;
	if (status != BETON_OK)
		return status;
	printf("\n%s fits in %g GB", *fits ? q->layouts[index].strategy : "none", (double)limit / 1e9);
	if (*fits) {
		putchar('\n');
		return BETON_OK;
	}
	bool found = false;
	status = try_alone(q, limit, &found, err);
	return status == BETON_OK && !found ? try_together(q, limit, err) : status;
}

int plan_answer(const plan_options *options, bool *fits, beton_error *err)
{
	question q = {.options = options};
	int status = open_question(&q, err);
	*fits = true;
	if (status == BETON_OK)
		status = print_table(&q, err);
	if (status == BETON_OK && options->memory > 0)
		status = print_fitting(&q, fits, err);
	if (status == BETON_OK && fflush(stdout) != 0)
		status = bt_fail_errno(err, errno, "standard output");
	close_question(&q);
	return status;
}
