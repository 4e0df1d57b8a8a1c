/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of offloaded parameters. Three streams of the parameters' device work side by side, unit by unit: one copies
 * gradients to the host, one calls the host, which updates the unit, and one copies the new values to the device. This
 * code never waits, and all of it may be captured. Numbers that need the gradients of all units (their norm, whether
 * any is infinite) are computed on the device, which has them; updates then begin when four floats of it have come.
 * Where the sync has copied a unit's gradients to the host, and their memory is about to end, they are read when it
 * calls.
 */
#include <stdlib.h>

#include "common/error.h"
#include "core/params.h"
#include "optimizer.h"

typedef struct host_range {
	dtrain_optimizer *optimizer;
	int index;
	dtrain_event *complete; /* gradients, on the caller's stream */
	dtrain_event *fetched, *updated;
	bool is_fetched, is_updated; /* in this step, as far as streams know */
} host_range;

enum { STREAMS = 3 };

struct dtrain__host_update {
	dtrain_stream *fetches, *updates, *sends;
	dtrain_event *behind; /* what apply follows, on the caller's stream */
	dtrain_event *scaled; /* the scaler has come */
	dtrain_event *ended[STREAMS];
	float *scaler; /* DTRAIN_SCALERS, pinned */
	bool begun;    /* the number of the step is counted */
	host_range *ranges;
	int count;
};

static const dtrain_device_api *api_of(const dtrain_optimizer *optimizer)
{
	return dtrain_device_get_api(optimizer->before.device);
}

static int open_streams(dtrain_optimizer *optimizer, beton_error *err)
{
	dtrain__host_update *host = optimizer->host_update;
	const dtrain_device_api *api = api_of(optimizer);
	dtrain_device *device = optimizer->before.device;
	dtrain_stream **streams[] = {&host->fetches, &host->updates, &host->sends};
	dtrain_event **events[] = {&host->behind, &host->scaled, &host->ended[0], &host->ended[1], &host->ended[2]};
	int status = api->host_alloc(device, DTRAIN_SCALERS * sizeof(float), (void **)&host->scaler, err);
	for (int i = 0; i < STREAMS && status == BETON_OK; i++)
		status = api->stream_create(device, streams[i], err);
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]) && status == BETON_OK; i++)
		status = api->event_create(device, events[i], err);
	return status;
}

static int open_range(dtrain_optimizer *optimizer, int index, beton_error *err)
{
	host_range *range = &optimizer->host_update->ranges[index];
	dtrain_event **events[] = {&range->complete, &range->fetched, &range->updated};
	int status = BETON_OK;
	*range = (host_range){.optimizer = optimizer, .index = index};
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]) && status == BETON_OK; i++)
		status = api_of(optimizer)->event_create(optimizer->before.device, events[i], err);
	return status;
}

int dtrain__host_update_open(dtrain_optimizer *optimizer, beton_error *err)
{
	dtrain__host_update *host = optimizer->host_update = calloc(1, sizeof(*host));
	if (host)
		host->ranges = calloc((size_t)optimizer->num_ranges, sizeof(*host->ranges));
	if (!host || !host->ranges)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", optimizer->kind->info.name);
	host->count = optimizer->num_ranges;
	int status = open_streams(optimizer, err);
	for (int i = 0; i < host->count && status == BETON_OK; i++)
		status = open_range(optimizer, i, err);
	return status;
}

void dtrain__host_update_close(dtrain_optimizer *optimizer)
{
	dtrain__host_update *host = optimizer->host_update;
	if (!host)
		return;
	const dtrain_device_api *api = api_of(optimizer);
	dtrain_stream *streams[] = {host->fetches, host->updates, host->sends};
	dtrain_event *events[] = {host->behind, host->scaled, host->ended[0], host->ended[1], host->ended[2]};
	for (int i = 0; i < STREAMS; i++)
		if (streams[i]) {
			/* After an abandoned step these streams may still run. */
			api->stream_synchronize(streams[i], NULL);
			api->stream_destroy(streams[i]);
		}
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (events[i])
			api->event_destroy(events[i]);
	for (int i = 0; i < host->count; i++) {
		dtrain_event *of_range[] = {host->ranges[i].complete, host->ranges[i].fetched, host->ranges[i].updated};
		for (size_t k = 0; k < sizeof(of_range) / sizeof(of_range[0]); k++)
			if (of_range[k])
				api->event_destroy(of_range[k]);
	}
	api->host_free(optimizer->before.device, host->scaler);
	free(host->ranges);
	free(host);
	optimizer->host_update = NULL;
}

