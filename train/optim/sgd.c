/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/sized.h"

#include <dtrain/optim.h>

#include "scalars.h"
#include "sgd.h"

struct dtrain_sgd {
	const dtrain_device_api *api;
	dtrain_device *device;
	dtrain_params *params;
	dtrain_sgd_group *groups;
	int32_t num_groups;
	void *scaler;          /* state of the loss's scale; NULL */
	dtrain__sgd_op ops[3]; /* with a scaler all of them; else the update of the weights */
	int num_ops;
	void *momentum;
	void *workspace;
	size_t workspace_bytes;
	uint8_t *group; /* on the device: of each DTRAIN_PARAM_ALIGN elements */
	size_t group_bytes;
	dtrain__scalars scalars; /* lr, weight_decay of each group */
};

void dtrain_sgd_options_init(dtrain_sgd_options *options)
{
	*options = (dtrain_sgd_options){.struct_size = sizeof(*options), .momentum = 0.9, .grad_divisor = 1};
}

static int check_group(int32_t index, double lr_scale, double weight_decay, beton_error *err)
{
	if (!(lr_scale >= 0 && isfinite(lr_scale)))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: group %d: lr_scale %g is not a number >= 0", index,
			       lr_scale);
	if (!(weight_decay >= 0 && isfinite(weight_decay)))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: group %d: weight decay %g is not a number >= 0",
			       index, weight_decay);
	return BETON_OK;
}

static int check_groups(const dtrain_params *params, const dtrain_sgd_options *options, beton_error *err)
{
	if (!options->groups)
		return options->num_groups || options->group_of
			       ? bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: groups without what they are")
			       : BETON_OK;
	if (options->num_groups < 1 || options->num_groups > DTRAIN_SGD_GROUPS)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: %d groups, not 1 to %d", options->num_groups,
			       DTRAIN_SGD_GROUPS);
	for (int32_t i = 0; i < options->num_groups; i++) {
		const dtrain_sgd_group *group = &options->groups[i];
		int status = check_group(i, group->lr_scale, group->weight_decay, err);
		if (status != BETON_OK)
			return status;
	}
	for (int i = 0; options->group_of && i < dtrain_params_count(params); i++)
		if (options->group_of[i] >= options->num_groups)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: parameter '%s' is in group %d of %d",
				       dtrain_params_at(params, i)->name, options->group_of[i], options->num_groups);
	return BETON_OK;
}

