/* SPDX-License-Identifier: Apache-2.0
 *
 * Offloaded parameters on the device "far": training gives the same values as without, bit by bit where the same
 * kernels update, whether units stay on the device or are prefetched; the device has less memory in use; updates go on
 * beside backward. */
#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include <dtrain/sync.h>

#include "core/program.h"
#include "tests/train/support/net.h"
#include "parallel/data/sync.h"

enum { BATCH = 4, SIDE = 5, CLASSES = 7, STEPS = 4, WAIT_US = 200, GIVE_UP = 300 * 1000000 / WAIT_US };

typedef struct machine {
	net n;
	dtrain_device *host; /* NULL: nothing is offloaded */
	dtrain_sync *sync;
	dtrain_optimizer *optimizer;
	int runs; /* of a step */
} machine;

typedef struct setting {
	const char *kind;
	dtrain_dtype activations;
	double clip_norm;
	bool offloads, units, listens, captures, amsgrad, accumulates;
	bool largest; /* clip_norm is of the largest gradient, as among ranks that have shards */
} setting;

/* All copies of a unit are made before its gradients reach the host, which changes the values. */
static void check_prefetches(const machine *m)
{
	const dtrain__schedule *schedule = &m->n.program->schedule;
	int units = dtrain_params_unit_count(m->n.params), visits = 0;
	for (int unit = 0; unit < units; unit++) {
		char copy[64], sum[64];
		int told = schedule->count;
		snprintf(copy, sizeof(copy), "copy of bucket %d", unit + 1);
		snprintf(sum, sizeof(sum), "bucket %d of %d", unit + 1, units);
		for (int i = 0; i < schedule->count; i++) {
			const dtrain__scheduled *step = &schedule->steps[i];
			const char *name = step->kind == DTRAIN__RUN ? "" : schedule->calls[step->index].name;
			bool visit = strncmp(name, copy, strlen(copy)) == 0 && !isdigit(name[strlen(copy)]);
			told = step->kind == DTRAIN__WAIT && strcmp(name, sum) == 0 ? i : told;
			assert_true(!visit || i < told);
			visits += visit && step->kind == DTRAIN__CALL;
		}
	}
	assert_true(visits > 0);
}

static void build(machine *m)
{
	beton_error err = {0};
	dtrain_graph *graph;
	net *n = &m->n;
	expect_ok(dtrain_graph_create(n->params, true, &graph, &err), &err);
	dtrain_graph_set_dtype(graph, n->activations);
	if (n->scaler)
		dtrain_graph_set_scaler(graph, dtrain_scaler_memory(n->scaler));
	n->image = dtrain_graph_input(graph, "image", n->activations, &(dtrain_shape){4, {BATCH, 3, SIDE, SIDE}});
	n->label = dtrain_graph_input(graph, "label", DTRAIN_I64, &(dtrain_shape){1, {BATCH}});
	n->logits = build_net(graph, SMALL_NET, n->image, CLASSES);
	n->loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, n->logits, n->label, 0.1));
	dtrain_graph_keep(graph, n->loss);
	dtrain_graph_backward(graph, n->loss);
	expect_ok(dtrain_sync_compile(m->sync, &graph, &n->program, &err), &err);
	net_fill(n);
}

static int add_nothing(void *context, void *memory, int64_t count, dtrain_stream *stream, beton_error *err)
{
	(void)context;
	(void)memory;
	(void)count;
	(void)stream;
	(void)err;
	return BETON_OK;
}

static void open_optimizer(machine *m, const setting *s)
{
	beton_error err = {0};
	const dtrain_hyper_value amsgrad = {"amsgrad", 1};
	dtrain_optimizer_options options;
	dtrain_optimizer_options_init(&options);
	options.kind = s->kind;
	options.scaler = m->n.scaler;
	options.clip_norm = s->clip_norm;
	options.hypers = &amsgrad;
	options.num_hypers = s->amsgrad;
	if (s->largest) {
		options.norm = DTRAIN_NORM_MAX;
		options.add = add_nothing;
	}
	expect_ok(dtrain_optimizer_create(m->n.params, &options, &m->optimizer, &err), &err);
	if (s->listens)
		dtrain_sync_set_listener(m->sync, dtrain_optimizer_unit_complete, m->optimizer);
}

