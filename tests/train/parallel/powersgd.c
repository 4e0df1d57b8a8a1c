/* SPDX-License-Identifier: Apache-2.0
 *
 * PowerSGD as PyTorch's hook: the gradients and the errors of each step, compared with what
 * tests/golden/make-powersgd.py stored (in double), from that program's first factors. Called with the trace's path.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include <dtrain/sync.h>

#include "tests/train/support/ranks.h"

#define TRACE "DTRAIN_TEST_TRACE"
#define MAX_LAYERS 8
#define MAX_TENSORS 64
#define BOUND 1e-5 /* of a tensor's norm: float against double, over ten steps */

static beton_error err;

typedef struct layer {
	int64_t rows, columns;
	char weight[16], bias[16];
	dtrain_tensor x, d_y;
} layer;

/* A rank's layers. With the unit matrix as the input of a linear layer any matrix is a gradient of its weight. */
typedef struct job {
	struct rank *r;
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_mesh *mesh;
	dtrain_params *params;
	dtrain_sync *sync;
	dtrain_program *program;
	layer layers[MAX_LAYERS];
	int count;
	int case_index, step; /* for messages */
} job;

/* As that program does. */
static float number(int rank, int step, int matrix, int64_t i)
{
	uint64_t z = (uint64_t)((rank * 31 + step) * 17 + matrix) * 1000003u + (uint64_t)i;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (float)((int)(z >> 32 & 15) - 7) / 8;
}

static void upload(const job *j, void *to, const void *from, size_t bytes)
{
	MUST(j->api->copy(j->stream, to, from, bytes, DTRAIN_HOST_TO_DEVICE, &err));
	MUST(j->api->stream_synchronize(j->stream, &err));
}

/* Freed by the caller. */
static float *download(const job *j, const float *from, int64_t count)
{
	float *values = calloc((size_t)count, sizeof(*values));
	REQUIRE(values);
	MUST(j->api->copy(j->stream, values, from, (size_t)count * sizeof(*values), DTRAIN_DEVICE_TO_HOST, &err));
	MUST(j->api->stream_synchronize(j->stream, &err));
	return values;
}

static void make_program(job *j, const json_t *shapes)
{
	dtrain_graph *graph = NULL;
	dtrain_tensor y[MAX_LAYERS], d_y[MAX_LAYERS];
	char name[16];
	MUST(dtrain_graph_create(j->params, true, &graph, &err));
	j->count = (int)json_array_size(shapes);
	REQUIRE(j->count <= MAX_LAYERS);
	for (int i = 0; i < j->count; i++) {
		layer *l = &j->layers[i];
		l->rows = json_integer_value(json_array_get(json_array_get(shapes, (size_t)i), 0));
		l->columns = json_integer_value(json_array_get(json_array_get(shapes, (size_t)i), 1));
		snprintf(name, sizeof(name), "layer%d", i);
		snprintf(l->weight, sizeof(l->weight), "layer%d.weight", i);
		snprintf(l->bias, sizeof(l->bias), "layer%d.bias", i);
		l->x = dtrain_graph_input(graph, "x", DTRAIN_F32, &(dtrain_shape){2, {l->columns, l->columns}});
		y[i] = dtrain_linear(graph, name, l->x, l->rows);
	}
	for (int i = 0; i < j->count; i++)
		d_y[i] = j->layers[i].d_y = dtrain_graph_input(
			graph, "d_y", DTRAIN_F32, &(dtrain_shape){2, {j->layers[i].columns, j->layers[i].rows}});
	dtrain_graph_backward_from(graph, j->count, y, d_y);
	MUST(dtrain_sync_compile(j->sync, &graph, &j->program, &err));
}

static void put_units(job *j)
{
	for (int i = 0; i < j->count; i++) {
		int64_t n = j->layers[i].columns;
		float *unit = calloc((size_t)(n * n), sizeof(*unit));
		REQUIRE(unit);
		for (int64_t k = 0; k < n; k++)
			unit[k * n + k] = 1;
		upload(j, dtrain_program_data(j->program, j->layers[i].x), unit, (size_t)(n * n) * sizeof(*unit));
		free(unit);
	}
}

