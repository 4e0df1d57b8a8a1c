/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <dtrain/model.h>
#include <dtrain/optim.h>

#include "common/error.h"
#include "common/system.h"
#include "core/program.h"
#include "bench.h"

extern void omp_set_num_threads(int count);

typedef struct step_options {
	const char *device, *model;
	uint64_t side, batch, classes, threads, steps;
	bool json, help;
} step_options;

typedef struct figures {
	double step_seconds;             /* median */
	double conv_seconds, conv_flops; /* the model's own convolutions, bare */
	double reference_rate;           /* GFLOP/s of a 3x3 convolution, 256 channels, 14 x 14 */
	dtrain_program_facts facts;
	char description[128];
} figures;

typedef struct job {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_graph *graph;
	dtrain_program *program;
	dtrain_sgd *sgd;
	dtrain_tensor image, label;
} job;

static void usage(void)
{
	puts("Usage: dtrain-bench step [OPTION]...\n"
	     "Times training steps on made-up pictures, and in the same run oneDNN's convolutions without anything\n"
	     "around them: a 3x3 one, and those of the model itself.\n\n"
	     "  --model NAME      mlp, resnet20, resnet18 or resnet50 (default resnet18)\n"
	     "  --image-size N    pixels a side (default 128)\n"
	     "  --batch-size N    pictures a step (default 32)\n"
	     "  --classes N       default 1000\n"
	     "  --threads N       0 = all cores (default)\n"
	     "  --steps N         timed steps, after two that are not (default 10)\n"
	     "  --device NAME     cpu, ref or auto (default auto)\n"
	     "  --json            one JSON object instead of text\n"
	     "  --help            this text");
}

static int parse(int argc, char **argv, step_options *o, beton_error *err)
{
	static const struct option names[] = {{"model", required_argument, NULL, 'm'},
					      {"image-size", required_argument, NULL, 'i'},
					      {"batch-size", required_argument, NULL, 'b'},
					      {"classes", required_argument, NULL, 'c'},
					      {"threads", required_argument, NULL, 't'},
					      {"steps", required_argument, NULL, 's'},
					      {"device", required_argument, NULL, 'd'},
					      {"json", no_argument, NULL, 'j'},
					      {"help", no_argument, NULL, 'h'},
					      {0}};
	int option, status = BETON_OK;
	while (status == BETON_OK && (option = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (option) {
		case 'm':
			o->model = optarg;
			break;
		case 'd':
			o->device = optarg;
			break;
		case 'i':
			status = bt_parse_u64("--image-size", optarg, 1, 4096, &o->side, err);
			break;
		case 'b':
			status = bt_parse_u64("--batch-size", optarg, 1, 65536, &o->batch, err);
			break;
		case 'c':
			status = bt_parse_u64("--classes", optarg, 1, 1 << 24, &o->classes, err);
			break;
		case 't':
			status = bt_parse_u64("--threads", optarg, 0, 4096, &o->threads, err);
			break;
		case 's':
			status = bt_parse_u64("--steps", optarg, 1, 100000, &o->steps, err);
			break;
		case 'j':
			o->json = true;
			break;
		case 'h':
			o->help = true;
			break;
		default: /* getopt has said what */
			return bt_fail(err, BETON_INVALID_ARGUMENT, "try dtrain-bench step --help");
		}
	}
	if (status == BETON_OK && optind < argc)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "unexpected argument '%s'", argv[optind]);
	return status;
}

