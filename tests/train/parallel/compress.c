/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed gradients with real processes, on the devices ref, cpu and far: what every method has to keep, whatever it
 * leaves out. Gradients are known: the sum of all that was given is that of what was sent and of what is fed back.
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

#include "common/error.h"
#include "tests/train/support/far_place.h"
#include "sync_model.h"

#define LAYERS 4
#define WIDTH 60
#define MAX_TENSORS 64

static beton_error err;

/* This rank's. */
static struct place place;
static bool is_far;

/* ---- a rank's model, with gradients of its own ---- */

typedef struct job {
	struct rank *r;
	sync_model model;
	int64_t count;        /* of gradients, with padding */
	float *got;           /* of the last step */
	double *given, *sent; /* sums over the steps: of all ranks' gradients, and of results */
	float scale;          /* of gradients */
} job;

static dtrain_compression method(const char *name)
{
	dtrain_compression compression;
	dtrain_compression_init(&compression);
	compression.method = name;
	compression.ratio = 0.05;
	compression.start = 0;
	return compression;
}

/* Eighths, so that sums of them are exact. */
static float number(int rank, int step, int layer, int what, int64_t i)
{
	uint64_t z = (uint64_t)(((rank * 31 + step) * 17 + layer) * 3 + what) * 1000003u + (uint64_t)i;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (float)((int)(z >> 32 & 15) - 7) / 8;
}

static void open_job(struct rank *r, job *j, const dtrain_sync_options *given)
{
	dtrain_sync_options options = *given;
	*j = (job){.r = r, .scale = 1};
	options.first_unit_bytes = 1000;
	options.unit_bytes = 20000;
	sync_model_open(&j->model, place.device, place.stream, sync_model_mesh(r->group), &options, WIDTH, LAYERS);
	MUST(dtrain_sync_start(j->model.sync, &err));
	REQUIRE(dtrain_params_unit_count(j->model.params) > 2);
	j->count = dtrain_params_flat_count(j->model.params);
	j->got = calloc((size_t)j->count, sizeof(*j->got));
	j->given = calloc((size_t)j->count, sizeof(*j->given));
	j->sent = calloc((size_t)j->count, sizeof(*j->sent));
	REQUIRE(j->got && j->given && j->sent);
}

static void open_method(struct rank *r, job *j, const dtrain_compression *compression)
{
	dtrain_sync_options options;
	dtrain_sync_options_init(&options);
	options.compression = compression;
	options.accumulates = true;
	open_job(r, j, &options);
}

static void close_job(job *j)
{
	sync_model_close(&j->model);
	free(j->got);
	free(j->given);
	free(j->sent);
}

static void put_inputs(job *j, int step)
{
	float values[WIDTH];
	for (int layer = -1; layer < LAYERS; layer++) {
		dtrain_tensor to = layer < 0 ? j->model.x : j->model.d_y[layer];
		for (int i = 0; i < WIDTH; i++)
			values[i] = layer < 0 ? number(j->r->rank, step, 0, 0, i)
					      : number(j->r->rank, step, layer, 1, i) * j->scale;
		sync_model_upload(&j->model, dtrain_program_data(j->model.program, to), values, sizeof(values));
	}
}

/* The sum over the ranks of the gradients of a run: added to `given`. */
static void add_given(job *j, int step)
{
	for (int n = 0; n < dtrain_params_count(j->model.params); n++) {
		const dtrain_param *param = dtrain_params_at(j->model.params, n);
		int layer = param->name[strlen("layer")] - '0';
		for (int64_t i = 0; i < param->count; i++)
			for (int rank = 0; rank < j->r->size; rank++) {
				bool matrix = param->shape.ndim == 2;
				double d_y = (double)number(rank, step, layer, 1, matrix ? i / WIDTH : i);
				double x = matrix ? (double)number(rank, step, 0, 0, i % WIDTH) : 1;
				j->given[param->offset + i] += d_y * x * (double)j->scale;
			}
	}
}

static void read_results(job *j)
{
	sync_model_download(&j->model, j->got, dtrain_params_grads(j->model.params),
			    (size_t)j->count * sizeof(*j->got));
	for (int64_t i = 0; i < j->count; i++)
		j->sent[i] += (double)j->got[i];
}

