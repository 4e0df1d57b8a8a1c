/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_step_profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bench_step_limits.h"
#include "common/error.h"
#include "common/system.h"
#include "core/params.h"
#include "core/program.h"
#include "optim/optimizer.h"

enum { WARM_UP = 2, UPDATES = 3 };
/* The timed products are large enough for all multiprocessors of a GPU, and long enough for its clock to
 * settle. */
enum { PRODUCT_SIDE = 4096, PRODUCT_MS = 300 };

/* The ops that are run and timed. There is one event more than ops: each event ends one op and begins the next. */
typedef struct timeline {
	bench_job *job;
	const dtrain__update_ops *updates[UPDATES]; /* of the optimizer, in order */
	int num_updates;                            /* in all of them */
	int count;  /* of the program's nodes, the ops of the update, and the compute copies if there are any */
	bool casts; /* there are */
	dtrain_event **events;
	double *samples; /* of op i in step s: [i * steps + s]; after the ops, host times */
} timeline;

/* ---- which ops ---- */

static void append_shape(char *text, size_t size, const char *before, const dtrain_shape *shape)
{
	bt_append(text, size, "%s", before);
	for (int i = 0; i < shape->ndim; i++)
		bt_append(text, size, "%s%" PRId64, i ? "x" : "", shape->dim[i]);
	if (shape->ndim == 0)
		bt_append(text, size, "1");
}

static void describe_shapes(bench_profile_op *op, const dtrain_shape *const *inputs, int num_inputs,
			    const dtrain_shape *output)
{
	op->shape[0] = '\0';
	append_shape(op->shape, sizeof(op->shape), "", inputs[0]);
	if (num_inputs > 1)
		append_shape(op->shape, sizeof(op->shape), ", ", inputs[1]);
	append_shape(op->shape, sizeof(op->shape), " > ", output);
}

static const char *name_of_tensor(const dtrain_graph *graph, dtrain_tensor index)
{
	const dtrain__tensor *tensor = &graph->tensors[dtrain__graph_original(graph, index)];
	if (tensor->role == DTRAIN__PARAM || tensor->role == DTRAIN__GRAD)
		return dtrain_params_at(graph->params, tensor->index)->name;
	return tensor->role == DTRAIN__BUFFER ? dtrain_params_buffer_at(graph->params, tensor->index)->name : NULL;
}

