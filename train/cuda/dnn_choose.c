/* SPDX-License-Identifier: Apache-2.0
 *
 * Which engine runs an op. Of those that cuDNN proposes, and that run when they are tried, some are timed, on memory of
 * their own; the fastest is kept in the device's store. In deterministic mode nothing is timed, and nothing timed is
 * used: the heuristics' first that runs is the same one always.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms.h"
#include "algorithms_bench.h"
#include "common/error.h"
#include "common/system.h"
#include "dnn_run.h"

/* Most that are timed, and how long engines may take to be made for it: those that are compiled need a second
 * each. The heuristics know well enough what is good for the fastest to be among their first. */
enum { MAX_CANDIDATES = 10 };
/* After as many that do not work, and all that time, there is none: where a driver loads no compiled engine at all,
 * each of some thirty fails in its turn. */
enum { MAX_FAILURES = 4 };
static const uint64_t MAX_PLANNING_NS = 1000000000;

typedef struct candidates {
	dnn_graph *graphs[DNN_MAX_VARIANTS];
	int num_graphs;
	dnn_plan *plans[MAX_CANDIDATES];
	int num_plans;
} candidates;

/* All but the plan that is kept, and its graph. */
static void clear(candidates *all, const dnn_plan *kept)
{
	for (int i = 0; i < all->num_plans; i++)
		if (all->plans[i] != kept)
			dnn_plan_destroy(all->plans[i]);
	for (int i = 0; i < all->num_graphs; i++)
		if (!kept || all->graphs[i] != kept->graph)
			dnn_graph_destroy(all->graphs[i]);
}

static int variant_of(const candidates *all, const dnn_plan *plan)
{
	for (int i = 0; i < all->num_graphs; i++)
		if (all->graphs[i] == plan->graph)
			return i;
	return -1;
}

/* The graphs of the op that cuDNN accepts. */
static int find_graphs(const dnn_target *target, const dtrain_op_desc *desc, candidates *all, beton_error *err)
{
	int count = 0, status = dnn_op_graphs(desc, all->graphs, &count, err);
	if (status != BETON_OK)
		return status;
	all->num_graphs = count;
	for (int i = 0; i < count && status == BETON_OK; i++)
		status = dnn_graph_finish(all->graphs[i], target, err);
	return status;
}

/* ---- timing ---- */

typedef struct timing {
	dtrain_device *device;
	const candidates *all;
	cuda_bench bench;
	dnn_pack pack;
	size_t offsets[DNN_MAX_TENSORS]; /* by operand; the operands of all graphs are the same */
	size_t workspace;
	int index;
} timing;

static int run_candidate(void *context, cudaStream_t stream, beton_error *err)
{
	timing *t = context;
	void *addresses[DNN_MAX_TENSORS];
	for (int i = 0; i < DNN_MAX_TENSORS; i++)
		addresses[i] = (char *)t->bench.memory + t->offsets[i];
	return dnn_plan_run(t->all->plans[t->index], &t->pack, t->device->dnn, stream, addresses,
			    (char *)t->bench.memory + t->workspace, err);
}

static int time_candidate(void *context, int index, double *ms, beton_error *err)
{
	timing *t = context;
	if (t->index != index)
		dnn_pack_clear(&t->pack);
	t->index = index;
	return cuda_bench_time(&t->bench, run_candidate, t, ms, err);
}

/* Memory for the operands, each as large as any of the graphs has it, and for the largest workspace. */
static size_t lay_out(timing *t)
{
	const candidates *all = t->all;
	size_t bytes[DNN_MAX_TENSORS] = {0}, total = 0, workspace = 0;
	for (int i = 0; i < all->num_graphs; i++)
		for (int k = 0; k < all->graphs[i]->num_tensors; k++) {
			size_t *most = &bytes[all->graphs[i]->tensors[k].operand];
			if (all->graphs[i]->tensors[k].bytes > *most)
				*most = all->graphs[i]->tensors[k].bytes;
		}
	for (int i = 0; i < all->num_plans; i++)
		if (all->plans[i]->workspace_bytes > workspace)
			workspace = all->plans[i]->workspace_bytes;
	for (int i = 0; i < DNN_MAX_TENSORS; i++)
		t->offsets[i] = cuda_reserve(&total, bytes[i]);
	t->workspace = cuda_reserve(&total, workspace);
	return total;
}

