/* SPDX-License-Identifier: Apache-2.0
 *
 * The device "far" itself, loaded as a module: its steps equal ref's bit by bit, eager and captured, and uses that a
 * GPU would refuse or get wrong are errors.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/model.h>
#include <dtrain/module.h>
#include <dtrain/optimizer.h>

enum { BATCH = 4, SIDE = 6, CLASSES = 5, PIXELS = BATCH * 3 * SIDE * SIDE, STEPS = 4 };

struct job {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_program *program;
	dtrain_optimizer *sgd;
	dtrain_tensor image, label, loss;
};

static void expect(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

static void open_device(struct job *job, const char *name)
{
	beton_error err = {0};
	*job = (struct job){0};
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = 1, .tune_later = true};
	expect(dtrain_device_open(name, &options, &job->device, &err), &err);
	job->api = dtrain_device_get_api(job->device);
	expect(job->api->stream_create(job->device, &job->stream, &err), &err);
}

static void give_samples(const struct job *job)
{
	beton_error err = {0};
	float pixels[PIXELS];
	int64_t labels[BATCH];
	for (int i = 0; i < PIXELS; i++)
		pixels[i] = (float)(i * 7919 % 256) / 128 - 1;
	for (int i = 0; i < BATCH; i++)
		labels[i] = i;
	expect(job->api->copy(job->stream, dtrain_program_data(job->program, job->image), pixels, sizeof(pixels),
			      DTRAIN_HOST_TO_DEVICE, &err),
	       &err);
	expect(job->api->copy(job->stream, dtrain_program_data(job->program, job->label), labels, sizeof(labels),
			      DTRAIN_HOST_TO_DEVICE, &err),
	       &err);
	expect(job->api->stream_synchronize(job->stream, &err), &err);
}

static void open_job(struct job *job, const char *name)
{
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_optimizer_options sgd;
	const int64_t batch = BATCH;
	open_device(job, name);
	expect(dtrain_params_create(job->device, DTRAIN_F32, &job->params, &err), &err);
	expect(dtrain_graph_create(job->params, true, &graph, &err), &err);
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){BATCH, 3, SIDE, SIDE});
	dtrain_shape label = dtrain_shape_of(1, &batch);
	job->image = dtrain_graph_input(graph, "image", DTRAIN_F32, &image);
	job->label = dtrain_graph_input(graph, "label", DTRAIN_I64, &label);
	dtrain_tensor logits = dtrain_model_build(graph, "resnet20", job->image, CLASSES);
	job->loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, logits, job->label, 0.1));
	dtrain_graph_backward(graph, job->loss);
	dtrain_graph_keep(graph, job->loss);
	expect(dtrain_graph_compile(&graph, &job->program, &err), &err);
	expect(dtrain_params_initialize(job->params, 7, job->stream, &err), &err);
	dtrain_optimizer_options_init(&sgd);
	expect(dtrain_optimizer_create(job->params, &sgd, &job->sgd, &err), &err);
	give_samples(job);
}

static void close_job(struct job *job)
{
	dtrain_optimizer_destroy(&job->sgd);
	dtrain_program_destroy(&job->program);
	dtrain_params_destroy(&job->params);
	job->api->stream_destroy(job->stream);
	dtrain_device_close(&job->device);
}

static float read_loss(struct job *job)
{
	beton_error err = {0};
	float loss = 0;
	expect(job->api->copy(job->stream, &loss, dtrain_program_data(job->program, job->loss), sizeof(loss),
			      DTRAIN_DEVICE_TO_HOST, &err),
	       &err);
	expect(job->api->stream_synchronize(job->stream, &err), &err);
	return loss;
}

static void train(struct job *job, float *losses)
{
	beton_error err = {0};
	for (int i = 0; i < STEPS; i++) {
		expect(dtrain_program_run(job->program, job->stream, 0, 1, &err), &err);
		expect(dtrain_optimizer_step(job->sgd, 0.1, job->stream, &err), &err);
		losses[i] = read_loss(job);
	}
}

static void steps_are_refs(void **state)
{
	struct job far, ref;
	float of_far[STEPS], of_ref[STEPS];
	(void)state;
	open_job(&far, "far");
	open_job(&ref, "ref");
	train(&far, of_far);
	train(&ref, of_ref);
	assert_memory_equal(of_far, of_ref, sizeof(of_ref));
	assert_true(of_ref[0] != of_ref[STEPS - 1]);
	close_job(&far);
	close_job(&ref);
}

/* The loss is fetched by a second stream, which an event draws into the capture and another one joins again. */
static void captures_are_replayed(void **state)
{
	struct job far, ref;
	float of_far[STEPS], of_ref[STEPS], *fetched;
	beton_error err = {0};
	dtrain_stream *side;
	dtrain_event *began, *forked, *joined, *marks[2];
	void *captured;
	double ms;
	(void)state;
	open_job(&far, "far");
	open_job(&ref, "ref");
	train(&ref, of_ref);
	const dtrain_device_api *api = far.api;
	expect(api->host_alloc(far.device, sizeof(float), (void **)&fetched, &err), &err);
	expect(api->stream_create(far.device, &side, &err), &err);
	dtrain_event **events[] = {&began, &forked, &joined, &marks[0], &marks[1]};
	for (int i = 0; i < 5; i++)
		expect(api->event_create(far.device, events[i], &err), &err);
	expect(api->capture_begin(far.stream, &err), &err);
	expect(api->event_mark(marks[0], far.stream, &err), &err);
	expect(dtrain_program_run(far.program, far.stream, 0, 1, &err), &err);
	expect(api->event_record(forked, far.stream, &err), &err);
	expect(api->stream_wait(side, forked, &err), &err);
	expect(api->copy(side, fetched, dtrain_program_data(far.program, far.loss), sizeof(float),
			 DTRAIN_DEVICE_TO_HOST, &err),
	       &err);
	expect(api->event_record(joined, side, &err), &err);
	expect(api->stream_wait(far.stream, joined, &err), &err);
	expect(api->event_mark(marks[1], far.stream, &err), &err);
	assert_int_equal(api->stream_synchronize(far.stream, &err), BETON_STATE);
	assert_int_equal(api->event_synchronize(forked, &err), BETON_STATE);
	expect(api->capture_end(far.stream, &captured, &err), &err);
	for (int i = 0; i < STEPS; i++) {
		*fetched = -1;
		expect(api->capture_launch(captured, far.stream, &err), &err);
		expect(dtrain_optimizer_step(far.sgd, 0.1, far.stream, &err), &err);
		expect(api->event_record(began, far.stream, &err), &err);
		expect(api->event_synchronize(began, &err), &err);
		of_far[i] = *fetched;
		expect(api->event_elapsed_ms(marks[0], marks[1], &ms, &err), &err);
		assert_true(ms >= 0);
	}
	assert_memory_equal(of_far, of_ref, sizeof(of_ref));
	/* Outside of its capture, a captured event says nothing. */
	assert_int_equal(api->stream_wait(far.stream, joined, &err), BETON_STATE);
	api->capture_destroy(captured);
	for (int i = 0; i < 5; i++)
		api->event_destroy(*events[i]);
	api->stream_destroy(side);
	api->host_free(far.device, fetched);
	close_job(&far);
	close_job(&ref);
}

