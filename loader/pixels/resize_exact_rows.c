/* SPDX-License-Identifier: Apache-2.0 */
#include "resize_exact.h"

#include <string.h>

#include "common/error.h"
#include "resize_exact_axis.h"

enum {
	RGB = 3,                  /* channels */
	KEPT_BYTES = 1 << 20,     /* most bytes of resized rows (at least one row is kept); outputs share rows when they
				     shrink little */
	SUM_PIXELS_MAX = 1 << 23, /* an int32_t holds the sum of this many pixels */
};

/* Resizes a row of the input. */
typedef void resize_row(const bt_exact_axis *axis, uint32_t width, const uint8_t *in, bt_exact_number *row);

/* A method: resizes a row of the input, RGB or grey, adds it to the sum, and finishes the sum. n: values in a row. */
typedef struct bt_exact_method {
	resize_row *resize;
	resize_row *resize_grey;
	void (*add)(const bt_exact_number *row, bt_exact_number weight, size_t n, bt_exact_number *sum);
	void (*finish)(const bt_exact_number *sum, size_t n, float share, uint8_t *out);
} bt_exact_method;

static uint8_t clamp_byte(int32_t value)
{
	return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
}

/* Rounds like lrintf, halves to even, for |value| < 2^22: the last bit of the sum counts ones. lrintf in a loop crashes
 * with clang 19, which reads the floats with cvtps2dq although they are not aligned to 16 bytes. */
static int32_t round_to_even(float value)
{
	const float shift = 3 << 22;
	union {
		float real;
		int32_t bits;
	} sum = {value + shift}, zero = {shift};
	return sum.bits - zero.bits;
}

static void resize_sum(const bt_exact_axis *axis, uint32_t width, const uint8_t *in, bt_exact_number *row)
{
	for (uint32_t x = 0; x < width; x++, row += RGB) {
		const uint8_t *at = in + (size_t)axis->first[x] * RGB;
		int32_t red = 0, green = 0, blue = 0;
		for (uint32_t k = 0; k < axis->count[x]; k++, at += RGB) {
			red += at[0];
			green += at[1];
			blue += at[2];
		}
		row[0].integer = red;
		row[1].integer = green;
		row[2].integer = blue;
	}
}

static void resize_area(const bt_exact_axis *axis, uint32_t width, const uint8_t *in, bt_exact_number *row)
{
	for (uint32_t x = 0; x < width; x++, row += RGB) {
		const uint8_t *at = in + (size_t)axis->first[x] * RGB;
		const bt_exact_number *weights = axis->weights + (size_t)x * axis->stride;
		float red = 0, green = 0, blue = 0;
		for (uint32_t k = 0; k < axis->count[x]; k++, at += RGB) {
			red += at[0] * weights[k].real;
			green += at[1] * weights[k].real;
			blue += at[2] * weights[k].real;
		}
		row[0].real = red;
		row[1].real = green;
		row[2].real = blue;
	}
}

/* For LINEAR and TENT, which differ in `rounding` only. */
static void resize_integer(const bt_exact_axis *axis, uint32_t width, const uint8_t *in, int32_t rounding,
			   bt_exact_number *row)
{
	for (uint32_t x = 0; x < width; x++, row += RGB) {
		const uint8_t *at = in + (size_t)axis->first[x] * RGB;
		const bt_exact_number *weights = axis->weights + (size_t)x * axis->stride;
		int32_t red = rounding, green = rounding, blue = rounding;
		for (uint32_t k = 0; k < axis->count[x]; k++, at += RGB) {
			red += at[0] * weights[k].integer;
			green += at[1] * weights[k].integer;
			blue += at[2] * weights[k].integer;
		}
		row[0].integer = red;
		row[1].integer = green;
		row[2].integer = blue;
	}
}

static void resize_linear(const bt_exact_axis *axis, uint32_t width, const uint8_t *in, bt_exact_number *row)
{
	resize_integer(axis, width, in, 0, row);
}

static void shift_tent(bt_exact_number *row, size_t n)
{
	for (size_t i = 0; i < n; i++)
		row[i].integer = clamp_byte(row[i].integer >> BT_PILLOW_BITS);
}

