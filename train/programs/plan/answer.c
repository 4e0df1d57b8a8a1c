/* SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "described.h"
#include "engine/memory/memory_search.h"

/* The question, with its engine open. */
typedef struct question {
	const plan_options *options;
	engine_example example;
	engine_rank engine;
	const dtrain__gpu *gpu; /* that is described; NULL: the device is here */
	size_t limit;           /* bytes of a rank; 0: not known */
	bool finds_batch;       /* the largest that fits, for each layout */
	engine_speed speed;
	bool has_times;
	engine_layout layouts[ENGINE_LAYOUTS];
	engine_memory_row rows[ENGINE_LAYOUTS];
	engine_layout cheapest[ENGINE_LAYOUTS]; /* the same, sorted by the bytes that they send */
	int count;
} question;

/* The GPU of a plan where no GPU is here or named, and the samples of a batch where no memory is known. */
#define USUAL_GPU "h100"
enum { USUAL_BATCH = 64 };

/* The part of a GPU's memory that training can have; CUDA and its libraries need the rest. */
#define USABLE 0.95

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

static int open_device(question *q, dtrain_device **out, beton_error *err)
{
	const plan_options *o = q->options;
	const bool tf32 = o->precision == ENGINE_PRECISION_TF32;
	const dtrain_device_options options = {.struct_size = sizeof(options),
					       .index = run_device_index(&o->device, 0, false),
					       .threads = 1,
					       .tf32 = tf32};
	q->gpu = o->gpu;
	int status = q->gpu ? BETON_OK : dtrain_device_open(o->device.name, &options, out, err);
	/* A plan without a device's name is for a GPU. */
	if (status == BETON_OK && !q->gpu && strcmp(o->device.name, "auto") == 0 &&
	    strcmp(dtrain_device_get_api(*out)->name, "cuda") != 0) {
		dtrain_device_close(out);
		q->gpu = dtrain__gpu_find(USUAL_GPU);
	}
	return status == BETON_OK && q->gpu ? plan_describe(q->gpu, tf32, out, err) : status;
}

/* GPUs are made for 16 bits. */
static engine_precision find_precision(const question *q, dtrain_device *device)
{
	dtrain_device_caps caps;
	if (q->options->precision >= 0)
		return (engine_precision)q->options->precision;
	dtrain_device_get_api(device)->caps(device, &caps);
	if (caps.host_memory)
		return ENGINE_PRECISION_F32;
	return caps.dtypes >> DTRAIN_BF16 & 1 ? ENGINE_PRECISION_BF16 : ENGINE_PRECISION_FP16;
}

static double first_of(double a, double b)
{
	return a > 0 ? a : b;
}

/* The command line's figures come first, then the device's, then the described GPU's. */
static void find_speed(question *q)
{
	const engine_speed *given = &q->options->speed;
	const dtrain__gpu *gpu = q->gpu;
	q->speed = (engine_speed){
		.flops = first_of(given->flops, q->engine.caps.flops[q->engine.dtype]),
		.bandwidth = first_of(given->bandwidth, q->engine.caps.bandwidth),
		.link = first_of(given->link, gpu ? gpu->link : 0),
		.network = first_of(given->network, gpu ? gpu->network : 0),
		.host_ranks = given->host_ranks ? given->host_ranks
			      : gpu             ? gpu->host_gpus
						: 1,
	};
	q->has_times = !q->options->offload && strcmp(q->options->compression.method, "none") == 0 &&
		       engine_speed_is_known(&q->speed, (int32_t)q->options->ranks);
}

static int open_engine(question *q, dtrain_device *device, beton_error *err)
{
	const plan_options *o = q->options;
	engine_example_options example = o->example;
	dtrain_sync_options sync;
	dtrain_sync_options_init(&sync);
	if (o->prefetch_mb >= 0)
		sync.prefetch_bytes = (size_t)(o->prefetch_mb * (1 << 20));
	sync.keep_gathered = o->keep_gathered;
	sync.compression = &o->compression;
	if (!example.batch_size)
		example.batch_size = q->finds_batch ? 1 : USUAL_BATCH;
	int status = engine_example_open(&q->example, &example, err);
	if (status == BETON_OK)
		status = find_optimizer(q, &sync.whole_params, err);
	q->example.job.recompute = o->recompute;
	q->example.job.micro_batches = (int)o->micro_batches;
	q->example.job.offload = (engine_offload)o->offload;
	if (status == BETON_OK)
		return engine_open_plan(&q->engine, &q->example.job, &q->example.data, device,
					find_precision(q, device), &sync, err);
	dtrain_device_close(&device);
	return status;
}

