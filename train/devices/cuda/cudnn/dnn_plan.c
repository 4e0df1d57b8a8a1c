/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "dnn.h"
#include "dnn_store.h"

/* Whether an engine keeps the target's promises, according to its notes. */
static bool notes_agree(const dnn_graph *graph, const dnn_target *target, const cudnnBackendNumericalNote_t *notes,
			int64_t count)
{
	bool exact = graph->multiplies && graph->type == CUDNN_DATA_FLOAT && !target->tf32;
	for (int64_t i = 0; i < count; i++) {
		switch (notes[i]) {
		case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
			if (target->deterministic)
				return false;
			break;
		case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
			return false; /* sums must be in F32 */
		case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
		case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
		case CUDNN_NUMERICAL_NOTE_FFT:
		case CUDNN_NUMERICAL_NOTE_WINOGRAD:
			if (exact)
				return false;
			break;
		default:
			break;
		}
	}
	return true;
}

/* Engines whose data must be reordered by a call that we do not make. */
static bool needs_reorder(const cudnnBackendBehaviorNote_t *notes, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		if (notes[i] == CUDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER ||
		    notes[i] == CUDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER)
			return true;
	return false;
}

static int engine_agrees(const dnn_graph *graph, const dnn_target *target, dnn_descriptor engine, bool *out,
			 beton_error *err)
{
	cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
	int64_t num_numerical = 0, num_behavior = 0;
	cudnnStatus_t status =
		cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
					 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &num_numerical, numerical);
	if (status == CUDNN_STATUS_SUCCESS)
		status = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
						  CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &num_behavior, behavior);
	if (status != CUDNN_STATUS_SUCCESS)
		return dnn_fail(err, status, "notes of an engine");
	*out = notes_agree(graph, target, numerical, num_numerical) && !needs_reorder(behavior, num_behavior);
	return BETON_OK;
}

static int create(cudnnBackendDescriptorType_t type, dnn_descriptor *out, beton_error *err)
{
	*out = NULL;
	cudnnStatus_t status = cudnnBackendCreateDescriptor(type, out);
	return status == CUDNN_STATUS_SUCCESS ? BETON_OK : dnn_fail(err, status, "descriptor");
}

static void destroy(dnn_descriptor *descriptor)
{
	if (*descriptor)
		cudnnBackendDestroyDescriptor(*descriptor);
	*descriptor = NULL;
}

/* The engine of a configuration; the caller destroys it. */
static int engine_of(dnn_descriptor config, dnn_descriptor *out, beton_error *err)
{
	int64_t count = 0;
	int status = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, out, err);
	if (status != BETON_OK)
		return status;
	cudnnStatus_t got = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
						     1, &count, out);
	if (got == CUDNN_STATUS_SUCCESS)
		return BETON_OK;
	destroy(out);
	return dnn_fail(err, got, "engine of a configuration");
}

static int config_agrees(const dnn_graph *graph, const dnn_target *target, dnn_descriptor config, bool *out,
			 beton_error *err)
{
	dnn_descriptor engine;
	int status = engine_of(config, &engine, err);
	if (status != BETON_OK)
		return status;
	status = engine_agrees(graph, target, engine, out, err);
	destroy(&engine);
	return status;
}

bool dnn_config_is_compiled(dnn_descriptor config)
{
	cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
	dnn_descriptor engine;
	int64_t count = 0;
	bool compiled = false;
	if (engine_of(config, &engine, NULL) != BETON_OK)
		return false;
	if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
				     CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, notes) != CUDNN_STATUS_SUCCESS)
		count = 0;
	for (int64_t i = 0; i < count; i++)
		compiled |= notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
	destroy(&engine);
	return compiled;
}

/* ---- configurations ---- */

void dnn_configs_free(dnn_configs *configs)
{
	while (configs->count > 0)
		destroy(&configs->list[--configs->count]);
}

