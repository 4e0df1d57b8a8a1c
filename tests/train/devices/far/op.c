/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops: `ref`'s, on a stream.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "core/builtin.h"
#include "core/op.h"
#include "far.h"

struct dtrain_op {
	dtrain_device *device;
	dtrain_op_kind kind;
	int num_operands;
	dtrain_op *inner; /* ref's */
};

int far_op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err)
{
	*out = NULL;
	if (dtrain__op_compute_type(desc) == DTRAIN_F64)
		return bt_fail(err, BETON_UNSUPPORTED, "device 'far': op %s in f64", dtrain__op_name(desc->kind));
	dtrain_op *op = calloc(1, sizeof(*op));
	if (!op)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	int status = dtrain__ref_api.op_create(device, desc, &op->inner, err);
	if (status != BETON_OK) {
		free(op);
		return status;
	}
	far_tune_note(device, desc);
	op->device = device;
	op->kind = desc->kind;
	op->num_operands = desc->num_inputs + desc->num_outputs;
	*out = op;
	return BETON_OK;
}

void far_op_destroy(dtrain_op *op)
{
	if (!op)
		return;
	far_settle(op->device);
	dtrain__ref_api.op_destroy(op->inner);
	free(op);
}

int far_op_run(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err)
{
	struct far_task task = {.kind = FAR_OP, .op = op, .to = far_to_host(workspace)};
	if (far_fails(stream->device, FAR_OP_RUN, dtrain__op_name(op->kind), err))
		return BETON_DEVICE;
	if (workspace && !far_is_device(workspace))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "device 'far': the workspace of op %s is not memory of the device",
			       dtrain__op_name(op->kind));
	for (int i = 0; i < op->num_operands; i++) {
		if (!far_is_device(operands[i]))
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "device 'far': operand %d of op %s is not memory of the device", i,
				       dtrain__op_name(op->kind));
		task.operands[i] = far_to_host(operands[i]);
	}
	return far_enqueue(stream, &task, err);
}

/* DTRAIN_FAR_SLOW_OP=NAME:US: ops of that name take so much longer. */
static void wait_if_slow(const dtrain_op *op)
{
	const char *slow = getenv("DTRAIN_FAR_SLOW_OP"), *name = dtrain__op_name(op->kind);
	size_t length = strlen(name);
	if (slow && strncmp(slow, name, length) == 0 && slow[length] == ':')
		usleep((useconds_t)strtoul(slow + length + 1, NULL, 10));
}

int far_op_execute(const dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	wait_if_slow(op);
	return dtrain__ref_api.op_run(op->inner, NULL, operands, workspace, err);
}
