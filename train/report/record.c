/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "device_activity.h"

const char *const run_part_names[RUN_PARTS] = {
	[RUN_PART_DATA] = "data_wait",        [RUN_PART_COMPUTE] = "compute",       [RUN_PART_COMM] = "comm_exposed",
	[RUN_PART_EVALUATION] = "evaluation", [RUN_PART_CHECKPOINT] = "checkpoint", [RUN_PART_OTHER] = "other",
};
const char *const run_limit_names[] = {
	[BETON_BOTTLENECK_UNKNOWN] = "unknown",     [BETON_BOTTLENECK_CONSUMER] = "training",
	[BETON_BOTTLENECK_ORDER] = "order",         [BETON_BOTTLENECK_STORAGE] = "storage",
	[BETON_BOTTLENECK_VERIFY] = "verify",       [BETON_BOTTLENECK_DECODE] = "decode",
	[BETON_BOTTLENECK_TRANSFORM] = "transform", [BETON_BOTTLENECK_SLOTS] = "batches",
};

/* JSON has no infinity or NaN: they become null. */
static json_t *number(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

/* A value that was computed as a float: the shortest decimal number that a float reads back as. */
static json_t *single(double value)
{
	char text[32];
	for (int digits = 6; digits <= 9; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtof(text, NULL) == (float)value)
			break;
	}
	return number(isfinite(value) ? strtod(text, NULL) : value);
}

/* A measurement, to as many decimals as the clock has. */
static json_t *rounded(double value, int decimals)
{
	char text[400];
	snprintf(text, sizeof(text), "%.*f", decimals, value);
	return number(isfinite(value) ? strtod(text, NULL) : value);
}

static json_t *milliseconds(double value)
{
	return rounded(value, 6);
}

static json_t *seconds(uint64_t ns)
{
	return rounded((double)ns / 1e9, 9);
}

/* Resident memory of this process; 0: the system does not tell. */
typedef struct resident_memory {
	uint64_t now_bytes, peak_bytes;
} resident_memory;

static resident_memory read_memory(void)
{
	resident_memory memory = {0};
	struct rusage usage;
	uint64_t pages;
	FILE *file = fopen("/proc/self/statm", "re");
	if (file && fscanf(file, "%*u %" SCNu64, &pages) == 1)
		memory.now_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
	if (file)
		fclose(file);
	if (getrusage(RUSAGE_SELF, &usage) == 0)
		memory.peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
	/* The kernel updates the peak less often than the other number. */
	if (memory.peak_bytes < memory.now_bytes)
		memory.peak_bytes = memory.now_bytes;
	return memory;
}

/* A record under construction; value NULL, or too little memory: the record stays incomplete. */
typedef struct builder {
	json_t *record;
	bool failed;
} builder;

static void add(builder *self, const char *key, json_t *value)
{
	if (json_object_set_new(self->record, key, value) != 0)
		self->failed = true;
}

static json_t *finish(builder *self)
{
	if (!self->failed && self->record)
		return self->record;
	json_decref(self->record);
	return NULL;
}

static builder begin(const char *type, int64_t step)
{
	struct timespec now;
	builder self = {.record = json_object()};
	clock_gettime(CLOCK_REALTIME, &now);
	add(&self, "type", json_string(type));
	add(&self, "time", rounded((double)now.tv_sec + (double)now.tv_nsec / 1e9, 3));
	add(&self, "step", json_integer((json_int_t)step));
	return self;
}

/* A path may be invalid UTF-8. */
static json_t *text_of(const char *text)
{
	json_t *json = json_string(text);
	return json ? json : json_string("?");
}