static int open_question(question *q, beton_error *err)
{
	const plan_options *o = q->options;
	dtrain_device *device = NULL;
	int status = open_device(q, &device, err);
	if (status != BETON_OK)
		return status;
	q->limit = o->memory ? (size_t)o->memory : q->gpu ? (size_t)(q->gpu->memory * USABLE) : 0;
	q->finds_batch = !o->example.batch_size && q->limit;
	status = open_engine(q, device, err);
	if (status != BETON_OK)
		return status;
	find_speed(q);
	find_layouts(q);
	return BETON_OK;
}

/* ---- the table ---- */

static int make_row(const question *q, engine_memory_row *row, beton_error *err)
{
	engine_rank engine = q->engine;
	int status = BETON_OK;
	row->batch = engine.job.batch_size;
	if (q->finds_batch)
		status = engine_memory_largest(&q->engine, &row->layout, q->limit, &row->batch, err);
	/* The row of a layout that does not fit has one sample. */
	engine.job.batch_size = row->batch > 0 ? row->batch : 1;
	if (status != BETON_OK)
		return status;
	return q->has_times ? engine_time_plan(&engine, &row->layout, &q->speed, &row->memory, &row->time, err)
			    : engine_memory_plan(&engine, &row->layout, &row->memory, err);
}

