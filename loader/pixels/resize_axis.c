/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/error.h"
#include "kernels.h"

enum {
	ONE = 1 << BT_WEIGHT_BITS,
	SHORT = 4, /* most samples of an output whose weights are made without loops */
	SHORT_STRIDE = 8,
};

/* The loops are instantiated for each kind of filter, because an axis is planned for each picture. */
#define INLINE static inline __attribute__((always_inline))

/* One output of a filter: samples first .. last with unnormalised weights. */
typedef struct span {
	const bt_axis_key *key;
	double scale;  /* samples per output */
	int64_t low;   /* samples that touch the box */
	int64_t high;  /* the last one */
	int64_t first; /* of this output */
	int64_t last;
	double centre;
	double begin;
	double end;
	double share; /* linear: weight of the second sample */
} span;

/* The filter of an axis: AUTO and AREA depend on the direction. */
typedef enum filter_kind { KIND_AREA, KIND_TENT, KIND_NEAREST, KIND_AREA_UP } filter_kind;

static filter_kind choose(const bt_axis_key *key)
{
	switch (key->filter) {
	case BETON_FILTER_AREA:
		return key->shrinks ? KIND_AREA : KIND_AREA_UP;
	case BETON_FILTER_BILINEAR:
		return KIND_TENT;
	case BETON_FILTER_NEAREST:
		return KIND_NEAREST;
	default:
		return key->length >= key->whole ? KIND_AREA : KIND_TENT;
	}
}

/* The C library's floor and ceil without its calls, which cost more than the rest of a plan. For numbers of about a
 * picture's size, not NaN. */
static int64_t floor_of(double value)
{
	int64_t whole = (int64_t)value;
	return whole - (value < (double)whole);
}

static int64_t ceil_of(double value)
{
	return -floor_of(-value);
}

static double least(double a, double b)
{
	return a < b ? a : b;
}

static double most(double a, double b)
{
	return a > b ? a : b;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
	return value < low ? low : value > high ? high : value;
}

/* Finds the samples of output i. The tent is Pillow's: as wide as the step when the axis shrinks, with the same
 * rounding of its centre. When an axis grows, OpenCV's INTER_AREA interpolates, with weights of area averaging. */
INLINE void locate(span *s, filter_kind kind, uint32_t i)
{
	s->begin = s->key->begin + i * s->scale;
	s->end = s->begin + s->scale;
	s->centre = s->key->begin + (i + 0.5) * s->scale;
	double support = s->scale > 1 ? s->scale : 1;
	switch (kind) {
	case KIND_AREA:
		s->first = clamp(floor_of(s->begin), s->low, s->high);
		s->last = clamp(ceil_of(s->end) - 1, s->first, s->high);
		break;
	case KIND_TENT:
		s->first = clamp(floor_of(s->centre - support + 0.5), s->low, s->high);
		s->last = clamp(floor_of(s->centre + support + 0.5) - 1, s->first, s->high);
		break;
	case KIND_NEAREST:
		s->first = s->last = clamp(floor_of(s->centre), s->low, s->high);
		break;
	case KIND_AREA_UP: {
		double at = (double)floor_of(i * s->scale);
		double share = (i + 1) - (at + 1) / s->scale;
		s->share = share <= 0 ? 0 : share - (double)floor_of(share);
		s->first = clamp(floor_of(s->key->begin + at), s->low, s->high);
		s->last = s->first < s->high ? s->first + 1 : s->first;
		break;
	}
	}
}

INLINE double weigh(const span *s, filter_kind kind, int64_t k)
{
	switch (kind) {
	case KIND_AREA:
		return most(least(s->end, (double)(k + 1)) - most(s->begin, (double)k), 0);
	case KIND_TENT:
		return most(1 - __builtin_fabs((double)k + 0.5 - s->centre) / (s->scale > 1 ? s->scale : 1), 0);
	case KIND_AREA_UP:
		return k == s->first ? 1 - s->share : s->share;
	default:
		return 1;
	}
}

/* Rounds running totals, not single weights: so the weights add up to ONE exactly, and many small ones do not vanish.
 */