/* Indexes and masks stay 0: an index out of its window would lead outside of the memory. */
static int fill_operands(timing *t, beton_error *err)
{
	const dnn_graph *graph = t->all->graphs[0];
	int status = BETON_OK;
	for (int i = 0; i < graph->num_tensors && status == BETON_OK; i++) {
		cudnnDataType_t type = graph->tensors[i].type;
		if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_HALF && type != CUDNN_DATA_BFLOAT16)
			continue;
		status = cuda_bench_fill(&t->bench, t->offsets[graph->tensors[i].operand], graph->tensors[i].bytes,
					 type == CUDNN_DATA_FLOAT  ? DTRAIN_F32
					 : type == CUDNN_DATA_HALF ? DTRAIN_F16
								   : DTRAIN_BF16,
					 false, err);
	}
	return status;
}

/* False: there is no memory for it. */
static bool open_timing(timing *t)
{
	if (cuda_bench_open(&t->bench, lay_out(t), NULL) != BETON_OK)
		return false;
	if (fill_operands(t, NULL) == BETON_OK)
		return true;
	cuda_bench_close(&t->bench);
	return false;
}

static void close_timing(timing *t)
{
	dnn_pack_clear(&t->pack);
	(void)cudnnSetStream(t->device->dnn, NULL); /* the handle must not keep the one that goes */
	cuda_bench_close(&t->bench);
}

/* Runs a plan, and captures it, since one that could be made may not work all the same. One that there is no memory to
 * try counts as working. */
static int try_plan(dtrain_device *device, dnn_plan *plan, beton_error *err)
{
	candidates one = {.graphs = {plan->graph}, .num_graphs = 1, .plans = {plan}, .num_plans = 1};
	timing t = {.device = device, .all = &one};
	if (!open_timing(&t))
		return BETON_OK;
	int status = cuda_bench_try(&t.bench, run_candidate, &t, err);
	close_timing(&t);
	return status == BETON_NO_MEMORY ? BETON_OK : status;
}

/* The index of the fastest plan; 0, the heuristics' first, where there is no memory to time them. */
static int fastest_of(dtrain_device *device, const candidates *all)
{
	timing t = {.device = device, .all = all};
	if (!open_timing(&t))
		return 0;
	int best = cuda_fastest(all->num_plans, time_candidate, &t);
	close_timing(&t);
	return best < 0 ? 0 : best;
}

/* ---- planning ---- */

/* Plans configurations of one graph until there are `most` plans that run, or one at least and time is up. */
static int plan_some(dtrain_device *device, const dnn_target *target, dnn_graph *graph, cudnnBackendHeurMode_t mode,
		     int most, uint64_t until, candidates *all, beton_error *err)
{
	dnn_configs configs;
	int status = dnn_configs_find(graph, target, mode, &configs, err);
	if (status != BETON_OK)
		return status;
	int planned = 0, failed = 0;
	for (int i = 0; i < configs.count && all->num_plans < most; i++) {
		if ((planned > 0 || failed >= MAX_FAILURES) && bt_now_ns() > until)
			break;
		dnn_plan *plan;
		status = dnn_plan_create(graph, target, configs.list[i], &plan, err);
		configs.list[i] = NULL;
		if (status == BETON_NO_MEMORY)
			break;
		if (status == BETON_OK && try_plan(device, plan, err) != BETON_OK) {
			dnn_plan_destroy(plan);
			status = BETON_UNSUPPORTED;
		}
		if (status != BETON_OK) {
			failed++; /* what is proposed does not always work */
			continue;
		}
		all->plans[all->num_plans++] = plan;
		planned++;
	}
	dnn_configs_free(&configs);
	return status == BETON_NO_MEMORY ? status : BETON_OK;
}

/* Up to `most` plans, from each graph as many as from the other. */
static int plan_candidates(dtrain_device *device, const dnn_target *target, int most, candidates *all, beton_error *err)
{
	const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
	beton_error last = {0};
	for (int i = 0; i < 2 && all->num_plans == 0; i++)
		for (int k = 0; k < all->num_graphs; k++) {
			int share = all->num_plans + (most - all->num_plans) / (all->num_graphs - k);
			if (share == all->num_plans && all->num_plans == 0)
				share = 1;
			int status = plan_some(device, target, all->graphs[k], modes[i], share,
					       bt_now_ns() + MAX_PLANNING_NS / (uint64_t)all->num_graphs, all, &last);
			if (status != BETON_OK)
				return bt_fail(err, status, "%s", last.message);
		}
	if (all->num_plans > 0)
		return BETON_OK;
	return bt_fail(err, BETON_UNSUPPORTED, "no engine for %.160s: %s", all->graphs[0]->signature, last.message);
}

/* ---- from the store, and to it: [variant, engine, (knob, value)...] ---- */

static void signature_of(const dnn_target *target, const candidates *all, char *out, size_t size)
{
	snprintf(out, size, "cudnn%s %s", target->tf32 ? " tf32" : "", all->graphs[0]->signature);
}

