/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharding strategies against ddp with the same ranks, on small networks of odd shapes. The numbers are those of the
 * cases that an implementation of FSDP and ZeRO has to pass: parallel.md, section 12.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <dtrain/optimizer.h>

#include "core/params.h"
#include "far_place.h"
#include "parallel/sync.h"

enum { BATCH = 4, STEPS = 10, MAX_ELEMENTS = 4096, SEED = 11 };

static beton_error err;

/* What is trained, and how. */
typedef struct setup {
	const char *strategy;
	int shard;            /* ranks that share a copy; 0: all */
	int64_t in, mid, out; /* of two linear layers, or vocabulary, width and classes of a tied head */
	enum { PLAIN, TWICE, TIED, WIDE, BAD } network;
	int runs; /* of a step */
	bool locally, keep, in_one_unit, bf16, late;
	size_t prefetch;
	double clip; /* 0: none */
	dtrain_norm norm;
	const char *kind; /* NULL: adamw */
} setup;

static const setup standard = {.in = 7, .mid = 15, .out = 3, .runs = 1, .clip = 0.05, .prefetch = 64 << 20};

/* What came of it, on every rank: values of the parameters, whatever is sharded, and the losses. */
typedef struct result {
	float values[MAX_ELEMENTS];
	int count;
	float losses[STEPS];
	size_t arena, kept;          /* bytes */
	int64_t gathered, scattered; /* elements in all steps, of whole units */
	float norm;
} result;

typedef struct training {
	struct rank *r;
	const setup *job;
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_mesh *mesh;
	dtrain_sync *sync;
	dtrain_program *program;
	dtrain_optimizer *optimizer;
	dtrain_tensor x, label;
} training;

/* ---- networks ---- */

static dtrain_tensor matrix(dtrain_graph *graph, const char *name, int64_t rows, int64_t columns)
{
	const dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){rows, columns});
	return dtrain_graph_parameter(graph, name, &shape, DTRAIN_INIT_LINEAR_UNIFORM, columns);
}

static dtrain_tensor vector(dtrain_graph *graph, const char *name, int64_t count)
{
	const dtrain_shape shape = dtrain_shape_of(1, &count);
	return dtrain_graph_parameter(graph, name, &shape, DTRAIN_INIT_LINEAR_UNIFORM, count);
}

/* A layer that is used twice, one that is frozen, and parameters that nothing uses. */
static dtrain_tensor build_twice(const setup *job, dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_tensor y = dtrain_relu(graph, dtrain_linear(graph, "fc1", x, job->mid));
	dtrain_graph_next_block(graph);
	dtrain_tensor w = matrix(graph, "twice.weight", job->mid, job->mid), b = vector(graph, "twice.bias", job->mid);
	y = dtrain_relu(graph, dtrain_linear_of(graph, y, w, b, false));
	dtrain_graph_next_block(graph);
	y = dtrain_relu(graph, dtrain_linear(graph, "frozen", y, job->mid));
	dtrain_graph_next_block(graph);
	y = dtrain_linear_of(graph, y, w, b, false);
	matrix(graph, "unused.weight", 5, 9);
	dtrain_graph_next_block(graph);
	return dtrain_linear(graph, "fc2", y, job->out);
}

static dtrain_tensor build_loss(const training *t, dtrain_graph *graph)
{
	const setup *job = t->job;
	if (job->network == TIED) {
		dtrain_tensor w = matrix(graph, "wte", job->in, job->mid), b = vector(graph, "head_bias", job->in);
		dtrain_tensor y = dtrain_embedding(graph, w, t->x);
		for (int i = 0; i < 3; i++) {
			char name[16];
			dtrain_graph_next_block(graph);
			snprintf(name, sizeof(name), "h%d", i);
			y = dtrain_relu(graph, dtrain_linear(graph, name, y, job->mid));
		}
		dtrain_loss_options options;
		dtrain_loss_options_init(&options);
		return dtrain_mean(graph, dtrain_linear_cross_entropy(graph, y, w, b, t->label, &options));
	}
	dtrain_tensor y;
	if (job->network == TWICE) {
		y = build_twice(job, graph, t->x);
	} else {
		y = dtrain_relu(graph, dtrain_linear(graph, "fc1", t->x, job->mid));
		for (int i = 0; job->network == WIDE && i < 4; i++) {
			char name[16];
			dtrain_graph_next_block(graph);
			snprintf(name, sizeof(name), "middle%d", i);
			y = dtrain_relu(graph, dtrain_linear(graph, name, y, job->mid));
		}
		dtrain_graph_next_block(graph);
		y = dtrain_linear(graph, "fc2", y, job->out);
	}
	return dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, y, t->label, 0));
}

