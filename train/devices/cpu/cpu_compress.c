/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that compress gradients. What is sent has the bits of `ref`, whatever the number of threads.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "common/error.h"
#include "core/host.h"
#include "cpu.h"

/* Elements of a piece of work, whole blocks, and those below which one thread is faster. */
enum { PIECE = 16384, FEW = 65536 };

/* ---- types of 16 bits ---- */

static int run_narrow(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	const float *x = operands[0];
	float factor = (float)op->attrs.factor;
	int64_t all = op->count;
	(void)workspace;
	(void)err;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (all > FEW)
#endif
	for (int64_t i = 0; i < all; i += PIECE)
		op->rows->narrow(cpu_to(op, operands[1], i), x + i, factor, all - i < PIECE ? all - i : PIECE);
	return BETON_OK;
}

static int run_widen(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	const cpu_rows *f32 = op->device->vector->f32;
	float *y = operands[1], factor = (float)op->attrs.factor;
	int64_t all = op->count;
	(void)workspace;
	(void)err;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (all > FEW)
#endif
	for (int64_t i = 0; i < all; i += PIECE) {
		int64_t count = all - i < PIECE ? all - i : PIECE;
		op->rows->widen(y + i, cpu_from(op, operands[0], i), count);
		f32->scale(y + i, y + i, factor, count);
	}
	return BETON_OK;
}

static int run_carry(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	const float *x = operands[0], *y = operands[1];
	float *out = operands[2], factor = (float)op->attrs.factor;
	(void)workspace;
	(void)err;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > FEW)
#endif
	for (int64_t i = 0; i < op->count; i++) {
		float left = x[i] + factor * y[i];
		out[i] = fabsf(left) <= FLT_MAX ? left : 0;
	}
	return BETON_OK;
}

/* ---- codes of a byte ---- */

/* The bits of a number without its sign, which grow with its size; NaN's are above infinity's. */
static uint32_t size_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits & 0x7fffffff;
}

static float largest(const float *x, int64_t count)
{
	uint32_t most = 0;
	float value;
	for (int64_t i = 0; i < count; i++) {
		uint32_t size = size_of(x[i]);
		most = size > most ? size : most;
	}
	memcpy(&value, &most, sizeof(value));
	return value;
}

/* Quantizes a block with a scale. Adding so large a number leaves no fraction bits. */
static void quantize_numbers(float *restrict x, int64_t count, float scale, int8_t *restrict codes)
{
	const float whole = 0x1.8p23f;
	float inverse = 1 / scale;
	for (int64_t i = 0; i < count; i++) {
		float value = x[i] * inverse;
		value = value < 127 ? value : 127;
		value = value > -127 ? value : -127;
		value = (value + whole) - whole;
		codes[i] = (int8_t)value;
		x[i] -= value * scale;
	}
}

/* Quantizes a block whose scale, or its inverse, is not a number: zeros stay 0. */
static void quantize_extremes(float *x, int64_t count, float scale, int8_t *codes)
{
	for (int64_t i = 0; i < count; i++) {
		float value = x[i] == 0 ? 0 : x[i] < 0 ? -127 : 127;
		codes[i] = (int8_t)value;
		x[i] = scale <= FLT_MAX ? x[i] - value * scale : 0;
	}
}

static void quantize_block(float *x, int64_t count, uint8_t *code)
{
	float scale = largest(x, count) / 127;
	int8_t *codes = (int8_t *)code + sizeof(scale);
	memcpy(code, &scale, sizeof(scale));
	memset(codes, 0, DTRAIN_CODE_BLOCK);
	if (scale > 0 && scale <= FLT_MAX && 1 / scale <= FLT_MAX)
		quantize_numbers(x, count, scale, codes);
	else if (!(scale == 0))
		quantize_extremes(x, count, scale, codes);
}

static int run_quantize(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	float *x = operands[0];
	uint8_t *codes = operands[1];
	int64_t all = op->count, blocks = (all + DTRAIN_CODE_BLOCK - 1) / DTRAIN_CODE_BLOCK;
	(void)workspace;
	(void)err;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (all > FEW)
#endif
	for (int64_t block = 0; block < blocks; block++) {
		int64_t begin = block * DTRAIN_CODE_BLOCK;
		quantize_block(x + begin, all - begin < DTRAIN_CODE_BLOCK ? all - begin : DTRAIN_CODE_BLOCK,
			       codes + block * DTRAIN_CODE_BYTES);
	}
	memset(codes + blocks * DTRAIN_CODE_BYTES, 0, (size_t)(op->batch - blocks * DTRAIN_CODE_BYTES));
	return BETON_OK;
}

static void add_codes(float *restrict y, int64_t count, const uint8_t *code)
{
	const int8_t *codes = (const int8_t *)code + sizeof(float);
	float scale;
	memcpy(&scale, code, sizeof(scale));
	if (scale <= FLT_MAX)
		for (int64_t i = 0; i < count; i++)
			y[i] += (float)codes[i] * scale;
	else
		for (int64_t i = 0; i < count; i++)
			y[i] += codes[i] ? (float)codes[i] * scale : 0;
}

