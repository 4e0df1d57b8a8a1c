/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops between two calls are captured and launched as a whole: with the bits of ops launched one by one, once for each
 * memory that micro-batches have, and not after a failure. All captures are destroyed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/capture.h"
#include "core/program.h"

enum { ROWS = 4, WIDTH = 8, MICRO_BATCHES = 3, STEPS = 4 };

/* ---- a device that counts ---- */

static struct {
	int ops, begun, made, launched, destroyed;
} calls;

static const dtrain_device_api *far_api;

static int count_op(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err)
{
	calls.ops++;
	return far_api->op_run(op, stream, operands, workspace, err);
}

static int count_begin(dtrain_stream *stream, beton_error *err)
{
	calls.begun++;
	return far_api->capture_begin(stream, err);
}

static int count_end(dtrain_stream *stream, void **captured, beton_error *err)
{
	int status = far_api->capture_end(stream, captured, err);
	calls.made += *captured != NULL;
	return status;
}

static int count_launch(void *captured, dtrain_stream *stream, beton_error *err)
{
	calls.launched++;
	return far_api->capture_launch(captured, stream, err);
}

static void count_destroy(void *captured)
{
	calls.destroyed++;
	far_api->capture_destroy(captured);
}

static dtrain_device *open_counting(void)
{
	static dtrain_device_api counting;
	dtrain_device *device;
	beton_error err;
	memset(&calls, 0, sizeof(calls));
	assert_int_equal(dtrain_device_open("far", NULL, &device, &err), BETON_OK);
	far_api = dtrain_device_get_api(device);
	counting = *far_api;
	counting.op_run = count_op;
	counting.capture_begin = count_begin;
	counting.capture_end = count_end;
	counting.capture_launch = count_launch;
	counting.capture_destroy = count_destroy;
	*(const dtrain_device_api **)(void *)device = &counting;
	return device;
}

/* ---- a program with calls ---- */

typedef struct net {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_program *program;
	dtrain_instance *instances[2]; /* in turns; 0: the program's own */
	dtrain_tensor x, loss;
	void *inputs[MICRO_BATCHES];
	int called; /* issues and waits of the calls */
} net;

static void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

static int call(void *context, const dtrain__run *run, beton_error *err)
{
	net *n = context;
	(void)run;
	(void)err;
	n->called++;
	return BETON_OK;
}

/* One in forward, and two in backward with one op in between. */
static int add_calls(void *context, dtrain__schedule *schedule, beton_error *err)
{
	const dtrain__call of = {.name = "call", .issue = call, .wait = call, .context = context};
	int32_t forward = dtrain__graph_forward_nodes(schedule->graph);
	int status = dtrain__schedule_add(schedule, &of, 1, 2, err);
	for (int32_t after = forward + 1; after < forward + 3 && status == BETON_OK; after++)
		status = dtrain__schedule_add(schedule, &of, after, after + 1, err);
	return status;
}

static void open_net(net *n, bool shares)
{
	beton_error err = {0};
	dtrain_graph *graph;
	const dtrain_shape rows = dtrain_shape_of(2, (int64_t[]){ROWS, WIDTH});
	*n = (net){.device = open_counting()};
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(dtrain_params_create(n->device, DTRAIN_F32, &n->params, &err), &err);
	expect_ok(dtrain_graph_create(n->params, true, &graph, &err), &err);
	n->x = dtrain_graph_input(graph, "x", DTRAIN_F32, &rows);
	dtrain_tensor y = n->x;
	for (int i = 0; i < 4; i++)
		y = dtrain_gelu(graph, dtrain_linear(graph, (const char *[]){"a", "b", "c", "d"}[i], y, WIDTH));
	n->loss = dtrain_mean(graph, dtrain_squared_error(graph, y, n->x));
	dtrain_graph_keep(graph, n->loss);
	dtrain_graph_backward(graph, n->loss);
	dtrain_graph_bind_inputs(graph);
	if (shares)
		dtrain_graph_share_scratch(graph);
	expect_ok(dtrain__graph_compile(&graph, &(dtrain__pass){add_calls, n}, 1, &n->program, &err), &err);
	n->instances[0] = n->program->first;
	expect_ok(dtrain_instance_create(n->program, &n->instances[1], &err), &err);
	for (int m = 0; m < MICRO_BATCHES; m++)
		expect_ok(n->api->alloc(n->device, ROWS * WIDTH * sizeof(float), &n->inputs[m], &err), &err);
}

