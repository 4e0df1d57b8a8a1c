/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <jansson.h>

#include "bench.h"
#include "bench_step_job.h"
#include "bench_step_plan.h"
#include "bench_step_profile.h"
#include "common/arguments.h"
#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"
#include "core/program.h"
#include "engine/memory/recompute_option.h"
#include "report/device_activity.h"

extern void omp_set_num_threads(int count);

/* oneDNN's own speed, bare. */
typedef struct bare_rate {
	double own_seconds, own_rate; /* of all such ops of the step; GFLOP/s */
	double reference_rate;        /* of one of a usual size; GFLOP/s */
} bare_rate;

/* In one type; all 0: the type is not supported. */
typedef struct bare_figures {
	bare_rate conv;    /* reference: 3x3, 256 channels, 14 x 14 pixels */
	bare_rate product; /* reference: PRODUCT_M x PRODUCT_K x PRODUCT_N. In the step: linear layers. */
} bare_figures;

enum { PRODUCT_M = 1024, PRODUCT_K = 768, PRODUCT_N = 3072 };

typedef struct figures {
	bench_times times;
	bool asynchronous;
	bool activity_known;
	dtrain_device_activity activity; /* under the load of the steps */
	bare_figures f32, bf16;
	dtrain_program_info info;
	size_t copy_bytes;     /* of the compute copies of parameters */
	bench_profile profile; /* no ops: none */
	const char *unit;      /* of throughput */
	double units;          /* in a step */
	int64_t side;          /* of a picture, in pixels */
	int64_t length;        /* of a sequence; 0: pictures */
	size_t peak_bytes;     /* of the process's resident memory, when the steps had been timed */
	char description[256];
} figures;

static const char *const precisions[] = {[ENGINE_PRECISION_F32] = "f32",
					 [ENGINE_PRECISION_TF32] = "tf32",
					 [ENGINE_PRECISION_BF16] = "bf16",
					 [ENGINE_PRECISION_FP16] = "fp16",
					 NULL};

static void usage(void)
{
	puts("Usage: dtrain-bench step [OPTION]...\n"
	     "Times training steps on made-up samples or samples of a file. On a CPU it also times, in the same run,\n"
	     "oneDNN's convolutions and products alone: one of a usual size, and the model's. On a GPU it also times\n"
	     "the launch of a step by the host, and the share of the time that the device computes.\n\n"
	     "  --model NAME      a model of dtrain-ffcv, or a config.json of Hugging Face (default resnet18)\n"
	     "  --image-size N    pixels a side (default 128)\n"
	     "  --context-length N  tokens of a sequence (default: the model's longest)\n"
	     "  --batch-size N    pictures or sequences a step (default 32)\n"
	     "  --classes N       default 1000\n"
	     "  --threads N       0 = all cores (default)\n"
	     "  --steps N         timed steps, after two that are not (default 10)\n"
	     "  --device NAME     cuda, cuda:INDEX, cpu, ref or auto (default auto)\n"
	     "  --precision NAME  f32, tf32, bf16 or fp16 (default f32)\n"
	     "  --recompute HOW   none (default), selective, full, or a number of blocks: what backward computes "
	     "again\n"
	     "  --data FILE       take samples from a file, pictures randomly cropped; not made-up ones\n"
	     "  --workers N       threads that read and decode them; 0 = all cores (default)\n"
	     "  --capture         whole steps on a device that can replay them (default)\n"
	     "  --no-capture      put each step on the device op by op\n"
	     "  --tune WHEN       times algorithms that a GPU does not know yet: now (default), or later, beside the "
	     "steps\n"
	     "  --profile         time each op of the step by itself, too: its bytes, its products, its limit\n"
	     "  --bandwidth GB/S  limit of the memory for --profile (default: the device's own, or as it adds arrays)\n"
	     "  --peak GFLOP/S    limit of products for --profile (default: of large products, or of a 3x3 "
	     "convolution)\n"
	     "  --plan            print the memory that each --recompute needs, and what is in it when; time nothing\n"
	     "  --json            one JSON object instead of text\n"
	     "  --help            this text");
}