static void make_program(training *t)
{
	const setup *job = t->job;
	dtrain_graph *graph = NULL;
	const bool tied = job->network == TIED;
	dtrain_shape rows = dtrain_shape_of(tied ? 1 : 2, (int64_t[]){BATCH, job->in});
	dtrain_shape labels = dtrain_shape_of(1, (int64_t[]){BATCH});
	MUST(dtrain_graph_create(t->params, true, &graph, &err));
	if (job->bf16)
		dtrain_graph_set_dtype(graph, DTRAIN_BF16);
	t->x = dtrain_graph_input(graph, "x", tied ? DTRAIN_I64 : job->bf16 ? DTRAIN_BF16 : DTRAIN_F32, &rows);
	t->label = dtrain_graph_input(graph, "label", DTRAIN_I64, &labels);
	dtrain_tensor loss = build_loss(t, graph);
	dtrain_graph_figure(graph, loss, 0);
	dtrain_graph_backward(graph, loss);
	MUST(dtrain_sync_compile(t->sync, &graph, &t->program, &err));
}

/* ---- one training ---- */

static void open_training(training *t, struct rank *r, const setup *job, dtrain_device *on, dtrain_stream *put_on)
{
	*t = (training){.r = r, .job = job, .device = on, .stream = put_on};
	t->api = dtrain_device_get_api(on);
	int shard = job->shard ? job->shard : r->size;
	const bool sharded = strcmp(job->strategy, "ddp") != 0;
	const dtrain_mesh_axis axes[] = {{"replicate", sharded ? r->size / shard : r->size}, {"shard", shard}};
	dtrain_sync_options sync;
	dtrain_sync_options_init(&sync);
	sync.strategy = job->strategy;
	sync.accumulates = job->runs > 1;
	sync.sum_runs_locally = job->locally;
	sync.keep_gathered = job->keep;
	sync.prefetch_bytes = job->prefetch;
	sync.whole_params = job->kind != NULL;
	if (job->in_one_unit)
		sync.unit_bytes = 1 << 20;
	MUST(dtrain_mesh_create(r->group, axes, sharded ? 2 : 1, &t->mesh, &err));
	MUST(dtrain_params_create(on, DTRAIN_F32, &t->params, &err));
	if (job->network == TWICE)
		MUST(dtrain_params_freeze(t->params, "frozen", &err));
	MUST(dtrain_sync_create(t->params, t->mesh, &sync, &t->sync, &err));
	make_program(t);
	MUST(dtrain_params_initialize(t->params, SEED, put_on, &err));
	MUST(dtrain_sync_start(t->sync, &err));
	uint8_t groups[32] = {0};
	dtrain_optimizer_options options;
	dtrain_optimizer_options_init(&options);
	options.kind = job->kind ? job->kind : "adamw";
	options.clip_norm = job->clip;
	options.norm = job->norm;
	options.grad_divisor = (double)r->size * job->runs;
	options.num_groups = 2;
	options.group_of = groups;
	options.add = dtrain_sync_is_sharded(t->sync) ? dtrain_sync_add_shards : NULL;
	options.add_context = t->sync;
	for (int i = 0; i < dtrain_params_count(t->params); i++)
		groups[i] = dtrain_params_at(t->params, i)->frozen;
	MUST(dtrain_optimizer_create(t->params, &options, &t->optimizer, &err));
	MUST(dtrain_optimizer_set(t->optimizer, 1, "lr_scale", 0, &err));
	MUST(dtrain_optimizer_set(t->optimizer, 1, "weight_decay", 0, &err));
}

static void close_training(training *t)
{
	dtrain_sync_stop(t->sync);
	dtrain_optimizer_destroy(&t->optimizer);
	dtrain_program_destroy(&t->program);
	dtrain_sync_destroy(&t->sync);
	dtrain_mesh_destroy(&t->mesh);
	dtrain_params_destroy(&t->params);
}

/* A rank that is late at a place of a step: another one each time. */
static void be_late(const training *t, int step, int place)
{
	if (t->job->late && (step + place) % t->r->size == t->r->rank)
		usleep(20000);
}

