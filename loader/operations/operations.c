/* SPDX-License-Identifier: Apache-2.0 */
#include "operations.h"

#include <math.h>
#include <string.h>

#include "common/elementary.h"
#include "common/error.h"
#include "listed.h"

enum { ERASE_TRIES = 10 };

bt_image bt_canvas_target(const bt_canvas *canvas)
{
	bt_image out = canvas->image;
	out.data = canvas->pixels[!canvas->current].data;
	return out;
}

void bt_canvas_swap(bt_canvas *canvas)
{
	canvas->current = !canvas->current;
	canvas->image.data = canvas->pixels[canvas->current].data;
}

int bt_canvas_begin(bt_canvas *canvas, uint32_t width, uint32_t height, uint32_t channels, uint32_t item,
		    beton_error *err)
{
	canvas->image = (bt_image){.width = width, .height = height, .pixel_bytes = channels * item};
	canvas->item = item;
	size_t bytes = bt_image_bytes(&canvas->image);
	if (!bt_buffer_reserve(&canvas->pixels[0], bytes) || !bt_buffer_reserve(&canvas->pixels[1], bytes))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for operations on %u x %u pixels", width, height);
	canvas->current = 0;
	canvas->image.data = canvas->pixels[0].data;
	return BETON_OK;
}

void bt_canvas_limit(bt_canvas *canvas, bt_budget *budget)
{
	canvas->pixels[0].budget = canvas->pixels[1].budget = canvas->floats.budget = budget;
}

void bt_canvas_free(bt_canvas *canvas)
{
	bt_buffer_free(&canvas->pixels[0]);
	bt_buffer_free(&canvas->pixels[1]);
	bt_buffer_free(&canvas->floats);
}

/* Uniform in 0 .. most. */
static int64_t whole(bt_random *random, int64_t most)
{
	int64_t value = (int64_t)bt_random_uniform(random, 0, (double)most + 1);
	return value < most ? value : most;
}

void bt_canvas_shift(bt_canvas *canvas, int64_t x, int64_t y, beton_padding mode, const uint8_t *fill)
{
	bt_image out = bt_canvas_target(canvas);
	bt_op_shift(&canvas->image, &out, x, y, mode, fill);
	bt_canvas_swap(canvas);
	bt_moves_shift(canvas->moves, x, y);
}

void bt_canvas_affine(bt_canvas *canvas, const double m[6], bool bilinear, const uint8_t *fill)
{
	bt_image out = bt_canvas_target(canvas);
	bt_op_affine(&canvas->image, &out, m, bilinear, fill);
	bt_canvas_swap(canvas);
	bt_moves_affine(canvas->moves, m);
}

/* The pixel that an operation fills with; of rasters 0. */
static const uint8_t *fill_of(const bt_image *image, const beton_operation *o)
{
	static const uint8_t zeros[BETON_CHANNELS_MAX * sizeof(uint16_t)];
	return image->pixel_bytes > sizeof(o->fill) ? zeros : o->fill;
}

static void shift(bt_canvas *canvas, const beton_operation *o, int64_t x, int64_t y, double drawn[3])
{
	bt_canvas_shift(canvas, x, y, o->padding, fill_of(&canvas->image, o));
	drawn[0] = (double)x;
	drawn[1] = (double)y;
}

static void translate(bt_canvas *canvas, const beton_operation *o, bt_random *random, double drawn[3])
{
	int64_t x = whole(random, 2 * (int64_t)o->size) - o->size;
	int64_t y = whole(random, 2 * (int64_t)o->size) - o->size;
	shift(canvas, o, x, y, drawn);
}

static void rotate(bt_canvas *canvas, const beton_operation *o, double degrees)
{
	double m[6];
	bt_op_rotation(m, canvas->image.width, canvas->image.height, degrees);
	bt_canvas_affine(canvas, m, o->bilinear, fill_of(&canvas->image, o));
}