static int open_job(job *j, const step_options *o, beton_error *err)
{
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = (int32_t)o->threads};
	int status = dtrain_device_open(o->device, &options, &j->device, err);
	if (status != BETON_OK)
		return status;
	j->api = dtrain_device_get_api(j->device);
	status = j->api->stream_create(j->device, &j->stream, err);
	if (status == BETON_OK)
		status = dtrain_params_create(j->device, DTRAIN_F32, &j->params, err);
	if (status == BETON_OK)
		status = dtrain_graph_create(j->params, true, &j->graph, err);
	if (status != BETON_OK)
		return status;
	int64_t batch = (int64_t)o->batch, side = (int64_t)o->side;
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){batch, 3, side, side}), label = dtrain_shape_of(1, &batch);
	j->image = dtrain_graph_input(j->graph, "image", DTRAIN_F32, &image);
	j->label = dtrain_graph_input(j->graph, "label", DTRAIN_I64, &label);
	dtrain_tensor logits = dtrain_model_build(j->graph, o->model, j->image, (int64_t)o->classes);
	dtrain_graph_backward(j->graph,
			      dtrain_mean(j->graph, dtrain_softmax_cross_entropy(j->graph, logits, j->label, 0.1)));
	status = dtrain_graph_compile(&j->graph, &j->program, err);
	if (status == BETON_OK)
		status = dtrain_params_initialize(j->params, 1, j->stream, err);
	dtrain_sgd_options sgd;
	dtrain_sgd_options_init(&sgd);
	return status == BETON_OK ? dtrain_sgd_create(j->params, &sgd, &j->sgd, err) : status;
}

static void close_job(job *j)
{
	dtrain_sgd_destroy(&j->sgd);
	dtrain_program_destroy(&j->program);
	dtrain_graph_destroy(&j->graph);
	dtrain_params_destroy(&j->params);
	if (j->stream)
		j->api->stream_destroy(j->stream);
	dtrain_device_close(&j->device);
}