static const char *const tunes[] = {[RUN_TUNE_LATER] = "later", [RUN_TUNE_NOW] = "now", NULL};

/* Parses billions per second. */
static int parse_rate(const char *option, double *out, beton_error *err)
{
	double number;
	int status = bt_parse_double(option, optarg, 1e-3, 1e9, &number, err);
	if (status == BETON_OK)
		*out = number * 1e9;
	return status;
}

static int parse_option(int option, bench_step_options *o, beton_error *err)
{
	switch (option) {
	case 'm':
		o->model = optarg;
		return BETON_OK;
	case 'd':
		return run_parse_device(optarg, &o->device, err);
	case 'p':
		return bt_parse_choice("--precision", optarg, precisions, &o->precision, err);
	case 'f':
		o->data = optarg;
		return BETON_OK;
	case 'w':
		return bt_parse_u64("--workers", optarg, 0, 1024, &o->workers, err);
	case 'g':
		o->no_capture = false;
		return BETON_OK;
	case 'n':
		o->no_capture = true;
		return BETON_OK;
	case 'u':
		return bt_parse_choice("--tune", optarg, tunes, &o->tune, err);
	case 'i':
		return bt_parse_u64("--image-size", optarg, 1, 4096, &o->side, err);
	case 'T':
		return bt_parse_u64("--context-length", optarg, 1, INT32_MAX - 1, &o->context, err);
	case 'b':
		return bt_parse_u64("--batch-size", optarg, 1, 65536, &o->batch, err);
	case 'c':
		return bt_parse_u64("--classes", optarg, 1, 1 << 24, &o->classes, err);
	case 't':
		return bt_parse_u64("--threads", optarg, 0, 4096, &o->threads, err);
	case 's':
		return bt_parse_u64("--steps", optarg, 1, 100000, &o->steps, err);
	case 'r':
		return engine_recompute_parse("--recompute", optarg, &o->recompute, err);
	case 'P':
		o->profile = true;
		return BETON_OK;
	case 'B':
		return parse_rate("--bandwidth", &o->bandwidth, err);
	case 'F':
		return parse_rate("--peak", &o->flops, err);
	case 'l':
		o->plan = true;
		return BETON_OK;
	case 'j':
		o->json = true;
		return BETON_OK;
	case 'h':
		o->help = true;
		return BETON_OK;
	default: /* getopt has printed the error */
		return bt_fail(err, BETON_INVALID_ARGUMENT, "try dtrain-bench step --help");
	}
}

static int parse(int argc, char **argv, bench_step_options *o, beton_error *err)
{
	static const struct option names[] = {{"model", required_argument, NULL, 'm'},
					      {"image-size", required_argument, NULL, 'i'},
					      {"context-length", required_argument, NULL, 'T'},
					      {"batch-size", required_argument, NULL, 'b'},
					      {"classes", required_argument, NULL, 'c'},
					      {"threads", required_argument, NULL, 't'},
					      {"steps", required_argument, NULL, 's'},
					      {"device", required_argument, NULL, 'd'},
					      {"precision", required_argument, NULL, 'p'},
					      {"data", required_argument, NULL, 'f'},
					      {"workers", required_argument, NULL, 'w'},
					      {"capture", no_argument, NULL, 'g'},
					      {"no-capture", no_argument, NULL, 'n'},
					      {"tune", required_argument, NULL, 'u'},
					      {"recompute", required_argument, NULL, 'r'},
					      {"profile", no_argument, NULL, 'P'},
					      {"bandwidth", required_argument, NULL, 'B'},
					      {"peak", required_argument, NULL, 'F'},
					      {"plan", no_argument, NULL, 'l'},
					      {"json", no_argument, NULL, 'j'},
					      {"help", no_argument, NULL, 'h'},
					      {0}};
	bool seen[sizeof(names) / sizeof(names[0])] = {false};
	int option, status = BETON_OK;
	while (status == BETON_OK && (option = bt_getopt_once(argc, argv, "", names, seen)) != -1)
		status = parse_option(option, o, err);
	if (status == BETON_OK && optind < argc)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "unexpected argument '%s'", argv[optind]);
	if (status == BETON_OK && !o->profile && (o->bandwidth > 0 || o->flops > 0))
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "--bandwidth and --peak are for --profile");
	if (status == BETON_OK && o->plan && o->profile)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "--plan times nothing: without --profile");
	return status;
}

