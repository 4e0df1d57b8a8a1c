/* SPDX-License-Identifier: Apache-2.0
 *
 * SGD and loss scaling against PyTorch's formulas written down once more, and the schedules.
 */
#include "tests/train/support/net.h"

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
	dtrain_optimizer_options options;
	dtrain_optimizer_options_init(&options);
	const dtrain_hyper_value hypers[] = {{"momentum", settings[setting].momentum},
					     {"weight_decay", settings[setting].decay},
					     {"nesterov", settings[setting].nesterov}};
	options.hypers = hypers;
	options.num_hypers = 3;
	dtrain_optimizer *sgd;
	expect_ok(dtrain_optimizer_create(n.params, &options, &sgd, &err), &err);
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
		expect_ok(dtrain_optimizer_step(sgd, lr, n.stream, &err), &err);
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
	dtrain_optimizer_destroy(&sgd);
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

static void expect_bad(net *n, const dtrain_optimizer_options *options, const char *message)
{
	dtrain_optimizer *optimizer = (dtrain_optimizer *)n;
	beton_error err = {0};
	assert_int_equal(dtrain_optimizer_create(n->params, options, &optimizer, &err), BETON_INVALID_ARGUMENT);
	assert_null(optimizer);
	if (!strstr(err.message, message))
		fail_msg("'%s' does not say '%s'", err.message, message);
}

static void bad_options_are_errors(void **state)
{
	(void)state;
	net n;
	net_open(&n, "ref", DTRAIN_F32, "mlp", 1, 2, 3);
	const int64_t count = dtrain_params_flat_count(n.params);
	dtrain_optimizer_options good;
	dtrain_optimizer_options_init(&good);
	static const char *const kinds[] = {NULL, "", "sgdd"};
	static const double divisors[] = {0, -2, NAN, INFINITY}, norms[] = {-1, NAN, -INFINITY};
	const int64_t ranges[][2] = {{-16, 16}, {16, 0}, {16, 16}, {8, 32}, {0, 24}, {0, count + 16}};
	for (int i = 0; i < 3; i++) {
		dtrain_optimizer_options bad = good;
		bad.kind = kinds[i];
		expect_bad(&n, &bad, "optimizer: unknown kind '");
	}
	for (int i = 0; i < 4; i++) {
		dtrain_optimizer_options bad = good;
		bad.grad_divisor = divisors[i];
		expect_bad(&n, &bad, "sgd: gradients divided by ");
	}
	for (int i = 0; i < 3; i++) {
		dtrain_optimizer_options bad = good;
		bad.clip_norm = norms[i];
		expect_bad(&n, &bad, "sgd: gradients clipped to ");
	}
	for (int i = 0; i < 6; i++) {
		dtrain_optimizer_options bad = good;
		bad.begin = ranges[i][0];
		bad.end = ranges[i][1];
		expect_bad(&n, &bad, "are not a range of runs of 16 ");
	}
	for (int i = -1; i < 2; i += 2) {
		dtrain_optimizer_options bad = good;
		bad.num_hypers = i;
		expect_bad(&n, &bad, "numbers without what they are");
	}
	expect_bad(&n, &(dtrain_optimizer_options){.struct_size = 0}, "optimizer");
	static const double rates[] = {-1, -1e-300, NAN, INFINITY, 1e39};
	dtrain_optimizer *sgd;
	beton_error err = {0};
	expect_ok(dtrain_optimizer_create(n.params, &good, &sgd, &err), &err);
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		assert_int_equal(dtrain_optimizer_step(sgd, rates[i], n.stream, &err), BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(err.message, "sgd: a rate of "));
	}
	dtrain_optimizer_destroy(&sgd);
	net_close(&n);
}