static void resize_tent(const bt_exact_axis *axis, uint32_t width, const uint8_t *in, bt_exact_number *row)
{
	resize_integer(axis, width, in, 1 << (BT_PILLOW_BITS - 1), row);
	shift_tent(row, (size_t)width * RGB);
}

static void resize_sum_grey(const bt_exact_axis *axis, uint32_t width, const uint8_t *in, bt_exact_number *row)
{
	for (uint32_t x = 0; x < width; x++) {
		const uint8_t *at = in + axis->first[x];
		int32_t sum = 0;
		for (uint32_t k = 0; k < axis->count[x]; k++)
			sum += at[k];
		row[x].integer = sum;
	}
}

static void resize_area_grey(const bt_exact_axis *axis, uint32_t width, const uint8_t *in, bt_exact_number *row)
{
	for (uint32_t x = 0; x < width; x++) {
		const uint8_t *at = in + axis->first[x];
		const bt_exact_number *weights = axis->weights + (size_t)x * axis->stride;
		float sum = 0;
		for (uint32_t k = 0; k < axis->count[x]; k++)
			sum += at[k] * weights[k].real;
		row[x].real = sum;
	}
}

static void resize_integer_grey(const bt_exact_axis *axis, uint32_t width, const uint8_t *in, int32_t rounding,
				bt_exact_number *row)
{
	for (uint32_t x = 0; x < width; x++) {
		const uint8_t *at = in + axis->first[x];
		const bt_exact_number *weights = axis->weights + (size_t)x * axis->stride;
		int32_t sum = rounding;
		for (uint32_t k = 0; k < axis->count[x]; k++)
			sum += at[k] * weights[k].integer;
		row[x].integer = sum;
	}
}

static void resize_linear_grey(const bt_exact_axis *axis, uint32_t width, const uint8_t *in, bt_exact_number *row)
{
	resize_integer_grey(axis, width, in, 0, row);
}

static void resize_tent_grey(const bt_exact_axis *axis, uint32_t width, const uint8_t *in, bt_exact_number *row)
{
	resize_integer_grey(axis, width, in, 1 << (BT_PILLOW_BITS - 1), row);
	shift_tent(row, width);
}

static void add_sum(const bt_exact_number *row, bt_exact_number weight, size_t n, bt_exact_number *sum)
{
	(void)weight;
	for (size_t i = 0; i < n; i++)
		sum[i].integer += row[i].integer;
}

static void add_area(const bt_exact_number *row, bt_exact_number weight, size_t n, bt_exact_number *sum)
{
	for (size_t i = 0; i < n; i++)
		sum[i].real += row[i].real * weight.real;
}

static void add_linear(const bt_exact_number *row, bt_exact_number weight, size_t n, bt_exact_number *sum)
{
	for (size_t i = 0; i < n; i++)
		sum[i].integer += (weight.integer * (row[i].integer >> 4)) >> 16;
}

static void add_tent(const bt_exact_number *row, bt_exact_number weight, size_t n, bt_exact_number *sum)
{
	for (size_t i = 0; i < n; i++)
		sum[i].integer += row[i].integer * weight.integer;
}

static void finish_sum(const bt_exact_number *sum, size_t n, float share, uint8_t *out)
{
	for (size_t i = 0; i < n; i++)
		out[i] = clamp_byte(round_to_even((float)sum[i].integer * share));
}

/* OpenCV's special case of 2 x 2 pixels: rounds halves up, not to even. */
static void finish_sum_of_four(const bt_exact_number *sum, size_t n, float share, uint8_t *out)
{
	(void)share;
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)((sum[i].integer + 2) >> 2);
}

static void finish_area(const bt_exact_number *sum, size_t n, float share, uint8_t *out)
{
	(void)share;
	for (size_t i = 0; i < n; i++)
		out[i] = clamp_byte(round_to_even(sum[i].real));
}

static void finish_linear(const bt_exact_number *sum, size_t n, float share, uint8_t *out)
{
	(void)share;
	for (size_t i = 0; i < n; i++)
		out[i] = clamp_byte((sum[i].integer + 2) >> 2);
}

