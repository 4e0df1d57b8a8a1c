/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain_server with real processes: rank 0 is the server, the others are its workers.
 */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <dtrain/server.h>

#include "sync_model.h"

#define LAYERS 2
#define WIDTH 30
/* No worker is that late unless it is held back. */
#define SHORT_MS 300
#define LONG_MS 60000

static beton_error err;

struct part {
	sync_model model;
	int64_t count;
	dtrain_server_options options;
	dtrain_server *server; /* rank 0 */
	dtrain_worker *worker; /* the others */
};

static void open_model(sync_model *model, int width, int layers)
{
	dtrain_device *device = NULL;
	dtrain_stream *stream = NULL;
	MUST(dtrain_device_open("ref", NULL, &device, &err));
	MUST(dtrain_device_get_api(device)->stream_create(device, &stream, &err));
	sync_model_open(model, device, stream, NULL, NULL, width, layers);
}

static void close_model(sync_model *model)
{
	sync_model_close(model);
	model->api->stream_destroy(model->stream);
	dtrain_device_close(&model->device);
}

static void open_part(struct rank *r, struct part *part, int64_t bound)
{
	*part = (struct part){0};
	open_model(&part->model, WIDTH, LAYERS);
	part->count = dtrain_params_flat_count(part->model.params);
	dtrain_server_options_init(&part->options);
	REQUIRE(part->options.bound == 8);
	part->options.workers = r->size - 1;
	part->options.bound = bound;
	part->options.timeout_ms = r->timeout_ms;
	float *buffers[] = {dtrain_params_buffer_at(part->model.params, 0)->data,
			    dtrain_params_buffer_at(part->model.params, 1)->data};
	for (int i = 0; i < WIDTH; i++) {
		buffers[0][i] = (float)(i + 100 * r->rank);
		buffers[1][i] = (float)(2 * i + 100 * r->rank);
	}
	if (r->rank == 0) {
		dtrain_server_options none = part->options;
		none.workers = 0;
		REQUIRE(dtrain_server_create(part->model.params, r->store, &none, &part->server, &err) ==
			BETON_INVALID_ARGUMENT);
		REQUIRE(!part->server && strstr(err.message, "parameter server: 0 workers with a bound of "));
	}
	if (r->rank == 0)
		MUST(dtrain_server_create(part->model.params, r->store, &part->options, &part->server, &err));
	else
		MUST(dtrain_worker_create(part->model.params, r->store, r->rank - 1, &part->options, &part->worker,
					  &err));
	for (int i = 0; i < WIDTH; i++)
		REQUIRE(buffers[0][i] == (float)i && buffers[1][i] == (float)(2 * i));
}

static void close_part(struct part *part)
{
	dtrain_server_destroy(&part->server);
	dtrain_worker_destroy(&part->worker);
	close_model(&part->model);
}

/* Publishes parameters that are all this number. */
static void publish(struct part *part, float value)
{
	float *values = dtrain_params_values(part->model.params);
	for (int64_t i = 0; i < part->count; i++)
		values[i] = value;
	MUST(dtrain_server_publish(part->server, part->model.stream, &err));
}

static dtrain_update take(struct part *part)
{
	dtrain_update update;
	MUST(dtrain_server_take(part->server, LONG_MS, part->model.stream, &update, &err));
	return update;
}

/* Whether no gradient came for a while. */
static bool is_quiet(struct part *part)
{
	dtrain_update update;
	int status = dtrain_server_take(part->server, SHORT_MS, part->model.stream, &update, &err);
	return status == BETON_TIMEOUT;
}

/* Returns the published number; -1: there is no more to do. */
static float pull(struct part *part)
{
	bool stop;
	MUST(dtrain_worker_pull(part->worker, part->model.stream, &stop, &err));
	const float *values = dtrain_params_values(part->model.params);
	for (int64_t i = 0; i < part->count && !stop; i++)
		REQUIRE(values[i] == values[0]);
	return stop ? -1 : values[0];
}

/* Gradients of that step, as sync_model_check knows them of rank - 1. */
static void push(struct rank *r, struct part *part, int step)
{
	float *buffer = dtrain_params_buffer_at(part->model.params, 1)->data;
	for (int i = 0; i < WIDTH; i++)
		buffer[i] = (float)(i + r->rank);
	sync_model_fill(&part->model, r->rank - 1, step);
	MUST(dtrain_program_run(part->model.program, part->model.stream, 0, 1, &err));
	MUST(dtrain_worker_push(part->worker, part->model.stream, &err));
}

