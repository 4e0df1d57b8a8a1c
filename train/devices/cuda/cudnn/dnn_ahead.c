/* SPDX-License-Identifier: Apache-2.0
 *
 * dnn-ahead: compiles, without a GPU, the plans that training a model on a GPU will need; tools/bundle ships them. It
 * makes the plans that the device would time (dnn_choose.c), and reports the times of compiling and of loading them. It
 * is used in the build and not installed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cuda_runtime_api.h>

#include "common/error.h"
#include "common/system.h"
#include "core/op.h"
#include "dnn.h"
#include "dnn_record.h"
#include "dnn_store.h"

/* dnn_run.c's limit for a GPU of 80 GB. */
#define WORKSPACE_LIMIT ((size_t)5 << 30)
enum { MAX_GRAPHS = 512 };

typedef struct options {
	const char *gpu, *model, *folder;
	dtrain_dtype dtype;
	uint64_t batch, side, candidates;
	bool deterministic;
} options;

/* The plans of one kind of op, or of all. */
typedef struct totals {
	int graphs, configurations, plans;
	double compiled_s, processor_s, loaded_s; /* processor_s: of all threads, while compiling */
} totals;

typedef struct work {
	char *seen[MAX_GRAPHS];
	totals kinds[DTRAIN_OP_KIND_COUNT];
} work;

static void usage(FILE *out)
{
	fputs("Usage: dnn-ahead --gpu GPU.json [OPTION]... FOLDER\n"
	      "Compiles cuDNN's plans for a GPU that is described by cuDNN's JSON, into FOLDER/plans-..., and prints "
	      "the\n"
	      "numbers and times for each kind of op\n"
	      "  --model NAME        resnet50\n"
	      "  --batch N           256\n"
	      "  --side N            of the pictures; 224\n"
	      "  --precision NAME    bf16, fp16 or fp32; bf16\n"
	      "  --candidates N      of each graph; as many as the device times\n"
	      "  --deterministic     what --deterministic trains with\n",
	      out);
}

static double seconds(void)
{
	return (double)bt_now_ns() * 1e-9;
}