static int heuristic_create(const dnn_graph *graph, const dnn_target *target, cudnnBackendHeurMode_t mode,
			    dnn_descriptor *out, beton_error *err)
{
	int status = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, out, err);
	if (status != BETON_OK)
		return status;
	cudnnStatus_t answer = cudnnBackendSetAttribute(*out, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
							CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->graph);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendSetAttribute(*out, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	if (answer == CUDNN_STATUS_SUCCESS && !target->handle)
		answer = cudnnBackendSetAttribute(*out, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
						  1, &target->properties);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendFinalize(*out);
	if (answer == CUDNN_STATUS_SUCCESS)
		return BETON_OK;
	destroy(out);
	return dnn_fail(err, answer, "heuristics");
}

/* Creates descriptors for cuDNN to fill, and destroys the unfilled ones. */
static int read_configs(dnn_descriptor heuristic, dnn_configs *out, beton_error *err)
{
	int64_t count = 0;
	cudnnStatus_t answer = cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
							CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL);
	if (answer != CUDNN_STATUS_SUCCESS)
		return dnn_fail(err, answer, "number of configurations");
	if (count > DNN_MAX_CONFIGS)
		count = DNN_MAX_CONFIGS;
	for (int i = 0; i < count; i++) {
		int status = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &out->list[i], err);
		if (status != BETON_OK)
			return status;
		out->count++;
	}
	int64_t filled = 0;
	if (count > 0)
		answer = cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
						  CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &filled, out->list);
	if (answer != CUDNN_STATUS_SUCCESS)
		return dnn_fail(err, answer, "configurations");
	while (out->count > filled)
		destroy(&out->list[--out->count]);
	return BETON_OK;
}

static int keep_agreeing(const dnn_graph *graph, const dnn_target *target, dnn_configs *configs, beton_error *err)
{
	int kept = 0, status = BETON_OK;
	for (int i = 0; i < configs->count; i++) {
		bool agrees = false;
		if (status == BETON_OK)
			status = config_agrees(graph, target, configs->list[i], &agrees, err);
		if (agrees)
			configs->list[kept++] = configs->list[i];
		else
			destroy(&configs->list[i]);
	}
	configs->count = kept;
	return status;
}

int dnn_configs_find(const dnn_graph *graph, const dnn_target *target, cudnnBackendHeurMode_t mode, dnn_configs *out,
		     beton_error *err)
{
	out->count = 0;
	dnn_descriptor heuristic;
	int status = heuristic_create(graph, target, mode, &heuristic, err);
	if (status == BETON_UNSUPPORTED)
		return BETON_OK;
	if (status != BETON_OK)
		return status;
	status = read_configs(heuristic, out, err);
	/* cuDNN's text about an empty list. */
	if (status == BETON_OK && out->count == 0)
		dnn_fail(err, CUDNN_STATUS_NOT_SUPPORTED, "no engine");
	destroy(&heuristic);
	if (status == BETON_OK)
		status = keep_agreeing(graph, target, out, err);
	if (status != BETON_OK)
		dnn_configs_free(out);
	return status;
}

static int read_knob(dnn_descriptor knob, int64_t out[2], beton_error *err)
{
	cudnnBackendKnobType_t type;
	int64_t count = 0;
	cudnnStatus_t status = cudnnBackendGetAttribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
							&count, &type);
	if (status == CUDNN_STATUS_SUCCESS)
		status = cudnnBackendGetAttribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &count,
						  &out[1]);
	if (status != CUDNN_STATUS_SUCCESS)
		return dnn_fail(err, status, "knob");
	out[0] = type;
	return BETON_OK;
}

