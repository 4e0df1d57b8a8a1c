/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans cuDNN's graphs of all ops of the models, of the examples in train/core/ops, and of attention, for GPUs that are
 * only described: test-cuda-dnn-plans [-a] DRIVER GPU.json...
 *
 * No plan is run. Engines that are compiled when they are planned need the driver's library; without a driver, DRIVER
 * (dnn_driver.c) stands in. -a: all plans are made; otherwise fewer models, and only one of each kind of compiled
 * engine, which takes a second each.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "devices/cuda/cudnn/dnn.h"

/* Engines that compute in true F32 need the most: copies of both pictures in another layout. */
#define WORKSPACE_LIMIT ((size_t)3 << 29)
#define MAX_SEEN 4096

typedef struct seen {
	char *texts[MAX_SEEN];
	int count;
} seen;

/* Whether the text is new. */
static bool note(seen *all, const char *text)
{
	for (int i = 0; i < all->count; i++)
		if (strcmp(all->texts[i], text) == 0)
			return false;
	if (all->count < MAX_SEEN)
		all->texts[all->count++] = strdup(text);
	return true;
}

static void forget(seen *all)
{
	while (all->count > 0)
		free(all->texts[--all->count]);
}

typedef struct checks {
	const char *gpu;
	dnn_target target;
	bool all, compiles; /* all plans; engines that are compiled are there */
	seen graphs, compiled;
	int num_gpus, num_graphs, num_plans, num_compiled, num_with_sums, num_missing, failures;
} checks;

BETON_PRINTF(3, 4)
static void wrong(checks *c, const dnn_graph *graph, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fprintf(stderr, "%s%s%s: %s: ", c->gpu, c->target.tf32 ? " tf32" : "",
		c->target.deterministic ? " deterministic" : "", graph->signature);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	c->failures++;
}

/* ---- what an engine says of itself ---- */

typedef struct notes {
	unsigned numerical, behavior; /* bit 1 << note */
} notes;

static notes notes_of(dnn_descriptor config)
{
	cudnnBackendDescriptor_t engine;
	cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
	int64_t count = 0, num_numerical = 0, num_behavior = 0;
	notes out = {~0u, ~0u};
	if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS)
		return out;
	if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
				     &engine) == CUDNN_STATUS_SUCCESS &&
	    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
				     CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &num_numerical,
				     numerical) == CUDNN_STATUS_SUCCESS &&
	    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
				     CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &num_behavior, behavior) == CUDNN_STATUS_SUCCESS) {
		out = (notes){0, 0};
		for (int i = 0; i < num_numerical; i++)
			out.numerical |= 1u << numerical[i];
		for (int i = 0; i < num_behavior; i++)
			out.behavior |= 1u << behavior[i];
	}
	cudnnBackendDestroyDescriptor(engine);
	return out;
}

static void check_promises(checks *c, const dnn_graph *graph, const dnn_configs *configs)
{
	unsigned forbidden = 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
	if (graph->multiplies && graph->type == CUDNN_DATA_FLOAT && !c->target.tf32)
		forbidden |= 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS |
			     1u << CUDNN_NUMERICAL_NOTE_WINOGRAD | 1u << CUDNN_NUMERICAL_NOTE_FFT;
	if (c->target.deterministic)
		forbidden |= 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
	for (int i = 0; i < configs->count; i++)
		if (notes_of(configs->list[i]).numerical & forbidden)
			wrong(c, graph, "configuration %d has the notes %#x", i, notes_of(configs->list[i]).numerical);
}

/* ---- plans ---- */

/* The same configuration from what is kept of it needs as much workspace. */
static void check_choice(checks *c, dnn_graph *graph, dnn_plan *plan)
{
	dnn_choice choice;
	dnn_descriptor config;
	dnn_plan *again;
	beton_error err;
	if (dnn_config_choice(plan->config, &choice, &err) != BETON_OK ||
	    dnn_config_from_choice(graph, &c->target, &choice, &config, &err) != BETON_OK ||
	    dnn_plan_create(graph, &c->target, config, &again, &err) != BETON_OK) {
		wrong(c, graph, "cannot be made again: %s", err.message);
		return;
	}
	if (again->workspace_bytes != plan->workspace_bytes)
		wrong(c, graph, "made again: %zu bytes of workspace instead of %zu", again->workspace_bytes,
		      plan->workspace_bytes);
	dnn_plan_destroy(again);
}