static void run(job *j, int step, int micro_batch, int micro_batches)
{
	put_inputs(j, step);
	add_given(j, step);
	MUST(dtrain_program_run(j->model.program, j->model.stream, micro_batch, micro_batches, &err));
	if (micro_batch + 1 == micro_batches)
		read_results(j);
}

static void forget(job *j)
{
	memset(j->given, 0, (size_t)j->count * sizeof(*j->given));
	memset(j->sent, 0, (size_t)j->count * sizeof(*j->sent));
}

/* Reduces all ranks' values, added up or compared: on the device. */
static void reduce(job *j, float *values, int64_t count, dtrain_reduce_op op)
{
	size_t bytes = (size_t)count * sizeof(*values);
	dtrain_work *work = NULL;
	void *memory = NULL;
	MUST(place.api->alloc(place.device, bytes, &memory, &err));
	sync_model_upload(&j->model, memory, values, bytes);
	MUST(dtrain_allreduce(j->r->group, memory, count, DTRAIN_F32, op, NULL, &work, &err));
	MUST(dtrain_work_stream_wait(&work, j->model.stream, &err));
	sync_model_download(&j->model, values, memory, bytes);
	place.api->free(place.device, memory);
}

/* All ranks have the same gradients, to the bit. */
static void require_equal(job *j, const float *values, int64_t count)
{
	size_t bytes = (size_t)count * sizeof(*values);
	float *least = malloc(bytes), *most = malloc(bytes);
	REQUIRE(least && most);
	memcpy(least, values, bytes);
	memcpy(most, values, bytes);
	reduce(j, least, count, DTRAIN_MIN);
	reduce(j, most, count, DTRAIN_MAX);
	REQUIRE(memcmp(least, values, bytes) == 0 && memcmp(most, values, bytes) == 0);
	free(least);
	free(most);
}

static const dtrain_param *param_of(const job *j, const char *name, const char *suffix)
{
	for (int i = 0; i < dtrain_params_count(j->model.params); i++) {
		const dtrain_param *param = dtrain_params_at(j->model.params, i);
		size_t length = strlen(param->name);
		if (strncmp(name, param->name, length) == 0 && name[length] == '.' &&
		    strcmp(name + length + 1, suffix) == 0)
			return param;
	}
	return NULL;
}

/* Adds what the ranks feed back: rows of their own, and parts of sums. */
static void add_errors(job *j, double *to)
{
	dtrain_hook_tensor tensors[MAX_TENSORS];
	float *all = calloc((size_t)j->count, sizeof(*all)), values[WIDTH * WIDTH];
	REQUIRE(all);
	int count = dtrain_sync_tensors(j->model.sync, tensors, MAX_TENSORS, &err);
	REQUIRE(count <= MAX_TENSORS);
	for (int i = 0; i < count; i++) {
		const dtrain_hook_tensor *t = &tensors[i];
		const dtrain_param *own = param_of(j, t->name, "compress_error");
		const dtrain_param *param = own ? own : param_of(j, t->name, "compress_sum_error");
		if (!param || t->count == 0)
			continue;
		REQUIRE(!own || (t->offset[0] == j->r->rank && t->shape.dim[0] == j->r->size));
		sync_model_download(&j->model, values, t->memory, (size_t)t->count * sizeof(*values));
		for (int64_t k = 0; k < t->count; k++)
			all[param->offset + t->first + k] += values[k];
	}
	reduce(j, all, j->count, DTRAIN_SUM);
	for (int64_t i = 0; i < j->count; i++)
		to[i] += (double)all[i];
	free(all);
}

/* sum of sent + errors = sum of given. bound: relative to the largest. */
static void check_identity(job *j, double bound)
{
	double worst = 0, most = 0, *sum = malloc((size_t)j->count * sizeof(*sum));
	REQUIRE(sum);
	memcpy(sum, j->sent, (size_t)j->count * sizeof(*sum));
	add_errors(j, sum);
	for (int64_t i = 0; i < j->count; i++) {
		worst = fmax(worst, fabs(sum[i] - j->given[i]));
		most = fmax(most, fabs(j->given[i]));
	}
	REQUIRE(most > 1 && worst <= bound * most);
	require_equal(j, j->got, j->count);
	free(sum);
}

