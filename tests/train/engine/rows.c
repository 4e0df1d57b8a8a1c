/* SPDX-License-Identifier: Apache-2.0
 *
 * rows DEVICE: the engine with a task of its own, which has no pictures: rows of four numbers, of three classes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/temporary.h"
#include "engine/evaluate.h"
#include "engine/stepper.h"

enum { SAMPLES = 14, BATCH = 4, WIDTH = 4, CLASSES = 3, STEPS = 9 };

static const char *tested; /* the device */

static void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

/* ---- the task ---- */

/* Behaviour of the engine's caller, and faults of the task. */
static struct {
	int64_t told_in; /* how often it was asked before the stop request; -1: never */
	int waits;       /* under way */
	int waited;
	bool nothing_finite;
} caller;

static dtrain_tensor build(const engine_rank *engine, dtrain_graph *graph, bool training, engine_network *network)
{
	int64_t rows = engine->job.batch_size;
	dtrain_shape x = dtrain_shape_of(2, (int64_t[]){rows, WIDTH}), y = dtrain_shape_of(1, &rows);
	network->inputs[0] = (engine_input){"x", dtrain_graph_input(graph, "x", DTRAIN_F32, &x)};
	network->inputs[1] = (engine_input){"y", dtrain_graph_input(graph, "y", DTRAIN_I64, &y)};
	network->num_inputs = 2;
	dtrain_tensor logits = dtrain_linear(graph, "fc", network->inputs[0].tensor, engine->data->classes);
	dtrain_tensor losses = dtrain_softmax_cross_entropy(graph, logits, network->inputs[1].tensor, 0);
	if (training)
		return losses;
	network->results[0] = losses;
	network->num_results = 1;
	return losses;
}

static int open_loader(const engine_rank *engine, bool training, beton_loader_options *options,
		       const engine_files *files, beton_loader **out, beton_error *err)
{
	options->batch_size = (uint32_t)engine->job.batch_size;
	options->last = training ? BETON_LAST_DROP : BETON_LAST_SHORT;
	return files->open(files->context, options, out, err);
}

static int feed_run(engine_rank *engine, const beton_batch *batch, int run, beton_error *err)
{
	(void)run;
	return engine_feed_network(engine, &engine->val, batch, err);
}

static int add_batch(const engine_rank *engine, const beton_batch *batch, void *const *results, double *sums,
		     engine_class_count *classes, beton_error *err)
{
	(void)engine;
	assert_null(classes);
	(void)err;
	for (uint32_t i = 0; i < batch->count; i++) {
		sums[0] += caller.nothing_finite ? NAN : (double)((const float *)results[0])[i];
		sums[1]++;
		sums[ENGINE_WEIGHT]++;
	}
	return BETON_OK;
}

static const engine_outputs two_metrics = {.metrics = {{"loss", "loss", false}, {"one", "one", true}},
					   .num_metrics = 2};

static const engine_task rows_task = {
	.sample = "row",
	.unit = "rows",
	.open_loader = open_loader,
	.build = build,
	.feed_run = feed_run,
	.add_batch = add_batch,
};

static bool stop_requested(void *context)
{
	(void)context;
	return caller.told_in >= 0 && caller.told_in-- == 0;
}

static void arm(void *context, const char *what, bool in_step)
{
	(void)context;
	assert_true(strncmp(what, "step ", 5) == 0 ? in_step : !in_step);
	assert_int_equal(caller.waits++, 0);
}

static void disarm(void *context)
{
	(void)context;
	assert_int_equal(--caller.waits, 0);
	caller.waited++;
}

/* ---- what is open ---- */

struct setup {
	engine_data data;
	engine_rank engine;
	dtrain_optimizer *optimizer;
	beton_loader *loader;
};

static int open_file(const void *context, beton_loader_options *options, beton_loader **out, beton_error *err)
{
	options->num_threads = 1;
	return beton_loader_open(out, context, options, err);
}