/* An engine that was compiled and could not be loaded, by a driver of another GPU, is as good as a plan. */
static bool is_compiled_only(int status, const beton_error *err)
{
	return status == BETON_DEVICE && strstr(err->message, "EXECUTION_FAILED") != NULL;
}

/* Attention's kernels take two seconds each: one of each direction. */
static void name_kind(const checks *c, const dnn_graph *graph, char *out, size_t size)
{
	int length = (int)strcspn(graph->signature, " ");
	if (strncmp(graph->signature, "attention", 9) == 0)
		snprintf(out, size, "%.*s", length, graph->signature);
	else
		snprintf(out, size, "%s %.*s %d %d", c->gpu, length, graph->signature, (int)graph->type,
			 graph->num_operations);
}

static void check_plan(checks *c, dnn_graph *graph, dnn_configs *configs)
{
	beton_error err = {0};
	bool begun = false; /* a kind whose first configuration does not work has others */
	for (int i = 0; i < configs->count; i++) {
		dnn_plan *plan;
		bool compiled = notes_of(configs->list[i]).behavior & 1u << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
		char kind[64];
		name_kind(c, graph, kind, sizeof(kind));
		if (compiled && !c->all && !begun && !note(&c->compiled, kind))
			return;
		begun |= compiled;
		int status = dnn_plan_create(graph, &c->target, configs->list[i], &plan, &err);
		configs->list[i] = NULL;
		if (status == BETON_OK) {
			if (!compiled)
				check_choice(c, graph, plan);
			dnn_plan_destroy(plan);
		}
		if (status == BETON_OK || is_compiled_only(status, &err)) {
			c->num_plans++;
			c->num_compiled += compiled;
			return;
		}
	}
	wrong(c, graph, "none of %d configurations can be planned: %s", configs->count, err.message);
}

/* Whether an engine can run it; more: there is another way to run the op. */
static bool check_graph(checks *c, dnn_graph *graph, bool more)
{
	beton_error err = {0};
	c->num_graphs++;
	if (dnn_graph_finish(graph, &c->target, &err) != BETON_OK) {
		wrong(c, graph, "%s", err.message);
		return false;
	}
	dnn_configs configs = {.count = 0};
	const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
	for (int i = 0; i < 2 && configs.count == 0; i++)
		if (dnn_configs_find(graph, &c->target, modes[i], &configs, &err) != BETON_OK)
			wrong(c, graph, "%s", err.message);
	check_promises(c, graph, &configs);
	bool found = configs.count > 0;
	if (found)
		check_plan(c, graph, &configs);
	else if (!more && (c->compiles || graph->multiplies))
		wrong(c, graph, "no engine: %s", err.message);
	else
		c->num_missing++;
	dnn_configs_free(&configs);
	return found;
}

/* An engine adds up d_q in the scratch, so that it needs less workspace than that has. Heads of keys that several of
 * queries share have gradients in the workspace. */
static void check_scratch_plan(checks *c, const dtrain_op_desc *desc, dnn_graph *graph, dnn_configs *configs)
{
	beton_error err = {0};
	dnn_plan *plan;
	if (configs->count == 0 || desc->attrs.attention.heads != desc->attrs.attention.kv_heads)
		return;
	if (dnn_plan_create(graph, &c->target, configs->list[0], &plan, &err) != BETON_OK) {
		wrong(c, graph, "%s", err.message);
	} else {
		if (plan->workspace_bytes >= graph->scratch_bytes)
			wrong(c, graph, "%zu bytes of workspace beside %zu of scratch", plan->workspace_bytes,
			      graph->scratch_bytes);
		dnn_plan_destroy(plan);
	}
	configs->list[0] = NULL;
}

/* Hopper's engine for the gradients of attention needs the scratch, Ampere's does not use it; and the heuristics
 * propose only some of the kernels of that one. */
