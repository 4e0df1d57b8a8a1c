/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of a linear layer in chunks, on a cuBLASLt of the test's and our kernels on the CPU: compared with ref.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "devices/cuda/cuda.h"
#include "fake_cublaslt.h"
#include "tests/train/devices/cuda/kernels/support.h"

enum { ROWS = 40, COLUMNS = 24, CLASSES = 50, OPERANDS = 10 };

typedef struct setting {
	dtrain_dtype dtype, weight;
	int64_t chunk;
	bool backward, scaled, hits, ignores, biased;
	bool f32_logits;
} setting;

/* Inputs, then outputs. */
typedef struct operands {
	array list[OPERANDS];
	int count;
} operands;

static void add(operands *o, dtrain_op_desc *desc, bool output, array values, int ndim, int64_t rows, int64_t columns)
{
	dtrain_operand *operand = output ? &desc->outputs[desc->num_outputs++] : &desc->inputs[desc->num_inputs++];
	operand->dtype = values.dtype;
	operand->shape = dtrain_shape_of(ndim, (int64_t[]){rows, columns});
	o->list[o->count++] = values;
}

static array labels(bool ignores)
{
	array label = array_make("label", DTRAIN_I64, ROWS, 0);
	for (int64_t i = 0; i < ROWS; i++)
		((int64_t *)label.memory)[i] = ignores && i % 7 == 3 ? -100 : (i * 7 + 3) % CLASSES;
	return label;
}

static operands make_operands(const setting *s, dtrain_op_desc *desc)
{
	operands o = {.count = 0};
	add(&o, desc, false, array_random("x", s->dtype, ROWS * COLUMNS, 0, -2, 2), 2, ROWS, COLUMNS);
	add(&o, desc, false, array_random("w", s->weight, CLASSES * COLUMNS, 0, -1, 1), 2, CLASSES, COLUMNS);
	if (s->biased)
		add(&o, desc, false, array_random("b", DTRAIN_F32, CLASSES, 0, -3, 3), 1, CLASSES, 0);
	add(&o, desc, false, labels(s->ignores), 1, ROWS, 0);
	if (s->scaled) {
		array scaler = array_make("scaler", DTRAIN_F32, DTRAIN_SCALERS, 0);
		for (int i = 0; i < DTRAIN_SCALERS; i++)
			array_set(&scaler, i, i == DTRAIN_SCALER_SCALE ? 8 : 0);
		add(&o, desc, false, scaler, 1, DTRAIN_SCALERS, 0);
	}
	add(&o, desc, true, array_make("loss", DTRAIN_F32, ROWS, 0), 1, ROWS, 0);
	if (s->backward) {
		add(&o, desc, true, array_make("d_x", s->dtype, ROWS * COLUMNS, 0), 2, ROWS, COLUMNS);
		add(&o, desc, true, array_make("d_w", DTRAIN_F32, CLASSES * COLUMNS, 0), 2, CLASSES, COLUMNS);
	}
	if (s->backward && s->biased)
		add(&o, desc, true, array_make("d_b", DTRAIN_F32, CLASSES, 0), 1, CLASSES, 0);
	if (s->hits)
		add(&o, desc, true, array_make("hits", DTRAIN_F32, ROWS, 0), 1, ROWS, 0);
	return o;
}

/* ref's outputs for the same inputs; a weight in F32 is rounded to the type of x before. */
static operands run_ref(const setting *s, const dtrain_op_desc *desc, const operands *from)
{
	operands o = *from;
	dtrain_shape shapes[OPERANDS];
	array *places[OPERANDS];
	for (int i = 0; i < o.count; i++) {
		bool output = i >= desc->num_inputs, rounds = i == 1 && s->weight != s->dtype;
		array rounded = rounds ? array_as(&from->list[i], s->dtype) : from->list[i];
		shapes[i] = output ? desc->outputs[i - desc->num_inputs].shape : desc->inputs[i].shape;
		o.list[i] = output              ? array_make("right", DTRAIN_F64, from->list[i].count, 0)
			    : i < 2 + s->biased ? array_as(&rounded, DTRAIN_F64)
						: array_copy(&from->list[i]);
		places[i] = &o.list[i];
		if (rounds)
			array_free(&rounded);
	}
	ref_run(desc->kind, &desc->attrs, desc->num_inputs, desc->num_outputs, shapes, places);
	return o;
}

