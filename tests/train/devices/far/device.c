/* SPDX-License-Identifier: Apache-2.0 */
#include "far.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "core/host.h"
#include "core/op.h"

/* No address of a host has this bit without all those above it, neither on x86-64 nor on arm64. */
#define FAR_BIT ((uintptr_t)1 << 55)

static const char *const call_names[FAR_CALLS] = {"alloc", "host_alloc", "op", "copy", "capture", "launch"};

void *far_to_host(const void *address)
{
	return (void *)((uintptr_t)address & ~FAR_BIT);
}

bool far_is_device(const void *address)
{
	return ((uintptr_t)address & FAR_BIT) != 0;
}

bool far_fails(dtrain_device *device, enum far_call call, const char *op, beton_error *err)
{
	if (device->failing != (int)call || (device->failing_op[0] && (!op || strcmp(device->failing_op, op) != 0)))
		return false;
	if (atomic_fetch_add(&device->made, 1) + 1 != device->failing_at)
		return false;
	bt_fail(err, call == FAR_ALLOC || call == FAR_HOST_ALLOC ? BETON_NO_MEMORY : BETON_DEVICE,
		"device 'far': %s %llu fails, as DTRAIN_FAR_FAIL says",
		device->failing_op[0] ? device->failing_op : call_names[call], (unsigned long long)device->failing_at);
	return true;
}

static int read_number(const char *name, uint64_t least, uint64_t most, uint64_t *out, beton_error *err)
{
	const char *text = getenv(name);
	return text ? bt_parse_u64(name, text, least, most, out, err) : BETON_OK;
}

static int read_failure(dtrain_device *device, beton_error *err)
{
	const char *text = getenv("DTRAIN_FAR_FAIL"), *number = text ? strchr(text, ':') : NULL;
	device->failing = -1;
	if (!text)
		return BETON_OK;
	if (!number || number - text >= (ptrdiff_t)sizeof(device->failing_op))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "DTRAIN_FAR_FAIL: '%s' is not WHAT:N", text);
	memcpy(device->failing_op, text, (size_t)(number - text));
	for (int i = 0; i < DTRAIN_OP_KIND_COUNT; i++) {
		if (strcmp(device->failing_op, dtrain__op_name((dtrain_op_kind)i)) == 0)
			device->failing = FAR_OP_RUN;
	}
	for (int i = 0; i < FAR_CALLS; i++) {
		if (strcmp(device->failing_op, call_names[i]) != 0)
			continue;
		device->failing = i;
		device->failing_op[0] = 0;
	}
	if (device->failing < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "DTRAIN_FAR_FAIL: '%s' names no call and no op", text);
	return bt_parse_u64("DTRAIN_FAR_FAIL", number + 1, 1, UINT64_MAX, &device->failing_at, err);
}

static int far_open(const dtrain_device_options *options, dtrain_device **out, beton_error *err)
{
	uint64_t devices = 1, delay = 0, tune = 0;
	*out = NULL;
	dtrain_device *device = calloc(1, sizeof(*device));
	if (!device)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for device 'far'");
	int status = read_number("DTRAIN_FAR_DEVICES", 1, 1024, &devices, err);
	if (status == BETON_OK)
		status = read_number("DTRAIN_FAR_DELAY_US", 0, 1000000, &delay, err);
	if (status == BETON_OK)
		status = read_number("DTRAIN_FAR_TUNE", 1, 1000, &tune, err);
	if (status == BETON_OK)
		status = read_failure(device, err);
	if (status == BETON_OK && (uint64_t)options->index >= devices)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "device 'far': index %d; there are %d", options->index,
				 (int)devices);
	if (status != BETON_OK) {
		free(device);
		return status;
	}
	device->api = &far_api;
	device->index = options->index;
	device->delay_us = (uint32_t)delay;
	device->tune_step = options->tune_later ? (int32_t)tune : 0;
	pthread_mutex_init(&device->mutex, NULL);
	*out = device;
	return BETON_OK;
}

static void far_close(dtrain_device *device)
{
	if (!device)
		return;
	pthread_mutex_destroy(&device->mutex);
	free(device);
}

static void far_caps(const dtrain_device *device, dtrain_device_caps *out)
{
	*out = (dtrain_device_caps){.asynchronous = true,
				    .graph_capture = true,
				    .batch_norm_add = true,
				    .weight_copies = true,
				    .dtypes = 1u << DTRAIN_F32 | 1u << DTRAIN_F16 | 1u << DTRAIN_BF16 |
					      1u << DTRAIN_I64 | 1u << DTRAIN_U8,
				    .alignment = DTRAIN__HOST_ALIGNMENT,
				    .threads = 1};
	snprintf(out->description, sizeof(out->description), "reference kernels at a distance, delay %u us",
		 device->delay_us);
}

/* DTRAIN_FAR_MEMORY: the device's bytes. */
static uint64_t far_free_memory(dtrain_device *device)
{
	const char *text = getenv("DTRAIN_FAR_MEMORY");
	uint64_t bytes = text ? strtoull(text, NULL, 10) : UINT64_MAX;
	return device->allocated < bytes ? bytes - device->allocated : 0;
}