static int run_dequantize(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	const uint8_t *codes = operands[0];
	float *y = operands[1];
	int64_t all = op->batch, parts = op->shapes[0].dim[0], part = op->shapes[0].dim[1] * DTRAIN_CODE_BYTES;
	(void)workspace;
	(void)err;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (all > FEW)
#endif
	for (int64_t i = 0; i < all; i += DTRAIN_CODE_BLOCK) {
		int64_t count = all - i < DTRAIN_CODE_BLOCK ? all - i : DTRAIN_CODE_BLOCK;
		memset(y + i, 0, (size_t)count * sizeof(*y));
		for (int64_t p = 0; p < parts; p++)
			add_codes(y + i, count, codes + p * part + i / DTRAIN_CODE_BLOCK * DTRAIN_CODE_BYTES);
	}
	return BETON_OK;
}

/* ---- the largest elements ---- */

typedef struct top_pair {
	int32_t index;
	float value;
} top_pair;

/* A size has 31 bits: the upper 16 choose a bin, the lower 15 one within it. */
enum { LOW_BITS = 15, BINS = 1 << 16 };

/* The highest bin that holds the last of the `left` largest; *left becomes how many of them it holds. */
static int32_t last_bin(const uint32_t *counts, int32_t bins, int64_t *left)
{
	int32_t bin = bins - 1;
	for (; bin > 0 && counts[bin] < *left; bin--)
		*left -= counts[bin];
	return bin;
}

/* The size of the kth largest; *equal: how many of that size are among the k. */
static uint32_t least_size(const float *x, int64_t count, int64_t k, uint32_t *counts, int64_t *equal)
{
	memset(counts, 0, BINS * sizeof(*counts));
	for (int64_t i = 0; i < count; i++)
		counts[size_of(x[i]) >> LOW_BITS]++;
	*equal = k;
	uint32_t high = (uint32_t)last_bin(counts, BINS, equal);
	memset(counts, 0, BINS * sizeof(*counts));
	for (int64_t i = 0; i < count; i++)
		if (size_of(x[i]) >> LOW_BITS == high)
			counts[size_of(x[i]) & ((1u << LOW_BITS) - 1)]++;
	return high << LOW_BITS | (uint32_t)last_bin(counts, 1 << LOW_BITS, equal);
}

static int run_top_k(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	float *x = operands[0];
	top_pair *pairs = operands[1];
	int64_t equal, taken = 0;
	uint32_t least =
		least_size(x, op->count, op->batch / DTRAIN_PAIR_BYTES, cpu_own_scratch(op, 0, workspace), &equal);
	(void)err;
	for (int64_t i = 0; i < op->count; i++) {
		uint32_t size = size_of(x[i]);
		if (size > least || (size == least && equal-- > 0)) {
			pairs[taken++] = (top_pair){(int32_t)i, x[i]};
			x[i] = 0;
		} else if (!(fabsf(x[i]) <= FLT_MAX)) {
			x[i] = 0;
		}
	}
	return BETON_OK;
}

static int run_spread(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	const top_pair *pairs = operands[0];
	float *y = operands[1];
	int64_t count = op->batch, all = op->shapes[0].dim[0] * op->shapes[0].dim[1];
	(void)workspace;
	memset(y, 0, (size_t)count * sizeof(*y));
	for (int64_t i = 0; i < all; i++) {
		if (pairs[i].index < 0 || pairs[i].index >= count)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "op spread: pair %lld has the index %d of %lld",
				       (long long)i, pairs[i].index, (long long)count);
		y[pairs[i].index] += pairs[i].value;
	}
	return BETON_OK;
}

void cpu_build_compress(cpu_build *build)
{
	dtrain_op_desc *desc = build->desc;
	static const struct {
		dtrain_op_kind kind;
		int (*run)(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err);
	} kinds[] = {
		{DTRAIN_OP_NARROW, run_narrow},         {DTRAIN_OP_WIDEN, run_widen}, {DTRAIN_OP_CARRY, run_carry},
		{DTRAIN_OP_QUANTIZE, run_quantize},     {DTRAIN_OP_TOP_K, run_top_k}, {DTRAIN_OP_SPREAD, run_spread},
		{DTRAIN_OP_DEQUANTIZE, run_dequantize},
	};
	for (int i = 0; i < desc->num_outputs; i++) {
		dtrain_operand *output = &desc->outputs[i];
		output->layout = NULL;
		output->bytes = (size_t)dtrain_shape_count(&output->shape) * dtrain_dtype_size(output->dtype);
	}
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].kind == desc->kind)
			build->op->finish = kinds[i].run;
	build->op->batch = dtrain_shape_count(&desc->outputs[0].shape);
	build->op->scratch = (cpu_place){.operand = CPU_WORKSPACE, .offset = build->workspace};
	if (desc->kind == DTRAIN_OP_TOP_K)
		build->workspace += BINS * sizeof(uint32_t);
}