static int make_rows(question *q, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < q->count && status == BETON_OK; i++) {
		q->rows[i].layout = q->layouts[i];
		status = make_row(q, &q->rows[i], err);
	}
	/* An insertion sort: equal ones stay as they are. */
	for (int i = 0; i < q->count; i++) {
		uint64_t sent = engine_memory_traffic(&q->rows[i].memory);
		int at = 0;
		for (int k = 0; k < i; k++)
			at += engine_memory_traffic(&q->rows[k].memory) <= sent;
		memmove(&q->cheapest[at + 1], &q->cheapest[at], (size_t)(i - at) * sizeof(*q->cheapest));
		q->cheapest[at] = q->layouts[i];
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

static void print_heading(const question *q)
{
	const plan_options *o = q->options;
	const engine_rank *engine = &q->engine;
	printf("%s: %.1f million parameters, %s; %" PRIu64 " rank%s, ", o->example.model,
	       (double)q->rows[0].memory.elements / 1e6, q->example.job.optimizer, o->ranks, bt_plural(o->ranks));
	if (q->finds_batch)
		printf("the largest batches that fit, ");
	else
		printf("batches of %" PRId64 ", ", engine->job.batch_size);
	printf("%s, training on ", dtrain_dtype_name(engine->dtype));
	if (q->gpu)
		printf("%s\n", q->gpu->product);
	else
		printf("device %s\n", engine->api->name);
	if (q->gpu && !o->gpu)
		printf("(this machine has no GPU, and --gpu names none: a plan for --gpu %s)\n", q->gpu->name);
	if (q->gpu)
		puts("(scratch memory of cuDNN's operations is not counted)");
}

static void print_times(const question *q)
{
	const engine_speed *s = &q->speed;
	printf("\nA step takes at least that long: each operation at %.4g TFLOP/s or %.4g GB/s of memory",
	       s->flops / 1e12, s->bandwidth / 1e9);
	if (q->options->ranks > 1 && s->host_ranks > 1)
		printf(", links of %.4g GB/s between the %" PRId64 " ranks of a host", s->link / 1e9,
		       (int64_t)q->options->ranks < s->host_ranks ? (int64_t)q->options->ranks : s->host_ranks);
	if ((int64_t)q->options->ranks > s->host_ranks)
		printf(", %.4g GB/s from each rank to other hosts", s->network / 1e9);
	puts(".");
}

static int print_table(question *q, beton_error *err)
{
	const engine_memory_table_options options = {
		.limit = q->limit, .batches = q->finds_batch, .times = q->has_times};
	char *table = NULL;
	int status = make_rows(q, err);
	if (status == BETON_OK)
		status = engine_memory_table(&q->engine, q->rows, q->count, &options, &table, err);
	if (status == BETON_OK) {
		print_heading(q);
		printf("\n%s", table);
		if (q->has_times)
			print_times(q);
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
static int find_batch(const question *q, const engine_rank *engine, size_t limit, change *out, beton_error *err)
{
	int status = BETON_OK;
	*out = (change){0};
	for (int i = 0; i < q->count && status == BETON_OK; i++) {
		int64_t batch = 0;
		status = engine_memory_batch(engine, &q->cheapest[i], limit, &batch, err);
		if (status != BETON_OK || batch <= out->batch)
			continue;
		out->layout = &q->cheapest[i];
		out->batch = batch;
	}
	return status;
}

static int find_recompute(const question *q, size_t limit, change *out, beton_error *err)
{
	int status = BETON_OK;
	*out = (change){0};
	for (int i = 0; i < q->count && !out->layout && status == BETON_OK; i++) {
		status = engine_memory_recompute(&q->engine, &q->cheapest[i], limit, &out->recompute, err);
		out->layout = out->recompute ? &q->cheapest[i] : NULL;
	}
	return status;
}

static void close_question(question *q)
{
	engine_close(&q->engine);
	engine_example_close(&q->example);
}

/* Finds the --offload that fits, on a device with memory of its own. */
static int find_offload(const question *q, size_t limit, change *out, beton_error *err)
{
	static const engine_offload all[] = {ENGINE_OFFLOAD_OPTIMIZER, ENGINE_OFFLOAD_ALL};
	int status = BETON_OK;
	*out = (change){0};
	bool can = engine_offload_check(q->engine.api, all[0], NULL) == BETON_OK;
	if (q->options->offload || !can)
		return BETON_OK;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && !out->layout && status == BETON_OK; i++) {
		plan_options options = *q->options;
		question other = {.options = &options};
		int index = -1;
		options.offload = all[i];
		status = open_question(&other, err);
		if (status == BETON_OK)
			status = engine_memory_best(&other.engine, other.layouts, other.count, limit, &index, err);
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

/* Tries changes of one thing, from the cheapest in time to the most expensive; found: whether any fits. */
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

/* Tries changes together: each rank count and batch with --recompute full. */
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

/* The fitting row that sends least for a sample; -1: none fits. */
static int find_best(const question *q)
{
	int best = -1;
	double least = 0;
	for (int i = 0; i < q->count; i++) {
		const engine_memory_row *row = &q->rows[i];
		double sent = (double)engine_memory_traffic(&row->memory) / (double)(row->batch > 0 ? row->batch : 1);
		if (engine_memory_total(&row->memory) > q->limit || (best >= 0 && sent >= least))
			continue;
		best = i;
		least = sent;
	}
	return best;
}

static int print_fitting(const question *q, bool *fits, beton_error *err)
{
	char size[32], whole[32];
	int best = find_best(q);
	*fits = best >= 0;
	printf("\n%s", *fits ? q->rows[best].layout.strategy : "none");
	if (*fits && q->rows[best].layout.shard > 0)
		printf(" --shard %" PRId32, q->rows[best].layout.shard);
	if (*fits && q->finds_batch)
		printf(" --batch-size %" PRId64, q->rows[best].batch);
	printf(" fits in %s", size_text((double)q->limit, size));
	if (!q->options->memory)
		printf(" (of %s; CUDA and its libraries have the rest)", size_text(q->gpu->memory, whole));
	if (*fits) {
		putchar('\n');
		return BETON_OK;
	}
	bool found = false;
	int status = try_alone(q, q->limit, &found, err);
	return status == BETON_OK && !found ? try_together(q, q->limit, err) : status;
}

int plan_answer(const plan_options *options, bool *fits, beton_error *err)
{
	question q = {.options = options};
	int status = open_question(&q, err);
	*fits = true;
	if (status == BETON_OK)
		status = print_table(&q, err);
	if (status == BETON_OK && q.limit)
		status = print_fitting(&q, fits, err);
	if (status == BETON_OK && fflush(stdout) != 0)
		status = bt_fail_errno(err, errno, "standard output");
	close_question(&q);
	return status;
}