static void open_job(struct rank *r, job *j, dtrain_device *device, const json_t *shapes, const json_t *options)
{
	const dtrain_mesh_axis axis = {.name = "replicate", .size = r->size};
	dtrain_compression compression;
	dtrain_sync_options sync;
	dtrain_compression_init(&compression);
	compression.method = "powersgd";
	compression.rank = (int32_t)json_integer_value(json_object_get(options, "rank"));
	compression.min_rate = json_number_value(json_object_get(options, "min_rate"));
	compression.error_feedback = json_is_true(json_object_get(options, "error_feedback"));
	/* Factors that are drawn in each step are put there before it. */
	compression.warm_start = true;
	compression.start = 2;
	dtrain_sync_options_init(&sync);
	sync.compression = &compression;
	sync.first_unit_bytes = 500;
	sync.unit_bytes = 1000;
	*j = (job){.r = r, .device = device, .api = dtrain_device_get_api(device)};
	MUST(j->api->stream_create(j->device, &j->stream, &err));
	MUST(dtrain_mesh_create(r->group, &axis, 1, &j->mesh, &err));
	MUST(dtrain_params_create(j->device, DTRAIN_F32, &j->params, &err));
	MUST(dtrain_sync_create(j->params, j->mesh, &sync, &j->sync, &err));
	make_program(j, shapes);
	put_units(j);
	MUST(dtrain_sync_start(j->sync, &err));
	REQUIRE(dtrain_params_unit_count(j->params) > 1);
}

static void close_job(job *j)
{
	dtrain_program_destroy(&j->program);
	dtrain_sync_destroy(&j->sync);
	dtrain_mesh_destroy(&j->mesh);
	dtrain_params_destroy(&j->params);
	j->api->stream_destroy(j->stream);
}

static void put_gradients(const job *j)
{
	for (int i = 0; i < j->count; i++) {
		const layer *l = &j->layers[i];
		int64_t count = l->rows * l->columns;
		float *d_y = calloc((size_t)count, sizeof(*d_y));
		REQUIRE(d_y);
		for (int64_t k = 0; k < count; k++)
			d_y[k % l->columns * l->rows + k / l->columns] = number(j->r->rank, j->step, i, k);
		upload(j, dtrain_program_data(j->program, l->d_y), d_y, (size_t)count * sizeof(*d_y));
		free(d_y);
	}
}

/* NULL: the hook has no tensor of that name. */
static const dtrain_hook_tensor *tensor_of(const job *j, const char *param, const char *suffix)
{
	static dtrain_hook_tensor tensors[MAX_TENSORS];
	int count = dtrain_sync_tensors(j->sync, tensors, MAX_TENSORS, &err);
	REQUIRE(count >= 0 && count <= MAX_TENSORS);
	for (int i = 0; i < count; i++) {
		size_t length = strlen(param);
		if (strncmp(tensors[i].name, param, length) == 0 && tensors[i].name[length] == '.' &&
		    strcmp(tensors[i].name + length + 1, suffix) == 0)
			return &tensors[i];
	}
	return NULL;
}

/* factors: an array for each layer, or null for one that PyTorch does not compress, as we must not. */
static void put_factors(const job *j, const json_t *factors)
{
	for (int i = 0; i < j->count; i++) {
		const json_t *stored = json_array_get(factors, (size_t)i);
		const dtrain_hook_tensor *q = tensor_of(j, j->layers[i].weight, "powersgd_q");
		REQUIRE(json_is_null(stored) == (q == NULL));
		if (!q)
			continue;
		REQUIRE(q->count == (int64_t)json_array_size(stored) && q->shape.dim[0] == j->layers[i].columns);
		float *values = calloc((size_t)q->count, sizeof(*values));
		REQUIRE(values);
		for (int64_t k = 0; k < q->count; k++)
			values[k] = (float)json_number_value(json_array_get(stored, (size_t)k));
		upload(j, q->memory, values, (size_t)q->count * sizeof(*values));
		free(values);
	}
}

