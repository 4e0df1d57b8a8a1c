/* SPDX-License-Identifier: Apache-2.0
 *
 * Every op of every device: ref's gradients against finite differences, and each device in each type against ref in
 * double. With a device's name as argument, that device alone: 77 when there is none.
 */
#include <fnmatch.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/train/support/missing.h"
#include "op_run.h"

static const dtrain_dtype dtypes[] = {DTRAIN_F32, DTRAIN_F16, DTRAIN_BF16};

/* Euclidean distance over the length of what is right. */
static double normalised_error(const double *values, const double *right, int64_t count)
{
	double difference = 0, length = 0;
	for (int64_t i = 0; i < count; i++) {
		difference += (values[i] - right[i]) * (values[i] - right[i]);
		length += right[i] * right[i];
	}
	return difference == 0 ? 0 : sqrt(difference) / (sqrt(length) + 1e-30);
}

/* Whether the case has an op that reads a rounded result of another one. */
static bool rounds_twice(const op_case *c)
{
	return c->family == ACTIVATED || c->kind == DTRAIN_OP_ATTENTION || c->kind == DTRAIN_OP_ATTENTION_DROPOUT ||
	       c->kind == DTRAIN_OP_LINEAR_XENT || c->kind == DTRAIN_OP_LINEAR_XENT_BIAS ||
	       (c->kind == DTRAIN_OP_LINEAR && c->example && c->example->attrs.linear.activation);
}

/* Whether three results are rounded one after the other. LINEAR_XENT has logits, their gradient and d_x; attention has
 * y, and inside of it probabilities and gradients of scores. */
static bool rounds_thrice(const setting *s)
{
	const dtrain_op_kind kind = s->c->kind;
	bool inside = kind == DTRAIN_OP_LINEAR_XENT || kind == DTRAIN_OP_LINEAR_XENT_BIAS ||
		      kind == DTRAIN_OP_ATTENTION || kind == DTRAIN_OP_ATTENTION_DROPOUT;
	return s->c->family == ACTIVATED || (inside && !s->caps.host_memory);
}

static double bound_of(const setting *s, const tensor *t, bool tf32)
{
	double bound = s->c->bound;
	bool half = s->dtype == DTRAIN_F16 || s->dtype == DTRAIN_BF16;
	if (bound == 0)
		return 0;
	bool rounded = t->kind == ACTIVATION || rounds_twice(s->c) ||
		       (s->c->kind == DTRAIN_OP_CONV2D && s->c->example && !s->caps.host_memory);
	/* Its products are BF16 whatever the type of the parameters. */
	if (s->c->kind == DTRAIN_OP_MUON && !s->caps.host_memory)
		return BF16_BOUND;
	if (half && rounded)
		return (rounds_thrice(s) ? 2 : 1) * (s->dtype == DTRAIN_F16 ? F16_BOUND : BF16_BOUND);
	if (half)
		return fmax(bound, HALF_SUM_BOUND);
	bool product = s->c->family == ACTIVATED || (s->c->example && dtrain__op_rules_of(s->c->kind)->flops);
	return tf32 && product ? TF32_BOUND : bound;
}

static void compare(const setting *got, const setting *right, bool tf32)
{
	for (int i = 0; i < got->count; i++) {
		const tensor *a = &got->tensors[i], *b = &right->tensors[i];
		if (!a->result)
			continue;
		double error = normalised_error(a->values, b->values, dtrain_shape_count(&a->shape));
		double bound = bound_of(got, a, tf32);
		if (!(error <= bound))
			fail_msg("%s, '%s' %d on %s in %s%s: normalised error %.3g, allowed %.3g", got->c->name,
				 a->name, i, got->api->name, dtrain_dtype_name(got->dtype), tf32 ? " with tf32" : "",
				 error, bound);
	}
}

/* Half results are the exact ones rounded once, but for those so close to the middle between two numbers that rounding
 * to float before decides: weights that were not rounded, say, change most of them. */
static void compare_roundings(const setting *got, const setting *right)
{
	for (int i = 0; i < got->count && !rounds_twice(got->c); i++) {
		const tensor *a = &got->tensors[i], *b = &right->tensors[i];
		int64_t count = dtrain_shape_count(&a->shape), different = 0;
		for (int64_t k = 0; a->result && a->kind == ACTIVATION && k < count; k++)
			different += a->values[k] != rounded_to(got->dtype, b->values[k]);
		if (different > 1 + count / 100)
			fail_msg("%s, '%s' in %s: %lld of %lld are not rounded once", got->c->name, a->name,
				 dtrain_dtype_name(got->dtype), (long long)different, (long long)count);
	}
}

