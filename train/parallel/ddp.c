/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed data parallel: the hooks that hand out buckets during backward, and the wait at the end of a step.
 */
#include "ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group.h"
#include "comm/work.h"
#include "common/error.h"
#include "common/sized.h"
#include "common/system.h"

#define DEFAULT_FIRST_BUCKET_BYTES (1u << 20)
#define DEFAULT_BUCKET_BYTES (25u << 20)

void dtrain_ddp_options_init(dtrain_ddp_options *options)
{
	*options = (dtrain_ddp_options){.struct_size = sizeof(*options),
					.first_bucket_bytes = DEFAULT_FIRST_BUCKET_BYTES,
					.bucket_bytes = DEFAULT_BUCKET_BYTES,
					.registration = DTRAIN_DDP_REGISTER_WITHIN_MACHINE};
}

void *dtrain__ddp_grads_at(const dtrain_ddp *ddp, int64_t offset)
{
	return (char *)dtrain_params_grads(ddp->params) +
	       offset * (int64_t)dtrain_dtype_size(dtrain_params_dtype(ddp->params));
}

static void begin_step(dtrain_ddp *ddp)
{
	for (int i = 0; i < ddp->count; i++)
		ddp->buckets[i].pending = ddp->buckets[i].params;
	memset(ddp->seen, 0, sizeof(*ddp->seen) * (size_t)dtrain_params_count(ddp->params));
	ddp->next = 0;
	ddp->running = false;
}

/* In order on every rank, or the ranks would reduce different buckets with each other: a bucket that is complete early
 * waits for those in front of it. */
static int start_buckets(dtrain_ddp *ddp, dtrain_stream *stream, beton_error *err)
{
	int status = BETON_OK;

	while (!status && ddp->next < ddp->count && ddp->buckets[ddp->next].pending == 0) {
		struct bucket *bucket = &ddp->buckets[ddp->next];
		const dtrain_bucket *range = &ddp->plan[ddp->next];
		const struct work_notes notes = {bucket->begin, bucket->end, bucket->label};

		status = dtrain__ddp_accumulate(ddp, ddp->next, !ddp->sync, stream, err);
		if (!status)
			status = ddp->api->event_record(bucket->ready, stream, err);
		if (!status && ddp->sync)
			status = dtrain__allreduce_noted(ddp->group, dtrain__ddp_grads_at(ddp, range->offset),
							 range->count, dtrain_params_dtype(ddp->params), DTRAIN_SUM,
							 bucket->ready, &notes, &bucket->work, err);
		if (!status)
			ddp->next++;
	}
	return status;
}

static int note_gradient(dtrain_ddp *ddp, bool sync, int param, dtrain_stream *stream, beton_error *err)
{
	int status = BETON_OK;

	if (param < 0 || param >= dtrain_params_count(ddp->params))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "ddp: no parameter %d", param);
	if (ddp->seen[param])
		return bt_fail(err, BETON_STATE,
			       "ddp: the gradient of %s came twice; call dtrain_ddp_finish after each step",
			       dtrain_params_at(ddp->params, param)->name);
	if (!ddp->running)
		status = ddp->api->event_mark(ddp->first, stream, err);
	if (status)
		return status;
	ddp->running = true;
	ddp->sync = sync;
	ddp->seen[param] = true;
	ddp->buckets[ddp->bucket_of[param]].pending--;
	return start_buckets(ddp, stream, err);
}

static int grad_ready_to_reduce(void *context, int param, dtrain_stream *stream, beton_error *err)
{
	return note_gradient(context, true, param, stream, err);
}

static int grad_ready_to_keep(void *context, int param, dtrain_stream *stream, beton_error *err)
{
	return note_gradient(context, false, param, stream, err);
}

