/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of beton-write that concern pictures. */
#ifndef BETON_WRITE_IMAGE_OPTIONS_H
#define BETON_WRITE_IMAGE_OPTIONS_H

#include <jansson.h>

#include "image.h"

/* Options without a letter; above the values in options.c. */
enum {
	IMAGE_OPTION_SMART_THRESHOLD = 1024,
	IMAGE_OPTION_COMPRESS_PROBABILITY,
	IMAGE_OPTION_COMPRESS_SEED,
	IMAGE_OPTION_MIN_RESOLUTION,
	IMAGE_OPTION_RESIZE_FILTER,
	IMAGE_OPTION_SUBSAMPLING,
	IMAGE_OPTION_KEEP_BYTES,
	IMAGE_OPTION_NO_CHECK,
	IMAGE_OPTION_IGNORE_ORIENTATION,
	IMAGE_OPTION_BACKGROUND,
	IMAGE_OPTION_MAX_PIXELS,
};

/* For the table of getopt_long. */
#define IMAGE_LONG_OPTIONS                                                                              \
	{"write-mode", required_argument, NULL, 'm'}, {"max-resolution", required_argument, NULL, 'r'}, \
		{"quality", required_argument, NULL, 'q'},                                              \
		{"smart-threshold", required_argument, NULL, IMAGE_OPTION_SMART_THRESHOLD},             \
		{"compress-probability", required_argument, NULL, IMAGE_OPTION_COMPRESS_PROBABILITY},   \
		{"compress-seed", required_argument, NULL, IMAGE_OPTION_COMPRESS_SEED},                 \
		{"shorter-side", required_argument, NULL, IMAGE_OPTION_MIN_RESOLUTION},                 \
		{"min-resolution", required_argument, NULL, IMAGE_OPTION_MIN_RESOLUTION},               \
		{"resize-filter", required_argument, NULL, IMAGE_OPTION_RESIZE_FILTER},                 \
		{"subsampling", required_argument, NULL, IMAGE_OPTION_SUBSAMPLING},                     \
		{"keep-bytes", no_argument, NULL, IMAGE_OPTION_KEEP_BYTES},                             \
		{"no-check", no_argument, NULL, IMAGE_OPTION_NO_CHECK},                                 \
		{"ignore-orientation", no_argument, NULL, IMAGE_OPTION_IGNORE_ORIENTATION},             \
		{"max-pixels", required_argument, NULL, IMAGE_OPTION_MAX_PIXELS},                       \
	{                                                                                               \
		"background", required_argument, NULL, IMAGE_OPTION_BACKGROUND                          \
	}

/* Their part of --help. */
extern const char *const image_options_usage;

/* True if option is one of them. */
bool image_option_known(int option);

/* Takes one of them. Errors: INVALID_ARGUMENT. */
int image_option_parse(image_settings *settings, int option, const char *text, beton_error *err);

/* After the last option: do they go together? Errors: INVALID_ARGUMENT. */
int image_options_check(const image_settings *settings, beton_error *err);

/* Adds what makes a difference to object: equal settings, equal entries. False: no memory. */
bool image_facts_add(const image_settings *settings, json_t *object);

#endif