/* On cpu in F16 only the results of products, since its functions are approximations. */
static bool rounds_once(const setting *s)
{
	if (strcmp(s->api->name, "ref") == 0)
		return s->dtype != DTRAIN_F32;
	return strcmp(s->api->name, "cpu") == 0 && s->dtype == DTRAIN_F16 && dtrain__op_rules_of(s->c->kind)->flops;
}

/* Returns whether the device has to have the case's ops in dtype. */
static bool against_double(const char *device, const op_case *c, dtrain_dtype dtype, bool tf32)
{
	setting right, got;
	open_setting(&got, c, device, dtype, dtype, tf32);
	bool due = case_is_due(c, &got.caps, dtype);
	if (due) {
		open_setting(&right, c, "ref", DTRAIN_F64, dtype, false);
		run_case(&right);
		run_case(&got);
		compare(&got, &right, tf32);
		if (rounds_once(&got))
			compare_roundings(&got, &right);
		close_setting(&right);
	}
	close_setting(&got);
	return due;
}

/* ---- finite differences ---- */

/* The sum of y weighted with d_y. */
static double projection(const setting *s)
{
	double sum = 0;
	for (int64_t i = 0; i < dtrain_shape_count(&s->tensors[s->output].shape); i++)
		sum += s->tensors[s->output].values[i] * s->tensors[s->output_gradient].values[i];
	return sum;
}

static double slope(setting *s, double *value)
{
	const double step = 1e-5;
	double keep = *value;
	*value = keep + step;
	run_case(s);
	double above = projection(s);
	*value = keep - step;
	run_case(s);
	double below = projection(s);
	*value = keep;
	return (above - below) / (2 * step);
}

static void check_gradient(setting *s, int index)
{
	tensor *of = &s->tensors[index], *gradient = &s->tensors[of->gradient];
	int64_t count = dtrain_shape_count(&gradient->shape), step = count / 24 + 1;
	double *analytic = malloc((size_t)count * sizeof(double));
	assert_non_null(analytic);
	memcpy(analytic, gradient->values, (size_t)count * sizeof(double));
	double most = 0;
	for (int64_t i = 0; i < count; i++)
		most = fabs(analytic[i]) > most ? fabs(analytic[i]) : most;
	/* The first element of a relu's input sits on the kink on purpose. */
	for (int64_t i = s->c->example && s->c->kind == DTRAIN_OP_RELU ? 1 : 0; i < count; i += step) {
		double numeric = slope(s, &of->values[i]);
		/* A gradient that is zero in exact arithmetic (a class alone, a channel alone) is compared to 1e-3. */
		double error = fabs(numeric - analytic[i]) / (most + 1e-3);
		if (!(error < 1e-6))
			fail_msg("%s, '%s'[%lld]: %.9g, finite difference %.9g", s->c->name, gradient->name,
				 (long long)i, analytic[i], numeric);
	}
	free(analytic);
}

static void ref_gradients_equal_differences(void **state)
{
	(void)state;
	int checked = 0, count;
	const op_case *cases = all_cases(&count);
	for (int i = 0; i < count; i++) {
		setting s;
		open_setting(&s, &cases[i], "ref", DTRAIN_F64, DTRAIN_F64, false);
		run_case(&s);
		for (int k = 0; k < s.count; k++)
			if (s.tensors[k].gradient >= 0) {
				run_case(&s);
				check_gradient(&s, k);
				checked++;
			}
		close_setting(&s);
	}
	assert_true(checked > 80);
}

/* ---- against the formula: what has no gradient, or one that a wrong result could have, too ---- */

static double normalized_pixel(const setting *s, int64_t at)
{
	static const double mean[] = {123.675, 116.28, 103.53, -6}, deviation[] = {58.395, 57.12, 57.375, 2};
	const dtrain_shape *y = &s->tensors[1].shape;
	int64_t area = y->dim[2] * y->dim[3], channel = at / area % y->dim[1];
	int64_t pixel = at / (area * y->dim[1]) * area + at % area;
	return (s->tensors[0].values[pixel * y->dim[1] + channel] - mean[channel]) / deviation[channel];
}

static double evaluated_norm(const setting *s, int64_t at)
{
	const dtrain_shape *x = &s->tensors[0].shape;
	int64_t channel = at / (dtrain_shape_count(x) / x->dim[0] / x->dim[1]) % x->dim[1];
	const tensor *gamma = &s->tensors[1], *beta = &s->tensors[2], *mean = &s->tensors[3], *var = &s->tensors[4];
	double y = (s->tensors[0].values[at] - mean->values[channel]) / sqrt(var->values[channel] + 1e-5);
	y = y * gamma->values[channel] + beta->values[channel] +
	    (s->c->example->optional_inputs ? s->tensors[5].values[at] : 0);
	return s->c->example->attrs.relu ? fmax(y, 0) : y;
}