/* A bound of 0: each step has the mean of all workers' gradients, computed with the parameters of the step before. */
static void rank_is_synchronous(struct rank *r)
{
	enum { STEPS = 4 };
	struct part part;
	open_part(r, &part, 0);
	if (r->rank > 0) {
		for (int step = 0; step < STEPS; step++) {
			REQUIRE(pull(&part) == (float)step);
			push(r, &part, step);
		}
		/* It may have begun one more before the server stopped. */
		float last = pull(&part);
		if (last == STEPS) {
			push(r, &part, STEPS);
			last = pull(&part);
		}
		REQUIRE(last == -1);
		close_part(&part);
		return;
	}
	publish(&part, 0);
	for (int step = 0; step < STEPS; step++) {
		const dtrain_update update = take(&part);
		REQUIRE(update.workers == r->size - 1 && update.worker == 0);
		REQUIRE(update.staleness == 0 && update.lead == 0);
		float *grads = dtrain_params_grads(part.model.params);
		float *figures = dtrain_params_step_metrics(part.model.params);
		for (int64_t i = 0; i < part.count; i++)
			grads[i] *= (float)update.workers;
		for (int i = 0; i < DTRAIN_STEP_METRICS; i++)
			figures[i] = update.step_metrics[i] * (float)update.workers;
		sync_model_check(&part.model, update.workers, 1, step, step);
		publish(&part, (float)(step + 1));
	}
	float *fixed = dtrain_params_buffer_at(part.model.params, 0)->data;
	const float *buffer = dtrain_params_buffer_at(part.model.params, 1)->data;
	fixed[3] = 99;
	MUST(dtrain_server_buffers(part.server, part.model.stream, &err));
	REQUIRE(fixed[3] == 99);
	for (int i = 0; i < WIDTH; i++)
		REQUIRE(fabsf(buffer[i] - (float)i - (float)r->size / 2) < 1e-5f);
	close_part(&part);
}

static void wait_for_key(struct rank *r, const char *key)
{
	void *value = NULL;
	size_t size;
	MUST(dtrain_store_get(r->store, key, r->timeout_ms, &value, &size, &err));
	free(value);
}

static void set_key(struct rank *r, const char *key)
{
	MUST(dtrain_store_set(r->store, key, "", 0, &err));
}

/* The last rank is slow: it pushes when it is let go, and dies at its second turn. */
static void work_with_slow(struct rank *r, struct part *part)
{
	bool slow = r->rank == r->size - 1;
	for (int step = 0; pull(part) >= 0; step++) {
		if (slow && step == 0)
			set_key(r, "pulled");
		if (slow)
			wait_for_key(r, step == 0 ? "first" : "second");
		if (slow && step == 1)
			kill(getpid(), SIGKILL);
		push(r, part, step);
	}
	close_part(part);
}

/* A bound of 2: the two fast workers push while they are at most 2 clocks ahead, 3 times each. Then the slow one's
 * gradients let each of them push once more, and its death lets them go on for ever. */
static void rank_is_bounded(struct rank *r)
{
	enum { BOUND = 2, FAST = 2 };
	struct part part;
	int lost;
	beton_error why;
	open_part(r, &part, BOUND);
	if (r->rank > 0) {
		work_with_slow(r, &part);
		return;
	}
	int64_t most = 0;
	int published = 0, slow = r->size - 2;
	publish(&part, 0);
	wait_for_key(r, "pulled");
	for (int i = 0; i < FAST * (BOUND + 1); i++) {
		const dtrain_update update = take(&part);
		REQUIRE(update.worker != slow && update.workers == 1 && update.lead <= BOUND);
		REQUIRE(update.staleness <= published);
		most = update.lead > most ? update.lead : most;
		publish(&part, (float)++published);
	}
	REQUIRE(most == BOUND && is_quiet(&part) && !dtrain_server_lost(part.server, &lost, &why));
	set_key(r, "first");
	dtrain_update update = take(&part);
	/* All that was published since its pull: the bound is on clocks. */
	REQUIRE(update.worker == slow && update.staleness == FAST * (BOUND + 1) && update.lead == 0);
	publish(&part, (float)++published);
	for (int i = 0; i < FAST; i++) {
		update = take(&part);
		REQUIRE(update.worker != slow && update.lead == BOUND);
		publish(&part, (float)++published);
	}
	REQUIRE(is_quiet(&part));
	set_key(r, "second");
	for (int i = 0; i < 10 * FAST; i++) {
		update = take(&part);
		REQUIRE(update.worker != slow && update.lead <= BOUND);
		publish(&part, (float)++published);
	}
	REQUIRE(dtrain_server_lost(part.server, &lost, &why) && lost == slow && why.code == BETON_PEER_LOST);
	REQUIRE(!dtrain_server_lost(part.server, &lost, &why));
	close_part(&part);
}

/* All workers die at once: the server has no worker left to wait for. */
static void rank_loses_all(struct rank *r)
{
	struct part part;
	dtrain_update update;
	open_part(r, &part, 0);
	if (r->rank > 0) {
		REQUIRE(pull(&part) == 0);
		kill(getpid(), SIGKILL);
	}
	publish(&part, 0);
	REQUIRE(dtrain_server_take(part.server, LONG_MS, part.model.stream, &update, &err) == BETON_PEER_LOST);
	REQUIRE(strstr(err.message, "parameter server: no worker is left"));
	close_part(&part);
}

