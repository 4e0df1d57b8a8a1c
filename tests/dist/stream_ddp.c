/* SPDX-License-Identifier: Apache-2.0
 *
 * DDP on a stream-ordered group with real processes, on the test device "far": eager, accumulated and captured, and a
 * rank that dies.
 */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <dtrain/ddp.h>

#include "far_place.h"

static beton_error err;

/* Where the library reads which machine this is, the test says it: in place of the C library's. */
FILE *fopen(const char *path, const char *mode)
{
	FILE *(*next)(const char *, const char *);
	void *symbol = dlsym(RTLD_NEXT, "fopen");
	char *machine = getenv("TEST_MACHINE");

	memcpy(&next, &symbol, sizeof(next));
	if (machine && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0)
		return fmemopen(machine, strlen(machine), "r");
	return next(path, mode);
}

#define LAYERS 5
#define WIDTH 60

struct model {
	struct place place;
	dtrain_params *params;
	dtrain_ddp *ddp;
	float *gradients; /* on the host: what backward gives */
	int64_t count;
};

static void open_model_registered(struct rank *r, struct model *model, dtrain_ddp_registration registration)
{
	dtrain_shape matrix = dtrain_shape_of(2, (int64_t[]){WIDTH, WIDTH}),
		     vector = dtrain_shape_of(1, (int64_t[]){WIDTH});
	dtrain_ddp_options options;
	float values[WIDTH];
	char name[32];

	open_place(r, &model->place);
	MUST(dtrain_params_create(model->place.device, DTRAIN_F32, &model->params, &err));
	for (int i = 0; i < LAYERS; i++) {
		snprintf(name, sizeof(name), "layer%d.weight", i);
		REQUIRE(dtrain_params_declare(model->params, name, &matrix, DTRAIN_INIT_ZERO, 0, &err) >= 0);
	}
	REQUIRE(dtrain_params_declare_buffer(model->params, "a", &vector, DTRAIN_INIT_ZERO, &err) >= 0);
	REQUIRE(dtrain_params_declare_buffer(model->params, "b", &vector, DTRAIN_INIT_ZERO, &err) >= 0);
	MUST(dtrain_params_allocate(model->params, &err));
	for (int i = 0; i < WIDTH; i++)
		values[i] = (float)(100 * r->rank + i);
	upload(&model->place, dtrain_params_values(model->params), values, sizeof(values));
	MUST(model->place.api->stream_synchronize(model->place.stream, &err));
	dtrain_ddp_options_init(&options);
	options.first_bucket_bytes = 1000;
	options.bucket_bytes = 20000;
	options.registration = registration;
	MUST(dtrain_ddp_create(r->group, model->params, &options, &model->ddp, &err));
	REQUIRE(dtrain_ddp_bucket_count(model->ddp) >= 3);
	memset(values, 0, sizeof(values));
	download(&model->place, values, dtrain_params_values(model->params), sizeof(values));
	REQUIRE(values[0] == 0 && values[WIDTH - 1] == WIDTH - 1);
	model->count = dtrain_params_flat_count(model->params) + DTRAIN_GRAD_EXTRA;
	model->gradients = calloc((size_t)model->count, sizeof(float));
	REQUIRE(model->gradients);
}

static void open_model(struct rank *r, struct model *model)
{
	open_model_registered(r, model, DTRAIN_DDP_REGISTER_WITHIN_MACHINE);
}

static void close_model(struct rank *r, struct model *model)
{
	dtrain_ddp_destroy(&model->ddp);
	dtrain_params_destroy(&model->params);
	free(model->gradients);
	close_place(r, &model->place);
}

static float *grads_of(const struct model *model)
{
	return (float *)dtrain_params_grads(model->params) - DTRAIN_GRAD_EXTRA;
}

static float gradient(int rank, int step, int64_t i)
{
	return (float)((i * 31 + step * 7) % 1009) + (float)rank;
}