static json_t *texts_of(char *const *texts, int count)
{
	json_t *list = json_array();
	for (int i = 0; i < count; i++)
		if (json_array_append_new(list, text_of(texts[i])) != 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

json_t *run_record_beginning(const run_beginning *beginning)
{
	builder self = begin(beginning->resumed ? "resume" : "start", beginning->after_step);
	add(&self, "version", json_string(DTRAIN_VERSION));
	add(&self, "world_size", json_integer(beginning->world_size));
	add(&self, "total_steps", json_integer((json_int_t)beginning->total_steps));
	add(&self, "steps_per_epoch", json_integer((json_int_t)beginning->steps_per_epoch));
	add(&self, "global_batch", json_integer((json_int_t)beginning->global_batch));
	add(&self, "samples", json_integer((json_int_t)beginning->samples));
	add(&self, "classes", json_integer((json_int_t)beginning->classes));
	add(&self, "device", text_of(beginning->device));
	add(&self, "processor", text_of(beginning->processor));
	if (beginning->peak_flops > 0)
		add(&self, "peak_flops", rounded(beginning->peak_flops, 0));
	add(&self, "arena_bytes", json_integer((json_int_t)beginning->arena_bytes));
	add(&self, "data", texts_of(beginning->data, beginning->data_count));
	add(&self, "val", beginning->val ? text_of(beginning->val) : json_null());
	add(&self, "options", json_loads(beginning->options, 0, NULL));
	if (beginning->init)
		add(&self, "init", json_incref(beginning->init));
	if (beginning->resumed)
		add(&self, "changes", texts_of(beginning->changes, beginning->change_count));
	return finish(&self);
}

json_t *run_record_step(const engine_task *task, const run_step_metrics *step)
{
	char rate[64];
	const resident_memory memory = read_memory();
	builder self = begin("step", step->step);
	snprintf(rate, sizeof(rate), "%s_per_second", task->unit);
	add(&self, "epoch", json_integer((json_int_t)step->epoch));
	add(&self, "loss", single(step->loss));
	if (step->has_hits)
		add(&self, "train_top1", single(step->hits));
	add(&self, "lr", number(step->lr));
	add(&self, rate, rounded(step->units_per_second, 3));
	if (step->mfu > 0)
		add(&self, "mfu", rounded(step->mfu, 4));
	add(&self, "step_ms", milliseconds(step->step_ms));
	add(&self, "data_wait_ms", milliseconds(step->data_wait_ms));
	add(&self, "compute_ms", milliseconds(step->compute_ms));
	add(&self, "comm_exposed_ms", milliseconds(step->comm_exposed_ms));
	if (step->asynchronous) {
		add(&self, "launch_ms", milliseconds(step->launch_ms));
		add(&self, "device_busy", rounded(step->device_busy, 4));
	}
	if (step->loss_scale > 0)
		add(&self, "loss_scale", single(step->loss_scale));
	if (step->normed)
		add(&self, "grad_norm", single(step->grad_norm));
	if (step->workers) {
		add(&self, "worker", json_integer(step->worker));
		add(&self, "workers", json_integer(step->workers));
		add(&self, "staleness", json_integer((json_int_t)step->staleness));
		add(&self, "lead", json_integer((json_int_t)step->lead));
	}
	add(&self, "memory_bytes", json_integer((json_int_t)memory.now_bytes));
	add(&self, "memory_peak_bytes", json_integer((json_int_t)memory.peak_bytes));
	return finish(&self);
}

json_t *run_record_activity(int64_t step, const dtrain_device_activity *activity)
{
	builder self = begin("device", step);
	self.failed = run_activity_json(self.record, activity) != 0 || self.failed;
	return finish(&self);
}

json_t *run_record_tuning(const run_tuning_metrics *tuning)
{
	builder self = begin("tuning", tuning->step);
	add(&self, "ops", json_integer((json_int_t)tuning->ops));
	add(&self, "seconds", rounded(tuning->seconds, 3));
	add(&self, "lent_ms", milliseconds(tuning->lent_ms));
	if (tuning->kept)
		add(&self, "kept", json_string(tuning->kept));
	return finish(&self);
}

/* Classes without a sample are left out. */
static json_t *classes_of(const engine_class_count *counts, int64_t classes, const json_t *names)
{
	builder list = {.record = json_array()};
	for (int64_t i = 0; i < classes; i++) {
		builder one = {.record = json_object()};
		json_t *name = json_array_get(names, (size_t)i);
		if (counts[i].samples == 0) {
			json_decref(one.record);
			continue;
		}
		add(&one, "class", json_integer((json_int_t)i));
		if (json_is_string(name))
			add(&one, "name", json_incref(name));
		add(&one, "count", json_integer((json_int_t)counts[i].samples));
		add(&one, "top1", number((double)counts[i].hits / (double)counts[i].samples));
		if (json_array_append_new(list.record, finish(&one)) != 0)
			list.failed = true;
	}
	return finish(&list);
}

json_t *run_record_evaluation(const run_evaluation *evaluation, int64_t classes, const json_t *names)
{
	const engine_outputs *outputs = evaluation->result.outputs;
	builder self = begin("evaluation", evaluation->step);
	add(&self, "epoch", json_integer((json_int_t)evaluation->epoch));
	if (evaluation->average)
		add(&self, "ema", json_true());
	for (int i = 0; i < outputs->num_metrics; i++) {
		char key[64];
		snprintf(key, sizeof(key), "val_%s", outputs->metrics[i].key);
		add(&self, key, number(evaluation->result.metrics[i]));
	}
	add(&self, "val_count", json_integer((json_int_t)evaluation->result.count));
	if (evaluation->result.classes)
		add(&self, "val_classes", classes_of(evaluation->result.classes, classes, names));
	if (evaluation->result.bad)
		add(&self, "val_bad_samples", json_integer((json_int_t)evaluation->result.bad));
	add(&self, "train_seconds", rounded(evaluation->train_seconds, 9));
	add(&self, "val_seconds", rounded(evaluation->val_seconds, 9));
	return finish(&self);
}

static json_t *buckets_of(const run_epoch_metrics *epoch)
{
	json_t *list = json_array();
	for (int i = 0; i < epoch->bucket_count; i++)
		if (json_array_append_new(list, rounded(epoch->bucket_ms[i] / 1e3, 9)) != 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static json_t *stages_of(const beton_loader_stats *stats)
{
	builder self = {.record = json_object()};
	add(&self, "order", seconds(stats->order_ns));
	add(&self, "storage", seconds(stats->submit_ns + stats->read_ns));
	add(&self, "verify", seconds(stats->verify_ns));
	add(&self, "decode", seconds(stats->decode_ns));
	add(&self, "transform", seconds(stats->transform_ns + stats->batch_ns));
	add(&self, "idle", seconds(stats->idle_ns));
	return finish(&self);
}

json_t *run_record_epoch(const run_epoch_metrics *epoch)
{
	builder self = begin("epoch", epoch->step);
	add(&self, "epoch", json_integer((json_int_t)epoch->epoch));
	add(&self, "steps", json_integer((json_int_t)epoch->steps));
	add(&self, "seconds", seconds(epoch->total_ns));
	for (int i = 0; i < RUN_PARTS; i++) {
		char key[64];
		snprintf(key, sizeof(key), "%s_seconds", run_part_names[i]);
		add(&self, key, seconds(epoch->part_ns[i]));
	}
	if (epoch->saving_ns)
		add(&self, "checkpoint_write_seconds", seconds(epoch->saving_ns));
	add(&self, "comm_exposed_buckets_seconds", buckets_of(epoch));
	add(&self, "comm_bytes", json_integer((json_int_t)epoch->comm_bytes));
	if (epoch->bad)
		add(&self, "bad_samples", json_integer((json_int_t)epoch->bad));
	add(&self, "data_limit", json_string(run_limit_names[epoch->limit]));
	add(&self, "data_diagnosis", text_of(epoch->diagnosis));
	add(&self, "loader_seconds", stages_of(&epoch->stages));
	add(&self, "read_ahead", json_integer((json_int_t)epoch->stages.read_ahead));
	return finish(&self);
}