static void finish_tent(const bt_exact_number *sum, size_t n, float share, uint8_t *out)
{
	(void)share;
	for (size_t i = 0; i < n; i++)
		out[i] = clamp_byte((sum[i].integer + (1 << (BT_PILLOW_BITS - 1))) >> BT_PILLOW_BITS);
}

static const bt_exact_method methods[] = {
	[BT_EXACT_SUM] = {resize_sum, resize_sum_grey, add_sum, finish_sum},
	[BT_EXACT_AREA] = {resize_area, resize_area_grey, add_area, finish_area},
	[BT_EXACT_LINEAR] = {resize_linear, resize_linear_grey, add_linear, finish_linear},
	[BT_EXACT_TENT] = {resize_tent, resize_tent_grey, add_tent, finish_tent},
};
static const bt_exact_method sum_of_four = {resize_sum, resize_sum_grey, add_sum, finish_sum_of_four};

static void choose(bt_exact *exact, bt_exact_filter *filter)
{
	const bt_exact_key *key = &exact->key;
	*filter = key->library == BT_EXACT_OPENCV ? bt_opencv_filter(key) : BT_EXACT_TENT;
	if (*filter == BT_EXACT_SUM) {
		uint32_t columns = key->in_width / key->out_width, rows = key->in_height / key->out_height;
		exact->share = 1.0f / (float)((uint64_t)columns * rows);
		exact->method = columns == 2 && rows == 2 ? &sum_of_four : &methods[BT_EXACT_SUM];
		if ((uint64_t)columns * rows <= SUM_PIXELS_MAX)
			return;
		*filter = BT_EXACT_AREA;
	}
	exact->method = &methods[*filter];
}

/* Pillow 13 sums rows first where its own estimate says that this is less work. */
static bool adds_first(const bt_exact_key *key)
{
	int64_t columns = (int64_t)key->in_width - key->out_width, rows = (int64_t)key->in_height - key->out_height;
	return key->library == BT_EXACT_PILLOW && rows > 0 && rows > columns * 2;
}

/* Values of a row of the part, and of what is held of the input. */
static size_t out_values(const bt_exact *exact)
{
	return (size_t)exact->key.part.width * exact->key.channels;
}

static size_t in_values(const bt_exact *exact)
{
	return (size_t)exact->key.held.width * exact->key.channels;
}

/* Makes room for rows and sums. */
static bool reserve(bt_exact *exact)
{
	size_t n = out_values(exact);
	size_t sums = exact->adds_first ? in_values(exact) : n;
	uint32_t most = 1;
	for (uint32_t y = 0; y < exact->key.part.height && !exact->adds_first; y++)
		most = exact->vertical.count[y] > most ? exact->vertical.count[y] : most;
	size_t room = KEPT_BYTES / (n * sizeof(*exact->rows));
	exact->kept = most <= room ? most : room > 0 ? (uint32_t)room : 1;
	size_t values = n * exact->kept + sums;
	exact->rows = bt_buffer_reserve(&exact->memory,
					values * sizeof(*exact->rows) + exact->kept * sizeof(*exact->rows_of) + sums);
	if (!exact->rows)
		return false;
	exact->sum = exact->rows + n * exact->kept;
	exact->rows_of = (uint32_t *)(exact->rows + values);
	exact->summed = (uint8_t *)(exact->rows_of + exact->kept);
	return true;
}

static bool same_rect(const bt_rect *a, const bt_rect *b)
{
	return a->x == b->x && a->y == b->y && a->width == b->width && a->height == b->height;
}

static bool same_key(const bt_exact_key *a, const bt_exact_key *b)
{
	return a->library == b->library && a->in_width == b->in_width && a->in_height == b->in_height &&
	       a->out_width == b->out_width && a->out_height == b->out_height && same_rect(&a->held, &b->held) &&
	       same_rect(&a->part, &b->part) && a->channels == b->channels && a->mirrored == b->mirrored;
}