static double processor_seconds(void)
{
	struct rusage use;
	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
	       1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* ---- plans ---- */

/* Loads a compiled plan, to time that. */
static int load(dnn_graph *const *graphs, const dnn_target *target, const dnn_job *jobs, int count, totals *sums,
		beton_error *err)
{
	dnn_target stored = *target;
	int status = BETON_OK;
	stored.origin = DNN_STORED;
	double start = seconds();
	for (int i = 0; i < count && status == BETON_OK; i++) {
		dnn_descriptor config;
		dnn_plan *plan;
		dnn_graph *graph = graphs[jobs[i].graph];
		status = dnn_config_from_choice(graph, &stored, &jobs[i].choice, &config, err);
		if (status == BETON_OK)
			status = dnn_plan_create(graph, &stored, config, &plan, err);
		if (status == BETON_OK)
			dnn_plan_destroy(plan);
		sums->plans += status == BETON_OK;
		/* Some proposed configurations do not work. */
		if (status == BETON_NOT_FOUND || status == BETON_UNSUPPORTED)
			status = BETON_OK;
	}
	sums->loaded_s += seconds() - start;
	return status;
}

/* The compiled configurations of an op's graphs. Returns how many there are. */
static int list_jobs(const options *o, const dtrain_op_desc *desc, const dnn_configs *configs, int num_graphs,
		     dnn_job *jobs, totals *sums)
{
	int most = dnn_op_limits(desc).compiled, count = 0;
	if ((uint64_t)most > o->candidates)
		most = (int)o->candidates;
	for (int i = 0; i < num_graphs; i++) {
		int found = 0, listed = 0;
		for (int k = 0; k < configs[i].count; k++) {
			if (!dnn_config_is_compiled(configs[i].list[k]))
				continue;
			found++;
			jobs[count].graph = i;
			if (listed < most &&
			    dnn_config_choice(configs[i].list[k], &jobs[count].choice, NULL) == BETON_OK) {
				count++;
				listed++;
			}
		}
		sums->graphs += found > 0;
		sums->configurations += found;
	}
	return count;
}

static int plan_op(const options *o, const dtrain_op_desc *desc, dnn_graph *const *graphs, int num_graphs,
		   const dnn_target *target, totals *sums, beton_error *err)
{
	dnn_job jobs[DNN_MAX_VARIANTS * DNN_MAX_COMPILED + 1];
	dnn_configs configs[DNN_MAX_VARIANTS];
	int count = 0, status = BETON_OK;
	for (int i = 0; i < num_graphs && status == BETON_OK; i++)
		status = dnn_graph_finish(graphs[i], target, err);
	if (status != BETON_OK)
		return status;
	status = dnn_configs_find_all(graphs, num_graphs, target, CUDNN_HEUR_MODE_A, dnn_op_limits(desc).extended,
				      configs, err);
	if (status == BETON_OK)
		count = list_jobs(o, desc, configs, num_graphs, jobs, sums);
	for (int i = 0; i < num_graphs; i++)
		dnn_configs_free(&configs[i]);
	if (status != BETON_OK || count == 0)
		return status;
	double start = seconds(), used = processor_seconds();
	dnn_compile(desc, target, jobs, count, UINT64_MAX);
	sums->compiled_s += seconds() - start;
	sums->processor_s += processor_seconds() - used;
	/* A plan that was not written would be loaded from the memory of this process. */
	status = dnn_store_failure(target->store, err);
	return status == BETON_OK ? load(graphs, target, jobs, count, sums, err) : status;
}

/* If a signature cannot be recorded, it counts as new each time. */
static bool is_new(work *w, int *seen, const char *signature)
{
	for (int i = 0; i < *seen; i++)
		if (strcmp(w->seen[i], signature) == 0)
			return false;
	char *copy = *seen < MAX_GRAPHS ? strdup(signature) : NULL;
	if (copy)
		w->seen[(*seen)++] = copy;
	return true;
}

static int plan_ops(const options *o, const record *ops, const dnn_target *target, work *w, beton_error *err)
{
	int seen = 0, status = BETON_OK;
	for (int i = 0; i < ops->count && status == BETON_OK; i++) {
		dnn_graph *graphs[DNN_MAX_VARIANTS];
		int count = 0;
		if (dnn_op_graphs(&ops->ops[i], target->deterministic, graphs, &count, NULL) != BETON_OK)
			continue;
		if (is_new(w, &seen, graphs[0]->signature))
			status = plan_op(o, &ops->ops[i], graphs, count, target, &w->kinds[ops->ops[i].kind], err);
		while (count > 0)
			dnn_graph_destroy(graphs[--count]);
	}
	while (seen > 0)
		free(w->seen[--seen]);
	return status;
}

static void print(const char *name, const totals *t)
{
	printf("%s: %d graphs with engines that are compiled, %d such configurations, %d plans: compiled in %.1f s "
	       "(processors: %.1f s), loaded in %.2f s\n",
	       name, t->graphs, t->configurations, t->plans, t->compiled_s, t->processor_s, t->loaded_s);
}

/* Prints and returns the sum of all kinds. */
static totals print_kinds(const work *w)
{
	totals all = {.graphs = 0};
	for (int i = 0; i < DTRAIN_OP_KIND_COUNT; i++) {
		const totals *t = &w->kinds[i];
		if (t->graphs == 0)
			continue;
		print(dtrain__op_name((dtrain_op_kind)i), t);
		all.graphs += t->graphs;
		all.configurations += t->configurations;
		all.plans += t->plans;
		all.compiled_s += t->compiled_s;
		all.processor_s += t->processor_s;
		all.loaded_s += t->loaded_s;
	}
	return all;
}

/* ---- the GPU ---- */

/* Once loaded, this is the driver that cuDNN finds. */
static int load_driver(beton_error *err)
{
	if (dlopen("libcuda.so.1", RTLD_NOW) || dlopen(DNN_DRIVER, RTLD_NOW))
		return BETON_OK;
	return bt_fail(err, BETON_DEVICE, "there is neither a driver nor its stand-in: %s", dlerror());
}

static int read_gpu(const char *path, dnn_descriptor *gpu, beton_error *err)
{
	char text[4096];
	FILE *file = fopen(path, "rb");
	if (!file)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	size_t length = fread(text, 1, sizeof(text), file);
	fclose(file);
	if (length == 0 || length == sizeof(text))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no description of a GPU", path);
	return dnn_properties_from_text(text, length, gpu, err);
}

/* A number of cuDNN's description; -1: no such name. */
static int number_of(dnn_descriptor gpu, const char *name)
{
	char text[8192] = "", key[64];
	int64_t length = 0;
	snprintf(key, sizeof(key), "\"%s\":", name);
	if (cudnnBackendGetAttribute(gpu, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof(text) - 1,
				     &length, text) != CUDNN_STATUS_SUCCESS)
		return -1;
	const char *found = strstr(text, key);
	return found ? atoi(found + strlen(key)) : -1;
}

static int open_store(const char *folder, dnn_descriptor gpu, dnn_store **out, beton_error *err)
{
	int version = number_of(gpu, "deviceVer"), processors = number_of(gpu, "multiProcessorCount");
	if (version < 0 || processors < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "the GPU's capability and multiprocessors are not known");
	/* 900 is 9.0 */
	char *name = dnn_store_name(version / 10, processors, cudnnGetVersion());
	char *path = name ? bt_format("%s/%s", folder, name) : NULL;
	int status = path ? dnn_store_open(path, NULL, out, err) : bt_fail(err, BETON_NO_MEMORY, "out of memory");
	free(path);
	free(name);
	return status;
}

static int run(const options *o, beton_error *err)
{
	dnn_target target = {.deterministic = o->deterministic, .workspace_limit = WORKSPACE_LIMIT};
	totals sums = {.graphs = 0};
	record *ops = calloc(1, sizeof(*ops));
	work *w = calloc(1, sizeof(*w));
	int status = ops && w ? load_driver(err) : bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (status == BETON_OK)
		status = read_gpu(o->gpu, &target.properties, err);
	if (status == BETON_OK) {
		int driver = number_of(target.properties, "driverVer");
		target.driver = driver > 0 ? driver : 0;
		status = open_store(o->folder, target.properties, &target.store, err);
	}
	if (status == BETON_OK)
		status = record_model(ops, o->model, true, o->dtype, (int64_t)o->batch, (int64_t)o->side, err);
	double start = seconds(), used = processor_seconds();
	if (status == BETON_OK)
		status = plan_ops(o, ops, &target, w, err);
	if (status == BETON_OK)
		sums = print_kinds(w);
	if (status == BETON_OK && sums.plans == 0)
		status = bt_fail(err, BETON_UNSUPPORTED,
				 "%s: cuDNN compiles nothing for it; without libnvrtc.so it compiles nothing at all",
				 o->model);
	if (status == BETON_OK) {
		print(o->model, &sums);
		printf("%s: all in %.1f s (processors: %.1f s)\n", o->model, seconds() - start,
		       processor_seconds() - used);
	}
	dnn_store_close(target.store);
	if (target.properties)
		cudnnBackendDestroyDescriptor(target.properties);
	free(w);
	free(ops);
	return status;
}

/* ---- the command line ---- */

static int read_dtype(const char *text, dtrain_dtype *out, beton_error *err)
{
	static const struct {
		const char *name;
		dtrain_dtype dtype;
	} types[] = {{"bf16", DTRAIN_BF16}, {"fp16", DTRAIN_F16}, {"fp32", DTRAIN_F32}};
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(types[i].name, text) == 0) {
			*out = types[i].dtype;
			return BETON_OK;
		}
	return bt_fail(err, BETON_INVALID_ARGUMENT, "--precision: '%s' is not bf16, fp16 or fp32", text);
}