/* stored: the norm and some elements. scale: of ours. */
static void compare(const job *j, const char *name, const float *memory, int64_t count, double scale,
		    const json_t *stored)
{
	float *values = download(j, memory, count);
	double norm = json_number_value(json_array_get(stored, 0)), sum = 0, worst;
	REQUIRE(json_array_size(stored) == 4);
	for (int64_t i = 0; i < count; i++)
		sum += pow(scale * (double)values[i], 2);
	worst = fabs(sqrt(sum) - norm);
	for (size_t k = 1; k < json_array_size(stored); k++) {
		double right = json_number_value(json_array_get(stored, k));
		worst = fmax(worst, fabs(scale * (double)values[(int64_t)(k - 1) * 7919 % count] - right));
	}
	if (!(worst <= BOUND * norm))
		fprintf(stderr, "case %d, step %d, %s: differs by %g of its norm %g\n", j->case_index, j->step, name,
			worst / norm, norm);
	REQUIRE(worst <= BOUND * norm);
	free(values);
}

static void compare_gradient(const job *j, const char *name, const json_t *stored)
{
	const float *grads = dtrain_params_grads(j->params);
	for (int i = 0; i < dtrain_params_count(j->params); i++) {
		const dtrain_param *param = dtrain_params_at(j->params, i);
		if (strcmp(param->name, name) == 0)
			compare(j, name, grads + param->offset, param->count, 1.0 / j->r->size, stored);
	}
}

static void compare_step(const job *j, const json_t *step)
{
	const json_t *errors = json_object_get(step, "errors");
	for (int i = 0; i < j->count; i++) {
		const layer *l = &j->layers[i];
		const json_t *of_ranks = json_array_get(errors, (size_t)i);
		compare_gradient(j, l->weight, json_array_get(json_object_get(step, "weights"), (size_t)i));
		compare_gradient(j, l->bias, json_array_get(json_object_get(step, "biases"), (size_t)i));
		const dtrain_hook_tensor *e = tensor_of(j, l->weight, "compress_error");
		REQUIRE(!errors || (e == NULL) == json_is_null(of_ranks));
		if (e && errors)
			compare(j, "error", e->memory, e->count, 1, json_array_get(of_ranks, (size_t)j->r->rank));
	}
}

static void run_case(struct rank *r, dtrain_device *device, const json_t *trace, int index)
{
	const json_t *options = json_array_get(json_object_get(trace, "cases"), (size_t)index), *step;
	size_t i;
	job j;
	open_job(r, &j, device, json_object_get(trace, "shapes"), options);
	j.case_index = index;
	json_array_foreach(json_object_get(options, "steps"), i, step)
	{
		j.step = (int)i;
		if (json_object_get(step, "q"))
			put_factors(&j, json_object_get(step, "q"));
		put_gradients(&j);
		MUST(dtrain_program_run(j.program, j.stream, 0, 1, &err));
		compare_step(&j, step);
	}
	REQUIRE(i > 10);
	close_job(&j);
}

/* A mode is the name of a device. */
static int rank_main(struct rank *r)
{
	json_t *trace = json_load_file(getenv(TRACE), 0, NULL);
	size_t count = json_array_size(json_object_get(trace, "cases"));
	dtrain_device *device = NULL;
	REQUIRE(count > 0);
	/* A group keeps to the device that it was used with. */
	MUST(dtrain_device_open(r->mode, NULL, &device, &err));
	for (size_t i = 0; i < count; i++)
		run_case(r, device, trace, (int)i);
	json_decref(trace);
	dtrain_group_destroy(&r->group);
	dtrain_device_close(&device);
	return 0;
}

static void gradients_and_errors_are_those_of_the_hook(void **state)
{
	(void)state;
	run_ranks("ref", 2);
	if (dtrain_device_find("cpu"))
		run_ranks("cpu", 2);
}

int main(int argc, char **argv)
{
	int status;
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	if (argc != 2 || setenv(TRACE, argv[1], 1) != 0)
		return 2;
	const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_and_errors_are_those_of_the_hook)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