static double layer_norm(const setting *s, int64_t at)
{
	int64_t columns = dtrain_shape_count(&s->tensors[1].shape), column = at % columns;
	const double *row = s->tensors[0].values + (at - column);
	double mean = 0, square = 0;
	for (int64_t c = 0; c < columns; c++)
		mean += row[c];
	mean /= (double)columns;
	for (int64_t c = 0; c < columns; c++)
		square += (row[c] - mean) * (row[c] - mean);
	return (row[column] - mean) / sqrt(square / (double)columns + 1e-5) * s->tensors[1].values[column] +
	       (s->c->example->optional_inputs ? s->tensors[2].values[column] : 0);
}

/* NULL: the case is checked by its gradient alone. */
typedef double formula(const setting *s, int64_t at);

static formula *formula_of(const op_case *c)
{
	if (!c->example)
		return c->family == NORMALIZE ? normalized_pixel : NULL;
	return c->kind == DTRAIN_OP_BATCH_NORM_EVAL ? evaluated_norm
	       : c->kind == DTRAIN_OP_LAYER_NORM    ? layer_norm
						    : NULL;
}

static void ref_equals_the_formulas(void **state)
{
	(void)state;
	int checked = 0, count;
	const op_case *cases = all_cases(&count);
	for (int i = 0; i < count; i++) {
		formula *right_of = formula_of(&cases[i]);
		setting s;
		if (!right_of)
			continue;
		open_setting(&s, &cases[i], "ref", DTRAIN_F64, DTRAIN_F64, false);
		run_case(&s);
		const tensor *y = &s.tensors[cases[i].family == NORMALIZE ? 1 : s.output];
		for (int64_t k = 0; k < dtrain_shape_count(&y->shape); k++) {
			double right = right_of(&s, k);
			/* The scale and shift of pixels are floats. */
			if (!(fabs(y->values[k] - right) < 1e-6))
				fail_msg("%s, element %lld: %.9g, should be %.9g", cases[i].name, (long long)k,
					 y->values[k], right);
		}
		close_setting(&s);
		checked++;
	}
	assert_true(checked >= 12);
}

/* ---- errors ---- */

/* in_mixed: it is the label that is mixed into the row. */
static void expect_label_error(const char *device, dtrain_dtype dtype, double label, bool in_mixed)
{
	setting s;
	beton_error err = {0};
	char text[32];
	const op_case c = {LOSS, {4, 5}, .mixed = in_mixed};
	int labels = in_mixed ? 7 : 1;
	open_setting(&s, &c, device, dtype, dtype, false);
	if (s.caps.dtypes & 1u << dtype) {
		assert_int_equal(try_case(&s, &err), BETON_OK);
		s.tensors[labels].values[2] = label;
		assert_int_equal(try_case(&s, &err), BETON_INVALID_ARGUMENT);
		snprintf(text, sizeof(text), "label %d", (int)label);
		assert_non_null(strstr(err.message, text));
		/* It is over with the run. */
		s.tensors[labels].values[2] = 4;
		assert_int_equal(try_case(&s, &err), BETON_OK);
	}
	close_setting(&s);
}

static void check_labels_out_of_range(const char *device)
{
	for (int i = 0; i < 3; i++) {
		expect_label_error(device, dtypes[i], -1, false);
		expect_label_error(device, dtypes[i], 5, false);
		expect_label_error(device, dtypes[i], 5, true);
	}
}

static void check_wrong_shapes(const char *device)
{
	dtrain_shape a = dtrain_shape_of(4, (int64_t[]){1, 2, 4, 4}), b = dtrain_shape_of(4, (int64_t[]){1, 2, 4, 5});
	setting s;
	open_setting(&s, &(op_case){.family = LOSS}, device, DTRAIN_F32, DTRAIN_F32, false);
	dtrain_op_desc desc = {.kind = DTRAIN_OP_ADD,
			       .num_inputs = 2,
			       .num_outputs = 1,
			       .inputs = {{.shape = a}, {.shape = b}},
			       .outputs = {{.shape = a}}};
	dtrain_op *op;
	beton_error err = {0};
	assert_int_equal(s.api->op_create(s.device, &desc, &op, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "op add"));
	desc.num_inputs = 1;
	assert_int_equal(s.api->op_create(s.device, &desc, &op, &err), BETON_INVALID_ARGUMENT);
	desc.kind = DTRAIN_OP_KIND_COUNT;
	assert_int_equal(s.api->op_create(s.device, &desc, &op, &err), BETON_UNSUPPORTED);
	close_setting(&s);
}

/* ---- the devices ---- */

