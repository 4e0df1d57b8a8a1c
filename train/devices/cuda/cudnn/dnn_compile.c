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

typedef struct job {
	const dtrain_op_desc *desc;
	int graph;
	const dnn_target *target;
	const char *gpu; /* JSON */
	size_t gpu_length;
	const dnn_choice *choices;
	int count;
	uint64_t until;
	atomic_int next;
} job;

/* Failures are ignored; they appear again when the plan is needed. */
static void compile_some(job *j, dnn_graph *graph, const dnn_target *target)
{
	for (int i; (i = atomic_fetch_add(&j->next, 1)) < j->count && bt_now_ns() < j->until;) {
		dnn_descriptor config;
		dnn_plan *plan;
		if (dnn_plan_is_stored(graph, target, &j->choices[i]) ||
		    dnn_config_from_choice(graph, target, &j->choices[i], &config, NULL) != BETON_OK)
			continue;
		if (dnn_plan_create(graph, target, config, &plan, NULL) == BETON_OK)
			dnn_plan_destroy(plan);
	}
}

static void *work(void *argument)
{
	job *j = argument;
	dnn_graph *graphs[DNN_MAX_VARIANTS];
	int count = 0;
	dnn_target target = *j->target;
	if (dnn_properties_from_text(j->gpu, j->gpu_length, &target.properties, NULL) != BETON_OK)
		return NULL;
	if (dnn_op_graphs(j->desc, target.deterministic, graphs, &count, NULL) == BETON_OK && j->graph < count &&
	    dnn_graph_finish(graphs[j->graph], &target, NULL) == BETON_OK)
		compile_some(j, graphs[j->graph], &target);
	while (count > 0)
		dnn_graph_destroy(graphs[--count]);
	cudnnBackendDestroyDescriptor(target.properties);
	return NULL;
}

/* The calling thread is one of them. */
static void run_threads(job *j)
{
	pthread_t threads[MAX_THREADS];
	int cores = bt_available_cores(), wanted = cores < j->count ? cores : j->count, started = 0;
	if (wanted > MAX_THREADS)
		wanted = MAX_THREADS;
	sigset_t before;
	bt_block_signals(&before);
	while (started < wanted - 1 && pthread_create(&threads[started], NULL, work, j) == 0)
		started++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	work(j);
	while (started > 0)
		pthread_join(threads[--started], NULL);
}

void dnn_compile(const dtrain_op_desc *desc, int graph, const dnn_target *target, const dnn_choice *choices, int count,
		 uint64_t until)
{
	static const int64_t most = 8192;
	char *gpu = malloc((size_t)most);
	int64_t length = 0;
	if (gpu && count > 0 &&
	    cudnnBackendGetAttribute(target->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
				     most, &length, gpu) == CUDNN_STATUS_SUCCESS) {
		job j = {.desc = desc,
			 .graph = graph,
			 .target = target,
			 .gpu = gpu,
			 .gpu_length = strnlen(gpu, (size_t)(length < most ? length : most)),
			 .choices = choices,
			 .count = count,
			 .until = until};
		run_threads(&j);
	}
	free(gpu);
}
