/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of parameters: groups against PyTorch, Lookahead. With a device's name as argument, on that device alone: 77
 * when there is none.
 */
#include <stdio.h>

#include "tests/train/support/missing.h"
#include "tests/train/support/net.h"

enum { PARAMS = 4, BUFFERS = 2, STEPS = 6, ELEMENTS = 3 + 17 + 5 + 40 };

static const int64_t sizes[PARAMS] = {3, 17, 5, 40};
static const int64_t buffer_sizes[BUFFERS] = {5, 33};
static const uint8_t group_of[PARAMS] = {0, 2, 1, 0};
static const struct {
	double lr_scale, weight_decay;
} groups[] = {{1, 5e-4}, {64, 5e-4 / 64}, {0.5, 0}};
#define GROUPS ((int32_t)(sizeof(groups) / sizeof(groups[0])))

/* The parameters one after the other, after STEPS steps of torch.optim.SGD 2.15 with such param_groups, momentum 0.85,
 * without and with Nesterov's form, from the starts, gradients and rates of this file, in F64. */
static const double of_torch[2][ELEMENTS] = {
	{-0.154059492, -0.198397877, -0.290485943, -0.404050817, -0.299933581, -0.148816029, 0.0252604627, 0.187456563,
	 0.308520477,  0.378545522,  0.411629372,  0.43924375,   0.495432768,  0.600801341,  0.752824648,  0.927035206,
	 1.08853073,   1.20838887,   1.27727004,   1.30980981,   -6.79301713,  2.76716394,   10.9789781,   14.0506706,
	 10.6079655,   -0.336578395, -0.20697862,  0.0199664417, 0.331560524,  0.675295629,  0.983547277,  1.20537948,
	 1.33050069,   1.39410384,   1.46031512,   1.59203368,   1.82134997,   2.13445241,   2.4781236,    2.78476894,
	 3.00420829,   3.1272752,    3.19012898,   3.25724807,   3.39110464,   3.62278381,   3.93736258,   4.28092896,
	 4.58593848,   4.80297916,   4.92401376,   4.98615657,   5.05422078,   5.19023466,   5.42426751,   5.74029042,
	 6.0837116,    6.38705466,   6.60169255,   6.72071643,   6.78218795,   6.85123481,   6.98942312,   7.22580072,
	 7.54323424},
	{-0.0929680285, -0.154189282, -0.283940235, -0.454468138, -0.343356248, -0.164821682, 0.0441995307,
	 0.232433013,   0.358381182,  0.409840212,  0.409639667,  0.404905438,  0.444895693,  0.557833879,
	 0.737635068,   0.946767405,  1.13390435,   1.25806398,   1.30788367,   1.30696388,   -9.02866889,
	 4.926234,      16.517372,    20.3635719,   14.7262252,   -0.360850202, -0.261734643, -0.0395211827,
	 0.295311274,   0.679317372,  1.02592457,   1.26614969,   1.3810427,    1.41059906,   1.43494969,
	 1.53667349,    1.76195991,   2.09888472,   2.48301848,   2.82772845,   3.06492409,   3.17707992,
	 3.20547891,    3.23079615,   3.33515589,   3.56350806,   3.90248645,   4.28669554,   4.62946798,
	 4.86362332,    4.97306704,   5.00035681,   5.02668978,   5.13371307,   5.36512274,   5.70611561,
	 6.09034815,    6.43114175,   6.66224782,   6.76900428,   6.79523436,   6.82263237,   6.93234455,
	 7.16680352,    7.50977028},
};

/* The initial value of an element of a parameter. */
static double start(int param, int64_t i)
{
	return (double)(float)(0.05 * (double)(i + 1) * (param + 1) - 0.4);
}

static double gradient(int64_t flat, int step)
{
	return (double)(float)sin((double)flat * 0.7 + step);
}

static void open_net(net *n, const char *device)
{
	beton_error err = {0};
	*n = (net){.dtype = DTRAIN_F32};
	expect_ok(dtrain_device_open(device, NULL, &n->device, &err), &err);
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(dtrain_params_create(n->device, DTRAIN_F32, &n->params, &err), &err);
	for (int i = 0; i < PARAMS; i++) {
		char name[] = {'p', (char)('0' + i), 0};
		dtrain_shape shape = dtrain_shape_of(1, &sizes[i]);
		assert_int_equal(dtrain_params_declare(n->params, name, &shape, DTRAIN_INIT_ZERO, 0, &err), i);
	}
	for (int i = 0; i < BUFFERS; i++) {
		char name[] = {'b', (char)('0' + i), 0};
		dtrain_shape shape = dtrain_shape_of(1, &buffer_sizes[i]);
		assert_int_equal(dtrain_params_declare_buffer(n->params, name, &shape, DTRAIN_INIT_ONE, &err), i);
	}
}

