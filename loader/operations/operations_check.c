/* SPDX-License-Identifier: Apache-2.0
 *
 * Defaults of operations, and checks of their values.
 */
#include <math.h>

#include "common/error.h"
#include "common/sized.h"
#include "listed.h"
#include "operations.h"
#include "pixels/transform.h"

enum { CHOICES = 14, BINS = 31, AFFINE_MAX = 32767 };

void beton_loader_operation_init(beton_operation *operation, beton_operation_kind kind)
{
	if (!operation)
		return;
	*operation = (beton_operation){.kind = kind, .probability = 0.5, .range = {1, 1}, .ratio = {0.3, 3.3}};
	switch (kind) {
	case BETON_ROTATE:
	case BETON_SHIFT:
		operation->range[0] = operation->range[1] = 0;
		operation->probability = 1;
		break;
	case BETON_HUE:
		operation->range[0] = operation->range[1] = 0;
		break;
	case BETON_ERASE:
		operation->range[0] = 0.02;
		operation->range[1] = 0.33;
		break;
	case BETON_SOLARIZE:
		operation->size = 128;
		break;
	case BETON_POSTERIZE:
		operation->size = 8;
		break;
	case BETON_BLUR:
		operation->size = 3;
		operation->range[0] = 0.1;
		operation->range[1] = 2;
		operation->probability = 1;
		break;
	case BETON_RAND_AUGMENT:
		operation->size = 9;
		operation->count = 2;
		operation->probability = 1;
		break;
	case BETON_TRANSLATE:
	case BETON_CUTOUT:
	case BETON_COLOR_JITTER:
	case BETON_TRIVIAL_AUGMENT:
	case BETON_POISON:
	case BETON_CUSTOM:
		operation->probability = 1;
		break;
	default:
		break;
	}
}

/* The place of a fault, for its message. */
typedef struct place {
	const char *name; /* of the image options */
	uint32_t index;
	beton_error *err;
} place;