static void cutout(const bt_image *image, const beton_operation *o, bt_random *random, double drawn[3])
{
	bt_rect rect = {.width = o->size, .height = o->size};
	rect.y = (uint32_t)whole(random, image->height - o->size);
	rect.x = (uint32_t)whole(random, image->width - o->size);
	bt_op_fill(image, rect, fill_of(image, o));
	drawn[0] = rect.x;
	drawn[1] = rect.y;
}

/* drawn: width 0 and height 0 when no rectangle of the ten fitted. */
static void erase(const bt_canvas *canvas, const beton_operation *o, bt_random *random, double drawn[3])
{
	const bt_image *image = &canvas->image;
	double area = (double)image->width * image->height;
	for (int i = 0; i < ERASE_TRIES; i++) {
		double target = area * bt_random_uniform(random, o->range[0], o->range[1]);
		double ratio = bt_exp(bt_random_uniform(random, bt_log(o->ratio[0]), bt_log(o->ratio[1])));
		double height = nearbyint(sqrt(target * ratio)), width = nearbyint(sqrt(target / ratio));
		if (!(height < image->height && width < image->width))
			continue;
		bt_rect rect = {.width = (uint32_t)width, .height = (uint32_t)height};
		rect.y = (uint32_t)whole(random, image->height - rect.height);
		rect.x = (uint32_t)whole(random, image->width - rect.width);
		if (o->noise)
			bt_op_noise(image, rect, canvas->options->mean, canvas->options->std, random);
		else
			bt_op_fill(image, rect, fill_of(image, o));
		drawn[0] = rect.x;
		drawn[1] = rect.y;
		drawn[2] = width * height;
		return;
	}
}

static void colour(const bt_image *image, int which, double value)
{
	static void (*const functions[4])(const bt_image *, double) = {bt_op_brightness, bt_op_contrast,
								       bt_op_saturation, bt_op_hue};
	functions[which](image, value);
}

/* drawn: the factors of brightness, contrast and saturation. */
static void jitter(const bt_image *image, const beton_operation *o, bt_random *random, double drawn[3])
{
	int order[4] = {0, 1, 2, 3};
	for (int i = 3; i > 0; i--) {
		int other = (int)whole(random, i), kept = order[i];
		order[i] = order[other];
		order[other] = kept;
	}
	double values[4];
	for (int i = 0; i < 3; i++)
		values[i] = drawn[i] = bt_random_uniform(random, fmax(0, 1 - o->jitter[i]), 1 + o->jitter[i]);
	values[3] = bt_random_uniform(random, -o->jitter[3], o->jitter[3]);
	for (int i = 0; i < 4; i++)
		if (o->jitter[order[i]] > 0)
			colour(image, order[i], values[order[i]]);
}

static int blur(bt_canvas *canvas, const beton_operation *o, double sigma, beton_error *err)
{
	bt_image out = bt_canvas_target(canvas);
	float *scratch = bt_buffer_reserve(&canvas->floats, bt_image_bytes(&out) * sizeof(float));
	if (!scratch)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory to blur %u x %u pixels", out.width, out.height);
	bt_op_blur(&canvas->image, &out, o->size, sigma, scratch);
	bt_canvas_swap(canvas);
	return BETON_OK;
}

static int custom(bt_canvas *canvas, const beton_operation *o, bt_random *random, beton_error *err)
{
	beton_operation_call call = {.context = o->context,
				     .pixels = canvas->image.data,
				     .height = canvas->image.height,
				     .width = canvas->image.width,
				     .channels = canvas->image.pixel_bytes / canvas->item,
				     .item_bytes = canvas->item,
				     .view = random->view,
				     .epoch = random->epoch,
				     .sample = random->sample};
	for (int i = 0; i < 2; i++)
		call.random[i] = bt_random_bits(random);
	int result = o->apply(&call);
	if (result == 0)
		return BETON_OK;
	return bt_fail_sample(err, BETON_USER_ERROR, (int64_t)random->sample,
			      "sample %llu: the user's operation returned %d", (unsigned long long)random->sample,
			      result);
}

