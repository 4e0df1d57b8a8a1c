/* SPDX-License-Identifier: Apache-2.0 */
#include "step_job.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"

enum { EAGER_STEPS = 2 };

static bool is_asynchronous(const bench_job *job)
{
	return !job->caps.host_memory;
}

static bool captures(const bench_job *job)
{
	return is_asynchronous(job) && job->caps.graph_capture && !job->options->no_capture;
}

static dtrain_dtype type_of(const bench_step_options *options)
{
	return options->precision == BENCH_BF16   ? DTRAIN_BF16
	       : options->precision == BENCH_FP16 ? DTRAIN_F16
						  : DTRAIN_F32;
}

dtrain_dtype bench_job_type(const bench_job *job)
{
	return type_of(job->options);
}

static beton_dtype pixel_type(const bench_job *job)
{
	static const beton_dtype types[] = {
		[DTRAIN_F32] = BETON_FLOAT32, [DTRAIN_F16] = BETON_FLOAT16, [DTRAIN_BF16] = BETON_BFLOAT16};
	return is_asynchronous(job) ? BETON_UINT8 : types[type_of(job->options)];
}

/* ---- opening ---- */

static int open_device(bench_job *job, beton_error *err)
{
	const bench_step_options *o = job->options;
	dtrain_device_options options = {.struct_size = sizeof(options),
					 .index = run_device_index(&o->device, 0, false),
					 .threads = (int32_t)o->threads,
					 .tf32 = o->precision == BENCH_TF32};
	int status = dtrain_device_open(o->device.name, &options, &job->device, err);
	if (status != BETON_OK)
		return status;
	job->api = dtrain_device_get_api(job->device);
	job->api->caps(job->device, &job->caps);
	if (!(job->caps.dtypes & 1u << type_of(o)))
		return bt_fail(err, BETON_UNSUPPORTED, "device %s does not compute in %s", job->api->name,
			       dtrain_dtype_name(type_of(o)));
	status = job->api->stream_create(job->device, &job->stream, err);
	if (status == BETON_OK && o->precision == BENCH_FP16)
		status = dtrain_scaler_create(job->device, job->stream, &job->scaler, err);
	return status;
}

static const float mean[3] = {123.675f, 116.28f, 103.53f}, deviation[3] = {58.395f, 57.12f, 57.375f};

static int make_program(bench_job *job, beton_error *err)
{
	const bench_step_options *o = job->options;
	int64_t batch = (int64_t)o->batch, side = (int64_t)o->side;
	bool bytes = is_asynchronous(job);
	int status = dtrain_graph_create(job->params, true, &job->graph, err);
	if (status != BETON_OK)
		return status;
	dtrain_graph_set_dtype(job->graph, type_of(o));
	if (job->scaler)
		dtrain_graph_set_scaler(job->graph, dtrain_scaler_memory(job->scaler));
	dtrain_shape image = bytes ? dtrain_shape_of(4, (int64_t[]){batch, side, side, 3})
				   : dtrain_shape_of(4, (int64_t[]){batch, 3, side, side});
	dtrain_shape label = dtrain_shape_of(1, &batch);
	job->image = dtrain_graph_input(job->graph, "image", bytes ? DTRAIN_U8 : type_of(o), &image);
	dtrain_tensor x = bytes ? dtrain_normalize(job->graph, job->image, mean, deviation) : job->image;
	job->label = dtrain_graph_input(job->graph, "label", DTRAIN_I64, &label);
	dtrain_tensor logits = dtrain_model_build(job->graph, o->model, x, (int64_t)o->classes);
	dtrain_graph_backward(
		job->graph, dtrain_mean(job->graph, dtrain_softmax_cross_entropy(job->graph, logits, job->label, 0.1)));
	return dtrain_graph_compile(&job->graph, &job->program, err);
}

static int open_loader(bench_job *job, beton_error *err)
{
	const bench_step_options *o = job->options;
	beton_loader_options loader;
	beton_loader_options_init(&loader);
	loader.batch_size = (uint32_t)o->batch;
	loader.num_threads = (uint32_t)o->workers;
	loader.order = BETON_ORDER_RANDOM;
	loader.last = BETON_LAST_DROP;
	loader.batches_leased = BENCH_SLOTS + 1;
	loader.image.height = loader.image.width = (uint32_t)o->side;
	loader.image.crop = BETON_CROP_RANDOM;
	loader.image.flip_probability = 0.5;
	loader.image.dtype = pixel_type(job);
	loader.image.layout = is_asynchronous(job) ? BETON_NHWC : BETON_NCHW;
	loader.image.normalize = !is_asynchronous(job);
	for (int channel = 0; channel < 3 && !is_asynchronous(job); channel++) {
		loader.image.mean[channel] = mean[channel];
		loader.image.std[channel] = deviation[channel];
	}
	if (is_asynchronous(job))
		engine_feed_allocator(job->device, &loader.allocator);
	int status = beton_loader_open(&job->loader, o->data, &loader, err);
	if (status == BETON_OK && beton_loader_num_batches(job->loader) == 0)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: has less than one batch of %llu pictures", o->data,
				 (unsigned long long)o->batch);
	return status == BETON_OK ? beton_iterator_open(&job->iterator, job->loader, 0, 0, err) : status;
}

