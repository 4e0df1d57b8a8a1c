/* SPDX-License-Identifier: Apache-2.0
 *
 * The norm of the gradients and clipping by it, against PyTorch (tests/golden/clip-norms.txt), and ranges of the flat
 * space. clip NORMS [DEVICE]: that file; on that device alone, 77 when there is none.
 */
#include <stdio.h>

#include "tests/support/numbers.h"
#include "tests/train/support/missing.h"
#include "tests/train/support/net.h"
#include "optim/optimizer.h"

enum { PARAMS = 5, GROUPS = 3, SHOWN = 8, CLIP_STEPS = 4, CLIP_SHOWN = 32, CLIP_SPECIAL = 4 };

/* As in make-clip-norms.py. */
static const int64_t sizes[PARAMS] = {3, 17, 5, 40, 2053};
static const uint8_t group_of[PARAMS] = {0, 2, 1, 0, 2};
static const double rates[GROUPS][2] = {{1, 5e-4}, {8, 5e-4 / 8}, {0.5, 0}};

typedef struct clip_case {
	char name[32];
	double largest, divisor, scale, momentum;
	bool nesterov;
	dtrain_norm norm;
	double norms[CLIP_STEPS], weights[CLIP_SHOWN];
} clip_case;

/* Gradients that are clipped to 1. */
typedef struct special_case {
	dtrain_norm type;
	double gradients[CLIP_SPECIAL], norm, clipped[CLIP_SPECIAL];
} special_case;

static const char *norms_path;
static clip_case clip_cases[16];
static special_case clip_special[32];
static int num_clip_cases, num_clip_special;

/* 1, 2 or inf. */
static dtrain_norm read_norm(numbers_table *table)
{
	double p = numbers_double(table);
	assert_true(p == 1 || p == 2 || isinf(p));
	return p == 1 ? DTRAIN_NORM_1 : p == 2 ? DTRAIN_NORM_2 : DTRAIN_NORM_MAX;
}

static int read_cases(void **state)
{
	(void)state;
	numbers_table table = numbers_open(norms_path);
	while (numbers_next(&table, "case")) {
		assert_true(num_clip_cases < (int)(sizeof(clip_cases) / sizeof(clip_cases[0])));
		clip_case *c = &clip_cases[num_clip_cases++];
		snprintf(c->name, sizeof(c->name), "%s", numbers_word(&table));
		c->largest = numbers_double(&table);
		c->divisor = numbers_double(&table);
		c->scale = numbers_double(&table);
		c->momentum = numbers_double(&table);
		c->nesterov = numbers_u32(&table);
		c->norm = read_norm(&table);
		numbers_doubles(&table, c->norms, CLIP_STEPS);
		numbers_doubles(&table, c->weights, CLIP_SHOWN);
	}
	numbers_close(&table);
	table = numbers_open(norms_path);
	while (numbers_next(&table, "special")) {
		assert_true(num_clip_special < (int)(sizeof(clip_special) / sizeof(clip_special[0])));
		special_case *c = &clip_special[num_clip_special++];
		c->type = read_norm(&table);
		numbers_doubles(&table, c->gradients, CLIP_SPECIAL);
		c->norm = numbers_double(&table);
		numbers_doubles(&table, c->clipped, CLIP_SPECIAL);
	}
	numbers_close(&table);
	return 0;
}

static double start(int param, int64_t i)
{
	return 0.05 * (double)(i % 40 + 1) * (param + 1) - 0.4;
}

static double gradient(int param, int64_t i, int step)
{
	return sin((double)(i + (int64_t)100 * param) * 0.7 + step) * (step + 0.25);
}

static void open_device(net *n, const char *device, int threads)
{
	beton_error err = {0};
	const dtrain_device_options options = {.struct_size = sizeof(options), .threads = threads};
	*n = (net){.dtype = DTRAIN_F32};
	expect_ok(dtrain_device_open(device, &options, &n->device, &err), &err);
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(dtrain_params_create(n->device, DTRAIN_F32, &n->params, &err), &err);
}

