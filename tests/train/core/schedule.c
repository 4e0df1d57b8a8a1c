/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls between the ops of a program: their places, errors, and memory that another stream works on meanwhile.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/error.h"
#include "core/program.h"

enum { ELEMENTS = 4096, LAYERS = 12 };

/* A rank that is sent a tensor and sends another back: a copy on a stream of its own. */
typedef struct courier {
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_event *ready, *done;
	dtrain_tensor sent, received;
	int32_t after, before; /* nodes */
	int issued, waited;
	int fail; /* 1: the issue; 2: the wait */
} courier;

static int issue(void *context, const dtrain__run *run, beton_error *err)
{
	courier *c = context;
	const dtrain_instance *instance = run->instance;
	const dtrain__place *places = instance->program->places;
	assert_int_equal(c->issued++, c->waited);
	if (c->fail == 1)
		return bt_fail(err, BETON_DEVICE, "peer is absent");
	int status = c->api->event_record(c->ready, run->stream, err);
	if (status == BETON_OK)
		status = c->api->stream_wait(c->stream, c->ready, err);
	if (status == BETON_OK)
		status = c->api->copy(c->stream, dtrain__address(instance, places[c->received]),
				      dtrain__address(instance, places[c->sent]), ELEMENTS * sizeof(float),
				      DTRAIN_DEVICE_TO_DEVICE, err);
	return status == BETON_OK ? c->api->event_record(c->done, c->stream, err) : status;
}

static int wait_for_it(void *context, const dtrain__run *run, beton_error *err)
{
	courier *c = context;
	assert_int_equal(++c->waited, c->issued);
	if (c->fail == 2)
		return bt_fail(err, BETON_DEVICE, "peer never came");
	return c->api->stream_wait(run->stream, c->done, err);
}

static int add_courier(void *context, dtrain__schedule *schedule, beton_error *err)
{
	courier *c = context;
	const dtrain__call call = {.name = "letter",
				   .issue = issue,
				   .wait = wait_for_it,
				   .context = c,
				   .tensors = {c->sent, c->received},
				   .num_tensors = 2};
	return dtrain__schedule_add(schedule, &call, c->after, c->before, err);
}

typedef struct net {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_program *program;
	dtrain_tensor x, y;
	courier courier;
} net;

static void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

/* y = f(f(...f(x))) + what is sent after the first layer and comes back before the last. */
static void open_net(net *n, const char *device)
{
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_shape shape = dtrain_shape_of(1, (int64_t[]){ELEMENTS});
	*n = (net){.courier = {.after = 0, .before = LAYERS}};
	expect_ok(dtrain_device_open(device, NULL, &n->device, &err), &err);
	n->api = n->courier.api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(n->api->stream_create(n->device, &n->courier.stream, &err), &err);
	expect_ok(n->api->event_create(n->device, &n->courier.ready, &err), &err);
	expect_ok(n->api->event_create(n->device, &n->courier.done, &err), &err);
	expect_ok(dtrain_params_create(n->device, DTRAIN_F32, &n->params, &err), &err);
	expect_ok(dtrain_graph_create(n->params, false, &graph, &err), &err);
	n->x = dtrain_graph_input(graph, "x", DTRAIN_F32, &shape);
	dtrain_tensor x = n->courier.sent = dtrain_scale(graph, n->x, 3);
	for (int i = 1; i < LAYERS; i++)
		x = dtrain_scale(graph, x, i % 2 ? 0.5 : 2);
	n->courier.received = dtrain__graph_activation(graph, DTRAIN_F32, &shape);
	n->y = dtrain_add(graph, x, n->courier.received, false);
	dtrain_graph_keep(graph, n->y);
	expect_ok(dtrain__graph_compile(&graph, &(dtrain__pass){add_courier, &n->courier}, 1, &n->program, &err), &err);
}

static void close_net(net *n)
{
	dtrain_program_destroy(&n->program);
	dtrain_params_destroy(&n->params);
	n->api->event_destroy(n->courier.ready);
	n->api->event_destroy(n->courier.done);
	n->api->stream_destroy(n->courier.stream);
	n->api->stream_destroy(n->stream);
	dtrain_device_close(&n->device);
}

static void check_result(const char *device)
{
	static float x[ELEMENTS], y[ELEMENTS];
	beton_error err = {0};
	net n;
	open_net(&n, device);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < ELEMENTS; i++)
			x[i] = sinf((float)(i + round));
		expect_ok(n.api->copy(n.stream, dtrain_program_data(n.program, n.x), x, sizeof(x),
				      DTRAIN_HOST_TO_DEVICE, &err),
			  &err);
		expect_ok(dtrain_program_run(n.program, n.stream, 0, 1, &err), &err);
		expect_ok(n.api->copy(n.stream, y, dtrain_program_data(n.program, n.y), sizeof(y),
				      DTRAIN_DEVICE_TO_HOST, &err),
			  &err);
		expect_ok(n.api->stream_synchronize(n.stream, &err), &err);
		/* Eleven more layers: half of it. */
		for (int i = 0; i < ELEMENTS; i++)
			assert_true(fabsf(y[i] - 4.5f * x[i]) < 1e-5f);
		assert_int_equal(n.courier.waited, round + 1);
	}
	close_net(&n);
}

