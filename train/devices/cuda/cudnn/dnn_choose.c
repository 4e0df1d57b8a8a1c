/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the engine for an op. Some of the engines that cuDNN proposes, and that work, are timed on separate memory;
 * the fastest is kept in the device's store, by one process for all that share it. In deterministic mode timings are
 * not used: the first proposed engine that works is always the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "devices/cuda/algorithms.h"
#include "devices/cuda/algorithms_bench.h"
#include "dnn_run.h"

/* Time limit for making the candidates. A compiled engine takes a second of a core, but is stored, so this time is
 * spent once for a GPU and its libraries. */
static const uint64_t MAX_PLANNING_NS = 8000000000;
/* Give up after this many failures and all that time: if a driver loads no compiled engine, each of some thirty fails
 * in turn. */
enum { MAX_FAILURES = 4 };

typedef struct candidates {
	const dtrain_op_desc *desc;
	dnn_limits limits;
	dnn_graph *graphs[DNN_MAX_VARIANTS];
	int num_graphs;
	dnn_configs configs[DNN_MAX_VARIANTS]; /* of each graph, best first; taken by its plans */
	dnn_plan *plans[DNN_MAX_CANDIDATES];
	int num_plans;
} candidates;

/* Frees all but the kept plan and its graph. */
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

/* The graphs of the op; cuDNN must accept one of them. The status of the others says that they have no engine. */
static int find_graphs(const dnn_target *target, candidates *all, beton_error *err)
{
	int count = 0, accepted = 0, status = dnn_op_graphs(all->desc, target->deterministic, all->graphs, &count, err);
	if (status != BETON_OK)
		return status;
	all->num_graphs = count;
	for (int i = 0; i < count; i++) {
		int answer = dnn_graph_finish(all->graphs[i], target, err);
		accepted += answer == BETON_OK;
		status = answer != BETON_OK ? answer : status;
	}
	return accepted > 0 ? BETON_OK : status;
}

/* ---- timing ---- */

typedef struct timing {
	dtrain_device *device;
	const candidates *all;
	cuda_bench bench;
	dnn_pack pack;
	size_t offsets[DNN_MAX_TENSORS]; /* by operand; all graphs have the same operands */
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

/* Reserves memory for each operand at its largest size in any graph, and for the largest workspace. */
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

/* Indexes and masks stay 0, because an invalid index would address memory outside. */
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

/* False: out of memory. */
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
	(void)cudnnSetStream(t->device->dnn, NULL); /* the handle must not keep a stream that is destroyed */
	cuda_bench_close(&t->bench);
}

/* Runs and captures a plan, because some plans can be made but do not work. Without memory to try it, a plan counts as
 * working. */
static int try_plan(dtrain_device *device, dnn_plan *plan, beton_error *err)
{
	candidates one = {.graphs = {plan->graph}, .num_graphs = 1, .plans = {plan}, .num_plans = 1};
	timing t = {.device = device, .all = &one, .bench = {.gate = device->gate}};
	if (!open_timing(&t))
		return BETON_OK;
	int status = cuda_bench_try(&t.bench, run_candidate, &t, err);
	close_timing(&t);
	return status == BETON_NO_MEMORY ? BETON_OK : status;
}

/* The index of the fastest plan; -1: without memory to time them it is not known. */
static int fastest_of(dtrain_device *device, const candidates *all)
{
	timing t = {.device = device, .all = all, .bench = {.gate = device->gate}};
	if (!open_timing(&t))
		return -1;
	int best = cuda_fastest(all->num_plans, time_candidate, &t);
	close_timing(&t);
	return best;
}

/* ---- planning ---- */

/* Takes the configuration. tried: it must run. */
static int make_plan(dtrain_device *device, const dnn_target *target, dnn_graph *graph, dnn_descriptor config,
		     bool tried, dnn_plan **out, beton_error *err)
{
	int status = dnn_plan_create(graph, target, config, out, err);
	if (status != BETON_OK)
		return status;
	__atomic_fetch_add(&device->refused_plans, (*out)->refused, __ATOMIC_RELAXED);
	if (tried || (*out)->stored)
		status = try_plan(device, *out, err);
	if (status == BETON_OK)
		return BETON_OK;
	dnn_plan_destroy(*out);
	*out = NULL;
	return BETON_UNSUPPORTED;
}