static int read_knobs(dnn_descriptor config, dnn_choice *out, beton_error *err)
{
	dnn_descriptor knobs[DNN_MAX_KNOBS] = {NULL};
	int64_t count = 0;
	int status = BETON_OK;
	for (int i = 0; i < DNN_MAX_KNOBS && status == BETON_OK; i++)
		status = create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i], err);
	if (status == BETON_OK) {
		cudnnStatus_t answer =
			cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
						 CUDNN_TYPE_BACKEND_DESCRIPTOR, DNN_MAX_KNOBS, &count, knobs);
		if (answer != CUDNN_STATUS_SUCCESS)
			status = dnn_fail(err, answer, "knobs");
		else if (count > DNN_MAX_KNOBS)
			status = bt_fail(err, BETON_UNSUPPORTED, "cuDNN: an engine with %lld knobs", (long long)count);
	}
	for (int i = 0; i < count && status == BETON_OK; i++)
		status = read_knob(knobs[i], out->knobs[i], err);
	for (int i = 0; i < DNN_MAX_KNOBS; i++)
		destroy(&knobs[i]);
	out->num_knobs = (int)count;
	return status;
}

int dnn_config_choice(dnn_descriptor config, dnn_choice *out, beton_error *err)
{
	*out = (dnn_choice){0};
	dnn_descriptor engine;
	int64_t count = 0;
	int status = engine_of(config, &engine, err);
	if (status != BETON_OK)
		return status;
	cudnnStatus_t answer = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
							&count, &out->engine);
	if (answer != CUDNN_STATUS_SUCCESS)
		status = dnn_fail(err, answer, "number of an engine");
	destroy(&engine);
	return status == BETON_OK ? read_knobs(config, out, err) : status;
}

static int make_engine(const dnn_graph *graph, const dnn_target *target, int64_t index, dnn_descriptor *out,
		       beton_error *err)
{
	int status = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, out, err);
	if (status != BETON_OK)
		return status;
	cudnnStatus_t answer = cudnnBackendSetAttribute(*out, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
							CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->graph);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendSetAttribute(*out, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
	if (answer == CUDNN_STATUS_SUCCESS && !target->handle)
		answer = cudnnBackendSetAttribute(*out, CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
						  &target->properties);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendFinalize(*out);
	return answer == CUDNN_STATUS_SUCCESS ? BETON_OK : dnn_fail(err, answer, "engine %lld", (long long)index);
}

static int make_knob(const int64_t choice[2], dnn_descriptor *out, beton_error *err)
{
	int status = create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, out, err);
	if (status != BETON_OK)
		return status;
	const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)choice[0];
	cudnnStatus_t answer =
		cudnnBackendSetAttribute(*out, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendSetAttribute(*out, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
						  &choice[1]);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendFinalize(*out);
	return answer == CUDNN_STATUS_SUCCESS ? BETON_OK : dnn_fail(err, answer, "knob %lld", (long long)choice[0]);
}

static int make_config(dnn_descriptor engine, const dnn_descriptor *knobs, int num_knobs, dnn_descriptor *out,
		       beton_error *err)
{
	int status = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, out, err);
	if (status != BETON_OK)
		return status;
	cudnnStatus_t answer =
		cudnnBackendSetAttribute(*out, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
	if (answer == CUDNN_STATUS_SUCCESS && num_knobs > 0)
		answer = cudnnBackendSetAttribute(*out, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
						  CUDNN_TYPE_BACKEND_DESCRIPTOR, num_knobs, knobs);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendFinalize(*out);
	if (answer == CUDNN_STATUS_SUCCESS)
		return BETON_OK;
	destroy(out);
	return dnn_fail(err, answer, "configuration");
}

int dnn_config_from_choice(const dnn_graph *graph, const dnn_target *target, const dnn_choice *choice,
			   dnn_descriptor *out, beton_error *err)
{
	*out = NULL;
	if (choice->num_knobs < 0 || choice->num_knobs > DNN_MAX_KNOBS)
		return bt_fail(err, BETON_UNSUPPORTED, "cuDNN: a choice of %d knobs", choice->num_knobs);
	dnn_descriptor engine = NULL, knobs[DNN_MAX_KNOBS] = {NULL};
	bool agrees = false;
	int status = make_engine(graph, target, choice->engine, &engine, err);
	if (status == BETON_OK)
		status = engine_agrees(graph, target, engine, &agrees, err);
	if (status == BETON_OK && !agrees)
		status = bt_fail(err, BETON_UNSUPPORTED, "cuDNN: engine %lld breaks the requirements",
				 (long long)choice->engine);
	for (int i = 0; i < choice->num_knobs && status == BETON_OK; i++)
		status = make_knob(choice->knobs[i], &knobs[i], err);
	if (status == BETON_OK)
		status = make_config(engine, knobs, choice->num_knobs, out, err);
	for (int i = 0; i < choice->num_knobs; i++)
		destroy(&knobs[i]);
	destroy(&engine);
	return status;
}

