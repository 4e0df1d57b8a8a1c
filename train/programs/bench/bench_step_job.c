/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_step_job.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"

/* ---- opening ---- */

static int open_engine(bench_job *job, beton_error *err)
{
	const bench_step_options *o = job->options;
	engine_example *example = &job->example;
	const engine_example_options asked = {.model = o->model,
					      .batch_size = (int64_t)o->batch,
					      .classes = (int64_t)o->classes,
					      .image_size = (int64_t)o->side,
					      .usual_size = 128,
					      .context_length = (int64_t)o->context};
	dtrain_device_options options = {.struct_size = sizeof(options),
					 .index = run_device_index(&o->device, 0, false),
					 .threads = (int32_t)o->threads,
					 .tf32 = o->precision == ENGINE_PRECISION_TF32,
					 .tune_later = o->tune == RUN_TUNE_LATER};
	dtrain_sync_options sync;
	dtrain_device *device = NULL;
	dtrain_sync_options_init(&sync);
	int status = engine_example_open(example, &asked, err);
	example->job.recompute = o->recompute;
	const engine_data made_up = example->data;
	if (status == BETON_OK && o->data)
		status = example->job.task->read_data(&example->job, &o->data, 1, NULL, &example->data, err);
	example->data.classes = made_up.classes;
	if (made_up.outputs)
		example->data.outputs = made_up.outputs;
	if (status == BETON_OK)
		status = dtrain_device_open(o->device.name, &options, &device, err);
	return status == BETON_OK ? engine_open(&job->engine, &example->job, &example->data, device,
						(engine_precision)o->precision, NULL, &sync, err)
				  : status;
}

static int open_file(const void *context, beton_loader_options *loader, beton_loader **out, beton_error *err)
{
	const bench_step_options *o = context;
	loader->num_threads = (uint32_t)o->workers;
	return beton_loader_open(out, o->data, loader, err);
}

static int open_loader(bench_job *job, beton_error *err)
{
	const bench_step_options *o = job->options;
	const engine_files files = {.open = open_file, .context = o};
	beton_loader_options loader;
	beton_loader_options_init(&loader);
	loader.batch_size = (uint32_t)o->batch;
	loader.order = BETON_ORDER_RANDOM;
	loader.last = BETON_LAST_DROP;
	if (job->engine.staged)
		engine_feed_allocator(job->engine.device, &loader.allocator);
	const engine_task *task = job->engine.job.task;
	if (task->set_samples)
		task->set_samples(&job->engine.job, &job->example.data, true, &loader);
	int status = task->open_loader ? task->open_loader(&job->engine, true, &loader, &files, &job->loader, err)
				       : files.open(files.context, &loader, &job->loader, err);
	if (status == BETON_OK && beton_loader_num_batches(job->loader) == 0)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: has less than one batch of %llu %ss", o->data,
				 (unsigned long long)o->batch, task->sample);
	beton_iterator_options epochs;
	beton_iterator_options_init(&epochs);
	epochs.epochs = 0;
	return status == BETON_OK ? beton_iterator_open_with(&job->iterator, job->loader, &epochs, err) : status;
}

static int open_stepper(bench_job *job, beton_error *err)
{
	const engine_stepper_options stepper = {.optimizer = job->optimizer, .no_capture = job->options->no_capture};
	return engine_stepper_open(&job->engine, &stepper, &job->stepper, err);
}

int bench_job_open(bench_job *job, const bench_step_options *options, beton_error *err)
{
	*job = (bench_job){.options = options, .began_ns = bt_now_ns()};
	dtrain_optimizer_options optimizer;
	dtrain_optimizer_options_init(&optimizer);
	int status = open_engine(job, err);
	if (job->engine.job.task == &lm_task)
		optimizer.kind = "adamw";
	optimizer.scaler = job->engine.scaler;
	if (status == BETON_OK)
		status = dtrain_params_initialize(job->engine.params, 1, job->engine.stream, err);
	if (status == BETON_OK)
		status = dtrain_optimizer_create(job->engine.params, &optimizer, &job->optimizer, err);
	if (status == BETON_OK)
		status = options->data ? open_loader(job, err) : engine_example_feed(&job->engine, err);
	if (status == BETON_OK)
		status = engine_synchronize(&job->engine, "the parameters", err);
	return status == BETON_OK ? open_stepper(job, err) : status;
}

