/* SPDX-License-Identifier: Apache-2.0 */
#include "options_raster.h"

#include <math.h>

#include "beton/types/types.h"
#include "common/error.h"

/* The place of a fault, for its message. */
typedef struct place {
	const char *name; /* of the image options */
	const beton_field *field;
	beton_error *err;
} place;

/* what: the option and its value. */
static int refuse(const place *at, const char *what)
{
	const beton_field *field = at->field;
	if (bt_form_of(field->type) == BT_FORM_IMAGE)
		return bt_fail(at->err, BETON_INVALID_ARGUMENT,
			       "loader options: %s.%s, but field '%s' holds RGB images of 8 bits", at->name, what,
			       field->name);
	return bt_fail(at->err, BETON_INVALID_ARGUMENT,
		       "loader options: %s.%s, but field '%s' holds rasters of %llu channels with %u bits", at->name,
		       what, field->name, (unsigned long long)field->shape[0], 8 * field->item_size);
}

static int check_image_field(const place *at, const beton_image_options *image)
{
	if (image->dtype == BETON_UINT16)
		return refuse(at, "dtype is BETON_UINT16");
	if (image->num_statistics)
		return refuse(at, "num_statistics is given");
	for (int c = 0; c < 3; c++)
		if (image->pad[c] > UINT8_MAX)
			return bt_fail(at->err, BETON_INVALID_ARGUMENT,
				       "loader options: %s.pad[%d] is %u, not 0 to 255", at->name, c, image->pad[c]);
	return BETON_OK;
}

/* The name of an operation that does more than to move pixels or to leave some out; NULL: it does not. */
static const char *find_colouring(const beton_operation *operation)
{
	switch (operation->kind) {
	case BETON_FLIP_HORIZONTAL:
	case BETON_FLIP_VERTICAL:
	case BETON_TRANSLATE:
	case BETON_SHIFT:
	case BETON_CUTOUT:
	case BETON_CUSTOM:
		return NULL;
	case BETON_ROTATE:
		return operation->bilinear ? "ROTATE with bilinear" : NULL;
	case BETON_ERASE:
		return operation->noise ? "ERASE with noise" : NULL;
	case BETON_BRIGHTNESS:
		return "BRIGHTNESS";
	case BETON_CONTRAST:
		return "CONTRAST";
	case BETON_SATURATION:
		return "SATURATION";
	case BETON_HUE:
		return "HUE";
	case BETON_COLOR_JITTER:
		return "COLOR_JITTER";
	case BETON_GRAYSCALE:
		return "GRAYSCALE";
	case BETON_SOLARIZE:
		return "SOLARIZE";
	case BETON_POSTERIZE:
		return "POSTERIZE";
	case BETON_INVERT:
		return "INVERT";
	case BETON_EQUALIZE:
		return "EQUALIZE";
	case BETON_AUTOCONTRAST:
		return "AUTOCONTRAST";
	case BETON_SHARPNESS:
		return "SHARPNESS";
	case BETON_BLUR:
		return "BLUR";
	case BETON_RAND_AUGMENT:
		return "RAND_AUGMENT";
	case BETON_TRIVIAL_AUGMENT:
		return "TRIVIAL_AUGMENT";
	case BETON_POISON:
		return "POISON";
	}
	return "unknown";
}

static int check_operations(const place *at, const beton_image_options *image)
{
	for (uint32_t i = 0; i < image->num_operations; i++) {
		const beton_operation *o = &image->operations[i];
		const char *colouring = find_colouring(o);
		if (!colouring && !o->fill[0] && !o->fill[1] && !o->fill[2])
			continue;
		return bt_fail(at->err, BETON_INVALID_ARGUMENT,
			       "loader options: %s.operations[%u].%s%s, but field '%s' holds rasters", at->name, i,
			       colouring ? "kind is " : "fill is not 0", colouring ? colouring : "", at->field->name);
	}
	return BETON_OK;
}

static int check_statistics(const place *at, const beton_image_options *image)
{
	uint64_t channels = at->field->shape[0];
	if (!image->normalize && image->num_statistics == 0)
		return BETON_OK;
	if (image->num_statistics != channels)
		return bt_fail(at->err, BETON_INVALID_ARGUMENT,
			       "loader options: %s.num_statistics is %u, but field '%s' has %llu channels", at->name,
			       image->num_statistics, at->field->name, (unsigned long long)channels);
	for (uint32_t i = 0; i < 2 * image->num_statistics; i++) {
		bool std = i % 2;
		float value = image->statistics[i];
		if (!isfinite(value) || (std && !(value > 0)))
			return bt_fail(at->err, BETON_INVALID_ARGUMENT,
				       "loader options: %s.statistics[%u], the %s of channel %u, is %g, not finite%s",
				       at->name, i, std ? "std" : "mean", i / 2, (double)value,
				       std ? " and above 0" : "");
	}
	return BETON_OK;
}

static int check_raster_field(const place *at, const beton_image_options *image)
{
	const beton_field *field = at->field;
	bool wide = field->item_size == 2;
	if (image->output == BETON_IMAGE_STORED && field->compression != BETON_COMPRESSION_NONE)
		return bt_fail(at->err, BETON_INVALID_ARGUMENT,
			       "loader options: %s.output is BETON_IMAGE_STORED, but field '%s' is compressed",
			       at->name, field->name);
	if (image->output == BETON_IMAGE_STORED)
		return BETON_OK;
	if (image->color == BETON_COLOR_GREY)
		return refuse(at, "color is BETON_COLOR_GREY");
	if (image->pixels != BETON_PIXELS_FAST)
		return refuse(at, "pixels is not BETON_PIXELS_FAST");
	if (image->dtype == BETON_UINT8 && wide)
		return refuse(at, "dtype is BETON_UINT8, not BETON_UINT16 or floats");
	if (image->dtype == BETON_UINT16 && !wide)
		return refuse(at, "dtype is BETON_UINT16, not BETON_UINT8 or floats");
	if (image->pad[1] || image->pad[2])
		return refuse(at, "pad[1] or pad[2] is given, while pad[0] is that of all channels");
	if (image->pad[0] > UINT8_MAX && !wide)
		return refuse(at, "pad[0] is above 255");
	int result = check_operations(at, image);
	return result ? result : check_statistics(at, image);
}

int bt_options_check_field(const beton_image_options *image, const char *name, const beton_field *field,
			   beton_error *err)
{
	const place at = {name, field, err};
	return bt_form_of(field->type) == BT_FORM_RASTER ? check_raster_field(&at, image)
							 : check_image_field(&at, image);
}