/* ---- configurations that the heuristics leave out ---- */

static bool are_equal(const dnn_choice *a, const dnn_choice *b)
{
	return a->engine == b->engine && a->num_knobs == b->num_knobs &&
	       memcmp(a->knobs, b->knobs, (size_t)a->num_knobs * sizeof(a->knobs[0])) == 0;
}

static bool has_choice(const dnn_configs *configs, const dnn_choice *choice)
{
	for (int i = 0; i < configs->count; i++) {
		dnn_choice other;
		if (dnn_config_choice(configs->list[i], &other, NULL) == BETON_OK && are_equal(&other, choice))
			return true;
	}
	return false;
}

/* The numbers of kernels that an engine may have; most of them are refused. False: it has no such knob. */
static bool kernels_of(dnn_descriptor engine, int64_t *first, int64_t *last)
{
	dnn_descriptor knobs[DNN_MAX_KNOBS] = {NULL};
	int64_t count = 0, got;
	bool found = false, made = true;
	for (int i = 0; i < DNN_MAX_KNOBS && made; i++)
		made = create(CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR, &knobs[i], NULL) == BETON_OK;
	if (!made || cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR,
					      DNN_MAX_KNOBS, &count, knobs) != CUDNN_STATUS_SUCCESS)
		count = 0;
	for (int i = 0; i < count && i < DNN_MAX_KNOBS && !found; i++) {
		cudnnBackendKnobType_t type;
		found = cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_INFO_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &got,
						 &type) == CUDNN_STATUS_SUCCESS &&
			type == CUDNN_KNOB_TYPE_KERNEL_CFG &&
			cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE, CUDNN_TYPE_INT64, 1,
						 &got, first) == CUDNN_STATUS_SUCCESS &&
			cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE, CUDNN_TYPE_INT64, 1,
						 &got, last) == CUDNN_STATUS_SUCCESS;
	}
	for (int i = 0; i < DNN_MAX_KNOBS; i++)
		destroy(&knobs[i]);
	return found;
}

static void extend_engine(const dnn_graph *graph, const dnn_target *target, int64_t index, dnn_configs *configs)
{
	dnn_descriptor engine;
	int64_t kernel = 0, last = -1;
	if (make_engine(graph, target, index, &engine, NULL) == BETON_OK && kernels_of(engine, &kernel, &last))
		for (; kernel <= last && configs->count < DNN_MAX_CONFIGS; kernel++) {
			const dnn_choice choice = {
				.engine = index, .num_knobs = 1, .knobs = {{CUDNN_KNOB_TYPE_KERNEL_CFG, kernel}}};
			dnn_descriptor knob = NULL, config = NULL;
			if (!has_choice(configs, &choice) && make_knob(choice.knobs[0], &knob, NULL) == BETON_OK &&
			    make_config(engine, &knob, 1, &config, NULL) == BETON_OK)
				configs->list[configs->count++] = config;
			destroy(&knob);
		}
	destroy(&engine);
}

/* Each engine once. */
static void extend(const dnn_graph *graph, const dnn_target *target, dnn_configs *configs)
{
	int proposed = configs->count;
	int64_t extended[DNN_MAX_CONFIGS];
	for (int i = 0, count = 0; i < proposed; i++) {
		dnn_choice choice;
		bool known = dnn_config_choice(configs->list[i], &choice, NULL) != BETON_OK;
		for (int k = 0; k < count; k++)
			known |= extended[k] == choice.engine;
		if (known)
			continue;
		extended[count++] = choice.engine;
		extend_engine(graph, target, choice.engine, configs);
	}
}