static void open_machine(machine *m, const setting *s)
{
	beton_error err = {0};
	dtrain_sync_options options;
	*m = (machine){.n = {.batch = BATCH,
			     .classes = CLASSES,
			     .pixels = 3 * SIDE * SIDE,
			     .dtype = DTRAIN_F32,
			     .activations = s->activations}};
	net *n = &m->n;
	expect_ok(dtrain_device_open("far", NULL, &n->device, &err), &err);
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(dtrain_params_create(n->device, DTRAIN_F32, &n->params, &err), &err);
	if (s->activations == DTRAIN_F16)
		expect_ok(dtrain_scaler_create(n->device, n->stream, &n->scaler, &err), &err);
	if (s->offloads) {
		expect_ok(dtrain_device_open("ref", NULL, &m->host, &err), &err);
		expect_ok(dtrain_params_offload(n->params, m->host, s->units, &err), &err);
	}
	dtrain_sync_options_init(&options);
	options.unit_bytes = options.first_unit_bytes = 1000;
	options.accumulates = s->accumulates;
	m->runs = s->accumulates ? 3 : 1;
	if (s->units)
		options.prefetch_bytes = 2000;
	expect_ok(dtrain_sync_create(n->params, NULL, &options, &m->sync, &err), &err);
	build(m);
	assert_true(dtrain_params_unit_count(n->params) >= 3);
	if (s->offloads && s->units)
		check_prefetches(m);
	assert_ptr_equal(dtrain_params_host(n->params), m->host);
	dtrain_params_memory memory = {.struct_size = sizeof(memory)};
	dtrain_params_get_memory(n->params, &memory);
	assert_true(!memory.host == !m->host);
	expect_ok(dtrain_params_initialize(n->params, 7, n->stream, &err), &err);
	open_optimizer(m, s);
}

static void close_machine(machine *m)
{
	dtrain_optimizer_destroy(&m->optimizer);
	dtrain_program_destroy(&m->n.program);
	dtrain_sync_destroy(&m->sync);
	net_close(&m->n);
	dtrain_device_close(&m->host);
}

/* Whatever is divided into ranges: the elements of a parameter, or of an optimizer's state of it. */
static void read_param(const machine *m, int index, const dtrain_optimizer_state *state, float *out)
{
	const dtrain_param *param = dtrain_params_at(m->n.params, index);
	for (int i = 0; i < dtrain_params_range_count(m->n.params); i++) {
		int64_t first;
		const dtrain_range *range = dtrain_params_range_at(m->n.params, i);
		const dtrain_range of_state = dtrain_optimizer_range_at(m->optimizer, i, &first);
		assert_true(of_state.offset == range->offset && of_state.count == range->count);
		if (param->offset < range->offset || param->offset >= range->offset + range->count)
			continue;
		const float *from = state ? (float *)state->memory + first : range->values;
		from += param->offset - range->offset;
		assert_true(!m->host == (range->device == m->n.device));
		assert_ptr_equal(dtrain_optimizer_memory_device(m->optimizer), m->host ? NULL : m->n.device);
		if (m->host)
			memcpy(out, from, (size_t)param->count * sizeof(float));
		else
			net_copy(&m->n, out, from, (size_t)param->count * sizeof(float), DTRAIN_DEVICE_TO_HOST);
	}
}

static void expect_equal(const machine *a, const machine *b)
{
	for (int k = -1; k < 0 || dtrain_optimizer_state_at(a->optimizer, k); k++) {
		for (int i = 0; i < dtrain_params_count(a->n.params); i++) {
			float *values[2];
			const machine *both[] = {a, b};
			size_t bytes = (size_t)dtrain_params_at(a->n.params, i)->count * sizeof(float);
			for (int j = 0; j < 2; j++) {
				values[j] = malloc(bytes);
				assert_non_null(values[j]);
				read_param(both[j], i, k < 0 ? NULL : dtrain_optimizer_state_at(both[j]->optimizer, k),
					   values[j]);
			}
			assert_memory_equal(values[0], values[1], bytes);
			free(values[0]);
			free(values[1]);
		}
	}
}

static void put_step(machine *m)
{
	beton_error err = {0};
	for (int run = 0; run < m->runs; run++)
		expect_ok(dtrain_program_run(m->n.program, m->n.stream, run, m->runs, &err), &err);
	expect_ok(dtrain_optimizer_apply(m->optimizer, m->n.stream, &err), &err);
}