static void set_up_runs(struct setup *s, const char *device_name, int64_t batch, int runs, bool training)
{
	const engine_job job = {.task = &rows_task, .model = "linear", .batch_size = batch, .micro_batches = runs};
	const engine_files files = {.open = open_file, .context = "rows.beton"};
	dtrain_device *device = NULL;
	dtrain_optimizer_options optimizer;
	dtrain_sync_options sync;
	beton_loader_options loader;
	beton_error err = {0};
	*s = (struct setup){.data = {.classes = CLASSES, .outputs = &two_metrics, .val = {.samples = SAMPLES}}};
	memset(&caller, 0, sizeof(caller));
	caller.told_in = -1;
	expect_ok(dtrain_device_open(device_name, NULL, &device, &err), &err);
	dtrain_sync_options_init(&sync);
	expect_ok(engine_open(&s->engine, &job, &s->data, device, ENGINE_PRECISION_F32, NULL, &sync, &err), &err);
	s->engine.caller = (engine_caller){.stop_requested = stop_requested, .arm = arm, .disarm = disarm};
	expect_ok(dtrain_params_initialize(s->engine.params, 3, s->engine.stream, &err), &err);
	expect_ok(engine_synchronize(&s->engine, "parameters", &err), &err);
	dtrain_optimizer_options_init(&optimizer);
	optimizer.grad_divisor = runs;
	expect_ok(dtrain_optimizer_create(s->engine.params, &optimizer, &s->optimizer, &err), &err);
	beton_loader_options_init(&loader);
	if (s->engine.staged)
		engine_feed_allocator(device, &loader.allocator);
	expect_ok(s->engine.job.task->open_loader(&s->engine, training, &loader, &files, &s->loader, &err), &err);
}

static void set_up(struct setup *s, const char *device_name, int64_t batch, bool training)
{
	set_up_runs(s, device_name, batch, 1, training);
}

static void tear_down(struct setup *s)
{
	beton_loader_close(&s->loader);
	dtrain_optimizer_destroy(&s->optimizer);
	engine_close(&s->engine);
	assert_int_equal(caller.waits, 0);
}

/* The next batch, of one epoch after the other. */
static beton_batch *next_batch(struct setup *s, beton_iterator **iterator, uint64_t *epoch)
{
	beton_batch *batch = NULL;
	beton_error err = {0};
	while (!batch) {
		if (!*iterator)
			expect_ok(beton_iterator_open(iterator, s->loader, (*epoch)++, 0, &err), &err);
		int status = beton_iterator_next(*iterator, &batch, -1, &err);
		if (status == BETON_END)
			beton_iterator_close(iterator);
		else
			expect_ok(status, &err);
	}
	return batch;
}

/* ---- steps ---- */

/* The losses of STEPS steps, as the stepper makes them. stop_at: the step of this rank's stop request; -1: never. */
static void train(const char *device, bool no_capture, int64_t stop_at, double losses[STEPS])
{
	struct setup s;
	engine_stepper *stepper;
	beton_iterator *iterator = NULL;
	uint64_t epoch = 0;
	beton_error err = {0};
	int settled = 0;
	set_up(&s, device, BATCH, true);
	const engine_stepper_options options = {.optimizer = s.optimizer, .no_capture = no_capture};
	expect_ok(engine_stepper_open(&s.engine, &options, &stepper, &err), &err);
	assert_int_equal(engine_stepper_lag(stepper), s.engine.staged ? 1 : 0);
	caller.told_in = stop_at;
	caller.waited = 0;
	for (int launched = 0; settled < STEPS;) {
		if (launched < STEPS) {
			expect_ok(engine_stepper_launch(stepper, next_batch(&s, &iterator, &epoch), launched, 0.1, 0,
							&err),
				  &err);
			launched++;
		}
		while (engine_stepper_pending(stepper) > (launched < STEPS ? engine_stepper_lag(stepper) : 0)) {
			engine_step_result step;
			expect_ok(engine_stepper_settle(stepper, &step, &err), &err);
			assert_int_equal(step.stop, settled == stop_at);
			assert_true(step.scaler[DTRAIN_SCALER_SCALE] == 0);
			losses[settled++] = step.loss;
		}
	}
	/* On a device that works by itself each step is waited for, and somebody watches. */
	assert_int_equal(caller.waited, s.engine.staged ? STEPS : 0);
	beton_iterator_close(&iterator);
	engine_stepper_close(&stepper);
	tear_down(&s);
}

/* The same without a stepper: on the host, one thing after the other. */
static void train_by_hand(double losses[STEPS])
{
	struct setup s;
	beton_iterator *iterator = NULL;
	uint64_t epoch = 0;
	beton_error err = {0};
	set_up(&s, "ref", BATCH, true);
	const float *figures = dtrain_params_step_metrics(s.engine.params);
	for (int i = 0; i < STEPS; i++) {
		beton_batch *batch = next_batch(&s, &iterator, &epoch);
		const engine_network *network = &s.engine.train;
		for (int k = 0; k < network->num_inputs; k++)
			memcpy(dtrain_program_data(network->program, network->inputs[k].tensor), batch->tensors[k].data,
			       BATCH * (k == 0 ? WIDTH * sizeof(float) : sizeof(int64_t)));
		expect_ok(dtrain_program_run(network->program, s.engine.stream, 0, 1, &err), &err);
		expect_ok(dtrain_optimizer_set_rate(s.optimizer, 0.1, s.engine.stream, &err), &err);
		expect_ok(dtrain_optimizer_apply(s.optimizer, s.engine.stream, &err), &err);
		losses[i] = (double)figures[ENGINE_STEP_METRIC_LOSS];
		beton_batch_release(&batch);
	}
	beton_iterator_close(&iterator);
	tear_down(&s);
}

