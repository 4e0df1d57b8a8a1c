/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of resizing, colour conversion and output, once for each instruction set. All give the same bytes.
 */
#ifndef BT_LOADER_KERNELS_H
#define BT_LOADER_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elements.h"
#include "resize.h"

/* The filter of an axis. */
typedef struct bt_box {
	double scale; /* samples per output */
	int64_t low;  /* first sample that the axis' box touches */
	int64_t high; /* the last one */
	bool tent;    /* bilinear; otherwise area average */
} bt_box;

typedef struct bt_kernels {
	const char *name;

	/* NULL, or sets first, count and weights of all outputs, as resize_axis.c does. False: it cannot, for example
	 * because an output has too many samples. */
	bool (*fill)(bt_axis *axis, const bt_box *box);

	/* NULL: horizontal does not use it. Sets narrow, base, index and pair_weights of an axis that is complete
	 * otherwise. False: a group reaches farther than BT_GROUP_REACH. */
	bool (*permute)(bt_axis *axis);

	/* out[j] = sum over k of weights[k] * in[k * stride + j], with BT_ROW_BITS of fraction, rounded half up.
	 * weights are 0 from taps to the next even number; reads and writes just count values. */
	void (*vertical)(const uint8_t *in, size_t stride, const int16_t *weights, uint32_t taps, size_t count,
			 int16_t *out);

	/* Makes count output rows, out_stride bytes apart, from as many rows between the passes, stride values apart;
	 * rounded half up. Reads up to BT_ROW_SLACK values beyond the axis's, and writes up to BT_OUT_SLACK bytes
	 * beyond a row. */
	void (*horizontal)(const bt_axis *axis, const int16_t *rows, size_t stride, uint32_t count, uint8_t *out,
			   size_t out_stride);

	/* The others read and write exactly count pixels or values; in and out do not overlap. */

	/* JFIF's formula with 14 bits of fraction, rounded half up: R = Y + 22970 Cr, G = Y - (5638 Cb + 11700 Cr),
	 * B = Y + 29032 Cb; chroma less 128; clamped to 0..255. */
	void (*ycc_to_rgb)(const uint8_t *const ycc[3], size_t count, uint8_t *const rgb[3]);

	/* Interleave three rows of planes, and the reverse. */
	void (*join)(const uint8_t *const planes[3], size_t count, uint8_t *rgb);
	void (*split)(const uint8_t *rgb, size_t count, uint8_t *const planes[3]);

	/* Convert bytes to elements; count is a multiple of 3, or all channels are the same. bytes copies; halves makes
	 * FLOAT16 and BFLOAT16. `stream`: store past the caches where out and count are aligned, because the result is
	 * not read soon. Other threads may read the result after a fence() of the writing thread. */
	void (*bytes)(const uint8_t *in, size_t count, bool stream, uint8_t *out);
	void (*floats)(const bt_elements *elements, const uint8_t *in, size_t count, bool stream, float *out);
	void (*halves)(const bt_elements *elements, const uint8_t *in, size_t count, bool stream, uint16_t *out);
	void (*fence)(void);
} bt_kernels;

/* Whether loops over 8 outputs of one channel or three serve the axis; otherwise plain C does. */
static inline bool bt_axis_is_common(const bt_axis *axis)
{
	return axis->key.out >= 8 && (axis->key.channels == 1 || axis->key.channels == 3);
}

extern const bt_kernels bt_kernels_c;
#ifdef __x86_64__
extern const bt_kernels bt_kernels_avx2;
extern const bt_kernels bt_kernels_avx512;
#elif defined(__aarch64__)
extern const bt_kernels bt_kernels_neon;
#endif

/* The tables for this processor, the fastest at index 0; NULL past the last. */
const bt_kernels *bt_kernels_get(unsigned index);
const bt_kernels *bt_kernels_best(void);

#endif