static void rank_differs(struct rank *r)
{
	sync_model model;
	dtrain_server *server = NULL;
	dtrain_worker *worker = NULL;
	dtrain_server_options options;
	open_model(&model, WIDTH, LAYERS + r->rank);
	dtrain_server_options_init(&options);
	options.workers = 1;
	options.timeout_ms = r->timeout_ms;
	int status = r->rank == 0 ? dtrain_server_create(model.params, r->store, &options, &server, &err)
				  : dtrain_worker_create(model.params, r->store, 0, &options, &worker, &err);
	REQUIRE(status == BETON_MISMATCH && !server && !worker);
	REQUIRE(strstr(err.message, "parameter server: worker 0 has another model: "));
	close_model(&model);
}

static bool gives_up(void *context)
{
	return *(const bool *)context;
}

/* The server is stopped once the worker has its parameters: the worker's gradients, more than the connection holds, are
 * not sent, and the worker does not wait for it until the timeout. */
static void rank_is_given_up(struct rank *r)
{
	enum { WIDE = 2000 };
	sync_model model;
	dtrain_server *server = NULL;
	dtrain_worker *worker = NULL;
	dtrain_server_options options;
	bool stop, is_stopped = false;
	open_model(&model, WIDE, LAYERS);
	dtrain_server_options_init(&options);
	options.workers = 1;
	options.timeout_ms = r->timeout_ms;
	options.gives_up = gives_up;
	options.context = &is_stopped;
	if (r->rank == 0) {
		dtrain_update update;
		pid_t own = getpid();
		MUST(dtrain_store_set(r->store, "server", &own, sizeof(own), &err));
		MUST(dtrain_server_create(model.params, r->store, &options, &server, &err));
		MUST(dtrain_server_publish(server, model.stream, &err));
		REQUIRE(dtrain_server_take(server, LONG_MS, model.stream, &update, &err) == BETON_PEER_LOST);
	} else {
		void *pid = NULL;
		size_t size;
		MUST(dtrain_store_get(r->store, "server", r->timeout_ms, &pid, &size, &err));
		MUST(dtrain_worker_create(model.params, r->store, 0, &options, &worker, &err));
		MUST(dtrain_worker_pull(worker, model.stream, &stop, &err));
		kill(*(pid_t *)pid, SIGSTOP);
		is_stopped = true;
		REQUIRE(dtrain_worker_push(worker, model.stream, &err) == BETON_CANCELLED);
		REQUIRE(strstr(err.message, "the parameter server did not answer"));
		dtrain_worker_destroy(&worker);
		kill(*(pid_t *)pid, SIGCONT);
		free(pid);
	}
	dtrain_server_destroy(&server);
	close_model(&model);
}

static int rank_main(struct rank *r)
{
	static const struct {
		const char *name;
		void (*run)(struct rank *r);
	} modes[] = {{"no-group-synchronous", rank_is_synchronous},
		     {"no-group-bounded", rank_is_bounded},
		     {"no-group-loses-all", rank_loses_all},
		     {"no-group-differs", rank_differs},
		     {"no-group-given-up", rank_is_given_up}};
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(r->mode, modes[i].name) == 0) {
			modes[i].run(r);
			return 0;
		}
	return 9;
}

static void a_bound_of_0_is_synchronous(void **state)
{
	(void)state;
	run_ranks("no-group-synchronous", 2);
	run_ranks("no-group-synchronous", 3);
	run_ranks("no-group-synchronous", 5);
}

/* Ends the ranks; some must have killed themselves. */
static void run_with_deaths(const char *mode, int size, int first_dead)
{
	struct ranks ranks;
	start_ranks(&ranks, mode, 0, size, LONG_MS);
	for (int rank = 0; rank < size; rank++)
		assert_int_equal(end_rank(&ranks, rank), rank >= first_dead ? 1000 + SIGKILL : 0);
	end_store(&ranks);
}

static void the_bound_holds_and_the_dead_are_left_behind(void **state)
{
	(void)state;
	run_with_deaths("no-group-bounded", 4, 3);
}

static void without_workers_there_is_an_error(void **state)
{
	(void)state;
	run_with_deaths("no-group-loses-all", 3, 1);
}

static void other_models_are_refused(void **state)
{
	(void)state;
	run_ranks("no-group-differs", 2);
}

static void a_worker_that_is_to_stop_leaves_a_stopped_server(void **state)
{
	(void)state;
	run_ranks("no-group-given-up", 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bound_of_0_is_synchronous),
		cmocka_unit_test(the_bound_holds_and_the_dead_are_left_behind),
		cmocka_unit_test(without_workers_there_is_an_error),
		cmocka_unit_test(other_models_are_refused),
		cmocka_unit_test(a_worker_that_is_to_stop_leaves_a_stopped_server),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