/* Operations whose parameters are options only. */
static bool apply_plain(const bt_canvas *canvas, const beton_operation *o)
{
	const bt_image *image = &canvas->image;
	switch (o->kind) {
	case BETON_FLIP_HORIZONTAL:
		bt_op_flip_horizontal(image);
		bt_moves_flip_horizontal(canvas->moves);
		return true;
	case BETON_FLIP_VERTICAL:
		bt_op_flip_vertical(image);
		bt_moves_flip_vertical(canvas->moves);
		return true;
	case BETON_GRAYSCALE:
		bt_op_grayscale(image);
		return true;
	case BETON_SOLARIZE:
		bt_op_solarize(image, o->size);
		return true;
	case BETON_POSTERIZE:
		bt_op_posterize(image, o->size);
		return true;
	case BETON_INVERT:
		bt_op_invert(image);
		return true;
	case BETON_EQUALIZE:
		bt_op_equalize(image);
		return true;
	case BETON_AUTOCONTRAST:
		bt_op_autocontrast(image);
		return true;
	case BETON_POISON:
		bt_op_poison(image, o->mask, o->alpha);
		return true;
	default:
		return false;
	}
}

/* Operations with one number drawn from range. */
static int apply_ranged(bt_canvas *canvas, const beton_operation *o, double value, beton_error *err)
{
	bt_image out;
	switch (o->kind) {
	case BETON_ROTATE:
		rotate(canvas, o, value);
		return BETON_OK;
	case BETON_SHARPNESS:
		out = bt_canvas_target(canvas);
		bt_op_sharpness(&canvas->image, &out, value);
		bt_canvas_swap(canvas);
		return BETON_OK;
	case BETON_BLUR:
		return blur(canvas, o, value, err);
	default:
		colour(&canvas->image, (int)o->kind - BETON_BRIGHTNESS, value);
		return BETON_OK;
	}
}

static int apply(bt_canvas *canvas, const beton_operation *o, bt_random *random, double drawn[3], beton_error *err)
{
	if (apply_plain(canvas, o))
		return BETON_OK;
	switch (o->kind) {
	case BETON_TRANSLATE:
		translate(canvas, o, random, drawn);
		return BETON_OK;
	case BETON_SHIFT:
		shift(canvas, o, (int64_t)o->range[0], (int64_t)o->range[1], drawn);
		return BETON_OK;
	case BETON_CUTOUT:
		cutout(&canvas->image, o, random, drawn);
		return BETON_OK;
	case BETON_ERASE:
		erase(canvas, o, random, drawn);
		return BETON_OK;
	case BETON_COLOR_JITTER:
		jitter(&canvas->image, o, random, drawn);
		return BETON_OK;
	case BETON_RAND_AUGMENT:
		bt_rand_augment(canvas, o, random, drawn);
		return BETON_OK;
	case BETON_TRIVIAL_AUGMENT:
		bt_trivial_augment(canvas, o, random, drawn);
		return BETON_OK;
	case BETON_CUSTOM:
		return custom(canvas, o, random, err);
	default:
		drawn[0] = bt_random_uniform(random, o->range[0], o->range[1]);
		return apply_ranged(canvas, o, drawn[0], err);
	}
}

int bt_canvas_apply(bt_canvas *canvas, const beton_image_options *options, const bt_random *random, double *drawn,
		    beton_error *err)
{
	int result = BETON_OK;
	canvas->options = options;
	for (uint32_t i = 0; result == BETON_OK && i < options->num_operations; i++) {
		const beton_operation *o = &options->operations[i];
		bt_random own = *random;
		own.operation = BT_OPERATION_USER + i;
		own.draw = 0;
		double values[BT_DRAWN] = {0};
		if (bt_random_uniform(&own, 0, 1) < o->probability &&
		    (o->kind != BETON_POISON || bt_listed(o->indices, o->num_indices, random->sample))) {
			values[0] = 1;
			result = apply(canvas, o, &own, values + 1, err);
		}
		if (drawn)
			memcpy(drawn + (size_t)i * BT_DRAWN, values, sizeof(values));
	}
	return result;
}
