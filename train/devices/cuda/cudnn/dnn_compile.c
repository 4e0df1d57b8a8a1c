/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles plans with several threads. Each has its own graphs and its own description of the GPU, since cuDNN's
 * descriptors and handles are for one thread at a time. The plans are passed on through the store.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/system.h"
#include "dnn.h"

/* More would wait for each other inside cuDNN. */
enum { MAX_THREADS = 8 };

typedef struct work {
	const dtrain_op_desc *desc;
	const dnn_target *target;
	const char *gpu; /* JSON */
	size_t gpu_length;
	const dnn_job *jobs;
	int count;
	uint64_t until;
	atomic_int next;
} work;

/* At its first use by this thread. */
static bool is_finished(dnn_graph *graph, const dnn_target *target)
{
	return graph->graph ? graph->status == BETON_OK : dnn_graph_finish(graph, target, NULL) == BETON_OK;
}

/* Failures are ignored; they appear again when the plan is needed. */
static void compile_some(work *w, dnn_graph *const *graphs, int num_graphs, const dnn_target *target)
{
	for (int i; (i = atomic_fetch_add(&w->next, 1)) < w->count && bt_now_ns() < w->until &&
		    !(target->stop && __atomic_load_n(target->stop, __ATOMIC_ACQUIRE));) {
		const dnn_job *job = &w->jobs[i];
		dnn_graph *graph = job->graph < num_graphs ? graphs[job->graph] : NULL;
		dnn_descriptor config;
		dnn_plan *plan;
		if (!graph || !is_finished(graph, target) || dnn_plan_is_stored(graph, target, &job->choice) ||
		    dnn_config_from_choice(graph, target, &job->choice, &config, NULL) != BETON_OK)
			continue;
		if (dnn_plan_create(graph, target, config, &plan, NULL) == BETON_OK)
			dnn_plan_destroy(plan);
	}
}

static void *run(void *argument)
{
	work *w = argument;
	dnn_graph *graphs[DNN_MAX_VARIANTS];
	int count = 0;
	dnn_target target = *w->target;
	if (dnn_properties_from_text(w->gpu, w->gpu_length, &target.properties, NULL) != BETON_OK)
		return NULL;
	if (dnn_op_graphs(w->desc, target.deterministic, graphs, &count, NULL) == BETON_OK)
		compile_some(w, graphs, count, &target);
	while (count > 0)
		dnn_graph_destroy(graphs[--count]);
	cudnnBackendDestroyDescriptor(target.properties);
	return NULL;
}

/* The calling thread is one of them. */
static void run_threads(work *w)
{
	pthread_t threads[MAX_THREADS];
	int cores = bt_available_cores(), wanted = cores < w->count ? cores : w->count, started = 0;
	if (wanted > MAX_THREADS)
		wanted = MAX_THREADS;
	sigset_t before;
	bt_block_signals(&before);
	while (started < wanted - 1 && pthread_create(&threads[started], NULL, run, w) == 0)
		started++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	run(w);
	while (started > 0)
		pthread_join(threads[--started], NULL);
}

void dnn_compile(const dtrain_op_desc *desc, const dnn_target *target, const dnn_job *jobs, int count, uint64_t until)
{
	static const int64_t most = 8192;
	char *gpu = malloc((size_t)most);
	int64_t length = 0;
	if (gpu && count > 0 &&
	    cudnnBackendGetAttribute(target->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
				     most, &length, gpu) == CUDNN_STATUS_SUCCESS) {
		work w = {.desc = desc,
			  .target = target,
			  .gpu = gpu,
			  .gpu_length = strnlen(gpu, (size_t)(length < most ? length : most)),
			  .jobs = jobs,
			  .count = count,
			  .until = until};
		run_threads(&w);
	}
	free(gpu);
}
