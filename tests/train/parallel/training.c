/* SPDX-License-Identifier: Apache-2.0 */
#include "training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/params.h"
#include "core/program.h"
#include "parallel/data/sync.h"

enum { SEED = 11 };

static beton_error err;

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
	dtrain_graph_step_metric(graph, loss, 0);
	dtrain_graph_backward(graph, loss);
	if (job->deferred)
		dtrain_graph_defer_weights(graph);
	MUST(dtrain_sync_compile(t->sync, &graph, &t->program, &err));
	const dtrain__schedule *schedule = &t->program->schedule;
	bool has_deferred = false;
	for (int32_t i = schedule->phase_ends[1]; i < schedule->phase_ends[2]; i++)
		has_deferred = has_deferred || schedule->steps[i].kind == DTRAIN__RUN;
	REQUIRE(has_deferred == job->deferred);
	for (int i = 0; i < job->micro_batches && job->order; i++)
		MUST(dtrain_instance_create(t->program, &t->instances[i], &err));
}

/* ---- one training ---- */

void open_training(training *t, struct rank *r, const setup *job, dtrain_device *on, dtrain_stream *put_on)
{
	*t = (training){.r = r, .job = job, .device = on, .stream = put_on};
	t->api = dtrain_device_get_api(on);
	dtrain_group *world = job->within ? job->within : r->group;
	int tensor = job->tensor ? job->tensor : 1, ranks = dtrain_group_size(world) / tensor;
	const bool sharded = strcmp(job->strategy, "ddp") != 0;
	int shard = !sharded ? 1 : job->shard ? job->shard : ranks;
	const dtrain_mesh_axis axes[] = {
		{job->context ? "context" : "replicate", ranks / shard}, {"shard", shard}, {"tensor", tensor}};
	dtrain_sync_options sync;
	dtrain_sync_options_init(&sync);
	sync.strategy = job->strategy;
	sync.accumulates = job->micro_batches > 1;
	sync.deterministic_shards = job->in_parts ? ranks * job->micro_batches : 0;
	sync.compression = job->compression;
	sync.sum_micro_batches_locally = job->locally;
	sync.keep_gathered = job->keep;
	sync.prefetch_bytes = job->prefetch;
	sync.whole_params = job->kind != NULL;
	if (job->in_one_unit)
		sync.unit_bytes = 1 << 20;
	MUST(dtrain_mesh_create(world, axes, 3, &t->mesh, &err));
	t->rank = dtrain_group_rank(dtrain_mesh_gradient_group(t->mesh));
	t->ranks = dtrain_group_size(dtrain_mesh_gradient_group(t->mesh));
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
	options.grad_divisor = (double)t->ranks * job->micro_batches;
	options.num_groups = 2;
	options.group_of = groups;
	options.add = dtrain_sync_is_sharded(t->sync) ? dtrain_sync_add_shards : NULL;
	options.add_model = dtrain_sync_add_model;
	options.gather = dtrain_sync_gather_axis;
	options.add_context = t->sync;
	for (int i = 0; i < dtrain_params_count(t->params); i++)
		groups[i] = dtrain_params_at(t->params, i)->frozen;
	MUST(dtrain_optimizer_create(t->params, &options, &t->optimizer, &err));
	MUST(dtrain_optimizer_set(t->optimizer, 1, "lr_scale", 0, &err));
	MUST(dtrain_optimizer_set(t->optimizer, 1, "weight_decay", 0, &err));
}

void close_training(training *t)
{
	dtrain_sync_stop(t->sync);
	dtrain_optimizer_destroy(&t->optimizer);
	for (int i = 0; i < t->job->micro_batches; i++)
		dtrain_instance_destroy(&t->instances[i]);
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
	void *to = t->filled ? dtrain_instance_data(t->filled, tensor) : dtrain_program_data(t->program, tensor);
	MUST(t->api->copy(t->stream, to, from, bytes, DTRAIN_HOST_TO_DEVICE, &err));
	MUST(t->api->stream_synchronize(t->stream, &err));
}