static void train(machine *m, bool captures)
{
	beton_error err = {0};
	const net *n = &m->n;
	void *captured = NULL;
	for (int step = 0; step < STEPS; step++) {
		expect_ok(dtrain_optimizer_set_rate(m->optimizer, 0.1 / (step + 1), n->stream, &err), &err);
		if (captures && !captured) {
			expect_ok(n->api->capture_begin(n->stream, &err), &err);
			put_step(m);
			expect_ok(n->api->capture_end(n->stream, &captured, &err), &err);
		}
		if (captures)
			expect_ok(n->api->capture_launch(captured, n->stream, &err), &err);
		else
			put_step(m);
	}
	expect_ok(n->api->stream_synchronize(n->stream, &err), &err);
	expect_ok(dtrain_optimizer_check(m->optimizer, &err), &err);
	if (captured)
		n->api->capture_destroy(captured);
}

/* The result of a forward-only program of that type, malloc'ed. */
static double *evaluate(machine *m, dtrain_dtype dtype)
{
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_program *program = NULL, *const trains = m->n.program;
	net n = m->n;
	expect_ok(dtrain_graph_create(n.params, false, &graph, &err), &err);
	dtrain_graph_set_dtype(graph, dtype);
	n.activations = dtype;
	n.image = dtrain_graph_input(graph, "image", dtype, &(dtrain_shape){4, {BATCH, 3, SIDE, SIDE}});
	n.label = dtrain_graph_input(graph, "label", DTRAIN_I64, &(dtrain_shape){1, {BATCH}});
	n.logits = build_net(graph, SMALL_NET, n.image, CLASSES);
	n.loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, n.logits, n.label, 0.1));
	dtrain_graph_keep(graph, n.logits);
	expect_ok(dtrain_sync_compile(m->sync, &graph, &program, &err), &err);
	n.program = program;
	net_fill(&n);
	expect_ok(dtrain_program_run(program, n.stream, 0, 1, &err), &err);
	n.dtype = dtype;
	double *logits = net_values(&n, dtrain_program_data(program, n.logits), BATCH * CLASSES);
	dtrain_program_destroy(&program);
	assert_ptr_equal(m->n.program, trains);
	return logits;
}

static void expect_same_outputs(machine *a, machine *b, dtrain_dtype dtype)
{
	double *left = evaluate(a, dtype), *right = evaluate(b, dtype);
	assert_memory_equal(left, right, BATCH * CLASSES * sizeof(*left));
	assert_true(left[0] != left[1]);
	free(left);
	free(right);
}

/* Whether units leave the device, too, is the setting's. */
static void check_setting(setting s)
{
	machine plain, offloaded;
	open_machine(&plain, &s);
	s.offloads = true;
	open_machine(&offloaded, &s);
	expect_equal(&plain, &offloaded);
	train(&plain, s.captures);
	train(&offloaded, s.captures);
	expect_equal(&plain, &offloaded);
	if (plain.n.scaler) {
		double *scale = net_values(&plain.n, dtrain_scaler_memory(plain.n.scaler), DTRAIN_SCALERS);
		double *other = net_values(&offloaded.n, dtrain_scaler_memory(offloaded.n.scaler), DTRAIN_SCALERS);
		assert_memory_equal(scale, other, DTRAIN_SCALERS * sizeof(*scale));
		assert_true(scale[DTRAIN_SCALER_GOOD_STEPS] > 0);
		free(scale);
		free(other);
	}
	/* Ops on the device read these values, too. */
	dtrain_sync_set_listener(plain.sync, NULL, NULL);
	dtrain_sync_set_listener(offloaded.sync, NULL, NULL);
	assert_true(net_run(&plain.n) == net_run(&offloaded.n));
	expect_same_outputs(&plain, &offloaded, s.activations);
	/* Values come, too, where copies usually do. */
	if (s.units && s.activations != DTRAIN_F32)
		expect_same_outputs(&plain, &offloaded, DTRAIN_F32);
	close_machine(&plain);
	close_machine(&offloaded);
}

static void check_clipping(setting s)
{
	machine stay, visit;
	s.offloads = true;
	open_machine(&stay, &s);
	s.units = true;
	open_machine(&visit, &s);
	train(&stay, s.captures);
	train(&visit, s.captures);
	expect_equal(&stay, &visit);
	close_machine(&stay);
	close_machine(&visit);
}

