/* SPDX-License-Identifier: Apache-2.0
 *
 * DDP with real processes: the plan, the handshake, the broadcast, and gradients that are the sum over the ranks.
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

#include <dtrain/ddp.h>
#include <dtrain/model.h>

#include "ranks.h"

#define LAYERS 6
#define BATCH 4

static beton_error err;

struct model {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
};

/* LAYERS matrices of width x width elements with their biases, and two buffers; nothing of it depends on the rank but
 * what the test wants to. */
static void make_model(struct model *model, int64_t width, int layers)
{
	dtrain_shape matrix = dtrain_shape_of(2, (int64_t[]){width, width}), vector = dtrain_shape_of(1, &width);
	char name[32];

	MUST(dtrain_device_open("ref", NULL, &model->device, &err));
	model->api = dtrain_device_get_api(model->device);
	MUST(model->api->stream_create(model->device, &model->stream, &err));
	MUST(dtrain_params_create(model->device, DTRAIN_F32, &model->params, &err));
	for (int i = 0; i < layers; i++) {
		snprintf(name, sizeof(name), "layer%d.weight", i);
		REQUIRE(dtrain_params_declare(model->params, name, &matrix, DTRAIN_INIT_ZERO, 0, &err) >= 0);
		snprintf(name, sizeof(name), "layer%d.bias", i);
		REQUIRE(dtrain_params_declare(model->params, name, &vector, DTRAIN_INIT_ZERO, 0, &err) >= 0);
	}
	REQUIRE(dtrain_params_declare_fixed(model->params, "fixed", &vector, DTRAIN_INIT_ZERO, &err) == 0);
	REQUIRE(dtrain_params_declare_buffer(model->params, "statistics", &vector, DTRAIN_INIT_ZERO, &err) >= 0);
	MUST(dtrain_params_allocate(model->params, &err));
}

static void free_model(struct model *model)
{
	dtrain_params_destroy(&model->params);
	model->api->stream_destroy(model->stream);
	dtrain_device_close(&model->device);
}

/* What rank puts at element i (which may be an extra one, below 0). */
static float gradient(int rank, int step, int64_t i)
{
	return (float)((i * 31 + step * 7) % 1009) + (float)rank * 0.5f;
}

static int first_by_offset(const dtrain_params *params, int64_t least)
{
	int found = -1;

	for (int i = 0; i < dtrain_params_count(params); i++) {
		const dtrain_param *param = dtrain_params_at(params, i);

		if (param->offset >= least && (found < 0 || param->offset < dtrain_params_at(params, found)->offset))
			found = i;
	}
	return found;
}

/* As a program does: writes each parameter's gradient in flat order, and calls the hook behind it. */
static void backward(struct rank *r, struct model *model, const dtrain_program_hooks *hooks, int step)
{
	float *grads = dtrain_params_grads(model->params);
	int param;

	for (int i = -DTRAIN_GRAD_EXTRA; i < 0; i++)
		grads[i] = gradient(r->rank, step, i);
	for (int64_t next = 0; (param = first_by_offset(model->params, next)) >= 0;) {
		const dtrain_param *p = dtrain_params_at(model->params, param);

		for (int64_t i = p->offset; i < p->offset + p->count; i++)
			grads[i] = gradient(r->rank, step, i);
		if (hooks->grad_ready)
			MUST(hooks->grad_ready(hooks->context, param, model->stream, &err));
		next = p->offset + 1;
	}
}

static void check_gradients(struct rank *r, const struct model *model, int step, bool sum)
{
	const float *grads = dtrain_params_grads(model->params);

	for (int n = -1; n < dtrain_params_count(model->params); n++) {
		const dtrain_param *p = n >= 0 ? dtrain_params_at(model->params, n) : NULL;
		int64_t first = p ? p->offset : -DTRAIN_GRAD_EXTRA, count = p ? p->count : DTRAIN_GRAD_EXTRA;

		for (int64_t i = first; i < first + count; i++) {
			/* Halves of whole numbers: exact. */
			float expected = gradient(r->rank, step, i);

			for (int rank = 0; sum && rank < r->size; rank++)
				expected += rank != r->rank ? gradient(rank, step, i) : 0;
			REQUIRE(grads[i] == expected);
		}
	}
}

static double sum_of_buckets(const dtrain_ddp *ddp)
{
	double sum = 0;

	for (int i = 0; i < dtrain_ddp_bucket_count(ddp); i++)
		sum += dtrain_ddp_bucket_exposed_ms(ddp, i);
	return sum;
}

