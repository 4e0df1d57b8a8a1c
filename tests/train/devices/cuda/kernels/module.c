/* SPDX-License-Identifier: Apache-2.0
 *
 * The device "emulated": the cuda device's own builders over the kernels on the CPU. Convolutions and products, which
 * the libraries compute there, are ref's, so that whole networks run. Memory is the host's, but only copies may use
 * that.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dtrain/module.h>

#include "common/error.h"
#include "core/builtin.h"
#include "core/host.h"
#include "numbers.h"
#include "train/devices/cuda/kernels/kernels.h"
#include "train/devices/cuda/ops/kernel_op.h"
#include "train/devices/cuda/tuner.h"

#define ALIGNMENT 256

BETON_API dtrain_module_entry_function dtrain_module_entry;

extern const dtrain_device_api cuda_device_api;

/* ---- what the device's other files have of CUDA ---- */

int cuda_enter(const dtrain_device *device, beton_error *err)
{
	(void)device;
	(void)err;
	return BETON_OK;
}

int cuda_check(cudaError_t status, beton_error *err, const char *format, ...)
{
	char text[256];
	va_list arguments;
	if (status == cudaSuccess)
		return BETON_OK;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return bt_fail(err, BETON_DEVICE, "%s: error %d", text, (int)status);
}

/* No op of this device has an algorithm to search for. */
void cuda_tuner_add(cuda_tuner *tuner, const dtrain_op_desc *desc)
{
	(void)tuner;
	(void)desc;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	(void)kind;
	(void)stream;
	memcpy(to, from, bytes);
	return cudaSuccess;
}

/* ---- the libraries' ops ---- */

static cudaError_t run_ref(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			   void *const *operands, void *workspace)
{
	(void)k;
	(void)stream;
	(void)workspace;
	dtrain_op_desc plain = *desc;
	dtrain_op *op;
	for (int i = 0; i < DTRAIN_OP_MAX_OPERANDS; i++)
		plain.inputs[i].layout = plain.outputs[i].layout = NULL;
	if (dtrain__ref_api.op_create(NULL, &plain, &op, NULL) != BETON_OK)
		return cudaErrorNotSupported;
	void *room = malloc(plain.workspace_bytes + 1);
	int status = room ? dtrain__ref_api.op_run(op, NULL, operands, room, NULL) : BETON_NO_MEMORY;
	free(room);
	dtrain__ref_api.op_destroy(op);
	return status == BETON_OK ? cudaSuccess : cudaErrorUnknown;
}

static int build_ref(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	cuda_kernel_op k = {.launch = run_ref, .nhwc = false};
	return cuda_kernel_op_create(op, desc, &k, err);
}

static int (*run_conv)(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err);

/* Runs an engine that also makes the sums of channels. */
static int run_conv_with_sums(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace,
			      beton_error *err)
{
	const dtrain_operand *y = &op->desc.outputs[0];
	int64_t channels = y->shape.dim[1], count = dtrain_shape_count(&y->shape);
	float *sums = (float *)((char *)operands[op->desc.num_inputs] + cuda_sums_offset(y));
	int status = run_conv(op, stream, operands, workspace, err);
	memset(sums, 0, 2 * (size_t)channels * sizeof(float));
	for (int64_t i = 0; i < count && status == BETON_OK; i++) {
		float value = (float)number_get(y->dtype, operands[op->desc.num_inputs], i);
		sums[i % channels] += value;
		sums[channels + i % channels] += value * value;
	}
	return status;
}

/* In half precision a convolution leaves the sums of its channels for the batch norm after it. */
static int build_conv(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	dtrain_operand *y = &desc->outputs[0];
	bool half = y->dtype == DTRAIN_F16 || y->dtype == DTRAIN_BF16;
	bool sums = desc->kind == DTRAIN_OP_CONV2D && desc->attrs.window.fusion != DTRAIN_FUSION_NONE && half &&
		    cuda_is_nhwc(y);
	if (sums) {
		y->layout = cuda_nhwc_sums;
		y->bytes = cuda_sums_offset(y) + 2 * (size_t)y->shape.dim[1] * sizeof(float);
	}
	int status = build_ref(op, desc, err);
	if (status == BETON_OK && sums) {
		run_conv = op->run;
		op->run = run_conv_with_sums;
	}
	return status;
}

