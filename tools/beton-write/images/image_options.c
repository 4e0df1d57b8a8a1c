/* SPDX-License-Identifier: Apache-2.0 */
#include "image_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/jpeg.h"
#include "common/suggest.h"
#include "common/system.h"
#include "tools/common/text.h"

const char *const image_options_usage =
	"Pictures (JPEG, PNG, WebP, GIF, BMP, TIFF):\n"
	"  -m, --write-mode=MODE     original: keep JPEGs with the same pixels, store others as raw pixels (default)\n"
	"                            jpg: encode every picture as JPEG; raw: store pixels\n"
	"                            smart: encode pictures whose pixels take more than --smart-threshold\n"
	"                            proportion: encode a random part of the pictures\n"
	"      --smart-threshold=N   bytes of pixels, such as 100kB\n"
	"      --compress-probability=P, --compress-seed=N\n"
	"                            for proportion (default 0.5 and 0); seed and bytes of a picture decide\n"
	"  -r, --max-resolution=N    shrink pictures whose longer side has more than N pixels\n"
	"      --shorter-side=N      shrink pictures whose shorter side has more than N pixels\n"
	"      --resize-filter=NAME  area (default), bilinear, bicubic, lanczos\n"
	"  -q, --quality=N           quality of pictures encoded as JPEG, 1 to 100 (default 90)\n"
	"      --subsampling=420|444 chroma subsampling of these JPEGs (default 420)\n"
	"      --keep-bytes          with original: copy JPEG files as they are, do not rewrite them for loading\n"
	"      --no-check            with --keep-bytes: do not read JPEGs to find damage\n"
	"      --ignore-orientation  do not turn pictures upright according to their EXIF\n"
	"      --max-pixels=N        a picture with more pixels is a bad sample (default 89478485)\n"
	"      --background=RRGGBB   colour under transparent pixels (default FFFFFF); none: drop transparency\n";

static const char *const mode_names[] = {
	[WRITE_ORIGINAL] = "original",
	[WRITE_JPG] = "jpg",
	[WRITE_RAW] = "raw",
	[WRITE_SMART] = "smart",
	[WRITE_PROPORTION] = "proportion",
	NULL,
};

static const char *const filter_names[] = {
	[RESIZE_AREA] = "area",
	[RESIZE_BILINEAR] = "bilinear",
	[RESIZE_BICUBIC] = "bicubic",
	[RESIZE_LANCZOS] = "lanczos",
	NULL,
};

static int parse_mode(const char *text, write_mode *mode, beton_error *err)
{
	int found = 0, status = bt_parse_choice("--write-mode", text, mode_names, &found, err);
	*mode = (write_mode)found;
	return status;
}

static int parse_filter(const char *text, resize_filter *filter, beton_error *err)
{
	int found = 0, status = bt_parse_choice("--resize-filter", text, filter_names, &found, err);
	*filter = (resize_filter)found;
	return status;
}

static int parse_subsampling(const char *text, bool *full_colour, beton_error *err)
{
	static const char *const names[] = {"420", "444", NULL};
	int found = 0, status = bt_parse_choice("--subsampling", text, names, &found, err);
	*full_colour = found == 1;
	return status;
}

static int parse_background(image_settings *settings, const char *text, beton_error *err)
{
	settings->blend = strcmp(text, "none") != 0;
	if (!settings->blend)
		return BETON_OK;
	if (strlen(text) != 6 || strspn(text, "0123456789abcdefABCDEF") != 6)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--background: '%s' is not a colour of 6 hexadecimal digits, nor none", text);
	unsigned long colour = strtoul(text, NULL, 16);
	for (int c = 0; c < 3; c++)
		settings->background[c] = (uint8_t)(colour >> (16 - 8 * c));
	return BETON_OK;
}

static int parse_side(const char *what, const char *text, uint32_t *side, beton_error *err)
{
	uint64_t number = 0;
	int result = bt_parse_u64(what, text, 1, UINT16_MAX, &number, err);
	*side = (uint32_t)number;
	return result;
}

bool image_option_known(int option)
{
	return (option >= IMAGE_OPTION_SMART_THRESHOLD && option <= IMAGE_OPTION_MAX_PIXELS) || option == 'm' ||
	       option == 'r' || option == 'q';
}

static int parse_flag(image_settings *settings, int option)
{
	if (option == IMAGE_OPTION_KEEP_BYTES)
		settings->keep_bytes = true;
	else if (option == IMAGE_OPTION_NO_CHECK)
		settings->unchecked = true;
	else
		settings->ignore_orientation = true;
	return BETON_OK;
}