float *dtrain__host_update_scaler(const dtrain_optimizer *optimizer)
{
	return optimizer->host_update->scaler;
}

/* ---- in a thread of the device's ---- */

static void run_on_host(dtrain_optimizer *optimizer, int first, int count, int range)
{
	dtrain_params *params = optimizer->params;
	beton_error failure;
	int status = dtrain__offload_check(params, &failure);
	if (status != BETON_OK)
		return;
	status = dtrain__optimizer_run_part(optimizer, &optimizer->update, first, count, params->offload.stream,
					    &failure);
	if (status == BETON_OK && range >= 0)
		status = dtrain__offload_round(params, range, &failure);
	if (status != BETON_OK)
		dtrain__offload_fail(params, &failure);
}

/* Runs the ops before the ranges'. */
static void begin_step(void *context)
{
	dtrain_optimizer *optimizer = context;
	run_on_host(optimizer, 0, optimizer->ranges[0].first_op, -1);
}

static void update_range(void *context)
{
	const host_range *range = context;
	const dtrain__update_range *of = &range->optimizer->ranges[range->index];
	run_on_host(range->optimizer, of->first_op, of->num_ops, range->index);
}

/* ---- on streams ---- */

/* Makes a stream wait for everything that is on another one now. */
static int follow(const dtrain_optimizer *optimizer, dtrain_stream *stream, dtrain_event *event, dtrain_stream *other,
		  beton_error *err)
{
	const dtrain_device_api *api = api_of(optimizer);
	int status = api->event_record(event, other, err);
	return status == BETON_OK ? api->stream_wait(stream, event, err) : status;
}

static int fetch(host_range *range, dtrain_stream *stream, beton_error *err)
{
	const dtrain_optimizer *optimizer = range->optimizer;
	dtrain__host_update *host = optimizer->host_update;
	bool offloaded_grads = optimizer->ranges[range->index].offloaded_grads;
	int status = follow(optimizer, host->fetches, range->complete, stream, err);
	if (status == BETON_OK && !offloaded_grads)
		status = dtrain__offload_fetch(optimizer->params, range->index, host->fetches, err);
	if (status == BETON_OK)
		status = follow(optimizer, host->updates, range->fetched, host->fetches, err);
	range->is_fetched = status == BETON_OK;
	return status;
}

static int update(host_range *range, beton_error *err)
{
	dtrain_optimizer *optimizer = range->optimizer;
	dtrain__host_update *host = optimizer->host_update;
	const dtrain_device_api *api = api_of(optimizer);
	int status = BETON_OK;
	if (!host->begun && optimizer->ranges[0].first_op > 0)
		status = api->call_host(host->updates, begin_step, optimizer, err);
	host->begun = true;
	if (status == BETON_OK)
		status = api->call_host(host->updates, update_range, range, err);
	if (status == BETON_OK)
		status = api->event_record(range->updated, host->updates, err);
	range->is_updated = status == BETON_OK;
	return status;
}

/* Whether updates need what is computed from the gradients of all units. */
static bool needs_all(const dtrain_optimizer *optimizer)
{
	return dtrain__optimizer_scale(optimizer) != NULL;
}

/* Runs the ops before updates that read a unit's gradients before these leave the device. */
static int read_leaving(dtrain_optimizer *optimizer, int unit, dtrain_stream *stream, beton_error *err)
{
	const dtrain__update_ops *before = &optimizer->before;
	int status = BETON_OK;
	for (int i = 0; i < before->count && status == BETON_OK; i++)
		if (before->ops[i].leaving == &optimizer->ranges[unit])
			status = dtrain__optimizer_run_part(optimizer, before, i, 1, stream, err);
	return status;
}

/* The others, when all gradients are complete. */
static int read_rest(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	const dtrain__update_ops *before = &optimizer->before;
	int status = BETON_OK;
	for (int i = 0; i < before->count && status == BETON_OK; i++) {
		const dtrain__update_range *leaving = before->ops[i].leaving;
		if (!leaving)
			status = dtrain__optimizer_run_part(optimizer, before, i, 1, stream, err);
		else if (!optimizer->host_update->ranges[leaving - optimizer->ranges].is_fetched)
			status = bt_fail(err, BETON_STATE,
					 "%s: a norm, or a scaler, and gradients have left the device before "
					 "dtrain_optimizer_unit_complete told about them",
					 optimizer->kind->info.name);
	}
	return status;
}