static int read_options(int argc, char **argv, options *o, beton_error *err)
{
	static const struct option known[] = {{"gpu", required_argument, NULL, 'g'},
					      {"model", required_argument, NULL, 'm'},
					      {"batch", required_argument, NULL, 'b'},
					      {"side", required_argument, NULL, 's'},
					      {"precision", required_argument, NULL, 'p'},
					      {"candidates", required_argument, NULL, 'c'},
					      {"deterministic", no_argument, NULL, 'd'},
					      {"help", no_argument, NULL, 'h'},
					      {0}};
	int status = BETON_OK;
	for (int c; status == BETON_OK && (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		if (c == 'g')
			o->gpu = optarg;
		else if (c == 'm')
			o->model = optarg;
		else if (c == 'b')
			status = bt_parse_u64("--batch", optarg, 1, 1 << 20, &o->batch, err);
		else if (c == 's')
			status = bt_parse_u64("--side", optarg, 1, 4096, &o->side, err);
		else if (c == 'p')
			status = read_dtype(optarg, &o->dtype, err);
		else if (c == 'c')
			status = bt_parse_u64("--candidates", optarg, 1, DNN_MAX_COMPILED, &o->candidates, err);
		else if (c == 'd')
			o->deterministic = true;
		else if (c == 'h')
			return BETON_CANCELLED;
		else
			return bt_fail(err, BETON_INVALID_ARGUMENT, "try --help");
	}
	if (status == BETON_OK && (!o->gpu || optind + 1 != argc))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "it needs --gpu and a folder; try --help");
	o->folder = argv[optind];
	return status;
}

int main(int argc, char **argv)
{
	options o = {
		.model = "resnet50", .dtype = DTRAIN_BF16, .batch = 256, .side = 224, .candidates = DNN_MAX_COMPILED};
	beton_error err = {0};
	int status = read_options(argc, argv, &o, &err);
	if (status == BETON_CANCELLED) {
		usage(stdout);
		return 0;
	}
	bool wrong = status != BETON_OK;
	if (!wrong)
		status = run(&o, &err);
	if (status == BETON_OK && fflush(stdout) != 0)
		status = bt_fail(&err, BETON_IO, "cannot write the result");
	if (status == BETON_OK)
		return 0;
	fprintf(stderr, "dnn-ahead: %s\n", err.message);
	return wrong ? 2 : 1;
}