static void rank_adds_up(struct rank *r)
{
	dtrain_ddp_options options;
	dtrain_ddp_step step = {0};
	dtrain_ddp *ddp = NULL;
	struct model model;

	make_model(&model, 100, LAYERS);
	dtrain_ddp_options_init(&options);
	options.first_bucket_bytes = 1000;
	options.bucket_bytes = 60000;
	MUST(dtrain_ddp_create(r->group, model.params, &options, &ddp, &err));
	REQUIRE(dtrain_ddp_bucket_count(ddp) > 3);
	for (int i = 0; i < 5; i++) {
		backward(r, &model, dtrain_ddp_hooks(ddp, true), i);
		MUST(dtrain_ddp_finish(ddp, model.stream, &err));
		MUST(dtrain_ddp_get_step(ddp, &step, &err));
		check_gradients(r, &model, i, true);
		REQUIRE(step.comm_ms > 0 || r->size == 1);
		REQUIRE(step.exposed_ms >= 0 && step.backward_ms >= 0);
		REQUIRE(sum_of_buckets(ddp) > 0 && sum_of_buckets(ddp) <= step.exposed_ms + 1e-6);
		REQUIRE(dtrain_ddp_bucket_exposed_ms(ddp, -1) == 0 && dtrain_ddp_bucket_exposed_ms(ddp, 1000) == 0);
	}
	dtrain_ddp_destroy(&ddp);
	free_model(&model);
}

/* Runs without communication leave the gradients as they are, and their sum comes with the next that has it; then there
 * is nothing left of it. */
static void rank_accumulates(struct rank *r)
{
	dtrain_ddp_options options;
	dtrain_ddp_step step = {0};
	dtrain_ddp *ddp = NULL;
	struct model model;
	const float *grads;

	make_model(&model, 100, LAYERS);
	dtrain_ddp_options_init(&options);
	options.first_bucket_bytes = 1000;
	options.bucket_bytes = 60000;
	MUST(dtrain_ddp_create(r->group, model.params, &options, &ddp, &err));
	grads = dtrain_params_grads(model.params);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 3; i++) {
			backward(r, &model, dtrain_ddp_hooks(ddp, false), i);
			MUST(dtrain_ddp_finish(ddp, model.stream, &err));
			MUST(dtrain_ddp_get_step(ddp, &step, &err));
			check_gradients(r, &model, i, false);
			REQUIRE(step.comm_ms == 0 && step.exposed_ms == 0 && sum_of_buckets(ddp) == 0);
		}
		backward(r, &model, dtrain_ddp_hooks(ddp, true), 3);
		MUST(dtrain_ddp_finish(ddp, model.stream, &err));
		for (int64_t i = -DTRAIN_GRAD_EXTRA; i < 100; i++) {
			float sum = 0;

			for (int k = 0; k < 4; k++)
				for (int rank = 0; rank < r->size; rank++)
					sum += gradient(rank, k, i);
			REQUIRE(grads[i] == sum);
		}
		backward(r, &model, dtrain_ddp_hooks(ddp, true), 4);
		MUST(dtrain_ddp_finish(ddp, model.stream, &err));
		check_gradients(r, &model, 4, true);
	}
	dtrain_ddp_destroy(&ddp);
	free_model(&model);
}

static void rank_gets_values(struct rank *r)
{
	dtrain_ddp *ddp = NULL;
	struct model model;
	float *values, *buffer, *fixed;
	int64_t count;

	make_model(&model, 64, 2);
	values = dtrain_params_values(model.params);
	fixed = dtrain_params_buffer_at(model.params, 0)->data;
	buffer = dtrain_params_buffer_at(model.params, 1)->data;
	count = dtrain_params_flat_count(model.params);
	for (int64_t i = 0; i < count; i++)
		values[i] = (float)(i % 500 + r->rank * 1000);
	for (int i = 0; i < 64; i++) {
		fixed[i] = (float)(7 * i + r->rank * 1000);
		buffer[i] = (float)(i + r->rank * 1000);
	}
	MUST(dtrain_ddp_create(r->group, model.params, NULL, &ddp, &err));
	for (int64_t i = 0; i < count; i++)
		REQUIRE(values[i] == (float)(i % 500));
	for (int i = 0; i < 64; i++)
		REQUIRE(buffer[i] == (float)i && fixed[i] == (float)(7 * i));
	/* What is fixed is not looked at any more. */
	for (int i = 0; i < 64; i++)
		fixed[i] = buffer[i] = (float)(i + r->rank);
	MUST(dtrain_ddp_sync_buffers(ddp, model.stream, &err));
	for (int i = 0; i < 64; i++)
		REQUIRE(fabsf(buffer[i] - (float)i - (float)(r->size - 1) / 2) < 1e-4f &&
			fixed[i] == (float)(i + r->rank));
	dtrain_ddp_destroy(&ddp);
	free_model(&model);
}

