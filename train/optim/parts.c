/* SPDX-License-Identifier: Apache-2.0
 *
 * What some kinds of updates need besides values, gradients and states: the number of the step, and the places of whole
 * parameters.
 */
#include <stdlib.h>

#include "common/error.h"
#include "optimizer.h"

void dtrain__fill_rates(const double *hypers, double lr, float *scalars)
{
	scalars[0] = (float)lr;
	scalars[1] = (float)hypers[1];
}

int dtrain__step_create(dtrain_optimizer *optimizer, beton_error *err)
{
	const dtrain__optimizer_kind *kind = optimizer->kind;
	int status =
		optimizer->api->alloc(optimizer->device, DTRAIN_STEPS * sizeof(float), (void **)&optimizer->step, err);
	if (status != BETON_OK)
		return status;
	const dtrain_op_attrs attrs = {
		.adam = {.beta1 = optimizer->hypers[kind->beta1], .beta2 = optimizer->hypers[kind->beta2]}};
	const dtrain__argument none = {.memory = NULL}, step = dtrain__optimizer_step(optimizer);
	return dtrain__optimizer_add(optimizer, &optimizer->update, DTRAIN_OP_COUNT_STEP, &attrs,
				     (const dtrain__argument[]){step, dtrain__optimizer_scaler(optimizer), none},
				     (const dtrain__argument[]){step, none}, err);
}

/* Whether the parameter is in the range, wholly or not. */
static bool is_inside(const dtrain_optimizer *optimizer, const dtrain_param *param)
{
	return param->offset < optimizer->begin + optimizer->count && param->offset + param->count > optimizer->begin;
}

static int64_t pieces_of(const dtrain_param *param)
{
	return (param->count + DTRAIN_PIECE_ELEMENTS - 1) / DTRAIN_PIECE_ELEMENTS;
}

static int check_whole(const dtrain_optimizer *optimizer, const dtrain_param *param, beton_error *err)
{
	int64_t begin = optimizer->begin, end = begin + optimizer->count;
	if (!param->placement.axis && param->offset >= begin && param->offset + param->count <= end)
		return BETON_OK;
	return bt_fail(err, BETON_UNSUPPORTED, "%s: needs the norm of '%s', of which this rank has only a part",
		       optimizer->kind->facts.name, param->name);
}

static void list_pieces(const dtrain_optimizer *optimizer, const dtrain_param *param, int64_t first, int64_t *out)
{
	int64_t parts = pieces_of(param);
	for (int64_t i = 0; i < parts; i++, out += DTRAIN_PIECE_NUMBERS) {
		int64_t done = i * DTRAIN_PIECE_ELEMENTS, left = param->count - done;
		out[DTRAIN_PIECE_BEGIN] = param->offset - optimizer->begin + done;
		out[DTRAIN_PIECE_COUNT] = left < DTRAIN_PIECE_ELEMENTS ? left : DTRAIN_PIECE_ELEMENTS;
		out[DTRAIN_PIECE_FIRST] = first;
		out[DTRAIN_PIECE_PARTS] = parts;
	}
}

int dtrain__pieces_create(dtrain_optimizer *optimizer, beton_error *err)
{
	int params = dtrain_params_count(optimizer->params), status = BETON_OK;
	for (int i = 0; i < params && status == BETON_OK; i++) {
		const dtrain_param *param = dtrain_params_at(optimizer->params, i);
		if (!is_inside(optimizer, param))
			continue;
		status = check_whole(optimizer, param, err);
		optimizer->num_pieces += pieces_of(param);
	}
	size_t bytes = (size_t)optimizer->num_pieces * DTRAIN_PIECE_NUMBERS * sizeof(int64_t);
	int64_t *host = NULL, first = 0;
	if (status != BETON_OK || !bytes)
		return status;
	status = optimizer->api->alloc(optimizer->device, bytes, (void **)&optimizer->pieces, err);
	if (status == BETON_OK)
		status = optimizer->api->host_alloc(optimizer->device, bytes, (void **)&host, err);
	if (status != BETON_OK)
		return status;
	for (int i = 0; i < params; i++) {
		const dtrain_param *param = dtrain_params_at(optimizer->params, i);
		if (!is_inside(optimizer, param))
			continue;
		list_pieces(optimizer, param, first, host + first * DTRAIN_PIECE_NUMBERS);
		first += pieces_of(param);
	}
	status = dtrain__optimizer_upload(optimizer, optimizer->pieces, host, bytes, err);
	optimizer->api->host_free(optimizer->device, host);
	return status;
}