/* Below the range of a number of any kind, above it, and no number. */
static void numbers_out_of_their_ranges_are_errors(void **state)
{
	(void)state;
	net n;
	net_open(&n, "ref", DTRAIN_F32, "mlp", 1, 2, 3);
	const dtrain_optimizer_kind *kind;
	for (int k = 0; (kind = dtrain_optimizer_kind_at(k)); k++) {
		dtrain_optimizer_options options;
		dtrain_optimizer *optimizer;
		beton_error err = {0};
		dtrain_optimizer_options_init(&options);
		options.kind = kind->name;
		expect_ok(dtrain_optimizer_create(n.params, &options, &optimizer, &err), &err);
		assert_string_equal(kind->hypers[0].name, "lr_scale");
		for (int32_t i = 0; i < kind->num_hypers; i++) {
			const dtrain_hyper *hyper = &kind->hypers[i];
			const double values[] = {hyper->flag ? 0.5 : hyper->least - 0.25,
						 hyper->flag ? 2 : hyper->below, NAN};
			for (int v = 0; v < 3; v++) {
				dtrain_hyper_value value = {hyper->name, values[v]};
				options.hypers = &value;
				options.num_hypers = 1;
				expect_bad(&n, &options, hyper->name);
				assert_int_equal(dtrain_optimizer_set(optimizer, 0, hyper->name, values[v], &err),
						 BETON_INVALID_ARGUMENT);
			}
			assert_int_equal(dtrain_optimizer_set(optimizer, 0, hyper->name, hyper->standard, &err),
					 hyper->by_group ? BETON_OK : BETON_INVALID_ARGUMENT);
		}
		options.hypers = &(dtrain_hyper_value){"warmth", 1};
		expect_bad(&n, &options, "has no number named 'warmth'");
		for (int32_t i = 0; i < kind->num_states; i++)
			assert_string_equal(dtrain_optimizer_state_at(optimizer, i)->name, kind->states[i]);
		assert_null(dtrain_optimizer_state_at(optimizer, kind->num_states));
		dtrain_optimizer_destroy(&optimizer);
	}
	const dtrain_hyper_value still[] = {{"nesterov", 1}, {"momentum", 0}};
	expect_bad(&n,
		   &(dtrain_optimizer_options){.struct_size = sizeof(dtrain_optimizer_options),
					       .kind = "sgd",
					       .num_groups = 1,
					       .grad_divisor = 1,
					       .hypers = still,
					       .num_hypers = 2},
		   "needs a momentum above 0");
	net_close(&n);
}

/* ---- loss scaling ---- */

/* torch.amp.GradScaler with its defaults: init_scale 65536, growth_factor 2, backoff_factor 0.5, growth_interval 2000.
 */
typedef struct grad_scaler {
	double scale;
	int growth_tracker;
} grad_scaler;

static void torch_update(grad_scaler *scaler, bool found_inf)
{
	if (found_inf) {
		scaler->scale *= 0.5;
		scaler->growth_tracker = 0;
	} else if (++scaler->growth_tracker == 2000) {
		scaler->scale *= 2;
		scaler->growth_tracker = 0;
	}
}

/* A few parameters of their own: thousands of steps. */
static void open_parameters(net *n, const char *device, dtrain_optimizer **sgd)
{
	beton_error err = {0};
	*n = (net){.dtype = DTRAIN_F32};
	expect_ok(dtrain_device_open(device, NULL, &n->device, &err), &err);
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(dtrain_params_create(n->device, DTRAIN_F32, &n->params, &err), &err);
	assert_int_equal(
		dtrain_params_declare(n->params, "w", &(dtrain_shape){1, {5}}, DTRAIN_INIT_LINEAR_UNIFORM, 4, &err), 0);
	expect_ok(dtrain_params_allocate(n->params, &err), &err);
	expect_ok(dtrain_params_initialize(n->params, 1, n->stream, &err), &err);
	expect_ok(dtrain_scaler_create(n->device, n->stream, &n->scaler, &err), &err);
	dtrain_optimizer_options options;
	dtrain_optimizer_options_init(&options);
	const dtrain_hyper_value hypers[] = {{"weight_decay", settings[3].decay}, {"nesterov", settings[3].nesterov}};
	options.hypers = hypers;
	options.num_hypers = 2;
	options.scaler = n->scaler;
	expect_ok(dtrain_optimizer_create(n->params, &options, sgd, &err), &err);
}

