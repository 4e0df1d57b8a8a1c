/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter server. A thread for each worker moves its arrays, so that a slow worker keeps no other waiting; the
 * caller's thread takes gradients and publishes parameters.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/sized.h"
#include "common/system.h"
#include "server_link.h"

#define DEFAULT_BOUND 8
#define DEFAULT_TIMEOUT_MS 30000
#define DEFAULT_JOIN_TIMEOUT_MS (3 * 60 * 1000)

/* AWAY: it computes, or waits for parameters. PUSHED: its gradients are here. TAKEN: they are a part of the step that
 * the caller makes. LOST: the server goes on without it. */
enum worker_state { AWAY, PUSHED, TAKEN, LOST };

typedef struct server_worker {
	dtrain_server *server;
	dtrain_group *group;
	pthread_t thread;
	bool started;
	int64_t word; /* to the worker: link_word */
	/* Buffers for sending and receiving. They belong to its thread, and to the caller while it is PUSHED or TAKEN.
	 */
	float *values, *pushed;

	/* Guarded by the server's mutex. */
	enum worker_state state;
	int64_t clock;
	int64_t pulled;     /* the version of its parameters */
	int64_t lead;       /* when it pulled */
	uint64_t pushed_at; /* order among all that was pushed */
	float *buffers;     /* the last that were taken */
	bool has_buffers;
	bool is_reported; /* that it is lost */
	beton_error failure;
} server_worker;

struct dtrain_server {
	link_arrays arrays;
	dtrain_server_options options;
	server_worker *workers;
	float *published; /* guarded by the mutex */
	float *taken;     /* what goes to the device: step metrics, gradients and, by dtrain_server_buffers, buffers */
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool has_lock;
	int64_t version; /* steps that were published; -1: no parameters yet */
	uint64_t pushes;
	bool stopping;
};

void dtrain_server_options_init_sized(dtrain_server_options *options, size_t size)
{
	const dtrain_server_options defaults = {.struct_size = sizeof(defaults),
						.bound = DEFAULT_BOUND,
						.timeout_ms = DEFAULT_TIMEOUT_MS,
						.join_timeout_ms = DEFAULT_JOIN_TIMEOUT_MS};
	bt_sized_init(options, size, &defaults);
}

/* ---- a worker's thread ---- */

/* The least clock of the workers that are connected. */
static int64_t least_clock(const dtrain_server *server)
{
	int64_t least = INT64_MAX;
	for (int i = 0; i < server->options.workers; i++)
		if (server->workers[i].state != LOST && server->workers[i].clock < least)
			least = server->workers[i].clock;
	return least;
}

/* With the mutex. */
static bool may_pull(const server_worker *worker)
{
	const dtrain_server *server = worker->server;
	return server->version >= 0 && worker->clock - least_clock(server) <= server->options.bound;
}

static void wait_until(dtrain_server *server, uint64_t deadline_ns)
{
	struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000),
				 .tv_nsec = (long)(deadline_ns % 1000000000)};
	pthread_cond_clockwait(&server->changed, &server->mutex, CLOCK_MONOTONIC, &until);
}

/* Waits until the worker's gradients were used and it may go on, but not for as long as the worker would wait. */
static enum link_word await_turn(server_worker *worker)
{
	dtrain_server *server = worker->server;
	uint64_t deadline_ns = bt_now_ns() + (uint64_t)server->options.timeout_ms * 1000000 / 4;
	pthread_mutex_lock(&server->mutex);
	while (!server->stopping && !(worker->state == AWAY && may_pull(worker)) && bt_now_ns() < deadline_ns)
		wait_until(server, deadline_ns);
	enum link_word word = server->stopping                            ? LINK_STOP
			      : worker->state == AWAY && may_pull(worker) ? LINK_PARAMETERS
									  : LINK_LATER;
	if (word == LINK_PARAMETERS) {
		memcpy(worker->values, server->published, (size_t)server->arrays.count * sizeof(float));
		worker->pulled = server->version;
		worker->lead = worker->clock - least_clock(server);
	}
	pthread_mutex_unlock(&server->mutex);
	return word;
}

static void hand_over(server_worker *worker)
{
	dtrain_server *server = worker->server;
	pthread_mutex_lock(&server->mutex);
	worker->state = PUSHED;
	worker->pushed_at = ++server->pushes;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->mutex);
}