int dtrain_optimizer_unit_complete(void *context, int unit, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, stream))
		return BETON_INVALID_ARGUMENT;
	dtrain_optimizer *optimizer = context;
	dtrain__host_update *host = optimizer->host_update;
	if (!host || unit < 0 || unit >= host->count)
		return BETON_OK;
	if (host->ranges[unit].is_fetched)
		return bt_fail(
			err, BETON_STATE,
			"%s: the gradients of unit %d are complete twice in a step: after one without apply, call "
			"dtrain_optimizer_abandon",
			optimizer->kind->info.name, unit + 1);
	int status = read_leaving(optimizer, unit, stream, err);
	if (status == BETON_OK)
		status = fetch(&host->ranges[unit], stream, err);
	return status == BETON_OK && !needs_all(optimizer) ? update(&host->ranges[unit], err) : status;
}

static int fetch_scaler(const dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	dtrain__host_update *host = optimizer->host_update;
	int status = follow(optimizer, host->fetches, host->behind, stream, err);
	if (status == BETON_OK)
		status = api_of(optimizer)->copy(host->fetches, host->scaler, dtrain__optimizer_scale(optimizer),
						 DTRAIN_SCALERS * sizeof(float), DTRAIN_DEVICE_TO_HOST, err);
	return status == BETON_OK ? follow(optimizer, host->updates, host->scaled, host->fetches, err) : status;
}

/* Sends the new values, after all reads of the old ones. */
static int send_all(const dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	const dtrain_device_api *api = api_of(optimizer);
	dtrain__host_update *host = optimizer->host_update;
	int status = follow(optimizer, host->sends, host->behind, stream, err);
	for (int i = 0; i < host->count && status == BETON_OK; i++) {
		status = api->stream_wait(host->sends, host->ranges[i].updated, err);
		if (status == BETON_OK)
			status = dtrain__offload_send(optimizer->params, i, host->sends, err);
	}
	return status;
}

/* Ends all work of this step before the next one; a capture must end with its own stream alone. */
static int join(const dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	const dtrain__host_update *host = optimizer->host_update;
	dtrain_stream *streams[] = {host->fetches, host->updates, host->sends};
	int status = BETON_OK;
	for (int i = 0; i < STREAMS && status == BETON_OK; i++)
		status = follow(optimizer, stream, host->ended[i], streams[i], err);
	return status;
}

static void end_step(dtrain__host_update *host)
{
	for (int i = 0; i < host->count; i++)
		host->ranges[i].is_fetched = host->ranges[i].is_updated = false;
	host->begun = false;
}

/* Zeroes the device's sums that each step must find 0, to which units may have added already. The inspection of a
 * scaler's first range begins anew on its own. */
static int forget_read(const dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	const dtrain_device_api *api = api_of(optimizer);
	float *clip = optimizer->clip;
	int status = clip ? api->zero(stream, clip + DTRAIN_CLIP_TOTAL, sizeof(*clip), err) : BETON_OK;
	return status == BETON_OK && optimizer->norm_table
		       ? api->zero(stream, optimizer->norm_table, optimizer->norm_table_bytes, err)
		       : status;
}

int dtrain__host_update_abandon(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	end_step(optimizer->host_update);
	int status = join(optimizer, stream, err);
	return status == BETON_OK ? forget_read(optimizer, stream, err) : status;
}

int dtrain__host_update_apply(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	dtrain__host_update *host = optimizer->host_update;
	int status = read_rest(optimizer, stream, err);
	for (int i = 0; i < host->count && status == BETON_OK; i++)
		status = host->ranges[i].is_fetched ? BETON_OK : fetch(&host->ranges[i], stream, err);
	if (status == BETON_OK && needs_all(optimizer))
		status = fetch_scaler(optimizer, stream, err);
	for (int i = 0; i < host->count && status == BETON_OK; i++)
		status = host->ranges[i].is_updated ? BETON_OK : update(&host->ranges[i], err);
	if (status == BETON_OK)
		status = send_all(optimizer, stream, err);
	if (status == BETON_OK)
		status = join(optimizer, stream, err);
	if (status == BETON_OK)
		status = dtrain__optimizer_run(optimizer, &optimizer->after, stream, err);
	end_step(host);
	return status;
}