static int check_options(const dtrain_sgd_options *options, beton_error *err)
{
	if (!(options->momentum >= 0 && options->momentum < 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: momentum %g is not in [0, 1)", options->momentum);
	if (!(options->weight_decay >= 0 && isfinite(options->weight_decay)))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: weight decay %g is not a number >= 0",
			       options->weight_decay);
	if (!(options->grad_divisor > 0 && isfinite(options->grad_divisor)))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: gradients divided by %g, not by a number > 0",
			       options->grad_divisor);
	if (options->nesterov && options->momentum == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: Nesterov's form needs a momentum above 0");
	return BETON_OK;
}

static int add_op(dtrain_sgd *sgd, const dtrain_op_desc *desc, void *const *inputs, void *const *outputs,
		  beton_error *err)
{
	dtrain__sgd_op *op = &sgd->ops[sgd->num_ops];
	op->desc = *desc;
	for (int i = 0; i < desc->num_inputs; i++)
		op->operands[i] = inputs[i];
	for (int i = 0; i < desc->num_outputs; i++) {
		op->operands[desc->num_inputs + i] = outputs[i];
		op->desc.plain_output[i] = true;
	}
	int status = sgd->api->op_create(sgd->device, &op->desc, &op->op, err);
	if (status != BETON_OK)
		return status;
	sgd->num_ops++;
	if (op->desc.workspace_bytes > sgd->workspace_bytes)
		sgd->workspace_bytes = op->desc.workspace_bytes;
	return BETON_OK;
}

static int create_ops(dtrain_sgd *sgd, const dtrain_sgd_options *options, beton_error *err)
{
	dtrain_dtype dtype = dtrain_params_dtype(sgd->params);
	int64_t count = dtrain_params_flat_count(sgd->params);
	dtrain_operand flat = {
		.dtype = dtype, .shape = dtrain_shape_of(1, &count), .bytes = (size_t)count * dtrain_dtype_size(dtype)};
	int64_t rates[] = {sgd->num_groups, DTRAIN_SGD_SCALARS}, runs = (int64_t)sgd->group_bytes;
	dtrain_operand scalars = {.dtype = DTRAIN_F32, .shape = dtrain_shape_of(2, rates), .bytes = sgd->scalars.bytes};
	dtrain_operand group = {.dtype = DTRAIN_U8, .shape = dtrain_shape_of(1, &runs), .bytes = sgd->group_bytes};
	dtrain_operand scaler = {.dtype = DTRAIN_F32,
				 .shape = dtrain_shape_of(1, (int64_t[]){DTRAIN_SCALERS}),
				 .bytes = DTRAIN_SCALERS * sizeof(float)};
	dtrain_op_desc step = {.kind = DTRAIN_OP_SGD,
			       .attrs.sgd = {.momentum = options->momentum,
					     .nesterov = options->nesterov,
					     .grad_divisor = options->grad_divisor},
			       .num_inputs = sgd->scaler ? 6 : 5,
			       .num_outputs = 2,
			       .inputs = {flat, flat, flat, scalars, group, scaler},
			       .outputs = {flat, flat}};
	dtrain_op_desc inspect = {.kind = DTRAIN_OP_SCALER_INSPECT,
				  .num_inputs = 2,
				  .num_outputs = 1,
				  .inputs = {flat, scaler},
				  .outputs = {scaler}};
	dtrain_op_desc update = {.kind = DTRAIN_OP_SCALER_UPDATE,
				 .num_inputs = 1,
				 .num_outputs = 1,
				 .inputs = {scaler},
				 .outputs = {scaler}};
	void *values = dtrain_params_values(sgd->params), *grads = dtrain_params_grads(sgd->params);
	void *inputs[] = {values, grads, sgd->momentum, sgd->scalars.memory, sgd->group, sgd->scaler};
	int status = BETON_OK;
	if (sgd->scaler)
		status = add_op(sgd, &inspect, (void *[]){grads, sgd->scaler}, &sgd->scaler, err);
	if (status == BETON_OK)
		status = add_op(sgd, &step, inputs, (void *[]){values, sgd->momentum}, err);
	if (status == BETON_OK && sgd->scaler)
		status = add_op(sgd, &update, &sgd->scaler, &sgd->scaler, err);
	if (status == BETON_OK && sgd->workspace_bytes)
		status = sgd->api->alloc(sgd->device, sgd->workspace_bytes, &sgd->workspace, err);
	return status;
}

/* Fills device memory before anything is put on a stream of the caller's. */
static int upload(dtrain_sgd *sgd, void *to, const void *from, size_t bytes, beton_error *err)
{
	dtrain_stream *stream;
	int status = sgd->api->stream_create(sgd->device, &stream, err);
	if (status != BETON_OK)
		return status;
	status = sgd->api->copy(stream, to, from, bytes, DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = sgd->api->stream_synchronize(stream, err);
	sgd->api->stream_destroy(stream);
	return status;
}

/* The padding behind a parameter is of its last run; what a block has more stays in group 0: all of that is zero. */
static int place_groups(dtrain_sgd *sgd, const uint8_t *group_of, beton_error *err)
{
	int status = sgd->api->alloc(sgd->device, sgd->group_bytes, (void **)&sgd->group, err);
	if (status != BETON_OK || !group_of)
		return status;
	uint8_t *host;
	status = sgd->api->host_alloc(sgd->device, sgd->group_bytes, (void **)&host, err);
	if (status != BETON_OK)
		return status;
	memset(host, 0, sgd->group_bytes);
	for (int i = 0; i < dtrain_params_count(sgd->params); i++) {
		const dtrain_param *param = dtrain_params_at(sgd->params, i);
		memset(host + param->offset / DTRAIN_PARAM_ALIGN, group_of[i],
		       (size_t)((param->count + DTRAIN_PARAM_ALIGN - 1) / DTRAIN_PARAM_ALIGN));
	}
	status = upload(sgd, sgd->group, host, sgd->group_bytes, err);
	sgd->api->host_free(sgd->device, host);
	return status;
}

static int allocate(dtrain_sgd *sgd, beton_error *err)
{
	const dtrain_device_api *api = sgd->api;
	size_t bytes =
		(size_t)dtrain_params_flat_count(sgd->params) * dtrain_dtype_size(dtrain_params_dtype(sgd->params));
	int status = api->alloc(sgd->device, bytes, &sgd->momentum, err);
	size_t count = (size_t)sgd->num_groups * DTRAIN_SGD_SCALARS;
	return status == BETON_OK ? dtrain__scalars_open(&sgd->scalars, sgd->device, count, err) : status;
}

int dtrain_sgd_create(dtrain_params *params, const dtrain_sgd_options *given, dtrain_sgd **out, beton_error *err)
{
	dtrain_sgd_options own, *options = &own;
	*out = NULL;
	dtrain_sgd_options_init(options);
	int status = bt_sized_take(options, given, "sgd", err);
	if (status == BETON_OK)
		status = check_options(options, err);
	if (status == BETON_OK)
		status = check_groups(params, options, err);
	if (status != BETON_OK)
		return status;
	if (!dtrain_params_values(params))
		return bt_fail(err, BETON_STATE, "sgd: the parameters are not allocated yet");
	if (dtrain_params_flat_count(params) < 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: the model has no parameters");
	int32_t num_groups = options->groups ? options->num_groups : 1;
	const dtrain_sgd_group all = {.lr_scale = 1, .weight_decay = options->weight_decay};
	dtrain_sgd *sgd = calloc(1, sizeof(*sgd));
	dtrain_sgd_group *groups = calloc((size_t)num_groups, sizeof(*groups));
	if (!sgd || !groups) {
		free(sgd);
		free(groups);
		return bt_fail(err, BETON_NO_MEMORY, "sgd: out of memory");
	}
	memcpy(groups, options->groups ? options->groups : &all, (size_t)num_groups * sizeof(*groups));
	*sgd = (dtrain_sgd){.params = params,
			    .device = dtrain_params_device(params),
			    .api = dtrain_device_get_api(dtrain_params_device(params)),
			    .groups = groups,
			    .num_groups = num_groups,
			    .group_bytes = (size_t)(dtrain_params_flat_count(params) / DTRAIN_PARAM_ALIGN),
			    .scaler = options->scaler ? dtrain_scaler_memory(options->scaler) : NULL};
	status = allocate(sgd, err);
	if (status == BETON_OK)
		status = place_groups(sgd, options->group_of, err);
	if (status == BETON_OK)
		status = create_ops(sgd, options, err);
	if (status != BETON_OK) {
		dtrain_sgd_destroy(&sgd);
		return status;
	}
	*out = sgd;
	return BETON_OK;
}

void dtrain_sgd_destroy(dtrain_sgd **sgd)
{
	dtrain_sgd *s = *sgd;
	if (!s)
		return;
	for (int i = 0; i < s->num_ops; i++)
		s->api->op_destroy(s->ops[i].op);
	dtrain__scalars_close(&s->scalars);
	s->api->free(s->device, s->group);
	s->api->free(s->device, s->workspace);
	s->api->free(s->device, s->momentum);
	free(s->groups);
	free(s);
	*sgd = NULL;
}

int dtrain_sgd_set_group(dtrain_sgd *sgd, int32_t group, double lr_scale, double weight_decay, beton_error *err)
{
	if (group < 0 || group >= sgd->num_groups)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: no group %d of %d", group, sgd->num_groups);
	int status = check_group(group, lr_scale, weight_decay, err);
	if (status == BETON_OK)
		sgd->groups[group] = (dtrain_sgd_group){.lr_scale = lr_scale, .weight_decay = weight_decay};
	return status;
}

int dtrain_sgd_set_rate(dtrain_sgd *sgd, double lr, dtrain_stream *stream, beton_error *err)
{
	float *host = sgd->scalars.host;
	int status = dtrain__scalars_begin(&sgd->scalars, err);
	if (status != BETON_OK)
		return status;
	for (int32_t i = 0; i < sgd->num_groups; i++) {
		host[DTRAIN_SGD_SCALARS * i] = (float)(lr * sgd->groups[i].lr_scale);
		host[DTRAIN_SGD_SCALARS * i + 1] = (float)sgd->groups[i].weight_decay;
	}
	return dtrain__scalars_put(&sgd->scalars, stream, err);
}

int dtrain_sgd_apply(dtrain_sgd *sgd, dtrain_stream *stream, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < sgd->num_ops && status == BETON_OK; i++)
		status = sgd->api->op_run(sgd->ops[i].op, stream, sgd->ops[i].operands, sgd->workspace, err);
	return status;
}

const dtrain__sgd_op *dtrain__sgd_ops(const dtrain_sgd *sgd, int *count)
{
	*count = sgd->num_ops;
	return sgd->ops;
}

void *dtrain__sgd_workspace(const dtrain_sgd *sgd)
{
	return sgd->workspace;
}

int dtrain_sgd_step(dtrain_sgd *sgd, double lr, dtrain_stream *stream, beton_error *err)
{
	int status = dtrain_sgd_set_rate(sgd, lr, stream, err);
	return status == BETON_OK ? dtrain_sgd_apply(sgd, stream, err) : status;
}

void *dtrain_sgd_momentum(const dtrain_sgd *sgd)
{
	return sgd->momentum;
}