static void close_net(net *n)
{
	for (int m = 0; m < MICRO_BATCHES; m++)
		n->api->free(n->device, n->inputs[m]);
	dtrain_instance_destroy(&n->instances[1]);
	dtrain_program_destroy(&n->program);
	dtrain_params_destroy(&n->params);
	n->api->stream_destroy(n->stream);
	dtrain_device_close(&n->device);
	assert_int_equal(calls.made, calls.destroyed);
}

static void capture(net *n)
{
	beton_error err = {0};
	for (int i = 0; i < 2; i++)
		expect_ok(dtrain__instance_capture(n->instances[i], MICRO_BATCHES, &err), &err);
}

/* Other numbers in each step. */
static void fill(const net *n, int step)
{
	beton_error err = {0};
	for (int m = 0; m < MICRO_BATCHES; m++) {
		float x[ROWS * WIDTH];
		for (int i = 0; i < ROWS * WIDTH; i++)
			x[i] = (float)((i * 7 + step * 5 + m * 3) % 11) / 4 - 1;
		expect_ok(n->api->copy(n->stream, n->inputs[m], x, sizeof(x), DTRAIN_HOST_TO_DEVICE, &err), &err);
		expect_ok(n->api->stream_synchronize(n->stream, &err), &err);
	}
	expect_ok(dtrain_params_initialize(n->params, (uint64_t)step, n->stream, &err), &err);
}

static int run(const net *n, int m, unsigned phases, beton_error *err)
{
	int status = dtrain_instance_bind(n->instances[m % 2], n->x, n->inputs[m], err);
	return status == BETON_OK ? dtrain_instance_run(n->instances[m % 2], n->stream, phases, m, MICRO_BATCHES, err)
				  : status;
}

/* Loss and gradients. */
typedef struct results {
	float loss, grads[4 * (WIDTH * WIDTH + WIDTH)];
} results;

static void read_results(const net *n, int m, results *out)
{
	beton_error err = {0};
	int64_t at = 0;
	expect_ok(n->api->copy(n->stream, &out->loss, dtrain_instance_data(n->instances[m % 2], n->loss),
			       sizeof(out->loss), DTRAIN_DEVICE_TO_HOST, &err),
		  &err);
	for (int i = 0; i < dtrain_params_count(n->params); i++) {
		const dtrain_param *param = dtrain_params_at(n->params, i);
		expect_ok(n->api->copy(n->stream, out->grads + at,
				       (float *)dtrain_params_grads(n->params) + param->offset,
				       (size_t)param->count * sizeof(float), DTRAIN_DEVICE_TO_HOST, &err),
			  &err);
		at += param->count;
	}
	assert_int_equal(at, 4 * (WIDTH * WIDTH + WIDTH));
	expect_ok(n->api->stream_synchronize(n->stream, &err), &err);
}

/* Forward of the first two micro-batches comes before backward of the first one. */
static void run_step(const net *n, int step, results out[MICRO_BATCHES])
{
	beton_error err = {0};
	fill(n, step);
	expect_ok(run(n, 0, DTRAIN_FORWARD, &err), &err);
	expect_ok(run(n, 1, DTRAIN_FORWARD, &err), &err);
	for (int m = 0; m < MICRO_BATCHES; m++) {
		expect_ok(run(n, m, m < 2 ? DTRAIN_BACKWARD | DTRAIN_WEIGHTS : DTRAIN_ALL_PHASES, &err), &err);
		read_results(n, m, &out[m]);
	}
}

