/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of resizing over a row, once for each instruction set. All give the same bytes.
 */
#ifndef BETON_WRITE_RESIZE_KERNELS_H
#define BETON_WRITE_RESIZE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Output pixel i of `count` is the sum, over k below `taps`, of input pixel first[i] + k times weights[k * count + i];
 * pixels past the input's last one have the weight 0. */
typedef struct resize_axis {
	uint32_t count;
	uint32_t taps; /* the most that one needs: a loop as long for all has no branch to guess */
	uint32_t *first;
	float *weights;
} resize_axis;

typedef struct resize_kernels {
	const char *name;
	/* row = or += the sum of two input rows, times their weights. */
	void (*add_rows)(float *row, const uint8_t *a, const uint8_t *b, const float weights[2], size_t count,
			 bool first);
	/* Pixels of 3 values and of 1. Row's pixels are followed by taps more of zeros, and one float. */
	void (*sum_pixels)(const float *row, const resize_axis *plan, uint8_t *to);
	void (*sum_values)(const float *row, const resize_axis *plan, uint8_t *to);
} resize_kernels;

extern const resize_kernels resize_c;
#ifdef __x86_64__
extern const resize_kernels resize_avx2;
extern const resize_kernels resize_avx512;
#endif

/* The kernels for this processor, the fastest at index 0; NULL past the last. */
const resize_kernels *resize_kernels_get(unsigned int index);

#endif