static int serve_once(server_worker *worker, bool *stop, beton_error *err)
{
	const link_arrays *arrays = &worker->server->arrays;
	int status = BETON_OK;
	do {
		worker->word = await_turn(worker);
		status = dtrain__link_send(worker->group, LINK_WORKER, &worker->word, 1, DTRAIN_I64, err);
	} while (status == BETON_OK && worker->word == LINK_LATER);
	*stop = worker->word == LINK_STOP;
	if (status != BETON_OK || *stop)
		return status;
	status = dtrain__link_send(worker->group, LINK_WORKER, worker->values, arrays->count, DTRAIN_F32, err);
	if (status == BETON_OK)
		status = dtrain__link_receive(worker->group, LINK_WORKER, worker->pushed, dtrain__link_pushed(arrays),
					      DTRAIN_F32, err);
	if (status == BETON_OK)
		hand_over(worker);
	return status;
}

static void *serve(void *context)
{
	server_worker *worker = context;
	dtrain_server *server = worker->server;
	beton_error err = {0};
	bool stop = false;
	int status = BETON_OK;
	while (status == BETON_OK && !stop)
		status = serve_once(worker, &stop, &err);
	if (status == BETON_OK)
		return NULL;
	pthread_mutex_lock(&server->mutex);
	worker->state = LOST;
	worker->failure = err;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->mutex);
	return NULL;
}

/* ---- opening and closing ---- */

static int open_worker(dtrain_server *server, dtrain_store *store, int number, const float *buffers, beton_error *err)
{
	const link_arrays *arrays = &server->arrays;
	server_worker *worker = &server->workers[number];
	worker->values = malloc((size_t)arrays->count * sizeof(float));
	worker->pushed = malloc((size_t)dtrain__link_pushed(arrays) * sizeof(float));
	worker->buffers = malloc((size_t)(arrays->buffers + 1) * sizeof(float));
	if (!worker->values || !worker->pushed || !worker->buffers)
		return bt_fail(err, BETON_NO_MEMORY, "parameter server: out of memory for worker %d", number);
	int status = dtrain__link_open(arrays, store, LINK_SERVER, number, &server->options, &worker->group, err);
	return status == BETON_OK && arrays->all
		       ? dtrain__link_send(worker->group, LINK_WORKER, buffers, arrays->all, DTRAIN_F32, err)
		       : status;
}

static int start_thread(server_worker *worker, beton_error *err)
{
	int failed = pthread_create(&worker->thread, NULL, serve, worker);
	worker->started = !failed;
	return failed ? bt_fail_errno(err, failed, "parameter server: cannot start a thread") : BETON_OK;
}

/* One after the other. The first hear from the server while they wait for the last. */
static int open_workers(dtrain_server *server, dtrain_store *store, beton_error *err)
{
	const link_arrays *arrays = &server->arrays;
	float *buffers = NULL;
	int status = arrays->api->host_alloc(arrays->device, (size_t)(arrays->all + 1) * sizeof(float),
					     (void **)&buffers, err);
	if (status == BETON_OK)
		status = dtrain__link_first_buffers(arrays, buffers, true, err);
	for (int i = 0; i < server->options.workers; i++) {
		server->workers[i].server = server;
		server->workers[i].clock = server->options.clock;
	}
	for (int i = 0; i < server->options.workers && status == BETON_OK; i++) {
		status = open_worker(server, store, i, buffers, err);
		if (status == BETON_OK)
			status = start_thread(&server->workers[i], err);
	}
	arrays->api->host_free(arrays->device, buffers);
	return status;
}

static int open_parts(dtrain_server *server, dtrain_params *params, dtrain_store *store, beton_error *err)
{
	link_arrays *arrays = &server->arrays;
	int status = dtrain__link_arrays_of(params, arrays, err);
	if (status != BETON_OK)
		return status;
	server->workers = calloc((size_t)server->options.workers, sizeof(*server->workers));
	if (!server->workers)
		return bt_fail(err, BETON_NO_MEMORY, "parameter server: out of memory");
	status = arrays->api->host_alloc(arrays->device, (size_t)arrays->count * sizeof(float),
					 (void **)&server->published, err);
	if (status == BETON_OK)
		status = arrays->api->host_alloc(arrays->device, (size_t)dtrain__link_pushed(arrays) * sizeof(float),
						 (void **)&server->taken, err);
	if (status != BETON_OK)
		return status;
	if (pthread_mutex_init(&server->mutex, NULL) != 0)
		return bt_fail(err, BETON_SYSTEM, "parameter server: no lock");
	if (pthread_cond_init(&server->changed, NULL) != 0) {
		pthread_mutex_destroy(&server->mutex);
		return bt_fail(err, BETON_SYSTEM, "parameter server: no lock");
	}
	server->has_lock = true;
	return open_workers(server, store, err);
}