static double distance(const job *j)
{
	double worst = 0, most = 0;
	for (int64_t i = 0; i < j->count; i++) {
		worst = fmax(worst, fabs(j->sent[i] - j->given[i]));
		most = fmax(most, fabs(j->given[i]));
	}
	return worst / most;
}

/* ---- cases ---- */

/* Case 30: sums that are too large for the type have means that are not; one rank has its own gradients. */
static void check_half(struct rank *r, const char *name, double bound)
{
	const dtrain_compression compression = method(name);
	job j;
	open_method(r, &j, &compression);
	for (int step = 0; step < 2; step++) {
		j.scale = step ? 32000 : 1;
		forget(&j);
		run(&j, step, 0, 2);
		run(&j, step, 1, 2);
		REQUIRE(distance(&j) <= (r->size > 1 ? bound : 0));
		require_equal(&j, j.got, j.count);
		const dtrain_sync_step times = sync_model_times(&j.model, j.model.trace);
		REQUIRE(times.bytes == (r->size > 1 ? 2 * (uint64_t)j.count + 4 * DTRAIN_STEP_METRICS : 0));
	}
	close_job(&j);
}

/* A step whose gradients are not finite says so, and leaves no error. */
static void check_overflow(job *j)
{
	int finite = 0;
	j->scale = INFINITY;
	run(j, 7, 0, 1);
	for (int64_t i = 0; i < j->count; i++)
		finite += isfinite(j->got[i]) != 0;
	REQUIRE(finite < j->count);
	j->scale = 0;
	run(j, 7, 0, 1);
	for (int64_t i = 0; i < j->count; i++)
		REQUIRE(isfinite(j->got[i]));
	j->scale = 1;
}

static void check_feedback(struct rank *r, const dtrain_compression *compression, double bound)
{
	job j;
	open_method(r, &j, compression);
	REQUIRE(dtrain_sync_is_settled(j.model.sync));
	for (int step = 0; step < 5; step++) {
		run(&j, step, 0, 2);
		run(&j, step + 5, 1, 2);
		check_identity(&j, bound);
	}
	REQUIRE(distance(&j) > 1e-4);
	REQUIRE(dtrain_sync_hook_bytes(j.model.sync) > (uint64_t)j.count * sizeof(float));
	check_overflow(&j);
	forget(&j);
	/* Earlier feedback is gone but for some part, which is finite. */
	add_errors(&j, j.given);
	for (int64_t i = 0; i < j.count; i++)
		REQUIRE(isfinite(j.given[i]));
	for (int step = 0; step < 2; step++) {
		run(&j, step, 0, 1);
		check_identity(&j, bound);
	}
	close_job(&j);
}

/* Case 32. */
static void check_topk(struct rank *r)
{
	dtrain_compression compression = method("topk");
	/* Exact, because the numbers are. */
	check_feedback(r, &compression, 0);
	compression.ratio = 1;
	job j;
	open_method(r, &j, &compression);
	run(&j, 0, 0, 1);
	REQUIRE(distance(&j) == 0);
	close_job(&j);
	compression.ratio = 1e-9;
	compression.error_feedback = false;
	open_method(r, &j, &compression);
	run(&j, 0, 0, 1);
	int count = 0, units = dtrain_params_unit_count(j.model.params);
	for (int64_t i = 0; i < j.count; i++)
		count += j.got[i] != 0;
	REQUIRE(count >= 1 && count <= r->size * units);
	require_equal(&j, j.got, j.count);
	REQUIRE(dtrain_sync_tensors(j.model.sync, NULL, 0, &err) == 0);
	close_job(&j);
}

static void check_int8(struct rank *r)
{
	dtrain_compression compression = method("int8");
	check_feedback(r, &compression, 2e-6);
	compression.error_feedback = false;
	job j;
	open_method(r, &j, &compression);
	run(&j, 0, 0, 1);
	REQUIRE(distance(&j) > 0 && distance(&j) < 0.02);
	require_equal(&j, j.got, j.count);
	close_job(&j);
}

