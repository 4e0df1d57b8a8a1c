/* SPDX-License-Identifier: Apache-2.0
 *
 * One list of op cases for all devices. A case is a layer with its shapes: it is run forward and backward, and what it
 * gives is compared between devices, and with finite differences.
 */
#ifndef TESTS_TRAIN_OP_CASE_H
#define TESTS_TRAIN_OP_CASE_H

#include <dtrain/device.h>

typedef enum family {
	CONV,
	LINEAR,
	BATCH_NORM,
	BATCH_NORM_EVAL,
	RELU,
	ADD,
	MAX_POOL,
	GLOBAL_AVG_POOL,
	FLATTEN,
	LOSS,
	SGD,
	LOOKAHEAD,
	ACCUMULATE, /* an addition into its first operand, flat */
	NORMALIZE,
	SCALER,
	SCALE,
	GELU,
	CHANNEL_BIAS,
	BIASED_GELU, /* one behind the other, in the layouts that the device has between two ops */
} family;

/* What a scaler finds among the gradients. */
typedef enum spoil {
	NOTHING,
	INFINITE,
	NOT_A_NUMBER,
} spoil;

typedef struct op_case {
	family family;
	int64_t x[4]; /* n, c, h, w; of matrices n, c; of vectors n */
	int64_t out;  /* output channels, features; groups of SGD */
	int kernel[2], stride[2], padding[2];
	bool relu;
	double smoothing;
	bool nesterov;
	double bound;  /* normalised error allowed in f32 */
	bool residual; /* of BATCH_NORM; of CONV: something that d_x is added to */
	bool scaled;   /* LOSS and SGD with a scaler */
	bool no_bias;  /* of LINEAR */
	double scale;  /* of the scaler, or of SCALE; the weight of LOOKAHEAD */
	double good;   /* its count of good steps */
	spoil spoil;   /* of SCALER; SGD takes anything but NOTHING as a step to leave out */
} op_case;

/* Results in F16 and BF16 are rounded once, by 2^-11 and 2^-8 at most; some room is for a device that rounds a sum of
 * two before. Results of half operands that stay F32 are sums in F32, of which hardware may leave out the last bits.
 * What is exact in F32 (bound 0) is exact. TF32 keeps of the operands of products as many bits as F16 has, and may cut
 * the others off: what is lost does not cancel out. A device with memory of its own may round the gradient of a
 * convolution's weights to the type of the activations, as PyTorch does. */
#define F16_BOUND 6e-4
#define BF16_BOUND 5e-3
#define HALF_SUM_BOUND 2e-5
#define TF32_BOUND 2.5e-3

