/* SPDX-License-Identifier: Apache-2.0 */
#include "options_image.h"

#include <math.h>
#include <stdio.h>

#include "common/error.h"
#include "common/sized.h"
#include "operations/operations.h"
#include "pixels/transform.h"

enum { PIXELS_MAX = 65535 };

/* The place of a fault, for its message. */
typedef struct place {
	const char *name; /* of the image options */
	beton_error *err;
} place;

static int check_count(const place *at, const char *field, uint64_t value, uint64_t least, uint64_t most)
{
	if (value >= least && value <= most)
		return BETON_OK;
	return bt_fail(at->err, BETON_INVALID_ARGUMENT, "loader options: %s.%s is %llu, not %llu to %llu", at->name,
		       field, (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
}

/* Checks least < value <= most; value == least too if that is allowed; never NaN. */
static int check_real(const place *at, const char *field, double value, double least, bool inclusive, double most)
{
	if ((value > least || (inclusive && value == least)) && value <= most)
		return BETON_OK;
	return bt_fail(at->err, BETON_INVALID_ARGUMENT, "loader options: %s.%s is %g, not %s %g and at most %g",
		       at->name, field, value, inclusive ? "at least" : "more than", least, most);
}

static int check_range(const place *at, const char *field, const double range[2], double most)
{
	if (range[0] > 0 && range[0] <= range[1] && range[1] <= most)
		return BETON_OK;
	return bt_fail(at->err, BETON_INVALID_ARGUMENT,
		       "loader options: %s.%s is {%g, %g}, not two rising numbers above 0 and at most %g", at->name,
		       field, range[0], range[1], most);
}

static int check_dtype(const place *at, beton_dtype dtype)
{
	if (dtype == BETON_UINT8 || dtype == BETON_UINT16 || dtype == BETON_FLOAT32 || dtype == BETON_FLOAT16 ||
	    dtype == BETON_BFLOAT16)
		return BETON_OK;
	return bt_fail(at->err, BETON_INVALID_ARGUMENT,
		       "loader options: %s.dtype is %d, not bytes or floats for images", at->name, (int)dtype);
}

static int check_normalize(const place *at, const beton_image_options *o)
{
	if (o->dtype == BETON_UINT8 || o->dtype == BETON_UINT16)
		return bt_fail(at->err, BETON_INVALID_ARGUMENT,
			       "loader options: %s.normalize is true, but %s.dtype is BETON_UINT%d, not floats",
			       at->name, at->name, o->dtype == BETON_UINT8 ? 8 : 16);
	for (int c = 0; c < (int)bt_image_channels(o); c++) {
		if (!isfinite(o->mean[c]))
			return bt_fail(at->err, BETON_INVALID_ARGUMENT, "loader options: %s.mean[%d] is %g, not finite",
				       at->name, c, (double)o->mean[c]);
		if (!isfinite(o->std[c]) || !(o->std[c] > 0))
			return bt_fail(at->err, BETON_INVALID_ARGUMENT,
				       "loader options: %s.std[%d] is %g, not finite and above 0", at->name, c,
				       (double)o->std[c]);
	}
	return BETON_OK;
}

static int check_stored(const place *at, const beton_image_options *o)
{
	const char *option = o->num_operations                ? "operations"
			     : o->normalize                   ? "normalize"
			     : o->dtype != BETON_UINT8        ? "dtype"
			     : o->layout != BETON_NHWC        ? "layout"
			     : o->pixels != BETON_PIXELS_FAST ? "pixels"
			     : o->filter != BETON_FILTER_AUTO ? "filter"
			     : o->fit != BETON_FIT_STRETCH    ? "fit"
			     : o->color != BETON_COLOR_RGB    ? "color"
			     : o->num_statistics              ? "num_statistics"
							      : NULL;
	if (option)
		return bt_fail(
			at->err, BETON_INVALID_ARGUMENT,
			"loader options: %s.%s is given, but %s.output is BETON_IMAGE_STORED, which has no pixels",
			at->name, option, at->name);
	return BETON_OK;
}

static int check_output(const place *at, const beton_image_options *o)
{
	int result = check_count(at, "output", o->output, 0, BETON_IMAGE_STORED);
	if (result == BETON_OK)
		result = check_count(at, "stored_bytes", o->stored_bytes, 0,
				     o->output == BETON_IMAGE_STORED ? UINT32_MAX : 0);
	return result == BETON_OK && o->output == BETON_IMAGE_STORED ? check_stored(at, o) : result;
}

static int check_fit(const place *at, const beton_image_options *o)
{
	bool shorter = o->fit == BETON_FIT_SHORTER_SIDE, pads = o->fit != BETON_FIT_STRETCH && !shorter;
	int result = check_count(at, "fit", o->fit, 0, BETON_FIT_SHORTER_SIDE);
	if (result == BETON_OK && !pads && o->keep_small)
		return bt_fail(at->err, BETON_INVALID_ARGUMENT,
			       "loader options: %s.keep_small is %u, but %s.fit is %u, not one of PAD", at->name,
			       o->keep_small, at->name, o->fit);
	if (result == BETON_OK)
		result = check_count(at, "keep_small", o->keep_small, 0, 1);
	if (result == BETON_OK)
		result = check_count(at, "shorter_side", o->shorter_side, shorter, shorter ? PIXELS_MAX : 0);
	for (int c = 0; c < 4 && result == BETON_OK; c++) {
		char field[16];
		snprintf(field, sizeof(field), "pad[%d]", c);
		if (o->fit == BETON_FIT_STRETCH && o->pad[c])
			return bt_fail(at->err, BETON_INVALID_ARGUMENT,
				       "loader options: %s.%s is %u, but %s.fit is BETON_FIT_STRETCH, without padding",
				       at->name, field, o->pad[c], at->name);
		result = check_count(at, field, o->pad[c], 0, c == 0 ? UINT16_MAX : c < 3 ? UINT8_MAX : 0);
	}
	return result;
}

static int check_image(const place *at, const beton_image_options *o)
{
	int result;
	if ((result = check_count(at, "height", o->height, 1, PIXELS_MAX)) ||
	    (result = check_count(at, "width", o->width, 1, PIXELS_MAX)) ||
	    (result = check_count(at, "crop", o->crop, 0, BETON_CROP_CENTER)) ||
	    (result = check_range(at, "crop_scale", o->crop_scale, 1)) ||
	    (result = check_range(at, "crop_ratio", o->crop_ratio, 1000)) ||
	    (result = check_real(at, "center_ratio", o->center_ratio, 0, false, 1)) ||
	    (result = check_real(at, "flip_probability", o->flip_probability, 0, true, 1)) ||
	    (result = check_count(at, "flip_mode", o->flip_mode, 0, BETON_FLIP_ALTERNATE)) ||
	    (result = check_count(at, "pixels", o->pixels, 0, BETON_PIXELS_TORCHVISION)) ||
	    (result = check_count(at, "filter", o->filter, 0, BETON_FILTER_NEAREST)) ||
	    (result = check_count(at, "color", o->color, 0, BETON_COLOR_GREY)) ||
	    (result = check_dtype(at, o->dtype)) || (result = check_count(at, "layout", o->layout, 0, BETON_NCHW)) ||
	    (result = bt_operations_check(o, at->name, at->err)) || (result = check_output(at, o)) ||
	    (result = check_fit(at, o)))
		return result;
	if (!BT_RESERVED_IS_ZERO(o))
		return bt_fail(at->err, BETON_INVALID_ARGUMENT, "loader options: %s.reserved is not 0", at->name);
	if (o->num_statistics && !o->statistics)
		return bt_fail(at->err, BETON_INVALID_ARGUMENT,
			       "loader options: %s.statistics is NULL, but %s.num_statistics is %u", at->name, at->name,
			       o->num_statistics);
	if (o->flip_mode == BETON_FLIP_ALTERNATE && o->flip_probability == 0)
		return bt_fail(at->err, BETON_INVALID_ARGUMENT,
			       "loader options: %s.flip_mode is ALTERNATE, which needs a flip_probability above 0",
			       at->name);
	return o->normalize ? check_normalize(at, o) : BETON_OK;
}

int bt_options_check_images(const beton_loader_options *options, beton_error *err)
{
	int result = check_image(&(place){"image", err}, &options->image);
	if (result)
		return result;
	if (options->num_views > BETON_VIEWS_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: num_views is %u, more than %d",
			       options->num_views, BETON_VIEWS_MAX);
	if (options->num_views > 0 && !options->views)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: views is NULL, but num_views is %u",
			       options->num_views);
	for (uint32_t i = 0; i < options->num_views && result == BETON_OK; i++) {
		char name[32];
		snprintf(name, sizeof(name), "views[%u]", i);
		result = check_image(&(place){name, err}, &options->views[i]);
	}
	return result;
}

void bt_options_resolve_image(beton_image_options *image)
{
	if (image->filter == BETON_FILTER_AUTO && image->pixels != BETON_PIXELS_FAST)
		image->filter = image->pixels == BETON_PIXELS_FFCV ? BETON_FILTER_AREA : BETON_FILTER_BILINEAR;
}