/* Case 31. */
static void check_powersgd(struct rank *r)
{
	dtrain_compression compression = method("powersgd");
	check_feedback(r, &compression, 1e-5);
	compression.warm_start = false;
	compression.rank = 2;
	check_feedback(r, &compression, 1e-5);
	/* As many columns as the matrices have: nothing is left out. */
	compression.rank = WIDTH + 1;
	compression.min_rate = 1e-6;
	for (int warm = 0; warm < 2; warm++) {
		compression.warm_start = warm;
		job j;
		open_method(r, &j, &compression);
		j.scale = 0;
		run(&j, 0, 0, 1);
		REQUIRE(dtrain_sync_tensors(j.model.sync, NULL, 0, &err) > 0);
		for (int64_t i = 0; i < j.count; i++)
			REQUIRE(j.got[i] == 0);
		j.scale = 1;
		for (int step = 1; step < 4; step++) {
			forget(&j);
			run(&j, step, 0, 2);
			run(&j, step + 4, 1, 2);
			REQUIRE(distance(&j) < 1e-5);
		}
		close_job(&j);
	}
}

/* The first steps are plain, and no step before the first compressed one may be captured. */
static void check_start(struct rank *r)
{
	dtrain_compression compression = method("powersgd");
	compression.start = 2;
	job j;
	open_method(r, &j, &compression);
	for (int step = 0; step < 4; step++) {
		const uint64_t plain = 4 * ((uint64_t)j.count + DTRAIN_STEP_METRICS);
		REQUIRE(dtrain_sync_is_settled(j.model.sync) == (step >= 2));
		forget(&j);
		run(&j, step, 0, 1);
		const dtrain_sync_step times = sync_model_times(&j.model, j.model.trace);
		REQUIRE((distance(&j) == 0) == (step < 2));
		REQUIRE(times.comm_ms > 0 && (times.bytes == plain) == (step < 2) && times.bytes <= plain);
	}
	close_job(&j);
}

/* ---- states ---- */

typedef struct saved {
	int count;
	char names[MAX_TENSORS][64];
	char values[MAX_TENSORS][WIDTH * WIDTH * sizeof(float)];
} saved;

/* Both ways, by name. */
static void move_state(job *j, saved *state, bool load)
{
	dtrain_hook_tensor tensors[MAX_TENSORS];
	int count = dtrain_sync_tensors(j->model.sync, tensors, MAX_TENSORS, &err);
	REQUIRE(count > 0 && count <= MAX_TENSORS && (!load || count == state->count));
	state->count = count;
	for (int i = 0; i < count; i++) {
		const dtrain_hook_tensor *t = &tensors[i];
		size_t bytes = (size_t)t->count * dtrain_dtype_size(t->dtype);
		REQUIRE(bytes <= sizeof(state->values[i]) && strlen(t->name) < sizeof(state->names[i]));
		REQUIRE(!load || strcmp(state->names[i], t->name) == 0);
		snprintf(state->names[i], sizeof(state->names[i]), "%s", t->name);
		for (int k = 0; k < i; k++)
			REQUIRE(strcmp(state->names[k], t->name) != 0);
		if (load && t->device)
			sync_model_upload(&j->model, t->memory, state->values[i], bytes);
		else if (t->device)
			sync_model_download(&j->model, state->values[i], t->memory, bytes);
		else
			memcpy(load ? t->memory : state->values[i], load ? state->values[i] : t->memory, bytes);
	}
}

/* A run that goes on from the saved tensors has the bits of an uninterrupted run. */
static void check_resume(struct rank *r, const dtrain_compression *compression)
{
	static saved state;
	job a, b;
	open_method(r, &a, compression);
	for (int step = 0; step < 3; step++)
		run(&a, step, 0, 1);
	move_state(&a, &state, false);
	run(&a, 3, 0, 1);
	run(&a, 4, 0, 1);
	float *right = a.got;
	a.got = NULL;
	close_job(&a);
	open_method(r, &b, compression);
	move_state(&b, &state, true);
	run(&b, 3, 0, 1);
	run(&b, 4, 0, 1);
	REQUIRE(memcmp(right, b.got, (size_t)b.count * sizeof(*right)) == 0);
	close_job(&b);
	free(right);
}