static void a_capture_has_to_be_joined(void **state)
{
	struct job far;
	beton_error err = {0};
	dtrain_stream *side;
	dtrain_event *event, *outside;
	void *captured, *memory;
	(void)state;
	open_device(&far, "far");
	const dtrain_device_api *api = far.api;
	expect(api->alloc(far.device, 64, &memory, &err), &err);
	expect(api->stream_create(far.device, &side, &err), &err);
	expect(api->event_create(far.device, &event, &err), &err);
	expect(api->event_create(far.device, &outside, &err), &err);
	expect(api->event_record(outside, side, &err), &err);
	expect(api->capture_begin(far.stream, &err), &err);
	assert_int_equal(api->capture_begin(side, &err), BETON_STATE);
	assert_int_equal(api->stream_wait(far.stream, outside, &err), BETON_STATE);
	expect(api->event_record(event, far.stream, &err), &err);
	expect(api->stream_wait(side, event, &err), &err);
	expect(api->zero(side, memory, 64, &err), &err);
	assert_int_equal(api->capture_end(far.stream, &captured, &err), BETON_STATE);
	assert_null(captured);
	expect(api->stream_synchronize(side, &err), &err);
	api->event_destroy(event);
	api->event_destroy(outside);
	api->stream_destroy(side);
	api->free(far.device, memory);
	close_job(&far);
}