/* The device launches the ops one by one. */
static void run_eagerly(results out[STEPS][MICRO_BATCHES])
{
	net n;
	open_net(&n, true);
	for (int step = 0; step < STEPS; step++)
		run_step(&n, step, out[step]);
	assert_int_equal(calls.begun + calls.launched, 0);
	close_net(&n);
}

/* Ops in a row, of one phase. *alone: the others. */
static int count_pieces(const dtrain__schedule *schedule, int *alone)
{
	int pieces = 0, row = 0;
	*alone = 0;
	for (int32_t i = 0, phase = 0; i <= schedule->count; i++) {
		bool ends = i == schedule->phase_ends[phase];
		if (ends || schedule->steps[i].kind != DTRAIN__RUN) {
			pieces += row > 1;
			*alone += row == 1;
			row = 0;
		}
		row += i < schedule->count && schedule->steps[i].kind == DTRAIN__RUN;
		while (phase < DTRAIN__PHASES - 1 && i >= schedule->phase_ends[phase])
			phase++;
	}
	return pieces;
}

/* ---- tests ---- */

static void captured_ops_have_the_same_bits(void **state)
{
	static results right[STEPS][MICRO_BATCHES], got[MICRO_BATCHES];
	(void)state;
	net n;
	int alone, begun = 0;
	run_eagerly(right);
	open_net(&n, true);
	const int pieces = count_pieces(&n.program->schedule, &alone);
	assert_true(pieces >= 4 && alone >= 1);
	for (int step = 0; step < STEPS; step++) {
		if (step == 1)
			capture(&n);
		calls.ops = calls.launched = n.called = 0;
		run_step(&n, step, got);
		assert_memory_equal(got, right[step], sizeof(got));
		assert_int_equal(n.called, 6 * MICRO_BATCHES);
		assert_int_equal(calls.launched, step ? pieces * MICRO_BATCHES : 0);
		/* The first step with captures makes all of them. */
		if (step == 1)
			begun = calls.begun;
		if (step > 1)
			assert_int_equal(calls.ops, alone * MICRO_BATCHES);
	}
	assert_int_equal(begun, pieces * MICRO_BATCHES);
	assert_int_equal(calls.begun, begun);
	capture(&n);
	run_step(&n, 0, got);
	assert_int_equal(calls.begun, begun);
	close_net(&n);
}

static void other_memory_is_captured_again(void **state)
{
	static results right[STEPS][MICRO_BATCHES], got[MICRO_BATCHES];
	(void)state;
	net n;
	int alone;
	void *first, *more[STEPS];
	beton_error err = {0};
	run_eagerly(right);
	open_net(&n, true);
	const int pieces = count_pieces(&n.program->schedule, &alone);
	capture(&n);
	run_step(&n, 0, got);
	run_step(&n, 0, got);
	const int begun = calls.begun;
	/* Two micro-batches of one instance exchange their memory: each launches what was captured for the other. */
	first = n.inputs[0];
	n.inputs[0] = n.inputs[2];
	n.inputs[2] = first;
	run_step(&n, 1, got);
	assert_memory_equal(got, right[1], sizeof(got));
	assert_int_equal(calls.begun, begun);
	/* New memory in each step, and more of it than there are captures. */
	first = n.inputs[0];
	for (int step = 0; step < STEPS; step++) {
		expect_ok(n.api->alloc(n.device, ROWS * WIDTH * sizeof(float), &more[step], &err), &err);
		n.inputs[0] = more[step];
		run_step(&n, step, got);
		assert_memory_equal(got, right[step], sizeof(got));
		assert_int_equal(calls.begun, begun + (step + 1) * pieces);
	}
	n.inputs[0] = first;
	for (int step = 0; step < STEPS; step++)
		n.api->free(n.device, more[step]);
	close_net(&n);
}

