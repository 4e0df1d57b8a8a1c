/* SPDX-License-Identifier: Apache-2.0
 *
 * The outer optimizer of unsynchronized ranks: the exchange at the end of a round.
 */
#include "outer.h"

#include <math.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/sized.h"
#include "core/params.h"

#define DEFAULT_STEPS 500
#define DEFAULT_LR 0.7
#define DEFAULT_MOMENTUM 0.9

void dtrain_local_options_init_sized(dtrain_local_options *options, size_t size)
{
	const dtrain_local_options defaults = {.struct_size = sizeof(defaults),
					       .steps = DEFAULT_STEPS,
					       .lr = DEFAULT_LR,
					       .momentum = DEFAULT_MOMENTUM};
	bt_sized_init(options, size, &defaults);
}

static int check_options(const dtrain_local_options *options, beton_error *err)
{
	if (options->steps < 1 || options->warmup_steps < 0 || options->last_step < 0)
		return bt_fail(
			err, BETON_INVALID_ARGUMENT, "local: bad schedule: steps %lld, warmup %lld, last step %lld",
			(long long)options->steps, (long long)options->warmup_steps, (long long)options->last_step);
	if (!(options->lr > 0 && isfinite(options->lr) && options->momentum >= 0 && options->momentum < 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "local: an outer rate of %g and a momentum of %g",
			       options->lr, options->momentum);
	return BETON_OK;
}

int dtrain_local_create(dtrain_sync *sync, const dtrain_local_options *given, dtrain_local **out, beton_error *err)
{
	if (BT_MISSING(err, sync, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_local_options options;
	*out = NULL;
	dtrain_local_options_init(&options);
	int status = given ? bt_sized_take(&options, given, "local options", err) : BETON_OK;
	if (status == BETON_OK)
		status = check_options(&options, err);
	if (status != BETON_OK)
		return status;
	if (!sync->kind->has_rounds)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "local: the sync has the strategy '%s'", sync->kind->name);
	if (!sync->reductions)
		return bt_fail(err, BETON_STATE, "local: no graph was compiled");
	dtrain_local *local = calloc(1, sizeof(*local));
	if (!local)
		return bt_fail(err, BETON_NO_MEMORY, "local: out of memory");
	local->sync = sync;
	local->options = options;
	local->bytes =
		(size_t)dtrain_params_flat_count(sync->params) * dtrain_dtype_size(dtrain_params_dtype(sync->params));
	status = dtrain__outer_create(local, err);
	if (status != BETON_OK) {
		dtrain_local_destroy(&local);
		return status;
	}
	*out = local;
	return BETON_OK;
}

void dtrain_local_destroy(dtrain_local **out)
{
	if (!out)
		return;
	dtrain_local *local = *out;
	if (!local)
		return;
	local->sync->unsynchronized = false;
	dtrain__outer_destroy(local);
	free(local);
	*out = NULL;
}

static bool has_begun(const dtrain_local *local, int64_t done)
{
	return done >= local->options.warmup_steps;
}

static int copy(const dtrain_local *local, void *to, const void *from, dtrain_stream *stream, beton_error *err)
{
	return local->sync->api->copy(stream, to, from, local->bytes, DTRAIN_DEVICE_TO_DEVICE, err);
}

static int share_values(dtrain_local *local, dtrain_stream *stream, beton_error *err)
{
	return copy(local, local->shared, dtrain_params_values(local->sync->params), stream, err);
}

int dtrain_local_start(dtrain_local *local, int64_t done, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, local, stream))
		return BETON_INVALID_ARGUMENT;
	local->done = done;
	return share_values(local, stream, err);
}

bool dtrain_local_is_unsynchronized(const dtrain_local *local, int64_t step)
{
	if (!local)
		return false;
	return has_begun(local, step);
}

void dtrain_local_begin(dtrain_local *local, int64_t step, dtrain_sync_trace *trace)
{
	if (!local)
		return;
	local->sync->unsynchronized = dtrain_local_is_unsynchronized(local, step);
	dtrain_sync_set_trace(local->sync, trace);
	if (trace)
		dtrain__outer_reset(local, trace);
}