static void open_sizes(net *n, const char *device, int threads, int count, const int64_t *of)
{
	beton_error err = {0};
	open_device(n, device, threads);
	for (int i = 0; i < count; i++) {
		char name[] = {'p', (char)('0' + i), 0};
		dtrain_shape shape = dtrain_shape_of(1, &of[i]);
		assert_int_equal(dtrain_params_declare(n->params, name, &shape, DTRAIN_INIT_ZERO, 0, &err), i);
	}
	expect_ok(dtrain_params_allocate(n->params, &err), &err);
}

static size_t flat_bytes(const net *n)
{
	return (size_t)dtrain_params_flat_count(n->params) * sizeof(float);
}

/* The whole flat space, to the device; the caller frees what it returns. */
static float *put(net *n, void *to, int step, double factor)
{
	float *host = calloc(1, flat_bytes(n));
	assert_non_null(host);
	for (int k = 0; k < dtrain_params_count(n->params); k++) {
		const dtrain_param *param = dtrain_params_at(n->params, k);
		for (int64_t i = 0; i < param->count; i++)
			host[param->offset + i] =
				(float)(step < 0 ? start(k, i) : (double)(float)gradient(k, i, step) * factor);
	}
	net_copy(n, to, host, flat_bytes(n), DTRAIN_HOST_TO_DEVICE);
	return host;
}

static void put_gradients(net *n, int step, double factor)
{
	free(put(n, dtrain_params_grads(n->params), step, factor));
}

static void put_start(net *n)
{
	free(put(n, dtrain_params_values(n->params), -1, 1));
}

static void get(const net *n, const void *array, float *host)
{
	net_copy(n, host, array, flat_bytes(n), DTRAIN_DEVICE_TO_HOST);
}

static void read_clip(const net *n, const dtrain_optimizer *optimizer, float *clip)
{
	net_copy(n, clip, dtrain_optimizer_clip(optimizer), DTRAIN_CLIPS * sizeof(*clip), DTRAIN_DEVICE_TO_HOST);
}

static void add_scaler(net *n, double scale)
{
	beton_error err = {0};
	const float state[DTRAIN_SCALERS] = {[DTRAIN_SCALER_SCALE] = (float)scale};
	expect_ok(dtrain_scaler_create(n->device, n->stream, &n->scaler, &err), &err);
	net_copy(n, dtrain_scaler_memory(n->scaler), state, sizeof(state), DTRAIN_HOST_TO_DEVICE);
}

static dtrain_optimizer *make(net *n, dtrain_optimizer_options *options, double momentum, bool nesterov)
{
	beton_error err = {0};
	dtrain_optimizer *optimizer;
	const dtrain_hyper_value hypers[] = {{"momentum", momentum}, {"nesterov", nesterov}};
	options->hypers = hypers;
	options->num_hypers = 2;
	options->num_groups = GROUPS;
	options->group_of = group_of;
	options->scaler = n->scaler;
	expect_ok(dtrain_optimizer_create(n->params, options, &optimizer, &err), &err);
	for (int32_t i = 0; i < GROUPS; i++) {
		expect_ok(dtrain_optimizer_set(optimizer, i, "lr_scale", rates[i][0], &err), &err);
		expect_ok(dtrain_optimizer_set(optimizer, i, "weight_decay", rates[i][1], &err), &err);
	}
	return optimizer;
}

static void compare_weights(const net *n, const char *name, const double *right)
{
	float *host = malloc(flat_bytes(n));
	assert_non_null(host);
	get(n, dtrain_params_values(n->params), host);
	for (int k = 0; k < PARAMS; k++)
		for (int64_t i = 0; i < sizes[k] && i < SHOWN; i++, right++) {
			double got = (double)host[dtrain_params_at(n->params, k)->offset + i];
			if (!(fabs(got - *right) < 3e-6 * (1 + fabs(*right))))
				fail_msg("%s: %s: p%d[%lld] is %.9g, should be %.9g", n->api->name, name, k,
					 (long long)i, got, *right);
		}
	free(host);
}