static bool is_spoiled(int step)
{
	return step == 0 || step == 3 || step == 4 || step == 2010 || step == 4500;
}

static void check_scaler(const char *device)
{
	net n;
	dtrain_optimizer *sgd;
	beton_error err = {0};
	open_parameters(&n, device, &sgd);
	const float *scaler = dtrain_scaler_memory(n.scaler);
	float *w = dtrain_params_values(n.params), *grads = dtrain_params_grads(n.params);
	grad_scaler right = {.scale = 65536};
	double weights[5], buffers[5] = {0};
	int good = 0;
	for (int i = 0; i < 5; i++)
		weights[i] = (double)w[i];
	for (int step = 0; step < 6600; step++) {
		assert_true(scaler[DTRAIN_SCALER_SCALE] == (float)right.scale);
		assert_true(scaler[DTRAIN_SCALER_GOOD_STEPS] == (float)right.growth_tracker);
		for (int i = 0; i < 5; i++) {
			grads[i] = (float)gradient(i, step) * scaler[DTRAIN_SCALER_SCALE];
			if (!is_spoiled(step))
				torch_step(&weights[i], &buffers[i], gradient(i, step), good, 0.01f, 3);
		}
		good += !is_spoiled(step);
		if (is_spoiled(step))
			grads[step % 5] = step % 2 ? NAN : -INFINITY;
		expect_ok(dtrain_optimizer_step(sgd, 0.01, n.stream, &err), &err);
		torch_update(&right, is_spoiled(step));
		for (int i = 0; i < 5; i++)
			assert_true(fabs((double)w[i] - weights[i]) < 1e-4);
	}
	/* Halved five times, doubled at the 2000th good step after the third, fourth and last of them. */
	assert_true(scaler[DTRAIN_SCALER_SCALE] == 65536 / 32 * 8);
	dtrain_optimizer_destroy(&sgd);
	net_close(&n);
}

static void scaler_is_torchs(void **state)
{
	(void)state;
	for (int index = 0; dtrain_device_at(index); index++)
		check_scaler(dtrain_device_at(index)->name);
}

static void check_scale(const char *device)
{
	net nets[2];
	dtrain_optimizer *sgd[2];
	beton_error err = {0};
	double losses[2];
	for (int i = 0; i < 2; i++) {
		net *n = &nets[i];
		net_open(n, device, DTRAIN_F32, "resnet20", 2, 8, 3);
		dtrain_optimizer_options options;
		dtrain_optimizer_options_init(&options);
		if (i == 1) {
			dtrain_program_destroy(&n->program);
			expect_ok(dtrain_scaler_create(n->device, n->stream, &n->scaler, &err), &err);
			net_build(n, "resnet20", 8, true);
			options.scaler = n->scaler;
		}
		expect_ok(dtrain_optimizer_create(n->params, &options, &sgd[i], &err), &err);
		losses[i] = net_run(n);
	}
	const float *plain = dtrain_params_grads(nets[0].params), *scaled = dtrain_params_grads(nets[1].params);
	assert_true(losses[0] == losses[1]);
	/* A power of two: exact. */
	for (int64_t i = 0; i < dtrain_params_flat_count(nets[0].params); i++)
		assert_true(scaled[i] == 65536 * plain[i]);
	for (int i = 0; i < 2; i++)
		expect_ok(dtrain_optimizer_step(sgd[i], 0.1, nets[i].stream, &err), &err);
	assert_memory_equal(dtrain_params_values(nets[0].params), dtrain_params_values(nets[1].params),
			    (size_t)dtrain_params_flat_count(nets[0].params) * sizeof(float));
	for (int i = 0; i < 2; i++) {
		dtrain_optimizer_destroy(&sgd[i]);
		net_close(&nets[i]);
	}
}

/* Gradients are multiplied by the scale, and nothing else is; the step is the same. */
static void a_scale_does_not_change_a_step(void **state)
{
	(void)state;
	for (int index = 0; dtrain_device_at(index); index++)
		check_scale(dtrain_device_at(index)->name);
}

