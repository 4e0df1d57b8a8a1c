/* SPDX-License-Identifier: Apache-2.0
 *
 * Kinds of optimizers: against traces of PyTorch and timm (tests/golden/optimizers.txt), on ranges, after a restart,
 * with skipped steps. optimizers TRACES [DEVICE]: that file; on that device alone, 77 when there is none.
 */
#include <stdio.h>

#include "tests/support/numbers.h"
#include "tests/train/support/missing.h"
#include "tests/train/support/net.h"

/* As in make-optimizers.py. */
enum { PARAMS = 6, GROUPS = 4, FROZEN = 3, SHOWN = 4, GOLDEN_STEPS = 100, GOLDEN_SHOWN = 23, MAX_HYPERS = 4 };

static const int64_t sizes[PARAMS] = {3, 17, 5, 40, 40, 20010};
static const dtrain_shape shapes[PARAMS] = {{1, {3}}, {1, {17}}, {1, {5}}, {2, {8, 5}}, {2, {8, 5}}, {3, {2, 345, 29}}};
static const uint8_t group_of[PARAMS] = {0, 1, FROZEN, 0, 1, 2};
static const double rates[GROUPS][2] = {{1, 1}, {0.5, 0}, {2, 0.25}, {0, 0}};
static const double lr = 0x1p-7;

static const char *traces_path;
static struct {
	char name[32], kind[8];
	double decay, norm;
	int num_hypers;
	char hyper_names[MAX_HYPERS][16];
	dtrain_hyper_value hypers[MAX_HYPERS];
	double weights[GOLDEN_SHOWN];
} golden[32];
static size_t num_golden;

/* A word of the row, without its end if that is too long. */
static const char *read_word(numbers_table *table, char *to, size_t size)
{
	snprintf(to, size, "%s", numbers_word(table));
	return to;
}

static int read_golden(void **state)
{
	(void)state;
	numbers_table table = numbers_open(traces_path);
	for (; numbers_next(&table, "case"); num_golden++) {
		size_t i = num_golden;
		assert_true(i < sizeof(golden) / sizeof(golden[0]));
		read_word(&table, golden[i].name, sizeof(golden[i].name));
		read_word(&table, golden[i].kind, sizeof(golden[i].kind));
		golden[i].decay = numbers_double(&table);
		golden[i].norm = numbers_double(&table);
		golden[i].num_hypers = (int)numbers_u32(&table);
		assert_true(golden[i].num_hypers <= MAX_HYPERS);
		for (int k = 0; k < golden[i].num_hypers; k++) {
			dtrain_hyper_value *hyper = &golden[i].hypers[k];
			hyper->name = read_word(&table, golden[i].hyper_names[k], sizeof(golden[i].hyper_names[k]));
			hyper->value = numbers_double(&table);
		}
		numbers_doubles(&table, golden[i].weights, GOLDEN_SHOWN);
	}
	numbers_close(&table);
	return 0;
}

static double start(int param, int64_t i)
{
	return ((double)((i * 37 + 11 * param) % 64) - 31.5) / 64;
}

static double gradient(int param, int64_t i, int step)
{
	double wave = (double)((i * 7919 + param * 31 + (int64_t)step * 104729) % 2003) - 1000.5;
	return group_of[param] == FROZEN ? 0 : wave * (1 + step % 5) / 2048;
}

static void put(dtrain_dtype dtype, void *array, int64_t i, double value)
{
	if (dtype == DTRAIN_F64)
		((double *)array)[i] = value;
	else
		((float *)array)[i] = (float)value;
}

/* Sets the values (step < 0), or the gradients of a step times a scale. */
static void fill(net *n, int step, double scale)
{
	size_t bytes = (size_t)dtrain_params_flat_count(n->params) * dtrain_dtype_size(n->dtype);
	void *host = calloc(1, bytes);
	assert_non_null(host);
	for (int k = 0; k < PARAMS; k++)
		for (int64_t i = 0; i < sizes[k]; i++)
			put(n->dtype, host, dtrain_params_at(n->params, k)->offset + i,
			    step < 0 ? start(k, i) : scale * gradient(k, i, step));
	net_copy(n, step < 0 ? dtrain_params_values(n->params) : dtrain_params_grads(n->params), host, bytes,
		 DTRAIN_HOST_TO_DEVICE);
	free(host);
}