/* captured: apply is replayed, with other rates and gradients each time than when it was captured. */
static void check_case(const char *device, int index, bool captured)
{
	net n;
	beton_error err = {0};
	dtrain_optimizer_options options;
	void *capture = NULL;
	open_sizes(&n, device, TEST_THREADS, PARAMS, sizes);
	put_start(&n);
	if (clip_cases[index].scale > 1)
		add_scaler(&n, clip_cases[index].scale);
	dtrain_optimizer_options_init(&options);
	options.clip_norm = clip_cases[index].largest;
	options.norm = clip_cases[index].norm;
	options.grad_divisor = clip_cases[index].divisor;
	dtrain_optimizer *optimizer = make(&n, &options, clip_cases[index].momentum, clip_cases[index].nesterov);
	if (captured) {
		expect_ok(n.api->capture_begin(n.stream, &err), &err);
		expect_ok(dtrain_optimizer_apply(optimizer, n.stream, &err), &err);
		expect_ok(n.api->capture_end(n.stream, &capture, &err), &err);
	}
	for (int step = 0; step < CLIP_STEPS; step++) {
		float clip[DTRAIN_CLIPS];
		double right = clip_cases[index].norms[step];
		put_gradients(&n, step, clip_cases[index].scale);
		expect_ok(dtrain_optimizer_set_rate(optimizer, 0.1, n.stream, &err), &err);
		expect_ok(captured ? n.api->capture_launch(capture, n.stream, &err)
				   : dtrain_optimizer_apply(optimizer, n.stream, &err),
			  &err);
		read_clip(&n, optimizer, clip);
		/* PyTorch adds magnitudes up in 32 bits. */
		double bound = clip_cases[index].norm == DTRAIN_NORM_1 ? 3e-6 : 1e-6;
		if (!(fabs((double)clip[DTRAIN_CLIP_NORM] - right) < bound * right))
			fail_msg("%s: %s: norm %.9g in step %d, should be %.9g", device, clip_cases[index].name,
				 (double)clip[DTRAIN_CLIP_NORM], step, right);
	}
	compare_weights(&n, clip_cases[index].name, clip_cases[index].weights);
	if (capture)
		n.api->capture_destroy(capture);
	dtrain_optimizer_destroy(&optimizer);
	net_close(&n);
}

/* w = 0 - 1 * the clipped gradients. */
static void check_special(const char *device, int index)
{
	net n;
	beton_error err = {0};
	dtrain_optimizer *optimizer;
	dtrain_optimizer_options options;
	float clip[DTRAIN_CLIPS], host[CLIP_SPECIAL] = {0};
	open_sizes(&n, device, TEST_THREADS, 1, (int64_t[]){CLIP_SPECIAL});
	dtrain_optimizer_options_init(&options);
	options.hypers = &(dtrain_hyper_value){"momentum", 0};
	options.num_hypers = 1;
	options.clip_norm = 1;
	options.norm = clip_special[index].type;
	expect_ok(dtrain_optimizer_create(n.params, &options, &optimizer, &err), &err);
	net_copy(&n, dtrain_params_values(n.params), host, sizeof(host), DTRAIN_HOST_TO_DEVICE);
	for (int i = 0; i < CLIP_SPECIAL; i++)
		host[i] = (float)clip_special[index].gradients[i];
	net_copy(&n, dtrain_params_grads(n.params), host, sizeof(host), DTRAIN_HOST_TO_DEVICE);
	expect_ok(dtrain_optimizer_step(optimizer, 1, n.stream, &err), &err);
	read_clip(&n, optimizer, clip);
	net_copy(&n, host, dtrain_params_values(n.params), sizeof(host), DTRAIN_DEVICE_TO_HOST);
	for (int i = -1; i < CLIP_SPECIAL; i++) {
		double got = i < 0 ? (double)clip[DTRAIN_CLIP_NORM] : -(double)host[i];
		double right = i < 0 ? clip_special[index].norm : clip_special[index].clipped[i];
		if (isnan(right) ? !isnan(got) : !(got == right || fabs(got - right) < 1e-6 * fabs(right)))
			fail_msg("%s: special %d, number %d is %.9g, should be %.9g", device, index, i, got, right);
	}
	dtrain_optimizer_destroy(&optimizer);
	net_close(&n);
}