static dnn_plan *recall(const cuda_algorithms *store, const char *signature, const dnn_target *target,
			const candidates *all)
{
	cuda_algorithm known;
	dnn_choice choice = {0};
	dnn_descriptor config;
	dnn_plan *plan;
	if (!cuda_algorithms_find(store, signature, &known) || known.count < 2 || known.count % 2 != 0 ||
	    known.count > 2 + 2 * DNN_MAX_KNOBS || known.numbers[0] < 0 || known.numbers[0] >= all->num_graphs)
		return NULL;
	dnn_graph *graph = all->graphs[known.numbers[0]];
	choice.engine = known.numbers[1];
	choice.num_knobs = (known.count - 2) / 2;
	memcpy(choice.knobs, &known.numbers[2], (size_t)choice.num_knobs * sizeof(choice.knobs[0]));
	if (dnn_config_from_choice(graph, target, &choice, &config, NULL) != BETON_OK ||
	    dnn_plan_create(graph, target, config, &plan, NULL) != BETON_OK)
		return NULL;
	return plan;
}

/* That the file cannot be written costs the next process time, and this one nothing. */
static void remember(cuda_algorithms *store, const char *signature, const candidates *all, const dnn_plan *plan)
{
	cuda_algorithm algorithm;
	dnn_choice choice;
	if (dnn_config_choice(plan->config, &choice, NULL) != BETON_OK)
		return;
	algorithm.count = 2 + 2 * choice.num_knobs;
	algorithm.numbers[0] = variant_of(all, plan);
	algorithm.numbers[1] = choice.engine;
	memcpy(&algorithm.numbers[2], choice.knobs, (size_t)choice.num_knobs * sizeof(choice.knobs[0]));
	(void)cuda_algorithms_put(store, signature, &algorithm, NULL);
}

/* ---- the choice ---- */

/* A plan that ops have in common: engines that are compiled take a second each, and a network has its shapes several
 * times. */
struct dnn_shared {
	struct dnn_shared *next;
	dnn_plan *plan;
	int users;
	char signature[DNN_SIGNATURE_SIZE]; /* of the first graph of the op */
};

static int choose_from(dtrain_device *device, const dnn_target *target, candidates *all, dnn_plan **out,
		       beton_error *err)
{
	char signature[DNN_SIGNATURE_SIZE + 16];
	bool times = device->algorithms && !device->deterministic;
	signature_of(target, all, signature, sizeof(signature));
	*out = times ? recall(device->algorithms, signature, target, all) : NULL;
	if (*out)
		return BETON_OK;
	int status = plan_candidates(device, target, times ? MAX_CANDIDATES : 1, all, err);
	if (status != BETON_OK)
		return status;
	*out = all->plans[times && all->num_plans > 1 ? fastest_of(device, all) : 0];
	if (times)
		remember(device->algorithms, signature, all, *out);
	return BETON_OK;
}

static int choose(dtrain_device *device, candidates *all, const dtrain_op_desc *desc, dnn_plan **out, beton_error *err)
{
	dnn_target target = dnn_target_of(device);
	int status = find_graphs(&target, desc, all, err);
	if (status != BETON_OK)
		return status;
	for (struct dnn_shared *known = device->plans; known; known = known->next)
		if (strcmp(known->signature, all->graphs[0]->signature) == 0) {
			known->users++;
			*out = known->plan;
			return BETON_OK;
		}
	struct dnn_shared *made = calloc(1, sizeof(*made));
	if (!made)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a plan of cuDNN's");
	status = choose_from(device, &target, all, &made->plan, err);
	if (status != BETON_OK) {
		free(made);
		return status;
	}
	made->users = 1;
	memcpy(made->signature, all->graphs[0]->signature, sizeof(made->signature));
	made->next = device->plans;
	device->plans = made;
	*out = made->plan;
	return BETON_OK;
}

int dnn_choose(dtrain_device *device, const dtrain_op_desc *desc, dnn_plan **plan, beton_error *err)
{
	candidates all = {.num_graphs = 0};
	*plan = NULL;
	int status = choose(device, &all, desc, plan, err);
	clear(&all, *plan);
	return status;
}

void dnn_release(dtrain_device *device, dnn_plan *plan)
{
	struct dnn_shared **at = &device->plans;
	while (*at && (*at)->plan != plan)
		at = &(*at)->next;
	struct dnn_shared *shared = *at;
	if (!shared || --shared->users > 0)
		return;
	*at = shared->next;
	dnn_graph *graph = plan->graph;
	dnn_plan_destroy(plan);
	dnn_graph_destroy(graph);
	free(shared);
}