static int create_events(dtrain_ddp *ddp, beton_error *err)
{
	const dtrain_device_api *api = ddp->api;
	int status = api->event_create(ddp->device, &ddp->first, err);

	if (!status)
		status = api->event_create(ddp->device, &ddp->last, err);
	if (!status)
		status = api->event_create(ddp->device, &ddp->resumed, err);
	if (!status)
		status = api->event_create(ddp->device, &ddp->ready, err);
	for (int i = 0; i < ddp->count && !status; i++) {
		struct bucket *bucket = &ddp->buckets[i];

		snprintf(bucket->label, sizeof(bucket->label), "bucket %d of %d", i + 1, ddp->count);
		status = api->event_create(ddp->device, &bucket->ready, err);
		if (!status)
			status = api->event_create(ddp->device, &bucket->begin, err);
		if (!status)
			status = api->event_create(ddp->device, &bucket->end, err);
	}
	return status;
}

static void destroy_event(dtrain_ddp *ddp, dtrain_event *event)
{
	if (event)
		ddp->api->event_destroy(event);
}

/* All ranks or none: NCCL does not say what happens otherwise. */
static int register_gradients(dtrain_ddp *ddp, dtrain_ddp_registration when, beton_error *err)
{
	size_t elements = (size_t)dtrain_params_flat_count(ddp->params) + DTRAIN_GRAD_EXTRA;
	int size = dtrain_group_size(ddp->group), status = BETON_OK;
	char *all;
	bool within = when == DTRAIN_DDP_REGISTER_WITHIN_MACHINE && dtrain__group_is_within_machine(ddp->group);
	bool wanted = when == DTRAIN_DDP_REGISTER_ALWAYS || within, everywhere = true;

	if (!dtrain__group_is_stream_ordered(ddp->group) || size == 1)
		return BETON_OK;
	all = calloc((size_t)size, 1);
	if (!all)
		return bt_fail(err, BETON_NO_MEMORY, "ddp: out of memory");
	if (wanted)
		status = dtrain__group_register(ddp->group, dtrain__ddp_grads_at(ddp, -DTRAIN_GRAD_EXTRA),
						elements * dtrain_dtype_size(dtrain_params_dtype(ddp->params)),
						&ddp->registration, err);
	if (!status)
		status = dtrain__group_gather_host(ddp->group, &(char){ddp->registration != NULL}, 1, all, err);
	for (int rank = 0; rank < size; rank++)
		everywhere = everywhere && all[rank];
	free(all);
	if (!everywhere) {
		dtrain__group_unregister(ddp->group, ddp->registration);
		ddp->registration = NULL;
	}
	return status;
}