/* The flat space in host memory, from or to the device. */
static void move(net *n, float *host, void *array, dtrain_copy kind)
{
	size_t bytes = (size_t)dtrain_params_flat_count(n->params) * sizeof(float);
	net_copy(n, kind == DTRAIN_HOST_TO_DEVICE ? array : (void *)host,
		 kind == DTRAIN_HOST_TO_DEVICE ? (void *)host : array, bytes, kind);
}

static void fill(net *n, float *host, bool gradients, int step)
{
	memset(host, 0, (size_t)dtrain_params_flat_count(n->params) * sizeof(float));
	for (int k = 0; k < PARAMS; k++) {
		int64_t offset = dtrain_params_at(n->params, k)->offset;
		for (int64_t i = 0; i < sizes[k]; i++)
			host[offset + i] = (float)(gradients ? gradient(offset + i, step) : start(k, i));
	}
	move(n, host, gradients ? dtrain_params_grads(n->params) : dtrain_params_values(n->params),
	     DTRAIN_HOST_TO_DEVICE);
}

static void compare(const net *n, const float *host, const double *right)
{
	int64_t found = 0;
	for (int k = 0; k < PARAMS; k++)
		for (int64_t i = 0; i < sizes[k]; i++, right++, found++) {
			float got = host[dtrain_params_at(n->params, k)->offset + i];
			if (!(fabs((double)got - *right) < 2e-6 * (1 + fabs(*right))))
				fail_msg("%s: p%d[%lld] is %.9g, should be %.9g", n->api->name, k, (long long)i,
					 (double)got, *right);
		}
	for (int64_t i = 0; i < dtrain_params_flat_count(n->params); i++)
		found += host[i] == 0;
	/* Padding between the parameters is zero and stays zero. */
	assert_int_equal(found, dtrain_params_flat_count(n->params));
}

static void set_group(dtrain_optimizer *optimizer, int32_t group, double lr_scale, double weight_decay)
{
	beton_error err = {0};
	expect_ok(dtrain_optimizer_set(optimizer, group, "lr_scale", lr_scale, &err), &err);
	expect_ok(dtrain_optimizer_set(optimizer, group, "weight_decay", weight_decay, &err), &err);
}

static void check_groups(const char *device, bool nesterov)
{
	net n;
	beton_error err = {0};
	dtrain_optimizer *sgd;
	dtrain_optimizer_options options;
	open_net(&n, device);
	expect_ok(dtrain_params_allocate(n.params, &err), &err);
	float *host = calloc((size_t)dtrain_params_flat_count(n.params), sizeof(float));
	assert_non_null(host);
	fill(&n, host, false, 0);
	dtrain_optimizer_options_init(&options);
	const dtrain_hyper_value hypers[] = {{"momentum", 0.85}, {"nesterov", nesterov}};
	options.hypers = hypers;
	options.num_hypers = 2;
	options.num_groups = GROUPS;
	options.group_of = group_of;
	expect_ok(dtrain_optimizer_create(n.params, &options, &sgd, &err), &err);
	for (int32_t i = 0; i < GROUPS; i++)
		set_group(sgd, i, groups[i].lr_scale, groups[i].weight_decay);
	for (int step = 0; step < STEPS; step++) {
		if (step == 3) {
			set_group(sgd, 1, 2, 0.01);
			set_group(sgd, 2, 0, 0);
		}
		fill(&n, host, true, step);
		expect_ok(dtrain_optimizer_step(sgd, 0.1 / (step + 1), n.stream, &err), &err);
	}
	move(&n, host, dtrain_params_values(n.params), DTRAIN_DEVICE_TO_HOST);
	compare(&n, host, of_torch[nesterov]);
	free(host);
	dtrain_optimizer_destroy(&sgd);
	net_close(&n);
}

static const char *the_device;

