/* SPDX-License-Identifier: Apache-2.0 */
#include "described.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"

/* As in the device "cuda": the alignment of tensors in memory, the limits of a chunk of logits in bytes, and how it
 * pads classes. */
enum { ALIGNMENT = 256, MULTIPLE = 8, PADDED = 64 };
static const size_t LEAST_CHUNK = (size_t)256 << 20, MOST_CHUNK = (size_t)4 << 30;

/* Some functions replace the functions of the device "ref". */
typedef struct described {
	dtrain_device_api api;
	const dtrain_device_api *inner;
	const dtrain__gpu *gpu;
	bool tf32;
} described;

static const described *described_of(const dtrain_device *device)
{
	return (const described *)dtrain_device_get_api(device);
}

static void described_caps(const dtrain_device *device, dtrain_device_caps *out)
{
	const described *self = described_of(device);
	const dtrain__gpu *gpu = self->gpu;
	self->inner->caps(device, out);
	out->asynchronous = true;
	out->host_memory = false;
	out->weight_copies = true;
	out->batch_norm_pair = true;
	out->alignment = ALIGNMENT;
	out->dtypes = 1u << DTRAIN_F32 | 1u << DTRAIN_I32 | 1u << DTRAIN_I64 | 1u << DTRAIN_U8;
	out->dtypes |= (gpu->f16 > 0 ? 1u << DTRAIN_F16 : 0) | (gpu->bf16 > 0 ? 1u << DTRAIN_BF16 : 0);
	out->bandwidth = gpu->bandwidth;
	out->flops[DTRAIN_F32] = self->tf32 ? gpu->tf32 : gpu->f32;
	out->flops[DTRAIN_F16] = gpu->f16;
	out->flops[DTRAIN_BF16] = gpu->bf16;
	snprintf(out->description, sizeof(out->description), "%s", gpu->product);
}

static bool is_linear_loss(dtrain_op_kind kind)
{
	return kind == DTRAIN_OP_LINEAR_XENT || kind == DTRAIN_OP_LINEAR_XENT_EVAL ||
	       kind == DTRAIN_OP_LINEAR_XENT_BIAS || kind == DTRAIN_OP_LINEAR_XENT_BIAS_EVAL;
}

/* A chunk of logits, which their gradients replace; without gradients they are F32. Classes that 8 does not divide are
 * padded, so weights and their gradient are copied. */
static size_t loss_workspace(const described *self, const dtrain_op_desc *desc)
{
	size_t element = dtrain_dtype_size(desc->inputs[0].dtype), classes = (size_t)desc->inputs[1].shape.dim[0];
	size_t chunk = (size_t)(self->gpu->memory / 16), rows = (size_t)desc->inputs[0].shape.dim[0];
	bool pads = classes % MULTIPLE != 0;
	bool trains = desc->kind == DTRAIN_OP_LINEAR_XENT || desc->kind == DTRAIN_OP_LINEAR_XENT_BIAS;
	size_t wide = pads ? (classes + PADDED - 1) / PADDED * PADDED : classes;
	size_t row = wide * (trains ? element : sizeof(float));
	chunk = chunk < LEAST_CHUNK ? LEAST_CHUNK : chunk > MOST_CHUNK ? MOST_CHUNK : chunk;
	size_t logits = rows * row < chunk ? rows * row : chunk;
	return logits + (pads ? wide * (size_t)desc->inputs[0].shape.dim[1] * (sizeof(float) + element) : 0);
}

static int described_op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err)
{
	const described *self = described_of(device);
	int status = self->inner->op_create(device, desc, out, err);
	desc->workspace_bytes = status == BETON_OK && is_linear_loss(desc->kind) ? loss_workspace(self, desc) : 0;
	return status;
}

static int described_call_host(dtrain_stream *stream, void (*function)(void *context), void *context, beton_error *err)
{
	(void)stream, (void)function, (void)context;
	return bt_fail(err, BETON_UNSUPPORTED, "a device of a plan calls no function of the host");
}

static void described_close(dtrain_device *device)
{
	described *self = (described *)dtrain_device_get_api(device);
	self->inner->close(device);
	free(self);
}

int plan_describe(const dtrain__gpu *gpu, bool tf32, dtrain_device **out, beton_error *err)
{
	const dtrain_device_options options = {.struct_size = sizeof(options), .threads = 1};
	int status = dtrain_device_open("ref", &options, out, err);
	if (status != BETON_OK)
		return status;
	const dtrain_device_api *inner = dtrain_device_get_api(*out);
	described *self = malloc(sizeof(*self));
	if (!self) {
		dtrain_device_close(out);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the description of a GPU");
	}
	*self = (described){.api = *inner, .inner = inner, .gpu = gpu, .tf32 = tf32};
	self->api.name = gpu->name;
	self->api.caps = described_caps;
	self->api.close = described_close;
	self->api.op_create = described_op_create;
	self->api.call_host = described_call_host;
	/* The functions are the first member of every device's struct. */
	*(const dtrain_device_api **)*out = &self->api;
	return BETON_OK;
}