static void open_net(net *n, const char *device, dtrain_dtype dtype, int threads)
{
	beton_error err = {0};
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = threads};
	*n = (net){.dtype = dtype};
	expect_ok(dtrain_device_open(device, &options, &n->device, &err), &err);
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(dtrain_params_create(n->device, dtype, &n->params, &err), &err);
	for (int i = 0; i < PARAMS; i++) {
		char name[] = {'p', (char)('0' + i), 0};
		assert_int_equal(dtrain_params_declare(n->params, name, &shapes[i], DTRAIN_INIT_ZERO, 0, &err), i);
	}
	expect_ok(dtrain_params_allocate(n->params, &err), &err);
	fill(n, -1, 1);
}

/* The optimizer of a golden case. begin, end: its range. */
static dtrain_optimizer *make(net *n, size_t index, int64_t begin, int64_t end)
{
	beton_error err = {0};
	dtrain_optimizer *optimizer;
	dtrain_optimizer_options options;
	dtrain_optimizer_options_init(&options);
	options.kind = golden[index].kind;
	options.hypers = golden[index].hypers;
	options.num_hypers = golden[index].num_hypers;
	options.num_groups = GROUPS;
	options.group_of = group_of;
	options.scaler = n->scaler;
	/* A norm is that of the range. */
	options.clip_norm = end == 0 ? golden[index].norm : 0;
	options.begin = begin;
	options.end = end;
	expect_ok(dtrain_optimizer_create(n->params, &options, &optimizer, &err), &err);
	for (int32_t i = 0; i < GROUPS; i++) {
		expect_ok(dtrain_optimizer_set(optimizer, i, "lr_scale", rates[i][0], &err), &err);
		expect_ok(dtrain_optimizer_set(optimizer, i, "weight_decay", golden[index].decay * rates[i][1], &err),
			  &err);
	}
	return optimizer;
}

/* The values in host memory; to be freed. */
static void *read_values(net *n)
{
	size_t bytes = (size_t)dtrain_params_flat_count(n->params) * dtrain_dtype_size(n->dtype);
	void *host = malloc(bytes);
	assert_non_null(host);
	net_copy(n, host, dtrain_params_values(n->params), bytes, DTRAIN_DEVICE_TO_HOST);
	return host;
}

static void step_once(net *n, dtrain_optimizer *optimizer, int step)
{
	beton_error err = {0};
	fill(n, step, 1);
	expect_ok(dtrain_optimizer_step(optimizer, lr, n->stream, &err), &err);
}

static double count_of(net *n, const dtrain_optimizer *optimizer)
{
	float count[2];
	net_copy(n, count, dtrain_optimizer_step_count(optimizer), sizeof(count), DTRAIN_DEVICE_TO_HOST);
	return (double)count[0] + 0x1p24 * (double)count[1];
}

static void set_count(net *n, dtrain_optimizer *optimizer, float low, float wraps)
{
	const float count[2] = {low, wraps};
	net_copy(n, dtrain_optimizer_step_count(optimizer), count, sizeof(count), DTRAIN_HOST_TO_DEVICE);
}

/* ---- traces ---- */

/* The bound of a weight after 100 steps. Devices that have Muon's products in BF16, as PyTorch has, make an error of a
 * hundredth in each update. */
static double bound_of(const char *device, size_t index)
{
	bool is_host = strcmp(device, "ref") == 0 || strcmp(device, "cpu") == 0;
	return strcmp(golden[index].kind, "muon") != 0 || is_host ? 1e-6 : 5e-3;
}