/* ---- configurations of all graphs of an op ---- */

static bool runs_without_scratch(dnn_graph *const *graphs, int num_graphs, const dnn_configs *configs,
				 dnn_descriptor config)
{
	dnn_choice choice;
	bool found = false;
	if (dnn_config_choice(config, &choice, NULL) != BETON_OK)
		return false;
	for (int i = 0; i < num_graphs && !found; i++)
		found = graphs[i]->scratch_bytes == 0 && has_choice(&configs[i], &choice);
	return found;
}

/* An engine that also runs a graph without scratch has a workspace of its own for both, and leaves the scratch unused.
 */
static void drop_unused_scratch(dnn_graph *const *graphs, int num_graphs, dnn_configs *configs)
{
	for (int i = 0; i < num_graphs; i++) {
		int kept = 0;
		if (graphs[i]->scratch_bytes == 0)
			continue;
		for (int k = 0; k < configs[i].count; k++)
			if (runs_without_scratch(graphs, num_graphs, configs, configs[i].list[k]))
				destroy(&configs[i].list[k]);
			else
				configs[i].list[kept++] = configs[i].list[k];
		configs[i].count = kept;
	}
}

int dnn_configs_find_all(dnn_graph *const *graphs, int num_graphs, const dnn_target *target,
			 cudnnBackendHeurMode_t mode, bool extended, dnn_configs *out, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < num_graphs; i++)
		out[i].count = 0;
	for (int i = 0; i < num_graphs && status == BETON_OK; i++) {
		if (graphs[i]->status == BETON_OK)
			status = dnn_configs_find(graphs[i], target, mode, &out[i], err);
		/* The heuristics' proposals suffice. */
		if (status == BETON_OK && extended)
			extend(graphs[i], target, &out[i]);
	}
	if (status == BETON_OK)
		drop_unused_scratch(graphs, num_graphs, out);
	return status;
}

/* ---- plans ---- */

void dnn_plan_destroy(dnn_plan *plan)
{
	if (!plan)
		return;
	destroy(&plan->plan);
	destroy(&plan->config);
	free(plan);
}

/* json: the stored plan; NULL: make it from its configuration. */
static int finish_plan(dnn_plan *plan, const dnn_target *target, const char *json, size_t length, beton_error *err)
{
	int status = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->plan, err);
	if (status != BETON_OK)
		return status;
	int64_t count = 0, bytes = 0;
	cudnnStatus_t answer = CUDNN_STATUS_SUCCESS;
	if (target->handle)
		answer = cudnnBackendSetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
						  &target->handle);
	else if (json)
		answer = cudnnBackendSetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
						  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->properties);
	if (answer == CUDNN_STATUS_SUCCESS && json)
		answer = cudnnBackendSetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
						  CUDNN_TYPE_CHAR, (int64_t)length, json);
	else if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendSetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
						  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &plan->config);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendFinalize(plan->plan);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
						  CUDNN_TYPE_INT64, 1, &count, &bytes);
	if (answer != CUDNN_STATUS_SUCCESS) {
		destroy(&plan->plan);
		return dnn_fail(err, answer, "plan");
	}
	if (bytes < 0 || (uint64_t)bytes > target->workspace_limit) {
		destroy(&plan->plan);
		return bt_fail(err, BETON_UNSUPPORTED,
			       "cuDNN: a plan that needs %lld bytes of workspace; the limit is %zu", (long long)bytes,
			       target->workspace_limit);
	}
	plan->workspace_bytes = (size_t)bytes;
	return BETON_OK;
}

/* ---- plans in the store ---- */