static void another_stream_may_work_meanwhile(void **state)
{
	(void)state;
	check_result("ref");
	check_result("far");
}

/* From the issue to the wait no other tensor has the memory of either tensor. */
static void memory_is_kept_from_issue_to_wait(void **state)
{
	(void)state;
	net n;
	open_net(&n, "ref");
	const dtrain_program *p = n.program;
	const dtrain__schedule *s = &p->schedule;
	int32_t issued = -1, waited = -1;
	for (int32_t i = 0; i < s->count; i++)
		if (s->steps[i].kind != DTRAIN__RUN)
			*(s->steps[i].kind == DTRAIN__CALL ? &issued : &waited) = i;
	assert_int_equal(s->count, LAYERS + 3);
	assert_int_equal(issued, 1);
	assert_int_equal(waited, LAYERS + 1);
	const dtrain_tensor held[] = {n.courier.sent, n.courier.received};
	for (int h = 0; h < 2; h++) {
		const dtrain__span *mine = &p->spans[held[h]];
		assert_true(mine->first <= issued && mine->last >= waited);
		for (int32_t t = 0; t < p->graph->num_tensors; t++) {
			const dtrain__span *other = &p->spans[t];
			bool together = other->bytes && other->first <= waited && other->last >= issued;
			bool apart = other->offset >= mine->offset + mine->bytes ||
				     mine->offset >= other->offset + other->bytes;
			assert_true(t == held[h] || !together || apart);
		}
	}
	/* The other layers still share: sent, received, input, and two that change places. */
	assert_true(p->info.arena_bytes <= 5 * ELEMENTS * sizeof(float));
	char *text;
	assert_int_equal(dtrain_program_plan(p, &text, NULL), BETON_OK);
	assert_non_null(strstr(text, "1, letter\n"));
	assert_non_null(strstr(text, "13, wait for letter\n"));
	free(text);
	close_net(&n);
}

static void failures_have_the_calls_name(void **state)
{
	(void)state;
	for (int fail = 1; fail <= 2; fail++) {
		beton_error err = {0};
		net n;
		open_net(&n, "ref");
		n.courier.fail = fail;
		assert_int_equal(dtrain_program_run(n.program, n.stream, 0, 1, &err), BETON_DEVICE);
		assert_string_equal(err.message, fail == 1 ? "letter: peer is absent" : "letter: peer never came");
		close_net(&n);
	}
}

/* ---- order and mistakes ---- */

static int add_in_order(void *context, dtrain__schedule *schedule, beton_error *err)
{
	(void)context;
	const dtrain__call a = {.name = "a"}, b = {.name = "b"}, c = {.name = "c", .tensors = {9}, .num_tensors = 1};
	assert_int_equal(dtrain__schedule_add(schedule, &a, -1, 2, err), BETON_OK);
	assert_int_equal(dtrain__schedule_add(schedule, &b, -1, 2, err), BETON_OK);
	assert_int_equal(dtrain__schedule_add(schedule, &b, 1, 1, err), BETON_INVALID_ARGUMENT);
	assert_string_equal(err->message, "call b: from node 1 to node 1 of 2");
	assert_int_equal(dtrain__schedule_add(schedule, &b, 0, 3, err), BETON_INVALID_ARGUMENT);
	assert_int_equal(dtrain__schedule_add(schedule, &c, 0, 1, err), BETON_INVALID_ARGUMENT);
	assert_string_equal(err->message, "call c: tensor 9 does not exist");
	static const dtrain__scheduled right[] = {{DTRAIN__CALL, 0}, {DTRAIN__CALL, 1}, {DTRAIN__RUN, 0},
						  {DTRAIN__RUN, 1},  {DTRAIN__WAIT, 0}, {DTRAIN__WAIT, 1}};
	assert_int_equal(schedule->count, 6);
	for (int i = 0; i < 6; i++)
		assert_true(schedule->steps[i].kind == right[i].kind && schedule->steps[i].index == right[i].index);
	return bt_fail(err, BETON_CANCELLED, "a pass may fail");
}

static void calls_keep_their_order(void **state)
{
	(void)state;
	beton_error err = {0};
	dtrain_device *device;
	dtrain_params *params;
	dtrain_graph *graph;
	dtrain_program *program;
	dtrain_shape shape = dtrain_shape_of(1, (int64_t[]){8});
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &err), &err);
	expect_ok(dtrain_graph_create(params, false, &graph, &err), &err);
	dtrain_gelu(graph, dtrain_gelu(graph, dtrain_graph_input(graph, "x", DTRAIN_F32, &shape)));
	assert_int_equal(dtrain__graph_compile(&graph, &(dtrain__pass){add_in_order, NULL}, 1, &program, &err),
			 BETON_CANCELLED);
	assert_string_equal(err.message, "a pass may fail");
	dtrain_graph_destroy(&graph);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_stream_may_work_meanwhile),
		cmocka_unit_test(memory_is_kept_from_issue_to_wait),
		cmocka_unit_test(failures_have_the_calls_name),
		cmocka_unit_test(calls_keep_their_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