/* As a program does, on the stream: copies each parameter's gradient in flat order, and calls the hook behind it. */
static int try_backward(struct model *model, bool sync)
{
	const dtrain_program_hooks *hooks = dtrain_ddp_hooks(model->ddp, sync);
	float *device = grads_of(model);
	int64_t done = 0;
	int status = BETON_OK;

	while (done < model->count && !status) {
		int64_t next = model->count;
		int param = -1;

		for (int i = 0; i < dtrain_params_count(model->params); i++) {
			int64_t end = dtrain_params_at(model->params, i)->offset +
				      dtrain_params_at(model->params, i)->count + DTRAIN_GRAD_EXTRA;

			if (end > done && end <= next && (param < 0 || end < next)) {
				next = end;
				param = i;
			}
		}
		if (param < 0)
			break; /* padding */
		upload(&model->place, device + done, model->gradients + done, (size_t)(next - done) * sizeof(float));
		status = hooks->grad_ready(hooks->context, param, model->place.stream, &err);
		done = next;
	}
	return status ? status : dtrain_ddp_finish(model->ddp, model->place.stream, &err);
}

static void backward(struct model *model, bool sync)
{
	MUST(try_backward(model, sync));
}

static void set_gradients(const struct rank *r, struct model *model, int step)
{
	for (int64_t i = 0; i < model->count; i++)
		model->gradients[i] = gradient(r->rank, step, i);
}

/* The sum over the ranks and the steps first .. last. */
static void check_sum(const struct rank *r, struct model *model, int first, int last)
{
	float *got = malloc((size_t)model->count * sizeof(float));
	const dtrain_param *tail = dtrain_params_at(model->params, 0);

	REQUIRE(got);
	download(&model->place, got, grads_of(model), (size_t)model->count * sizeof(float));
	for (int64_t i = 0; i < tail->offset + tail->count + DTRAIN_GRAD_EXTRA; i++) {
		float expected = 0;

		for (int step = first; step <= last; step++)
			for (int rank = 0; rank < r->size; rank++)
				expected += gradient(rank, step, i);
		REQUIRE(got[i] == expected);
	}
	free(got);
}

static void check_step(const struct rank *r, struct model *model)
{
	dtrain_ddp_step step;

	MUST(dtrain_ddp_get_step(model->ddp, &step, &err));
	REQUIRE(step.backward_ms > 0 && step.exposed_ms >= 0);
	REQUIRE(r->size == 1 || step.comm_ms > 0);
}

static void rank_adds_up(struct rank *r)
{
	struct model model;
	float values[WIDTH];
	char *buffer;

	open_model(r, &model);
	for (int step = 0; step < 4; step++) {
		set_gradients(r, &model, step);
		backward(&model, true);
		check_sum(r, &model, step, step);
		check_step(r, &model);
	}
	for (int step = 4; step < 7; step++) {
		set_gradients(r, &model, step);
		backward(&model, step == 6);
		/* The copy has to have read them. */
		MUST(model.place.api->stream_synchronize(model.place.stream, &err));
	}
	check_sum(r, &model, 4, 6);
	buffer = dtrain_params_buffer_at(model.params, 1)->data;
	for (int i = 0; i < WIDTH; i++)
		values[i] = (float)(i + r->rank);
	upload(&model.place, buffer, values, sizeof(values));
	MUST(dtrain_ddp_sync_buffers(model.ddp, model.place.stream, &err));
	download(&model.place, values, buffer, sizeof(values));
	for (int i = 0; i < WIDTH; i++)
		REQUIRE(fabsf(values[i] - (float)i - (float)(r->size - 1) / 2) < 1e-4f);
	close_model(r, &model);
}

/* Backward with its reductions as one captured unit. */
static void rank_adds_up_captured(struct rank *r)
{
	struct model model;
	void *captured = NULL;

	open_model(r, &model);
	for (int step = 0; step < 2; step++) {
		set_gradients(r, &model, step);
		backward(&model, true);
		check_sum(r, &model, step, step);
	}
	MUST(model.place.api->capture_begin(model.place.stream, &err));
	backward(&model, true);
	MUST(model.place.api->capture_end(model.place.stream, &captured, &err));
	for (int step = 2; step < 8; step++) {
		set_gradients(r, &model, step);
		MUST(model.place.api->capture_launch(captured, model.place.stream, &err));
		MUST(dtrain_group_watch(r->group, after(&model.place), "a step", &err));
		check_sum(r, &model, step, step);
		check_step(r, &model);
	}
	dtrain_group_forget(r->group, model.place.event);
	/* And eager again. */
	set_gradients(r, &model, 8);
	backward(&model, true);
	check_sum(r, &model, 8, 8);
	model.place.api->capture_destroy(captured);
	close_model(r, &model);
}