static const char *the_device;

/* All that there are, or the one. */
static const char *device_at(int index)
{
	if (the_device)
		return index == 0 ? the_device : NULL;
	return dtrain_device_at(index) ? dtrain_device_at(index)->name : NULL;
}

static dtrain_device_caps caps_of(const char *device)
{
	dtrain_device_caps caps = {0};
	net n;
	open_device(&n, device, 1);
	n.api->caps(n.device, &caps);
	net_close(&n);
	return caps;
}

static void clipped_steps_are_torchs(void **state)
{
	(void)state;
	for (int d = 0; device_at(d); d++) {
		const dtrain_device_caps caps = caps_of(device_at(d));
		for (int i = 0; i < num_clip_cases; i++) {
			if (clip_cases[i].scale > 1 && !(caps.dtypes & 1u << DTRAIN_F16))
				continue;
			check_case(device_at(d), i, false);
			if (caps.graph_capture)
				check_case(device_at(d), i, true);
		}
	}
}

static void norms_that_are_no_numbers_are_torchs(void **state)
{
	(void)state;
	for (int d = 0; device_at(d); d++)
		for (int i = 0; i < num_clip_special; i++)
			check_special(device_at(d), i);
}

/* One step from the same start. spoiled: with a gradient that is infinite. */
static float *one_step(net *n, double clip_norm, double scale, bool spoiled, int *ops, float *clip)
{
	beton_error err = {0};
	dtrain_optimizer_options options;
	put_start(n);
	float *host = put(n, dtrain_params_grads(n->params), 1, scale);
	if (spoiled) {
		host[dtrain_params_at(n->params, 2)->offset] = INFINITY;
		net_copy(n, dtrain_params_grads(n->params), host, flat_bytes(n), DTRAIN_HOST_TO_DEVICE);
	}
	dtrain_optimizer_options_init(&options);
	options.clip_norm = clip_norm;
	dtrain_optimizer *optimizer = make(n, &options, 0.9, false);
	*ops = optimizer->before.count + optimizer->update.count + optimizer->after.count;
	assert_true((dtrain_optimizer_clip(optimizer) != NULL) == (clip_norm > 0));
	expect_ok(dtrain_optimizer_step(optimizer, 0.1, n->stream, &err), &err);
	expect_ok(n->api->stream_synchronize(n->stream, &err), &err);
	if (clip_norm > 0)
		read_clip(n, optimizer, clip);
	get(n, dtrain_params_values(n->params), host);
	dtrain_optimizer_destroy(&optimizer);
	return host;
}

/* Who does not ask for a norm gets no op, and who asks for it alone gets the same bits. */
static void a_norm_alone_changes_nothing(void **state)
{
	(void)state;
	for (int d = 0; device_at(d); d++)
		for (int scaled = 0; scaled < 2; scaled++) {
			net n;
			int ops[2];
			float clip[DTRAIN_CLIPS];
			if (scaled && !(caps_of(device_at(d)).dtypes & 1u << DTRAIN_F16))
				continue;
			open_sizes(&n, device_at(d), TEST_THREADS, PARAMS, sizes);
			if (scaled)
				add_scaler(&n, 1024);
			float *without = one_step(&n, 0, scaled ? 1024 : 1, false, &ops[0], NULL);
			float *with = one_step(&n, INFINITY, scaled ? 1024 : 1, false, &ops[1], clip);
			assert_int_equal(ops[0], scaled ? 3 : 1);
			assert_int_equal(ops[1], ops[0] + 2);
			assert_memory_equal(without, with, flat_bytes(&n));
			assert_true(fabs((double)clip[DTRAIN_CLIP_NORM] - clip_cases[2].norms[1]) < 1e-4);
			free(without);
			free(with);
			net_close(&n);
		}
}

