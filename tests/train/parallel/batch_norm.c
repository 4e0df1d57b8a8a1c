/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm over ranks with real processes: a residual network that ranks with uneven batches train together is the
 * one that a process trains with all of them, weights and running statistics. And what the ranks make of the statistics
 * when each has its own.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/optimizer.h>
#include <dtrain/sync.h>

#include "tests/train/support/far_place.h"

static beton_error err;

enum { ROWS = 12, SIDE = 4, PIXELS = 3 * SIDE * SIDE, CLASSES = 5, EARLY = 5, STEPS = 50 };
#define LR 0.005

/* The rows of each rank; with three ranks the last one's last batch norms have a single value for each channel. */
static const int rows_of[][3] = {{12}, {9, 3}, {7, 4, 1}};

typedef struct trainer {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream; /* the device's and this are the caller's */
	dtrain_dtype dtype;
	int rows, first;
	dtrain_params *params;
	dtrain_mesh *mesh;
	dtrain_sync *sync;
	dtrain_optimizer *optimizer;
	dtrain_program *program;
	dtrain_tensor image, label;
	void *scaler;
	double pixels[ROWS * PIXELS]; /* of either type; copies of them are under way */
	int64_t labels[ROWS];
} trainer;

/* ---- the network ---- */

static dtrain_tensor add_block(dtrain_graph *graph, int number, dtrain_tensor x, int64_t channels, int stride)
{
	char name[4][16];
	const char *const parts[] = {"conv1", "bn1", "conv2", "bn2"};
	for (int i = 0; i < 4; i++)
		snprintf(name[i], sizeof(name[i]), "%d.%s", number, parts[i]);
	dtrain_graph_next_block(graph);
	dtrain_tensor y = dtrain_conv2d(graph, name[0], x, channels, 3, stride, 1);
	y = dtrain_conv2d(graph, name[2], dtrain_batch_norm(graph, name[1], y, true), channels, 3, 1, 1);
	if (stride == 1)
		return dtrain_batch_norm_add(graph, name[3], y, x);
	char shortcut[2][24];
	snprintf(shortcut[0], sizeof(shortcut[0]), "%d.downsample.0", number);
	snprintf(shortcut[1], sizeof(shortcut[1]), "%d.downsample.1", number);
	x = dtrain_batch_norm(graph, shortcut[1], dtrain_conv2d(graph, shortcut[0], x, channels, 1, stride, 0), false);
	return dtrain_batch_norm_add(graph, name[3], y, x);
}

static dtrain_tensor add_network(dtrain_graph *graph, dtrain_tensor image)
{
	dtrain_tensor x = dtrain_batch_norm(graph, "bn", dtrain_conv2d(graph, "conv", image, 16, 3, 2, 1), true);
	x = add_block(graph, 0, x, 16, 1);
	x = add_block(graph, 1, x, 32, 2);
	dtrain_graph_next_block(graph);
	return dtrain_linear(graph, "fc", dtrain_global_avg_pool(graph, x), CLASSES);
}

static void make_program(trainer *t, dtrain_recompute recompute)
{
	dtrain_graph *graph = NULL;
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){t->rows, 3, SIDE, SIDE});
	dtrain_shape label = dtrain_shape_of(1, (int64_t[]){t->rows});
	MUST(dtrain_graph_create(t->params, true, &graph, &err));
	dtrain_graph_set_scaler(graph, t->scaler);
	t->image = dtrain_graph_input(graph, "image", t->dtype, &image);
	t->label = dtrain_graph_input(graph, "label", DTRAIN_I64, &label);
	dtrain_tensor losses = dtrain_softmax_cross_entropy(graph, add_network(graph, t->image), t->label, 0.1);
	dtrain_tensor loss = dtrain_mean(graph, losses);
	dtrain_graph_step_metric(graph, loss, 0);
	dtrain_graph_backward(graph, loss);
	dtrain_graph_recompute(graph, recompute, INT64_MAX);
	MUST(dtrain_sync_compile(t->sync, &graph, &t->program, &err));
}

/* ---- the trainer ---- */

