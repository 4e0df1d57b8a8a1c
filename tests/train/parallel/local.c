/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain_local with real processes, on the device "ref" with a group on a thread and on "far" with one on a stream:
 * what unsynchronized ranks send, what they make of it, and what a checkpoint is of.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/local.h>

#include "comm/group/work.h"

#include "tests/train/support/far_place.h"
#include "sync_model.h"

#define LAYERS 4
#define WIDTH 40

static beton_error err;

struct trained {
	struct place place;
	bool far;
	sync_model model;
	dtrain_local *local;
	int64_t count; /* of elements */
	float *values; /* on the host */
};

static void open_model(struct rank *r, struct trained *trained, const dtrain_local_options *options)
{
	dtrain_sync_options sync;
	struct place *place = &trained->place;
	*trained = (struct trained){.far = strncmp(r->mode, "no-group", 8) == 0};
	if (trained->far) {
		open_place(r, place);
	} else {
		MUST(dtrain_device_open("ref", NULL, &place->device, &err));
		place->api = dtrain_device_get_api(place->device);
		MUST(place->api->stream_create(place->device, &place->stream, &err));
	}
	dtrain_sync_options_init(&sync);
	sync.strategy = "local";
	sync.first_unit_bytes = 1000;
	sync.unit_bytes = 10000;
	sync.accumulates = true;
	sync_model_open(&trained->model, place->device, place->stream, sync_model_mesh(r->group), &sync, WIDTH, LAYERS);
	MUST(dtrain_local_create(trained->model.sync, options, &trained->local, &err));
	/* The model's own do not have the ends of rounds. */
	dtrain_sync_trace_destroy(&trained->model.trace);
	MUST(dtrain_sync_trace_create(trained->model.sync, &trained->model.trace, &err));
	MUST(dtrain_sync_start(trained->model.sync, &err));
	REQUIRE(dtrain_params_unit_count(trained->model.params) >= 3);
	trained->count = dtrain_params_flat_count(trained->model.params);
	trained->values = calloc((size_t)trained->count, sizeof(float));
	REQUIRE(trained->values);
}

static void close_model(struct rank *r, struct trained *trained)
{
	dtrain_local_destroy(&trained->local);
	sync_model_close(&trained->model);
	free(trained->values);
	if (trained->far) {
		close_place(r, &trained->place);
	} else {
		trained->place.api->stream_destroy(trained->place.stream);
		dtrain_device_close(&trained->place.device);
	}
}

static void put_values(struct trained *trained)
{
	sync_model_upload(&trained->model, dtrain_params_values(trained->model.params), trained->values,
			  (size_t)trained->count * sizeof(float));
}

static const float *get(struct trained *trained, const void *memory)
{
	sync_model_download(&trained->model, trained->values, memory, (size_t)trained->count * sizeof(float));
	return trained->values;
}

static const float *get_values(struct trained *trained)
{
	return get(trained, dtrain_params_values(trained->model.params));
}

/* Returns whether the round ended. */
static bool end_step(struct trained *trained, int64_t step)
{
	bool synced;
	dtrain_local_begin(trained->local, step, trained->model.trace);
	MUST(dtrain_local_end(trained->local, step, trained->model.trace, trained->place.stream, &synced, &err));
	return synced;
}

/* Rounds of one step, a rate of 1 and no momentum: the mean of what the ranks have. One rank trains as if there were no
 * rounds. */
static void rank_averages(struct rank *r)
{
	dtrain_local_options options;
	struct trained trained;
	dtrain_local_options_init(&options);
	options.steps = 1;
	options.lr = 1;
	options.momentum = 0;
	open_model(r, &trained, &options);
	MUST(dtrain_local_start(trained.local, 0, trained.place.stream, &err));
	for (int step = 0; step < 3; step++) {
		for (int64_t i = 0; i < trained.count; i++)
			trained.values[i] = (float)(i % 97) * 0.25f + (float)(r->rank * (step + 1)) * 0.5f;
		put_values(&trained);
		REQUIRE(end_step(&trained, step));
		get_values(&trained);
		for (int64_t i = 0; i < trained.count; i++) {
			float mean = (float)(i % 97) * 0.25f + (float)((r->size - 1) * (step + 1)) * 0.25f;
			REQUIRE(fabsf(trained.values[i] - mean) <= 1e-5f);
		}
		dtrain_sync_step times;
		MUST(dtrain_sync_get_step(trained.model.trace, &times, &err));
		REQUIRE(times.bytes == (r->size > 1 ? 4 * (uint64_t)trained.count : 0));
	}
	close_model(r, &trained);
}