/* As without clipping: weights and momentum stay, and the scale is halved. */
static void a_step_that_overflowed_is_left_out(void **state)
{
	(void)state;
	for (int d = 0; device_at(d); d++) {
		net n;
		int ops;
		float clip[DTRAIN_CLIPS], scaler[DTRAIN_SCALERS];
		if (!(caps_of(device_at(d)).dtypes & 1u << DTRAIN_F16))
			continue;
		open_sizes(&n, device_at(d), TEST_THREADS, PARAMS, sizes);
		add_scaler(&n, 1024);
		put_start(&n);
		float *start_of = malloc(flat_bytes(&n));
		assert_non_null(start_of);
		get(&n, dtrain_params_values(n.params), start_of);
		float *end = one_step(&n, 1, 1024, true, &ops, clip);
		assert_memory_equal(start_of, end, flat_bytes(&n));
		assert_true(isinf(clip[DTRAIN_CLIP_NORM]));
		net_copy(&n, scaler, dtrain_scaler_memory(n.scaler), sizeof(scaler), DTRAIN_DEVICE_TO_HOST);
		assert_true(scaler[DTRAIN_SCALER_SCALE] == 512);
		free(start_of);
		free(end);
		/* The next one is not. */
		end = one_step(&n, 1, 512, false, &ops, clip);
		assert_true(fabs((double)clip[DTRAIN_CLIP_NORM] - clip_cases[2].norms[1]) < 1e-4);
		free(end);
		net_close(&n);
	}
}

static float norm_with_threads(const char *device, int threads)
{
	net n;
	beton_error err = {0};
	dtrain_optimizer *optimizer;
	dtrain_optimizer_options options;
	float clip[2][DTRAIN_CLIPS];
	open_sizes(&n, device, threads, 2, (int64_t[]){7, 200003});
	put_gradients(&n, 2, 1);
	dtrain_optimizer_options_init(&options);
	options.clip_norm = 1;
	expect_ok(dtrain_optimizer_create(n.params, &options, &optimizer, &err), &err);
	for (int i = 0; i < 2; i++) {
		expect_ok(dtrain_optimizer_step(optimizer, 0, n.stream, &err), &err);
		read_clip(&n, optimizer, clip[i]);
	}
	assert_memory_equal(clip[0], clip[1], sizeof(clip[0]));
	dtrain_optimizer_destroy(&optimizer);
	net_close(&n);
	return clip[0][DTRAIN_CLIP_NORM];
}

static void threads_do_not_change_a_norm(void **state)
{
	(void)state;
	for (int d = 0; device_at(d); d++) {
		float one = norm_with_threads(device_at(d), 1);
		for (int threads = 2; threads < 5 && TEST_THREADS > 1; threads++)
			assert_true(norm_with_threads(device_at(d), threads) == one);
	}
}

/* ---- ranges ---- */

/* The memory of a range, apart from that of the parameters. */
static void *apart(const net *n, const void *flat, int64_t begin, int64_t end)
{
	beton_error err = {0};
	void *memory;
	size_t bytes = (size_t)(end - begin) * sizeof(float);
	expect_ok(n->api->alloc(n->device, bytes, &memory, &err), &err);
	expect_ok(n->api->copy(n->stream, memory, (const float *)flat + begin, bytes, DTRAIN_DEVICE_TO_DEVICE, &err),
		  &err);
	expect_ok(n->api->stream_synchronize(n->stream, &err), &err);
	return memory;
}