void bench_job_close(bench_job *job)
{
	engine_stepper_close(&job->stepper);
	beton_iterator_close(&job->iterator);
	beton_loader_close(&job->loader);
	dtrain_optimizer_destroy(&job->optimizer);
	engine_close(&job->engine);
	engine_example_close(&job->example);
}

double bench_job_units(const bench_job *job)
{
	const engine_task *task = job->engine.job.task;
	return (double)job->options->batch * (task->units ? (double)task->units(&job->engine) : 1);
}

/* ---- timing ---- */

static double seconds_since(uint64_t began_ns)
{
	return (double)(bt_now_ns() - began_ns) * 1e-9;
}

static int next_batch(bench_job *job, beton_batch **out, beton_error *err)
{
	int status = beton_iterator_next(job->iterator, out, -1, err);
	return status == BETON_END ? beton_iterator_next(job->iterator, out, -1, err) : status;
}

/* Waits until at most `under_way` steps are running. */
static int settle(bench_job *job, int under_way, bench_times *times, beton_error *err)
{
	int status = BETON_OK;
	while (status == BETON_OK && engine_stepper_pending(job->stepper) > under_way) {
		engine_step_result step;
		status = engine_stepper_settle(job->stepper, &step, err);
		times->data_seconds += step.data_wait_ms * 1e-3;
		times->launch_seconds += step.launch_ms * 1e-3;
		times->device_seconds += step.device_ms * 1e-3;
	}
	return status;
}

static int one_step(bench_job *job, bench_times *times, beton_error *err)
{
	beton_batch *batch = NULL;
	uint64_t began = bt_now_ns();
	int status = job->loader ? next_batch(job, &batch, err) : BETON_OK;
	if (status == BETON_OK)
		status =
			engine_stepper_launch(job->stepper, batch, job->steps++, 1e-3, seconds_since(began) * 1e3, err);
	return status == BETON_OK ? settle(job, engine_stepper_lag(job->stepper), times, err) : status;
}

/* Waits for all steps. */
static int drain(bench_job *job, bench_times *times, beton_error *err)
{
	int status = settle(job, 0, times, err);
	return status == BETON_OK ? engine_synchronize(&job->engine, "the end of the steps", err) : status;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

int bench_job_activity(bench_job *job, bool *known, dtrain_device_activity *out, beton_error *err)
{
	const dtrain_device_api *api = job->engine.api;
	bench_times unused = {0};
	int status = BETON_OK;
	/* The first call is slow, and the device would be idle at its end. */
	*known = api->get_activity && api->get_activity(job->engine.device, out, NULL) == BETON_OK;
	if (!*known)
		return BETON_OK;
	for (int i = 0; i <= engine_stepper_lag(job->stepper) && status == BETON_OK; i++)
		status = one_step(job, &unused, err);
	*known = status == BETON_OK && api->get_activity(job->engine.device, out, NULL) == BETON_OK;
	return status == BETON_OK ? drain(job, &unused, err) : status;
}

int bench_job_time(bench_job *job, bench_times *out, beton_error *err)
{
	int steps = (int)job->options->steps;
	bool staged = job->engine.staged;
	double *seconds = calloc((size_t)steps, sizeof(double));
	if (!seconds)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %d steps", steps);
	int status = one_step(job, out, err);
	if (status == BETON_OK)
		status = drain(job, out, err);
	double first = seconds_since(job->began_ns);
	for (int i = 1; i < engine_stepper_warm_up(job->stepper) && status == BETON_OK; i++)
		status = one_step(job, out, err);
	if (status == BETON_OK)
		status = drain(job, out, err);
	*out = (bench_times){.first_seconds = first};
	uint64_t start = bt_now_ns();
	for (int i = 0; i < steps && status == BETON_OK; i++) {
		uint64_t began = bt_now_ns();
		status = one_step(job, out, err);
		seconds[i] = seconds_since(began);
	}
	if (status == BETON_OK)
		status = drain(job, out, err);
	double total = seconds_since(start);
	qsort(seconds, (size_t)steps, sizeof(double), by_size);
	out->step_seconds = staged || job->loader ? total / steps : seconds[steps / 2];
	out->launch_seconds = staged ? out->launch_seconds / steps : 0;
	out->device_seconds /= steps;
	out->data_seconds /= steps;
	free(seconds);
	return status;
}