static int open_slots(bench_job *job, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < BENCH_SLOTS && status == BETON_OK; i++) {
		dtrain_event **events[] = {&job->slots[i].began, &job->slots[i].ended, &job->slots[i].done};
		for (int k = 0; k < 3 && status == BETON_OK; k++)
			status = job->api->event_create(job->device, events[k], err);
	}
	return status;
}

static int feed(bench_job *job, const void *pixels, const int64_t *labels, uint32_t rows, beton_error *err)
{
	const engine_feed_batch batch = {.pixels_input = dtrain_program_data(job->program, job->image),
					 .labels_input = dtrain_program_data(job->program, job->label),
					 .pixels = pixels,
					 .labels = labels,
					 .rows = rows};
	return engine_feed_put(&job->feed, &batch, err);
}

/* The same pictures for all steps: bytes, or numbers around 0 whose upper half is the same for BF16. */
static int feed_once(bench_job *job, beton_error *err)
{
	size_t count = (size_t)dtrain_shape_count(dtrain_program_shape(job->program, job->image));
	size_t element = dtrain_dtype_size(dtrain_program_dtype(job->program, job->image));
	char *pixels = calloc(count, element);
	int64_t *labels = calloc(job->options->batch, sizeof(*labels));
	int status = pixels && labels ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for %zu pixels", count);
	for (size_t i = 0; i < count && status == BETON_OK; i++) {
		float value = (float)(i * 2654435761u % 1000) * 2e-3f - 1;
		if (element == sizeof(value))
			memcpy(pixels + i * element, &value, sizeof(value));
		else
			pixels[i * element] = (char)(i * 2654435761u >> 13 & 0x3f);
	}
	if (status == BETON_OK)
		status = feed(job, pixels, labels, (uint32_t)job->options->batch, err);
	if (status == BETON_OK)
		status = job->api->stream_synchronize(job->stream, err);
	free(pixels);
	free(labels);
	return status;
}

int bench_job_open(bench_job *job, const bench_step_options *options, beton_error *err)
{
	*job = (bench_job){.options = options};
	dtrain_sgd_options sgd;
	dtrain_sgd_options_init(&sgd);
	int status = open_device(job, err);
	if (status == BETON_OK)
		status = dtrain_params_create(job->device, DTRAIN_F32, &job->params, err);
	if (status == BETON_OK)
		status = make_program(job, err);
	if (status == BETON_OK)
		status = dtrain_params_initialize(job->params, 1, job->stream, err);
	sgd.scaler = job->scaler;
	if (status == BETON_OK)
		status = dtrain_sgd_create(job->params, &sgd, &job->sgd, err);
	if (status == BETON_OK)
		status = engine_feed_open(&job->feed, job->device, job->stream, is_asynchronous(job),
					  (int64_t)options->batch,
					  3 * options->side * options->side *
						  dtrain_dtype_size(dtrain_program_dtype(job->program, job->image)),
					  err);
	if (status == BETON_OK)
		status = open_slots(job, err);
	if (status != BETON_OK)
		return status;
	return options->data ? open_loader(job, err) : feed_once(job, err);
}

void bench_job_close(bench_job *job)
{
	if (job->stream)
		job->api->stream_synchronize(job->stream, NULL);
	for (int i = 0; i < BENCH_SLOTS; i++) {
		bench_slot *slot = &job->slots[i];
		dtrain_event *events[] = {slot->began, slot->ended, slot->done};
		/* Before the events that are marked in it. */
		if (slot->captured)
			job->api->capture_destroy(slot->captured);
		for (int k = 0; k < 3; k++)
			if (events[k])
				job->api->event_destroy(events[k]);
		beton_batch_release(&slot->batch);
	}
	beton_iterator_close(&job->iterator);
	beton_loader_close(&job->loader);
	engine_feed_close(&job->feed);
	dtrain_sgd_destroy(&job->sgd);
	dtrain_program_destroy(&job->program);
	dtrain_graph_destroy(&job->graph);
	dtrain_params_destroy(&job->params);
	dtrain_scaler_destroy(&job->scaler);
	if (job->stream)
		job->api->stream_destroy(job->stream);
	dtrain_device_close(&job->device);
}

/* ---- timing ---- */

static int next_batch(bench_job *job, beton_batch **out, beton_error *err)
{
	int status = beton_iterator_next(job->iterator, out, -1, err);
	if (status != BETON_END)
		return status;
	beton_iterator_close(&job->iterator);
	status = beton_iterator_open(&job->iterator, job->loader, ++job->epoch, 0, err);
	return status == BETON_OK ? beton_iterator_next(job->iterator, out, -1, err) : status;
}