static int plan(bt_exact *exact, const bt_exact_key *key, beton_error *err)
{
	bt_exact_filter filter;
	exact->key = *key;
	exact->adds_first = adds_first(key);
	choose(exact, &filter);
	const bt_exact_axis_key horizontal = {.filter = filter,
					      .in = key->in_width,
					      .held = key->held.x,
					      .whole = key->out_width,
					      .before = key->part.x,
					      .out = key->part.width,
					      .mirrored = key->mirrored,
					      .last_once = true};
	const bt_exact_axis_key vertical = {.filter = filter,
					    .in = key->in_height,
					    .held = key->held.y,
					    .whole = key->out_height,
					    .before = key->part.y,
					    .out = key->part.height};
	int result = bt_exact_axis_plan(&exact->horizontal, &horizontal, err);
	if (result == BETON_OK)
		result = bt_exact_axis_plan(&exact->vertical, &vertical, err);
	if (result == BETON_OK && !reserve(exact))
		result = bt_fail(err, BETON_NO_MEMORY, "out of memory for rows of %u pixels", key->part.width);
	if (result)
		exact->key = (bt_exact_key){0};
	return result;
}

int bt_exact_begin(bt_exact *exact, const bt_exact_key *key, const uint8_t *source, size_t stride, beton_error *err)
{
	int result = same_key(&exact->key, key) ? BETON_OK : plan(exact, key, err);
	if (result)
		return result;
	exact->source = source;
	exact->stride = stride;
	memset(exact->rows_of, 0xff, exact->kept * sizeof(*exact->rows_of));
	return BETON_OK;
}

static void resize_to(const bt_exact *exact, const uint8_t *in, bt_exact_number *row)
{
	resize_row *resize = exact->key.channels == 1 ? exact->method->resize_grey : exact->method->resize;
	resize(&exact->horizontal, exact->key.part.width, in, row);
}

/* Returns row y of what is held of the input, resized. */
static const bt_exact_number *resized_row(bt_exact *exact, uint32_t y)
{
	uint32_t place = y % exact->kept;
	bt_exact_number *row = exact->rows + out_values(exact) * place;
	if (exact->rows_of[place] != y) {
		resize_to(exact, exact->source + y * exact->stride, row);
		exact->rows_of[place] = y;
	}
	return row;
}

/* Pillow's order of passes for a picture that shrinks mostly in height. */
static void add_then_resize(bt_exact *exact, uint32_t y, uint8_t *out)
{
	const bt_exact_axis *axis = &exact->vertical;
	const bt_exact_number *weights = axis->weights + (size_t)y * axis->stride;
	size_t n = in_values(exact);
	memset(exact->sum, 0, n * sizeof(*exact->sum));
	for (uint32_t k = 0; k < axis->count[y]; k++) {
		const uint8_t *row = exact->source + (axis->first[y] + k) * exact->stride;
		int32_t weight = weights[k].integer;
		for (size_t i = 0; i < n; i++)
			exact->sum[i].integer += row[i] * weight;
	}
	finish_tent(exact->sum, n, 1, exact->summed);
	resize_to(exact, exact->summed, exact->rows);
	for (size_t i = 0; i < out_values(exact); i++)
		out[i] = (uint8_t)exact->rows[i].integer;
}

void bt_exact_row(bt_exact *exact, uint32_t y, uint8_t *out)
{
	if (exact->adds_first) {
		add_then_resize(exact, y, out);
		return;
	}
	const bt_exact_axis *axis = &exact->vertical;
	size_t n = out_values(exact);
	memset(exact->sum, 0, n * sizeof(*exact->sum));
	for (uint32_t k = 0; k < axis->count[y]; k++) {
		uint32_t row = axis->first[y] + k;
		bt_exact_number weight = {0};
		if (axis->stride > 0)
			weight = axis->weights[(size_t)y * axis->stride + k];
		/* LINEAR's second row must stay inside the picture. */
		row = row < exact->key.held.height ? row : exact->key.held.height - 1;
		exact->method->add(resized_row(exact, row), weight, n, exact->sum);
	}
	exact->method->finish(exact->sum, n, exact->share, out);
}

void bt_exact_free(bt_exact *exact)
{
	bt_buffer_free(&exact->horizontal.memory);
	bt_buffer_free(&exact->vertical.memory);
	bt_buffer_free(&exact->memory);
}