static void put(training *t, dtrain_tensor tensor, const void *from, size_t bytes)
{
	MUST(t->api->copy(t->stream, dtrain_program_data(t->program, tensor), from, bytes, DTRAIN_HOST_TO_DEVICE,
			  &err));
	MUST(t->api->stream_synchronize(t->stream, &err));
}

/* Sample i of a step's whole batch. */
static void fill(training *t, int step, int run)
{
	const setup *job = t->job;
	int64_t labels[BATCH], tokens[BATCH];
	float x[BATCH * 64];
	for (int64_t i = 0; i < BATCH; i++) {
		int64_t sample = ((int64_t)step * job->runs + run) * BATCH * t->r->size + t->r->rank * BATCH + i;
		labels[i] = sample * 7 % (job->network == TIED ? job->in : job->out);
		tokens[i] = sample * 5 % job->in;
		for (int64_t k = 0; k < job->in && job->network != TIED; k++)
			x[i * job->in + k] = (float)((sample * 31 + k * 17) % 64) / 32 - 1;
	}
	if (job->network == BAD && step == 2 && t->r->rank == t->r->size - 1)
		x[0] = INFINITY;
	uint16_t half[BATCH * 64];
	for (int64_t i = 0; i < BATCH * job->in && job->bf16; i++) {
		uint32_t bits;
		memcpy(&bits, &x[i], sizeof(bits)); /* multiples of 1/32 are exact */
		half[i] = (uint16_t)(bits >> 16);
	}
	if (job->network == TIED)
		put(t, t->x, tokens, sizeof(tokens));
	else if (job->bf16)
		put(t, t->x, half, (size_t)(BATCH * job->in) * sizeof(*half));
	else
		put(t, t->x, x, (size_t)(BATCH * job->in) * sizeof(*x));
	put(t, t->label, labels, sizeof(labels));
}