static void check_trace(const char *device, dtrain_dtype dtype, size_t index)
{
	net n;
	open_net(&n, device, dtype, 1);
	dtrain_optimizer *optimizer = make(&n, index, 0, 0);
	for (int step = 0; step < GOLDEN_STEPS; step++)
		step_once(&n, optimizer, step);
	void *values = read_values(&n);
	const double *right = golden[index].weights, bound = bound_of(device, index);
	for (int k = 0; k < PARAMS; k++)
		for (int64_t i = 0; i < sizes[k] && i < SHOWN; i++, right++) {
			double got = net_number(dtype, values, dtrain_params_at(n.params, k)->offset + i);
			if (!(fabs(got - *right) < bound * (1 + fabs(*right))))
				fail_msg("%s on %s in %s: p%d[%lld] is %.9g, should be %.9g", golden[index].name,
					 device, dtrain_dtype_name(dtype), k, (long long)i, got, *right);
		}
	if (dtrain_optimizer_step_count(optimizer))
		assert_true(count_of(&n, optimizer) == GOLDEN_STEPS);
	free(values);
	dtrain_optimizer_destroy(&optimizer);
	net_close(&n);
}

static const char *the_device;

/* Calls check for each case, on each device. */
static void on_each(void (*check)(const char *device, size_t index))
{
	for (size_t i = 0; i < num_golden; i++) {
		if (the_device)
			check(the_device, i);
		for (int k = 0; !the_device && dtrain_device_at(k); k++)
			check(dtrain_device_at(k)->name, i);
	}
}

static void check_f32(const char *device, size_t index)
{
	check_trace(device, DTRAIN_F32, index);
}

static void traces_are_those_of_pytorch_and_timm(void **state)
{
	(void)state;
	for (size_t i = 0; i < num_golden && !the_device; i++)
		check_trace("ref", DTRAIN_F64, i);
	on_each(check_f32);
}

/* ---- ranges ---- */

/* The message's name of the part of p5 that a kind needs; NULL: none. */
static const char *needs(size_t index)
{
	const char *kind = golden[index].kind;
	bool norms = strcmp(kind, "lars") == 0 || strcmp(kind, "lamb") == 0;
	return norms ? "the norm" : strcmp(kind, "muon") == 0 ? "all" : NULL;
}

/* Trains for three steps with the optimizers of one range, or of two, and reads the values. */
static void *train_ranges(const char *device, size_t index, int64_t middle, int threads)
{
	net n;
	open_net(&n, device, DTRAIN_F32, threads);
	int64_t count = dtrain_params_flat_count(n.params);
	dtrain_optimizer *parts[2] = {make(&n, index, 0, middle ? middle : count)};
	parts[1] = middle ? make(&n, index, middle, count) : NULL;
	for (int step = 0; step < 3; step++)
		for (int i = 0; i < 2 && parts[i]; i++)
			step_once(&n, parts[i], step);
	void *values = read_values(&n);
	for (int i = 0; i < 2; i++)
		dtrain_optimizer_destroy(&parts[i]);
	net_close(&n);
	return values;
}

static void check_ranges(const char *device, size_t index)
{
	net n;
	open_net(&n, device, DTRAIN_F32, 1);
	/* Between two parameters, and within the large one, at no multiple of a piece. */
	const dtrain_param *large = dtrain_params_at(n.params, PARAMS - 1);
	const int64_t middles[] = {large->offset > 0 ? large->offset : dtrain_params_at(n.params, 3)->offset,
				   large->offset + 4096 + 16};
	size_t bytes = (size_t)dtrain_params_flat_count(n.params) * sizeof(float);
	void *whole = train_ranges(device, index, 0, 1), *threads = train_ranges(device, index, 0, 2);
	assert_memory_equal(whole, threads, bytes);
	for (int i = 0; i < (needs(index) ? 1 : 2); i++) {
		void *parts = train_ranges(device, index, middles[i], 1);
		assert_memory_equal(parts, whole, bytes);
		free(parts);
	}
	if (needs(index)) {
		char message[96];
		dtrain_optimizer_options options;
		dtrain_optimizer *optimizer;
		beton_error err = {0};
		dtrain_optimizer_options_init(&options);
		options.kind = golden[index].kind;
		options.end = middles[1];
		assert_int_equal(dtrain_optimizer_create(n.params, &options, &optimizer, &err), BETON_UNSUPPORTED);
		snprintf(message, sizeof(message), ": needs %s of 'p5'; this rank has a part", needs(index));
		assert_non_null(strstr(err.message, message));
		assert_null(optimizer);
	}
	free(whole);
	free(threads);
	net_close(&n);
}