static void rank_plans(struct rank *r)
{
	dtrain_ddp_options options;
	dtrain_ddp *ddp = NULL;
	struct model model;
	int64_t next = -DTRAIN_GRAD_EXTRA;

	make_model(&model, 300, LAYERS); /* 360,000 bytes a matrix */
	dtrain_ddp_options_init(&options);
	REQUIRE(options.first_bucket_bytes == 1 << 20 && options.bucket_bytes == 25 << 20);
	MUST(dtrain_ddp_create(r->group, model.params, NULL, &ddp, &err));
	REQUIRE(dtrain_ddp_bucket_count(ddp) == 2); /* three matrices fill 1 MiB; the rest is below 25 MiB */
	dtrain_ddp_destroy(&ddp);
	options.bucket_bytes = 1;
	options.first_bucket_bytes = 1;
	MUST(dtrain_ddp_create(r->group, model.params, &options, &ddp, &err));
	REQUIRE(dtrain_ddp_bucket_count(ddp) == 2 * LAYERS); /* never split, never joined */
	for (int i = 0; i < dtrain_ddp_bucket_count(ddp); i++) {
		REQUIRE(dtrain_ddp_bucket_at(ddp, i)->offset == next);
		next += dtrain_ddp_bucket_at(ddp, i)->count;
	}
	REQUIRE(next == dtrain_params_flat_count(model.params));
	REQUIRE(dtrain_ddp_bucket_at(ddp, 2 * LAYERS) == NULL);
	dtrain_ddp_destroy(&ddp);
	free_model(&model);
}

/* A step that leaves a parameter out, and one that brings it twice, are errors that name it; the next step works. */
static void rank_misuses(struct rank *r)
{
	const dtrain_program_hooks *hooks;
	dtrain_ddp *ddp = NULL;
	struct model model;
	int first;

	make_model(&model, 32, 2);
	MUST(dtrain_ddp_create(r->group, model.params, NULL, &ddp, &err));
	hooks = dtrain_ddp_hooks(ddp, true);
	first = first_by_offset(model.params, 0);
	MUST(hooks->grad_ready(hooks->context, first, model.stream, &err));
	REQUIRE(hooks->grad_ready(hooks->context, first, model.stream, &err) == BETON_STATE);
	REQUIRE(strstr(err.message, dtrain_params_at(model.params, first)->name) != NULL);
	REQUIRE(hooks->grad_ready(hooks->context, 99, model.stream, &err) == BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_ddp_finish(ddp, model.stream, &err) == BETON_STATE);
	REQUIRE(strstr(err.message, "3 parameters got no gradient") != NULL);
	backward(r, &model, hooks, 1);
	MUST(dtrain_ddp_finish(ddp, model.stream, &err));
	check_gradients(r, &model, 1, true);
	dtrain_ddp_destroy(&ddp);
	free_model(&model);
}

static int rank_differs(struct rank *r)
{
	dtrain_ddp *ddp = NULL;
	struct model model;
	int status;

	make_model(&model, 32, r->rank == 2 ? 3 : 2);
	status = dtrain_ddp_create(r->group, model.params, NULL, &ddp, &err);
	fprintf(stderr, "%s\n", err.message);
	free_model(&model);
	return -status;
}

/* Two layers, batches of BATCH samples a rank or of all of them: the ranks' gradients, added up and divided by their
 * number, are those of the whole batch. */