static void groups_are_torchs(void **state)
{
	(void)state;
	for (int nesterov = 0; nesterov < 2; nesterov++) {
		if (the_device)
			check_groups(the_device, nesterov);
		for (int k = 0; !the_device && dtrain_device_at(k); k++)
			check_groups(dtrain_device_at(k)->name, nesterov);
	}
}

/* ---- lookahead ---- */

/* The k'th of the parameters and, after them, the buffers: its fast side, its slow one, its size. */
static int64_t find(net *n, const dtrain_optimizer *optimizer, int k, float **fast, float **slow)
{
	const dtrain_optimizer_state *state = dtrain_optimizer_state_find(optimizer, "slow");
	float *all = state->memory;
	if (k < PARAMS) {
		const dtrain_param *param = dtrain_params_at(n->params, k);
		*fast = (float *)dtrain_params_values(n->params) + param->offset;
		*slow = all + param->offset;
		return param->count;
	}
	*fast = dtrain_params_buffer_at(n->params, k - PARAMS)->data;
	*slow = dtrain_optimizer_state_buffer(optimizer, state, k - PARAMS);
	assert_true(*slow >= all + dtrain_params_flat_count(n->params) &&
		    *slow + buffer_sizes[k - PARAMS] <= all + state->count);
	return buffer_sizes[k - PARAMS];
}

static double fast_value(int k, int64_t i, int step)
{
	return (double)(float)sin((double)i * 0.3 + k + 10 * step);
}

/* Weights as if training had changed them. */
static void set_fast(net *n, const dtrain_optimizer *optimizer, int step)
{
	for (int k = 0; k < PARAMS + BUFFERS; k++) {
		float *fast, *slow, host[64];
		int64_t count = find(n, optimizer, k, &fast, &slow);
		for (int64_t i = 0; i < count; i++)
			host[i] = (float)fast_value(k, i, step);
		net_copy(n, fast, host, (size_t)count * sizeof(float), DTRAIN_HOST_TO_DEVICE);
	}
}