/* Returns the stored plan if it works, or else makes one, for which other processes wait. Takes ownership of the
 * configuration. */
static int make_working_plan(dtrain_device *device, const dnn_target *target, dnn_graph *graph, dnn_descriptor config,
			     bool tried, dnn_plan **out, beton_error *err)
{
	dnn_choice choice;
	dnn_target way = *target;
	if (!target->store || !dnn_config_is_compiled(config) || dnn_config_choice(config, &choice, NULL) != BETON_OK)
		return make_plan(device, target, graph, config, tried, out, err);
	way.origin = DNN_STORED;
	int status = make_plan(device, &way, graph, config, tried, out, err);
	if (status == BETON_OK || target->origin == DNN_STORED)
		return status;
	bool refused = status != BETON_NOT_FOUND;
	__atomic_fetch_add(&device->refused_plans, refused, __ATOMIC_RELAXED);
	way.origin = refused ? DNN_COMPILED : DNN_STORED_OR_COMPILED;
	cuda_algorithms_begin(device->algorithms, &device->lock);
	status = dnn_config_from_choice(graph, target, &choice, &config, err);
	if (status == BETON_OK)
		status = make_plan(device, &way, graph, config, tried, out, err);
	cuda_algorithms_end(device->algorithms);
	return status;
}

/* Compiles missing plans into the store, for which other processes wait. Uses a description of the GPU instead of the
 * handle, so that the device's lock, which other threads need, can be released. */
static void compile_missing(dtrain_device *device, const dnn_target *target, const candidates *all, const dnn_job *jobs,
			    int count, uint64_t until)
{
	dnn_job missing[DNN_MAX_CANDIDATES];
	int num_missing = 0;
	dnn_target described = *target;
	for (int i = 0; i < count && target->store; i++)
		if (!dnn_plan_is_stored(all->graphs[jobs[i].graph], target, &jobs[i].choice))
			missing[num_missing++] = jobs[i];
	described.handle = NULL;
	described.driver = 0;
	if (num_missing == 0 || dnn_properties_of_handle(device->dnn, &described.properties, NULL) != BETON_OK)
		return;
	cuda_algorithms_begin(device->algorithms, &device->lock);
	pthread_mutex_unlock(&device->lock);
	dnn_compile(all->desc, &described, missing, num_missing, until);
	pthread_mutex_lock(&device->lock);
	cuda_algorithms_end(device->algorithms);
	cudnnBackendDestroyDescriptor(described.properties);
}

/* Compiles the first `most` configurations that cuDNN can compile: each graph's first, then each graph's second. */
static void compile_first(dtrain_device *device, const dnn_target *target, const candidates *all, int most,
			  uint64_t until)
{
	dnn_job jobs[DNN_MAX_CANDIDATES];
	int count = 0, compiled[DNN_MAX_VARIANTS] = {0};
	for (int i = 0; i < DNN_MAX_CONFIGS; i++)
		for (int k = 0; k < all->num_graphs && count < most; k++) {
			const dnn_configs *configs = &all->configs[k];
			if (i >= configs->count || compiled[k] == all->limits.compiled ||
			    !dnn_config_is_compiled(configs->list[i]) ||
			    dnn_config_choice(configs->list[i], &jobs[count].choice, NULL) != BETON_OK)
				continue;
			jobs[count++].graph = k;
			compiled[k]++;
		}
	compile_missing(device, target, all, jobs, count, until);
}

/* Plans configurations of one graph until `most` plans work. When time is up and one works, only configurations that
 * are not compiled are planned. */
