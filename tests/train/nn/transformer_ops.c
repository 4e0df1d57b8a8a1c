/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests beyond the examples of ops: attention of rows longer than a block, memory that does not grow with their square,
 * the same bits for any number of threads, and the numbers that dropout draws.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/half.h"
#include "core/op.h"
#include "core/philox.h"
#include "tests/train/support/missing.h"

#define SHAPE(...) \
	dtrain_shape_of((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

/* The type of the next ops. */
static dtrain_dtype tested_type = DTRAIN_F32;

/* An op on a device whose memory the host can read. */
typedef struct op_run {
	dtrain_dtype dtype; /* that the op computes in: F32, BF16 or F16 */
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_op_desc desc;
	void *operands[2 * DTRAIN_OP_MAX_OPERANDS];
} op_run;

static void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

static void begin(op_run *r, const char *device, int threads, dtrain_op_kind kind, dtrain_op_attrs attrs)
{
	beton_error err = {0};
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = threads};
	*r = (op_run){.dtype = tested_type, .desc = {.kind = kind, .attrs = attrs}};
	expect_ok(dtrain_device_open(device, &options, &r->device, &err), &err);
	r->api = dtrain_device_get_api(r->device);
	expect_ok(r->api->stream_create(r->device, &r->stream, &err), &err);
}

static dtrain_operand operand(dtrain_dtype dtype, dtrain_shape shape)
{
	return (dtrain_operand){
		.dtype = dtype, .shape = shape, .bytes = (size_t)dtrain_shape_count(&shape) * dtrain_dtype_size(dtype)};
}

/* The operand's memory, zeros. Inputs come before outputs. */
static void *add_operand(op_run *r, bool input, dtrain_dtype dtype, dtrain_shape shape)
{
	beton_error err = {0};
	dtrain_operand o = operand(dtype, shape);
	int place = r->desc.num_inputs + r->desc.num_outputs;
	if (input)
		r->desc.inputs[r->desc.num_inputs++] = o;
	else
		r->desc.outputs[r->desc.num_outputs++] = o;
	r->desc.plain_output[input ? 0 : r->desc.num_outputs - 1] = true;
	expect_ok(r->api->alloc(r->device, o.bytes, &r->operands[place], &err), &err);
	return r->operands[place];
}

/* Numbers between -1 and 1 that depend on the place of the operand. */
static float *numbers(op_run *r, dtrain_shape shape)
{
	uint32_t state = 12345u + (uint32_t)r->desc.num_inputs;
	char letter = dtrain__op_input_letter(r->desc.kind, r->desc.num_inputs);
	dtrain_dtype dtype = dtrain__op_letter_type(letter, r->dtype);
	void *values = add_operand(r, true, dtype, shape);
	for (int64_t i = 0; i < dtrain_shape_count(&shape); i++) {
		state = state * 1664525u + 1013904223u;
		float value = (float)(state >> 8) * 0x1p-23f - 1;
		if (dtype == DTRAIN_BF16)
			((uint16_t *)values)[i] = bt_bfloat16(value);
		else if (dtype == DTRAIN_F16)
			((uint16_t *)values)[i] = bt_float16(value);
		else
			((float *)values)[i] = value;
	}
	return values;
}

static float *result(op_run *r, dtrain_shape shape)
{
	char letter = dtrain__op_output_letter(r->desc.kind, r->desc.num_outputs);
	return add_operand(r, false, dtrain__op_letter_type(letter, r->dtype), shape);
}

/* Runs the op; returns the bytes of its workspace. */
static size_t run(op_run *r)
{
	beton_error err = {0};
	dtrain_op *op;
	void *workspace;
	expect_ok(r->api->op_create(r->device, &r->desc, &op, &err), &err);
	expect_ok(r->api->alloc(r->device, r->desc.workspace_bytes, &workspace, &err), &err);
	expect_ok(r->api->op_run(op, r->stream, r->operands, workspace, &err), &err);
	expect_ok(r->api->stream_synchronize(r->stream, &err), &err);
	r->api->free(r->device, workspace);
	r->api->op_destroy(op);
	return r->desc.workspace_bytes;
}

static void end(op_run *r)
{
	for (int i = 0; i < r->desc.num_inputs + r->desc.num_outputs; i++)
		r->api->free(r->device, r->operands[i]);
	r->api->stream_destroy(r->stream);
	dtrain_device_close(&r->device);
}

static double number_of(dtrain_dtype dtype, const void *values, int64_t i)
{
	if (dtype == DTRAIN_BF16)
		return (double)bt_widen_bfloat16(((const uint16_t *)values)[i]);
	return (double)((const float *)values)[i];
}

static void expect_outputs(const op_run *got, const op_run *right, double bound)
{
	for (int k = 0; k < right->desc.num_outputs; k++) {
		const void *a = got->operands[got->desc.num_inputs + k],
			   *b = right->operands[right->desc.num_inputs + k];
		dtrain_dtype dtype = right->desc.outputs[k].dtype;
		int64_t count = dtrain_shape_count(&right->desc.outputs[k].shape);
		double difference = 0, length = 0;
		if (bound == 0 && memcmp(a, b, right->desc.outputs[k].bytes) != 0)
			fail_msg("output %d of %s in %s has other bits", k, dtrain__op_name(right->desc.kind),
				 dtrain_dtype_name(right->dtype));
		if (bound == 0)
			continue;
		for (int64_t i = 0; i < count; i++) {
			difference += pow(number_of(dtype, a, i) - number_of(dtype, b, i), 2);
			length += pow(number_of(dtype, b, i), 2);
		}
		if (!(sqrt(difference) <= bound * sqrt(length)))
			fail_msg("output %d of %s: normalised error %.3g", k, dtrain__op_name(right->desc.kind),
				 sqrt(difference / length));
	}
}

/* ---- attention ---- */

typedef struct rows {
	int64_t b, t, s, d;
	int heads, kv_heads;
	bool causal, packed, segments;
	double dropout;
} rows;

static void begin_attention(op_run *r, const char *device, int threads, dtrain_op_kind kind, const rows *c)
{
	int64_t all = c->heads + 2 * c->kv_heads;
	dtrain_shape q = SHAPE(c->b, c->t, (c->packed ? all : c->heads) * c->d);
	dtrain_shape k = SHAPE(c->b, c->s, (c->packed ? all : c->kv_heads) * c->d);
	begin(r, device, threads, kind,
	      (dtrain_op_attrs){.attention = {.heads = c->heads,
					      .kv_heads = c->kv_heads,
					      .causal = c->causal,
					      .packed = c->packed,
					      .dropout = c->dropout,
					      .layer = 3}});
	float *first = numbers(r, q);
	memcpy(numbers(r, k), first, c->packed ? r->desc.inputs[0].bytes : 0);
	memcpy(numbers(r, k), first, c->packed ? r->desc.inputs[0].bytes : 0);
}

/* The operands after the others. */
static void add_rest(op_run *r, const rows *c)
{
	if (c->dropout > 0) {
		const int64_t numbers[DTRAIN_RANDOMS] = {7, 2, 1000, 3};
		memcpy(add_operand(r, true, DTRAIN_I64, SHAPE(DTRAIN_RANDOMS)), numbers, sizeof(numbers));
	}
	if (!c->segments)
		return;
	int32_t *segment = add_operand(r, true, DTRAIN_I32, SHAPE(c->b, c->t));
	for (int64_t i = 0; i < c->b * c->t; i++)
		segment[i] = (int32_t)(i % c->t / 37);
}

/* forward: has run. */
static void add_backward(op_run *r, const op_run *forward, const rows *c)
{
	dtrain_shape y = SHAPE(c->b, c->t, c->heads * c->d), lse = SHAPE(c->b, c->heads, c->t);
	int outputs = forward->desc.num_inputs;
	memcpy(numbers(r, y), forward->operands[outputs], forward->desc.outputs[0].bytes);
	numbers(r, y);
	memcpy(numbers(r, lse), forward->operands[outputs + 1], forward->desc.outputs[1].bytes);
	add_rest(r, c);
	for (int i = 0; i < (c->packed ? 1 : 3); i++)
		result(r, r->desc.inputs[i].shape);
}

static void run_attention(op_run *forward, op_run *backward, const char *device, int threads, const rows *c)
{
	begin_attention(forward, device, threads, c->dropout > 0 ? DTRAIN_OP_ATTENTION_DROPOUT : DTRAIN_OP_ATTENTION,
			c);
	add_rest(forward, c);
	result(forward, SHAPE(c->b, c->t, c->heads * c->d));
	result(forward, SHAPE(c->b, c->heads, c->t));
	run(forward);
	begin_attention(backward, device, threads,
			c->dropout > 0 ? DTRAIN_OP_ATTENTION_DROPOUT_BWD : DTRAIN_OP_ATTENTION_BWD, c);
	add_backward(backward, forward, c);
	run(backward);
}

static const rows long_rows[] = {
	{1, 530, 530, 6, 2, 2, .causal = true, .packed = true},
	{1, 300, 300, 5, 4, 2, .causal = true, .packed = true, .segments = true},
	{2, 65, 577, 3, 2, 1, .causal = true},
	{1, 260, 513, 4, 1, 1, .causal = false},
	{2, 150, 530, 3, 2, 1, .causal = true, .dropout = 0.3},
};

static void long_rows_equal_ref(void **state)
{
	for (size_t i = 0; i < sizeof(long_rows) / sizeof(long_rows[0]); i++) {
		op_run got[2], right[2];
		run_attention(&got[0], &got[1], *state, 2, &long_rows[i]);
		run_attention(&right[0], &right[1], "ref", 1, &long_rows[i]);
		for (int k = 0; k < 2; k++) {
			expect_outputs(&got[k], &right[k], 1e-5);
			end(&got[k]);
			end(&right[k]);
		}
	}
}

static bool has_type(const char *device, dtrain_dtype dtype)
{
	op_run r;
	dtrain_device_caps caps;
	begin(&r, device, 1, DTRAIN_OP_RELU, (dtrain_op_attrs){.relu = false});
	r.api->caps(r.device, &caps);
	end(&r);
	return caps.dtypes >> dtype & 1;
}

/* Also with rows that are not a whole vector, and with too few keys for products in BF16. */
static const rows half_rows[] = {
	{1, 530, 530, 6, 2, 2, .causal = true, .packed = true},
	{1, 300, 300, 5, 4, 2, .causal = true, .packed = true, .segments = true},
	{2, 65, 577, 3, 2, 1, .causal = true},
	{1, 260, 513, 4, 1, 1, .causal = false},
	{2, 150, 530, 3, 2, 1, .causal = true, .dropout = 0.3},
	{2, 197, 197, 16, 2, 2, .packed = true},
	{1, 257, 258, 1, 1, 1, .causal = true},
	{1, 600, 31, 8, 1, 1, .causal = false},
};

/* Probabilities are rounded to 8 bits, which a sum over many keys evens out. */
static void rows_in_bf16_are_near_ref(void **state)
{
	tested_type = DTRAIN_BF16;
	for (size_t i = 0; i < sizeof(half_rows) / sizeof(half_rows[0]) && has_type(*state, DTRAIN_BF16); i++) {
		op_run got[2], right[2];
		run_attention(&got[0], &got[1], *state, 2, &half_rows[i]);
		run_attention(&right[0], &right[1], "ref", 1, &half_rows[i]);
		for (int k = 0; k < 2; k++) {
			expect_outputs(&got[k], &right[k], 1e-2);
			end(&got[k]);
			end(&right[k]);
		}
	}
	tested_type = DTRAIN_F32;
}

/* Large scores do not overflow, and the largest one decides. */
static void large_scores_are_finite(void **state)
{
	const rows c = {1, 90, 90, 8, 1, 1, .causal = true};
	op_run r;
	begin_attention(&r, *state, 2, DTRAIN_OP_ATTENTION, &c);
	for (int k = 0; k < 2; k++)
		for (int64_t i = 0; i < 90 * 8; i++)
			((float *)r.operands[k])[i] *= 1e4f;
	const float *y = result(&r, SHAPE(1, 90, 8)), *lse = result(&r, SHAPE(1, 1, 90));
	run(&r);
	for (int64_t i = 0; i < 90 * 8; i++)
		assert_true(fabsf(y[i]) <= 1);
	for (int64_t i = 0; i < 90; i++)
		assert_true(isfinite(lse[i]));
	end(&r);
}

static size_t attention_workspace(const char *device, dtrain_op_kind kind, int64_t t)
{
	const rows c = {1, t, t, 64, 4, 4, .causal = true, .packed = true};
	op_run r;
	beton_error err = {0};
	dtrain_op *op;
	begin_attention(&r, device, 2, kind, &c);
	dtrain_shape y = SHAPE(1, t, 4 * 64), lse = SHAPE(1, 4, t);
	if (kind == DTRAIN_OP_ATTENTION_BWD) {
		numbers(&r, y);
		numbers(&r, y);
		numbers(&r, lse);
		result(&r, r.desc.inputs[0].shape);
	} else {
		result(&r, y);
		result(&r, lse);
	}
	expect_ok(r.api->op_create(r.device, &r.desc, &op, &err), &err);
	size_t bytes = r.desc.workspace_bytes;
	r.api->op_destroy(op);
	end(&r);
	return bytes;
}

static void workspace_is_no_square(void **state)
{
	const dtrain_op_kind kinds[] = {DTRAIN_OP_ATTENTION, DTRAIN_OP_ATTENTION_BWD};
	for (int i = 0; i < 2; i++) {
		size_t small = attention_workspace(*state, kinds[i], 1024),
		       large = attention_workspace(*state, kinds[i], 8192);
		assert_true(large <= 8 * small);
		assert_true(large < (size_t)8192 * 8192 * sizeof(float) / 16);
	}
}

/* ---- threads ---- */

/* Products with long sums, which threads could share. */
static void begin_linear(op_run *r, const char *device, int threads, dtrain_op_kind kind, bool in_out, int64_t n,
			 int64_t in, int64_t out)
{
	dtrain_shape x = SHAPE(n, in), y = SHAPE(n, out), w = in_out ? SHAPE(in, out) : SHAPE(out, in);
	begin(r, device, threads, kind, (dtrain_op_attrs){.linear = {.weight_in_out = in_out}});
	numbers(r, kind == DTRAIN_OP_LINEAR_BWD_DATA ? y : x);
	numbers(r, kind == DTRAIN_OP_LINEAR_BWD_WEIGHT ? y : w);
	result(r, kind == DTRAIN_OP_LINEAR ? y : kind == DTRAIN_OP_LINEAR_BWD_DATA ? x : w);
	if (kind == DTRAIN_OP_LINEAR_BWD_WEIGHT)
		result(r, SHAPE(out));
	run(r);
}

static void begin_loss(op_run *r, const char *device, int threads, bool biased)
{
	const int64_t n = 300, c = 64, v = 2311;
	begin(r, device, threads, biased ? DTRAIN_OP_LINEAR_XENT_BIAS : DTRAIN_OP_LINEAR_XENT,
	      (dtrain_op_attrs){.loss = {.ignored = -100, .chunk = 130}});
	numbers(r, SHAPE(n, c));
	numbers(r, SHAPE(v, c));
	if (biased)
		numbers(r, SHAPE(v));
	int64_t *label = add_operand(r, true, DTRAIN_I64, SHAPE(n));
	for (int64_t i = 0; i < n; i++)
		label[i] = i % 7 ? i * 31 % v : -100;
	result(r, SHAPE(n));
	result(r, SHAPE(n, c));
	result(r, SHAPE(v, c));
	if (biased)
		result(r, SHAPE(v));
	run(r);
}

static void begin_plain_loss(op_run *r, const char *device, int threads)
{
	begin_loss(r, device, threads, false);
}

static void begin_biased_loss(op_run *r, const char *device, int threads)
{
	begin_loss(r, device, threads, true);
}

static void begin_embedding(op_run *r, const char *device, int threads)
{
	const int64_t n = 900, c = 48, v = 1500;
	begin(r, device, threads, DTRAIN_OP_EMBEDDING_BWD, (dtrain_op_attrs){.relu = false});
	numbers(r, SHAPE(n, c));
	int64_t *index = add_operand(r, true, DTRAIN_I64, SHAPE(n));
	for (int64_t i = 0; i < n; i++)
		index[i] = i * i % 97 * 15;
	result(r, SHAPE(v, c));
	run(r);
}

static void begin_norm(op_run *r, const char *device, int threads)
{
	const int64_t n = 1300, c = 130;
	begin(r, device, threads, DTRAIN_OP_RMS_NORM_BWD, (dtrain_op_attrs){.norm = {.epsilon = 1e-5}});
	numbers(r, SHAPE(n, c));
	numbers(r, SHAPE(n, c));
	numbers(r, SHAPE(c));
	numbers(r, SHAPE(n));
	result(r, SHAPE(n, c));
	result(r, SHAPE(c));
	run(r);
}

static void expect_same_bits(op_run *one, op_run *two)
{
	expect_outputs(one, two, 0);
	end(one);
	end(two);
}

static void compare_threads(void **state)
{
	static const dtrain_op_kind linear[] = {DTRAIN_OP_LINEAR, DTRAIN_OP_LINEAR_BWD_DATA,
						DTRAIN_OP_LINEAR_BWD_WEIGHT};
	op_run r[2], backward[2];
	for (int i = 0; i < 6; i++) {
		for (int k = 0; k < 2; k++)
			begin_linear(&r[k], *state, 1 + 2 * k, linear[i / 2], i % 2, 700, 96, 160);
		expect_same_bits(&r[0], &r[1]);
		for (int k = 0; k < 2; k++)
			begin_linear(&r[k], *state, 1 + 2 * k, linear[i / 2], i % 2, 1, 4096, 512);
		expect_same_bits(&r[0], &r[1]);
	}
	for (size_t i = 0; i < sizeof(long_rows) / sizeof(long_rows[0]); i++) {
		for (int k = 0; k < 2; k++)
			run_attention(&r[k], &backward[k], *state, 1 + 2 * k, &long_rows[i]);
		expect_same_bits(&r[0], &r[1]);
		expect_same_bits(&backward[0], &backward[1]);
	}
	void (*const others[])(op_run *, const char *, int) = {begin_plain_loss, begin_biased_loss, begin_embedding,
							       begin_norm};
	for (int i = 0; i < 4; i++) {
		for (int k = 0; k < 2; k++)
			others[i](&r[k], *state, 1 + 2 * k);
		expect_same_bits(&r[0], &r[1]);
	}
}

static void threads_change_no_bit(void **state)
{
#ifndef _OPENMP
	fprintf(stderr, "this compiler's build leaves threads to oneDNN, whose sums depend on their number\n");
	skip();
#endif
	const dtrain_dtype dtypes[] = {DTRAIN_BF16, DTRAIN_F16, DTRAIN_F32};
	for (int i = 0; i < 3; i++) {
		tested_type = dtypes[i];
		if (has_type(*state, dtypes[i]))
			compare_threads(state);
	}
}

/* ---- dropout ---- */

/* kat_vectors of Random123 1.14, philox 4x32 10. */
static void philox_gives_the_published_numbers(void **state)
{
	(void)state;
	static const struct {
		uint32_t counter[4], key[2], words[4];
	} known[] = {
		{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
		 {0xa4093822, 0x299f31d0},
		 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	};
	for (int i = 0; i < 3; i++) {
		uint32_t words[4];
		dtrain__philox(known[i].counter, known[i].key, words);
		assert_memory_equal(words, known[i].words, sizeof(words));
	}
}

static void drop(op_run *r, const char *device, double p, bool per_row, int64_t count, int64_t each,
		 const int64_t *random)
{
	begin(r, device, 2, DTRAIN_OP_DROPOUT, (dtrain_op_attrs){.dropout = {.p = p, .layer = 3, .per_row = per_row}});
	float *x = numbers(r, SHAPE(count, each));
	memcpy(add_operand(r, true, DTRAIN_I64, SHAPE(DTRAIN_RANDOMS)), random, DTRAIN_RANDOMS * sizeof(*random));
	for (int64_t i = 0; i < count * each; i++)
		x[i] = (float)(i + 1);
	result(r, SHAPE(count, each));
	run(r);
}

static bool is_kept(const op_run *r, int64_t i)
{
	return ((const float *)r->operands[2])[i] != 0;
}

/* Rows 0, 3, 6 ... on one rank, 1, 4, 7 ... on the next. */
static void ranks_drop_what_one_drops(void **state)
{
	enum { RANKS = 3, EACH = 37, ALL = 24 };
	for (int per_row = 0; per_row < 2; per_row++) {
		op_run whole, part;
		drop(&whole, *state, 0.4, per_row, ALL, EACH, (int64_t[]){77, 5, 0, 1});
		for (int64_t rank = 0; rank < RANKS; rank++) {
			drop(&part, *state, 0.4, per_row, ALL / RANKS, EACH, (int64_t[]){77, 5, rank, RANKS});
			for (int64_t i = 0; i < ALL / RANKS * EACH; i++)
				assert_int_equal(is_kept(&part, i),
						 is_kept(&whole, (rank + i / EACH * RANKS) * EACH + i % EACH));
			end(&part);
		}
		end(&whole);
	}
}

/* Rows of more elements than one piece of work has. */
static void long_rows_drop_what_ref_drops(void **state)
{
	enum { ROWS = 2, EACH = 40003 };
	op_run got, right;
	drop(&got, *state, 0.3, false, ROWS, EACH, (int64_t[]){77, 5, 9, 2});
	drop(&right, "ref", 0.3, false, ROWS, EACH, (int64_t[]){77, 5, 9, 2});
	expect_outputs(&got, &right, 1e-6);
	end(&got);
	end(&right);
}

static void share_is_p(void **state)
{
	enum { COUNT = 100000 };
	static const double shares[] = {0, 0.1, 0.5, 0.9};
	for (int i = 0; i < 4; i++) {
		op_run r, again;
		int64_t kept = 0, same = 0;
		double p = shares[i];
		drop(&r, *state, p, false, 4, COUNT / 4, (int64_t[]){1, 0, 0, 1});
		drop(&again, *state, p, false, 4, COUNT / 4, (int64_t[]){1, 1, 0, 1});
		for (int64_t k = 0; k < COUNT; k++) {
			const float *x = r.operands[0], *y = r.operands[2];
			kept += is_kept(&r, k);
			same += is_kept(&r, k) == is_kept(&again, k);
			assert_true(!is_kept(&r, k) || fabs((double)y[k] * (1 - p) / (double)x[k] - 1) < 1e-6);
		}
		/* Six standard deviations. */
		assert_true(fabs((double)kept / COUNT - (1 - p)) <= 6 * sqrt(p * (1 - p) / COUNT));
		/* Another step draws other numbers: they agree by chance alone. */
		assert_true(p == 0 || fabs((double)same / COUNT - (p * p + (1 - p) * (1 - p))) < 0.02);
		end(&r);
		end(&again);
	}
}

int main(int argc, char **argv)
{
	void *device = argc > 1 ? argv[1] : "ref";
	const struct CMUnitTest of_ref[] = {
		cmocka_unit_test_prestate(philox_gives_the_published_numbers, device),
		cmocka_unit_test_prestate(ranks_drop_what_one_drops, device),
		cmocka_unit_test_prestate(share_is_p, device),
		cmocka_unit_test_prestate(large_scores_are_finite, device),
		cmocka_unit_test_prestate(workspace_is_no_square, device),
	};
	const struct CMUnitTest of_others[] = {
		cmocka_unit_test_prestate(long_rows_drop_what_ref_drops, device),
		cmocka_unit_test_prestate(ranks_drop_what_one_drops, device),
		cmocka_unit_test_prestate(share_is_p, device),
		cmocka_unit_test_prestate(large_scores_are_finite, device),
		cmocka_unit_test_prestate(workspace_is_no_square, device),
		cmocka_unit_test_prestate(long_rows_equal_ref, device),
		cmocka_unit_test_prestate(rows_in_bf16_are_near_ref, device),
		cmocka_unit_test_prestate(threads_change_no_bit, device),
	};
	if (argc == 1)
		return cmocka_run_group_tests(of_ref, NULL, NULL);
	return is_missing(device) ? 77 : cmocka_run_group_tests(of_others, NULL, NULL);
}