static void check_states(struct rank *r)
{
	const char *const names[] = {"topk", "int8", "powersgd", "powersgd"};
	for (int i = 0; i < 4; i++) {
		dtrain_compression compression = method(names[i]);
		compression.start = 2;
		compression.rank = 3;
		compression.warm_start = i < 3;
		check_resume(r, &compression);
	}
}

/* ---- captured: the same, replayed ---- */

static void check_captured(struct rank *r, const char *name, double bound)
{
	const dtrain_compression compression = method(name);
	void *captured = NULL;
	job j;
	open_method(r, &j, &compression);
	run(&j, 0, 0, 1);
	MUST(place.api->capture_begin(j.model.stream, &err));
	MUST(dtrain_program_run(j.model.program, j.model.stream, 0, 1, &err));
	MUST(place.api->capture_end(j.model.stream, &captured, &err));
	for (int step = 1; step < 6; step++) {
		put_inputs(&j, step);
		add_given(&j, step);
		MUST(place.api->capture_launch(captured, j.model.stream, &err));
		read_results(&j);
		check_identity(&j, bound);
		REQUIRE(sync_model_times(&j.model, j.model.trace).comm_ms > 0);
	}
	place.api->capture_destroy(captured);
	close_job(&j);
}

/* ---- a program's own hook: the two halves of a range, one after the other, multiplied ---- */

typedef struct own_hook {
	int created, destroyed, rounds, finished;
	int fails_at; /* which round fails, from 1; 0: none */
} own_hook;

typedef struct own_range {
	own_hook *hook;
	dtrain_hook_range range;
} own_range;

static int own_create(void *context, const dtrain_hook_range *range, void **state, beton_error *error)
{
	own_hook *hook = context;
	own_range *own = calloc(1, sizeof(*own));
	(void)error;
	REQUIRE(own && range->index == hook->created && range->num_parts > 0 && range->count % DTRAIN_PARAM_ALIGN == 0);
	for (int i = 0; i < range->num_parts; i++)
		REQUIRE(range->parts[i].begin == 0 && range->parts[i].count == range->parts[i].param->count &&
			(i == 0 ? range->parts[i].offset == 0
				: range->parts[i].offset >= range->parts[i - 1].offset + range->parts[i - 1].count));
	*own = (own_range){hook, *range};
	hook->created++;
	*state = own;
	return BETON_OK;
}

static void own_destroy(void *state)
{
	((own_range *)state)->hook->destroyed++;
	free(state);
}

static int own_round(void *state, dtrain_hook_round *round, beton_error *error)
{
	const own_range *own = state;
	int64_t half = own->range.count / 2;
	if (++own->hook->rounds == own->hook->fails_at)
		return bt_fail(error, BETON_USER_ERROR, "this round fails");
	int status = dtrain_device_get_api(own->range.device)->event_record(round->ready, round->stream, error);
	round->bytes = (uint64_t)half * sizeof(float);
	return status == BETON_OK && own->hook->fails_at >= 0
		       ? dtrain_allreduce(own->range.group, (float *)own->range.memory + round->index * half, half,
					  own->range.dtype, DTRAIN_SUM, round->ready, &round->work, error)
		       : status;
}

static int own_finish(void *state, dtrain_stream *stream, beton_error *error)
{
	(void)stream;
	(void)error;
	((own_range *)state)->hook->finished++;
	return BETON_OK;
}

static void check_own(struct rank *r)
{
	own_hook counts = {0};
	const dtrain_hook hook = {.struct_size = sizeof(hook),
				  .name = "halves",
				  .context = &counts,
				  .rounds = 2,
				  .create = own_create,
				  .destroy = own_destroy,
				  .round = own_round,
				  .finish = own_finish};
	dtrain_sync_options options;
	dtrain_sync_options_init(&options);
	options.hook = &hook;
	job j;
	open_job(r, &j, &options);
	int units = dtrain_params_unit_count(j.model.params);
	run(&j, 0, 0, 1);
	REQUIRE(distance(&j) == 0 && counts.created == units && counts.rounds == 2 * units && counts.finished == units);
	counts.fails_at = counts.rounds + units + 1;
	put_inputs(&j, 1);
	REQUIRE(dtrain_program_run(j.model.program, j.model.stream, 0, 1, &err) == BETON_USER_ERROR);
	REQUIRE(strstr(err.message, "this round fails"));
	forget(&j);
	run(&j, 1, 0, 1);
	REQUIRE(distance(&j) == 0);
	counts.fails_at = -1;
	put_inputs(&j, 2);
	REQUIRE(dtrain_program_run(j.model.program, j.model.stream, 0, 1, &err) == BETON_STATE);
	REQUIRE(strstr(err.message, "called no operation"));
	close_job(&j);
	REQUIRE(counts.destroyed == units);
}