/* Runs a kind on ref: inputs, then outputs, of these shapes. */
static void run_kind(dtrain_op_kind kind, const dtrain_op_attrs *attrs, int inputs, int outputs,
		     const dtrain_shape *const *shapes, array *const *places)
{
	dtrain_shape list[OPERANDS];
	array *of[OPERANDS];
	for (int i = 0; i < inputs + outputs; i++) {
		list[i] = *shapes[i];
		of[i] = places[i];
	}
	ref_run(kind, attrs, inputs, outputs, list, of);
}

/* Rounds a to a type. */
static void round_to(array *a, dtrain_dtype dtype)
{
	array rounded = array_as(a, dtype);
	array_free(a);
	*a = array_as(&rounded, DTRAIN_F64);
	array_free(&rounded);
}

/* Computes the outputs again, from logits that are rounded to the type of x, as their gradient is. Each step is an op
 * of ref in double. */
static void round_logits(const setting *s, const dtrain_op_desc *desc, operands *o)
{
	const dtrain_shape *x = &desc->inputs[0].shape, *w = &desc->inputs[1].shape, *rows = &desc->outputs[0].shape;
	const dtrain_shape logits_of = dtrain_shape_of(2, (int64_t[]){ROWS, CLASSES}),
			   four = dtrain_shape_of(1, (int64_t[]){DTRAIN_SCALERS});
	array logits = array_make("logits", DTRAIN_F64, ROWS * CLASSES, 0),
	      d_logits = array_make("d_logits", DTRAIN_F64, ROWS * CLASSES, 0);
	array *list = o->list, *label = &list[2 + s->biased], *scaler = label + 1, *out = &list[desc->num_inputs];
	run_kind(DTRAIN_OP_LINEAR, &(dtrain_op_attrs){0}, 2, 1, (const dtrain_shape *[]){x, w, &logits_of},
		 (array *[]){&list[0], &list[1], &logits});
	round_to(&logits, s->dtype);
	for (int64_t i = 0; i < logits.count && s->biased; i++)
		array_set(&logits, i, array_get(&logits, i) + array_get(&list[2], i % CLASSES));
	if (s->scaled)
		run_kind(DTRAIN_OP_SOFTMAX_XENT, &desc->attrs, 3, 2,
			 (const dtrain_shape *[]){&logits_of, rows, &four, rows, &logits_of},
			 (array *[]){&logits, label, scaler, &out[0], &d_logits});
	else
		run_kind(DTRAIN_OP_SOFTMAX_XENT, &desc->attrs, 2, 2,
			 (const dtrain_shape *[]){&logits_of, rows, rows, &logits_of},
			 (array *[]){&logits, label, &out[0], &d_logits});
	round_to(&d_logits, s->dtype);
	run_kind(DTRAIN_OP_LINEAR_BWD_DATA, &(dtrain_op_attrs){0}, 2, 1, (const dtrain_shape *[]){&logits_of, w, x},
		 (array *[]){&d_logits, &list[1], &out[1]});
	run_kind(DTRAIN_OP_LINEAR_BWD_WEIGHT, &(dtrain_op_attrs){0}, 2, 1, (const dtrain_shape *[]){x, &logits_of, w},
		 (array *[]){&list[0], &d_logits, &out[2]});
	for (int64_t c = 0; c < CLASSES && s->biased; c++) {
		double sum = 0;
		for (int64_t r = 0; r < ROWS; r++)
			sum += array_get(&d_logits, r * CLASSES + c);
		array_set(&out[3], c, sum);
	}
	array_free(&logits);
	array_free(&d_logits);
}

static void free_operands(operands *o)
{
	for (int i = 0; i < o->count; i++)
		array_free(&o->list[i]);
}

static int run(dtrain_op *op, operands *o, beton_error *err)
{
	void *places[OPERANDS], *workspace = malloc(op->desc.workspace_bytes + 1);
	assert_non_null(workspace);
	memset(workspace, 0xee, op->desc.workspace_bytes);
	for (int i = 0; i < o->count; i++)
		places[i] = o->list[i].memory;
	int status = op->run(op, NULL, places, workspace, err);
	free(workspace);
	return status;
}