/* Adds up host memory over the ranks, without the groups that are tested. */
static void add_ranks(const training *t, float *numbers, int64_t count)
{
	dtrain_work *work = NULL;
	void *memory = NULL;
	size_t bytes = (size_t)count * sizeof(*numbers);
	MUST(t->api->alloc(t->device, bytes, &memory, &err));
	MUST(t->api->copy(t->stream, memory, numbers, bytes, DTRAIN_HOST_TO_DEVICE, &err));
	MUST(t->api->stream_synchronize(t->stream, &err));
	MUST(dtrain_allreduce(t->r->group, memory, count, DTRAIN_F32, DTRAIN_SUM, NULL, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	MUST(t->api->copy(t->stream, numbers, memory, bytes, DTRAIN_DEVICE_TO_HOST, &err));
	MUST(t->api->stream_synchronize(t->stream, &err));
	t->api->free(t->device, memory);
}

/* The values of all parameters, by order of declaration: each rank gives what it keeps. */
static void collect(const training *t, result *out)
{
	static float numbers[2 * MAX_ELEMENTS], range_values[MAX_ELEMENTS];
	int first = 0;
	memset(numbers, 0, sizeof(numbers));
	for (int i = 0; i < dtrain_params_count(t->params); i++) {
		const dtrain_param *param = dtrain_params_at(t->params, i);
		REQUIRE(first + param->count <= MAX_ELEMENTS);
		for (int n = 0; n < dtrain_params_range_count(t->params); n++) {
			const dtrain_range *range = dtrain_params_range_at(t->params, n);
			REQUIRE(range->count <= MAX_ELEMENTS && range->offset % DTRAIN_PARAM_ALIGN == 0);
			MUST(t->api->copy(t->stream, range_values, range->values, (size_t)range->count * sizeof(float),
					  DTRAIN_DEVICE_TO_HOST, &err));
			MUST(t->api->stream_synchronize(t->stream, &err));
			for (int64_t k = 0; k < param->count; k++) {
				int64_t at = param->offset + k - range->offset;
				if (at < 0 || at >= range->count)
					continue;
				numbers[first + k] += range_values[at];
				numbers[MAX_ELEMENTS + first + k]++;
			}
		}
		first += (int)param->count;
	}
	add_ranks(t, numbers, 2 * MAX_ELEMENTS);
	out->count = first;
	for (int i = 0; i < first; i++) {
		REQUIRE(numbers[MAX_ELEMENTS + i] >= 1);
		out->values[i] = numbers[i] / numbers[MAX_ELEMENTS + i];
	}
}

/* Elements of whole units that the group's operations of a kind have moved. */
static int64_t moved(dtrain_group *group, const char *kind)
{
	static dtrain_record records[DTRAIN_HISTORY_LENGTH];
	int64_t elements = 0;
	int count = group ? dtrain_group_history(group, records, DTRAIN_HISTORY_LENGTH) : 0;
	for (int i = 0; i < count; i++)
		if (strcmp(records[i].kind, kind) == 0)
			elements += records[i].count * dtrain_group_size(group);
	return elements;
}

static void run_step(training *t, int step, result *out)
{
	float figure, clip[DTRAIN_CLIPS];
	for (int run = 0; run < t->job->runs; run++) {
		fill(t, step, run);
		be_late(t, step, run);
		MUST(dtrain_program_run(t->program, t->stream, run + 1 < t->job->runs, &err));
	}
	be_late(t, step, 2);
	MUST(dtrain_optimizer_step(t->optimizer, 0.01, t->stream, &err));
	MUST(t->api->copy(t->stream, &figure, dtrain_params_figures(t->params), sizeof(figure), DTRAIN_DEVICE_TO_HOST,
			  &err));
	if (t->job->clip > 0)
		MUST(t->api->copy(t->stream, clip, dtrain_optimizer_clip(t->optimizer), sizeof(clip),
				  DTRAIN_DEVICE_TO_HOST, &err));
	MUST(t->api->stream_synchronize(t->stream, &err));
	out->losses[step] = figure / (float)(t->r->size * t->job->runs);
	out->norm = t->job->clip > 0 ? clip[DTRAIN_CLIP_NORM] : 0;
}

static void train_on(struct rank *r, const setup *job, dtrain_device *on, dtrain_stream *put_on, result *out)
{
	training t;
	dtrain_program_facts facts = {.struct_size = sizeof(facts)};
	memset(out, 0, sizeof(*out));
	open_training(&t, r, job, on, put_on);
	/* The group of all ranks has a history of earlier trainings. */
	int64_t before = moved(t.sync->shards, "reduce_scatter");
	for (int step = 0; step < STEPS; step++)
		run_step(&t, step, out);
	out->gathered = moved(t.sync->gathers, "all_gather");
	out->scattered = moved(t.sync->shards, "reduce_scatter") - before;
	dtrain_program_get_facts(t.program, &facts);
	out->arena = facts.arena_bytes;
	out->kept = (size_t)(t.params->values_count + t.params->grads_count) * sizeof(float);
	collect(&t, out);
	close_training(&t);
}

/* The group of all ranks keeps the first device that it is used with. */
static dtrain_device *device;
static dtrain_stream *stream;

static void open_device(void)
{
	if (device)
		return;
	MUST(dtrain_device_open("ref", NULL, &device, &err));
	MUST(dtrain_device_get_api(device)->stream_create(device, &stream, &err));
}

static void train(struct rank *r, const setup *job, result *out)
{
	open_device();
	train_on(r, job, device, stream, out);
}

static setup with(setup of, const char *strategy)
{
	of.strategy = strategy;
	return of;
}

static void expect_close(const result *a, const result *b, float bound)
{
	REQUIRE(a->count == b->count && a->count > 0);
	for (int i = 0; i < STEPS; i++)
		REQUIRE(fabsf(a->losses[i] - b->losses[i]) <= bound * fabsf(b->losses[i]));
	for (int i = 0; i < a->count; i++)
		REQUIRE(fabsf(a->values[i] - b->values[i]) <= bound);
}

static const char *const sharding[] = {"zero1", "zero2", "zero3"};
static result right, got;

/* Adam divides by the root of a gradient's square, which makes the last bit of a small gradient a visible difference.
 * Two ranks have the same sums, but for the norm. */
static float bound_of(const struct rank *r, const setup *job)
{
	return r->size == 2 && job->clip == 0 && (job->runs == 1 || job->locally) ? 0 : 2e-6f;
}

static void compare_all(struct rank *r, const setup *of)
{
	const setup ddp = with(*of, "ddp");
	train(r, &ddp, &right);
	for (int i = 0; i < 3; i++) {
		const setup one = with(*of, sharding[i]);
		train(r, &one, &got);
		expect_close(&got, &right, bound_of(r, of));
	}
}

/* ---- the cases, in a rank ---- */

/* 1 and 2: shapes that no number of ranks divides, fewer rows than ranks. */
static void shapes(struct rank *r)
{
	static const int64_t all[][3] = {{16, 15, 8}, {7, 15, 3}, {16, 17, 8}, {3, 1, 2}, {1, 2, 5}};
	for (int i = 0; i < 5; i++)
		for (int clipped = i > 0; clipped < 2; clipped++) {
			setup of = standard;
			of.in = all[i][0];
			of.mid = all[i][1];
			of.out = all[i][2];
			of.clip = clipped ? 0.05 : 0;
			of.in_one_unit = i == 3;
			compare_all(r, &of);
		}
}

/* 3: what stays gathered, and what is prefetched, changes memory and traffic, and no bit. */
static void gathering(struct rank *r)
{
	static result all[4];
	setup of = with(standard, "zero3");
	of.network = WIDE;
	train(r, &of, &all[0]);
	of.prefetch = 0;
	train(r, &of, &all[1]);
	of.keep = true;
	train(r, &of, &all[2]);
	const setup zero2 = with(of, "zero2");
	train(r, &zero2, &all[3]);
	for (int i = 1; i < 4; i++)
		expect_close(&all[i], &all[0], 0);
}

/* 10: a step gathers almost all values twice, and reduces all gradients once. */
static void traffic(struct rank *r)
{
	setup of = with(standard, "zero3");
	training t;
	int64_t all, last, first;
	of.network = WIDE;
	train(r, &of, &got);
	open_device();
	open_training(&t, r, &of, device, stream);
	all = dtrain_params_flat_count(t.params);
	last = dtrain_params_unit_at(t.params, 0)->count;
	first = dtrain_params_unit_at(t.params, 5)->count;
	REQUIRE(t.params->values_count == all / r->size && t.params->grads_count == all / r->size);
	REQUIRE(dtrain_params_unit_count(t.params) == 6);
	close_training(&t);
	REQUIRE(got.scattered == STEPS * all);
	/* Backward needs the first layer's weight no more, and the last layer's is there. */
	REQUIRE(got.gathered == STEPS * (2 * all - last - first));
	of.keep = true;
	train(r, &of, &got);
	REQUIRE(got.gathered == STEPS * all && got.scattered == STEPS * all);
	size_t kept_by_all = got.arena;
	of.keep = false;
	of.prefetch = 0;
	train(r, &of, &got);
	REQUIRE(got.arena < kept_by_all);
	const setup zero1 = with(of, "zero1");
	train(r, &zero1, &got);
	REQUIRE(got.gathered == STEPS * all && got.scattered == STEPS * all);
}

/* 4: late ranks. */
static void delays(struct rank *r)
{
	for (int i = 0; i < 3; i++) {
		setup of = with(standard, sharding[i]);
		of.network = WIDE;
		train(r, &of, &right);
		of.late = true;
		train(r, &of, &got);
		expect_close(&got, &right, 0);
	}
}

/* 5: a unit that is used twice, one that is frozen, one that is not used. */
static void uses(struct rank *r)
{
	setup of = standard;
	of.network = TWICE;
	compare_all(r, &of);
	of.runs = 2;
	compare_all(r, &of);
}

/* 6: an embedding that is the head, too, which has a bias; no number of ranks divides its rows. */
static void tied(struct rank *r)
{
	static result begun;
	setup of = standard;
	of.network = TIED;
	of.in = 13;
	of.mid = 10;
	compare_all(r, &of);
	/* Every row moves: the softmax has a gradient for each. */
	training t;
	open_device();
	const setup zero3 = with(of, "zero3");
	open_training(&t, r, &zero3, device, stream);
	collect(&t, &begun);
	close_training(&t);
	for (int row = 0; row < 13; row++) {
		float change = 0;
		for (int k = 0; k < 10; k++)
			change += fabsf(got.values[row * 10 + k] - begun.values[row * 10 + k]);
		REQUIRE(change > 1e-3f);
	}
}

/* 7: four runs of a step, reduced each, or at the end; sums of shards. */
static void runs(struct rank *r)
{
	setup of = standard;
	of.runs = 4;
	compare_all(r, &of);
	of.locally = true;
	compare_all(r, &of);
}

/* 8: two copies of two shards are four ranks; units whose shards are still being added up do not get the next one's. */
static void hybrid(struct rank *r)
{
	setup of = standard;
	of.network = WIDE;
	const setup ddp = with(of, "ddp");
	train(r, &ddp, &right);
	of.shard = 2;
	for (int i = 0; i < 3; i++)
		for (int late = 0; late < 2; late++) {
			setup one = with(of, sharding[i]);
			one.late = late;
			train(r, &one, &got);
			expect_close(&got, &right, 2e-6f);
		}
	of.runs = 3;
	const setup many = with(of, "ddp");
	train(r, &many, &right);
	of = with(of, "zero3");
	train(r, &of, &got);
	expect_close(&got, &right, 2e-6f);
}

/* 11: gathers of 16 bits, sums in F32: the same as ddp with such copies, and not the same as without. */
static void half(struct rank *r)
{
	setup of = standard;
	of.bf16 = true;
	of.clip = 0;
	const setup ddp = with(of, "ddp");
	train(r, &ddp, &right);
	for (int i = 0; i < 3; i++) {
		const setup one = with(of, sharding[i]);
		train(r, &one, &got);
		expect_close(&got, &right, r->size == 2 ? 0 : 1e-2f);
	}
	of.bf16 = false;
	const setup wide = with(of, "zero3");
	train(r, &wide, &got);
	REQUIRE(memcmp(got.values, right.values, sizeof(got.values)) != 0);
}

/* 12: norms are those of all gradients; an infinite one makes finite gradients 0 and its own NaN, on all ranks alike.
 */
static void norms_of(struct rank *r, dtrain_norm type)
{
	setup of = standard, ddp = with(of, "ddp");
	of.clip = ddp.clip = INFINITY;
	of.norm = ddp.norm = type;
	train(r, &ddp, &right);
	REQUIRE(right.norm > 0);
	for (int i = 0; i < 3; i++) {
		const setup one = with(of, sharding[i]);
		train(r, &one, &got);
		REQUIRE(fabsf(got.norm - right.norm) <= 1e-5f * right.norm);
	}
	of.clip = ddp.clip = 0.05;
	of.network = ddp.network = BAD;
	train(r, &ddp, &right);
	for (int i = 0; i < 3; i++) {
		const setup one = with(of, sharding[i]);
		train(r, &one, &got);
		for (int k = 0; k < got.count; k++)
			REQUIRE(isnan(got.values[k]) == isnan(right.values[k]));
	}
}

static void norms(struct rank *r)
{
	for (int type = DTRAIN_NORM_2; type <= DTRAIN_NORM_MAX; type++)
		norms_of(r, (dtrain_norm)type);
}

/* The same on streams, with a device whose memory the host does not see. */
static void streams(struct rank *r)
{
	struct place place;
	setenv("DTRAIN_FAR_DELAY_US", "200", 1);
	open_place(r, &place);
	setup of = standard;
	of.network = WIDE;
	of.late = true;
	const setup ddp = with(of, "ddp");
	train_on(r, &ddp, place.device, place.stream, &right);
	for (int i = 0; i < 3; i++) {
		setup one = with(of, sharding[i]);
		train_on(r, &one, place.device, place.stream, &got);
		expect_close(&got, &right, 2e-6f);
		one.shard = r->size == 4 ? 2 : 0;
		one.runs = 2;
		train_on(r, &one, place.device, place.stream, &got);
	}
	close_place(r, &place);
}

/* 27: optimizers that need whole parameters; shards begin and end between these. */
static void whole_parameters(struct rank *r)
{
	static const char *const kinds[] = {"lars", "lamb", "muon"};
	for (int i = 0; i < 3; i++)
		for (int network = 0; network < 2; network++) {
			setup of = standard;
			of.kind = kinds[i];
			of.network = network ? WIDE : PLAIN;
			of.in_one_unit = network == 1;
			of.clip = 0;
			of.bf16 = r->size == 2 && i == 1;
			compare_all(r, &of);
		}
}

/* What is refused, and what a program of sharded parameters needs. */
static void misuses(struct rank *r)
{
	setup of = with(standard, "zero3");
	training t;
	open_device();
	open_training(&t, r, &of, device, stream);
	REQUIRE(!dtrain_params_values(t.params) && !dtrain_params_grads(t.params));
	REQUIRE(dtrain_sync_is_sharded(t.sync) && dtrain_sync_gathers_always(t.sync));
	static const char *const whole[] = {"lars", "lamb", "muon"};
	for (int i = 0; i < 3; i++) {
		dtrain_optimizer *optimizer = NULL;
		dtrain_optimizer_options options;
		dtrain_optimizer_options_init(&options);
		options.kind = whole[i];
		REQUIRE(dtrain_optimizer_create(t.params, &options, &optimizer, &err) == BETON_UNSUPPORTED);
		REQUIRE(strstr(err.message, "of which this rank has only a part") && strstr(err.message, whole[i]));
	}
	dtrain_sync_stop(t.sync);
	REQUIRE(dtrain_program_run(t.program, stream, false, &err) == BETON_STATE);
	REQUIRE(strstr(err.message, "before the sync is started"));
	MUST(dtrain_sync_start(t.sync, &err));
	fill(&t, 0, 0);
	MUST(dtrain_program_run(t.program, stream, false, &err));
	close_training(&t);
}

static const struct {
	const char *name;
	void (*run)(struct rank *r);
} modes[] = {{"shapes", shapes},
	     {"gathering", gathering},
	     {"traffic", traffic},
	     {"delays", delays},
	     {"uses", uses},
	     {"tied", tied},
	     {"runs", runs},
	     {"hybrid", hybrid},
	     {"half", half},
	     {"norms", norms},
	     {"misuses", misuses},
	     {"whole", whole_parameters},
	     {"no-group-streams", streams}};

static int rank_main(struct rank *r)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(r->mode, modes[i].name) == 0) {
			modes[i].run(r);
			return 0;
		}
	return 9;
}