static void expect_enough(const char *device, int compared, dtrain_dtype dtype)
{
	print_message("%s: %d cases in %s\n", device, compared, dtrain_dtype_name(dtype));
	assert_true(compared > 40 || (compared == 0 && dtype != DTRAIN_F32));
}

static void check_device(const char *device)
{
	int count;
	const op_case *cases = all_cases(&count);
	for (int i = 0; i < 3; i++) {
		int compared = 0;
		for (int k = 0; k < count; k++)
			compared += against_double(device, &cases[k], dtypes[i], false);
		expect_enough(device, compared, dtypes[i]);
	}
	check_labels_out_of_range(device);
	check_wrong_shapes(device);
}

static void ref_is_right(void **state)
{
	(void)state;
	check_device("ref");
	for (int k = 0; k < DTRAIN_OP_KIND_COUNT; k++)
		if (!kinds_run[k] && !dtrain__op_rules_of((dtrain_op_kind)k)->collective)
			fail_msg("no example and no case runs the op %s", dtrain__op_name((dtrain_op_kind)k));
}

static void cpu_is_right(void **state)
{
	(void)state;
	if (!dtrain_device_find("cpu")) {
		fprintf(stderr, "no cpu device in this build\n");
		skip();
	}
	check_device("cpu");
}

/* ---- one device: a test for each case and type, so that one run names all that are wrong ---- */

typedef struct device_case {
	const char *device;
	const op_case *c;
	dtrain_dtype dtype;
	bool tf32;
	int *compared; /* counts its type's; the first case's counts all types' */
	char name[80];
} device_case;

static void case_is_right(void **state)
{
	const device_case *t = *state;
	if (!against_double(t->device, t->c, t->dtype, t->tf32))
		skip();
	++*t->compared;
}

static void all_types_have_cases(void **state)
{
	const device_case *first = *state;
	for (int i = 0; i < 3; i++)
		expect_enough(first->device, first->compared[i], dtypes[i]);
}

static void labels_out_of_range_are_refused(void **state)
{
	check_labels_out_of_range(((const device_case *)*state)->device);
}

static void wrong_shapes_are_refused(void **state)
{
	check_wrong_shapes(((const device_case *)*state)->device);
}

/* only: a pattern of names ("*in bf16"), or NULL for all. Returns an exit status: a number of failures could be 77. */
static int run_device(const char *device, const char *only)
{
	enum { TYPES = 4, OTHERS = 3 }; /* the fourth is f32 with tf32 */
	static int compared[TYPES];
	int cases_count, count = 0;
	const op_case *cases = all_cases(&cases_count);
	device_case *list = calloc((size_t)cases_count * TYPES, sizeof(*list));
	struct CMUnitTest *tests = calloc((size_t)cases_count * TYPES + OTHERS, sizeof(*tests));
	if (!list || !tests)
		return 1;
	for (int type = 0; type < TYPES; type++)
		for (int i = 0; i < cases_count; i++) {
			bool tf32 = type == TYPES - 1;
			device_case *t = &list[count];
			*t = (device_case){device, &cases[i], tf32 ? DTRAIN_F32 : dtypes[type], tf32, &compared[type]};
			snprintf(t->name, sizeof(t->name), "%s in %s", cases[i].name,
				 tf32 ? "tf32" : dtrain_dtype_name(t->dtype));
			tests[count++] = (struct CMUnitTest){t->name, case_is_right, NULL, NULL, t};
		}
	/* The counts need all cases. */
	if (!only)
		tests[count++] = (struct CMUnitTest){"all types have cases", all_types_have_cases, NULL, NULL, list};
	tests[count++] = (struct CMUnitTest){"labels out of range are refused", labels_out_of_range_are_refused, NULL,
					     NULL, list};
	tests[count++] = (struct CMUnitTest){"wrong shapes are refused", wrong_shapes_are_refused, NULL, NULL, list};
	bool any = !only;
	for (int i = 0; i < count && !any; i++)
		any = fnmatch(only, tests[i].name, 0) == 0;
	if (only)
		cmocka_set_test_filter(only);
	int failures = any ? _cmocka_run_group_tests(device, tests, (size_t)count, NULL, NULL) : 1;
	if (!any)
		fprintf(stderr, "no test is named '%s'\n", only);
	free(tests);
	free(list);
	return failures ? 1 : 0;
}

/* [DEVICE [PATTERN]] */
int main(int argc, char **argv)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(ref_gradients_equal_differences),
		cmocka_unit_test(ref_equals_the_formulas),
		cmocka_unit_test(ref_is_right),
		cmocka_unit_test(cpu_is_right),
	};
	if (argc == 1)
		return cmocka_run_group_tests(all, NULL, NULL);
	return is_missing(argv[1]) ? 77 : run_device(argv[1], argc > 2 ? argv[2] : NULL);
}
