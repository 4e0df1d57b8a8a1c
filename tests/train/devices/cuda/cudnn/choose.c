/* SPDX-License-Identifier: Apache-2.0
 *
 * How the choice of an engine leaves the device to other threads: while engines are compiled, and while it waits for
 * another process. In the place of cuDNN's graphs and plans there are ones that say what was asked for.
 */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/temporary.h"
#include "devices/cuda/algorithms.h"
#include "devices/cuda/cudnn/dnn_run.h"
#include "tests/train/devices/cuda/standin/standin.h"

static char folder[] = "/tmp/dtrain-choose-XXXXXX";
static dtrain_device device;
static int configs_there[3]; /* as descriptors: cuDNN compiles all but the last one */

enum { GRAPHS = 2 };

static struct {
	bool both;              /* the op has two graphs, and the second is faster; false: it has one */
	int refused;            /* graphs that cuDNN does not accept, from the first on */
	bool stored[GRAPHS][3]; /* which of their configurations the store has */
	int compiled;           /* without the handle, */
	int made;               /* and with it */
	int calls;              /* of dnn_compile */
	int order[2 * GRAPHS];  /* of the graphs that are compiled for */
} plays;

/* ---- in the place of graphs, configurations and plans ---- */

static int index_of(dnn_descriptor config)
{
	return (int)((int *)config - configs_there);
}

static dnn_graph *make_graph(int index)
{
	dnn_graph *graph = calloc(1, sizeof(*graph));
	assert_non_null(graph);
	snprintf(graph->signature, sizeof(graph->signature), "graph%s %d", plays.both ? " of two" : "", index);
	graph->num_operations = index;
	return graph;
}

static int number_of(const dnn_graph *graph)
{
	return graph->num_operations;
}

dnn_limits dnn_op_limits(const dtrain_op_desc *desc)
{
	(void)desc;
	return (dnn_limits){.candidates = 10, .compiled = 6};
}

size_t dnn_op_workspace(const dtrain_op_desc *desc, size_t most)
{
	(void)desc;
	return most;
}

int dnn_op_graphs(const dtrain_op_desc *desc, bool deterministic, dnn_graph *graphs[DNN_MAX_VARIANTS], int *count,
		  beton_error *err)
{
	(void)desc;
	(void)deterministic;
	(void)err;
	*count = plays.both ? 2 : 1;
	for (int i = 0; i < *count; i++)
		graphs[i] = make_graph(i);
	return BETON_OK;
}

int dnn_graph_finish(dnn_graph *graph, const dnn_target *target, beton_error *err)
{
	(void)target;
	(void)err;
	graph->status = number_of(graph) < plays.refused ? BETON_UNSUPPORTED : BETON_OK;
	return graph->status;
}

void dnn_graph_destroy(dnn_graph *graph)
{
	free(graph);
}

int dnn_configs_find_all(dnn_graph *const *graphs, int num_graphs, const dnn_target *target,
			 cudnnBackendHeurMode_t mode, bool extended, dnn_configs *out, beton_error *err)
{
	(void)target;
	(void)err;
	assert_false(extended);
	for (int k = 0; k < num_graphs; k++) {
		out[k].count = mode == CUDNN_HEUR_MODE_A && graphs[k]->status == BETON_OK ? 3 : 0;
		for (int i = 0; i < out[k].count; i++)
			out[k].list[i] = &configs_there[i];
	}
	return BETON_OK;
}

void dnn_configs_free(dnn_configs *configs)
{
	configs->count = 0;
}

bool dnn_config_is_compiled(dnn_descriptor config)
{
	return index_of(config) < 2;
}

int dnn_config_choice(dnn_descriptor config, dnn_choice *out, beton_error *err)
{
	(void)err;
	*out = (dnn_choice){.engine = index_of(config)};
	return BETON_OK;
}

int dnn_config_from_choice(const dnn_graph *graph, const dnn_target *target, const dnn_choice *choice,
			   dnn_descriptor *out, beton_error *err)
{
	(void)graph;
	(void)target;
	(void)err;
	*out = &configs_there[choice->engine];
	return BETON_OK;
}