/* The gradient of a rank's mean, times its rows: added up over the ranks it is that of the sum over all rows. */
static void make_scaler(trainer *t)
{
	float numbers[DTRAIN_SCALERS] = {[DTRAIN_SCALER_SCALE] = (float)t->rows};
	MUST(t->api->alloc(t->device, sizeof(numbers), &t->scaler, &err));
	MUST(t->api->copy(t->stream, t->scaler, numbers, sizeof(numbers), DTRAIN_HOST_TO_DEVICE, &err));
	MUST(t->api->stream_synchronize(t->stream, &err));
}

/* group NULL: a process alone. runs: of a step. */
static trainer *open_trainer(dtrain_device *device, dtrain_stream *stream, dtrain_dtype dtype, dtrain_group *group,
			     int rows, int first, const dtrain_sync_options *given, dtrain_recompute recompute)
{
	trainer *t = calloc(1, sizeof(*t));
	REQUIRE(t);
	*t = (trainer){.device = device, .stream = stream, .dtype = dtype, .rows = rows, .first = first};
	t->api = dtrain_device_get_api(device);
	MUST(dtrain_params_create(device, dtype, &t->params, &err));
	if (group)
		MUST(dtrain_mesh_create(group, &(dtrain_mesh_axis){"replicate", dtrain_group_size(group)}, 1, &t->mesh,
					&err));
	MUST(dtrain_sync_create(t->params, t->mesh, given, &t->sync, &err));
	make_scaler(t);
	make_program(t, recompute);
	MUST(dtrain_params_initialize(t->params, 7, stream, &err));
	MUST(t->api->stream_synchronize(stream, &err));
	const dtrain_hyper_value momentum = {"momentum", 0.9};
	dtrain_optimizer_options options;
	dtrain_optimizer_options_init(&options);
	options.hypers = &momentum;
	options.num_hypers = 1;
	options.grad_divisor = ROWS;
	MUST(dtrain_optimizer_create(t->params, &options, &t->optimizer, &err));
	return t;
}

static void close_trainer(trainer *t)
{
	MUST(t->api->stream_synchronize(t->stream, &err));
	dtrain_program_destroy(&t->program);
	dtrain_optimizer_destroy(&t->optimizer);
	dtrain_sync_destroy(&t->sync);
	if (t->mesh)
		dtrain_mesh_destroy(&t->mesh);
	dtrain_params_destroy(&t->params);
	t->api->free(t->device, t->scaler);
	free(t);
}

/* A number of the pictures of all ranks, from -1 to 1. */
static float pixel_at(int step, int64_t i)
{
	uint32_t state = (uint32_t)step * 2654435761u + (uint32_t)i * 40503u + 12345u;
	for (int k = 0; k < 3; k++)
		state = (state ^ state >> 15) * 739982445u + 1013904223u;
	return (float)(state >> 8) * 0x1p-23f - 1;
}

/* Copies the trainer's part of a batch to its inputs, after the earlier copies. */
static void fill(trainer *t, int step)
{
	MUST(t->api->stream_synchronize(t->stream, &err));
	for (int64_t i = 0; i < t->rows * PIXELS; i++) {
		float pixel = pixel_at(step, (int64_t)t->first * PIXELS + i);
		if (t->dtype == DTRAIN_F64)
			t->pixels[i] = (double)pixel;
		else
			((float *)t->pixels)[i] = pixel;
	}
	for (int i = 0; i < t->rows; i++)
		t->labels[i] = (3 * step + 7 * (t->first + i)) % CLASSES;
	MUST(t->api->copy(t->stream, dtrain_program_data(t->program, t->image), t->pixels,
			  (size_t)t->rows * PIXELS * dtrain_dtype_size(t->dtype), DTRAIN_HOST_TO_DEVICE, &err));
	MUST(t->api->copy(t->stream, dtrain_program_data(t->program, t->label), t->labels,
			  (size_t)t->rows * sizeof(t->labels[0]), DTRAIN_HOST_TO_DEVICE, &err));
}