static void ranges_and_threads_give_the_same_bits(void **state)
{
	(void)state;
	on_each(check_ranges);
}

/* ---- restarts ---- */

/* The content of a checkpoint: values, states, the number of the step. */
static void copy_all(net *to, dtrain_optimizer *into, net *from, dtrain_optimizer *of)
{
	size_t bytes = (size_t)dtrain_params_flat_count(from->params) * sizeof(float);
	void *host = read_values(from);
	net_copy(to, dtrain_params_values(to->params), host, bytes, DTRAIN_HOST_TO_DEVICE);
	const dtrain_optimizer_state *state;
	for (int i = 0; (state = dtrain_optimizer_state_at(of, i)); i++) {
		assert_string_equal(dtrain_optimizer_state_at(into, i)->name, state->name);
		net_copy(from, host, state->memory, bytes, DTRAIN_DEVICE_TO_HOST);
		net_copy(to, dtrain_optimizer_state_at(into, i)->memory, host, bytes, DTRAIN_HOST_TO_DEVICE);
	}
	if (dtrain_optimizer_step_count(of))
		set_count(to, into, (float)count_of(from, of), 0);
	free(host);
}

static void check_restart(const char *device, size_t index)
{
	net nets[2];
	dtrain_optimizer *optimizers[2];
	for (int i = 0; i < 2; i++) {
		open_net(&nets[i], device, DTRAIN_F32, 1);
		optimizers[i] = make(&nets[i], index, 0, 0);
	}
	for (int step = 0; step < 3; step++)
		step_once(&nets[0], optimizers[0], step);
	copy_all(&nets[1], optimizers[1], &nets[0], optimizers[0]);
	for (int step = 3; step < 6; step++)
		for (int i = 0; i < 2; i++)
			step_once(&nets[i], optimizers[i], step);
	void *straight = read_values(&nets[0]), *resumed = read_values(&nets[1]);
	assert_memory_equal(resumed, straight, (size_t)dtrain_params_flat_count(nets[0].params) * sizeof(float));
	free(straight);
	free(resumed);
	for (int i = 0; i < 2; i++) {
		dtrain_optimizer_destroy(&optimizers[i]);
		net_close(&nets[i]);
	}
}

static void a_restart_changes_nothing(void **state)
{
	(void)state;
	on_each(check_restart);
}

/* ---- loss scaling ---- */

/* A step with an infinite gradient changes no value, no state and no count; the next step is as if it had not been. */
static void skipped_steps_do_not_count(void **state)
{
	(void)state;
	const char *device = the_device ? the_device : "ref";
	for (size_t index = 0; index < num_golden; index++) {
		net nets[2];
		beton_error err = {0};
		dtrain_optimizer *optimizers[2];
		for (int i = 0; i < 2; i++) {
			open_net(&nets[i], device, DTRAIN_F32, 1);
			expect_ok(dtrain_scaler_create(nets[i].device, nets[i].stream, &nets[i].scaler, &err), &err);
			optimizers[i] = make(&nets[i], index, 0, 0);
		}
		double scale = 65536;
		for (int step = 0; step < 4; step++) {
			fill(&nets[0], step, 65536);
			fill(&nets[1], step, scale);
			if (step == 2) {
				/* The second one sees an overflow first, which halves its scale. */
				const float spoiled = INFINITY;
				net_copy(&nets[1], dtrain_params_grads(nets[1].params), &spoiled, sizeof(spoiled),
					 DTRAIN_HOST_TO_DEVICE);
				expect_ok(dtrain_optimizer_step(optimizers[1], lr, nets[1].stream, &err), &err);
				scale /= 2;
				fill(&nets[1], step, scale);
			}
			for (int i = 0; i < 2; i++)
				expect_ok(dtrain_optimizer_step(optimizers[i], lr, nets[i].stream, &err), &err);
		}
		void *straight = read_values(&nets[0]), *skipped = read_values(&nets[1]);
		size_t bytes = (size_t)dtrain_params_flat_count(nets[0].params) * sizeof(float);
		if (memcmp(straight, skipped, bytes))
			fail_msg("%s: a skipped step changed the next one", golden[index].name);
		for (int i = 0; i < 2; i++) {
			if (dtrain_optimizer_step_count(optimizers[i]))
				assert_true(count_of(&nets[i], optimizers[i]) == 4);
			dtrain_optimizer_destroy(&optimizers[i]);
			net_close(&nets[i]);
		}
		free(straight);
		free(skipped);
	}
}