static int plan_some(dtrain_device *device, const dnn_target *target, int graph, int most, uint64_t until,
		     candidates *all, beton_error *err)
{
	dnn_configs *configs = &all->configs[graph];
	int planned = 0, failed = 0, compiled = 0, status = BETON_OK;
	dnn_target way = *target;
	for (int i = 0; i < configs->count && all->num_plans < most && status != BETON_NO_MEMORY; i++) {
		dnn_plan *plan;
		bool late = bt_now_ns() > until || (target->stop && __atomic_load_n(target->stop, __ATOMIC_ACQUIRE));
		if (late && failed >= MAX_FAILURES)
			break;
		if (planned > 0 && dnn_config_is_compiled(configs->list[i]) && ++compiled >= all->limits.compiled)
			continue;
		way.origin = late && all->num_plans > 0 ? DNN_STORED : target->origin;
		status = make_working_plan(device, &way, all->graphs[graph], configs->list[i], true, &plan, err);
		configs->list[i] = NULL;
		if (status == BETON_OK) {
			all->plans[all->num_plans++] = plan;
			planned++;
		} else if (status != BETON_NOT_FOUND) {
			failed++; /* some proposed configurations do not work */
		}
	}
	return status == BETON_NO_MEMORY ? status : BETON_OK;
}

/* Plans what was found: up to `most` plans, equally many of each graph. */
static int plan_found(dtrain_device *device, const dnn_target *target, int most, candidates *all, beton_error *err)
{
	uint64_t start = bt_now_ns();
	int status = BETON_OK;
	compile_first(device, target, all, most, start + MAX_PLANNING_NS);
	for (int k = 0; k < all->num_graphs && status == BETON_OK; k++) {
		int share = all->num_plans + (most - all->num_plans) / (all->num_graphs - k);
		if (share == all->num_plans && all->num_plans == 0)
			share = 1;
		status = plan_some(device, target, k, share,
				   start + MAX_PLANNING_NS * (uint64_t)(k + 1) / (uint64_t)all->num_graphs, all, err);
	}
	return status;
}