/* Times one convolution of the step, forward or backward, as a bare primitive. No other op adds anything. */
static int time_conv(const dtrain_graph *graph, const dtrain__node *node, bool bf16, bare_rate *rate, double *flops,
		     beton_error *err)
{
	const dtrain_shape *a = &graph->tensors[node->inputs[0]].shape;
	const dtrain_shape *b = node->num_inputs > 1 ? &graph->tensors[node->inputs[1]].shape : NULL;
	const dtrain_shape *out = &graph->tensors[node->outputs[0]].shape;
	const dtrain_shape *x = a, *w = b, *y = out;
	if (node->kind == DTRAIN_OP_CONV2D_BWD_DATA)
		x = out, y = a;
	else if (node->kind == DTRAIN_OP_CONV2D_BWD_WEIGHT)
		w = out, y = b;
	else if (node->kind != DTRAIN_OP_CONV2D)
		return BETON_OK;
	double seconds = 0;
	int status = bench_conv(node->kind, bf16, x, w, y, &node->attrs.window, 3, &seconds, err);
	rate->own_seconds += seconds;
	*flops += 2.0 * (double)dtrain_shape_count(y) * (double)(w->dim[1] * w->dim[2] * w->dim[3]);
	return status;
}

/* The same for the product of a linear layer. */
static int time_product(const dtrain_graph *graph, const dtrain__node *node, bool bf16, bare_rate *rate, double *flops,
			beton_error *err)
{
	const dtrain_shape *a = &graph->tensors[node->inputs[0]].shape, *out = &graph->tensors[node->outputs[0]].shape;
	const bool of_weight = node->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT;
	if (node->kind != DTRAIN_OP_LINEAR && node->kind != DTRAIN_OP_LINEAR_BWD_DATA && !of_weight)
		return BETON_OK;
	double seconds = 0;
	int64_t k = a->dim[of_weight ? 0 : 1];
	int status = bench_product(bf16, out->dim[0], k, out->dim[1], 3, &seconds, err);
	rate->own_seconds += seconds;
	*flops += 2.0 * (double)dtrain_shape_count(out) * (double)k;
	return status;
}

static int time_own(const bench_job *j, bool bf16, bare_figures *f, beton_error *err)
{
	const dtrain_graph *graph = j->engine.train.program->graph;
	double in_convs = 0, in_products = 0;
	int status = BETON_OK;
	for (int32_t i = 0; i < graph->num_nodes && status == BETON_OK; i++) {
		const dtrain__node *node = &graph->nodes[i];
		if (node->is_repeated)
			continue;
		status = time_conv(graph, node, bf16, &f->conv, &in_convs, err);
		if (status == BETON_OK)
			status = time_product(graph, node, bf16, &f->product, &in_products, err);
	}
	f->conv.own_rate = in_convs > 0 ? in_convs / f->conv.own_seconds * 1e-9 : 0;
	f->product.own_rate = in_products > 0 ? in_products / f->product.own_seconds * 1e-9 : 0;
	return status;
}

