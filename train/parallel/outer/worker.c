/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker of a parameter server.
 */
#include <stdlib.h>

#include "comm/group/work.h"
#include "common/error.h"
#include "common/sized.h"
#include "server_link.h"

/* How often the caller is asked. */
#define ASK_NS 200000000ull

struct dtrain_worker {
	link_arrays arrays;
	dtrain_group *group;
	dtrain_server_options options;
	int64_t word;         /* of the server: link_word */
	dtrain_work *waiting; /* a message that the worker has given up */
	float *values, *sent; /* host memory that the device copies from and to */
};

/* The server's buffers replace the initial ones. */
static int take_buffers(dtrain_worker *worker, beton_error *err)
{
	const link_arrays *arrays = &worker->arrays;
	float *first = NULL;
	if (!arrays->all)
		return BETON_OK;
	int status = arrays->api->host_alloc(arrays->device, (size_t)arrays->all * sizeof(float), (void **)&first, err);
	if (status == BETON_OK)
		status = dtrain__link_receive(worker->group, LINK_SERVER, first, arrays->all, DTRAIN_F32, err);
	if (status == BETON_OK)
		status = dtrain__link_first_buffers(arrays, first, false, err);
	arrays->api->host_free(arrays->device, first);
	return status;
}

int dtrain_worker_create(dtrain_params *params, dtrain_store *store, int number, const dtrain_server_options *given,
			 dtrain_worker **out, beton_error *err)
{
	if (BT_MISSING(err, params, store, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_server_options options;
	*out = NULL;
	dtrain_server_options_init(&options);
	int status = given ? bt_sized_take(&options, given, "server options", err) : BETON_OK;
	if (status != BETON_OK)
		return status;
	dtrain_worker *worker = calloc(1, sizeof(*worker));
	if (!worker)
		return bt_fail(err, BETON_NO_MEMORY, "parameter server: out of memory");
	link_arrays *arrays = &worker->arrays;
	worker->options = options;
	status = dtrain__link_arrays_of(params, arrays, err);
	if (status == BETON_OK)
		status = arrays->api->host_alloc(arrays->device, (size_t)arrays->count * sizeof(float),
						 (void **)&worker->values, err);
	if (status == BETON_OK)
		status = arrays->api->host_alloc(arrays->device, (size_t)dtrain__link_pushed(arrays) * sizeof(float),
						 (void **)&worker->sent, err);
	if (status == BETON_OK)
		status = dtrain__link_open(arrays, store, LINK_WORKER, number, &options, &worker->group, err);
	if (status == BETON_OK)
		status = take_buffers(worker, err);
	if (status != BETON_OK) {
		dtrain_worker_destroy(&worker);
		return status;
	}
	*out = worker;
	return BETON_OK;
}

void dtrain_worker_destroy(dtrain_worker **out)
{
	if (!out)
		return;
	dtrain_worker *worker = *out;
	if (!worker)
		return;
	dtrain_group_destroy(&worker->group);
	if (worker->waiting)
		dtrain_work_wait(&worker->waiting, NULL);
	if (worker->arrays.api) {
		worker->arrays.api->host_free(worker->arrays.device, worker->values);
		worker->arrays.api->host_free(worker->arrays.device, worker->sent);
	}
	free(worker);
	*out = NULL;
}

/* Waits for worker->waiting, a message from or to the server, and asks the caller meanwhile whether to give up. status:
 * the result of the message's call. */
static int await_server(dtrain_worker *worker, int status, beton_error *err)
{
	const dtrain_server_options *options = &worker->options;
	while (status == BETON_OK && !dtrain__work_wait_for(worker->waiting, ASK_NS))
		if (options->gives_up && options->gives_up(options->context))
			return bt_fail(err, BETON_CANCELLED, "the parameter server did not answer");
	return status == BETON_OK ? dtrain_work_wait(&worker->waiting, err) : status;
}

static int receive(dtrain_worker *worker, void *data, int64_t count, dtrain_dtype dtype, beton_error *err)
{
	int status = dtrain_recv(worker->group, data, count, dtype, LINK_SERVER, 0, NULL, &worker->waiting, err);
	return await_server(worker, status, err);
}

int dtrain_worker_pull(dtrain_worker *worker, dtrain_stream *stream, bool *stop, beton_error *err)
{
	if (BT_MISSING(err, worker, stream, stop))
		return BETON_INVALID_ARGUMENT;
	const link_arrays *arrays = &worker->arrays;
	/* The copies of the pull before have ended: a push has waited for the stream since. */
	int status = BETON_OK;
	do
		status = receive(worker, &worker->word, 1, DTRAIN_I64, err);
	while (status == BETON_OK && worker->word == LINK_LATER);
	*stop = status == BETON_OK && worker->word == LINK_STOP;
	if (status != BETON_OK || *stop)
		return status;
	status = receive(worker, worker->values, arrays->count, DTRAIN_F32, err);
	if (status == BETON_OK)
		status = arrays->api->copy(stream, dtrain_params_values(arrays->params), worker->values,
					   (size_t)arrays->count * sizeof(float), DTRAIN_HOST_TO_DEVICE, err);
	return status == BETON_OK ? dtrain_params_changed(arrays->params, stream, err) : status;
}

int dtrain_worker_push(dtrain_worker *worker, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, worker, stream))
		return BETON_INVALID_ARGUMENT;
	const link_arrays *arrays = &worker->arrays;
	float *at = worker->sent;
	int status = arrays->api->copy(stream, at, dtrain_params_step_metrics(arrays->params),
				       DTRAIN_STEP_METRICS * sizeof(float), DTRAIN_DEVICE_TO_HOST, err);
	at += DTRAIN_STEP_METRICS;
	if (status == BETON_OK)
		status = arrays->api->copy(stream, at, dtrain_params_grads(arrays->params),
					   (size_t)arrays->count * sizeof(float), DTRAIN_DEVICE_TO_HOST, err);
	at += arrays->count;
	if (status == BETON_OK)
		status = dtrain__link_copy_buffers(arrays, at, true, stream, err);
	if (status == BETON_OK)
		status = arrays->api->stream_synchronize(stream, err);
	if (status == BETON_OK)
		status = dtrain_send(worker->group, worker->sent, dtrain__link_pushed(arrays), DTRAIN_F32, LINK_SERVER,
				     0, NULL, &worker->waiting, err);
	return await_server(worker, status, err);
}