/* PyTorch 2.15's result for the same: the four parameters 1, -2, 0.5 and 3 after each of three rounds of two ranks, by
 * torch.optim.SGD(lr=0.7, momentum=0.9, nesterov=True) with the mean of shared - own as the gradient. */
static void rank_equals_torch(struct rank *r)
{
	static const float begin[4] = {1, -2, 0.5f, 3};
	static const float after_round[3][4] = {{0.750625014f, -1.75062501f, 0.250625014f, 3.2493751f},
						{0.893687546f, -1.85212505f, 0.476812512f, 3.23100019f},
						{0.654943824f, -1.5125376f, 0.439756274f, 3.77227521f}};
	dtrain_local_options options;
	struct trained trained;
	dtrain_local_options_init(&options);
	REQUIRE(options.lr == 0.7 && options.momentum == 0.9 && options.steps == 500 && options.warmup_steps == 0);
	options.steps = 2;
	open_model(r, &trained, &options);
	for (int64_t i = 0; i < trained.count; i++)
		trained.values[i] = begin[i % 4];
	put_values(&trained);
	MUST(dtrain_local_start(trained.local, 0, trained.place.stream, &err));
	for (int round = 0; round < 3; round++) {
		get_values(&trained);
		for (int64_t i = 0; i < trained.count; i++)
			trained.values[i] += 0.125f * (float)(r->rank + 1) * ((i % 4 + round) % 2 ? 1.0f : -1.0f) +
					     0.03125f * (float)(i % 4 * round);
		put_values(&trained);
		float own = trained.values[1];
		REQUIRE(!end_step(&trained, 2 * round) && get_values(&trained)[1] == own);
		REQUIRE(end_step(&trained, 2 * round + 1));
		get_values(&trained);
		for (int64_t i = 0; i < trained.count; i++)
			REQUIRE(fabsf(trained.values[i] - after_round[round][i % 4]) <= 1e-6f);
	}
	close_model(r, &trained);
}

static void *capture(struct trained *trained, int step)
{
	sync_model *model = &trained->model;
	void *captured = NULL;
	dtrain_local_begin(trained->local, step, model->trace);
	MUST(model->api->capture_begin(model->stream, &err));
	MUST(dtrain_program_run(model->program, model->stream, 0, 1, &err));
	MUST(model->api->capture_end(model->stream, &captured, &err));
	return captured;
}

/* The first gradients: this rank's, or the mean over the ranks if the step computes it. */
static void check_grads(struct trained *trained, const struct rank *r, const float *own, bool apart)
{
	float *all = malloc((size_t)r->size * (size_t)trained->count * sizeof(float));
	REQUIRE(all);
	/* A capture's messages are not in the order of the calls. */
	MUST(trained->place.api->stream_synchronize(trained->place.stream, &err));
	MUST(dtrain__group_gather_host(r->group, own, (size_t)trained->count * sizeof(float), all, &err));
	get(trained, dtrain_params_grads(trained->model.params));
	for (int64_t i = 0; i < trained->count; i++) {
		float sum = 0;
		for (int rank = 0; rank < r->size; rank++)
			sum += all[rank * trained->count + i];
		float expected = apart ? own[i] : sum / (float)r->size;
		REQUIRE(fabsf(trained->values[i] - expected) <= 1e-6f * fabsf(expected));
	}
	free(all);
}

