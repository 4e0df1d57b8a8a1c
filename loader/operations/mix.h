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

/* Lambda is a multiple of 1 / BT_MIX_ONE, so that bytes are mixed in integers with one rounding. */
enum { BT_MIX_ONE = 1 << 14 };

/* The box that was taken from the partner, in pixels of the output; int32, as the tensor has it. */
typedef struct bt_mix_box {
	int32_t x;
	int32_t y;
	int32_t width;
	int32_t height;
} bt_mix_box;

/* The pictures of a batch. */
typedef struct bt_mix_images {
	void *data;
	beton_dtype dtype;      /* a dtype that pictures may have */
	size_t stride;          /* bytes from one picture to the next */
	uint32_t rows;          /* rows of pixels in memory: the height, for NCHW times the channels */
	uint32_t height;        /* row r in memory is row r % height of a picture */
	uint32_t width;         /* pixels of a row */
	size_t pixel_bytes;     /* from one pixel of a row to the next */
	uint32_t count;         /* pictures */
	const int64_t *partner; /* [count]: a permutation that is one cycle, or each picture itself */
} bt_mix_images;

/* A cycle through 0 .. count-1 in an order drawn from key. */
void bt_mix_ring(int64_t *partner, uint32_t count, uint64_t key);

/* A draw from Beta(alpha, alpha), as 0 .. BT_MIX_ONE. */
uint32_t bt_mix_lambda(double alpha, bt_random *random);

/* torchvision's CutMix: a box of 1 - lambda / BT_MIX_ONE of the picture's area around a random centre, clipped. */
bt_mix_box bt_mix_draw_box(uint32_t width, uint32_t height, uint32_t lambda, bt_random *random);

/* lambda[i]: of picture i, a multiple of 1 / BT_MIX_ONE. plain: without vector units, for tests. */
void bt_mix_up(const bt_mix_images *images, const float *lambda, bool plain);
void bt_mix_cut(const bt_mix_images *images, const bt_mix_box *boxes);

#endif