static void train(trainer *t, int first, int last)
{
	for (int step = first; step < last; step++) {
		fill(t, step);
		MUST(dtrain_program_run(t->program, t->stream, 0, 1, &err));
		MUST(dtrain_optimizer_step(t->optimizer, LR, t->stream, &err));
	}
}

/* A step of two micro-batches. */
static void train_two(trainer *t, int first)
{
	for (int i = 0; i < 2; i++) {
		fill(t, first + i);
		MUST(dtrain_program_run(t->program, t->stream, i, 2, &err));
	}
	MUST(dtrain_optimizer_step(t->optimizer, LR, t->stream, &err));
}

/* A step with its exchanges as a captured unit; the rate is set. */
static void *capture(trainer *t)
{
	void *captured = NULL;
	MUST(dtrain_optimizer_set_rate(t->optimizer, LR, t->stream, &err));
	MUST(t->api->capture_begin(t->stream, &err));
	MUST(dtrain_program_run(t->program, t->stream, 0, 1, &err));
	MUST(dtrain_optimizer_apply(t->optimizer, t->stream, &err));
	MUST(t->api->capture_end(t->stream, &captured, &err));
	return captured;
}

static void launch(trainer *t, void *captured, int first, int last)
{
	for (int step = first; step < last; step++) {
		fill(t, step);
		MUST(t->api->capture_launch(captured, t->stream, &err));
	}
}

/* ---- what came of it ---- */