INLINE void fill_output(bt_axis *axis, const span *s, filter_kind kind, uint32_t i)
{
	int16_t *weights = axis->weights + (size_t)i * axis->stride;
	memset(weights, 0, axis->stride * sizeof(*weights));
	double total = 0;
	for (int64_t k = s->first; k <= s->last; k++)
		total += weigh(s, kind, k);
	if (!(total > 0)) { /* a rounding error puts the box after the last sample */
		axis->first[i] = (uint32_t)s->first;
		axis->count[i] = 1;
		weights[0] = ONE;
		return;
	}
	double sum = 0, factor = ONE / total;
	int before = 0;
	uint32_t used = 0;
	int64_t first = s->first;
	for (int64_t k = s->first; k <= s->last; k++) {
		sum += weigh(s, kind, k);
		int now = k == s->last ? ONE : (int)(sum * factor + 0.5);
		if (now == before && used == 0) {
			first++;
			continue;
		}
		weights[k - first] = (int16_t)(now - before);
		if (now > before)
			used = (uint32_t)(k - first) + 1;
		before = now;
	}
	axis->first[i] = (uint32_t)first;
	axis->count[i] = used;
}

/* fill_output for at most SHORT samples, without branches that depend on the output's place. False: the samples have no
 * weight. */
INLINE bool fill_short(bt_axis *axis, const span *s, filter_kind kind, uint32_t i)
{
	int64_t last = s->last - s->first;
	double sums[SHORT], total = 0;
	for (int k = 0; k < SHORT; k++)
		sums[k] = total += k <= last ? weigh(s, kind, s->first + k) : 0;
	if (!(total > 0))
		return false;
	double factor = ONE / total;
	uint64_t weights = 0; /* 16 bits each; not all are 0 */
	int before = 0;
	for (int k = 0; k < SHORT; k++) {
		int now = k < last ? (int)(sums[k] * factor + 0.5) : ONE;
		weights |= (uint64_t)(now - before) << (16 * k);
		before = now;
	}
	int leading = __builtin_ctzll(weights) / 16;
	weights >>= 16 * leading;
	const int16_t row[SHORT_STRIDE] = {(int16_t)weights, (int16_t)(weights >> 16), (int16_t)(weights >> 32),
					   (int16_t)(weights >> 48)};
	memcpy(axis->weights + (size_t)i * SHORT_STRIDE, row, sizeof(row));
	axis->first[i] = (uint32_t)(s->first + leading);
	axis->count[i] = (uint32_t)(63 - __builtin_clzll(weights)) / 16 + 1;
	return true;
}

/* fill_output for an axis of reals: what has no weight at the ends is left out. */
INLINE void fill_real(bt_axis *axis, const span *s, filter_kind kind, uint32_t i)
{
	float *reals = axis->reals + (size_t)i * axis->stride;
	double total = 0;
	for (int64_t k = s->first; k <= s->last; k++)
		total += weigh(s, kind, k);
	axis->first[i] = (uint32_t)s->first;
	axis->count[i] = 1;
	reals[0] = 1;
	if (!(total > 0)) /* a rounding error puts the box after the last sample */
		return;
	int64_t first = s->first, last = s->last;
	while (first < last && weigh(s, kind, first) <= 0)
		first++;
	while (last > first && weigh(s, kind, last) <= 0)
		last--;
	axis->first[i] = (uint32_t)first;
	axis->count[i] = (uint32_t)(last - first) + 1;
	for (int64_t k = first; k <= last; k++)
		reals[k - first] = (float)(weigh(s, kind, k) / total);
}

INLINE void fill_outputs(bt_axis *axis, span *s, filter_kind kind)
{
	const bt_axis_key *key = &axis->key;
	bool fits = axis->stride == SHORT_STRIDE;
	for (uint32_t i = 0; i < key->out; i++) {
		uint32_t place = key->mirrored ? key->out - 1 - i : i;
		locate(s, kind, key->before + i);
		if (key->real)
			fill_real(axis, s, kind, place);
		else if (!fits || s->last - s->first >= SHORT || !fill_short(axis, s, kind, place))
			fill_output(axis, s, kind, place);
	}
}

static void fill_kind(bt_axis *axis, span *s, filter_kind kind)
{
	switch (kind) {
	case KIND_AREA:
		fill_outputs(axis, s, KIND_AREA);
		break;
	case KIND_TENT:
		fill_outputs(axis, s, KIND_TENT);
		break;
	case KIND_NEAREST:
		fill_outputs(axis, s, KIND_NEAREST);
		break;
	case KIND_AREA_UP:
		fill_outputs(axis, s, KIND_AREA_UP);
		break;
	}
}