static void test_equals_no_offload(void **state)
{
	(void)state;
	static const char *const kinds[] = {"sgd", "adam", "adamw", "lion", "lars", "lamb", "muon"};
	static const dtrain_dtype types[] = {DTRAIN_F32, DTRAIN_BF16, DTRAIN_F16};
	for (int i = 0; i < 42; i++)
		check_setting((setting){.kind = kinds[i % 7],
					.activations = types[i / 7 % 3],
					.units = i >= 21,
					.listens = i % 2 || i >= 35, /* a scaler reads gradients before they leave */
					.captures = i % 3 == 1,
					.accumulates = i % 5 == 2,
					.amsgrad = i == 1});
	/* A norm is the sum of the ranges' norms; with a limit as large no gradient is clipped, and the bits are equal.
	 */
	check_setting((setting){.kind = "adamw", .activations = DTRAIN_BF16, .clip_norm = 1e6, .listens = true});
	check_setting((setting){
		.kind = "sgd", .activations = DTRAIN_F32, .clip_norm = INFINITY, .listens = true, .captures = true});
	/* Squares are added up unit by unit in the same order, whether gradients stay or leave. */
	check_clipping((setting){.kind = "adamw", .activations = DTRAIN_BF16, .clip_norm = 0.05, .listens = true});
	check_clipping((setting){
		.kind = "sgd", .activations = DTRAIN_F16, .clip_norm = 0.05, .listens = true, .captures = true});
}

/* A run whose gradients are infinite, if there is a scaler, and are not used. */
static void abandon_step(machine *m)
{
	beton_error err = {0};
	const net *n = &m->n;
	float scale = INFINITY, before = 0;
	void *scaler = n->scaler ? dtrain_scaler_memory(n->scaler) : NULL;
	if (scaler) {
		expect_ok(n->api->copy(n->stream, &before, scaler, sizeof(before), DTRAIN_DEVICE_TO_HOST, &err), &err);
		expect_ok(n->api->stream_synchronize(n->stream, &err), &err);
		expect_ok(n->api->copy(n->stream, scaler, &scale, sizeof(scale), DTRAIN_HOST_TO_DEVICE, &err), &err);
	}
	expect_ok(dtrain_program_run(n->program, n->stream, 0, 1, &err), &err);
	assert_int_equal(dtrain_optimizer_unit_complete(m->optimizer, 0, n->stream, &err), BETON_STATE);
	assert_non_null(strstr(err.message, "unit 1 are complete twice"));
	expect_ok(dtrain_optimizer_abandon(m->optimizer, n->stream, &err), &err);
	if (scaler)
		expect_ok(n->api->copy(n->stream, scaler, &before, sizeof(before), DTRAIN_HOST_TO_DEVICE, &err), &err);
	expect_ok(n->api->stream_synchronize(n->stream, &err), &err);
}

/* The steps after one that was given up are those without it. */
static void test_abandoned_step(void **state)
{
	(void)state;
	static const setting settings[] = {
		{.kind = "adamw", .activations = DTRAIN_BF16, .clip_norm = 0.05},
		{.kind = "sgd", .activations = DTRAIN_F16, .clip_norm = 0.05},
		{.kind = "sgd", .activations = DTRAIN_F16, .clip_norm = 0.001, .largest = true},
		{.kind = "adamw", .activations = DTRAIN_F16},
	};
	for (int i = 0; i < 8; i++) {
		machine right, m;
		setting s = settings[i % 4];
		s.offloads = s.listens = true;
		s.units = i < 4;
		open_machine(&right, &s);
		open_machine(&m, &s);
		for (int again = 0; again < 2; again++) {
			train(&right, false);
			train(&m, false);
			abandon_step(&m);
		}
		train(&right, true);
		train(&m, true);
		expect_equal(&right, &m);
		close_machine(&right);
		close_machine(&m);
	}
}

/* Whether the first unit was updated while the stream waits for that in the middle of backward. */
typedef struct witness {
	machine *m;
	float before;
	atomic_int seen;
} witness;

static void wait_for_update(void *context)
{
	witness *w = context;
	const volatile float *value = dtrain_params_range_at(w->m->n.params, 0)->values;
	for (int i = 0; i < GIVE_UP && *value == w->before; i++)
		usleep(WAIT_US);
	atomic_store(&w->seen, *value != w->before);
}