/* ---- many steps ---- */

/* A float stops at 2^24. An older checkpoint may have that number. */
static void the_count_is_exact(void **state)
{
	(void)state;
	for (int k = 0; the_device ? k == 0 : dtrain_device_at(k) != NULL; k++) {
		net n;
		open_net(&n, the_device ? the_device : dtrain_device_at(k)->name, DTRAIN_F32, 1);
		dtrain_optimizer *optimizer = make(&n, 2, 0, 0);
		assert_string_equal(dtrain_optimizer_name(optimizer), "adamw");
		set_count(&n, optimizer, 0x1p24 - 2, 0);
		for (int step = 1; step <= 4; step++) {
			step_once(&n, optimizer, step);
			assert_true(count_of(&n, optimizer) == 0x1p24 - 2 + step);
		}
		set_count(&n, optimizer, 0x1p24, 0);
		step_once(&n, optimizer, 0);
		assert_true(count_of(&n, optimizer) == 0x1p24 + 1);
		dtrain_optimizer_destroy(&optimizer);
		net_close(&n);
	}
}

/* ---- captured steps ---- */

/* Replays of one captured update are steps of their own: the count is in the device's memory. */
static void replays_count(void **state)
{
	(void)state;
	net n;
	dtrain_device_caps caps;
	open_net(&n, the_device ? the_device : "ref", DTRAIN_F32, 1);
	n.api->caps(n.device, &caps);
	net_close(&n);
	if (!caps.graph_capture)
		skip();
	for (size_t index = 0; index < num_golden; index++) {
		net nets[2];
		beton_error err = {0};
		void *captured = NULL, *values[2];
		for (int i = 0; i < 2; i++) {
			open_net(&nets[i], the_device, DTRAIN_F32, 1);
			dtrain_optimizer *optimizer = make(&nets[i], index, 0, 0);
			fill(&nets[i], 0, 1);
			expect_ok(dtrain_optimizer_set_rate(optimizer, lr, nets[i].stream, &err), &err);
			if (i == 1) {
				expect_ok(n.api->capture_begin(nets[1].stream, &err), &err);
				expect_ok(dtrain_optimizer_apply(optimizer, nets[1].stream, &err), &err);
				expect_ok(n.api->capture_end(nets[1].stream, &captured, &err), &err);
			}
			for (int k = 0; k < 3; k++)
				expect_ok(i ? n.api->capture_launch(captured, nets[1].stream, &err)
					    : dtrain_optimizer_apply(optimizer, nets[0].stream, &err),
					  &err);
			values[i] = read_values(&nets[i]);
			if (i == 1)
				n.api->capture_destroy(captured);
			dtrain_optimizer_destroy(&optimizer);
		}
		assert_memory_equal(values[0], values[1],
				    (size_t)dtrain_params_flat_count(nets[0].params) * sizeof(float));
		for (int i = 0; i < 2; i++) {
			free(values[i]);
			net_close(&nets[i]);
		}
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(traces_are_those_of_pytorch_and_timm),
		cmocka_unit_test(ranges_and_threads_give_the_same_bits),
		cmocka_unit_test(a_restart_changes_nothing),
		cmocka_unit_test(skipped_steps_do_not_count),
		cmocka_unit_test(the_count_is_exact),
		cmocka_unit_test(replays_count),
	};
	traces_path = argc > 1 ? argv[1] : NULL;
	the_device = argc > 2 ? argv[2] : NULL;
	if (the_device && is_missing(the_device))
		return 77;
	return cmocka_run_group_tests(tests, read_golden, NULL);
}