static void check_scratch(checks *c, const dtrain_op_desc *desc, dnn_graph *const *graphs, int count)
{
	dnn_configs configs[DNN_MAX_VARIANTS], proposed;
	beton_error err = {0};
	bool hopper = strcmp(c->gpu, "h200.json") == 0;
	if (desc->kind != DTRAIN_OP_ATTENTION_BWD || !c->compiles || cudnnGetVersion() < 91900)
		return;
	if (dnn_configs_find_all(graphs, count, &c->target, CUDNN_HEUR_MODE_A, true, configs, &err) != BETON_OK)
		wrong(c, graphs[0], "%s", err.message);
	for (int i = 0; i < count; i++) {
		bool scratch = graphs[i]->scratch_bytes > 0;
		check_promises(c, graphs[i], &configs[i]);
		if (scratch && (configs[i].count > 0) != hopper)
			wrong(c, graphs[i], "%d configurations use the scratch", configs[i].count);
		if (scratch && !c->target.deterministic && graphs[i]->type == CUDNN_DATA_BFLOAT16)
			check_scratch_plan(c, desc, graphs[i], &configs[i]);
		if (dnn_configs_find(graphs[i], &c->target, CUDNN_HEUR_MODE_A, &proposed, &err) != BETON_OK)
			wrong(c, graphs[i], "%s", err.message);
		if (!scratch && configs[i].count < proposed.count + 3)
			wrong(c, graphs[i], "%d configurations beside %d", configs[i].count, proposed.count);
		dnn_configs_free(&proposed);
		dnn_configs_free(&configs[i]);
	}
}

/* The gradient of weights in half precision is wanted in F32 where channels are whole vectors. */
static bool needs_f32_sums(const dtrain_op_desc *desc)
{
	return desc->kind == DTRAIN_OP_CONV2D_BWD_WEIGHT && desc->inputs[0].shape.dim[1] % 8 == 0 &&
	       desc->inputs[1].shape.dim[1] % 8 == 0;
}

static bool has_sums(const dtrain_op_desc *desc)
{
	return desc->kind == DTRAIN_OP_CONV2D && desc->attrs.window.fusion != DTRAIN_FUSION_NONE;
}

static void check_ops(checks *c, const record *ops)
{
	for (int i = 0; i < ops->count; i++) {
		dnn_graph *graphs[DNN_MAX_VARIANTS];
		int count;
		if (dnn_op_graphs(&ops->ops[i], c->target.deterministic, graphs, &count, NULL) != BETON_OK)
			continue;
		char text[DNN_SIGNATURE_SIZE + 64];
		snprintf(text, sizeof(text), "%s %d %d %s", c->gpu, c->target.tf32, c->target.deterministic,
			 graphs[0]->signature);
		bool is_new = note(&c->graphs, text);
		for (int k = 0; k < count; k++) {
			c->target.workspace_limit = dnn_op_workspace(&ops->ops[i], WORKSPACE_LIMIT);
			bool found = is_new && check_graph(c, graphs[k], k + 1 < count);
			if (is_new && !found && k == 0 && c->compiles && needs_f32_sums(&ops->ops[i]))
				wrong(c, graphs[k], "no engine");
			c->num_with_sums += found && has_sums(&ops->ops[i]);
		}
		if (is_new)
			check_scratch(c, &ops->ops[i], graphs, count);
		while (count > 0)
			dnn_graph_destroy(graphs[--count]);
	}
}

/* ---- what is planned ---- */

/* few: without the models whose shapes are like others'. */
static bool record_all(record *ops, dtrain_dtype dtype, bool few)
{
	static const struct {
		const char *name;
		int64_t batch, side;
	} models[] = {{"resnet50", 256, 224}, {"resnet20", 3, 33},  {"resnet18", 256, 224},
		      {"resnet20", 512, 32},  {"resnet9", 512, 32}, {"airbench94", 1024, 32}};
	for (size_t i = 0; i < (few ? 2 : sizeof(models) / sizeof(models[0])); i++)
		for (int training = 0; training < 2; training++) {
			beton_error err = {0};
			if (record_model(ops, models[i].name, training, dtype, models[i].batch, models[i].side, &err) !=
			    BETON_OK) {
				fprintf(stderr, "%s: %s\n", models[i].name, err.message);
				return false;
			}
		}
	record_examples(ops, dtype);
	record_attention(ops, dtype);
	return true;
}