static bool ends_round(const dtrain_local *local, int64_t done)
{
	const dtrain_local_options *options = &local->options;
	int64_t apart = done - options->warmup_steps;
	return apart > 0 && (apart % options->steps == 0 || done == options->last_step);
}

/* ---- the outer update ---- */

static int put_differences(dtrain_local *local, dtrain_stream *stream, beton_error *err)
{
	const dtrain_device_api *api = local->sync->api;
	int status = BETON_OK;
	for (int i = 0; i < local->count && status == BETON_OK; i++) {
		outer_unit *unit = &local->units[i];
		status =
			api->op_run(unit->negate, stream, (void *[]){unit->values, unit->delta}, local->workspace, err);
		if (status == BETON_OK)
			status = api->op_run(unit->add, stream, (void *[]){unit->delta, unit->shared, unit->delta},
					     local->workspace, err);
		if (status == BETON_OK)
			status = dtrain__outer_send(local, i, stream, err);
	}
	return status;
}

static int update(const dtrain_local *local, const outer_unit *unit, dtrain_stream *stream, beton_error *err)
{
	const dtrain_device_api *api = local->sync->api;
	void *operands[] = {unit->shared,   unit->delta,  unit->momentum, local->rates,
			    local->members, unit->shared, unit->momentum};
	int status = api->op_run(unit->update, stream, operands, local->workspace, err);
	if (status == BETON_OK)
		status = api->copy(stream, unit->values, unit->shared, unit->bytes, DTRAIN_DEVICE_TO_DEVICE, err);
	/* Backward writes no gradient of parameters that have none, and reads zeros there. */
	return status == BETON_OK ? api->zero(stream, unit->delta, unit->bytes, err) : status;
}

static int end_round(dtrain_local *local, dtrain_stream *stream, beton_error *err)
{
	int status = put_differences(local, stream, err);
	for (int i = 0; i < local->count && status == BETON_OK; i++) {
		status = dtrain__operation_wait(&local->units[i].sum, &local->units[i].flight, stream, err);
		if (status == BETON_OK)
			status = update(local, &local->units[i], stream, err);
	}
	dtrain__outer_abandon(local);
	return status == BETON_OK ? dtrain_params_changed(local->sync->params, stream, err) : status;
}

int dtrain_local_end(dtrain_local *local, int64_t step, dtrain_sync_trace *trace, dtrain_stream *stream, bool *synced,
		     beton_error *err)
{
	if (BT_MISSING(err, local, stream))
		return BETON_INVALID_ARGUMENT;
	local->done = step + 1;
	dtrain_sync_set_trace(local->sync, trace);
	*synced = ends_round(local, local->done);
	if (*synced) {
		int status = end_round(local, stream, err);
		if (status != BETON_OK)
			bt_prefix(err, "the end of a round");
		return status;
	}
	/* The first round begins with what the warm-up has left. */
	return local->done == local->options.warmup_steps ? share_values(local, stream, err) : BETON_OK;
}

/* ---- the shared parameters in place of the rank's own ---- */

int dtrain_local_show(dtrain_local *local, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, local, stream))
		return BETON_INVALID_ARGUMENT;
	dtrain_params *params = local->sync->params;
	void *values = dtrain_params_values(params);
	int status = copy(local, dtrain_local_own(local), values, stream, err);
	if (status != BETON_OK || !has_begun(local, local->done))
		return status;
	status = copy(local, values, local->shared, stream, err);
	return status == BETON_OK ? dtrain_params_changed(params, stream, err) : status;
}

int dtrain_local_hide(dtrain_local *local, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, local, stream))
		return BETON_INVALID_ARGUMENT;
	dtrain_params *params = local->sync->params;
	int status = share_values(local, stream, err);
	if (status == BETON_OK)
		status = copy(local, dtrain_params_values(params), dtrain_local_own(local), stream, err);
	if (status == BETON_OK)
		status = local->sync->api->zero(stream, dtrain_local_own(local), local->bytes, err);
	return status == BETON_OK ? dtrain_params_changed(params, stream, err) : status;
}

void *dtrain_local_own(const dtrain_local *local)
{
	if (!local)
		return NULL;
	return dtrain_params_grads(local->sync->params);
}

void *dtrain_local_momentum(const dtrain_local *local)
{
	if (!local)
		return NULL;
	return local->momentum;
}