/* The values, then the buffers. The caller frees it. */
static double *get_all(const trainer *t, int64_t *count)
{
	int64_t flat = dtrain_params_flat_count(t->params);
	size_t each = dtrain_dtype_size(t->dtype);
	*count = flat;
	for (int i = 0; i < dtrain_params_buffer_count(t->params); i++)
		*count += dtrain_shape_count(&dtrain_params_buffer_at(t->params, i)->shape);
	char *raw = malloc((size_t)*count * each), *at = raw;
	double *all = malloc((size_t)*count * sizeof(*all));
	REQUIRE(raw && all);
	MUST(t->api->copy(t->stream, at, dtrain_params_values(t->params), (size_t)flat * each, DTRAIN_DEVICE_TO_HOST,
			  &err));
	at += (size_t)flat * each;
	for (int i = 0; i < dtrain_params_buffer_count(t->params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(t->params, i);
		size_t bytes = (size_t)dtrain_shape_count(&buffer->shape) * each;
		MUST(t->api->copy(t->stream, at, buffer->data, bytes, DTRAIN_DEVICE_TO_HOST, &err));
		at += bytes;
	}
	MUST(t->api->stream_synchronize(t->stream, &err));
	for (int64_t i = 0; i < *count; i++)
		all[i] = t->dtype == DTRAIN_F64 ? ((double *)raw)[i] : (double)((float *)raw)[i];
	free(raw);
	return all;
}

/* Largest difference of two trainers. bound 0: none. */
static void expect_same(const trainer *a, const trainer *b, double bound)
{
	int64_t count, other;
	double *x = get_all(a, &count), *y = get_all(b, &other), most = 0, length = 0;
	REQUIRE(count == other);
	for (int64_t i = 0; i < count; i++) {
		REQUIRE(isfinite(x[i]) && isfinite(y[i]));
		most = fmax(most, fabs(x[i] - y[i]));
		length += fabs(x[i]);
	}
	if (!(most <= bound) || length == 0)
		fprintf(stderr, "the largest difference is %.3g, allowed is %.3g\n", most, bound);
	REQUIRE(most <= bound && length > 0);
	free(x);
	free(y);
}

/* Whether all ranks have the same bits. key: unique in the test. */
static bool is_equal_on_all(const trainer *t, struct rank *r, const char *key)
{
	int64_t count;
	double *all = get_all(t, &count);
	void *first = NULL;
	size_t size;
	if (r->rank == 0)
		MUST(dtrain_store_set(r->store, key, all, (size_t)count * sizeof(*all), &err));
	MUST(dtrain_store_get(r->store, key, r->timeout_ms, &first, &size, &err));
	REQUIRE(size == (size_t)count * sizeof(*all));
	bool equal = memcmp(first, all, size) == 0;
	free(first);
	free(all);
	return equal;
}

/* ---- ranks ---- */

typedef struct seating {
	struct place place;
	dtrain_dtype dtype;
	bool far, captured;
	double early, bound; /* differences after EARLY and STEPS steps */
} seating;

/* mode: "no-group-far", "no-group-far-captured", "ref" (in double) or "cpu". */
static void take_seat(struct rank *r, const char *mode, seating *s)
{
	*s = (seating){.far = strncmp(mode, "no-group-far", 12) == 0, .dtype = DTRAIN_F32};
	s->captured = strstr(mode, "captured");
	/* The order of sums is all that differs. In float it is enough to put a value on the other side of a relu's
	 * bend now and then, from where on differences grow with each step. */
	s->early = strcmp(mode, "ref") == 0 ? 1e-12 : 2e-5;
	s->bound = strcmp(mode, "ref") == 0 ? 1e-11 : 5e-3;
	if (s->far) {
		open_place(r, &s->place);
		return;
	}
	if (strcmp(mode, "ref") == 0)
		s->dtype = DTRAIN_F64;
	const dtrain_device_options options = {.struct_size = sizeof(options), .threads = 1};
	MUST(dtrain_device_open(mode, &options, &s->place.device, &err));
	s->place.api = dtrain_device_get_api(s->place.device);
	MUST(s->place.api->stream_create(s->place.device, &s->place.stream, &err));
}

static void leave_seat(struct rank *r, seating *s)
{
	if (s->far) {
		close_place(r, &s->place);
		return;
	}
	s->place.api->stream_destroy(s->place.stream);
	dtrain_device_close(&s->place.device);
}

static dtrain_sync_options synchronized(void)
{
	dtrain_sync_options options;
	dtrain_sync_options_init(&options);
	options.sync_batch_norm = true;
	options.first_unit_bytes = 2000;
	options.unit_bytes = 20000;
	return options;
}

static trainer *open_part(struct rank *r, const seating *s, const dtrain_sync_options *options,
			  dtrain_recompute recompute)
{
	int first = 0;
	for (int i = 0; i < r->rank; i++)
		first += rows_of[r->size - 1][i];
	return open_trainer(s->place.device, s->place.stream, s->dtype, r->group, rows_of[r->size - 1][r->rank], first,
			    options, recompute);
}

static trainer *open_whole(const seating *s, const dtrain_sync_options *options)
{
	return open_trainer(s->place.device, s->place.stream, s->dtype, NULL, ROWS, 0, options, DTRAIN_RECOMPUTE_NONE);
}

static void rank_is_a_part(struct rank *r, const char *mode)
{
	seating s;
	take_seat(r, mode, &s);
	const dtrain_sync_options options = synchronized();
	trainer *part = open_part(r, &s, &options, DTRAIN_RECOMPUTE_NONE);
	trainer *whole = r->rank == 0 ? open_whole(&s, NULL) : NULL;
	MUST(dtrain_sync_start(part->sync, &err));
	void *captured = s.captured ? capture(part) : NULL;
	const int ends[] = {0, EARLY, STEPS};
	for (int i = 0; i < 2; i++) {
		if (captured)
			launch(part, captured, ends[i], ends[i + 1]);
		else
			train(part, ends[i], ends[i + 1]);
		if (!whole)
			continue;
		train(whole, ends[i], ends[i + 1]);
		expect_same(part, whole, i ? s.bound : s.early);
	}
	REQUIRE(is_equal_on_all(part, r, "trained"));
	if (captured)
		s.place.api->capture_destroy(captured);
	if (whole)
		close_trainer(whole);
	close_trainer(part);
	leave_seat(r, &s);
}

/* Each run of a step exchanges statistics. */
static void rank_accumulates(struct rank *r)
{
	seating s;
	take_seat(r, "ref", &s);
	dtrain_sync_options options = synchronized();
	options.accumulates = true;
	trainer *trainers[] = {open_part(r, &s, &options, DTRAIN_RECOMPUTE_NONE), open_whole(&s, &options)};
	MUST(dtrain_sync_start(trainers[0]->sync, &err));
	for (int i = 0; i < 2; i++)
		for (int step = 0; step < 5; step++)
			train_two(trainers[i], 2 * step);
	expect_same(trainers[0], trainers[1], s.bound);
	close_trainer(trainers[0]);
	close_trainer(trainers[1]);
	leave_seat(r, &s);
}

/* Recomputation uses the moments of the first time: the bits are the same, and no call is repeated. */
static void rank_recomputes(struct rank *r, const char *mode)
{
	seating s;
	take_seat(r, mode, &s);
	const dtrain_sync_options options = synchronized();
	trainer *kept = open_part(r, &s, &options, DTRAIN_RECOMPUTE_NONE);
	MUST(dtrain_sync_start(kept->sync, &err));
	train(kept, 0, 4);
	for (int how = DTRAIN_RECOMPUTE_SELECTIVE; how <= DTRAIN_RECOMPUTE_FULL; how++) {
		dtrain_program_info facts = {.struct_size = sizeof(facts)};
		trainer *again = open_part(r, &s, &options, (dtrain_recompute)how);
		dtrain_program_get_info(again->program, &facts);
		/* Rows of moments are large beside the tensors of so small a network. */
		REQUIRE(facts.repeated >= (how == DTRAIN_RECOMPUTE_FULL ? 12 : 1));
		char *plan = NULL;
		MUST(dtrain_program_plan(again->program, &plan, &err));
		const char *norm = strstr(plan, "batch_norm_sync ");
		REQUIRE(norm && strstr(plan, "all_gather 1 of batch_norm_moments") &&
			strstr(plan, "all_reduce 1 of batch_norm_sums"));
		free(plan);
		MUST(dtrain_sync_start(again->sync, &err));
		train(again, 0, 4);
		expect_same(again, kept, 0);
		close_trainer(again);
	}
	close_trainer(kept);
	leave_seat(r, &s);
}

/* Before the start, the statistics would be of this rank's rows alone. */
static void rank_is_alone(struct rank *r)
{
	seating s;
	take_seat(r, "ref", &s);
	const dtrain_sync_options options = synchronized();
	trainer *waiting = open_part(r, &s, &options, DTRAIN_RECOMPUTE_NONE);
	REQUIRE(dtrain_program_run(waiting->program, waiting->stream, 0, 1, &err) == BETON_STATE);
	REQUIRE(strstr(err.message, "before the sync is started"));
	close_trainer(waiting);
	leave_seat(r, &s);
}

/* The buffers of the trainer become rank + 1, then the mode's values. */
static void check_mode(struct rank *r, const seating *s, dtrain_sync_buffers_mode mode)
{
	dtrain_sync_options options;
	dtrain_sync_options_init(&options);
	options.buffers = mode;
	trainer *t = open_part(r, s, &options, DTRAIN_RECOMPUTE_NONE);
	MUST(dtrain_sync_start(t->sync, &err));
	float numbers[64], right = (float)r->rank + 1;
	for (int i = 0; i < 64; i++)
		numbers[i] = right;
	for (int i = 0; i < dtrain_params_buffer_count(t->params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(t->params, i);
		REQUIRE(dtrain_shape_count(&buffer->shape) <= 64);
		MUST(t->api->copy(t->stream, buffer->data, numbers,
				  (size_t)dtrain_shape_count(&buffer->shape) * sizeof(*numbers), DTRAIN_HOST_TO_DEVICE,
				  &err));
	}
	MUST(dtrain_sync_buffers(t->sync, t->stream, &err));
	if (mode == DTRAIN_BUFFERS_AVERAGE)
		right = (float)(r->size + 1) / 2;
	else if (mode == DTRAIN_BUFFERS_BROADCAST)
		right = 1;
	int64_t count;
	double *all = get_all(t, &count);
	for (int64_t i = dtrain_params_flat_count(t->params); i < count; i++)
		REQUIRE(fabs(all[i] - (double)right) < 1e-6);
	free(all);
	close_trainer(t);
}

static void rank_has_buffers(struct rank *r, const char *mode)
{
	seating s;
	take_seat(r, mode, &s);
	s.dtype = DTRAIN_F32;
	check_mode(r, &s, DTRAIN_BUFFERS_AVERAGE);
	check_mode(r, &s, DTRAIN_BUFFERS_BROADCAST);
	check_mode(r, &s, DTRAIN_BUFFERS_OWN);
	dtrain_sync_options options;
	dtrain_params *params = NULL;
	dtrain_sync *sync = NULL;
	dtrain_sync_options_init(&options);
	options.buffers = (dtrain_sync_buffers_mode)3;
	MUST(dtrain_params_create(s.place.device, DTRAIN_F32, &params, &err));
	REQUIRE(dtrain_sync_create(params, NULL, &options, &sync, &err) == BETON_INVALID_ARGUMENT);
	REQUIRE(strstr(err.message, "buffers 3"));
	dtrain_params_destroy(&params);
	leave_seat(r, &s);
}

/* Only some ranks would wait for the others' statistics. */
static int rank_differs(struct rank *r)
{
	seating s;
	take_seat(r, "ref", &s);
	dtrain_sync_options options = synchronized();
	options.sync_batch_norm = r->rank == 0;
	trainer *t = open_part(r, &s, &options, DTRAIN_RECOMPUTE_NONE);
	int status = dtrain_sync_start(t->sync, &err);
	fprintf(stderr, "%s\n", err.message);
	close_trainer(t);
	leave_seat(r, &s);
	return -status;
}

static int rank_main(struct rank *r)
{
	const char *mode = r->mode;
	if (strcmp(mode, "accumulates") == 0)
		rank_accumulates(r);
	else if (strncmp(mode, "recomputes-", 11) == 0)
		rank_recomputes(r, mode + 11);
	else if (strcmp(mode, "alone") == 0)
		rank_is_alone(r);
	else if (strcmp(mode, "buffers") == 0)
		rank_has_buffers(r, "ref");
	else if (strcmp(mode, "no-group-far-buffers") == 0)
		rank_has_buffers(r, mode);
	else if (strcmp(mode, "differs") == 0)
		return rank_differs(r);
	else
		rank_is_a_part(r, mode);
	return 0;
}

static void ranks_equal_a_process(void **state)
{
	(void)state;
	for (int ranks = 1; ranks <= 3; ranks++)
		run_ranks("ref", ranks);
	for (int ranks = 2; ranks <= 3 && dtrain_device_find("cpu"); ranks++)
		run_ranks("cpu", ranks);
	run_ranks("accumulates", 3);
}

static void streams_equal_a_process(void **state)
{
	(void)state;
	setenv("DTRAIN_FAR_DELAY_US", "20", 1);
	run_ranks("no-group-far", 2);
	run_ranks("no-group-far-captured", 1);
	run_ranks("no-group-far-captured", 3);
	unsetenv("DTRAIN_FAR_DELAY_US");
}

static void recomputing_keeps_moments(void **state)
{
	(void)state;
	run_ranks("recomputes-ref", 3);
	if (dtrain_device_find("cpu"))
		run_ranks("recomputes-cpu", 2);
}

static void without_a_start_nothing_runs(void **state)
{
	(void)state;
	run_ranks("alone", 2);
}

static void buffers_go_by_the_mode(void **state)
{
	(void)state;
	run_ranks("buffers", 2);
	run_ranks("no-group-far-buffers", 2);
}

static void ranks_must_agree(void **state)
{
	struct ranks ranks;
	(void)state;
	start_ranks(&ranks, "differs", 0, 2, 60000);
	expect_all(&ranks, -1, BETON_MISMATCH, "ranks of a batch norm (0 instead of 2)");
	end_store(&ranks);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_equal_a_process),     cmocka_unit_test(streams_equal_a_process),
		cmocka_unit_test(recomputing_keeps_moments), cmocka_unit_test(without_a_start_nothing_runs),
		cmocka_unit_test(buffers_go_by_the_mode),    cmocka_unit_test(ranks_must_agree),
	};
	int status;
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
