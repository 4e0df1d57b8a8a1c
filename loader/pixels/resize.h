/* SPDX-License-Identifier: Apache-2.0
 *
 * Resizing of a plane of bytes from a fractional box to the output, or a part of it, some rows at a time, in fixed
 * point: the same bytes on every machine. Weights have 14 bits and add up to 1 exactly; between the vertical and the
 * horizontal pass values have 7 fractional bits. A result differs from the exact one, before rounding, by at most 255 *
 * (taps of both axes) / 2^15 + 2^-8. */
#ifndef BT_LOADER_RESIZE_H
#define BT_LOADER_RESIZE_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/error.h>
#include <beton/loader.h>

#include "common/buffer.h"
#include "crop.h"
#include "picture.h"
#include "resize_exact.h"

struct bt_kernels;

enum {
	BT_WEIGHT_BITS = 14,
	BT_ROW_BITS = 7,      /* fraction of values between the passes */
	BT_ROW_SLACK = 64,    /* values that kernels may read past a row between the passes */
	BT_OUT_SLACK = 64,    /* bytes that kernels may write beyond an output row */
	BT_GROUP = 16,        /* output bytes from one permutation */
	BT_GROUPS = 4,        /* the number of groups is a multiple of this */
	BT_GROUP_REACH = 64,  /* values that one permutation can choose from */
	BT_GROUP_NARROW = 32, /* values in one register */
	BT_ROWS = 4           /* resized at a time */
};

/* How one axis is resized: the key of its tables. */
typedef struct bt_axis_key {
	double begin;    /* of the box, samples */
	double length;   /* of the box, samples; > 0 */
	uint32_t in;     /* number of samples */
	uint32_t whole;  /* outputs that the box has */
	uint32_t before; /* of these, before the first one that is made */
	uint32_t out;    /* that are made */
	uint32_t channels;
	beton_filter filter;
	bool shrinks; /* AREA: no axis of the picture grows */
	bool mirrored;
	bool permuted; /* also make the permutation, for kernels that use it */
	bool real;     /* make reals in place of weights */
	const struct bt_kernels *kernels;
} bt_axis_key;

/* Output i is the sum of weights[i * stride + k] * input[low + first[i] + k] for k < count[i]. Weights from count[i] on
 * are 0. */
typedef struct bt_axis {
	bt_axis_key key;
	uint32_t low;     /* first sample that any output uses */
	uint32_t columns; /* samples from low to the last one used */
	uint32_t stride;  /* a multiple of 8 */
	bool identity;    /* out == columns, each sample once, in order */
	bool permutation; /* groups and base, index, pair_weights are valid */
	bool narrow;      /* no group reaches farther than BT_GROUP_NARROW */
	uint32_t groups;
	uint32_t pairs; /* pairs of taps of the output that has the most */
	uint32_t *first;
	uint32_t *count;
	int16_t *weights;
	float *reals;          /* of the same places; they add up to 1 but for their rounding */
	uint32_t *base;        /* [groups] first value of each group of BT_GROUP output bytes */
	uint16_t *index;       /* [groups][pairs][2 * BT_GROUP] values of a pair, from base */
	int16_t *pair_weights; /* [groups][pairs][2 * BT_GROUP] */
	bt_buffer memory;
} bt_axis;

/* Computes *axis for key, unless it has that key already. Errors: NO_MEMORY. */
int bt_axis_plan(bt_axis *axis, const bt_axis_key *key, beton_error *err);

/* Working state of one plane; zero-initialise. */
typedef struct bt_resizer {
	const struct bt_kernels *kernels; /* NULL: the best of this machine */
	const bt_axis *horizontal;        /* own, or another resizer's */
	const bt_axis *vertical;
	bt_axis own_horizontal;
	bt_axis own_vertical;
	bt_buffer rows; /* between the passes */
	bt_buffer out;
	size_t row_stride; /* values */
	size_t out_stride;
	bt_plane source;
	bt_exact exact;
	bool is_exact; /* `exact` does the work */
} bt_resizer;

typedef struct bt_resize_target {
	uint32_t width; /* of the whole result */
	uint32_t height;
	beton_filter filter;
	bool mirrored; /* left and right exchanged */
	/* The library whose arithmetic replaces the filter, for planes with a sample for each pixel of the picture. */
	bt_exact_library exact;
	bt_rect part; /* of the result, as it is mirrored, that is made; of width 0: all of it */
} bt_resize_target;

/* The keys of the axes of what is made of the plane. kernels: that use the tables. */
void bt_resize_keys(const bt_plane *source, const bt_resize_target *target, const struct bt_kernels *kernels,
		    bt_axis_key *horizontal, bt_axis_key *vertical);

/* Prepares resizing of the plane's box to target. like: NULL, or a resizer whose tables are used: it was prepared for a
 * plane of the same size and box, and the same target. Without it the tables of the last call are kept if they fit.
 * Errors: NO_MEMORY. */
int bt_resize_begin(bt_resizer *resizer, const bt_plane *source, const bt_resize_target *target, const bt_resizer *like,
		    beton_error *err);

/* Rows y .. y + count - 1 of the part (count: 1 .. BT_ROWS), *stride apart, its width * channels bytes each, valid
 * until the next call. If nothing is resized, they are the plane's own rows. */
const uint8_t *bt_resize_rows(bt_resizer *resizer, uint32_t y, uint32_t count, size_t *stride);

/* Books the resizer's memory in a budget, which outlives the resizer. Before the first use. */
void bt_resize_limit(bt_resizer *resizer, bt_budget *budget);

void bt_resize_free(bt_resizer *resizer);

#endif