bool dnn_plan_is_stored(const dnn_graph *graph, const dnn_target *target, const dnn_choice *choice)
{
	(void)target;
	return plays.stored[number_of(graph)][choice->engine];
}

int dnn_plan_create(dnn_graph *graph, const dnn_target *target, dnn_descriptor config, dnn_plan **out, beton_error *err)
{
	bool compiles = dnn_config_is_compiled(config), stored = plays.stored[number_of(graph)][index_of(config)];
	(void)err;
	if (compiles && !stored && target->origin == DNN_STORED)
		return BETON_NOT_FOUND;
	plays.made += compiles && !stored;
	*out = calloc(1, sizeof(**out));
	assert_non_null(*out);
	**out = (dnn_plan){.graph = graph, .config = config, .stored = stored};
	return BETON_OK;
}

void dnn_plan_destroy(dnn_plan *plan)
{
	free(plan);
}

void dnn_pack_clear(dnn_pack *pack)
{
	(void)pack;
}

int dnn_plan_run(const dnn_plan *plan, dnn_pack *pack, cudnnHandle_t handle, cudaStream_t stream,
		 void *const *addresses, void *workspace, beton_error *err)
{
	(void)pack;
	(void)handle;
	(void)stream;
	(void)addresses;
	(void)workspace;
	(void)err;
	assert_int_not_equal(pthread_mutex_trylock(&device.lock), 0);
	/* The first configuration of the last graph is the fastest. */
	standin.clock_ns += 10000 * (1 + index_of(plan->config) + (plays.both && number_of(plan->graph) == 0));
	return BETON_OK;
}

int dnn_properties_of_handle(cudnnHandle_t handle, dnn_descriptor *out, beton_error *err)
{
	(void)handle;
	(void)err;
	assert_int_not_equal(pthread_mutex_trylock(&device.lock), 0);
	*out = NULL;
	return BETON_OK;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
	(void)descriptor;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
	(void)handle;
	(void)stream;
	return CUDNN_STATUS_SUCCESS;
}

/* Any thread can take the lock now. */
void dnn_compile(const dtrain_op_desc *desc, const dnn_target *target, const dnn_job *jobs, int count, uint64_t until)
{
	(void)desc;
	(void)until;
	plays.calls++;
	assert_int_equal(pthread_mutex_trylock(&device.lock), 0);
	pthread_mutex_unlock(&device.lock);
	assert_null(target->handle);
	for (int i = 0; i < count; i++) {
		bool *stored = &plays.stored[jobs[i].graph][jobs[i].choice.engine];
		assert_false(*stored);
		*stored = true;
		plays.order[plays.compiled++] = jobs[i].graph;
	}
}

dnn_target dnn_target_of(const dtrain_device *of)
{
	static char handle, store;
	assert_ptr_equal(of, &device);
	return (dnn_target){.handle = (cudnnHandle_t)&handle, .store = (struct dnn_store *)&store};
}

/* ---- tests ---- */

/* Returns the number of the graph. */
static int choose(void)
{
	const dtrain_op_desc desc = {.kind = DTRAIN_OP_MAX_POOL};
	beton_error err = {0};
	dnn_plan *plan;
	pthread_mutex_lock(&device.lock);
	if (dnn_choose(&device, &desc, &plan, &err) != BETON_OK)
		fail_msg("%s", err.message);
	int graph = number_of(plan->graph);
	dnn_release(&device, plan);
	pthread_mutex_unlock(&device.lock);
	assert_int_equal(plays.made, 0);
	return graph;
}

/* Timed choices, known but not stored choices, and deterministic mode's. */
static void nothing_is_compiled_under_the_lock(void **state)
{
	(void)state;
	choose();
	assert_int_equal(plays.compiled, 2);
	memset(&plays, 0, sizeof(plays));
	choose();
	assert_int_equal(plays.compiled, 1);
	assert_int_equal(plays.calls, 1);
	choose();
	assert_int_equal(plays.calls, 1);
	memset(&plays, 0, sizeof(plays));
	device.deterministic = true;
	choose();
	assert_int_equal(plays.compiled, 1);
	choose();
	assert_int_equal(plays.calls, 1);
}