static void wrong_memory_is_refused(void **state)
{
	struct job far;
	beton_error err = {0};
	void *memory;
	char host[64] = {0};
	(void)state;
	open_device(&far, "far");
	const dtrain_device_api *api = far.api;
	expect(api->alloc(far.device, sizeof(host), &memory, &err), &err);
	assert_int_equal(api->copy(far.stream, host, host, 64, DTRAIN_HOST_TO_DEVICE, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(api->copy(far.stream, memory, memory, 64, DTRAIN_HOST_TO_DEVICE, &err),
			 BETON_INVALID_ARGUMENT);
	assert_int_equal(api->copy(far.stream, memory, memory, 64, DTRAIN_DEVICE_TO_HOST, &err),
			 BETON_INVALID_ARGUMENT);
	assert_int_equal(api->zero(far.stream, host, 64, &err), BETON_INVALID_ARGUMENT);
	expect(api->zero(far.stream, memory, 64, &err), &err);
	expect(api->stream_synchronize(far.stream, &err), &err);
	api->free(far.device, memory);
	close_job(&far);
}

static void failures_come_as_asked(void **state)
{
	struct job far;
	beton_error err = {0};
	void *memory;
	(void)state;
	setenv("DTRAIN_FAR_FAIL", "alloc:2", 1);
	open_device(&far, "far");
	expect(far.api->alloc(far.device, 64, &memory, &err), &err);
	far.api->free(far.device, memory);
	assert_int_equal(far.api->alloc(far.device, 64, &memory, &err), BETON_NO_MEMORY);
	unsetenv("DTRAIN_FAR_FAIL");
	close_job(&far);
	dtrain_device_options options = {.struct_size = sizeof(options), .index = 1};
	assert_int_equal(dtrain_device_open("far", &options, &far.device, &err), BETON_INVALID_ARGUMENT);
	setenv("DTRAIN_FAR_DEVICES", "2", 1);
	expect(dtrain_device_open("far", &options, &far.device, &err), &err);
	unsetenv("DTRAIN_FAR_DEVICES");
	dtrain_device_close(&far.device);
}

static float run_once(struct job *job)
{
	beton_error err = {0};
	give_samples(job);
	expect(dtrain_program_run(job->program, job->stream, 0, 1, &err), &err);
	return read_loss(job);
}

/* Ops that are created again have other sizes, and results that are the same; without memory for them the old ones
 * stay. */
static void test_recompile(void **state)
{
	beton_error err = {0};
	struct job job;
	dtrain_program_info before = {.struct_size = sizeof(before)}, after = before;
	dtrain_tuning found;
	(void)state;
	setenv("DTRAIN_FAR_TUNE", "1000", 1);
	open_job(&job, "far");
	float first = run_once(&job);
	dtrain_program_get_info(job.program, &before);
	job.api->tune(job.device, 0, &found);
	assert_true(found.left > 20 && found.waits);
	job.api->tune(job.device, 1, &found);
	assert_int_equal(found.left, 0);

	setenv("DTRAIN_FAR_MEMORY", "0", 1);
	assert_int_equal(dtrain_program_recompile(job.program, &err), BETON_NO_MEMORY);
	unsetenv("DTRAIN_FAR_MEMORY");
	dtrain_program_get_info(job.program, &after);
	assert_int_equal(after.arena_bytes, before.arena_bytes);
	assert_true(first == run_once(&job));

	expect(dtrain_program_recompile(job.program, &err), &err);
	dtrain_program_get_info(job.program, &after);
	assert_true(after.arena_bytes > before.arena_bytes && after.workspace_bytes > before.workspace_bytes);
	assert_int_equal(after.nodes, before.nodes);
	assert_true(after.flops == before.flops);
	assert_true(first == run_once(&job));
	assert_int_equal(dtrain_program_recompile(NULL, &err), BETON_INVALID_ARGUMENT);
	close_job(&job);
	unsetenv("DTRAIN_FAR_TUNE");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_are_refs),
		cmocka_unit_test(captures_are_replayed),
		cmocka_unit_test(a_capture_has_to_be_joined),
		cmocka_unit_test(wrong_memory_is_refused),
		cmocka_unit_test(failures_come_as_asked),
		cmocka_unit_test(test_recompile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