static int time_references(int64_t batch, bool bf16, bare_figures *f, beton_error *err)
{
	const dtrain_window_attrs attrs = {.stride = {1, 1}, .padding = {1, 1}};
	dtrain_shape x = dtrain_shape_of(4, (int64_t[]){batch, 256, 14, 14});
	dtrain_shape w = dtrain_shape_of(4, (int64_t[]){256, 256, 3, 3});
	double seconds;
	int status = bench_conv(DTRAIN_OP_CONV2D, bf16, &x, &w, &x, &attrs, 10, &seconds, err);
	if (status == BETON_OK) {
		f->conv.reference_rate = 2.0 * (double)dtrain_shape_count(&x) * 256 * 9 / seconds * 1e-9;
		status = bench_product(bf16, PRODUCT_M, PRODUCT_K, PRODUCT_N, 10, &seconds, err);
	}
	if (status == BETON_OK)
		f->product.reference_rate = 2.0 * PRODUCT_M * PRODUCT_K * PRODUCT_N / seconds * 1e-9;
	return status;
}

static int time_bare(const bench_job *job, bool bf16, bare_figures *f, beton_error *err)
{
	int status = time_references((int64_t)job->options->batch, bf16, f, err);
	if (status == BETON_OK)
		status = time_own(job, bf16, f, err);
	if (status != BETON_UNSUPPORTED || !bf16)
		return status;
	*f = (bare_figures){0};
	return BETON_OK;
}

/* oneDNN's speed in the step's type; in F32 if oneDNN does not compute in that type. */
static const bare_figures *of_same_type(const bench_step_options *o, const figures *f)
{
	return o->precision == ENGINE_PRECISION_BF16 && f->bf16.conv.reference_rate > 0 ? &f->bf16 : &f->f32;
}

/* The compute limit is the option or, on the host, the rate that oneDNN's convolution reached in this run. */
static int profile(bench_job *job, const bench_step_options *o, figures *f, beton_error *err)
{
	double flops = o->flops > 0 ? o->flops : of_same_type(o, f)->conv.reference_rate * 1e9;
	return bench_profile_steps(job, o->bandwidth, flops, &f->profile, err);
}

static int measure(const bench_step_options *o, figures *f, beton_error *err)
{
	bench_job job;
	struct rusage usage;
	int status = bench_job_open(&job, o, err);
	if (status == BETON_OK) {
		snprintf(f->description, sizeof(f->description), "%s", job.engine.caps.description);
		f->asynchronous = job.engine.staged;
		f->unit = job.engine.job.task->unit;
		f->units = bench_job_units(&job);
		f->side = job.example.vision.image_size;
		f->length = job.example.model.transformer.vocabulary ? (int64_t)(f->units / (double)o->batch) : 0;
		f->info.struct_size = sizeof(f->info);
		dtrain_program_get_info(job.engine.train.program, &f->info);
		f->copy_bytes = dtrain_params_copy_bytes(job.engine.params);
		/* The bare primitives use the device's number of threads. */
		omp_set_num_threads(job.engine.caps.threads);
		status = bench_job_time(&job, &f->times, err);
		getrusage(RUSAGE_SELF, &usage);
		f->peak_bytes = (size_t)usage.ru_maxrss * 1024;
	}
	if (status == BETON_OK)
		status = bench_job_activity(&job, &f->activity_known, &f->activity, err);
	if (status == BETON_OK && !f->asynchronous)
		status = time_bare(&job, false, &f->f32, err);
	if (status == BETON_OK && !f->asynchronous)
		status = time_bare(&job, true, &f->bf16, err);
	if (status == BETON_OK && o->profile)
		status = profile(&job, o, f, err);
	bench_job_close(&job);
	return status;
}

/* The step's rate and time beside oneDNN's in the same type. */
static json_t *pack_bare(const bare_figures *f, double rate, double seconds)
{
	return json_pack("{s:f, s:f, s:f, s:f}", "share_of_reference_conv", rate / f->conv.reference_rate,
			 "share_of_reference_product", rate / f->product.reference_rate, "share_of_own_convs",
			 f->conv.own_seconds / seconds, "share_of_own_products", f->product.own_seconds / seconds);
}