static int listen(void *context, int unit, dtrain_stream *stream, beton_error *err)
{
	witness *w = context;
	int status = dtrain_optimizer_unit_complete(w->m->optimizer, unit, stream, err);
	return status == BETON_OK && unit == 0 ? w->m->n.api->call_host(stream, wait_for_update, w, err) : status;
}

static void test_updates_beside_backward(void **state)
{
	(void)state;
	machine m;
	for (int units = 0; units < 2; units++) {
		/* The norm for a log holds nothing up. */
		open_machine(&m, &(setting){.kind = "sgd", .offloads = true, .units = units, .clip_norm = INFINITY});
		witness w = {.m = &m, .before = *(float *)dtrain_params_range_at(m.n.params, 0)->values};
		dtrain_sync_set_listener(m.sync, listen, &w);
		train(&m, false);
		assert_true(atomic_load(&w.seen));
		close_machine(&m);
	}
}

/* Allocations of the device, by what remains of a limit. */
static size_t bytes_in_use(const machine *m)
{
	return (size_t)1e9 - (size_t)m->n.api->free_memory(m->n.device);
}

static void test_memory(void **state)
{
	(void)state;
	machine plain, offloaded;
	setenv("DTRAIN_FAR_MEMORY", "1000000000", 1);
	setting s = {.kind = "adamw", .activations = DTRAIN_BF16};
	open_machine(&plain, &s);
	s.offloads = true;
	open_machine(&offloaded, &s);
	/* Values and two states, but for what ops read in F32, which is an element in fifty here. */
	size_t bytes = (size_t)dtrain_params_flat_count(plain.n.params) * sizeof(float);
	size_t saved = bytes_in_use(&plain) - bytes_in_use(&offloaded);
	assert_true(saved > bytes * 28 / 10 && saved < bytes * 32 / 10);
	unsetenv("DTRAIN_FAR_MEMORY");
	close_machine(&plain);
	close_machine(&offloaded);
}

static void sleep_a_while(void *context)
{
	(void)context;
	usleep(20000);
}

/* Copies that come late are waited for: that of a unit by its readers, that of gradients by what has their memory next.
 */
static void test_late_copies(void **state)
{
	(void)state;
	for (int late = 0; late < 2; late++) {
		machine plain, visit;
		beton_error err = {0};
		setting s = {.kind = "adamw", .activations = DTRAIN_F32, .listens = true, .offloads = true};
		open_machine(&plain, &s);
		s.units = true;
		open_machine(&visit, &s);
		train(&plain, false);
		for (int step = 0; step < STEPS; step++) {
			expect_ok(dtrain_optimizer_set_rate(visit.optimizer, 0.1 / (step + 1), visit.n.stream, &err),
				  &err);
			expect_ok(visit.n.api->call_host(late ? visit.sync->offloaded_grads : visit.sync->prefetched,
							 sleep_a_while, NULL, &err),
				  &err);
			put_step(&visit);
		}
		expect_ok(visit.n.api->stream_synchronize(visit.n.stream, &err), &err);
		expect_equal(&plain, &visit);
		close_machine(&plain);
		close_machine(&visit);
	}
}

/* Device memory is what the plan says: nothing of the units but transient buffers, whatever their number. */
static void test_memory_of_units(void **state)
{
	(void)state;
	static const dtrain_dtype types[] = {DTRAIN_F32, DTRAIN_BF16};
	setenv("DTRAIN_FAR_MEMORY", "1000000000", 1);
	for (int i = 0; i < 2; i++) {
		machine stay, visit;
		setting s = {.kind = "adamw", .activations = types[i], .offloads = true, .listens = true};
		open_machine(&stay, &s);
		s.units = true;
		open_machine(&visit, &s);
		dtrain_params_memory memory = {.struct_size = sizeof(memory)};
		dtrain_program_info facts = {.struct_size = sizeof(facts)};
		dtrain_params_get_memory(visit.n.params, &memory);
		dtrain_program_get_info(visit.n.program, &facts);
		size_t planned = memory.values + memory.grads + memory.copies + memory.buffers + facts.arena_bytes +
				 facts.workspace_bytes;
		size_t used = bytes_in_use(&visit);
		assert_true(used >= planned && (used - planned) * 50 < planned);
		/* Values that ops read in F32 beside copies stay: an element in fifty here. */
		size_t all = (size_t)dtrain_params_flat_count(visit.n.params) * sizeof(float);
		assert_true(memory.values + memory.grads + memory.copies < all / 10);
		assert_true(facts.transient_bytes > 0 && used < bytes_in_use(&stay));
		close_machine(&stay);
		close_machine(&visit);
	}
	unsetenv("DTRAIN_FAR_MEMORY");
}