static int check_size(const place *at, uint64_t value, uint64_t least, uint64_t most)
{
	if (value >= least && value <= most)
		return BETON_OK;
	return bt_fail(at->err, BETON_INVALID_ARGUMENT,
		       "loader options: %s.operations[%u].size is %llu, not %llu to %llu", at->name, at->index,
		       (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
}

static int check_pair(const place *at, const char *member, const double pair[2], double least, double most)
{
	if (pair[0] >= least && pair[0] <= pair[1] && pair[1] <= most)
		return BETON_OK;
	return bt_fail(at->err, BETON_INVALID_ARGUMENT,
		       "loader options: %s.operations[%u].%s is {%g, %g}, not two rising numbers from %g to %g",
		       at->name, at->index, member, pair[0], pair[1], least, most);
}

static int fail_member(const place *at, const char *member, const char *what)
{
	return bt_fail(at->err, BETON_INVALID_ARGUMENT, "loader options: %s.operations[%u].%s %s", at->name, at->index,
		       member, what);
}

static int check_affine(const place *at, const beton_image_options *image)
{
	if (image->width <= AFFINE_MAX && image->height <= AFFINE_MAX)
		return BETON_OK;
	return fail_member(at, "kind", "turns or shears pictures: their sides are at most 32767 pixels");
}

static int check_jitter(const place *at, const beton_operation *o)
{
	for (int i = 0; i < 4; i++)
		if (!(o->jitter[i] >= 0 && o->jitter[i] <= (i < 3 ? 1000 : 0.5)))
			return bt_fail(at->err, BETON_INVALID_ARGUMENT,
				       "loader options: %s.operations[%u].jitter[%d] is %g, not 0 to %g", at->name,
				       at->index, i, o->jitter[i], i < 3 ? 1000 : 0.5);
	return BETON_OK;
}

static int check_poison(const place *at, const beton_operation *o)
{
	if (!o->mask)
		return fail_member(at, "mask", "is NULL");
	if (!o->alpha)
		return fail_member(at, "alpha", "is NULL");
	if (o->num_indices > 0 && !o->indices)
		return fail_member(at, "indices", "is NULL");
	return bt_first_not_rising(o->indices, o->num_indices) ? fail_member(at, "indices", "do not rise") : BETON_OK;
}

static int check_augment(const place *at, const beton_operation *o, const beton_image_options *image)
{
	int result = check_affine(at, image);
	if (result || o->kind == BETON_TRIVIAL_AUGMENT)
		return result;
	if (o->count < 1 || o->count > CHOICES)
		return fail_member(at, "count", "is not 1 to 14");
	return check_size(at, o->size, 0, BINS - 1);
}

static int check_erase(const place *at, const beton_operation *o, const beton_image_options *image)
{
	int result = check_pair(at, "range", o->range, 0, 1);
	if (result == BETON_OK)
		result = check_pair(at, "ratio", o->ratio, 1e-3, 1e3);
	for (int c = 0; c < (int)bt_image_channels(image) && o->noise && result == BETON_OK; c++)
		if (!isfinite(image->mean[c]) || !isfinite(image->std[c]) || !(image->std[c] > 0))
			result = bt_fail(at->err, BETON_INVALID_ARGUMENT,
					 "loader options: %s.operations[%u].noise needs %s.mean and std: in channel "
					 "%d they are %g and %g, not finite and above 0",
					 at->name, at->index, at->name, c, (double)image->mean[c],
					 (double)image->std[c]);
	return result;
}

static int check_blur(const place *at, const beton_operation *o, uint32_t shorter)
{
	if (o->size % 2 == 0 || o->size / 2 >= shorter)
		return fail_member(at, "size", "is even, or too large for the picture");
	int result = check_size(at, o->size, 1, BETON_BLUR_MAX);
	return result ? result : check_pair(at, "range", o->range, 1e-3, 1e6);
}

static int check_padding(const place *at, const beton_operation *o)
{
	return (unsigned)o->padding > BETON_PADDING_REFLECT ? fail_member(at, "padding", "is not a beton_padding")
							    : BETON_OK;
}

static int check_shift(const place *at, const beton_operation *o, const beton_image_options *image)
{
	const uint32_t sides[2] = {image->width, image->height};
	int result = check_padding(at, o);
	for (int i = 0; i < 2 && result == BETON_OK; i++) {
		double most = o->padding == BETON_PADDING_REFLECT ? sides[i] - 1.0 : 65535;
		if (!(fabs(o->range[i]) <= most) || trunc(o->range[i]) != o->range[i])
			result = bt_fail(at->err, BETON_INVALID_ARGUMENT,
					 "loader options: %s.operations[%u].range[%d] is %g, no whole number from %g "
					 "to %g",
					 at->name, at->index, i, o->range[i], -most, most);
	}
	return result;
}

static int check_kind(const place *at, const beton_operation *o, const beton_image_options *image)
{
	uint32_t shorter = image->width < image->height ? image->width : image->height;
	int result;
	switch (o->kind) {
	case BETON_TRANSLATE:
		result = check_padding(at, o);
		return result ? result
			      : check_size(at, o->size, 0, o->padding == BETON_PADDING_REFLECT ? shorter - 1 : 65535);
	case BETON_SHIFT:
		return check_shift(at, o, image);
	case BETON_ROTATE:
		result = check_affine(at, image);
		return result ? result : check_pair(at, "range", o->range, -360, 360);
	case BETON_CUTOUT:
		return check_size(at, o->size, 1, shorter);
	case BETON_ERASE:
		return check_erase(at, o, image);
	case BETON_BRIGHTNESS:
	case BETON_CONTRAST:
	case BETON_SATURATION:
	case BETON_SHARPNESS:
		return check_pair(at, "range", o->range, 0, 1000);
	case BETON_HUE:
		return check_pair(at, "range", o->range, -0.5, 0.5);
	case BETON_COLOR_JITTER:
		return check_jitter(at, o);
	case BETON_SOLARIZE:
		return check_size(at, o->size, 0, 256);
	case BETON_POSTERIZE:
		return check_size(at, o->size, 0, 8);
	case BETON_BLUR:
		return check_blur(at, o, shorter);
	case BETON_RAND_AUGMENT:
	case BETON_TRIVIAL_AUGMENT:
		return check_augment(at, o, image);
	case BETON_POISON:
		return check_poison(at, o);
	case BETON_CUSTOM:
		return o->apply ? BETON_OK : fail_member(at, "apply", "is NULL");
	default:
		return BETON_OK;
	}
}

/* The operations, and jitters, that change colours alone need some. */
static int check_colour(const place *at, const beton_operation *o, const beton_image_options *image)
{
	const char *kind = o->kind == BETON_SATURATION  ? "SATURATION"
			   : o->kind == BETON_HUE       ? "HUE"
			   : o->kind == BETON_GRAYSCALE ? "GRAYSCALE"
							: NULL;
	if (image->color != BETON_COLOR_GREY)
		return BETON_OK;
	if (kind)
		return bt_fail(at->err, BETON_INVALID_ARGUMENT,
			       "loader options: %s.operations[%u].kind is %s, but %s.color is GREY", at->name,
			       at->index, kind, at->name);
	for (int i = 2; i < 4 && o->kind == BETON_COLOR_JITTER; i++)
		if (o->jitter[i] > 0)
			return bt_fail(at->err, BETON_INVALID_ARGUMENT,
				       "loader options: %s.operations[%u].jitter[%d] (%s) is %g, but %s.color is GREY",
				       at->name, at->index, i, i == 2 ? "saturation" : "hue", o->jitter[i], at->name);
	return BETON_OK;
}

int bt_operations_check(const beton_image_options *image, const char *name, beton_error *err)
{
	if (image->num_operations > BETON_OPERATIONS_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: %s.num_operations is %u, more than %d",
			       name, image->num_operations, BETON_OPERATIONS_MAX);
	if (image->num_operations > 0 && !image->operations)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: %s.operations is NULL", name);
	for (uint32_t i = 0; i < image->num_operations; i++) {
		const beton_operation *o = &image->operations[i];
		place at = {name, i, err};
		if ((unsigned)o->kind > BETON_SHIFT)
			return fail_member(&at, "kind", "is not a beton_operation_kind");
		if (!(o->probability >= 0 && o->probability <= 1))
			return fail_member(&at, "probability", "is not 0 to 1");
		if (!BT_RESERVED_IS_ZERO(o))
			return fail_member(&at, "reserved", "is not 0 (call beton_loader_operation_init first)");
		int result = check_kind(&at, o, image);
		if (result == BETON_OK)
			result = check_colour(&at, o, image);
		if (result)
			return result;
	}
	return BETON_OK;
}