/* Two steps of warm-up, then rounds of two: in the first the gradients become the mean, in the others they stay. */
static void rank_reduces_in_warm_up_alone(struct rank *r)
{
	enum { STEPS = 7, WARMUP = 2 };
	dtrain_local_options options;
	struct trained trained;
	void *captured = NULL;
	dtrain_local_options_init(&options);
	options.steps = 2;
	options.warmup_steps = WARMUP;
	options.last_step = STEPS;
	open_model(r, &trained, &options);
	float *own = malloc((size_t)trained.count * sizeof(float));
	REQUIRE(own);
	MUST(dtrain_local_start(trained.local, 0, trained.place.stream, &err));
	uint64_t figures = r->size > 1 ? 4 * DTRAIN_STEP_METRICS : 0;
	uint64_t units = r->size > 1 ? 4 * (uint64_t)trained.count : 0;
	for (int step = 0; step < STEPS; step++) {
		bool apart = step >= WARMUP;
		REQUIRE(dtrain_local_is_unsynchronized(trained.local, step) == apart);
		/* In a step apart the gradients are this rank's. */
		sync_model_fill(&trained.model, r->rank, WARMUP + step);
		dtrain_local_begin(trained.local, WARMUP, NULL);
		dtrain_sync_set_trace(trained.model.sync, NULL);
		MUST(dtrain_program_run(trained.model.program, trained.model.stream, 0, 1, &err));
		memcpy(own, get(&trained, dtrain_params_grads(trained.model.params)),
		       (size_t)trained.count * sizeof(float));
		dtrain_sync_set_trace(trained.model.sync, trained.model.trace);
		sync_model_fill(&trained.model, r->rank, WARMUP + step);
		if (trained.far && step == WARMUP + 1)
			captured = capture(&trained, step);
		dtrain_local_begin(trained.local, step, trained.model.trace);
		if (captured)
			MUST(trained.model.api->capture_launch(captured, trained.model.stream, &err));
		else
			MUST(dtrain_program_run(trained.model.program, trained.model.stream, 0, 1, &err));
		check_grads(&trained, r, own, apart);
		bool synced;
		MUST(dtrain_local_end(trained.local, step, trained.model.trace, trained.place.stream, &synced, &err));
		/* After 4 and 6 steps, and with the last one. */
		REQUIRE(synced == (step == 3 || step == 5 || step == STEPS - 1));
		MUST(trained.place.api->stream_synchronize(trained.place.stream, &err));
		const dtrain_sync_step times = sync_model_times(&trained.model, trained.model.trace);
		REQUIRE(times.bytes == figures + (!apart || synced ? units : 0));
		REQUIRE((times.comm_ms > 0) == (r->size > 1) && (times.exposed_ms > 0) == (r->size > 1));
	}
	if (captured)
		trained.model.api->capture_destroy(captured);
	free(own);
	close_model(r, &trained);
}

/* Local SGD with a warm-up in a few lines, by the book: arrays of this rank. */
struct simulated {
	int64_t count;
	float *own, *shared, *momentum;
	float *grads; /* of this rank */
	float *all;   /* of all ranks, one array each */
};

static float *new_array(int64_t count)
{
	float *array = calloc((size_t)count, sizeof(float));
	REQUIRE(array);
	return array;
}

static void simulate_open(struct simulated *s, const struct rank *r, int64_t count)
{
	*s = (struct simulated){count,
				new_array(count),
				new_array(count),
				new_array(count),
				new_array(count),
				new_array(count * r->size)};
}

static void simulate_close(struct simulated *s)
{
	float *arrays[] = {s->own, s->shared, s->momentum, s->grads, s->all};
	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		free(arrays[i]);
}

static float mean_of(const struct simulated *s, const struct rank *r, int64_t i)
{
	float sum = 0;
	for (int rank = 0; rank < r->size; rank++)
		sum += s->all[rank * s->count + i];
	return sum / (float)r->size;
}

static void gather(struct simulated *s, const struct rank *r, const float *mine)
{
	MUST(dtrain__group_gather_host(r->group, mine, (size_t)s->count * sizeof(float), s->all, &err));
}

/* A step of plain SGD with the mean of the ranks' gradients, or with this rank's. */
static void simulate_step(struct simulated *s, const struct rank *r, float rate, bool apart)
{
	gather(s, r, s->grads);
	for (int64_t i = 0; i < s->count; i++)
		s->own[i] -= rate * (apart ? s->grads[i] : mean_of(s, r, i));
}

/* The end of a round: SGD with Nesterov's momentum on what the ranks share. */
static void simulate_round_end(struct simulated *s, const struct rank *r, float rate, float momentum)
{
	gather(s, r, s->own);
	for (int64_t i = 0; i < s->count; i++) {
		float gradient = s->shared[i] - mean_of(s, r, i);
		s->momentum[i] = momentum * s->momentum[i] + gradient;
		s->shared[i] -= rate * (gradient + momentum * s->momentum[i]);
		s->own[i] = s->shared[i];
	}
}