static char *dnn_plan_name(const dnn_graph *graph, const dnn_choice *choice)
{
	char knobs[DNN_MAX_KNOBS * 44] = "";
	for (int i = 0; i < choice->num_knobs; i++)
		bt_append(knobs, sizeof(knobs), " %lld:%lld", (long long)choice->knobs[i][0],
			  (long long)choice->knobs[i][1]);
	return bt_format("%s engine %lld%s", graph->signature, (long long)choice->engine, knobs);
}

bool dnn_plan_is_stored(const dnn_graph *graph, const dnn_target *target, const dnn_choice *choice)
{
	size_t length;
	char *name = dnn_plan_name(graph, choice), *text = name ? dnn_store_read(target->store, name, &length) : NULL;
	bool stored = text != NULL;
	free(name);
	free(text);
	return stored;
}

/* cuDNN refuses a plan for another version of the driver, like one for another GPU. But the driver takes no part in
 * compiling, and loads kernels for older versions and for its own major version. So this puts the present version into
 * the text. NULL: out of memory. */
static char *with_driver(const char *json, int driver)
{
	static const char key[] = "\"driverVer\":";
	const char *found = driver ? strstr(json, key) : NULL;
	if (!found)
		return strdup(json);
	const char *number = found + strlen(key), *rest = number + strspn(number, "0123456789");
	return bt_format("%.*s%d%s", (int)(number - json), json, driver, rest);
}

/* NOT_FOUND: the store does not have it; else cuDNN's result. */
static int recall_plan(dnn_plan *plan, const dnn_target *target, const char *name, beton_error *err)
{
	size_t length = 0;
	char *kept = dnn_store_read(target->store, name, &length);
	char *json = kept ? with_driver(kept, target->driver) : NULL;
	int status = json ? finish_plan(plan, target, json, strlen(json), err)
			  : bt_fail(err, BETON_NOT_FOUND, "cuDNN: the plan is not stored");
	plan->stored = status == BETON_OK;
	free(json);
	free(kept);
	return status;
}

/* If a plan cannot be written, the next process only compiles it again. */
static void keep_plan(const dnn_plan *plan, const dnn_target *target, const char *name)
{
	int64_t length = 0, got = 0;
	if (cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
				     &length, NULL) != CUDNN_STATUS_SUCCESS ||
	    length <= 0)
		return;
	char *json = malloc((size_t)length);
	if (json && cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
					     length, &got, json) == CUDNN_STATUS_SUCCESS)
		(void)dnn_store_write(target->store, name, json, strnlen(json, (size_t)got), NULL);
	free(json);
}

static int finish_compiled(dnn_plan *plan, const dnn_target *target, beton_error *err)
{
	dnn_choice choice;
	int status = dnn_config_choice(plan->config, &choice, err);
	if (status != BETON_OK)
		return status;
	char *name = dnn_plan_name(plan->graph, &choice);
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a plan's name");
	status = target->origin == DNN_COMPILED ? BETON_NOT_FOUND : recall_plan(plan, target, name, err);
	if (status != BETON_OK && target->origin == DNN_STORED) {
		status = BETON_NOT_FOUND;
	} else if (status != BETON_OK) {
		plan->refused = status != BETON_NOT_FOUND;
		status = finish_plan(plan, target, NULL, 0, err);
		if (status == BETON_OK)
			keep_plan(plan, target, name);
	}
	free(name);
	return status;
}

int dnn_plan_create(dnn_graph *graph, const dnn_target *target, dnn_descriptor config, dnn_plan **out, beton_error *err)
{
	*out = NULL;
	dnn_plan *plan = calloc(1, sizeof(*plan));
	if (!plan) {
		destroy(&config);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a plan of cuDNN's");
	}
	plan->graph = graph;
	plan->config = config;
	int status = target->store && dnn_config_is_compiled(config) ? finish_compiled(plan, target, err)
								     : finish_plan(plan, target, NULL, 0, err);
	if (status == BETON_OK)
		*out = plan;
	else
		dnn_plan_destroy(plan);
	return status;
}

