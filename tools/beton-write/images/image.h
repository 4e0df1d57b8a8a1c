/* SPDX-License-Identifier: Apache-2.0
 *
 * Pixels of pictures, and the settings of their conversion.
 */
#ifndef BETON_WRITE_IMAGE_H
#define BETON_WRITE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

typedef enum write_mode {
	WRITE_ORIGINAL,   /* JPEG stays JPEG, with the same pixels; other pictures as raw pixels */
	WRITE_JPG,        /* everything encoded as JPEG */
	WRITE_RAW,        /* everything as raw pixels */
	WRITE_SMART,      /* encoded as JPEG where raw pixels would take more than smart_threshold bytes */
	WRITE_PROPORTION, /* encoded as JPEG with compress_probability, else raw */
} write_mode;

typedef enum resize_filter {
	RESIZE_AREA,
	RESIZE_BILINEAR,
	RESIZE_BICUBIC,
	RESIZE_LANCZOS, /* of three lobes */
} resize_filter;

typedef struct image_settings {
	write_mode mode;
	uint32_t max_resolution; /* pixels of the longer side; 0: no limit */
	uint32_t min_resolution; /* shrink until the shorter side has this many pixels; 0: do not; not with a maximum */
	resize_filter filter;
	int quality;              /* of JPEGs encoded here, 1..100 */
	bool full_colour;         /* these have 4:4:4, not 4:2:0 */
	bool keep_bytes;          /* ORIGINAL: store JPEG files byte for byte, unless they must be turned */
	bool unchecked;           /* with keep_bytes: do not read JPEGs to find damage */
	bool no_index;            /* with keep_bytes: make no index of JPEGs without restart markers */
	bool ignore_orientation;  /* ignore EXIF's orientation */
	bool blend;               /* blend transparent pictures with background; else drop transparency */
	uint8_t background[3];    /* RGB */
	uint64_t smart_threshold; /* bytes; where has_threshold */
	bool has_threshold;
	double compress_probability; /* 0..1 */
	uint64_t max_pixels;         /* of a picture file that is decoded */
	uint64_t compress_seed;      /* which pictures become JPEGs depends on this and on the bytes of each */
} image_settings;

/* Quality 90, area, white background, 89,478,485 pixels. */
void image_settings_init(image_settings *settings);

/* Rows of 3 bytes a pixel, without padding; data is the owner's to free. */
typedef struct rgb_image {
	uint8_t *data;
	uint32_t width;
	uint32_t height;
} rgb_image;

typedef enum image_kind {
	IMAGE_UNKNOWN,
	IMAGE_JPEG,
	IMAGE_PNG,
	IMAGE_WEBP,
	IMAGE_GIF,
	IMAGE_BMP,
	IMAGE_TIFF,
} image_kind;

/* The kind of a file with this beginning; 12 bytes are enough. */
image_kind image_kind_of(const uint8_t *head, size_t size);

/* Whether a picture file of that size is decoded. Errors: SAMPLE_CORRUPT. */
int image_check_size(const image_settings *settings, uint64_t width, uint64_t height, const char *name,
		     beton_error *err);

/* Memory for width x height pixels; sides are at most 65535. */
int image_allocate(rgb_image *image, uint64_t width, uint64_t height, const char *name, beton_error *err);

/* The same with that many bytes a pixel. */
int image_allocate_channels(rgb_image *image, uint64_t width, uint64_t height, int channels, const char *name,
			    beton_error *err);

/* Makes RGB of RGBA (4 bytes a pixel), in place. */
void image_blend(rgb_image *image, const image_settings *settings);

#endif