/* Sample i of a step's whole batch. */
void fill(training *t, int step, int micro_batch)
{
	const setup *job = t->job;
	int64_t labels[BATCH], tokens[BATCH];
	float x[BATCH * 64];
	for (int64_t i = 0; i < BATCH; i++) {
		int64_t sample =
			((int64_t)step * job->micro_batches + micro_batch) * BATCH * t->ranks + t->rank * BATCH + i;
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
void collect(const training *t, result *out)
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

static void run_phase(training *t, int step, char phase, int micro_batch)
{
	unsigned phases = phase == 'F'       ? DTRAIN_FORWARD
			  : phase == 'W'     ? DTRAIN_WEIGHTS
			  : t->job->deferred ? DTRAIN_BACKWARD
					     : DTRAIN_BACKWARD | DTRAIN_WEIGHTS;
	t->filled = t->instances[micro_batch];
	if (phase == 'F')
		fill(t, step, micro_batch);
	be_late(t, step, micro_batch);
	MUST(dtrain_instance_run(t->instances[micro_batch], t->stream, phases, micro_batch, t->job->micro_batches,
				 &err));
}

static void run_step(training *t, int step, result *out)
{
	float figure, clip[DTRAIN_CLIPS];
	for (int micro_batch = 0; micro_batch < t->job->micro_batches && !t->job->order; micro_batch++) {
		fill(t, step, micro_batch);
		be_late(t, step, micro_batch);
		if (micro_batch == 0 && t->job->restarts)
			MUST(dtrain_program_run(t->program, t->stream, 0, t->job->micro_batches, &err));
		MUST(dtrain_program_run(t->program, t->stream, micro_batch, t->job->micro_batches, &err));
	}
	for (const char *at = t->job->order; at && *at; at += 2)
		run_phase(t, step, at[0], at[1] - '0');
	be_late(t, step, 2);
	MUST(dtrain_optimizer_step(t->optimizer, 0.01, t->stream, &err));
	MUST(t->api->copy(t->stream, &figure, dtrain_params_step_metrics(t->params), sizeof(figure),
			  DTRAIN_DEVICE_TO_HOST, &err));
	if (t->job->clip > 0)
		MUST(t->api->copy(t->stream, clip, dtrain_optimizer_clip(t->optimizer), sizeof(clip),
				  DTRAIN_DEVICE_TO_HOST, &err));
	MUST(t->api->stream_synchronize(t->stream, &err));
	out->losses[step] = figure / (float)(t->ranks * t->job->micro_batches);
	out->norm = t->job->clip > 0 ? clip[DTRAIN_CLIP_NORM] : 0;
}

void train_on(struct rank *r, const setup *job, dtrain_device *on, dtrain_stream *put_on, result *out)
{
	training t;
	dtrain_program_info facts = {.struct_size = sizeof(facts)};
	memset(out, 0, sizeof(*out));
	open_training(&t, r, job, on, put_on);
	/* The group of all ranks has a history of earlier trainings. */
	int64_t before = moved(t.sync->shards, "reduce_scatter");
	for (int step = 0; step < STEPS; step++)
		run_step(&t, step, out);
	out->gathered = moved(t.sync->gathers, "all_gather");
	out->scattered = moved(t.sync->shards, "reduce_scatter") - before;
	dtrain_program_get_info(t.program, &facts);
	out->arena = facts.arena_bytes;
	out->kept = (size_t)(t.params->values_count + t.params->grads_count) * sizeof(float);
	collect(&t, out);
	close_training(&t);
}

/* The group of all ranks keeps the first device that it is used with. */
static dtrain_device *device;
static dtrain_stream *stream;

void open_device(dtrain_device **out, dtrain_stream **out_stream)
{
	if (!device) {
		MUST(dtrain_device_open("ref", NULL, &device, &err));
		MUST(dtrain_device_get_api(device)->stream_create(device, &stream, &err));
	}
	*out = device;
	*out_stream = stream;
}

void train(struct rank *r, const setup *job, result *out)
{
	dtrain_device *on;
	dtrain_stream *put_on;
	open_device(&on, &put_on);
	train_on(r, job, on, put_on, out);
}

setup standard_setup(void)
{
	return (setup){.in = 7, .mid = 15, .out = 3, .micro_batches = 1, .clip = 0.05, .prefetch = 64 << 20};
}

setup with(setup of, const char *strategy)
{
	of.strategy = strategy;
	return of;
}

void expect_close(const result *a, const result *b, float bound)
{
	REQUIRE(a->count == b->count && a->count > 0);
	for (int i = 0; i < STEPS; i++)
		REQUIRE(fabsf(a->losses[i] - b->losses[i]) <= bound * fabsf(b->losses[i]));
	for (int i = 0; i < a->count; i++)
		REQUIRE(fabsf(a->values[i] - b->values[i]) <= bound);
}