static void rank_trains(struct rank *r)
{
	enum { IN = 12, CLASSES = 5 };
	static float whole[8192];
	dtrain_device *device = NULL;
	const dtrain_device_api *api;
	dtrain_stream *stream = NULL;

	MUST(dtrain_device_open("ref", NULL, &device, &err));
	api = dtrain_device_get_api(device);
	MUST(api->stream_create(device, &stream, &err));
	for (int run = 0; run < 2; run++) {
		int64_t samples = run ? BATCH : (int64_t)BATCH * r->size;
		int64_t first = run ? (int64_t)BATCH * r->rank : 0;
		dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){samples, IN}),
			     labels = dtrain_shape_of(1, &samples);
		dtrain_params *params = NULL;
		dtrain_graph *graph = NULL;
		dtrain_program *program = NULL;
		dtrain_ddp *ddp = NULL;
		dtrain_tensor x, label, y;
		const float *grads;

		MUST(dtrain_params_create(device, DTRAIN_F32, &params, &err));
		MUST(dtrain_graph_create(params, true, &graph, &err));
		x = dtrain_graph_input(graph, "image", DTRAIN_F32, &shape);
		label = dtrain_graph_input(graph, "label", DTRAIN_I64, &labels);
		y = dtrain_relu(graph, dtrain_linear(graph, "fc1", x, 20));
		y = dtrain_linear(graph, "fc2", y, CLASSES);
		y = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, y, label, 0.1));
		dtrain_graph_metric(graph, y, 0);
		dtrain_graph_backward(graph, y);
		MUST(dtrain_graph_compile(&graph, &program, &err));
		MUST(dtrain_params_initialize(params, 7, stream, &err));
		if (run)
			MUST(dtrain_ddp_create(r->group, params, NULL, &ddp, &err));
		for (int64_t i = 0; i < samples * IN; i++)
			((float *)dtrain_program_data(program, x))[i] = (float)((first * IN + i) * 37 % 101) / 50 - 1;
		for (int64_t i = 0; i < samples; i++)
			((int64_t *)dtrain_program_data(program, label))[i] = (first + i) % CLASSES;
		MUST(dtrain_program_run(program, stream, ddp ? dtrain_ddp_hooks(ddp, true) : NULL, &err));
		if (ddp)
			MUST(dtrain_ddp_finish(ddp, stream, &err));
		grads = dtrain_params_grads(params);
		REQUIRE(dtrain_params_flat_count(params) + 1 <= 8192);
		for (int64_t i = -1; i < dtrain_params_flat_count(params); i++) {
			int64_t at = i < 0 ? -DTRAIN_GRAD_EXTRA : i; /* the loss is extra element 0 */

			if (run)
				REQUIRE(fabsf(grads[at] / (float)r->size - whole[i + 1]) <=
					1e-6f + 1e-5f * fabsf(whole[i + 1]));
			else
				whole[i + 1] = grads[at];
		}
		REQUIRE(whole[0] > 0.1f);
		dtrain_ddp_destroy(&ddp);
		dtrain_program_destroy(&program);
		dtrain_params_destroy(&params);
	}
	api->stream_destroy(stream);
	dtrain_device_close(&device);
}

static int rank_main(struct rank *r)
{
	if (strcmp(r->mode, "sums") == 0)
		rank_adds_up(r);
	else if (strcmp(r->mode, "accumulates") == 0)
		rank_accumulates(r);
	else if (strcmp(r->mode, "values") == 0)
		rank_gets_values(r);
	else if (strcmp(r->mode, "plans") == 0)
		rank_plans(r);
	else if (strcmp(r->mode, "misuses") == 0)
		rank_misuses(r);
	else if (strcmp(r->mode, "trains") == 0)
		rank_trains(r);
	else if (strcmp(r->mode, "differs") == 0)
		return rank_differs(r);
	else
		return 9;
	return 0;
}

static void gradients_become_the_sum(void **state)
{
	(void)state;
	run_ranks("sums", 1);
	run_ranks("sums", 3);
	run_ranks("sums", 8);
}

static void runs_without_communication_add_up(void **state)
{
	(void)state;
	run_ranks("accumulates", 1);
	run_ranks("accumulates", 3);
}

static void values_come_from_rank_0(void **state)
{
	(void)state;
	run_ranks("values", 1);
	run_ranks("values", 3);
}

static void buckets_cover_the_flat_space(void **state)
{
	(void)state;
	run_ranks("plans", 1);
}

static void misuse_is_named(void **state)
{
	(void)state;
	run_ranks("misuses", 2);
}

static void ranks_have_the_gradients_of_the_whole_batch(void **state)
{
	(void)state;
	run_ranks("trains", 2);
	run_ranks("trains", 8);
}

static void other_model_is_named(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "differs", 0, 3, 20000);
	for (int rank = 0; rank < 3; rank++) {
		assert_int_equal(end_rank(&ranks, rank), -BETON_MISMATCH);
		assert_non_null(strstr(ranks.err[rank], "rank 2 has another model than rank 0: number of parameters (6 "
							"instead of 4)"));
	}
	end_store(&ranks);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets_cover_the_flat_space),
		cmocka_unit_test(gradients_become_the_sum),
		cmocka_unit_test(runs_without_communication_add_up),
		cmocka_unit_test(values_come_from_rank_0),
		cmocka_unit_test(misuse_is_named),
		cmocka_unit_test(ranks_have_the_gradients_of_the_whole_batch),
		cmocka_unit_test(other_model_is_named),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