/* Eager, captured and replayed steps, and a plain loop of the same calls, compute the same bits. */
static void steps_are_those_of_a_plain_loop(void **state)
{
	(void)state;
	double expected[STEPS], losses[STEPS];
	train_by_hand(expected);
	assert_true(expected[STEPS - 1] < 0.7 * expected[0]);
	for (int no_capture = 0; no_capture < 2; no_capture++) {
		train(tested, no_capture, -1, losses);
		for (int i = 0; i < STEPS; i++)
			if (losses[i] != expected[i])
				fail_msg("step %d: loss %.17g, not %.17g", i + 1, losses[i], expected[i]);
	}
}

static void a_stop_is_that_of_its_step(void **state)
{
	(void)state;
	double losses[STEPS];
	for (int64_t step = 0; step < STEPS; step += 4)
		train(tested, false, step, losses);
}

/* Losses of steps of several runs, which end with the update. */
static void train_runs(int64_t batch, int runs, bool no_capture, int steps, double *losses)
{
	struct setup s;
	engine_stepper *stepper;
	beton_iterator *iterator = NULL;
	uint64_t epoch = 0;
	beton_error err = {0};
	int settled = 0;
	set_up_runs(&s, tested, batch, runs, true);
	const engine_stepper_options options = {.optimizer = s.optimizer, .no_capture = no_capture};
	expect_ok(engine_stepper_open(&s.engine, &options, &stepper, &err), &err);
	for (int launched = 0; settled < steps;) {
		for (int run = 0; run < runs && launched < steps; run++) {
			assert_int_equal(engine_stepper_pending(stepper), launched - settled);
			expect_ok(engine_stepper_launch(stepper, next_batch(&s, &iterator, &epoch), launched, 0.1, 0,
							&err),
				  &err);
		}
		launched += launched < steps;
		while (engine_stepper_pending(stepper) > (launched < steps ? engine_stepper_lag(stepper) : 0)) {
			engine_step_result step;
			expect_ok(engine_stepper_settle(stepper, &step, &err), &err);
			losses[settled++] = step.loss;
		}
	}
	/* A step that is begun, and never ended. */
	if (runs > 1)
		expect_ok(engine_stepper_launch(stepper, next_batch(&s, &iterator, &epoch), steps, 0.1, 0, &err), &err);
	beton_iterator_close(&iterator);
	engine_stepper_close(&stepper);
	tear_down(&s);
}

/* Eager, captured and replayed. */
static void runs_of_a_step_are_one_of_a_larger_batch(void **state)
{
	(void)state;
	/* Both divide the samples. */
	static const int sizes[] = {2, 7};
	double expected[STEPS], losses[STEPS];
	for (int k = 0; k < 2; k++) {
		train_runs(sizes[k], 1, true, STEPS, expected);
		for (int no_capture = 0; no_capture < 2; no_capture++) {
			train_runs(1, sizes[k], no_capture, STEPS, losses);
			for (int i = 0; i < STEPS; i++)
				if (!(fabs(losses[i] - expected[i]) < 1e-5 * expected[i]))
					fail_msg("%d runs, step %d: loss %.9g, not %.9g", sizes[k], i + 1, losses[i],
						 expected[i]);
		}
	}
}

/* A step whose batch is NULL has what was fed before. */
static void a_step_without_a_batch_has_the_one_before(void **state)
{
	(void)state;
	struct setup s;
	engine_stepper *stepper;
	beton_iterator *iterator = NULL;
	uint64_t epoch = 0;
	beton_error err = {0};
	double losses[2];
	set_up(&s, tested, BATCH, true);
	const engine_stepper_options options = {.optimizer = s.optimizer};
	expect_ok(engine_stepper_open(&s.engine, &options, &stepper, &err), &err);
	for (int i = 0; i < 2; i++) {
		engine_step_result step;
		beton_batch *batch = i ? NULL : next_batch(&s, &iterator, &epoch);
		expect_ok(engine_stepper_launch(stepper, batch, i, 0.1, 0, &err), &err);
		expect_ok(engine_stepper_settle(stepper, &step, &err), &err);
		losses[i] = step.loss;
	}
	assert_true(losses[1] < losses[0]);
	/* Closing waits for what is under way. */
	expect_ok(engine_stepper_launch(stepper, next_batch(&s, &iterator, &epoch), 2, 0.1, 0, &err), &err);
	beton_iterator_close(&iterator);
	engine_stepper_close(&stepper);
	tear_down(&s);
}