/* ---- descriptions of GPUs ---- */

static int finish_properties(cudnnStatus_t status, dnn_descriptor *out, beton_error *err)
{
	if (status == CUDNN_STATUS_SUCCESS)
		status = cudnnBackendFinalize(*out);
	if (status == CUDNN_STATUS_SUCCESS)
		return BETON_OK;
	destroy(out);
	return dnn_fail(err, status, "description of a GPU");
}

int dnn_properties_of_handle(cudnnHandle_t handle, dnn_descriptor *out, beton_error *err)
{
	int status = create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, out, err);
	return status == BETON_OK ? finish_properties(cudnnBackendSetAttribute(*out, CUDNN_ATTR_DEVICEPROP_HANDLE,
									       CUDNN_TYPE_HANDLE, 1, &handle),
						      out, err)
				  : status;
}

int dnn_properties_from_text(const char *json, size_t length, dnn_descriptor *out, beton_error *err)
{
	int status = create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, out, err);
	return status == BETON_OK
		       ? finish_properties(cudnnBackendSetAttribute(*out, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
								    CUDNN_TYPE_CHAR, (int64_t)length, json),
					   out, err)
		       : status;
}

/* ---- running ---- */

void dnn_pack_clear(dnn_pack *pack)
{
	destroy(&pack->descriptor);
	*pack = (dnn_pack){.descriptor = NULL};
}

static int make_pack(const dnn_plan *plan, dnn_pack *pack, beton_error *err)
{
	dnn_graph *graph = plan->graph;
	int64_t numbers[DNN_MAX_TENSORS + DNN_MAX_SCALARS];
	void *addresses[DNN_MAX_TENSORS + DNN_MAX_SCALARS];
	int count = 0;
	for (int i = 0; i < graph->num_tensors; i++, count++) {
		numbers[count] = graph->tensors[i].number;
		addresses[count] = (char *)pack->addresses[graph->tensors[i].operand] + graph->tensors[i].offset;
	}
	for (int i = 0; i < graph->num_scalars; i++, count++) {
		numbers[count] = DNN_FIRST_SCALAR + i;
		addresses[count] = &graph->scalars[i];
	}
	int status = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack->descriptor, err);
	if (status != BETON_OK)
		return status;
	cudnnStatus_t answer = cudnnBackendSetAttribute(pack->descriptor, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
							CUDNN_TYPE_INT64, count, numbers);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendSetAttribute(pack->descriptor, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
						  CUDNN_TYPE_VOID_PTR, count, addresses);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendSetAttribute(pack->descriptor, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
						  CUDNN_TYPE_VOID_PTR, 1, &pack->workspace);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendFinalize(pack->descriptor);
	if (answer == CUDNN_STATUS_SUCCESS)
		return BETON_OK;
	destroy(&pack->descriptor);
	return dnn_fail(err, answer, "addresses of a run");
}

int dnn_plan_run(const dnn_plan *plan, dnn_pack *pack, cudnnHandle_t handle, cudaStream_t stream,
		 void *const *addresses, void *workspace, beton_error *err)
{
	bool same = pack->descriptor && pack->workspace == workspace;
	for (int i = 0; i < plan->graph->num_tensors; i++) {
		int operand = plan->graph->tensors[i].operand;
		same = same && pack->addresses[operand] == addresses[operand];
		pack->addresses[operand] = addresses[operand];
	}
	pack->workspace = workspace;
	if (!same) {
		destroy(&pack->descriptor);
		int status = make_pack(plan, pack, err);
		if (status != BETON_OK)
			return status;
	}
	cudnnStatus_t answer = cudnnSetStream(handle, stream);
	if (answer == CUDNN_STATUS_SUCCESS)
		answer = cudnnBackendExecute(handle, plan->plan, pack->descriptor);
	return answer == CUDNN_STATUS_SUCCESS ? BETON_OK
					      : dnn_fail(err, answer, "run of %.90s", plan->graph->signature);
}