static void check_lookahead(const char *device)
{
	static const double weights[] = {0.999, 0.25, 1, 0.5, 0};
	net n;
	beton_error err = {0};
	dtrain_optimizer *optimizer = (dtrain_optimizer *)&n;
	dtrain_optimizer_options options;
	dtrain_optimizer_options_init(&options);
	options.lookahead = true;
	double right[PARAMS + BUFFERS][64];
	open_net(&n, device);
	assert_int_equal(dtrain_optimizer_create(n.params, &options, &optimizer, &err), BETON_STATE);
	assert_null(optimizer);
	expect_ok(dtrain_params_allocate(n.params, &err), &err);
	expect_ok(dtrain_optimizer_create(n.params, &options, &optimizer, &err), &err);
	set_fast(&n, optimizer, 0);
	expect_ok(dtrain_optimizer_start(optimizer, n.stream, &err), &err);
	for (int k = 0; k < PARAMS + BUFFERS; k++)
		for (int64_t i = 0; i < 64; i++)
			right[k][i] = fast_value(k, i, 0);
	for (int step = 0; step < 5; step++) {
		set_fast(&n, optimizer, step + 1);
		expect_ok(dtrain_optimizer_look_ahead(optimizer, weights[step], n.stream, &err), &err);
		for (int k = 0; k < PARAMS + BUFFERS; k++) {
			float *sides[2], host[64];
			int64_t count = find(&n, optimizer, k, &sides[0], &sides[1]);
			for (int64_t i = 0; i < count; i++)
				right[k][i] += weights[step] * (fast_value(k, i, step + 1) - right[k][i]);
			for (int side = 0; side < 2; side++) {
				net_copy(&n, host, sides[side], (size_t)count * sizeof(float), DTRAIN_DEVICE_TO_HOST);
				for (int64_t i = 0; i < count; i++)
					assert_true(fabs((double)host[i] - right[k][i]) < 1e-6);
			}
		}
	}
	assert_int_equal(dtrain_optimizer_look_ahead(optimizer, 1.5, n.stream, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(dtrain_optimizer_look_ahead(optimizer, NAN, n.stream, &err), BETON_INVALID_ARGUMENT);
	const dtrain_optimizer_state *slow = dtrain_optimizer_state_find(optimizer, "slow");
	assert_null(dtrain_optimizer_state_buffer(optimizer, slow, BUFFERS));
	assert_null(dtrain_optimizer_state_buffer(optimizer, dtrain_optimizer_state_at(optimizer, 0), 0));
	assert_null(dtrain_optimizer_state_find(optimizer, "fast"));
	dtrain_optimizer_destroy(&optimizer);
	dtrain_optimizer_options_init(&options);
	expect_ok(dtrain_optimizer_create(n.params, &options, &optimizer, &err), &err);
	expect_ok(dtrain_optimizer_start(optimizer, n.stream, &err), &err);
	assert_int_equal(dtrain_optimizer_look_ahead(optimizer, 0.5, n.stream, &err), BETON_STATE);
	dtrain_optimizer_destroy(&optimizer);
	net_close(&n);
}

/* The k'th of the parameters and buffers, and its average. */
static int64_t find_average(net *n, const dtrain_optimizer *optimizer, int k, float **trained, float **average)
{
	const dtrain_optimizer_state *state = dtrain_optimizer_state_find(optimizer, "ema");
	if (k < PARAMS) {
		const dtrain_param *param = dtrain_params_at(n->params, k);
		*trained = (float *)dtrain_params_values(n->params) + param->offset;
		*average = (float *)state->memory + param->offset;
		return param->count;
	}
	*trained = dtrain_params_buffer_at(n->params, k - PARAMS)->data;
	*average = dtrain_optimizer_state_buffer(optimizer, state, k - PARAMS);
	return buffer_sizes[k - PARAMS];
}

/* The trained weights are the step's, and their average is right. */
static void compare_average(net *n, const dtrain_optimizer *optimizer, double right[][64], int step, bool exchanged)
{
	for (int k = 0; k < PARAMS + BUFFERS; k++) {
		float *sides[2], host[2][64];
		int64_t count = find_average(n, optimizer, k, &sides[exchanged], &sides[!exchanged]);
		for (int side = 0; side < 2; side++)
			net_copy(n, host[side], sides[side], (size_t)count * sizeof(float), DTRAIN_DEVICE_TO_HOST);
		for (int64_t i = 0; i < count; i++) {
			assert_true(host[0][i] == (float)fast_value(k, i, step));
			assert_true(fabs((double)host[1][i] - right[k][i]) < 1e-6);
		}
	}
}

/* With slow weights, too, as both have the same op. */
static void check_average(const char *device)
{
	static const double weights[] = {1, 0.001, 0.75, 0.5, 0};
	net n;
	beton_error err = {0};
	dtrain_optimizer *optimizer = NULL;
	dtrain_optimizer_options options;
	double right[PARAMS + BUFFERS][64];
	dtrain_optimizer_options_init(&options);
	options.average = options.lookahead = true;
	open_net(&n, device);
	expect_ok(dtrain_params_allocate(n.params, &err), &err);
	expect_ok(dtrain_optimizer_create(n.params, &options, &optimizer, &err), &err);
	set_fast(&n, optimizer, 0);
	expect_ok(dtrain_optimizer_start(optimizer, n.stream, &err), &err);
	for (int k = 0; k < PARAMS + BUFFERS; k++)
		for (int64_t i = 0; i < 64; i++)
			right[k][i] = fast_value(k, i, 0);
	for (int step = 0; step < 5; step++) {
		set_fast(&n, optimizer, step + 1);
		expect_ok(dtrain_optimizer_average(optimizer, weights[step], n.stream, &err), &err);
		for (int k = 0; k < PARAMS + BUFFERS; k++)
			for (int64_t i = 0; i < 64; i++)
				right[k][i] += weights[step] * (fast_value(k, i, step + 1) - right[k][i]);
		compare_average(&n, optimizer, right, step + 1, false);
		expect_ok(dtrain_optimizer_exchange_average(optimizer, n.stream, &err), &err);
		compare_average(&n, optimizer, right, step + 1, true);
		expect_ok(dtrain_optimizer_exchange_average(optimizer, n.stream, &err), &err);
		compare_average(&n, optimizer, right, step + 1, false);
	}
	assert_int_equal(dtrain_optimizer_average(optimizer, -0.1, n.stream, &err), BETON_INVALID_ARGUMENT);
	dtrain_optimizer_destroy(&optimizer);
	dtrain_optimizer_options_init(&options);
	expect_ok(dtrain_optimizer_create(n.params, &options, &optimizer, &err), &err);
	assert_int_equal(dtrain_optimizer_average(optimizer, 0.5, n.stream, &err), BETON_STATE);
	assert_int_equal(dtrain_optimizer_exchange_average(optimizer, n.stream, &err), BETON_STATE);
	dtrain_optimizer_destroy(&optimizer);
	net_close(&n);
}

static void on_each_device(void (*check)(const char *device))
{
	if (the_device)
		check(the_device);
	for (int k = 0; !the_device && dtrain_device_at(k); k++)
		check(dtrain_device_at(k)->name);
}

static void averages_follow(void **state)
{
	(void)state;
	on_each_device(check_average);
}

/* timm's ModelEmaV2, and ModelEmaV3 with use_warmup: get_decay(step) for step 1, 2, ... with its defaults. */
static void average_weights(void **state)
{
	(void)state;
	assert_true(dtrain_average_weight(0.75, false, 1) == 0.25 && dtrain_average_weight(0.75, false, 99) == 0.25);
	assert_true(dtrain_average_weight(0.9998, true, 1) == 1);
	assert_true(fabs(dtrain_average_weight(0.9998, true, 2) - 0.6299605249474366) < 1e-12);
	assert_true(fabs(dtrain_average_weight(0.9998, true, 1000) - 0.01) < 1e-12);
	assert_true(fabs(dtrain_average_weight(0.98, true, 1000) - 0.02) < 1e-12);
}

static void lookahead_keeps_slow_weights(void **state)
{
	(void)state;
	on_each_device(check_lookahead);
}

/* airbench94's, whose alpha_schedule of 475 steps is 0.95 ** 5 * (step / 475) ** 3. */
static void lookahead_weights(void **state)
{
	(void)state;
	assert_true(dtrain_lookahead_weight(5, 4, 475) == -1);
	assert_true(fabs(dtrain_lookahead_weight(5, 5, 475) - (1 - 9.025e-07)) < 1e-11);
	assert_true(fabs(dtrain_lookahead_weight(5, 240, 475) - (1 - 0.09980928)) < 1e-7);
	assert_true(fabs(dtrain_lookahead_weight(5, 475, 475) - (1 - 0.7737809375)) < 1e-12);
	assert_true(dtrain_lookahead_weight(5, 474, 474) == 0);
}

static void bad_groups_are_errors(void **state)
{
	(void)state;
	net n;
	dtrain_optimizer_options options;
	beton_error err = {0};
	dtrain_optimizer *sgd = (dtrain_optimizer *)&n;
	open_net(&n, the_device ? the_device : "ref");
	expect_ok(dtrain_params_allocate(n.params, &err), &err);
	dtrain_optimizer_options_init(&options);
	options.num_groups = 2;
	options.group_of = group_of; /* up to 2 */
	assert_int_equal(dtrain_optimizer_create(n.params, &options, &sgd, &err), BETON_INVALID_ARGUMENT);
	assert_string_equal(err.message, "sgd: parameter 'p1' is in group 2 of 2");
	for (int i = 0; i < 3; i++) {
		options.num_groups = (int32_t[]){-1, 0, DTRAIN_PARAM_GROUPS + 1}[i];
		assert_int_equal(dtrain_optimizer_create(n.params, &options, &sgd, &err), BETON_INVALID_ARGUMENT);
	}
	assert_null(sgd);
	options.num_groups = GROUPS;
	expect_ok(dtrain_optimizer_create(n.params, &options, &sgd, &err), &err);
	assert_int_equal(dtrain_optimizer_set(sgd, -1, "lr_scale", 1, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(dtrain_optimizer_set(sgd, GROUPS, "lr_scale", 1, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(dtrain_optimizer_set(sgd, 1, "lr_scale", -1, &err), BETON_INVALID_ARGUMENT);
	assert_string_equal(err.message, "sgd: group 1: lr_scale -1 is not in [0, inf)");
	assert_int_equal(dtrain_optimizer_set(sgd, 0, "weight_decay", NAN, &err), BETON_INVALID_ARGUMENT);
	dtrain_optimizer_destroy(&sgd);
	net_close(&n);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_are_torchs),
		cmocka_unit_test(bad_groups_are_errors),
		cmocka_unit_test(lookahead_keeps_slow_weights),
		cmocka_unit_test(averages_follow),
		cmocka_unit_test(average_weights),
		cmocka_unit_test(lookahead_weights),
	};
	the_device = argc > 1 ? argv[1] : NULL;
	if (the_device && is_missing(the_device))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