int image_option_parse(image_settings *settings, int option, const char *text, beton_error *err)
{
	uint64_t number = 0;
	int result;
	switch (option) {
	case 'm':
		return parse_mode(text, &settings->mode, err);
	case 'r':
		return parse_side("--max-resolution", text, &settings->max_resolution, err);
	case IMAGE_OPTION_MIN_RESOLUTION:
		return parse_side("--shorter-side", text, &settings->min_resolution, err);
	case 'q':
		result = bt_parse_u64("--quality", text, 1, 100, &number, err);
		settings->quality = (int)number;
		return result;
	case IMAGE_OPTION_SMART_THRESHOLD:
		settings->has_threshold = true;
		return bt_parse_size("--smart-threshold", text, 0, &settings->smart_threshold, err);
	case IMAGE_OPTION_COMPRESS_PROBABILITY:
		return bt_parse_double("--compress-probability", text, 0, 1, &settings->compress_probability, err);
	case IMAGE_OPTION_COMPRESS_SEED:
		return bt_parse_u64("--compress-seed", text, 0, UINT64_MAX, &settings->compress_seed, err);
	case IMAGE_OPTION_RESIZE_FILTER:
		return parse_filter(text, &settings->filter, err);
	case IMAGE_OPTION_SUBSAMPLING:
		return parse_subsampling(text, &settings->full_colour, err);
	case IMAGE_OPTION_MAX_PIXELS:
		return bt_parse_u64("--max-pixels", text, 1, UINT64_MAX, &settings->max_pixels, err);
	case IMAGE_OPTION_BACKGROUND:
		return parse_background(settings, text, err);
	default:
		return parse_flag(settings, option);
	}
}

int image_options_check(const image_settings *settings, beton_error *err)
{
	const char *reason = NULL;
	if (settings->max_resolution && settings->min_resolution)
		reason = "--max-resolution and --shorter-side exclude each other";
	else if (settings->mode == WRITE_SMART && !settings->has_threshold)
		reason = "--write-mode=smart needs --smart-threshold";
	else if (settings->mode != WRITE_SMART && settings->has_threshold)
		reason = "--smart-threshold goes with --write-mode=smart";
	else if (settings->keep_bytes && settings->mode != WRITE_ORIGINAL)
		reason = "--keep-bytes goes with --write-mode=original";
	else if (settings->unchecked && !settings->keep_bytes)
		reason = "--no-check goes with --keep-bytes";
	return reason ? bt_fail(err, BETON_INVALID_ARGUMENT, "%s", reason) : BETON_OK;
}

/* Sets key to value, which it takes. False: no memory. */
static bool set(json_t *object, const char *key, json_t *value)
{
	return json_object_set_new(object, key, value) == 0;
}

/* JSON's numbers are 64 bits with a sign. */
static bool set_as_text(json_t *object, const char *key, uint64_t number)
{
	char text[24];
	snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	return set(object, key, json_string(text));
}

static bool set_number(json_t *object, const char *key, uint32_t number)
{
	return number == 0 || set(object, key, json_integer(number));
}

static bool set_flag(json_t *object, const char *key, bool flag)
{
	return !flag || set(object, key, json_true());
}

static bool add_sizes(const image_settings *settings, json_t *object)
{
	bool shrinks = settings->max_resolution || settings->min_resolution;
	return (!shrinks || set(object, "resize_filter", json_string(filter_names[settings->filter]))) &&
	       set_number(object, "max_resolution", settings->max_resolution) &&
	       set_number(object, "min_resolution", settings->min_resolution);
}

bool image_facts_add(const image_settings *settings, json_t *object)
{
	bool proportion = settings->mode == WRITE_PROPORTION;
	char colour[8];
	snprintf(colour, sizeof(colour), "%02x%02x%02x", settings->background[0], settings->background[1],
		 settings->background[2]);
	return set(object, "write_mode", json_string(mode_names[settings->mode])) &&
	       set(object, "quality", json_integer(settings->quality)) &&
	       set(object, "subsampling", json_string(settings->full_colour ? "444" : "420")) &&
	       add_sizes(settings, object) &&
	       (!settings->has_threshold || set_as_text(object, "smart_threshold", settings->smart_threshold)) &&
	       (!proportion || set(object, "compress_probability", json_real(settings->compress_probability))) &&
	       (!proportion || set_as_text(object, "compress_seed", settings->compress_seed)) &&
	       (settings->max_pixels == BT_MAX_PIXELS_DEFAULT ||
		set_as_text(object, "max_pixels", settings->max_pixels)) &&
	       set_flag(object, "keep_bytes", settings->keep_bytes) &&
	       set_flag(object, "no_check", settings->unchecked) &&
	       set_flag(object, "ignore_orientation", settings->ignore_orientation) &&
	       set(object, "background", json_string(settings->blend ? colour : "none"));
}