/* A rank that dies in the middle of backward: the others learn it, with the bucket, before they use a gradient, some of
 * them before they have put all of their own on the stream. */
static int rank_loses_another(struct rank *r)
{
	struct model model;
	dtrain_ddp_step step;
	int status = BETON_OK;

	open_model(r, &model);
	mark(r);
	for (int i = 0; !status; i++) {
		set_gradients(r, &model, 0);
		if (i == 3 && r->rank == 1)
			raise(SIGKILL);
		status = try_backward(&model, true);
		if (!status)
			status = model.place.api->stream_synchronize(model.place.stream, &err);
		if (!status)
			status = dtrain_ddp_get_step(model.ddp, &step, &err);
	}
	fprintf(stderr, "%s\n", err.message);
	close_model(r, &model);
	return -status;
}

/* Registrations go by the mode; who is apart has a machine of its own. */
static void rank_registers(struct rank *r, const char *mode)
{
	static const char *const modes[] = {"within", "always", "never"};
	struct model model;
	char machine[24];
	int registration = 0;

	while (strncmp(mode, modes[registration], strlen(modes[registration])) != 0)
		registration++;
	snprintf(machine, sizeof(machine), "machine %d", r->rank / 2);
	if (strstr(mode, "apart"))
		setenv("TEST_MACHINE", machine, 1);
	open_model_registered(r, &model, (dtrain_ddp_registration)registration);
	set_gradients(r, &model, 0);
	backward(&model, true);
	check_sum(r, &model, 0, 0);
	close_model(r, &model);
}

static int rank_main(struct rank *r)
{
	const char *mode = r->mode + strlen("no-group-");

	if (strcmp(mode, "sums") == 0)
		rank_adds_up(r);
	else if (strcmp(mode, "sums-captured") == 0)
		rank_adds_up_captured(r);
	else if (strncmp(mode, "registers-", 10) == 0)
		rank_registers(r, mode + 10);
	else if (strcmp(mode, "loses") == 0)
		return rank_loses_another(r);
	else
		return 9;
	return 0;
}

static void gradients_become_the_sum(void **state)
{
	(void)state;
	run_ranks("no-group-sums", 1);
	setenv("DTRAIN_FAR_DELAY_US", "200", 1);
	run_ranks("no-group-sums", 3);
	run_ranks("no-group-sums-captured", 1);
	run_ranks("no-group-sums-captured", 3);
	unsetenv("DTRAIN_FAR_DELAY_US");
}

static void lost_gradients_are_not_used(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "no-group-loses", 0, 3, 60000);
	assert_int_equal(end_rank(&ranks, 1), 1000 + SIGKILL);
	expect_all(&ranks, 1, BETON_PEER_LOST, "allreduce (bucket ");
	end_store(&ranks);
}

static void gradients_are_registered_within_a_machine(void **state)
{
	static const struct {
		const char *mode;
		int ranks, registrations;
	} cases[] = {
		{"no-group-registers-within", 3, 3},       {"no-group-registers-never", 2, 0},
		{"no-group-registers-within-apart", 3, 0}, {"no-group-registers-within-apart", 2, 2},
		{"no-group-registers-always-apart", 3, 3},
	};
	char path[] = "/tmp/dtrain-registrations-XXXXXX", got[16];
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	setenv("DTRAIN_FAR_REGISTRATIONS", path, 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(ftruncate(fd, 0), 0);
		run_ranks(cases[i].mode, cases[i].ranks);
		assert_int_equal(pread(fd, got, sizeof(got), 0), cases[i].registrations);
	}
	unsetenv("DTRAIN_FAR_REGISTRATIONS");
	close(fd);
	unlink(path);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_become_the_sum),
		cmocka_unit_test(gradients_are_registered_within_a_machine),
		cmocka_unit_test(lost_gradients_are_not_used),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