static void describe_node(bench_profile_op *op, const dtrain_program *program, int index)
{
	const dtrain_graph *graph = program->graph;
	const dtrain__node *node = &graph->nodes[index];
	const dtrain_shape *inputs[2] = {0};
	const char *name = NULL;
	for (int i = 0; i < node->num_inputs && !name; i++)
		name = name_of_tensor(graph, node->inputs[i]);
	for (int i = 0; i < node->num_outputs && !name; i++)
		name = name_of_tensor(graph, node->outputs[i]);
	if (name) {
		const char *dot = strrchr(name, '.');
		snprintf(op->name, sizeof(op->name), "%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
	}
	for (int i = 0; i < node->num_inputs && i < 2; i++)
		inputs[i] = &graph->tensors[node->inputs[i]].shape;
	op->kind = node->kind;
	op->cost = program->steps[index].cost;
	describe_shapes(op, inputs, node->num_inputs, &graph->tensors[node->outputs[0]].shape);
}

static void describe_update(bench_profile_op *op, const dtrain__update_op *update)
{
	const dtrain_shape *inputs[] = {&update->desc.inputs[0].shape, &update->desc.inputs[1].shape};
	op->kind = update->desc.kind;
	op->cost = dtrain__op_cost_of(&update->desc);
	describe_shapes(op, inputs, update->desc.num_inputs, &update->desc.outputs[0].shape);
}

static void describe_copies(bench_profile_op *op, const dtrain_params *params)
{
	dtrain_op_desc cast;
	dtrain__copies_describe(params, &cast);
	op->kind = cast.kind;
	op->cost = dtrain__op_cost_of(&cast);
	describe_shapes(op, (const dtrain_shape *const[]){&cast.inputs[0].shape}, 1, &cast.outputs[0].shape);
}

/* The list of an op of the optimizer. *index: from that in all lists to that in this one. */
static const dtrain__update_ops *find_update(const timeline *t, int *index)
{
	int list = 0;
	for (; list < UPDATES - 1 && *index >= t->updates[list]->count; list++)
		*index -= t->updates[list]->count;
	return t->updates[list];
}

static int open_timeline(timeline *t, bench_job *job, bench_profile *out, beton_error *err)
{
	const dtrain_program *program = job->engine.train.program;
	int nodes = program->graph->num_nodes;
	*t = (timeline){.job = job};
	t->updates[0] = &job->optimizer->before;
	t->updates[1] = &job->optimizer->update;
	t->updates[2] = &job->optimizer->after;
	for (int i = 0; i < UPDATES; i++)
		t->num_updates += t->updates[i]->count;
	t->casts = dtrain_params_copy_bytes(job->engine.params) > 0;
	t->count = out->count = nodes + t->num_updates + t->casts;
	out->ops = calloc((size_t)t->count, sizeof(*out->ops));
	t->events = calloc((size_t)t->count + 1, sizeof(dtrain_event *));
	t->samples = calloc(((size_t)t->count + 1) * job->options->steps, sizeof(double));
	if (!out->ops || !t->events || !t->samples)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the times of %d ops", t->count);
	for (int i = 0; i < nodes; i++)
		describe_node(&out->ops[i], program, i);
	for (int i = 0; i < t->num_updates; i++) {
		int place = i;
		const dtrain__update_ops *of = find_update(t, &place);
		describe_update(&out->ops[nodes + i], &of->ops[place]);
	}
	if (t->casts)
		describe_copies(&out->ops[t->count - 1], job->engine.params);
	int status = BETON_OK;
	for (int i = 0; i <= t->count && status == BETON_OK; i++)
		status = job->engine.api->event_create(job->engine.device, &t->events[i], err);
	return status;
}

static void close_timeline(timeline *t)
{
	for (int i = 0; t->events && i <= t->count; i++)
		if (t->events[i])
			t->job->engine.api->event_destroy(t->events[i]);
	free(t->events);
	free(t->samples);
}

/* ---- timing ---- */

static int put_op(const timeline *t, int index, beton_error *err)
{
	const bench_job *job = t->job;
	const dtrain_program *program = job->engine.train.program;
	int nodes = program->graph->num_nodes;
	if (index < nodes)
		return dtrain__instance_run_node(program->first, index, job->engine.stream, err);
	if (t->casts && index == t->count - 1)
		return dtrain_params_changed(job->engine.params, job->engine.stream, err);
	int place = index - nodes;
	const dtrain__update_ops *of = find_update(t, &place);
	const dtrain__update_op *update = &of->ops[place];
	return job->engine.api->op_run(update->op, job->engine.stream, update->operands, of->workspace, err);
}

static int run_step(const timeline *t, double *host_ms, beton_error *err)
{
	const bench_job *job = t->job;
	int status = dtrain_optimizer_set_rate(job->optimizer, 1e-3, job->engine.stream, err);
	uint64_t began = bt_now_ns();
	if (status == BETON_OK)
		status = job->engine.api->event_mark(t->events[0], job->engine.stream, err);
	for (int i = 0; i < t->count && status == BETON_OK; i++) {
		status = put_op(t, i, err);
		if (status == BETON_OK)
			status = job->engine.api->event_mark(t->events[i + 1], job->engine.stream, err);
	}
	*host_ms = (double)(bt_now_ns() - began) * 1e-6;
	return status == BETON_OK ? job->engine.api->stream_synchronize(job->engine.stream, err) : status;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double median(double *samples, size_t count)
{
	qsort(samples, count, sizeof(double), by_size);
	return samples[count / 2];
}

static int time_ops(timeline *t, bench_profile *out, beton_error *err)
{
	size_t steps = t->job->options->steps;
	double *host = t->samples + (size_t)t->count * steps, ignored;
	int status = BETON_OK;
	for (int i = 0; i < WARM_UP && status == BETON_OK; i++)
		status = run_step(t, &ignored, err);
	for (size_t s = 0; s < steps && status == BETON_OK; s++) {
		status = run_step(t, &host[s], err);
		for (int i = 0; i < t->count && status == BETON_OK; i++)
			status = t->job->engine.api->event_elapsed_ms(t->events[i], t->events[i + 1],
								      &t->samples[(size_t)i * steps + s], err);
	}
	if (status != BETON_OK)
		return status;
	for (int i = 0; i < t->count; i++)
		out->ops[i].ms = median(t->samples + (size_t)i * steps, steps);
	out->launch_ms = t->job->engine.caps.asynchronous ? median(host, steps) : 0;
	return BETON_OK;
}

/* ---- limits ---- */

/* If the device has no limit for an op's products, only its bytes count. */
static double limit_ms(const bench_profile *profile, const dtrain__op_cost *cost)
{
	double memory = profile->bandwidth > 0 ? cost->bytes / profile->bandwidth * 1e3 : 0;
	double flops = profile->sustained > 0 ? profile->sustained : profile->flops;
	double products = flops > 0 ? cost->flops / flops * 1e3 : 0;
	return memory > products ? memory : products;
}

/* A limit that is not given is the device's own figure, or measured. A GPU's figure for products is that of its highest
 * clock, which it does not keep. */
static int find_limits(bench_job *job, double bandwidth, double flops, bench_profile *out, beton_error *err)
{
	double own = job->engine.caps.flops[job->engine.dtype];
	out->bandwidth = bandwidth > 0 ? bandwidth : job->engine.caps.bandwidth;
	out->flops = flops > 0 ? flops : own;
	int status = out->bandwidth > 0 ? BETON_OK : bench_measure_bandwidth(job, &out->bandwidth, err);
	if (status == BETON_OK && flops <= 0 && own > 0)
		status = bench_measure_products(job, PRODUCT_SIDE, PRODUCT_MS, &out->sustained, err);
	return status;
}

int bench_profile_steps(bench_job *job, double bandwidth, double flops, bench_profile *out, beton_error *err)
{
	timeline t;
	*out = (bench_profile){.ops = NULL};
	int status = find_limits(job, bandwidth, flops, out, err);
	if (status != BETON_OK)
		return status;
	status = open_timeline(&t, job, out, err);
	if (status == BETON_OK)
		status = time_ops(&t, out, err);
	close_timeline(&t);
	for (int i = 0; i < out->count && out->ops; i++)
		out->ops[i].limit_ms = limit_ms(out, &out->ops[i].cost);
	return status;
}

void bench_profile_free(bench_profile *profile)
{
	free(profile->ops);
	*profile = (bench_profile){0};
}

/* ---- output ---- */

/* The sum of one kind of op, or of all. */
typedef struct sum {
	dtrain_op_kind kind;
	int count;
	double ms, limit_ms;
	dtrain__op_cost cost;
} sum;

static void add_op(sum *to, const bench_profile_op *op)
{
	to->count++;
	to->ms += op->ms;
	to->limit_ms += op->limit_ms;
	to->cost.bytes += op->cost.bytes;
	to->cost.flops += op->cost.flops;
}

static int slowest_sum_first(const void *a, const void *b)
{
	double x = ((const sum *)a)->ms, y = ((const sum *)b)->ms;
	return x < y ? 1 : x > y ? -1 : 0;
}

static int slowest_op_first(const void *a, const void *b)
{
	double x = ((const bench_profile_op *)a)->ms, y = ((const bench_profile_op *)b)->ms;
	return x < y ? 1 : x > y ? -1 : 0;
}

static sum add_kinds(const bench_profile *profile, sum kinds[DTRAIN_OP_KIND_COUNT])
{
	sum all = {0};
	for (int k = 0; k < DTRAIN_OP_KIND_COUNT; k++)
		kinds[k] = (sum){.kind = (dtrain_op_kind)k};
	for (int i = 0; i < profile->count; i++) {
		add_op(&kinds[profile->ops[i].kind], &profile->ops[i]);
		add_op(&all, &profile->ops[i]);
	}
	qsort(kinds, DTRAIN_OP_KIND_COUNT, sizeof(*kinds), slowest_sum_first);
	return all;
}

static double share(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

/* Figures of an op or a sum. */
static void print_figures(double ms, double all_ms, const dtrain__op_cost *cost, double limit)
{
	printf("%9.3f %5.1f%% %10.2f %10.3f %8.1f%%", ms, 100 * share(ms, all_ms), cost->bytes * 1e-6,
	       cost->flops * 1e-9, 100 * share(limit, ms));
}

static void print_kinds(const sum *kinds, const sum *all)
{
	printf("\n       ms  share         MB      GFLOP of limit  ops kind\n");
	for (int k = 0; k < DTRAIN_OP_KIND_COUNT && kinds[k].count; k++) {
		print_figures(kinds[k].ms, all->ms, &kinds[k].cost, kinds[k].limit_ms);
		printf(" %4d %s\n", kinds[k].count, dtrain__op_name(kinds[k].kind));
	}
	print_figures(all->ms, all->ms, &all->cost, all->limit_ms);
	printf(" %4d all\n", all->count);
}

void bench_profile_print(bench_profile *profile)
{
	sum kinds[DTRAIN_OP_KIND_COUNT], all = add_kinds(profile, kinds);
	qsort(profile->ops, (size_t)profile->count, sizeof(*profile->ops), slowest_op_first);
	printf("\nop by op: %.3f ms", all.ms);
	if (profile->launch_ms > 0)
		printf(", launched by the host in %.3f ms", profile->launch_ms);
	printf("; limits: %.0f GB/s", profile->bandwidth * 1e-9);
	if (profile->flops > 0)
		printf(", %.0f GFLOP/s", profile->flops * 1e-9);
	if (profile->sustained > 0)
		printf(" at the highest clock, %.0f kept by large products", profile->sustained * 1e-9);
	printf("\n       ms  share         MB      GFLOP of limit kind and shape\n");
	for (int i = 0; i < profile->count; i++) {
		const bench_profile_op *op = &profile->ops[i];
		print_figures(op->ms, all.ms, &op->cost, op->limit_ms);
		printf(" %s %s%s%s\n", dtrain__op_name(op->kind), op->name, *op->name ? " " : "", op->shape);
	}
	print_kinds(kinds, &all);
}

static json_t *figures_json(double ms, const dtrain__op_cost *cost, double limit)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:f}", "ms", ms, "bytes", cost->bytes, "flops", cost->flops, "limit_ms",
			 limit, "share_of_limit", share(limit, ms));
}