/* DTRAIN_FAR_PEAK: what it finds. */
static int far_measure_flops(dtrain_device *device, dtrain_dtype dtype, double *out, beton_error *err)
{
	const char *text = getenv("DTRAIN_FAR_PEAK");
	(void)device;
	(void)dtype;
	(void)err;
	*out = text ? strtod(text, NULL) : 0;
	return BETON_OK;
}

/* DTRAIN_FAR_ACTIVITY: what it does. */
static int far_get_activity(dtrain_device *device, dtrain_device_activity *out, beton_error *err)
{
	const char *text = getenv("DTRAIN_FAR_ACTIVITY");
	int64_t used, total;
	(void)device;
	*out = (dtrain_device_activity){.busy = -1, .memory_clock = -1};
	if (!text ||
	    sscanf(text, "%" SCNd64 ",%" SCNd64 ",%lf,%lf,%lf,%lf,%lf,%" SCNd32, &used, &total, &out->power,
		   &out->power_limit, &out->clock, &out->highest_clock, &out->temperature, &out->throttled) != 8)
		return bt_fail(err, BETON_UNSUPPORTED, "device 'far': DTRAIN_FAR_ACTIVITY does not say what it does");
	out->memory_used = used;
	out->memory_total = total;
	return BETON_OK;
}

int far_alloc(dtrain_device *device, size_t bytes, void **out, beton_error *err)
{
	*out = NULL;
	if (far_fails(device, FAR_ALLOC, NULL, err))
		return BETON_NO_MEMORY;
	if (bytes > far_free_memory(device))
		return bt_fail(err, BETON_NO_MEMORY, "device 'far': cannot allocate %zu bytes", bytes);
	int status = dtrain__host_alloc(device, bytes, out, err);
	device->allocated += status == BETON_OK ? malloc_usable_size(*out) : 0;
	if (status == BETON_OK)
		*out = (void *)((uintptr_t)*out | FAR_BIT);
	return status;
}

void far_free(dtrain_device *device, void *memory)
{
	if (!memory)
		return;
	far_settle(device);
	device->allocated -= malloc_usable_size(far_to_host(memory));
	dtrain__host_free(device, far_to_host(memory));
}

void far_tune_note(dtrain_device *device, dtrain_op_desc *desc)
{
	enum { MORE = 1024 };
	bool has_weights = desc->kind == DTRAIN_OP_CONV2D || desc->kind == DTRAIN_OP_LINEAR;
	if (!device->tune_step || !has_weights)
		return;
	if (device->found < device->untuned || device->untuned == 0) {
		device->untuned++;
		return;
	}
	desc->workspace_bytes += MORE;
	if (!desc->plain_output[0])
		desc->outputs[0].bytes += MORE;
}

void far_tune(dtrain_device *device, double milliseconds, dtrain_tuning *out)
{
	if (milliseconds > 0)
		far_settle(device);
	if (milliseconds > 0)
		device->found += device->tune_step;
	if (device->found > device->untuned)
		device->found = device->untuned;
	*out = (dtrain_tuning){.ops = device->untuned,
			       .left = device->untuned - device->found,
			       .found = device->found,
			       .waits = device->found < device->untuned};
}

static int far_host_alloc(dtrain_device *device, size_t bytes, void **out, beton_error *err)
{
	*out = NULL;
	if (far_fails(device, FAR_HOST_ALLOC, NULL, err))
		return BETON_NO_MEMORY;
	return dtrain__host_alloc(device, bytes, out, err);
}

static void far_host_free(dtrain_device *device, void *memory)
{
	if (!memory)
		return;
	far_settle(device);
	dtrain__host_free(device, memory);
}

const dtrain_device_api far_api = {
	.api_version = DTRAIN_DEVICE_API_VERSION,
	.name = "far",
	.open = far_open,
	.close = far_close,
	.caps = far_caps,
	.free_memory = far_free_memory,
	.measure_flops = far_measure_flops,
	.alloc = far_alloc,
	.free = far_free,
	.host_alloc = far_host_alloc,
	.host_free = far_host_free,
	.stream_create = far_stream_create,
	.stream_destroy = far_stream_destroy,
	.stream_synchronize = far_stream_synchronize,
	.stream_wait = far_stream_wait,
	.event_create = far_event_create,
	.event_destroy = far_event_destroy,
	.event_record = far_event_record,
	.event_synchronize = far_event_synchronize,
	.event_elapsed_ms = far_event_elapsed_ms,
	.event_mark = far_event_mark,
	.copy = far_copy,
	.zero = far_zero,
	.op_create = far_op_create,
	.op_destroy = far_op_destroy,
	.op_run = far_op_run,
	.capture_begin = far_capture_begin,
	.capture_end = far_capture_end,
	.capture_launch = far_capture_launch,
	.capture_destroy = far_capture_destroy,
	.call_host = far_call_host,
	.tune = far_tune,
	.get_activity = far_get_activity,
};

BETON_API dtrain_module_entry_function dtrain_module_entry;

const dtrain_module *dtrain_module_entry(void)
{
	static const dtrain_module module = {
		.api_version = DTRAIN_MODULE_API_VERSION,
		.version = "for tests",
		.device = &far_api,
#ifdef DTRAIN_HAVE_GLOO
		.group = &far_group,
#endif
	};
	return &module;
}