static void fill_all(bt_axis *axis, filter_kind kind)
{
	const bt_axis_key *key = &axis->key;
	span s = {.key = key, .scale = key->length / key->whole};
	s.low = clamp(floor_of(key->begin + 1e-9), 0, key->in - 1);
	s.high = clamp(ceil_of(key->begin + key->length - 1e-9) - 1, s.low, key->in - 1);
	const bt_box box = {.scale = s.scale, .low = s.low, .high = s.high, .tent = kind == KIND_TENT};
	bool box_or_tent = kind == KIND_AREA || kind == KIND_TENT;
	if (key->real || !key->kernels->fill || !box_or_tent || !key->kernels->fill(axis, &box))
		fill_kind(axis, &s, kind);
	uint32_t low = UINT32_MAX, end = 0;
	for (uint32_t i = 0; i < key->out; i++) {
		low = axis->first[i] < low ? axis->first[i] : low;
		uint32_t stop = axis->first[i] + axis->count[i];
		end = stop > end ? stop : end;
	}
	axis->low = low;
	axis->columns = end - low;
	axis->identity = axis->columns == key->out;
	axis->pairs = 1;
	for (uint32_t i = 0; i < key->out; i++) {
		/* first is relative to low in both axes; bt_resize_rows adds the vertical axis' low. */
		axis->first[i] -= low;
		axis->identity = axis->identity && axis->first[i] == i && axis->count[i] == 1;
		uint32_t pairs = (axis->count[i] + 1) / 2;
		axis->pairs = pairs > axis->pairs ? pairs : axis->pairs;
	}
}

static bool same_key(const bt_axis_key *a, const bt_axis_key *b)
{
	return a->begin == b->begin && a->length == b->length && a->in == b->in && a->whole == b->whole &&
	       a->before == b->before && a->out == b->out && a->channels == b->channels && a->filter == b->filter &&
	       a->shrinks == b->shrinks && a->mirrored == b->mirrored && a->permuted == b->permuted &&
	       a->real == b->real && a->kernels == b->kernels;
}

int bt_axis_plan(bt_axis *axis, const bt_axis_key *key, beton_error *err)
{
	if (axis->memory.data && same_key(&axis->key, key))
		return BETON_OK;
	double scale = key->length / key->whole;
	filter_kind kind = choose(key);
	/* A tent of width 2 * scale touches one sample more than its width, a box of width scale two. */
	double taps = kind == KIND_TENT ? 2 * most(scale, 1) + 2 : kind == KIND_AREA ? scale + 3 : 2;
	uint32_t stride = ((uint32_t)taps + 7) / 8 * 8;
	size_t out = key->out, groups = (out * key->channels + BT_GROUP - 1) / BT_GROUP;
	groups = (groups + BT_GROUPS - 1) / BT_GROUPS * BT_GROUPS;
	size_t pairs = key->permuted && key->kernels->permute && stride <= BT_GROUP_REACH ? stride / 2 : 0;
	size_t table = groups * pairs * 2 * BT_GROUP * sizeof(int16_t);
	size_t weight = key->real ? sizeof(*axis->reals) : sizeof(*axis->weights);
	char *memory = bt_buffer_reserve(&axis->memory,
					 2 * table + out * stride * weight + (2 * out + groups) * sizeof(uint32_t));
	if (!memory) {
		axis->key = (bt_axis_key){0};
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for resizing %g to %u pixels", key->length,
			       key->out);
	}
	axis->key = *key;
	axis->stride = stride;
	axis->groups = (uint32_t)groups;
	axis->index = (uint16_t *)memory;
	axis->pair_weights = (int16_t *)(memory + table);
	axis->first = (uint32_t *)(memory + 2 * table);
	axis->count = axis->first + out;
	axis->base = axis->count + out;
	axis->weights = key->real ? NULL : (int16_t *)(axis->base + groups);
	axis->reals = key->real ? (float *)(axis->base + groups) : NULL;
	fill_all(axis, kind);
	axis->permutation = pairs > 0 && key->kernels->permute(axis);
	return BETON_OK;
}