static int prepare(dtrain_ddp *ddp, const dtrain_ddp_options *options, beton_error *err)
{
	int n = dtrain_params_count(ddp->params);
	int status = dtrain__plan_buckets(ddp->params, options->first_bucket_bytes, options->bucket_bytes, &ddp->plan,
					  &ddp->count, &ddp->bucket_of, err);

	if (status)
		return status;
	for (int i = 0; i < dtrain_params_buffer_count(ddp->params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(ddp->params, i);

		ddp->packed_count += dtrain_shape_count(&buffer->shape);
		ddp->moving_count += buffer->fixed ? 0 : dtrain_shape_count(&buffer->shape);
	}
	ddp->buckets = calloc((size_t)ddp->count, sizeof(*ddp->buckets));
	ddp->seen = calloc((size_t)n, sizeof(*ddp->seen));
	if (!ddp->buckets || !ddp->seen)
		return bt_fail(err, BETON_NO_MEMORY, "ddp: out of memory");
	status = ddp->api->alloc(ddp->device,
				 (size_t)ddp->packed_count * dtrain_dtype_size(dtrain_params_dtype(ddp->params)),
				 &ddp->packed, err);
	if (status)
		return status;
	for (int i = 0; i < n; i++)
		ddp->buckets[ddp->bucket_of[i]].params++;
	begin_step(ddp);
	return create_events(ddp, err);
}

int dtrain_ddp_create(dtrain_group *group, dtrain_params *params, const dtrain_ddp_options *given, dtrain_ddp **out,
		      beton_error *err)
{
	dtrain_ddp_options options;
	dtrain_ddp *ddp;
	int status;

	*out = NULL;
	dtrain_ddp_options_init(&options);
	status = given ? bt_sized_take(&options, given, "ddp options", err) : BETON_OK;
	if (status)
		return status;
	ddp = calloc(1, sizeof(*ddp));
	if (!ddp)
		return bt_fail(err, BETON_NO_MEMORY, "ddp: out of memory");
	ddp->group = group;
	ddp->params = params;
	ddp->device = dtrain_params_device(params);
	ddp->api = dtrain_device_get_api(ddp->device);
	ddp->sync_hooks = (dtrain_program_hooks){.context = ddp, .grad_ready = grad_ready_to_reduce};
	ddp->local_hooks = (dtrain_program_hooks){.context = ddp, .grad_ready = grad_ready_to_keep};
	status = dtrain__group_use_device(group, ddp->device, err);
	if (!status)
		status = prepare(ddp, &options, err);
	if (!status)
		status = dtrain__ddp_compare(ddp, err);
	if (!status)
		status = dtrain__ddp_broadcast(ddp, err);
	if (!status)
		status = register_gradients(ddp, options.registration, err);
	if (status) {
		dtrain_ddp_destroy(&ddp);
		return status;
	}
	*out = ddp;
	return BETON_OK;
}

void dtrain_ddp_destroy(dtrain_ddp **out)
{
	dtrain_ddp *ddp = out ? *out : NULL;

	if (!ddp)
		return;
	for (int i = 0; ddp->buckets && i < ddp->count; i++) {
		/* The group may still write to the gradients, and wait for the event. */
		if (ddp->buckets[i].work)
			dtrain_work_wait(&ddp->buckets[i].work, NULL);
		destroy_event(ddp, ddp->buckets[i].ready);
		destroy_event(ddp, ddp->buckets[i].begin);
		destroy_event(ddp, ddp->buckets[i].end);
	}
	destroy_event(ddp, ddp->first);
	destroy_event(ddp, ddp->last);
	destroy_event(ddp, ddp->resumed);
	destroy_event(ddp, ddp->ready);
	dtrain__group_unregister(ddp->group, ddp->registration);
	dtrain__ddp_accumulation_free(ddp);
	free(ddp->plan);
	free(ddp->buckets);
	free(ddp->bucket_of);
	free(ddp->seen);
	ddp->api->free(ddp->device, ddp->packed);
	free(ddp);
	*out = NULL;
}

int dtrain_ddp_bucket_count(const dtrain_ddp *ddp)
{
	return ddp->count;
}

const dtrain_bucket *dtrain_ddp_bucket_at(const dtrain_ddp *ddp, int index)
{
	return index >= 0 && index < ddp->count ? &ddp->plan[index] : NULL;
}

const dtrain_program_hooks *dtrain_ddp_hooks(dtrain_ddp *ddp, bool sync)
{
	return sync ? &ddp->sync_hooks : &ddp->local_hooks;
}

static int check_complete(const dtrain_ddp *ddp, beton_error *err)
{
	int missing = 0, first = -1;

	for (int i = 0; i < dtrain_params_count(ddp->params); i++) {
		if (ddp->seen[i])
			continue;
		first = first < 0 ? i : first;
		missing++;
	}
	if (!missing)
		return BETON_OK;
	return bt_fail(err, BETON_STATE, "ddp: %d parameters got no gradient in this step, the first is %s", missing,
		       dtrain_params_at(ddp->params, first)->name);
}

/* Waits for all that was started, whatever the outcome; the first error counts. since: when backward ended. */
static int wait_for_buckets(dtrain_ddp *ddp, uint64_t since, double *comm_ms, beton_error *err)
{
	uint64_t until = 0, start, end, now, total = 0;
	int status = BETON_OK, failed;

	for (int i = 0; i < ddp->next; i++) {
		beton_error failure = {0};

		failed = dtrain__work_wait_timed(&ddp->buckets[i].work, &start, &end, &failure);
		now = bt_now_ns();
		ddp->buckets[i].exposed_ms = (double)(now - since) / 1e6;
		since = now;
		if (failed) {
			if (!status && err)
				*err = failure;
			status = status ? status : failure.code;
			continue;
		}
		/* The thread runs one at a time, in order: the union is a sum. */
		start = start > until ? start : until;
		total += end > start ? end - start : 0;
		until = end > until ? end : until;
	}
	*comm_ms = (double)total / 1e6;
	return status;
}

static int finish_on_host(dtrain_ddp *ddp, dtrain_stream *stream, int status, beton_error *err)
{
	dtrain_ddp_step *step = &ddp->step;
	beton_error late = {0};
	uint64_t backward_end;
	int result;

	if (!status)
		status = ddp->api->stream_synchronize(stream, err);
	backward_end = bt_now_ns();
	if (!status)
		status = ddp->api->event_elapsed_ms(ddp->first, ddp->buckets[ddp->count - 1].ready, &step->backward_ms,
						    err);
	result = wait_for_buckets(ddp, backward_end, &step->comm_ms, &late);
	step->exposed_ms = (double)(bt_now_ns() - backward_end) / 1e6;
	if (result && !status) {
		status = result;
		if (err)
			*err = late;
	}
	return status;
}

/* The same on the stream, which waits for all that was started, whatever the outcome; the first error counts. */
static int finish_on_stream(dtrain_ddp *ddp, dtrain_stream *stream, int status, beton_error *err)
{
	if (!status)
		status = ddp->api->event_mark(ddp->last, stream, err);
	for (int i = 0; i < ddp->next; i++) {
		beton_error failure = {0};

		if (!dtrain_work_stream_wait(&ddp->buckets[i].work, stream, &failure) || status)
			continue;
		status = failure.code;
		if (err)
			*err = failure;
	}
	if (!status)
		status = ddp->api->event_mark(ddp->resumed, stream, err);
	ddp->has_marks = !status;
	return status;
}

int dtrain_ddp_finish(dtrain_ddp *ddp, dtrain_stream *stream, beton_error *err)
{
	int status;

	if (!ddp->running)
		return BETON_OK;
	ddp->step = (dtrain_ddp_step){0};
	for (int i = 0; i < ddp->count; i++)
		ddp->buckets[i].exposed_ms = 0;
	ddp->has_marks = false;
	status = check_complete(ddp, err);
	if (ddp->sync && dtrain__group_is_stream_ordered(ddp->group))
		status = finish_on_stream(ddp, stream, status, err);
	else if (ddp->sync)
		status = finish_on_host(ddp, stream, status, err);
	begin_step(ddp);
	return status;
}

int dtrain_ddp_get_step(dtrain_ddp *ddp, dtrain_ddp_step *out, beton_error *err)
{
	const dtrain_device_api *api = ddp->api;
	int status = dtrain_group_check(ddp->group, err);

	*out = ddp->step;
	if (status || !ddp->has_marks)
		return status;
	status = api->event_elapsed_ms(ddp->first, ddp->last, &out->backward_ms, err);
	if (!status)
		status = api->event_elapsed_ms(ddp->last, ddp->resumed, &out->exposed_ms, err);
	/* One stream runs them in order: the union is a sum. */
	for (int i = 0; i < ddp->count && !status; i++) {
		double one = 0;

		status = api->event_elapsed_ms(ddp->buckets[i].begin, ddp->buckets[i].end, &one, err);
		out->comm_ms += one;
	}
	return status;
}

double dtrain_ddp_bucket_exposed_ms(const dtrain_ddp *ddp, int index)
{
	return index >= 0 && index < ddp->count ? ddp->buckets[index].exposed_ms : 0;
}