/* Makes up to `most` plans. */
static int plan_candidates(dtrain_device *device, const dnn_target *target, int most, candidates *all, beton_error *err)
{
	const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
	beton_error last = {0};
	for (int i = 0; i < 2 && all->num_plans == 0; i++) {
		int status = dnn_configs_find_all(all->graphs, all->num_graphs, target, modes[i],
						  all->limits.extended && most > 1, all->configs, &last);
		if (status == BETON_OK)
			status = plan_found(device, target, most, all, &last);
		for (int k = 0; k < all->num_graphs; k++)
			dnn_configs_free(&all->configs[k]);
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

static dnn_plan *recall(dtrain_device *device, const char *signature, const dnn_target *target, const candidates *all)
{
	cuda_algorithm known;
	dnn_descriptor config;
	dnn_plan *plan;
	if (!cuda_algorithms_find(device->algorithms, signature, &known) || known.count < 2 || known.count % 2 != 0 ||
	    known.count > 2 + 2 * DNN_MAX_KNOBS || known.numbers[0] < 0 || known.numbers[0] >= all->num_graphs)
		return NULL;
	dnn_job job = {.graph = (int)known.numbers[0]};
	dnn_graph *graph = all->graphs[job.graph];
	job.choice.engine = known.numbers[1];
	job.choice.num_knobs = (known.count - 2) / 2;
	memcpy(job.choice.knobs, &known.numbers[2], (size_t)job.choice.num_knobs * sizeof(job.choice.knobs[0]));
	if (graph->status != BETON_OK || dnn_config_from_choice(graph, target, &job.choice, &config, NULL) != BETON_OK)
		return NULL;
	if (dnn_config_is_compiled(config))
		compile_missing(device, target, all, &job, 1, UINT64_MAX);
	if (make_working_plan(device, target, graph, config, false, &plan, NULL) != BETON_OK)
		return NULL;
	return plan;
}

/* If the file cannot be written, the next process only loses time. */
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

/* A plan shared by ops with equal graphs, since networks repeat shapes. Threads that choose for the same graph at once
 * may each have their own. */
struct dnn_shared {
	struct dnn_shared *next;
	dnn_plan *plan;
	int users;
	bool untuned; /* ops that are created once there is a choice in the store do not share it */
	char signature[DNN_SIGNATURE_SIZE]; /* of the first graph of the op */
};

static int choose_by_timing(dtrain_device *device, const char *signature, const dnn_target *target, candidates *all,
			    dnn_plan **out, beton_error *err)
{
	int status = plan_candidates(device, target, all->limits.candidates, all, err);
	if (status != BETON_OK)
		return status;
	int fastest = all->num_plans > 1 ? fastest_of(device, all) : 0;
	*out = all->plans[fastest < 0 ? 0 : fastest];
	if (fastest >= 0)
		remember(device->algorithms, signature, all, *out);
	return BETON_OK;
}

/* Plans the first configuration that was found, that works, and that cuDNN need not compile. */
static int plan_ready(dtrain_device *device, const dnn_target *target, candidates *all)
{
	int status = BETON_UNSUPPORTED;
	for (int k = 0; k < all->num_graphs; k++)
		for (int i = 0; i < all->configs[k].count && status == BETON_UNSUPPORTED; i++) {
			dnn_descriptor config = all->configs[k].list[i];
			if (dnn_config_is_compiled(config))
				continue;
			all->configs[k].list[i] = NULL;
			status = make_plan(device, target, all->graphs[k], config, true, &all->plans[0], NULL);
		}
	all->num_plans = status == BETON_OK;
	return status;
}

/* If every plan has to be compiled, the heuristics' first one is. */
static int choose_ready(dtrain_device *device, const dnn_target *target, candidates *all, dnn_plan **out,
			beton_error *err)
{
	const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
	int status = BETON_UNSUPPORTED;
	device->untuned = true;
	for (int i = 0; i < 2 && status == BETON_UNSUPPORTED; i++) {
		status =
			dnn_configs_find_all(all->graphs, all->num_graphs, target, modes[i], false, all->configs, NULL);
		if (status == BETON_OK)
			status = plan_ready(device, target, all);
		for (int k = 0; k < all->num_graphs; k++)
			dnn_configs_free(&all->configs[k]);
	}
	if (status != BETON_OK)
		status = plan_candidates(device, target, 1, all, err);
	*out = status == BETON_OK ? all->plans[0] : NULL;
	return status;
}

static int choose_from(dtrain_device *device, const dnn_target *target, candidates *all, dnn_plan **out,
		       beton_error *err)
{
	char signature[DNN_SIGNATURE_SIZE + 16];
	int status = BETON_OK;
	if (device->deterministic || !device->algorithms) {
		status = plan_candidates(device, target, 1, all, err);
		*out = status == BETON_OK ? all->plans[0] : NULL;
		return status;
	}
	signature_of(target, all, signature, sizeof(signature));
	*out = recall(device, signature, target, all);
	if (*out)
		return BETON_OK;
	if (device->tuner)
		return choose_ready(device, target, all, out, err);
	/* Another process may have chosen during the wait. */
	cuda_algorithms_begin(device->algorithms, &device->lock);
	*out = recall(device, signature, target, all);
	if (!*out)
		status = choose_by_timing(device, signature, target, all, out, err);
	cuda_algorithms_end(device->algorithms);
	return status;
}

static bool is_chosen(const dtrain_device *device, const dnn_target *target, const candidates *all)
{
	char signature[DNN_SIGNATURE_SIZE + 16];
	cuda_algorithm known;
	signature_of(target, all, signature, sizeof(signature));
	return device->algorithms && cuda_algorithms_find(device->algorithms, signature, &known);
}

static int choose(dtrain_device *device, candidates *all, dnn_plan **out, beton_error *err)
{
	dnn_target target = dnn_target_of(device);
	target.workspace_limit = dnn_op_workspace(all->desc, target.workspace_limit);
	int status = find_graphs(&target, all, err);
	if (status != BETON_OK)
		return status;
	bool chosen = is_chosen(device, &target, all);
	for (struct dnn_shared *known = device->plans; known; known = known->next)
		if (strcmp(known->signature, all->graphs[0]->signature) == 0 && !(known->untuned && chosen)) {
			known->users++;
			device->untuned |= known->untuned;
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
	made->untuned = device->tuner && !is_chosen(device, &target, all);
	memcpy(made->signature, all->graphs[0]->signature, sizeof(made->signature));
	made->next = device->plans;
	device->plans = made;
	*out = made->plan;
	return BETON_OK;
}

int dnn_choose(dtrain_device *device, const dtrain_op_desc *desc, dnn_plan **plan, beton_error *err)
{
	candidates all = {.desc = desc, .limits = dnn_op_limits(desc)};
	*plan = NULL;
	int status = choose(device, &all, plan, err);
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