/* ---- the tests ---- */

static void case_1_2_any_shape_any_world(void **state)
{
	(void)state;
	static const int sizes[] = {1, 2, 5};
	for (int i = 0; i < 3; i++)
		run_ranks("shapes", sizes[i]);
}

static void case_3_gathering_changes_no_bit(void **state)
{
	(void)state;
	run_ranks("gathering", 3);
}

static void case_4_late_ranks_change_no_bit(void **state)
{
	(void)state;
	run_ranks("delays", 3);
}

static void case_5_units_used_twice_frozen_unused(void **state)
{
	(void)state;
	run_ranks("uses", 2);
	run_ranks("uses", 3);
}

static void case_6_tied_embedding(void **state)
{
	(void)state;
	run_ranks("tied", 2);
	run_ranks("tied", 4);
}

static void case_7_runs_of_a_step(void **state)
{
	(void)state;
	run_ranks("runs", 2);
	run_ranks("runs", 3);
}

static void case_8_hybrid(void **state)
{
	(void)state;
	run_ranks("hybrid", 4);
	run_ranks("hybrid", 6);
}

static void case_10_traffic_and_memory(void **state)
{
	(void)state;
	run_ranks("traffic", 2);
	run_ranks("traffic", 3);
}

static void case_11_16_bit_gathers(void **state)
{
	(void)state;
	run_ranks("half", 2);
	run_ranks("half", 3);
}

