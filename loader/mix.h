/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixup and cutmix: each row of a batch and its partner, in place. */
#ifndef BT_LOADER_MIX_H
#define BT_LOADER_MIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/loader.h>

#include "random.h"

/* Lambda is a multiple of 1 / BT_MIX_ONE, so that bytes are mixed in whole numbers without another rounding. */
enum { BT_MIX_ONE = 1 << 14 };

/* What was taken from the partner, in pixels; int32 each, as the output has it. */
typedef struct bt_mix_box {
	int32_t x;
	int32_t y;
	int32_t width;
	int32_t height;
} bt_mix_box;

/* The pictures of a batch. */
typedef struct bt_mix_images {
	void *data;
	beton_dtype dtype;      /* one that pictures may have */
	size_t stride;          /* bytes from one picture to the next */
	uint32_t rows;          /* of pixels in memory: the height; NCHW: of all channels */
	uint32_t height;        /* row r is the picture's row r % height */
	uint32_t width;         /* pixels of a row */
	size_t pixel_bytes;     /* from one pixel of a row to the next */
	uint32_t count;         /* pictures */
	const int64_t *partner; /* [count]: one ring of all of them, or each its own */
} bt_mix_images;

/* A ring of 0 .. count-1 in an order that key gives. */
void bt_mix_ring(int64_t *partner, uint32_t count, uint64_t key);

/* From Beta(alpha, alpha), 0 .. BT_MIX_ONE. */
uint32_t bt_mix_lambda(double alpha, bt_random *random);

/* torchvision's CutMix: a box with a share of 1 - lambda / BT_MIX_ONE of the picture about a place that is drawn,
 * clipped. */
bt_mix_box bt_mix_draw_box(uint32_t width, uint32_t height, uint32_t lambda, bt_random *random);

/* lambda[i]: of each picture, a multiple of 1 / BT_MIX_ONE. plain: without vector units, for tests. */
void bt_mix_up(const bt_mix_images *images, const float *lambda, bool plain);
void bt_mix_cut(const bt_mix_images *images, const bt_mix_box *boxes);

#endif