/* The program's gradients, at the parameters of now. */
static const float *compute(struct trained *trained, const struct rank *r, int step, bool apart)
{
	sync_model_fill(&trained->model, r->rank, step);
	dtrain_local_begin(trained->local, apart ? INT32_MAX : 0, NULL);
	MUST(dtrain_program_run(trained->model.program, trained->model.stream, 0, 1, &err));
	MUST(trained->place.api->stream_synchronize(trained->place.stream, &err));
	return get(trained, dtrain_params_grads(trained->model.params));
}

/* After each step the ranks have the parameters that the simulation has: three steps of warm-up, then rounds of four
 * steps. The end of the run cuts the last round short. */
static void rank_equals_a_simulation(struct rank *r)
{
	enum { STEPS = 13, WARMUP = 3, ROUND = 4 };
	const float rate = 0.05f;
	dtrain_local_options options;
	struct trained trained;
	struct simulated s;
	dtrain_local_options_init(&options);
	options.steps = ROUND;
	options.warmup_steps = WARMUP;
	options.last_step = STEPS;
	open_model(r, &trained, &options);
	simulate_open(&s, r, trained.count);
	size_t bytes = (size_t)trained.count * sizeof(float);
	memcpy(s.own, get_values(&trained), bytes);
	MUST(dtrain_local_start(trained.local, 0, trained.place.stream, &err));
	for (int step = 0; step < STEPS; step++) {
		bool apart = step >= WARMUP, ends = apart && ((step + 1 - WARMUP) % ROUND == 0 || step + 1 == STEPS);
		if (step == WARMUP)
			memcpy(s.shared, s.own, bytes);
		memcpy(s.grads, compute(&trained, r, step, true), bytes);
		simulate_step(&s, r, rate, apart);
		if (ends)
			simulate_round_end(&s, r, 0.7f, 0.9f);
		float *grads = new_array(trained.count);
		memcpy(grads, compute(&trained, r, step, apart), bytes);
		get_values(&trained);
		for (int64_t i = 0; i < trained.count; i++)
			trained.values[i] -= rate * grads[i];
		free(grads);
		put_values(&trained);
		REQUIRE(end_step(&trained, step) == ends);
		MUST(trained.place.api->stream_synchronize(trained.place.stream, &err));
		get_values(&trained);
		for (int64_t i = 0; i < trained.count; i++)
			REQUIRE(fabsf(trained.values[i] - s.own[i]) <= 2e-6f * (1 + fabsf(s.own[i])));
	}
	simulate_close(&s);
	close_model(r, &trained);
}

/* A checkpoint has the shared parameters, and this rank's beside them; what is loaded takes their places. */
static void rank_shows(struct rank *r)
{
	dtrain_local_options options;
	struct trained trained;
	dtrain_local_options_init(&options);
	options.steps = 3;
	options.warmup_steps = 1;
	open_model(r, &trained, &options);
	dtrain_stream *stream = trained.place.stream;
	for (int64_t i = 0; i < trained.count; i++)
		trained.values[i] = 1;
	put_values(&trained);
	MUST(dtrain_local_start(trained.local, 0, stream, &err));
	/* In the warm-up, and after it. */
	for (int step = 0; step < 3; step++) {
		for (int64_t i = 0; i < trained.count; i++)
			trained.values[i] = (float)(2 + step + (step ? r->rank : 0));
		put_values(&trained);
		MUST(dtrain_local_show(trained.local, stream, &err));
		REQUIRE(get_values(&trained)[5] == 2);
		REQUIRE(get(&trained, dtrain_local_own(trained.local))[5] == (float)(2 + step + (step ? r->rank : 0)));
		MUST(dtrain_local_hide(trained.local, stream, &err));
		REQUIRE(get_values(&trained)[5] == (float)(2 + step + (step ? r->rank : 0)));
		REQUIRE(get(&trained, dtrain_params_grads(trained.model.params))[5] == 0);
		REQUIRE(!end_step(&trained, step));
		REQUIRE(step || get_values(&trained)[5] == 2);
	}
	for (int64_t i = 0; i < trained.count; i++)
		trained.values[i] = 8;
	sync_model_upload(&trained.model, dtrain_local_own(trained.local), trained.values,
			  (size_t)trained.count * sizeof(float));
	for (int64_t i = 0; i < trained.count; i++)
		trained.values[i] = 4;
	put_values(&trained);
	MUST(dtrain_local_start(trained.local, 3, stream, &err));
	MUST(dtrain_local_hide(trained.local, stream, &err));
	REQUIRE(get_values(&trained)[5] == 8);
	REQUIRE(get(&trained, dtrain_local_momentum(trained.local))[5] == 0);
	/* shared - own = -4, which is also the momentum. */
	REQUIRE(end_step(&trained, 3));
	REQUIRE(fabsf(get_values(&trained)[5] - (4 + 0.7f * (4 + 0.9f * 4))) < 1e-5f);
	REQUIRE(get(&trained, dtrain_local_momentum(trained.local))[5] == -4);
	REQUIRE(get(&trained, dtrain_params_grads(trained.model.params))[5] == 0);
	close_model(r, &trained);
}

