/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "common/error.h"

#include <dtrain/optim.h>

struct dtrain_sgd {
	const dtrain_device_api *api;
	dtrain_device *device;
	dtrain_params *params;
	double weight_decay;
	void *scaler;                /* state of the loss's scale; NULL */
	dtrain_op *inspect, *update; /* with a scaler */
	dtrain_op *op;
	void *momentum;
	void *workspace;
	size_t workspace_bytes;
	float *scalars; /* on the device: lr, weight_decay */
	/* The same in host memory. A copy may still read it when set_rate returns, so that the next must wait for
	 * copied before it writes. */
	float *host_scalars;
	dtrain_event *copied;
};

void dtrain_sgd_options_init(dtrain_sgd_options *options)
{
	*options = (dtrain_sgd_options){.struct_size = sizeof(*options), .momentum = 0.9};
}

static int check_options(const dtrain_sgd_options *options, beton_error *err)
{
	if (options->struct_size < sizeof(*options))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: struct_size %zu, need %zu", options->struct_size,
			       sizeof(*options));
	if (!(options->momentum >= 0 && options->momentum < 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: momentum %g is not in [0, 1)", options->momentum);
	if (!(options->weight_decay >= 0 && isfinite(options->weight_decay)))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: weight decay %g is not a number >= 0",
			       options->weight_decay);
	if (options->nesterov && options->momentum == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: Nesterov's form needs a momentum above 0");
	return BETON_OK;
}

static int create_op(dtrain_sgd *sgd, dtrain_op_desc *desc, dtrain_op **out, beton_error *err)
{
	for (int i = 0; i < desc->num_outputs; i++)
		desc->plain_output[i] = true;
	int status = sgd->api->op_create(sgd->device, desc, out, err);
	if (desc->workspace_bytes > sgd->workspace_bytes)
		sgd->workspace_bytes = desc->workspace_bytes;
	return status;
}

static int create_ops(dtrain_sgd *sgd, const dtrain_sgd_options *options, beton_error *err)
{
	dtrain_dtype dtype = dtrain_params_dtype(sgd->params);
	int64_t count = dtrain_params_flat_count(sgd->params);
	dtrain_operand flat = {
		.dtype = dtype, .shape = dtrain_shape_of(1, &count), .bytes = (size_t)count * dtrain_dtype_size(dtype)};
	dtrain_operand scalars = {.dtype = DTRAIN_F32,
				  .shape = dtrain_shape_of(1, (int64_t[]){DTRAIN_SGD_SCALARS}),
				  .bytes = DTRAIN_SGD_SCALARS * sizeof(float)};
	dtrain_operand scaler = {.dtype = DTRAIN_F32,
				 .shape = dtrain_shape_of(1, (int64_t[]){DTRAIN_SCALERS}),
				 .bytes = DTRAIN_SCALERS * sizeof(float)};
	dtrain_op_desc step = {.kind = DTRAIN_OP_SGD,
			       .attrs = {.momentum = options->momentum, .nesterov = options->nesterov},
			       .num_inputs = sgd->scaler ? 5 : 4,
			       .num_outputs = 2,
			       .inputs = {flat, flat, flat, scalars, scaler},
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
	int status = create_op(sgd, &step, &sgd->op, err);
	if (status == BETON_OK && sgd->scaler)
		status = create_op(sgd, &inspect, &sgd->inspect, err);
	if (status == BETON_OK && sgd->scaler)
		status = create_op(sgd, &update, &sgd->update, err);
	if (status == BETON_OK && sgd->workspace_bytes)
		status = sgd->api->alloc(sgd->device, sgd->workspace_bytes, &sgd->workspace, err);
	return status;
}

int dtrain_sgd_create(dtrain_params *params, const dtrain_sgd_options *options, dtrain_sgd **out, beton_error *err)
{
	*out = NULL;
	int status = check_options(options, err);
	if (status != BETON_OK)
		return status;
	if (!dtrain_params_values(params))
		return bt_fail(err, BETON_STATE, "sgd: the parameters are not allocated yet");
	if (dtrain_params_flat_count(params) < 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: the model has no parameters");
	dtrain_sgd *sgd = calloc(1, sizeof(*sgd));
	if (!sgd)
		return bt_fail(err, BETON_NO_MEMORY, "sgd: out of memory");
	sgd->params = params;
	sgd->device = dtrain_params_device(params);
	sgd->api = dtrain_device_get_api(sgd->device);
	sgd->weight_decay = options->weight_decay;
	sgd->scaler = options->scaler ? dtrain_scaler_memory(options->scaler) : NULL;
	size_t bytes = (size_t)dtrain_params_flat_count(params) * dtrain_dtype_size(dtrain_params_dtype(params));
	status = sgd->api->alloc(sgd->device, bytes, &sgd->momentum, err);
	if (status == BETON_OK)
		status = sgd->api->alloc(sgd->device, DTRAIN_SGD_SCALARS * sizeof(float), (void **)&sgd->scalars, err);
	if (status == BETON_OK)
		status = sgd->api->host_alloc(sgd->device, DTRAIN_SGD_SCALARS * sizeof(float),
					      (void **)&sgd->host_scalars, err);
	if (status == BETON_OK)
		status = sgd->api->event_create(sgd->device, &sgd->copied, err);
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
	dtrain_op *ops[] = {s->inspect, s->op, s->update};
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (ops[i])
			s->api->op_destroy(ops[i]);
	if (s->copied)
		s->api->event_destroy(s->copied);
	s->api->host_free(s->device, s->host_scalars);
	s->api->free(s->device, s->scalars);
	s->api->free(s->device, s->workspace);
	s->api->free(s->device, s->momentum);
	free(s);
	*sgd = NULL;
}

int dtrain_sgd_set_rate(dtrain_sgd *sgd, double lr, dtrain_stream *stream, beton_error *err)
{
	int status = sgd->api->event_synchronize(sgd->copied, err);
	if (status != BETON_OK)
		return status;
	sgd->host_scalars[0] = (float)lr;
	sgd->host_scalars[1] = (float)sgd->weight_decay;
	status = sgd->api->copy(stream, sgd->scalars, sgd->host_scalars, DTRAIN_SGD_SCALARS * sizeof(float),
				DTRAIN_HOST_TO_DEVICE, err);
	return status == BETON_OK ? sgd->api->event_record(sgd->copied, stream, err) : status;
}

int dtrain_sgd_apply(dtrain_sgd *sgd, dtrain_stream *stream, beton_error *err)
{
	void *values = dtrain_params_values(sgd->params), *grads = dtrain_params_grads(sgd->params);
	void *inspect[] = {grads, sgd->scaler, sgd->scaler}, *update[] = {sgd->scaler, sgd->scaler};
	void *plain[] = {values, grads, sgd->momentum, sgd->scalars, values, sgd->momentum};
	void *scaled[] = {values, grads, sgd->momentum, sgd->scalars, sgd->scaler, values, sgd->momentum};
	int status = BETON_OK;
	if (sgd->scaler)
		status = sgd->api->op_run(sgd->inspect, stream, inspect, sgd->workspace, err);
	if (status == BETON_OK)
		status = sgd->api->op_run(sgd->op, stream, sgd->scaler ? scaled : plain, sgd->workspace, err);
	if (status == BETON_OK && sgd->scaler)
		status = sgd->api->op_run(sgd->update, stream, update, sgd->workspace, err);
	return status;
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
