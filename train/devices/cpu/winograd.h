/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of Winograd's algorithm F(2x2, 3x3) for the processor's vectors. A tile is 2 x 2 numbers of the output and the
 * 4 x 4 of the input that they depend on; both become 16 points, where a convolution is a product for each channel in
 * and out. Channels come in panels of as many as a vector has lanes; points of a panel are an array [tile][lane].
 */
#ifndef DTRAIN_CPU_WINOGRAD_H
#define DTRAIN_CPU_WINOGRAD_H

#include <stdbool.h>
#include <stdint.h>

/* The product computes so many tiles at once. */
enum { CPU_WINOGRAD_POINTS = 16, CPU_WINOGRAD_ROWS = 6, CPU_WINOGRAD_LANES_MAX = 16 };

/* Pictures and their tiles, which are numbered from left to right, downwards, and picture by picture. */
typedef struct cpu_grid {
	int64_t batch, padding;
	int64_t in[2], out[2]; /* height and width of the input and the output */
	int64_t tiles[2];      /* in a column and in a row */
} cpu_grid;

typedef struct cpu_winograd {
	int64_t lanes;
	/* Points of so many tiles from `first` on, of a panel of the input, and of the output's gradient: point p is
	 * written `step` numbers after point p - 1 in memory. images: the panel in the first picture, `next` the
	 * numbers from there to the panel in the next one. */
	void (*input)(float *points, int64_t step, const cpu_grid *grid, const float *images, int64_t next,
		      int64_t first, int64_t count);
	void (*slope)(float *points, int64_t step, const cpu_grid *grid, const float *images, int64_t next,
		      int64_t first, int64_t count);
	/* The tiles of a panel of the output from their points. */
	void (*output)(float *images, int64_t next, const cpu_grid *grid, const float *points, int64_t step,
		       int64_t first, int64_t count);
	/* Points of the weights of a panel of channels that are summed and a panel of results, [lane][2 lanes];
	 * flipped: of the weights turned by 180 degrees. weights: [3][3][lane][lane]. */
	void (*weights)(float *points, int64_t step, const float *weights, bool flipped);
	/* The weights' gradient [lane][lane][3][3] from points [lane][lane]; `next` numbers from a row of lanes to the
	 * next. */
	void (*weights_slope)(float *weights, int64_t next, const float *points, int64_t step);

	/* At one point: two panels of results, panel_step apart, are the product of `panels` panels of tiles,
	 * from_step apart, and the weights [panels * lanes][2 lanes]. count: a multiple of CPU_WINOGRAD_ROWS. */
	void (*product)(float *to, int64_t to_step, const float *from, int64_t from_step, const float *weights,
			int64_t panels, int64_t count);
	/* At one point: the sums over tiles of the products of a panel of the output's gradient and `panels` panels of
	 * the input, from_step apart, [panels][lane][lane], are written, or added to what is there. */
	void (*weights_product)(float *to, const float *slope, const float *from, int64_t from_step, int64_t panels,
				int64_t count, bool adds);
} cpu_winograd;

#ifdef __x86_64__
extern const cpu_winograd cpu_winograd_avx2;
#endif

#endif
