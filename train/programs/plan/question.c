/* SPDX-License-Identifier: Apache-2.0 */
#include "question.h"

#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "described.h"

/* The GPU of a plan where no GPU is here or named, and the samples of a batch where no memory is known. */
#define USUAL_GPU "h100"
enum { USUAL_BATCH = 64 };

/* The part of a GPU's memory that training can have; CUDA and its libraries need the rest. */
#define USABLE 0.95

static int find_optimizer(plan_question *q, bool *whole, beton_error *err)
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

static int open_device(plan_question *q, dtrain_device **out, beton_error *err)
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
static engine_precision find_precision(const plan_question *q, dtrain_device *device)
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
static void find_speed(plan_question *q)
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
}

static int open_engine(plan_question *q, dtrain_device *device, beton_error *err)
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

int plan_question_open(plan_question *q, const plan_options *o, beton_error *err)
{
	*q = (plan_question){.options = o};
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
	return BETON_OK;
}

void plan_question_close(plan_question *q)
{
	engine_close(&q->engine);
	engine_example_close(&q->example);
}