static void case_12_norms(void **state)
{
	(void)state;
	run_ranks("norms", 2);
	run_ranks("norms", 3);
}

static void case_27_whole_parameters(void **state)
{
	(void)state;
	run_ranks("whole", 2);
	run_ranks("whole", 3);
}

static void streams_are_ordered(void **state)
{
	(void)state;
	run_ranks("no-group-streams", 2);
	run_ranks("no-group-streams", 4);
}

static void misuse_is_named(void **state)
{
	(void)state;
	run_ranks("misuses", 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(case_1_2_any_shape_any_world),
		cmocka_unit_test(case_3_gathering_changes_no_bit),
		cmocka_unit_test(case_4_late_ranks_change_no_bit),
		cmocka_unit_test(case_5_units_used_twice_frozen_unused),
		cmocka_unit_test(case_6_tied_embedding),
		cmocka_unit_test(case_7_runs_of_a_step),
		cmocka_unit_test(case_8_hybrid),
		cmocka_unit_test(case_10_traffic_and_memory),
		cmocka_unit_test(case_11_16_bit_gathers),
		cmocka_unit_test(case_12_norms),
		cmocka_unit_test(case_27_whole_parameters),
		cmocka_unit_test(streams_are_ordered),
		cmocka_unit_test(misuse_is_named),
	};
	int status;
	return is_rank(argc, argv, rank_main, &status) ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