int cuda_build_conv(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return cuda_is_cells(&desc->inputs[0]) ? cuda_build_depth_conv(op, desc, build_conv, err)
					       : build_conv(op, desc, err);
}

int cuda_build_linear(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return build_ref(op, desc, err);
}

int cuda_build_linear_loss(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return build_ref(op, desc, err);
}

int cuda_build_batch_norm(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return cuda_batch_norm_kernels(op, desc, err);
}

int cuda_build_max_pool(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return cuda_max_pool_kernels(op, desc, err);
}

int cuda_build_fused_attention(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return cuda_build_attention(op, desc, err);
}

/* ---- the device ---- */

static int open_device(const dtrain_device_options *options, dtrain_device **out, beton_error *err)
{
	(void)options;
	*out = calloc(1, sizeof(**out));
	int64_t *fault = calloc(1, sizeof(*fault));
	if (!*out || !fault || pthread_mutex_init(&(*out)->lock, NULL) != 0) {
		free(*out);
		free(fault);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for device 'emulated'");
	}
	(*out)->api = &cuda_device_api;
	(*out)->fault = fault;
	return BETON_OK;
}

static void close_device(dtrain_device *device)
{
	if (!device)
		return;
	pthread_mutex_destroy(&device->lock);
	free(device->fault);
	free(device);
}

static void caps(const dtrain_device *device, dtrain_device_caps *out)
{
	(void)device;
	*out = (dtrain_device_caps){.batch_norm_add = true,
				    .batch_norm_pair = true,
				    .conv_bwd_add = true,
				    .weight_copies = true,
				    .dtypes = 1u << DTRAIN_F32 | 1u << DTRAIN_F16 | 1u << DTRAIN_BF16 |
					      1u << DTRAIN_I32 | 1u << DTRAIN_I64 | 1u << DTRAIN_U8,
				    .alignment = ALIGNMENT,
				    .threads = 1,
				    .description = "kernels of the cuda device on the CPU"};
}

static int allocate(dtrain_device *device, size_t bytes, void **out, beton_error *err)
{
	(void)device;
	*out = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
	return *out ? dtrain__host_zero(NULL, *out, bytes, err)
		    : bt_fail(err, BETON_NO_MEMORY, "cannot allocate %zu bytes", bytes);
}

static int create_stream(dtrain_device *device, dtrain_stream **out, beton_error *err)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a stream");
	(*out)->device = device;
	return BETON_OK;
}

static void destroy_stream(dtrain_stream *stream)
{
	free(stream);
}

static int synchronize(dtrain_stream *stream, beton_error *err)
{
	int64_t fault = *stream->device->fault;
	*stream->device->fault = 0;
	return fault ? bt_fail(err, BETON_INVALID_ARGUMENT, "label %d of row %d", (int32_t)(fault >> 32),
			       (int32_t)fault - 1)
		     : BETON_OK;
}

const dtrain_device_api cuda_device_api = {
	.api_version = DTRAIN_DEVICE_API_VERSION,
	.name = "emulated",
	.open = open_device,
	.close = close_device,
	.caps = caps,
	.free_memory = dtrain__host_free_memory,
	.alloc = allocate,
	.free = dtrain__host_free,
	.host_alloc = dtrain__host_alloc,
	.host_free = dtrain__host_free,
	.stream_create = create_stream,
	.stream_destroy = destroy_stream,
	.stream_synchronize = synchronize,
	.stream_wait = dtrain__host_stream_wait,
	.event_create = dtrain__host_event_create,
	.event_destroy = dtrain__host_event_destroy,
	.event_record = dtrain__host_event_record,
	.event_synchronize = dtrain__host_event_synchronize,
	.event_elapsed_ms = dtrain__host_event_elapsed_ms,
	.event_mark = dtrain__host_event_record,
	.copy = dtrain__host_copy,
	.zero = dtrain__host_zero,
	.op_create = cuda_op_create,
	.op_destroy = cuda_op_destroy,
	.op_run = cuda_op_run,
};

const dtrain_module *dtrain_module_entry(void)
{
	static const dtrain_module module = {
		.api_version = DTRAIN_MODULE_API_VERSION, .version = "emulation", .device = &cuda_device_api};
	return &module;
}