int dtrain_server_create(dtrain_params *params, dtrain_store *store, const dtrain_server_options *given,
			 dtrain_server **out, beton_error *err)
{
	if (BT_MISSING(err, params, store, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_server_options options;
	*out = NULL;
	dtrain_server_options_init(&options);
	int status = given ? bt_sized_take(&options, given, "server options", err) : BETON_OK;
	if (status != BETON_OK)
		return status;
	if (options.workers < 1 || options.workers >= DTRAIN_MAX_RANKS || options.bound < 0 || options.clock < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "parameter server: %d workers with a bound of %lld from clock %lld", options.workers,
			       (long long)options.bound, (long long)options.clock);
	dtrain_server *server = calloc(1, sizeof(*server));
	if (!server)
		return bt_fail(err, BETON_NO_MEMORY, "parameter server: out of memory");
	server->options = options;
	server->version = -1;
	status = open_parts(server, params, store, err);
	if (status != BETON_OK) {
		dtrain_server_destroy(&server);
		return status;
	}
	*out = server;
	return BETON_OK;
}

static void stop_threads(dtrain_server *server)
{
	pthread_mutex_lock(&server->mutex);
	server->stopping = true;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->mutex);
	for (int i = 0; i < server->options.workers; i++)
		if (server->workers[i].started)
			pthread_join(server->workers[i].thread, NULL);
	pthread_cond_destroy(&server->changed);
	pthread_mutex_destroy(&server->mutex);
}

void dtrain_server_destroy(dtrain_server **out)
{
	if (!out)
		return;
	dtrain_server *server = *out;
	if (!server)
		return;
	if (server->has_lock)
		stop_threads(server);
	for (int i = 0; server->workers && i < server->options.workers; i++) {
		dtrain_group_destroy(&server->workers[i].group);
		free(server->workers[i].values);
		free(server->workers[i].pushed);
		free(server->workers[i].buffers);
	}
	if (server->arrays.api) {
		server->arrays.api->host_free(server->arrays.device, server->published);
		server->arrays.api->host_free(server->arrays.device, server->taken);
	}
	free(server->workers);
	free(server);
	*out = NULL;
}

/* ---- the caller's thread ---- */

int dtrain_server_publish(dtrain_server *server, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, server, stream))
		return BETON_INVALID_ARGUMENT;
	const link_arrays *arrays = &server->arrays;
	pthread_mutex_lock(&server->mutex);
	int status = arrays->api->copy(stream, server->published, dtrain_params_values(arrays->params),
				       (size_t)arrays->count * sizeof(float), DTRAIN_DEVICE_TO_HOST, err);
	if (status == BETON_OK)
		status = arrays->api->stream_synchronize(stream, err);
	if (status == BETON_OK)
		server->version++;
	for (int i = 0; i < server->options.workers && status == BETON_OK; i++) {
		server_worker *worker = &server->workers[i];
		if (worker->state != TAKEN)
			continue;
		worker->state = AWAY;
		worker->clock++;
	}
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->mutex);
	return status;
}

/* Marks what the next step is made of. Returns how many workers' gradients these are; 0: not yet; -1: no worker is
 * left. With the mutex. */
static int choose(dtrain_server *server)
{
	server_worker *oldest = NULL;
	int pushed = 0, here = 0;
	for (int i = 0; i < server->options.workers; i++) {
		server_worker *worker = &server->workers[i];
		here += worker->state != LOST;
		pushed += worker->state == PUSHED;
		if (worker->state == PUSHED && (!oldest || worker->pushed_at < oldest->pushed_at))
			oldest = worker;
	}
	if (here == 0)
		return -1;
	if (server->options.bound > 0) {
		if (oldest)
			oldest->state = TAKEN;
		return oldest ? 1 : 0;
	}
	for (int i = 0; i < server->options.workers && pushed == here; i++)
		if (server->workers[i].state == PUSHED)
			server->workers[i].state = TAKEN;
	return pushed == here ? pushed : 0;
}