/* Copies what a range has, on the device, to its place in the host's array. */
static void gather(const net *n, const void *memory, int64_t begin, int64_t end, float *host)
{
	net_copy(n, host + begin, memory, (size_t)(end - begin) * sizeof(float), DTRAIN_DEVICE_TO_HOST);
}

/* Three optimizers with memory of their own, cut within parameters, compute what one does. */
static void check_ranges(const char *device)
{
	enum { CUTS = 4 };
	net n;
	beton_error err = {0};
	dtrain_optimizer *parts[CUTS - 1], *whole;
	dtrain_optimizer_options options;
	void *values[CUTS - 1], *grads[CUTS - 1];
	open_sizes(&n, device, TEST_THREADS, PARAMS, sizes);
	const int64_t cuts[CUTS] = {0, 48, 1040, dtrain_params_flat_count(n.params)};
	put_start(&n);
	put_gradients(&n, 0, 1);
	for (int i = 0; i + 1 < CUTS; i++) {
		values[i] = apart(&n, dtrain_params_values(n.params), cuts[i], cuts[i + 1]);
		grads[i] = apart(&n, dtrain_params_grads(n.params), cuts[i], cuts[i + 1]);
		dtrain_optimizer_options_init(&options);
		options.begin = cuts[i];
		options.end = cuts[i + 1];
		options.values = values[i];
		options.grads = grads[i];
		parts[i] = make(&n, &options, 0.9, true);
		assert_int_equal(dtrain_optimizer_state_find(parts[i], "momentum")->count, cuts[i + 1] - cuts[i]);
	}
	dtrain_optimizer_options_init(&options);
	whole = make(&n, &options, 0.9, true);
	for (int step = 0; step < 3; step++) {
		expect_ok(dtrain_optimizer_step(whole, 0.1 / (step + 1), n.stream, &err), &err);
		for (int i = 0; i + 1 < CUTS; i++)
			expect_ok(dtrain_optimizer_step(parts[i], 0.1 / (step + 1), n.stream, &err), &err);
	}
	float *got = malloc(flat_bytes(&n)), *right = malloc(flat_bytes(&n));
	assert_true(got && right);
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i + 1 < CUTS; i++)
			gather(&n, k ? dtrain_optimizer_state_at(parts[i], 0)->memory : values[i], cuts[i], cuts[i + 1],
			       got);
		get(&n, k ? dtrain_optimizer_state_at(whole, 0)->memory : dtrain_params_values(n.params), right);
		assert_memory_equal(got, right, flat_bytes(&n));
	}
	free(got);
	free(right);
	/* In any order, and before what they work with. */
	dtrain_optimizer_destroy(&parts[1]);
	dtrain_optimizer_destroy(&whole);
	dtrain_optimizer_destroy(&parts[2]);
	dtrain_optimizer_destroy(&parts[0]);
	dtrain_optimizer_destroy(&parts[0]);
	for (int i = 0; i + 1 < CUTS; i++) {
		n.api->free(n.device, values[i]);
		n.api->free(n.device, grads[i]);
	}
	net_close(&n);
}

static void ranges_are_updated_as_the_whole(void **state)
{
	(void)state;
	for (int d = 0; device_at(d); d++)
		check_ranges(device_at(d));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clipped_steps_are_torchs),     cmocka_unit_test(norms_that_are_no_numbers_are_torchs),
		cmocka_unit_test(a_norm_alone_changes_nothing), cmocka_unit_test(a_step_that_overflowed_is_left_out),
		cmocka_unit_test(threads_do_not_change_a_norm), cmocka_unit_test(ranges_are_updated_as_the_whole),
	};
	norms_path = argc > 1 ? argv[1] : NULL;
	the_device = argc > 2 ? argv[2] : NULL;
	if (the_device && is_missing(the_device))
		return 77;
	return cmocka_run_group_tests(tests, read_cases, NULL);
}