/* Two steps of gradients that are `ranks` times what the network gave. */
static void train_on_sums(net *n, const char *device, int ranks)
{
	dtrain_optimizer_options options;
	dtrain_optimizer *sgd;
	beton_error err = {0};
	net_open(n, device, DTRAIN_F32, "mlp", 2, 8, 3);
	dtrain_optimizer_options_init(&options);
	options.grad_divisor = ranks;
	const dtrain_hyper_value decay = {"weight_decay", 5e-4};
	options.hypers = &decay;
	options.num_hypers = 1;
	expect_ok(dtrain_optimizer_create(n->params, &options, &sgd, &err), &err);
	for (int step = 0; step < 2; step++) {
		net_run(n);
		float *grads = dtrain_params_grads(n->params);
		for (int64_t i = 0; i < dtrain_params_flat_count(n->params); i++)
			grads[i] *= (float)ranks;
		expect_ok(dtrain_optimizer_step(sgd, 0.1, n->stream, &err), &err);
	}
	dtrain_optimizer_destroy(&sgd);
}

/* Sums of ranks, divided by their number: for powers of two the same bits as with one rank. */
static void sums_of_ranks_are_divided(void **state)
{
	(void)state;
	for (int index = 0; dtrain_device_at(index); index++) {
		const char *device = dtrain_device_at(index)->name;
		net one;
		train_on_sums(&one, device, 1);
		int64_t count = dtrain_params_flat_count(one.params);
		const float *right = dtrain_params_values(one.params);
		for (int ranks = 2; ranks < 10; ranks++) {
			net many;
			train_on_sums(&many, device, ranks);
			const float *got = dtrain_params_values(many.params);
			bool power = (ranks & (ranks - 1)) == 0;
			for (int64_t i = 0; i < count; i++)
				assert_true(power ? got[i] == right[i] : fabsf(got[i] - right[i]) < 1e-6f);
			net_close(&many);
		}
		net_close(&one);
	}
}

/* The rate that was set last holds for each apply, as for the replays of a capture. */
static void a_step_is_its_two_parts(void **state)
{
	(void)state;
	net nets[2];
	beton_error err = {0};
	for (int i = 0; i < 2; i++) {
		net *n = &nets[i];
		dtrain_optimizer *sgd;
		dtrain_optimizer_options options;
		dtrain_optimizer_options_init(&options);
		net_open(n, "ref", DTRAIN_F32, "mlp", 1, 2, 3);
		expect_ok(dtrain_optimizer_create(n->params, &options, &sgd, &err), &err);
		net_run(n);
		if (i == 1)
			expect_ok(dtrain_optimizer_set_rate(sgd, 0.25, n->stream, &err), &err);
		for (int k = 0; k < 3; k++)
			expect_ok(i ? dtrain_optimizer_apply(sgd, n->stream, &err)
				    : dtrain_optimizer_step(sgd, 0.25, n->stream, &err),
				  &err);
		dtrain_optimizer_destroy(&sgd);
	}
	assert_memory_equal(dtrain_params_values(nets[0].params), dtrain_params_values(nets[1].params),
			    (size_t)dtrain_params_flat_count(nets[0].params) * sizeof(float));
	net_close(&nets[0]);
	net_close(&nets[1]);
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
	s = (dtrain_schedule){
		.kind = DTRAIN_SCHEDULE_LINEAR, .lr = 1, .final_lr = 0.5, .warmup_steps = 5, .total_steps = 5};
	expect_rate(&s, 4, 1);
	expect_rate(&s, 5, 0.5);
}