/* The call of the device fails in the step after the first; then the step runs as ever. */
static void check_failure(const char *what, int number, const char *text)
{
	static results right[STEPS][MICRO_BATCHES], got[MICRO_BATCHES];
	char failure[64];
	beton_error err = {0};
	net n;
	run_eagerly(right);
	snprintf(failure, sizeof(failure), "%s:%d", what, number);
	setenv("DTRAIN_FAR_FAIL", failure, 1);
	open_net(&n, true);
	unsetenv("DTRAIN_FAR_FAIL");
	run_step(&n, 0, got);
	capture(&n);
	fill(&n, 1);
	assert_int_equal(run(&n, 0, DTRAIN_ALL_PHASES, &err), BETON_DEVICE);
	if (!strstr(err.message, text))
		fail_msg("%s", err.message);
	for (int step = 1; step < STEPS; step++) {
		run_step(&n, step, got);
		assert_memory_equal(got, right[step], sizeof(got));
	}
	assert_int_equal(calls.begun, calls.made + (strcmp(what, "capture") == 0));
	close_net(&n);
}

static void failures_leave_nothing_behind(void **state)
{
	(void)state;
	net n;
	open_net(&n, true);
	const int ops = n.program->graph->num_nodes * MICRO_BATCHES;
	close_net(&n);
	check_failure("capture", 2, " ops (--no-capture avoids this): device 'far': capture 2 fails");
	check_failure("op", ops + 2, " ops (--no-capture avoids this): op ");
	check_failure("launch", 2, "device 'far': launch 2 fails");
}

static void new_ops_are_captured_anew(void **state)
{
	(void)state;
	beton_error err = {0};
	net n;
	results before, after;
	open_net(&n, false);
	fill(&n, 1);
	expect_ok(dtrain__instance_capture(n.instances[0], 1, &err), &err);
	/* Micro-batches that it has no captures for are launched op by op. */
	expect_ok(run(&n, 2, DTRAIN_ALL_PHASES, &err), &err);
	assert_int_equal(calls.begun, 0);
	expect_ok(run(&n, 0, DTRAIN_ALL_PHASES, &err), &err);
	read_results(&n, 0, &before);
	expect_ok(dtrain__instance_capture(n.instances[0], MICRO_BATCHES, &err), &err);
	assert_true(calls.made > 0 && calls.destroyed == calls.made);
	expect_ok(run(&n, 0, DTRAIN_ALL_PHASES, &err), &err);
	expect_ok(n.api->stream_synchronize(n.stream, &err), &err);
	dtrain_instance_destroy(&n.instances[1]);
	expect_ok(dtrain_program_recompile(n.program, &err), &err);
	assert_int_equal(calls.destroyed, calls.made);
	n.instances[0] = n.program->first;
	expect_ok(run(&n, 0, DTRAIN_ALL_PHASES, &err), &err);
	assert_int_equal(calls.destroyed, calls.begun);
	expect_ok(dtrain__instance_capture(n.instances[0], 1, &err), &err);
	expect_ok(run(&n, 0, DTRAIN_ALL_PHASES, &err), &err);
	read_results(&n, 0, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	close_net(&n);
}

static void devices_may_lack_captures(void **state)
{
	(void)state;
	beton_error err = {0};
	dtrain_device *device;
	dtrain_params *params;
	dtrain_graph *graph;
	dtrain_program *program;
	const dtrain_shape shape = dtrain_shape_of(1, (int64_t[]){WIDTH});
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &err), &err);
	expect_ok(dtrain_graph_create(params, false, &graph, &err), &err);
	dtrain_graph_keep(graph, dtrain_scale(graph, dtrain_graph_input(graph, "x", DTRAIN_F32, &shape), 2));
	expect_ok(dtrain_graph_compile(&graph, &program, &err), &err);
	assert_int_equal(dtrain__instance_capture(program->first, 1, &err), BETON_UNSUPPORTED);
	assert_non_null(strstr(err.message, "device 'ref' has no captures"));
	dtrain_program_destroy(&program);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(captured_ops_have_the_same_bits), cmocka_unit_test(other_memory_is_captured_again),
		cmocka_unit_test(failures_leave_nothing_behind),   cmocka_unit_test(new_ops_are_captured_anew),
		cmocka_unit_test(devices_may_lack_captures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
