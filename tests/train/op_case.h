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
} family;

typedef struct op_case {
	family family;
	int64_t x[4]; /* n, c, h, w; of matrices n, c; of vectors n */
	int64_t out;  /* output channels, features */
	int kernel[2], stride[2], padding[2];
	bool relu;
	double smoothing;
	bool nesterov;
	double bound; /* normalised error allowed in f32 */
} op_case;

static const op_case op_cases[] = {
	/* Convolutions of the models. */
	{CONV, {2, 3, 16, 16}, 16, {3, 3}, {1, 1}, {1, 1}, .bound = 2e-6},
	{CONV, {2, 16, 8, 8}, 16, {3, 3}, {1, 1}, {1, 1}, .bound = 2e-6},
	{CONV, {2, 16, 8, 8}, 32, {3, 3}, {2, 2}, {1, 1}, .bound = 2e-6},
	{CONV, {2, 16, 8, 8}, 32, {1, 1}, {2, 2}, {0, 0}, .bound = 2e-6},
	{CONV, {1, 3, 33, 33}, 64, {7, 7}, {2, 2}, {3, 3}, .bound = 2e-6},
	{CONV, {2, 64, 7, 7}, 64, {1, 1}, {1, 1}, {0, 0}, .bound = 2e-6},
	/* Channels that are no multiple of a vector, odd sides, one element, rectangles. */
	{CONV, {1, 1, 1, 1}, 1, {1, 1}, {1, 1}, {0, 0}, .bound = 2e-6},
	{CONV, {1, 5, 7, 9}, 3, {3, 3}, {1, 1}, {1, 1}, .bound = 2e-6},
	{CONV, {3, 17, 5, 5}, 19, {3, 3}, {2, 2}, {1, 1}, .bound = 2e-6},
	{CONV, {1, 2, 9, 6}, 4, {5, 3}, {2, 1}, {2, 0}, .bound = 2e-6},
	{CONV, {2, 31, 4, 6}, 33, {1, 1}, {2, 2}, {0, 0}, .bound = 2e-6},
	{CONV, {1, 4, 3, 3}, 4, {3, 3}, {1, 1}, {0, 0}, .bound = 2e-6},
	{LINEAR, {4, 32}, 16, .bound = 2e-6},
	{LINEAR, {1, 1}, 1, .bound = 2e-6},
	{LINEAR, {3, 17}, 5, .bound = 2e-6},
	{LINEAR, {7, 192}, 10, .bound = 2e-6},
	{BATCH_NORM, {2, 16, 4, 4}, .bound = 1e-5},
	{BATCH_NORM, {2, 16, 4, 4}, .relu = true, .bound = 1e-5},
	{BATCH_NORM, {1, 3, 5, 7}, .bound = 1e-5},
	{BATCH_NORM, {3, 5, 3, 3}, .relu = true, .bound = 1e-5},
	{BATCH_NORM, {5, 33, 1, 1}, .relu = true, .bound = 1e-5},
	{BATCH_NORM, {6, 20}, .bound = 1e-5},
	{BATCH_NORM_EVAL, {2, 16, 4, 4}, .relu = true, .bound = 2e-6},
	{BATCH_NORM_EVAL, {1, 5, 3, 1}, .bound = 2e-6},
	{RELU, {2, 16, 4, 4}, .bound = 0},
	{RELU, {3, 5, 1, 7}, .bound = 0},
	{RELU, {4, 10}, .bound = 0},
	{ADD, {2, 16, 4, 4}, .relu = true, .bound = 1e-7},
	{ADD, {1, 3, 5, 7}, .bound = 1e-7},
	{ADD, {5, 9}, .relu = true, .bound = 1e-7},
	{MAX_POOL, {2, 16, 8, 8}, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .bound = 2e-7},
	{MAX_POOL, {1, 3, 7, 9}, .kernel = {2, 2}, .stride = {2, 2}, .bound = 2e-7},
	{MAX_POOL, {1, 5, 6, 5}, .kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 0}, .bound = 2e-7},
	{MAX_POOL, {2, 17, 3, 3}, .kernel = {3, 3}, .stride = {3, 3}, .bound = 2e-7},
	{GLOBAL_AVG_POOL, {2, 16, 4, 4}, .bound = 1e-6},
	{GLOBAL_AVG_POOL, {1, 64, 1, 1}, .bound = 1e-6},
	{GLOBAL_AVG_POOL, {3, 7, 5, 3}, .bound = 1e-6},
	{FLATTEN, {2, 3, 4, 5}, .bound = 0},
	{FLATTEN, {1, 16, 1, 1}, .bound = 0},
	{LOSS, {4, 10}, .bound = 2e-6},
	{LOSS, {3, 7}, .smoothing = 0.1, .bound = 2e-6},
	{LOSS, {1, 1}, .smoothing = 0.3, .bound = 2e-6},
	{LOSS, {2, 1000}, .smoothing = 1, .bound = 2e-6},
	{SGD, {1}, .bound = 2e-6},
	{SGD, {1000}, .nesterov = true, .bound = 2e-6},
	{SGD, {100003}, .bound = 2e-6},
};

#define OP_CASES ((int)(sizeof(op_cases) / sizeof(op_cases[0])))

#endif