/* torch.optim.lr_scheduler.PolynomialLR(total_iters=10, power=2.5) and MultiStepLR([3, 7, 7, 9], gamma=0.3) of 2.15. */
static void polynomial_and_step_are_torchs(void **state)
{
	(void)state;
	static const double polynomial[] = {0.8,
					    0.614746777137,
					    0.457946721792,
					    0.327970730401,
					    0.223083840742,
					    0.141421356237,
					    0.0809543081003,
					    0.0394360241404,
					    0.014310835056,
					    0.00252982212813,
					    0,
					    0,
					    0};
	static const double stepped[] = {0.8, 0.8, 0.8, 0.24, 0.24, 0.24, 0.24, 0.0216, 0.0216, 0.00648, 0.00648};
	static const int64_t milestones[] = {3, 7, 7, 9};
	dtrain_schedule s = {.kind = DTRAIN_SCHEDULE_POLYNOMIAL, .lr = 0.8, .total_steps = 10, .power = 2.5};
	for (int step = 0; step < 13; step++)
		expect_rate(&s, step, polynomial[step]);
	s = (dtrain_schedule){.kind = DTRAIN_SCHEDULE_STEP,
			      .lr = 0.8,
			      .total_steps = 10,
			      .milestones = milestones,
			      .num_milestones = 4,
			      .factor = 0.3};
	for (int step = 0; step < 11; step++)
		expect_rate(&s, step, stepped[step]);
	/* After a warm-up, during which milestones count only afterwards. */
	s.warmup_steps = 4;
	expect_rate(&s, 1, 0.4);
	expect_rate(&s, 4, 0.24);
}

static void wsd_is_stable_before_it_decays(void **state)
{
	(void)state;
	dtrain_schedule s = {.kind = DTRAIN_SCHEDULE_WSD,
			     .lr = 0.8,
			     .final_lr = 0.2,
			     .warmup_steps = 4,
			     .total_steps = 20,
			     .decay_steps = 6};
	static const double rates[] = {0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8,
				       0.8, 0.8, 0.8, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.2};
	for (int step = 0; step < 22; step++)
		expect_rate(&s, step, rates[step]);
	/* A decay longer than the rest begins with the warm-up's end. */
	s.decay_steps = 100;
	expect_rate(&s, 4, 0.8);
	expect_rate(&s, 12, 0.5);
	s.decay_steps = 0;
	expect_rate(&s, 19, 0.8);
	expect_rate(&s, 20, 0.2);
}

/* torch.optim.lr_scheduler.LambdaLR with a line from 0.2 to 1 over 109 steps and one to 0.07 over the other 367, as
 * airbench94's. */
static void a_warm_up_has_a_beginning(void **state)
{
	(void)state;
	dtrain_schedule s = {.kind = DTRAIN_SCHEDULE_LINEAR,
			     .lr = 1.5,
			     .initial_lr = 0.3,
			     .final_lr = 0.105,
			     .warmup_steps = 109,
			     .total_steps = 476};
	for (int step = 0; step < 476; step++) {
		double part = step < 109 ? step / 109.0 : (step - 109) / 367.0;
		expect_rate(&s, step, 1.5 * (step < 109 ? 0.2 * (1 - part) + part : 1 - part + 0.07 * part));
	}
	/* Not only upwards, and before any kind of schedule. */
	s = (dtrain_schedule){
		.kind = DTRAIN_SCHEDULE_COSINE, .lr = 1, .initial_lr = 2, .warmup_steps = 4, .total_steps = 8};
	expect_rate(&s, 0, 2);
	expect_rate(&s, 1, 1.75);
	expect_rate(&s, 4, 1);
	s.kind = DTRAIN_SCHEDULE_CONSTANT;
	expect_rate(&s, 3, 1.25);
	s.warmup_steps = 0;
	expect_rate(&s, 0, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sgd_is_torchs),
		cmocka_unit_test(bad_options_are_errors),
		cmocka_unit_test(numbers_out_of_their_ranges_are_errors),
		cmocka_unit_test(scaler_is_torchs),
		cmocka_unit_test(a_scale_does_not_change_a_step),
		cmocka_unit_test(sums_of_ranks_are_divided),
		cmocka_unit_test(a_step_is_its_two_parts),
		cmocka_unit_test(schedules),
		cmocka_unit_test(polynomial_and_step_are_torchs),
		cmocka_unit_test(wsd_is_stable_before_it_decays),
		cmocka_unit_test(a_warm_up_has_a_beginning),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