json_t *bench_profile_json(const bench_profile *profile)
{
	sum kinds[DTRAIN_OP_KIND_COUNT], all = add_kinds(profile, kinds);
	json_t *ops = json_array(), *sums = json_array();
	int failed = 0;
	for (int i = 0; i < profile->count; i++) {
		const bench_profile_op *op = &profile->ops[i];
		json_t *object = figures_json(op->ms, &op->cost, op->limit_ms);
		failed |= json_object_set_new(object, "kind", json_string(dtrain__op_name(op->kind)));
		failed |= json_object_set_new(object, "name", json_string(op->name));
		failed |= json_object_set_new(object, "shape", json_string(op->shape));
		failed |= json_array_append_new(ops, object);
	}
	for (int k = 0; k < DTRAIN_OP_KIND_COUNT && kinds[k].count; k++) {
		json_t *object = figures_json(kinds[k].ms, &kinds[k].cost, kinds[k].limit_ms);
		failed |= json_object_set_new(object, "kind", json_string(dtrain__op_name(kinds[k].kind)));
		failed |= json_object_set_new(object, "ops", json_integer(kinds[k].count));
		failed |= json_array_append_new(sums, object);
	}
	json_t *result =
		json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "ms", all.ms, "launch_ms",
			  profile->launch_ms, "bytes", all.cost.bytes, "flops", all.cost.flops, "limit_gb_per_s",
			  profile->bandwidth * 1e-9, "limit_gflops", profile->flops * 1e-9, "sustained_gflops",
			  profile->sustained * 1e-9, "limit_ms", all.limit_ms, "ops", ops, "kinds", sums);
	if (!failed && result)
		return result;
	json_decref(result);
	return NULL;
}