/* ---- the feed ---- */

enum { ROUNDS = 4 * ENGINE_FEED_BUFFERS + 1 };

/* The numbers put in one round, and the numbers that reached the inputs. */
struct round {
	float x[BATCH * WIDTH], got_x[BATCH * WIDTH];
	int64_t y[BATCH], got_y[BATCH];
	uint32_t rows;
};

static void put_round(struct setup *s, struct round *round, int number)
{
	const engine_network *network = &s->engine.train;
	const beton_tensor tensors[] = {{.name = "y", .dtype = BETON_INT64, .data = round->y},
					{.name = "x", .dtype = BETON_INT64, .data = round->y},
					{.name = "x", .dtype = BETON_FLOAT32, .data = round->x}};
	void *const got[] = {round->got_x, round->got_y};
	beton_batch batch = {.num_tensors = 3, .tensors = tensors};
	beton_error err = {0};
	round->rows = batch.count = BATCH - (uint32_t)number % BATCH;
	for (int i = 0; i < BATCH * WIDTH; i++)
		round->x[i] = (float)(i + 1 + 100 * number);
	for (int i = 0; i < BATCH; i++)
		round->y[i] = i + 7 + number;
	expect_ok(engine_feed_network(&s->engine, network, &batch, &err), &err);
	for (int i = 0; i < 2; i++)
		expect_ok(s->engine.api->copy(s->engine.stream, got[i],
					      dtrain_program_data(network->program, network->inputs[i].tensor),
					      i ? sizeof(round->got_y) : sizeof(round->got_x), DTRAIN_DEVICE_TO_HOST,
					      &err),
			  &err);
	batch.num_tensors = 2; /* x of another type is not x */
	assert_int_equal(engine_feed_network(&s->engine, network, &batch, &err), BETON_FILE_CHANGED);
}

/* Batches that are put faster than the device takes them keep to themselves, and what they lack of rows becomes 0. */
static void each_batch_comes_to_the_inputs_whole(void **state)
{
	(void)state;
	struct setup s;
	struct round rounds[ROUNDS];
	beton_error err = {0};
	setenv("DTRAIN_FAR_DELAY_US", "500", 1);
	set_up(&s, tested, BATCH, true);
	unsetenv("DTRAIN_FAR_DELAY_US");
	for (int i = 0; i < ROUNDS; i++)
		put_round(&s, &rounds[i], i);
	expect_ok(engine_synchronize(&s.engine, "the feed", &err), &err);
	for (int k = 0; k < ROUNDS; k++) {
		const struct round *round = &rounds[k];
		for (uint32_t i = 0; i < BATCH * WIDTH; i++)
			assert_true(round->got_x[i] == (i / WIDTH < round->rows ? round->x[i] : 0));
		for (uint32_t i = 0; i < BATCH; i++)
			assert_int_equal(round->got_y[i], i < round->rows ? round->y[i] : 0);
	}
	tear_down(&s);
}

/* ---- evaluation ---- */

static int evaluate(int64_t batch, int64_t told_in, bool nothing_finite, engine_evaluation *out, bool *interrupted,
		    beton_error *err)
{
	struct setup s;
	dtrain_group *host = NULL;
	set_up(&s, tested, batch, false);
	caller.told_in = told_in;
	caller.nothing_finite = nothing_finite;
	expect_ok(dtrain_group_create(NULL, 0, 1, NULL, &host, err), err);
	int status = engine_evaluate(&s.engine, s.loader, 0, host, out, interrupted, err);
	dtrain_group_destroy(&host);
	tear_down(&s);
	return status;
}

/* The last batch may have fewer rows. */
static void every_row_is_evaluated_once(void **state)
{
	(void)state;
	static const int64_t batches[] = {SAMPLES, 1, 4, 5, 20};
	double expected = 0;
	for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
		engine_evaluation evaluation = {0};
		bool interrupted;
		beton_error err = {0};
		expect_ok(evaluate(batches[i], -1, false, &evaluation, &interrupted, &err), &err);
		assert_false(interrupted);
		assert_int_equal(evaluation.count, SAMPLES);
		assert_true(evaluation.metrics[1] == 1);
		expected = i ? expected : evaluation.metrics[0];
		assert_true(expected > 0 && evaluation.metrics[0] == expected);
	}
}