/* Gradients that workers send for a later step do not count in an evaluation of this one. */
static void take_buffers(server_worker *worker)
{
	const link_arrays *arrays = &worker->server->arrays;
	memcpy(worker->buffers, worker->pushed + DTRAIN_STEP_METRICS + arrays->count,
	       (size_t)arrays->buffers * sizeof(float));
	worker->has_buffers = true;
}

/* Adds up what was taken, in the workers' order, and divides it. With the mutex. */
static void combine(dtrain_server *server, int workers, dtrain_update *out)
{
	const int64_t count = DTRAIN_STEP_METRICS + server->arrays.count;
	float *sum = server->taken;
	*out = (dtrain_update){.worker = -1, .workers = workers};
	for (int i = 0; i < server->options.workers; i++) {
		server_worker *worker = &server->workers[i];
		if (worker->state != TAKEN)
			continue;
		take_buffers(worker);
		if (out->worker < 0)
			memcpy(sum, worker->pushed, (size_t)count * sizeof(float));
		for (int64_t k = 0; k < count && out->worker >= 0; k++)
			sum[k] += worker->pushed[k];
		if (out->worker < 0)
			out->worker = i;
		int64_t staleness = server->version - worker->pulled;
		out->staleness = staleness > out->staleness ? staleness : out->staleness;
		out->lead = worker->lead > out->lead ? worker->lead : out->lead;
	}
	for (int64_t k = 0; k < count && workers > 1; k++)
		sum[k] /= (float)workers;
	memcpy(out->step_metrics, sum, sizeof(out->step_metrics));
}

int dtrain_server_take(dtrain_server *server, int timeout_ms, dtrain_stream *stream, dtrain_update *out,
		       beton_error *err)
{
	if (BT_MISSING(err, server, stream, out))
		return BETON_INVALID_ARGUMENT;
	const link_arrays *arrays = &server->arrays;
	uint64_t deadline_ns = bt_now_ns() + (uint64_t)timeout_ms * 1000000;
	int workers;
	/* The device may still copy the step before from there. */
	int status = arrays->api->stream_synchronize(stream, err);
	if (status != BETON_OK)
		return status;
	pthread_mutex_lock(&server->mutex);
	while ((workers = choose(server)) == 0 && bt_now_ns() < deadline_ns)
		wait_until(server, deadline_ns);
	if (workers > 0)
		combine(server, workers, out);
	pthread_mutex_unlock(&server->mutex);
	if (workers < 0)
		return bt_fail(err, BETON_PEER_LOST, "parameter server: no worker is left");
	if (workers == 0)
		return bt_fail(err, BETON_TIMEOUT, "parameter server: no worker sent gradients within %d ms",
			       timeout_ms);
	return arrays->api->copy(stream, dtrain_params_grads(arrays->params), server->taken + DTRAIN_STEP_METRICS,
				 (size_t)arrays->count * sizeof(float), DTRAIN_HOST_TO_DEVICE, err);
}

int dtrain_server_buffers(dtrain_server *server, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, server, stream))
		return BETON_INVALID_ARGUMENT;
	const link_arrays *arrays = &server->arrays;
	float *mean = server->taken + DTRAIN_STEP_METRICS + arrays->count;
	int sent = 0;
	int status = arrays->api->stream_synchronize(stream, err);
	if (status != BETON_OK)
		return status;
	memset(mean, 0, (size_t)arrays->buffers * sizeof(float));
	pthread_mutex_lock(&server->mutex);
	for (int i = 0; i < server->options.workers; i++) {
		const server_worker *worker = &server->workers[i];
		if (!worker->has_buffers || worker->state == LOST)
			continue;
		for (int64_t k = 0; k < arrays->buffers; k++)
			mean[k] += worker->buffers[k];
		sent++;
	}
	pthread_mutex_unlock(&server->mutex);
	for (int64_t k = 0; k < arrays->buffers && sent; k++)
		mean[k] /= (float)sent;
	return sent ? dtrain__link_copy_buffers(arrays, mean, false, stream, err) : BETON_OK;
}

bool dtrain_server_lost(dtrain_server *server, int *out, beton_error *why)
{
	if (!server || !out)
		return false;
	bool found = false;
	pthread_mutex_lock(&server->mutex);
	for (int i = 0; i < server->options.workers && !found; i++) {
		server_worker *worker = &server->workers[i];
		found = worker->state == LOST && !worker->is_reported;
		if (!found)
			continue;
		worker->is_reported = true;
		*out = i;
		*why = worker->failure;
	}
	pthread_mutex_unlock(&server->mutex);
	return found;
}