static void expect_refusal(const dtrain_sync_options *options, const char *text)
{
	dtrain_device *device = NULL;
	dtrain_params *params = NULL;
	dtrain_sync *sync = NULL;
	MUST(dtrain_device_open("ref", NULL, &device, &err));
	MUST(dtrain_params_create(device, DTRAIN_F32, &params, &err));
	REQUIRE(dtrain_sync_create(params, NULL, options, &sync, &err) == BETON_INVALID_ARGUMENT);
	REQUIRE(strstr(err.message, text) && !sync);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

static void check_refusals(struct rank *r)
{
	(void)r;
	const struct {
		dtrain_compression compression;
		const char *text;
	} cases[] = {
		{{.method = "zip", .rank = 1, .ratio = 1, .min_rate = 2}, "unknown method 'zip'"},
		{{.method = "topk", .rank = 1, .ratio = 0, .min_rate = 2}, "ratio of 0"},
		{{.method = "topk", .rank = 1, .ratio = 1.5, .min_rate = 2}, "ratio of 1.5"},
		{{.method = "powersgd", .rank = 0, .ratio = 1, .min_rate = 2}, "rank 0"},
		{{.method = "powersgd", .rank = 1, .ratio = 1, .min_rate = 0}, "min_rate 0"},
		{{.method = "powersgd", .rank = 1, .ratio = 1, .min_rate = 2, .start = -1}, "-1 steps"},
	};
	dtrain_sync_options options;
	dtrain_hook hook = {.struct_size = sizeof(hook), .name = "mine", .rounds = 3};
	dtrain_sync_options_init(&options);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		dtrain_compression compression = cases[i].compression;
		compression.struct_size = sizeof(compression);
		options.compression = &compression;
		expect_refusal(&options, cases[i].text);
	}
	const dtrain_compression none = method("none");
	options.compression = &none;
	options.hook = &hook;
	expect_refusal(&options, "both");
	options.compression = NULL;
	expect_refusal(&options, "hook 'mine' lacks a function");
	hook.create = own_create;
	hook.destroy = own_destroy;
	hook.round = own_round;
	hook.finish = own_finish;
	expect_refusal(&options, "3 rounds");
}

static int rank_differs(struct rank *r)
{
	dtrain_compression compression = method("topk");
	dtrain_sync_options options;
	dtrain_device *device = NULL;
	dtrain_stream *stream = NULL;
	sync_model model;
	dtrain_sync_options_init(&options);
	options.compression = &compression;
	compression.ratio = r->rank == 1 ? 0.1 : 0.2;
	MUST(dtrain_device_open("ref", NULL, &device, &err));
	MUST(dtrain_device_get_api(device)->stream_create(device, &stream, &err));
	sync_model_open(&model, device, stream, sync_model_mesh(r->group), &options, 16, 1);
	int status = dtrain_sync_start(model.sync, &err);
	fprintf(stderr, "%s\n", err.message);
	sync_model_close(&model);
	dtrain_device_get_api(device)->stream_destroy(stream);
	dtrain_device_close(&device);
	return -status;
}

static void open_device(struct rank *r, const char *name)
{
	is_far = strcmp(name, "far") == 0;
	if (is_far) {
		open_place(r, &place);
		return;
	}
	MUST(dtrain_device_open(name, NULL, &place.device, &err));
	place.api = dtrain_device_get_api(place.device);
	MUST(place.api->stream_create(place.device, &place.stream, &err));
}

static void close_device(struct rank *r)
{
	if (is_far) {
		close_place(r, &place);
		return;
	}
	place.api->stream_destroy(place.stream);
	dtrain_device_close(&place.device);
}