static void an_evaluation_can_be_stopped(void **state)
{
	(void)state;
	engine_evaluation evaluation = {.count = 5};
	bool interrupted = false;
	beton_error err = {0};
	expect_ok(evaluate(BATCH, 2, false, &evaluation, &interrupted, &err), &err);
	assert_true(interrupted);
	assert_int_equal(evaluation.count, 5);
}

static void a_metric_that_is_not_finite_is_named(void **state)
{
	(void)state;
	engine_evaluation evaluation;
	bool interrupted;
	beton_error err = {0};
	assert_int_equal(evaluate(BATCH, -1, true, &evaluation, &interrupted, &err), BETON_DIVERGED);
	assert_non_null(strstr(err.message, "the validation loss is not finite"));
}

/* ---- what the device says of itself ---- */

static const dtrain_device_api *plain_api;
static int ops_made;

static int make_op(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err)
{
	ops_made++;
	return plain_api->op_create(device, desc, out, err);
}

static void describe_ops(const dtrain_device *device, dtrain_device_caps *out)
{
	plain_api->caps(device, out);
	snprintf(out->description, sizeof(out->description), "%d ops", ops_made);
}

/* A device knows only then what of its store it could not use. */
static void the_description_is_read_when_the_ops_are_made(void **state)
{
	(void)state;
	const engine_job job = {.task = &rows_task, .model = "linear", .batch_size = BATCH, .micro_batches = 1};
	const engine_data data = {.classes = CLASSES, .outputs = &two_metrics, .val = {.samples = SAMPLES}};
	engine_rank engine;
	dtrain_device *device = NULL;
	dtrain_sync_options sync;
	beton_error err = {0};
	char expected[32];
	expect_ok(dtrain_device_open(tested, NULL, &device, &err), &err);
	plain_api = dtrain_device_get_api(device);
	dtrain_device_api counting = *plain_api;
	const dtrain_device_api *api = &counting;
	counting.op_create = make_op;
	counting.caps = describe_ops;
	ops_made = 0;
	memcpy(device, &api, sizeof(api)); /* a device's first member */
	dtrain_sync_options_init(&sync);
	expect_ok(engine_open(&engine, &job, &data, device, ENGINE_PRECISION_F32, NULL, &sync, &err), &err);
	assert_true(ops_made > 0);
	snprintf(expected, sizeof(expected), "%d ops", ops_made);
	assert_string_equal(engine.caps.description, expected);
	engine_close(&engine);
}

/* ---- */

static void write_rows(const char *path)
{
	const beton_field fields[] = {
		{.name = "x", .type = BETON_FIELD_NDARRAY, .dtype = "<f4", .ndim = 1, .shape = {WIDTH}},
		{.name = "y", .type = BETON_FIELD_INT}};
	beton_writer *writer;
	beton_error err = {0};
	expect_ok(beton_writer_open(&writer, path, fields, 2, NULL, &err), &err);
	for (int64_t i = 0; i < SAMPLES; i++) {
		float x[WIDTH];
		for (int k = 0; k < WIDTH; k++)
			x[k] = (k == i % CLASSES ? 2.0f : 0) + 0.25f * (float)((i * 5 + k * 3) % 7);
		const beton_input values[] = {{.data = x, .size = sizeof(x)}, {.integer = i % CLASSES}};
		expect_ok(beton_writer_append(writer, values, &err), &err);
	}
	expect_ok(beton_writer_finish(writer, &err), &err);
	beton_writer_close(&writer);
}

static char folder[256];

static int enter(void **state)
{
	(void)state;
	if (temporary_enter(folder) != 0)
		return -1;
	write_rows("rows.beton");
	return 0;
}

static int leave(void **state)
{
	(void)state;
	temporary_leave(folder);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_are_those_of_a_plain_loop),
		cmocka_unit_test(runs_of_a_step_are_one_of_a_larger_batch),
		cmocka_unit_test(a_stop_is_that_of_its_step),
		cmocka_unit_test(a_step_without_a_batch_has_the_one_before),
		cmocka_unit_test(each_batch_comes_to_the_inputs_whole),
		cmocka_unit_test(every_row_is_evaluated_once),
		cmocka_unit_test(an_evaluation_can_be_stopped),
		cmocka_unit_test(a_metric_that_is_not_finite_is_named),
		cmocka_unit_test(the_description_is_read_when_the_ops_are_made),
	};
	tested = argc > 1 ? argv[1] : "ref";
	return cmocka_run_group_tests(tests, enter, leave);
}
