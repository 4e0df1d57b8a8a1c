/* SPDX-License-Identifier: Apache-2.0
 *
 * SGD against PyTorch's formula written down once more, and the schedules.
 */
#include "net.h"

static const struct {
	double momentum, decay;
	bool nesterov;
} settings[] = {{0, 0, false}, {0.9, 0, false}, {0.9, 5e-4, false}, {0.9, 5e-4, true}, {0, 0.1, false}};

/* torch.optim.SGD: the buffer starts as the first gradient, after weight decay; dampening 0. */
static void torch_step(double *w, double *buffer, double g, int step, double lr, int setting)
{
	double momentum = settings[setting].momentum;
	double d = g + settings[setting].decay * *w;
	if (momentum != 0) {
		*buffer = step == 0 ? d : momentum * *buffer + d;
		d = settings[setting].nesterov ? d + momentum * *buffer : *buffer;
	}
	*w -= lr * d;
}

static double gradient(int64_t element, int step)
{
	return (float)sin((double)element * 0.7 + step);
}

static void check_setting(const char *device, dtrain_dtype dtype, int setting, double bound)
{
	net n;
	beton_error err = {0};
	net_open(&n, device, dtype, "mlp", 1, 2, 3);
	dtrain_sgd_options options;
	dtrain_sgd_options_init(&options);
	options.momentum = settings[setting].momentum;
	options.weight_decay = settings[setting].decay;
	options.nesterov = settings[setting].nesterov;
	dtrain_sgd *sgd;
	expect_ok(dtrain_sgd_create(n.params, &options, &sgd, &err), &err);
	int64_t count = dtrain_params_flat_count(n.params);
	double *w = calloc((size_t)count, sizeof(double)), *buffer = calloc((size_t)count, sizeof(double));
	assert_non_null(w);
	assert_non_null(buffer);
	for (int64_t i = 0; i < count; i++)
		w[i] = net_element(&n, dtrain_params_values(n.params), i);
	for (int step = 0; step < 5; step++) {
		double lr = 0.1 / (step + 1);
		void *grads = dtrain_params_grads(n.params);
		for (int64_t i = 0; i < count; i++) {
			if (dtype == DTRAIN_F64)
				((double *)grads)[i] = gradient(i, step);
			else
				((float *)grads)[i] = (float)gradient(i, step);
			torch_step(&w[i], &buffer[i], gradient(i, step), step, (float)lr, setting);
		}
		expect_ok(dtrain_sgd_step(sgd, lr, n.stream, &err), &err);
		expect_ok(n.api->stream_synchronize(n.stream, &err), &err);
	}
	for (int64_t i = 0; i < count; i++) {
		double got = net_element(&n, dtrain_params_values(n.params), i);
		if (!(fabs(got - w[i]) < bound))
			fail_msg("setting %d on %s: w[%lld] %.9g, should be %.9g", setting, device, (long long)i, got,
				 w[i]);
	}
	free(w);
	free(buffer);
	dtrain_sgd_destroy(&sgd);
	net_close(&n);
}

static void sgd_is_torchs(void **state)
{
	(void)state;
	for (int i = 0; i < (int)(sizeof(settings) / sizeof(settings[0])); i++) {
		/* The decay passes through a float. */
		check_setting("ref", DTRAIN_F64, i, 1e-8);
		for (int k = 0; dtrain_device_at(k); k++)
			check_setting(dtrain_device_at(k)->name, DTRAIN_F32, i, 2e-6);
	}
}

static void bad_sgd_options_are_errors(void **state)
{
	(void)state;
	net n;
	net_open(&n, "ref", DTRAIN_F32, "mlp", 1, 2, 3);
	const size_t size = sizeof(dtrain_sgd_options);
	const dtrain_sgd_options bad[] = {
		{.struct_size = size, .momentum = 1.0},
		{.struct_size = size, .momentum = -0.1},
		{.struct_size = size, .momentum = NAN},
		{.struct_size = size, .nesterov = true},
		{.struct_size = size, .momentum = 0.9, .weight_decay = -1},
		{.struct_size = size, .momentum = 0.9, .weight_decay = INFINITY},
		{.struct_size = 0, .momentum = 0.9},
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		dtrain_sgd *sgd = (dtrain_sgd *)&n;
		beton_error err = {0};
		assert_int_equal(dtrain_sgd_create(n.params, &bad[i], &sgd, &err), BETON_INVALID_ARGUMENT);
		assert_null(sgd);
		assert_true(strncmp(err.message, "sgd: ", 5) == 0);
	}
	net_close(&n);
}

static void expect_rate(const dtrain_schedule *schedule, int64_t step, double rate)
{
	double got = dtrain_schedule_lr(schedule, step);
	if (!(fabs(got - rate) < 1e-12))
		fail_msg("schedule %d, step %lld: %.15g, should be %.15g", (int)schedule->kind, (long long)step, got,
			 rate);
}

static void schedules(void **state)
{
	(void)state;
	dtrain_schedule s = {.lr = 0.8, .final_lr = 0.2, .warmup_steps = 4, .total_steps = 12};
	for (s.kind = DTRAIN_SCHEDULE_CONSTANT; s.kind <= DTRAIN_SCHEDULE_COSINE; s.kind++) {
		expect_rate(&s, 0, 0.2);
		expect_rate(&s, 1, 0.4);
		expect_rate(&s, 3, 0.8);
		expect_rate(&s, 4, 0.8);
	}
	s.kind = DTRAIN_SCHEDULE_CONSTANT;
	expect_rate(&s, 100, 0.8);
	s.kind = DTRAIN_SCHEDULE_LINEAR;
	expect_rate(&s, 8, 0.5);
	expect_rate(&s, 12, 0.2);
	expect_rate(&s, 1000, 0.2);
	s.kind = DTRAIN_SCHEDULE_COSINE;
	expect_rate(&s, 8, 0.5);
	expect_rate(&s, 6, 0.2 + 0.6 * 0.5 * (1 + sqrt(0.5)));
	expect_rate(&s, 12, 0.2);
	s.warmup_steps = 0;
	expect_rate(&s, 0, 0.8);
	s = (dtrain_schedule){DTRAIN_SCHEDULE_LINEAR, 1, 0.5, 5, 5};
	expect_rate(&s, 4, 1);
	expect_rate(&s, 5, 0.5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sgd_is_torchs),
		cmocka_unit_test(bad_sgd_options_are_errors),
		cmocka_unit_test(schedules),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