static int feed_batch(bench_job *job, const beton_batch *batch, beton_error *err)
{
	const beton_tensor *image = NULL, *label = NULL;
	for (uint32_t i = 0; i < batch->num_tensors; i++) {
		const beton_tensor *tensor = &batch->tensors[i];
		if (!image && tensor->ndim == 4 && tensor->dtype == pixel_type(job))
			image = tensor;
		if (!label && tensor->ndim == 1 && tensor->dtype == BETON_INT64)
			label = tensor;
	}
	if (!image || !label)
		return bt_fail(err, BETON_NOT_FOUND, "%s: has no pictures with labels", job->options->data);
	return feed(job, image->data, label->data, batch->count, err);
}

static int put_body(bench_job *job, bench_slot *slot, beton_error *err)
{
	int status = job->api->event_mark(slot->began, job->stream, err);
	if (status == BETON_OK)
		status = dtrain_program_run(job->program, job->stream, NULL, err);
	if (status == BETON_OK)
		status = dtrain_sgd_apply(job->sgd, job->stream, err);
	return status == BETON_OK ? job->api->event_mark(slot->ended, job->stream, err) : status;
}

static int capture(bench_job *job, bench_slot *slot, beton_error *err)
{
	beton_error late = {0};
	void *captured = NULL;
	int status = job->api->capture_begin(job->stream, err);
	if (status != BETON_OK)
		return status;
	status = put_body(job, slot, err);
	if (job->api->capture_end(job->stream, &captured, &late) != BETON_OK && status == BETON_OK) {
		*err = late;
		return late.code;
	}
	slot->captured = captured;
	return status;
}

static int launch(bench_job *job, beton_error *err)
{
	bench_slot *slot = &job->slots[job->launched % BENCH_SLOTS];
	bool whole = captures(job) && job->launched >= EAGER_STEPS;
	int status = whole && !slot->captured ? capture(job, slot, err) : BETON_OK;
	if (status == BETON_OK && slot->batch)
		status = feed_batch(job, slot->batch, err);
	if (status == BETON_OK)
		status = dtrain_sgd_set_rate(job->sgd, 1e-3, job->stream, err);
	if (status == BETON_OK)
		status = whole ? job->api->capture_launch(slot->captured, job->stream, err) : put_body(job, slot, err);
	job->launched++;
	return status == BETON_OK ? job->api->event_record(slot->done, job->stream, err) : status;
}

static int settle(bench_job *job, bench_times *times, beton_error *err)
{
	bench_slot *slot = &job->slots[job->settled++ % BENCH_SLOTS];
	double ms = 0;
	int status = is_asynchronous(job) ? job->api->event_synchronize(slot->done, err)
					  : job->api->stream_synchronize(job->stream, err);
	if (status == BETON_OK && is_asynchronous(job))
		status = job->api->event_elapsed_ms(slot->began, slot->ended, &ms, err);
	times->device_seconds += ms * 1e-3;
	beton_batch_release(&slot->batch);
	return status;
}

static double seconds_since(uint64_t began_ns)
{
	return (double)(bt_now_ns() - began_ns) * 1e-9;
}

static int one_step(bench_job *job, bench_times *times, beton_error *err)
{
	uint64_t began = bt_now_ns();
	int status = job->loader ? next_batch(job, &job->slots[job->launched % BENCH_SLOTS].batch, err) : BETON_OK;
	times->data_seconds += seconds_since(began);
	began = bt_now_ns();
	if (status == BETON_OK)
		status = launch(job, err);
	times->launch_seconds += seconds_since(began);
	uint64_t lag = is_asynchronous(job) ? BENCH_SLOTS - 1 : 0;
	while (status == BETON_OK && job->launched - job->settled > lag)
		status = settle(job, times, err);
	return status;
}

static int drain(bench_job *job, bench_times *times, beton_error *err)
{
	int status = BETON_OK;
	while (status == BETON_OK && job->launched > job->settled)
		status = settle(job, times, err);
	return status == BETON_OK ? job->api->stream_synchronize(job->stream, err) : status;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

int bench_job_time(bench_job *job, bench_times *out, beton_error *err)
{
	int steps = (int)job->options->steps, warm_up = captures(job) ? EAGER_STEPS + 2 * BENCH_SLOTS : EAGER_STEPS;
	double *seconds = calloc((size_t)steps, sizeof(double));
	if (!seconds)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %d steps", steps);
	int status = BETON_OK;
	for (int i = 0; i < warm_up && status == BETON_OK; i++)
		status = one_step(job, out, err);
	if (status == BETON_OK)
		status = drain(job, out, err);
	*out = (bench_times){0};
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
	out->step_seconds = is_asynchronous(job) || job->loader ? total / steps : seconds[steps / 2];
	out->launch_seconds = is_asynchronous(job) ? out->launch_seconds / steps : 0;
	out->device_seconds /= steps;
	out->data_seconds /= steps;
	free(seconds);
	return status;
}