static void expect_refusal(dtrain_sync *sync, const dtrain_local_options *options, const char *text)
{
	dtrain_local *local = NULL;
	REQUIRE(dtrain_local_create(sync, options, &local, &err) == BETON_INVALID_ARGUMENT && !local);
	REQUIRE(strstr(err.message, text));
}

static void rank_misuses(struct rank *r)
{
	dtrain_local_options options;
	struct trained trained;
	sync_model other;
	dtrain_local_options_init(&options);
	open_model(r, &trained, &options);
	sync_model_open(&other, trained.place.device, trained.place.stream, NULL, NULL, WIDTH, LAYERS);
	expect_refusal(other.sync, &options, "local: the sync has the strategy 'ddp'");
	sync_model_close(&other);
	options.steps = 0;
	expect_refusal(trained.model.sync, &options, "local: bad schedule: steps 0, warmup");
	dtrain_local_options_init(&options);
	options.lr = NAN;
	expect_refusal(trained.model.sync, &options, "local: an outer rate of nan");
	dtrain_local_options_init(&options);
	options.momentum = 1;
	expect_refusal(trained.model.sync, &options, "a momentum of 1");
	close_model(r, &trained);
}

static int rank_main(struct rank *r)
{
	static const struct {
		const char *name;
		void (*run)(struct rank *r);
	} modes[] = {{"averages", rank_averages},
		     {"equals-torch", rank_equals_torch},
		     {"warms-up", rank_reduces_in_warm_up_alone},
		     {"simulation", rank_equals_a_simulation},
		     {"shows", rank_shows},
		     {"misuses", rank_misuses}};
	const char *mode = r->mode + (strncmp(r->mode, "no-group-", 9) == 0 ? 9 : 0);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(mode, modes[i].name) == 0) {
			modes[i].run(r);
			return 0;
		}
	return 9;
}

static void rounds_of_one_step_average_the_parameters(void **state)
{
	(void)state;
	run_ranks("averages", 1);
	run_ranks("averages", 3);
	run_ranks("no-group-averages", 1);
	run_ranks("no-group-averages", 3);
}

static void outer_steps_are_those_of_torch(void **state)
{
	(void)state;
	run_ranks("equals-torch", 2);
	run_ranks("no-group-equals-torch", 2);
}

static void gradients_stay_on_the_rank_after_the_warm_up(void **state)
{
	(void)state;
	run_ranks("warms-up", 2);
	run_ranks("no-group-warms-up", 1);
	run_ranks("no-group-warms-up", 2);
}

static void steps_and_rounds_are_those_of_a_simulation(void **state)
{
	(void)state;
	run_ranks("simulation", 1);
	run_ranks("simulation", 3);
	run_ranks("no-group-simulation", 2);
}

static void shared_parameters_are_shown_and_loaded(void **state)
{
	(void)state;
	run_ranks("shows", 2);
	run_ranks("no-group-shows", 2);
}

static void misuse_is_named(void **state)
{
	(void)state;
	run_ranks("misuses", 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounds_of_one_step_average_the_parameters),
		cmocka_unit_test(outer_steps_are_those_of_torch),
		cmocka_unit_test(gradients_stay_on_the_rank_after_the_warm_up),
		cmocka_unit_test(steps_and_rounds_are_those_of_a_simulation),
		cmocka_unit_test(shared_parameters_are_shown_and_loaded),
		cmocka_unit_test(misuse_is_named),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
