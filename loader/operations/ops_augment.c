/* SPDX-License-Identifier: Apache-2.0
 *
 * RandAugment and TrivialAugment with torchvision's operations and magnitudes. */
#include <math.h>

#include "operations.h"

enum { BINS = 31 };

/* In torchvision's order. */
enum choice {
	IDENTITY,
	SHEAR_X,
	SHEAR_Y,
	TRANSLATE_X,
	TRANSLATE_Y,
	ROTATE,
	BRIGHTNESS,
	COLOR,
	CONTRAST,
	SHARPNESS,
	POSTERIZE,
	SOLARIZE,
	AUTOCONTRAST,
	EQUALIZE,
	CHOICES
};

/* The largest magnitude of each. */
typedef struct bounds {
	double shear;
	double translate_x;
	double translate_y;
	double rotate;
	double colour;
	double posterize;
} bounds;

static double magnitude_of(enum choice choice, uint32_t bin, const bounds *most)
{
	double share = (double)bin / (BINS - 1);
	switch (choice) {
	case SHEAR_X:
	case SHEAR_Y:
		return share * most->shear;
	case TRANSLATE_X:
		return share * most->translate_x;
	case TRANSLATE_Y:
		return share * most->translate_y;
	case ROTATE:
		return share * most->rotate;
	case BRIGHTNESS:
	case COLOR:
	case CONTRAST:
	case SHARPNESS:
		return share * most->colour;
	case POSTERIZE:
		return 8 - rint(share * most->posterize);
	case SOLARIZE:
		return 255 - share * 255;
	default:
		return 0;
	}
}

static void shape(bt_canvas *canvas, enum choice choice, double magnitude, const uint8_t fill[3])
{
	double m[6];
	switch (choice) {
	case SHEAR_X:
		bt_op_shear(m, magnitude, 0);
		bt_canvas_affine(canvas, m, false, fill);
		break;
	case SHEAR_Y:
		bt_op_shear(m, 0, magnitude);
		bt_canvas_affine(canvas, m, false, fill);
		break;
	case ROTATE:
		bt_op_rotation(m, canvas->image.width, canvas->image.height, magnitude);
		bt_canvas_affine(canvas, m, false, fill);
		break;
	default:
		bt_canvas_shift(canvas, choice == TRANSLATE_X ? (int64_t)magnitude : 0,
				choice == TRANSLATE_Y ? (int64_t)magnitude : 0, BETON_PADDING_FILL, fill);
	}
}

static void colour(bt_canvas *canvas, enum choice choice, double magnitude)
{
	const bt_image *image = &canvas->image;
	bt_image out = bt_canvas_target(canvas);
	double factor = 1 + magnitude;
	switch (choice) {
	case BRIGHTNESS:
		bt_op_brightness(image, factor);
		break;
	case COLOR:
		if (image->pixel_bytes == 3) /* a grey picture has no colour to change */
			bt_op_saturation(image, factor);
		break;
	case CONTRAST:
		bt_op_contrast(image, factor);
		break;
	case SHARPNESS:
		bt_op_sharpness(image, &out, factor);
		bt_canvas_swap(canvas);
		break;
	case POSTERIZE:
		bt_op_posterize(image, (uint32_t)magnitude);
		break;
	case SOLARIZE:
		bt_op_solarize(image, (uint32_t)ceil(magnitude));
		break;
	case AUTOCONTRAST:
		bt_op_autocontrast(image);
		break;
	default:
		bt_op_equalize(image);
	}
}

static uint32_t below(bt_random *random, uint32_t count)
{
	return (uint32_t)bt_random_uniform(random, 0, count);
}

static void apply_one(bt_canvas *canvas, uint32_t bin, const bounds *most, const uint8_t fill[3], bt_random *random,
		      double drawn[3])
{
	enum choice choice = (enum choice)below(random, CHOICES);
	double magnitude = magnitude_of(choice, bin, most);
	bool negative = below(random, 2) == 1;
	if (negative && choice >= SHEAR_X && choice <= SHARPNESS)
		magnitude = -magnitude;
	drawn[0] = choice;
	drawn[1] = magnitude;
	if (choice >= SHEAR_X && choice <= ROTATE)
		shape(canvas, choice, magnitude, fill);
	else if (choice != IDENTITY)
		colour(canvas, choice, magnitude);
}

void bt_rand_augment(bt_canvas *canvas, const beton_operation *operation, bt_random *random, double drawn[3])
{
	const bounds most = {.shear = 0.3,
			     .translate_x = 150.0 / 331 * canvas->image.width,
			     .translate_y = 150.0 / 331 * canvas->image.height,
			     .rotate = 30,
			     .colour = 0.9,
			     .posterize = 4};
	for (uint32_t i = 0; i < operation->count; i++)
		apply_one(canvas, operation->size, &most, operation->fill, random, drawn);
}

void bt_trivial_augment(bt_canvas *canvas, const beton_operation *operation, bt_random *random, double drawn[3])
{
	const bounds most = {
		.shear = 0.99, .translate_x = 32, .translate_y = 32, .rotate = 135, .colour = 0.99, .posterize = 6};
	uint32_t bin = below(random, BINS);
	apply_one(canvas, bin, &most, operation->fill, random, drawn);
	drawn[2] = bin;
}