static void keep_followed(record *ops)
{
	int kept = 0;
	for (int i = 0; i < ops->count; i++)
		if (has_sums(&ops->ops[i]))
			ops->ops[kept++] = ops->ops[i];
	ops->count = kept;
}

static bool check_types(checks *c)
{
	static const struct {
		dtrain_dtype dtype;
		bool tf32, deterministic;
	} ways[] = {{DTRAIN_BF16, false, false}, {DTRAIN_F16, false, false}, {DTRAIN_F32, true, false},
		    {DTRAIN_F32, false, true},   {DTRAIN_BF16, false, true}, {DTRAIN_F32, false, false}};
	record *ops = calloc(1, sizeof(*ops));
	bool ok = ops != NULL;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]) && ok; i++) {
		/* All types for the first GPU; the two ends for the others, and convolutions with sums. */
		if (!c->all && (c->num_gpus > 1 ? i != 0 && i != 1 && i != 3 : i > 3))
			continue;
		ops->count = 0;
		ok = record_all(ops, ways[i].dtype, !c->all);
		if (!c->all && c->num_gpus > 1 && i == 1)
			keep_followed(ops);
		c->target.tf32 = ways[i].tf32;
		c->target.deterministic = ways[i].deterministic;
		if (ok)
			check_ops(c, ops);
	}
	free(ops);
	return ok;
}

static bool read_gpu(const char *path, dnn_descriptor *out)
{
	char text[4096];
	FILE *file = fopen(path, "rb");
	size_t length = file ? fread(text, 1, sizeof(text), file) : 0;
	if (file)
		fclose(file);
	if (length == 0 || length == sizeof(text)) {
		fprintf(stderr, "%s: cannot be read\n", path);
		return false;
	}
	beton_error err;
	if (dnn_properties_from_text(text, length, out, &err) == BETON_OK)
		return true;
	fprintf(stderr, "%s: %s\n", path, err.message);
	return false;
}

/* Asked by the leak sanitizer, where there is one: what NVIDIA's libraries keep is not ours. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
	return "leak:libcudnn\nleak:libcublasLt\nleak:libnvrtc\n";
}

int main(int argc, char **argv)
{
	checks c = {.target.workspace_limit = WORKSPACE_LIMIT};
	int first = 1;
	if (argc > first && strcmp(argv[first], "-a") == 0) {
		c.all = true;
		first++;
	}
	if (argc < first + 2) {
		fprintf(stderr, "usage: %s [-a] DRIVER GPU.json...\n", argv[0]);
		return 2;
	}
	if (cudnnGetVersion() < 90800) {
		fprintf(stderr, "skipped: cuDNN %zu cannot plan for a GPU that is not there (9.8 can)\n",
			cudnnGetVersion());
		return 77;
	}
	/* Loaded once, it is what every later search for libcuda.so.1 finds. */
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver)
		driver = dlopen(argv[first], RTLD_NOW);
	c.compiles = driver != NULL;
	/* Kept, so that what it leaks can be told from what others do; cuDNN loads and unloads it. */
	char nvrtc[32];
	snprintf(nvrtc, sizeof(nvrtc), "libnvrtc.so.%d", CUDART_VERSION / 1000);
	(void)dlopen(nvrtc, RTLD_NOW);
	bool ok = true;
	for (int i = first + 1; i < argc && ok; i++) {
		c.gpu = strrchr(argv[i], '/') ? strrchr(argv[i], '/') + 1 : argv[i];
		ok = read_gpu(argv[i], &c.target.properties);
		if (ok) {
			c.num_gpus++;
			ok = check_types(&c);
			cudnnBackendDestroyDescriptor(c.target.properties);
		}
	}
	printf("%d graphs, %d plans, %d of them compiled here; %d convolutions with sums have an engine; %d without an "
	       "engine without a driver; %d wrong\n",
	       c.num_graphs, c.num_plans, c.num_compiled, c.num_with_sums, c.num_missing, c.failures);
	forget(&c.graphs);
	forget(&c.compiled);
	return ok && c.failures == 0 && c.num_graphs > 0 ? 0 : 1;
}