static int add_rates(json_t *object, const char *type, const bare_figures *f)
{
	const struct {
		const char *name;
		double rate;
	} rates[] = {{"reference_conv", f->conv.reference_rate},
		     {"own_convs", f->conv.own_rate},
		     {"reference_product", f->product.reference_rate},
		     {"own_products", f->product.own_rate}};
	int failed = 0;
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]) && f->conv.reference_rate > 0; i++) {
		char key[64];
		snprintf(key, sizeof(key), "%s%s_gflops", rates[i].name, type);
		failed |= json_object_set_new(object, key, json_real(rates[i].rate));
	}
	return failed;
}

static int print_json(const bench_step_options *o, const figures *f)
{
	const bench_times *t = &f->times;
	double rate = f->info.flops / t->step_seconds * 1e-9;
	char key[32];
	snprintf(key, sizeof(key), "%s_per_second", f->unit);
	json_t *object = json_pack(
		"{s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:I, s:I, s:I, s:I}", "model", o->model, "device",
		f->description, "precision", precisions[o->precision], f->length ? "context_length" : "image_size",
		f->length ? (json_int_t)f->length : (json_int_t)f->side, "batch_size", (json_int_t)o->batch, "step_ms",
		t->step_seconds * 1e3, key, f->units / t->step_seconds, "gflops", rate, "repeated_ops",
		(json_int_t)f->info.repeated, "repeated_flops", f->info.repeated_flops, "arena_bytes",
		(json_int_t)f->info.arena_bytes, "unshared_bytes", (json_int_t)f->info.unshared_bytes, "copy_bytes",
		(json_int_t)f->copy_bytes, "peak_resident_bytes", (json_int_t)f->peak_bytes);
	json_t *more = f->asynchronous ? json_pack("{s:f, s:f, s:f, s:b}", "launch_ms", t->launch_seconds * 1e3,
						   "device_ms", t->device_seconds * 1e3, "device_busy",
						   t->device_seconds / t->step_seconds, "capture", !o->no_capture)
				       : pack_bare(of_same_type(o, f), rate, t->step_seconds);
	int failed = json_object_set_new(object, "first_step_s", json_real(t->first_seconds)) != 0;
	failed |= json_object_update(object, more) != 0;
	failed |= !f->asynchronous && (add_rates(object, "", &f->f32) || add_rates(object, "_bf16", &f->bf16));
	if (o->data)
		failed |= json_object_set_new(object, "data_wait_ms", json_real(t->data_seconds * 1e3)) != 0;
	failed |= f->activity_known && run_activity_json(object, &f->activity) != 0;
	if (f->profile.ops)
		failed |= json_object_set_new(object, "profile", bench_profile_json(&f->profile)) != 0;
	failed = failed || json_dumpf(object, stdout, 0) != 0 || putchar('\n') == EOF;
	json_decref(object);
	json_decref(more);
	return failed;
}

/* rate: of the step in GFLOP/s, if it computes in that type; otherwise 0. */
static void print_bare(const char *type, const bare_figures *f, double rate, double step_seconds)
{
	char product[40];
	snprintf(product, sizeof(product), "product, %d x %d x %d", PRODUCT_M, PRODUCT_K, PRODUCT_N);
	const struct {
		const char *reference, *own;
		bare_rate rate;
	} lines[] = {{"3x3 convolution, 256 ch, 14x14", "convolutions", f->conv}, {product, "products", f->product}};
	for (int i = 0; i < 2 && f->conv.reference_rate > 0; i++) {
		const bare_rate *bare = &lines[i].rate;
		printf("oneDNN in %-4s: %-30s           %6.0f GFLOP/s", type, lines[i].reference, bare->reference_rate);
		if (rate > 0)
			printf("   step: %3.0f%%", 100 * rate / bare->reference_rate);
		if (bare->own_seconds > 0)
			printf("\n                the step's own %-12s %11.1f ms %6.0f GFLOP/s", lines[i].own,
			       bare->own_seconds * 1e3, bare->own_rate);
		if (bare->own_seconds > 0 && rate > 0)
			printf("   of the step's time: %3.0f%%", 100 * bare->own_seconds / step_seconds);
		putchar('\n');
	}
}