static void check_f16(struct rank *r)
{
	check_half(r, "f16", 1.0 / 1024);
}

static void check_bf16(struct rank *r)
{
	check_half(r, "bf16", 1.0 / 128);
}

static void check_captures(struct rank *r)
{
	check_captured(r, "topk", 0);
	check_captured(r, "int8", 2e-6);
	check_captured(r, "powersgd", 1e-5);
}

/* A mode is the name of a device and of a check. */
static int rank_main(struct rank *r)
{
	static const char alone[] = "no-group-";
	static const struct {
		const char *name;
		void (*check)(struct rank *r);
	} checks[] = {
		{"f16", check_f16},           {"bf16", check_bf16},   {"topk", check_topk},
		{"int8", check_int8},         {"start", check_start}, {"powersgd", check_powersgd},
		{"states", check_states},     {"own", check_own},     {"captured", check_captures},
		{"refusals", check_refusals},
	};
	const char *mode = strncmp(r->mode, alone, strlen(alone)) == 0 ? r->mode + strlen(alone) : r->mode;
	const char *what = strchr(mode, '-') + 1;
	char device[8];
	int found = 0;
	if (strcmp(what, "differs") == 0)
		return rank_differs(r);
	snprintf(device, sizeof(device), "%.*s", (int)strcspn(mode, "-"), mode);
	open_device(r, device);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		if (strcmp(checks[i].name, what) == 0) {
			checks[i].check(r);
			found++;
		}
	if (r->group && !is_far)
		dtrain_group_destroy(&r->group);
	close_device(r);
	return found == 1 ? 0 : 9;
}

/* On ref, on far, and on cpu if it is there. */
static void run_all(const char *what, int size)
{
	char mode[64];
	snprintf(mode, sizeof(mode), "ref-%s", what);
	run_ranks(mode, size);
	snprintf(mode, sizeof(mode), "no-group-far-%s", what);
	run_ranks(mode, size);
	snprintf(mode, sizeof(mode), "cpu-%s", what);
	if (dtrain_device_find("cpu"))
		run_ranks(mode, size);
}

static void halves_do_not_overflow(void **state)
{
	(void)state;
	run_ranks("ref-f16", 1);
	run_all("f16", 2);
	run_ranks("ref-f16", 3);
	run_all("bf16", 2);
}

static void largest_are_sent_and_the_rest_is_fed_back(void **state)
{
	(void)state;
	run_all("topk", 2);
	run_ranks("ref-topk", 3);
}

static void codes_are_sent_and_the_rest_is_fed_back(void **state)
{
	(void)state;
	run_all("int8", 2);
	run_ranks("ref-int8", 3);
}

static void matrices_are_sent_and_the_rest_is_fed_back(void **state)
{
	(void)state;
	run_all("powersgd", 2);
	run_ranks("ref-powersgd", 3);
	run_all("start", 2);
}

static void states_are_what_a_checkpoint_needs(void **state)
{
	(void)state;
	run_all("states", 2);
}

static void steps_are_captured(void **state)
{
	(void)state;
	run_ranks("no-group-far-captured", 2);
}

static void programs_bring_their_own(void **state)
{
	(void)state;
	run_all("own", 2);
}

static void misuse_is_named(void **state)
{
	struct ranks ranks;
	(void)state;
	run_ranks("ref-refusals", 1);
	start_ranks(&ranks, "ref-differs", 0, 2, 20000);
	for (int rank = 0; rank < 2; rank++) {
		assert_int_equal(end_rank(&ranks, rank), -BETON_MISMATCH);
		assert_non_null(
			strstr(ranks.err[rank], "rank 1 has another model than rank 0: compression of gradients"));
	}
	end_store(&ranks);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(halves_do_not_overflow),
		cmocka_unit_test(largest_are_sent_and_the_rest_is_fed_back),
		cmocka_unit_test(codes_are_sent_and_the_rest_is_fed_back),
		cmocka_unit_test(matrices_are_sent_and_the_rest_is_fed_back),
		cmocka_unit_test(states_are_what_a_checkpoint_needs),
		cmocka_unit_test(steps_are_captured),
		cmocka_unit_test(programs_bring_their_own),
		cmocka_unit_test(misuse_is_named),
	};
	int status;
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