/* All graphs take part, and none waits for another's plans to be compiled. */
static void graphs_are_compiled_together(void **state)
{
	(void)state;
	plays.both = true;
	assert_int_equal(choose(), 1);
	assert_int_equal(plays.calls, 1);
	assert_int_equal(plays.compiled, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(plays.order[i], i % 2);
	/* The choice is known. */
	memset(plays.stored, 0, sizeof(plays.stored));
	plays.compiled = 0;
	assert_int_equal(choose(), 1);
	assert_int_equal(plays.compiled, 1);
	assert_true(plays.stored[1][0]);
}

static void graphs_that_are_not_accepted_are_left_out(void **state)
{
	const dtrain_op_desc desc = {.kind = DTRAIN_OP_MAX_POOL};
	dnn_plan *plan;
	(void)state;
	plays.both = true;
	plays.refused = 1;
	assert_int_equal(choose(), 1);
	assert_int_equal(plays.compiled, 2);
	plays.refused = 2;
	pthread_mutex_lock(&device.lock);
	assert_int_equal(dnn_choose(&device, &desc, &plan, NULL), BETON_UNSUPPORTED);
	pthread_mutex_unlock(&device.lock);
	assert_null(plan);
}

static sem_t locked;
static bool chosen; /* with the device locked */

static void *choose_as_thread(void *argument)
{
	const dtrain_op_desc desc = {.kind = DTRAIN_OP_MAX_POOL};
	dnn_plan *plan;
	(void)argument;
	pthread_mutex_lock(&device.lock);
	sem_post(&locked);
	assert_int_equal(cudaSetDevice(0), cudaSuccess);
	assert_int_equal(dnn_choose(&device, &desc, &plan, NULL), BETON_OK);
	chosen = true;
	dnn_release(&device, plan);
	pthread_mutex_unlock(&device.lock);
	return NULL;
}

/* A device that waits for another process's choice is free for other threads. */
static void nobody_is_waited_for_under_the_lock(void **state)
{
	(void)state;
	cuda_algorithms *other;
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_t thread;
	plays.stored[0][0] = plays.stored[0][1] = true; /* to avoid another wait */
	assert_int_equal(cuda_algorithms_open("gpu", &other, NULL), BETON_OK);
	pthread_mutex_lock(&mutex);
	cuda_algorithms_begin(other, &mutex);
	assert_int_equal(sem_init(&locked, 0, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, choose_as_thread, NULL), 0);
	assert_int_equal(sem_wait(&locked), 0);
	/* The thread had it, and leaves it in the middle. */
	pthread_mutex_lock(&device.lock);
	assert_false(chosen);
	pthread_mutex_unlock(&device.lock);
	cuda_algorithms_end(other);
	pthread_mutex_unlock(&mutex);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(chosen);
	sem_destroy(&locked);
	cuda_algorithms_close(other);
}

static int set_up(void **state)
{
	static int count;
	char path[64];
	(void)state;
	snprintf(path, sizeof(path), "%s/%d", folder, count++);
	memset(&plays, 0, sizeof(plays));
	standin_reset();
	standin.has_clock = true;
	standin.clock_ns = 1; /* an event that never was has 0 */
	device = (dtrain_device){.lock = PTHREAD_MUTEX_INITIALIZER};
	return setenv("DTRAIN_CACHE", path, 1) != 0 || cudaSetDevice(0) != cudaSuccess ||
	       cuda_algorithms_open("gpu", &device.algorithms, NULL) != BETON_OK;
}

static int tear_down(void **state)
{
	(void)state;
	cuda_algorithms_close(device.algorithms);
	return standin.live != 0;
}

int main(void)
{
	if (!mkdtemp(folder)) {
		perror(folder);
		return 1;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nothing_is_compiled_under_the_lock, set_up, tear_down),
		cmocka_unit_test_setup_teardown(graphs_are_compiled_together, set_up, tear_down),
		cmocka_unit_test_setup_teardown(graphs_that_are_not_accepted_are_left_out, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nobody_is_waited_for_under_the_lock, set_up, tear_down),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_remove(folder);
	return failed;
}
