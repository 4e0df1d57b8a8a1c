/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference device: host memory, one thread, and kernels that are simple enough to check by reading.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "core/builtin.h"
#include "core/host.h"
#include "core/op.h"
#include "core/shape.h"
#include "ref.h"

struct dtrain_device {
	const dtrain_device_api *api;
};

static int ref_open(const dtrain_device_options *options, dtrain_device **out, beton_error *err)
{
	*out = NULL;
	if (options->index != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "device 'ref': index %d; there is only 0", options->index);
	dtrain_device *device = calloc(1, sizeof(*device));
	if (!device)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for device 'ref'");
	device->api = &dtrain__ref_api;
	*out = device;
	return BETON_OK;
}

static void ref_close(dtrain_device *device)
{
	free(device);
}

static void ref_caps(const dtrain_device *device, dtrain_device_caps *out)
{
	(void)device;
	*out = (dtrain_device_caps){.host_memory = true,
				    .dtypes = 1u << DTRAIN_F32 | 1u << DTRAIN_F64 | 1u << DTRAIN_F16 |
					      1u << DTRAIN_BF16 | 1u << DTRAIN_I64 | 1u << DTRAIN_U8 | 1u << DTRAIN_I32,
				    .alignment = DTRAIN__HOST_ALIGNMENT,
				    .batch_norm_add = true,
				    .gelu_bwd_fused = true,
				    .weight_copies = true,
				    .threads = 1};
	snprintf(out->description, sizeof(out->description), "plain C reference, 1 thread");
}

static bool is_half(const dtrain_op *op)
{
	return op->dtype == DTRAIN_F16 || op->dtype == DTRAIN_BF16;
}

static int ref_op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err)
{
	(void)device;
	*out = NULL;
	int status = dtrain__op_check(desc, err);
	if (status != BETON_OK)
		return status;
	dtrain_op *op = calloc(1, sizeof(*op));
	if (!op)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	op->kind = desc->kind;
	op->dtype = dtrain__op_compute_type(desc);
	op->run = (op->dtype == DTRAIN_F64 ? dtrain__ref_kernels_f64 : dtrain__ref_kernels_f32)[desc->kind];
	op->attrs = desc->attrs;
	op->num_inputs = desc->num_inputs;
	op->num_outputs = desc->num_outputs;
	for (int i = 0; i < desc->num_inputs; i++) {
		op->inputs[i] = desc->inputs[i].shape;
		op->dtypes[i] = desc->inputs[i].dtype;
	}
	for (int i = 0; i < desc->num_outputs; i++) {
		dtrain_operand *output = &desc->outputs[i];
		op->outputs[i] = output->shape;
		op->dtypes[desc->num_inputs + i] = output->dtype;
		output->layout = NULL;
		output->bytes = (size_t)dtrain_shape_count(&output->shape) * dtrain_dtype_size(output->dtype);
	}
	for (int32_t i = 0; desc->kind == DTRAIN_OP_CAST && i < desc->attrs.cast.num_segments; i++)
		desc->attrs.cast.segments[i].layout = NULL;
	desc->workspace_bytes = is_half(op) ? dtrain__ref_half_workspace(op) : 0;
	*out = op;
	return BETON_OK;
}

static void ref_op_destroy(dtrain_op *op)
{
	free(op);
}

static int ref_op_run(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err)
{
	(void)stream;
	return is_half(op) ? dtrain__ref_half_run(op, operands, workspace, err) : op->run(op, operands, err);
}

const dtrain_device_api dtrain__ref_api = {
	.api_version = DTRAIN_DEVICE_API_VERSION,
	.name = "ref",
	.open = ref_open,
	.close = ref_close,
	.caps = ref_caps,
	DTRAIN__HOST_SLOTS,
	.op_create = ref_op_create,
	.op_destroy = ref_op_destroy,
	.op_run = ref_op_run,
};