static const op_case op_cases[] = {
	/* Convolutions of the models. */
	{CONV, {2, 3, 16, 16}, 16, {3, 3}, {1, 1}, {1, 1}, .bound = 2e-6},
	{CONV, {2, 16, 8, 8}, 16, {3, 3}, {1, 1}, {1, 1}, .bound = 2e-6},
	{CONV, {2, 16, 8, 8}, 32, {3, 3}, {2, 2}, {1, 1}, .bound = 2e-6},
	{CONV, {2, 16, 8, 8}, 32, {1, 1}, {2, 2}, {0, 0}, .bound = 2e-6},
	{CONV, {1, 3, 33, 33}, 64, {7, 7}, {2, 2}, {3, 3}, .bound = 2e-6},
	{CONV, {2, 64, 7, 7}, 64, {1, 1}, {1, 1}, {0, 0}, .bound = 2e-6},
	{CONV, {2, 64, 7, 7}, 16, {1, 1}, {1, 1}, {0, 0}, .residual = true, .bound = 2e-6},
	{CONV, {2, 16, 8, 8}, 32, {3, 3}, {2, 2}, {1, 1}, .residual = true, .bound = 2e-6},
	{CONV, {3, 5, 7, 9}, 3, {3, 3}, {1, 1}, {1, 1}, .residual = true, .bound = 2e-6},
	/* Channels that are no multiple of a vector, odd sides, one element, rectangles. */
	{CONV, {1, 1, 1, 1}, 1, {1, 1}, {1, 1}, {0, 0}, .bound = 2e-6},
	{CONV, {1, 5, 7, 9}, 3, {3, 3}, {1, 1}, {1, 1}, .bound = 2e-6},
	{CONV, {3, 17, 5, 5}, 19, {3, 3}, {2, 2}, {1, 1}, .bound = 2e-6},
	{CONV, {1, 2, 9, 6}, 4, {5, 3}, {2, 1}, {2, 0}, .bound = 2e-6},
	{CONV, {2, 31, 4, 6}, 33, {1, 1}, {2, 2}, {0, 0}, .bound = 2e-6},
	{CONV, {1, 4, 3, 3}, 4, {3, 3}, {1, 1}, {0, 0}, .bound = 2e-6},
	{CONV, {2, 8, 8, 8}, 16, {5, 5}, {2, 2}, {2, 2}, .bound = 2e-6},
	{LINEAR, {4, 32}, 16, .bound = 2e-6},
	{LINEAR, {1, 1}, 1, .bound = 2e-6},
	{LINEAR, {3, 17}, 5, .bound = 2e-6},
	{LINEAR, {7, 192}, 10, .bound = 2e-6},
	{LINEAR, {4, 128}, 10, .no_bias = true, .bound = 2e-6},
	{LINEAR, {3, 17}, 5, .no_bias = true, .bound = 2e-6},
	{LINEAR, {4, 32}, 16, .relu = true, .bound = 2e-6},
	{LINEAR, {1, 1}, 1, .relu = true, .bound = 2e-6},
	{LINEAR, {3, 17}, 5, .relu = true, .bound = 2e-6},
	{LINEAR, {7, 192}, 10, .relu = true, .bound = 2e-6},
	{LINEAR, {4, 128}, 10, .relu = true, .no_bias = true, .bound = 2e-6},
	{LINEAR, {3, 17}, 5, .relu = true, .no_bias = true, .bound = 2e-6},
	{BATCH_NORM, {2, 16, 4, 4}, .bound = 1e-5},
	{BATCH_NORM, {2, 16, 4, 4}, .relu = true, .bound = 1e-5},
	{BATCH_NORM, {1, 3, 5, 7}, .bound = 1e-5},
	{BATCH_NORM, {3, 5, 3, 3}, .relu = true, .bound = 1e-5},
	{BATCH_NORM, {5, 33, 1, 1}, .relu = true, .bound = 1e-5},
	{BATCH_NORM, {6, 20}, .bound = 1e-5},
	{BATCH_NORM, {2, 16, 4, 4}, .relu = true, .residual = true, .bound = 1e-5},
	{BATCH_NORM, {3, 5, 3, 7}, .relu = true, .residual = true, .bound = 1e-5},
	{BATCH_NORM, {7, 12}, .relu = true, .residual = true, .bound = 1e-5},
	{BATCH_NORM_EVAL, {2, 16, 4, 4}, .relu = true, .residual = true, .bound = 2e-6},
	{BATCH_NORM_EVAL, {3, 5, 1, 7}, .relu = true, .residual = true, .bound = 2e-6},
	{BATCH_NORM_EVAL, {2, 16, 4, 4}, .relu = true, .bound = 2e-6},
	{BATCH_NORM_EVAL, {1, 5, 3, 1}, .bound = 2e-6},
	{RELU, {2, 16, 4, 4}, .bound = 0},
	{RELU, {3, 5, 1, 7}, .bound = 0},
	{RELU, {4, 10}, .bound = 0},
	{ADD, {2, 16, 4, 4}, .relu = true, .bound = 1e-7},
	{ADD, {1, 3, 5, 7}, .bound = 1e-7},
	{ADD, {5, 9}, .relu = true, .bound = 1e-7},
	{GELU, {2, 16, 4, 4}, .bound = 2e-6},
	{GELU, {3, 5, 1, 7}, .bound = 2e-6},
	{GELU, {4, 10}, .bound = 2e-6},
	{GELU, {1003}, .bound = 2e-6},
	{CHANNEL_BIAS, {2, 16, 4, 4}, .bound = 2e-7},
	{CHANNEL_BIAS, {3, 5, 1, 7}, .bound = 2e-7},
	{CHANNEL_BIAS, {1, 1, 1, 1}, .bound = 2e-7},
	{CHANNEL_BIAS, {5, 33, 1, 1}, .bound = 2e-7},
	{CHANNEL_BIAS, {2, 17, 9, 3}, .bound = 2e-7},
	{CHANNEL_BIAS, {8, 24, 15, 15}, .bound = 2e-6},
	{BIASED_GELU, {2, 16, 4, 4}, .bound = 2e-6},
	{BIASED_GELU, {3, 5, 3, 7}, .bound = 2e-6},
	{BIASED_GELU, {2, 24, 5, 5}, .bound = 2e-6},
	{SCALE, {2, 16, 4, 4}, .scale = 0.2, .bound = 2e-7},
	{SCALE, {5, 9}, .scale = -3, .bound = 2e-7},
	{MAX_POOL, {2, 16, 8, 8}, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .bound = 2e-7},
	{MAX_POOL, {1, 3, 7, 9}, .kernel = {2, 2}, .stride = {2, 2}, .bound = 2e-7},
	{MAX_POOL, {1, 5, 6, 5}, .kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 0}, .bound = 2e-7},
	{MAX_POOL, {2, 17, 3, 3}, .kernel = {3, 3}, .stride = {3, 3}, .bound = 2e-7},
	/* Windows of the whole picture. */
	{MAX_POOL, {2, 16, 6, 6}, .kernel = {6, 6}, .stride = {6, 6}, .bound = 2e-7},
	{MAX_POOL, {1, 3, 8, 16}, .kernel = {8, 16}, .stride = {8, 16}, .bound = 2e-7},
	{GLOBAL_AVG_POOL, {2, 16, 4, 4}, .bound = 1e-6},
	{GLOBAL_AVG_POOL, {1, 64, 1, 1}, .bound = 1e-6},
	{GLOBAL_AVG_POOL, {3, 7, 5, 3}, .bound = 1e-6},
	{FLATTEN, {2, 3, 4, 5}, .bound = 0},
	{FLATTEN, {1, 16, 1, 1}, .bound = 0},
	{LOSS, {4, 10}, .bound = 2e-6},
	{LOSS, {3, 7}, .smoothing = 0.1, .bound = 2e-6},
	{LOSS, {1, 1}, .smoothing = 0.3, .bound = 2e-6},
	{LOSS, {2, 1000}, .smoothing = 1, .bound = 2e-6},
	{LOSS, {4, 10}, .scaled = true, .scale = 1024, .bound = 2e-6},
	{LOSS, {3, 129}, .smoothing = 0.1, .scaled = true, .scale = 8, .bound = 2e-6},
	{SGD, {1}, 1, .bound = 2e-6},
	{SGD, {1000}, 2, .nesterov = true, .bound = 2e-6},
	{SGD, {100003}, 3, .bound = 2e-6},
	{SGD, {100003}, DTRAIN_SGD_GROUPS, .nesterov = true, .bound = 2e-6},
	{SGD, {1000}, 1, .scaled = true, .scale = 8, .bound = 2e-6},
	{SGD, {1003}, 5, .nesterov = true, .scaled = true, .scale = 4, .bound = 2e-6},
	{SGD, {1000}, 2, .scaled = true, .scale = 8, .spoil = INFINITE, .bound = 0},
	{LOOKAHEAD, {1}, .scale = 0.25, .bound = 2e-7},
	{LOOKAHEAD, {1003}, .scale = 0.75, .bound = 2e-7},
	{LOOKAHEAD, {100003}, .scale = 0.999, .bound = 2e-7},
	/* Exact at both ends. */
	{LOOKAHEAD, {1000}, .scale = 0, .bound = 0},
	{LOOKAHEAD, {1000}, .scale = 1, .bound = 0},
	{ACCUMULATE, {1}, .bound = 1e-7},
	{ACCUMULATE, {100003}, .bound = 1e-7},
	{NORMALIZE, {2, 3, 8, 8}, .bound = 2e-7},
	{NORMALIZE, {3, 3, 5, 7}, .bound = 2e-7},
	{NORMALIZE, {1, 1, 3, 1}, .bound = 2e-7},
	{NORMALIZE, {2, 4, 9, 2}, .bound = 2e-7},
	/* The scaler's arithmetic is exact. */
	{SCALER, {1000}, .scale = 65536, .bound = 0},
	{SCALER, {1000}, .scale = 65536, .good = 1998, .bound = 0},
	{SCALER, {1000}, .scale = 65536, .good = 1999, .bound = 0},
	{SCALER, {1}, .scale = 0x1p127, .good = 1999, .bound = 0}, /* twice that is infinite: it stays */
	{SCALER, {1000}, .scale = 65536, .good = 1999, .spoil = INFINITE, .bound = 0},
	{SCALER, {100003}, .scale = 1, .good = 5, .spoil = NOT_A_NUMBER, .bound = 0},
	{SCALER, {1}, .scale = 65536, .good = 3, .spoil = INFINITE, .bound = 0},
};

#define OP_CASES ((int)(sizeof(op_cases) / sizeof(op_cases[0])))

#endif