static void expect_failure(int status, int expected, const beton_error *err, const char *text)
{
	assert_int_equal(status, expected);
	if (!strstr(err->message, text))
		fail_msg("no '%s' in '%s'", text, err->message);
}

static void test_refusals_of_units(void **state)
{
	(void)state;
	machine m;
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_program *program = NULL;
	dtrain_optimizer *optimizer;
	dtrain_optimizer_options options;
	open_machine(&m, &(setting){.kind = "sgd", .offloads = true, .units = true, .clip_norm = 1});
	expect_ok(dtrain_program_run(m.n.program, m.n.stream, 0, 1, &err), &err);
	expect_failure(dtrain_optimizer_apply(m.optimizer, m.n.stream, &err), BETON_STATE, &err,
		       "gradients have left the device");
	dtrain_optimizer_options_init(&options);
	options.norm_parts = 2;
	options.clip_norm = 1;
	expect_failure(dtrain_optimizer_create(m.n.params, &options, &optimizer, &err), BETON_UNSUPPORTED, &err,
		       "norms by parts of offloaded");
	expect_ok(dtrain_graph_create(m.n.params, false, &graph, &err), &err);
	dtrain_tensor image =
		dtrain_graph_input(graph, "image", DTRAIN_F32, &(dtrain_shape){4, {BATCH, 3, SIDE, SIDE}});
	dtrain_graph_keep(graph, build_net(graph, SMALL_NET, image, CLASSES));
	expect_failure(dtrain_graph_compile(&graph, &program, &err), BETON_STATE, &err, "dtrain_sync_compile alone");
	dtrain_graph_destroy(&graph);
	close_machine(&m);
}

static void test_refusals(void **state)
{
	(void)state;
	machine m;
	beton_error err = {0};
	dtrain_optimizer *optimizer;
	dtrain_optimizer_options options;
	open_machine(&m, &(setting){.kind = "sgd", .offloads = true});
	assert_int_equal(dtrain_params_offload(m.n.params, m.host, false, &err), BETON_STATE);
	dtrain_optimizer_options_init(&options);
	options.lookahead = true;
	assert_int_equal(dtrain_optimizer_create(m.n.params, &options, &optimizer, &err), BETON_UNSUPPORTED);
	assert_non_null(strstr(err.message, "lookahead of offloaded"));

	dtrain_params *params;
	expect_ok(dtrain_params_create(m.host, DTRAIN_F32, &params, &err), &err);
	assert_int_equal(dtrain_params_offload(params, m.host, false, &err), BETON_UNSUPPORTED);
	assert_non_null(strstr(err.message, "'ref' is in host memory"));
	dtrain_params_destroy(&params);
	expect_ok(dtrain_params_create(m.n.device, DTRAIN_F32, &params, &err), &err);
	assert_int_equal(dtrain_params_offload(params, m.n.device, false, &err), BETON_INVALID_ARGUMENT);
	dtrain_params_destroy(&params);
	close_machine(&m);
}

/* The device has no values in F32 when its ops read copies. */
static void test_other_type(void **state)
{
	(void)state;
	machine m;
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_program *program = NULL;
	open_machine(&m, &(setting){.kind = "sgd", .activations = DTRAIN_BF16, .offloads = true});
	expect_ok(dtrain_graph_create(m.n.params, false, &graph, &err), &err);
	dtrain_tensor image =
		dtrain_graph_input(graph, "image", DTRAIN_F32, &(dtrain_shape){4, {BATCH, 3, SIDE, SIDE}});
	dtrain_graph_keep(graph, build_net(graph, SMALL_NET, image, CLASSES));
	assert_int_equal(dtrain_graph_compile(&graph, &program, &err), BETON_UNSUPPORTED);
	assert_non_null(strstr(err.message, "'conv1.weight', which are offloaded"));
	dtrain_graph_destroy(&graph);
	close_machine(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equals_no_offload),
		cmocka_unit_test(test_abandoned_step),
		cmocka_unit_test(test_updates_beside_backward),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_late_copies),
		cmocka_unit_test(test_memory_of_units),
		cmocka_unit_test(test_refusals_of_units),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_other_type),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