static void check(const setting *s, int chunks)
{
	int64_t fault = 0;
	dtrain_device device = {.fault = &fault, .f32_logits = s->f32_logits};
	dtrain_op op = {.device = &device};
	beton_error err = {0};
	bool half = s->dtype != DTRAIN_F32, rounds = half && s->backward && !s->f32_logits;
	static const dtrain_op_kind kinds[2][2] = {{DTRAIN_OP_LINEAR_XENT_EVAL, DTRAIN_OP_LINEAR_XENT},
						   {DTRAIN_OP_LINEAR_XENT_BIAS_EVAL, DTRAIN_OP_LINEAR_XENT_BIAS}};
	op.desc = (dtrain_op_desc){
		.kind = kinds[s->biased][s->backward],
		.attrs.loss = {.label_smoothing = 0.1, .ignored = s->ignores ? -100 : 0, .chunk = s->chunk}};
	operands o = make_operands(s, &op.desc);
	operands right = run_ref(s, &op.desc, &o);
	if (rounds)
		round_logits(s, &op.desc, &right);
	fake = (fake_blas){.no_epilogues = false};
	if (cuda_build_linear_loss(&op, &op.desc, &err) != BETON_OK)
		fail_msg("%s", err.message);
	/* Twice: the second run does not add to what the first one left. */
	for (int i = 0; i < 2; i++)
		assert_int_equal(run(&op, &o, &err), BETON_OK);
	assert_int_equal(fake.products, 2 * chunks * (s->backward ? 3 : 1));
	assert_int_equal(fake.unaligned, 0);
	/* The gradient of the logits is rounded to the type of x. Where `right` has that rounding, only few elements
	 * are rounded to the other side. */
	for (int i = op.desc.num_inputs; i < o.count; i++) {
		int output = i - op.desc.num_inputs;
		bool gradient = s->backward && output > 0 && output < 3 + s->biased;
		array_compare(&o.list[i], &right.list[i], gradient && half ? (rounds ? 1e-4 : 3e-3) : 2e-5);
	}
	assert_int_equal(fault, 0);
	op.destroy(op.state);
	assert_int_equal(fake.live, 0);
	free_operands(&o);
	free_operands(&right);
}

static void chunks_give_what_ref_gives(void **state)
{
	(void)state;
	for (int i = 0; i < 128; i++) {
		dtrain_dtype dtype = i & 1 ? DTRAIN_BF16 : DTRAIN_F32;
		setting s = {.dtype = dtype,
			     .weight = i & 2 ? dtype : DTRAIN_F32,
			     .chunk = i & 4 ? 16 : 0,
			     .backward = true,
			     .scaled = i & 8,
			     .hits = i & 2,
			     .ignores = i & 16,
			     .biased = i & 32,
			     .f32_logits = i & 64};
		check(&s, i & 4 ? 3 : 1);
		s.backward = s.scaled = false;
		check(&s, i & 4 ? 3 : 1);
	}
}

/* The row in the message is that of the batch, not of the chunk. */
static void wrong_labels_are_reported(void **state)
{
	(void)state;
	int64_t fault = 0;
	dtrain_device device = {.fault = &fault};
	dtrain_op op = {.device = &device};
	beton_error err = {0};
	const setting s = {.dtype = DTRAIN_F32, .weight = DTRAIN_F32, .chunk = 16, .backward = true};
	op.desc = (dtrain_op_desc){.kind = DTRAIN_OP_LINEAR_XENT, .attrs.loss.chunk = 16};
	operands o = make_operands(&s, &op.desc);
	((int64_t *)o.list[2].memory)[33] = CLASSES;
	fake = (fake_blas){.no_epilogues = false};
	assert_int_equal(cuda_build_linear_loss(&op, &op.desc, &err), BETON_OK);
	assert_int_equal(run(&op, &o, &err), BETON_OK);
	assert_int_equal(fault, (int64_t)CLASSES << 32 | 34);
	op.destroy(op.state);
	free_operands(&o);
}

static void every_failure_leaves_nothing(void **state)
{
	(void)state;
	int status = BETON_DEVICE, failed = 0;
	for (int at = 1; status != BETON_OK && at < 300; at++) {
		int64_t fault = 0;
		dtrain_device device = {.fault = &fault};
		dtrain_op op = {.device = &device};
		beton_error err = {0};
		const setting s = {.dtype = DTRAIN_F32, .weight = DTRAIN_F32, .chunk = 16, .backward = true};
		op.desc = (dtrain_op_desc){.kind = DTRAIN_OP_LINEAR_XENT, .attrs.loss.chunk = 16};
		operands o = make_operands(&s, &op.desc);
		fake = (fake_blas){.fail_at = at};
		status = cuda_build_linear_loss(&op, &op.desc, &err);
		failed += status != BETON_OK;
		assert_true(status == BETON_OK || strstr(err.message, "cuBLASLt"));
		op.destroy(op.state);
		assert_int_equal(fake.live, 0);
		free_operands(&o);
	}
	assert_int_equal(status, BETON_OK);
	assert_in_range(failed, 50, 250);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_give_what_ref_gives),
		cmocka_unit_test(wrong_labels_are_reported),
		cmocka_unit_test(every_failure_leaves_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