static void print_activity(const dtrain_device_activity *activity)
{
	char text[RUN_ACTIVITY_TEXT], reasons[RUN_ACTIVITY_TEXT];
	run_activity_text(activity, text);
	run_activity_reasons(activity->throttled, reasons);
	if (*text)
		printf("the device under load       %s%s%s\n", text, *reasons ? "; throttled: " : "", reasons);
	else if (*reasons)
		printf("the device is throttled     %s\n", reasons);
}

static void print(const bench_step_options *o, figures *f)
{
	const bench_times *t = &f->times;
	double rate = f->info.flops / t->step_seconds * 1e-9;
	printf("%s, ", o->model);
	if (f->length)
		printf("%lld tokens", (long long)f->length);
	else
		printf("%llu x %llu px", (unsigned long long)f->side, (unsigned long long)f->side);
	printf(", batch %llu, %s, %s\n", (unsigned long long)o->batch, precisions[o->precision], f->description);
	printf("step                        %8.1f %s/s  %7.1f ms  %6.0f GFLOP/s\n", f->units / t->step_seconds, f->unit,
	       t->step_seconds * 1e3, rate);
	printf("the first step ended after  %8.1f s\n", t->first_seconds);
	if (f->asynchronous) {
		printf("the device computes         %8.1f ms a step: %3.0f%% of the time\n", t->device_seconds * 1e3,
		       100 * t->device_seconds / t->step_seconds);
		printf("the host launches a step in %8.2f ms, %s\n", t->launch_seconds * 1e3,
		       o->no_capture ? "op by op" : "as a whole");
	} else {
		print_bare("f32", &f->f32, of_same_type(o, f) == &f->f32 ? rate : 0, t->step_seconds);
		print_bare("bf16", &f->bf16, of_same_type(o, f) == &f->bf16 ? rate : 0, t->step_seconds);
	}
	if (f->activity_known)
		print_activity(&f->activity);
	if (o->data)
		printf("waiting for data            %8.1f ms a step\n", t->data_seconds * 1e3);
	printf("activations                 %8.1f MB, without sharing %.1f MB\n", (double)f->info.arena_bytes * 1e-6,
	       (double)f->info.unshared_bytes * 1e-6);
	if (f->info.repeated)
		printf("computed again              %8d ops, %.1f %% of the products\n", f->info.repeated,
		       100 * f->info.repeated_flops / f->info.flops);
	if (f->copy_bytes)
		printf("parameters in %-4s          %8.1f MB\n", precisions[o->precision],
		       (double)f->copy_bytes * 1e-6);
	printf("most memory of the process  %8.1f MB\n", (double)f->peak_bytes * 1e-6);
	if (f->profile.ops)
		bench_profile_print(&f->profile);
}

int bench_step(int argc, char **argv)
{
	bench_step_options o = {
		.device = {"auto", -1}, .model = "resnet18", .batch = 32, .steps = 10, .tune = RUN_TUNE_NOW};
	beton_error err = {0};
	int status = parse(argc, argv, &o, &err);
	if (status == BETON_OK && o.help) {
		usage();
		return BENCH_DONE;
	}
	if (status != BETON_OK) {
		fprintf(stderr, "dtrain-bench: %s\n", err.message);
		return BENCH_USAGE;
	}
	figures f = {0};
	status = o.plan ? bench_step_plan(&o, &err) : measure(&o, &f, &err);
	if (status != BETON_OK) {
		bench_profile_free(&f.profile);
		fprintf(stderr, "dtrain-bench: %s\n", err.message);
		return bench_failure(status);
	}
	int failed = 0;
	if (o.json && !o.plan)
		failed = print_json(&o, &f);
	else if (!o.plan)
		print(&o, &f);
	bench_profile_free(&f.profile);
	if (failed || fflush(stdout) != 0) {
		fprintf(stderr, "dtrain-bench: cannot write the result\n");
		return BENCH_FAILED;
	}
	return BENCH_DONE;
}