static int fill_inputs(const job *j, beton_error *err)
{
	int64_t count = dtrain_shape_count(dtrain_program_shape(j->program, j->image));
	float *pixels = malloc((size_t)count * sizeof(float));
	if (!pixels)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %lld pixels", (long long)count);
	for (int64_t i = 0; i < count; i++)
		pixels[i] = (float)(i * 2654435761u % 1000) * 2e-3f - 1;
	int status = j->api->copy(j->stream, dtrain_program_data(j->program, j->image), pixels,
				  (size_t)count * sizeof(float), DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = j->api->stream_synchronize(j->stream, err);
	free(pixels);
	return status;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static int time_steps(const job *j, int steps, double *median, beton_error *err)
{
	const int warm_up = 2;
	double *seconds = calloc((size_t)steps, sizeof(double));
	if (!seconds)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %d steps", steps);
	int status = fill_inputs(j, err);
	for (int i = -warm_up; i < steps && status == BETON_OK; i++) {
		uint64_t start = bt_now_ns();
		status = dtrain_program_run(j->program, j->stream, NULL, err);
		if (status == BETON_OK)
			status = dtrain_sgd_step(j->sgd, 1e-3, j->stream, err);
		if (status == BETON_OK)
			status = j->api->stream_synchronize(j->stream, err);
		if (i >= 0)
			seconds[i] = (double)(bt_now_ns() - start) * 1e-9;
	}
	qsort(seconds, (size_t)steps, sizeof(double), by_size);
	*median = seconds[steps / 2];
	free(seconds);
	return status;
}

/* Each convolution of the step, forward and backward, as a bare primitive. */
static int time_own_convolutions(const job *j, figures *f, beton_error *err)
{
	const dtrain_graph *graph = j->program->graph;
	int status = BETON_OK;
	for (int32_t i = 0; i < graph->num_nodes && status == BETON_OK; i++) {
		const dtrain__node *node = &graph->nodes[i];
		const dtrain_shape *a = &graph->tensors[node->inputs[0]].shape;
		const dtrain_shape *b = node->num_inputs > 1 ? &graph->tensors[node->inputs[1]].shape : NULL;
		const dtrain_shape *out = &graph->tensors[node->outputs[0]].shape;
		const dtrain_shape *x = a, *w = b, *y = out;
		if (node->kind == DTRAIN_OP_CONV2D_BWD_DATA)
			x = out, y = a;
		else if (node->kind == DTRAIN_OP_CONV2D_BWD_WEIGHT)
			w = out, y = b;
		else if (node->kind != DTRAIN_OP_CONV2D)
			continue;
		double seconds;
		status = bench_conv(node->kind, x, w, y, &node->attrs, 3, &seconds, err);
		f->conv_seconds += seconds;
		f->conv_flops += 2.0 * (double)dtrain_shape_count(y) * (double)(w->dim[1] * w->dim[2] * w->dim[3]);
	}
	return status;
}

static int time_reference(int64_t batch, figures *f, beton_error *err)
{
	const dtrain_op_attrs attrs = {.stride = {1, 1}, .padding = {1, 1}};
	dtrain_shape x = dtrain_shape_of(4, (int64_t[]){batch, 256, 14, 14});
	dtrain_shape w = dtrain_shape_of(4, (int64_t[]){256, 256, 3, 3});
	double seconds;
	int status = bench_conv(DTRAIN_OP_CONV2D, &x, &w, &x, &attrs, 10, &seconds, err);
	if (status == BETON_OK)
		f->reference_rate = 2.0 * (double)dtrain_shape_count(&x) * 256 * 9 / seconds * 1e-9;
	return status;
}

static int measure(const step_options *o, figures *f, beton_error *err)
{
	job j = {0};
	int status = open_job(&j, o, err);
	if (status == BETON_OK) {
		dtrain_device_caps caps;
		j.api->caps(j.device, &caps);
		snprintf(f->description, sizeof(f->description), "%s", caps.description);
		f->facts.struct_size = sizeof(f->facts);
		dtrain_program_get_facts(j.program, &f->facts);
		/* The bare primitives run with as many threads as the device's. */
		omp_set_num_threads(caps.threads);
		status = time_steps(&j, (int)o->steps, &f->step_seconds, err);
	}
	if (status == BETON_OK)
		status = time_reference((int64_t)o->batch, f, err);
	if (status == BETON_OK)
		status = time_own_convolutions(&j, f, err);
	close_job(&j);
	return status;
}

static int print(const step_options *o, const figures *f)
{
	double images = (double)o->batch / f->step_seconds, rate = f->facts.flops / f->step_seconds * 1e-9;
	double own_rate = f->conv_seconds > 0 ? f->conv_flops / f->conv_seconds * 1e-9 : 0;
	if (o->json) {
		json_t *object =
			json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I}", "model",
				  o->model, "device", f->description, "image_size", (json_int_t)o->side, "batch_size",
				  (json_int_t)o->batch, "step_ms", f->step_seconds * 1e3, "images_per_second", images,
				  "gflops", rate, "reference_conv_gflops", f->reference_rate, "own_convs_gflops",
				  own_rate, "share_of_reference_conv", rate / f->reference_rate, "share_of_own_convs",
				  f->conv_seconds / f->step_seconds, "arena_bytes", (json_int_t)f->facts.arena_bytes,
				  "unshared_bytes", (json_int_t)f->facts.unshared_bytes);
		int failed = !object || json_dumpf(object, stdout, 0) != 0 || putchar('\n') == EOF;
		json_decref(object);
		return failed;
	}
	printf("%s, %llu x %llu px, batch %llu, %s\n", o->model, (unsigned long long)o->side,
	       (unsigned long long)o->side, (unsigned long long)o->batch, f->description);
	printf("step                        %8.1f images/s  %7.1f ms  %6.0f GFLOP/s\n", images, f->step_seconds * 1e3,
	       rate);
	printf("oneDNN 3x3, 256 ch, 14x14                                %6.0f GFLOP/s   step: %3.0f%%\n",
	       f->reference_rate, 100 * rate / f->reference_rate);
	printf("the step's own convolutions                  %7.1f ms  %6.0f GFLOP/s   of the step's time: %3.0f%%\n",
	       f->conv_seconds * 1e3, own_rate, 100 * f->conv_seconds / f->step_seconds);
	printf("activations                 %8.1f MB, without sharing %.1f MB\n", (double)f->facts.arena_bytes * 1e-6,
	       (double)f->facts.unshared_bytes * 1e-6);
	return 0;
}

int bench_step(int argc, char **argv)
{
	step_options o = {
		.device = "auto", .model = "resnet18", .side = 128, .batch = 32, .classes = 1000, .steps = 10};
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
	status = measure(&o, &f, &err);
	if (status != BETON_OK) {
		fprintf(stderr, "dtrain-bench: %s\n", err.message);
		return BENCH_FAILED;
	}
	if (print(&o, &f) != 0 || fflush(stdout) != 0) {
		fprintf(stderr, "dtrain-bench: cannot write the result\n");
		return BENCH_FAILED;
	}
	return BENCH_DONE;
}
