/* SPDX-License-Identifier: Apache-2.0 */
#include "crop.h"

#include <math.h>

#include "common/elementary.h"

enum { TRIES = 10 };

/* A length of 1 .. most pixels, rounded half to even as Python's round does. */
static uint32_t clamp_round(double length, uint32_t most)
{
	double rounded = nearbyint(length);
	if (!(rounded >= 1))
		return 1;
	return rounded < most ? (uint32_t)rounded : most;
}

static bt_rect centred(uint32_t width, uint32_t height, uint32_t crop_width, uint32_t crop_height)
{
	return (bt_rect){(width - crop_width) / 2, (height - crop_height) / 2, crop_width, crop_height};
}

/* An integer offset, uniform in 0 .. room. */
static uint32_t offset(uint32_t room, bt_random *random)
{
	uint32_t value = (uint32_t)bt_random_uniform(random, 0, (double)room + 1);
	return value < room ? value : room;
}

bt_rect bt_crop_random(uint32_t width, uint32_t height, const double scale[2], const double ratio[2], bt_random *random)
{
	double area = (double)width * height;
	double log_least = bt_log(ratio[0]);
	double log_most = bt_log(ratio[1]);
	for (int i = 0; i < TRIES; i++) {
		double target = area * bt_random_uniform(random, scale[0], scale[1]);
		double aspect = bt_exp(bt_random_uniform(random, log_least, log_most));
		double crop_width = nearbyint(sqrt(target * aspect));
		double crop_height = nearbyint(sqrt(target / aspect));
		if (crop_width < 1 || crop_width > width || crop_height < 1 || crop_height > height)
			continue;
		bt_rect rect = {.width = (uint32_t)crop_width, .height = (uint32_t)crop_height};
		rect.y = offset(height - rect.height, random);
		rect.x = offset(width - rect.width, random);
		return rect;
	}
	double shape = (double)width / height;
	if (shape < ratio[0])
		return centred(width, height, width, clamp_round(width / ratio[0], height));
	if (shape > ratio[1])
		return centred(width, height, clamp_round(height * ratio[1], width), height);
	return centred(width, height, width, height);
}

bt_rect bt_crop_center(uint32_t width, uint32_t height, double center_ratio)
{
	uint32_t shorter = width < height ? width : height;
	uint32_t side = (uint32_t)(center_ratio * shorter);
	side = side < 1 ? 1 : side;
	return centred(width, height, side, side);
}

/* Pillow's ImageOps.contain. */
static bt_placement contain(const bt_rect *crop, uint32_t width, uint32_t height)
{
	double ratio = (double)crop->width / crop->height, wanted = (double)width / height;
	bt_placement place = {.width = width, .height = height};
	if (ratio > wanted)
		place.height = clamp_round((double)crop->height / crop->width * width, height);
	else if (ratio < wanted)
		place.width = clamp_round((double)crop->width / crop->height * height, width);
	return place;
}

/* torchvision's Resize and CenterCrop along one axis. */
static int32_t centre_of(uint32_t size, uint32_t out)
{
	return size > out ? -(int32_t)nearbyint((size - out) * 0.5) : (int32_t)((out - size) / 2);
}

static bt_placement cut_out(const beton_image_options *image, const bt_rect *crop)
{
	uint32_t shorter = bt_min_u32(crop->width, crop->height), side = image->shorter_side;
	bt_placement place = {.width = (uint32_t)((uint64_t)side * crop->width / shorter),
			      .height = (uint32_t)((uint64_t)side * crop->height / shorter)};
	place.x = centre_of(place.width, image->width);
	place.y = centre_of(place.height, image->height);
	return place;
}

bt_placement bt_crop_fit(const beton_image_options *image, const bt_rect *crop)
{
	uint32_t width = image->width, height = image->height;
	if (image->fit == BETON_FIT_STRETCH)
		return (bt_placement){.width = width, .height = height};
	if (image->fit == BETON_FIT_SHORTER_SIDE)
		return cut_out(image, crop);
	bt_placement place = contain(crop, width, height);
	if (image->keep_small && crop->width < width && crop->height < height)
		place = (bt_placement){.width = crop->width, .height = crop->height};
	if (image->fit == BETON_FIT_PAD_CENTER) {
		place.x = (int32_t)nearbyint((width - place.width) * 0.5);
		place.y = (int32_t)nearbyint((height - place.height) * 0.5);
	}
	return place;
}

/* Part of an axis. */
typedef struct range {
	uint32_t begin;
	uint32_t count;
} range;

static range visible(int64_t place, uint32_t size, uint32_t out)
{
	int64_t begin = place < 0 ? -place : 0, end = out - place < size ? out - place : size;
	return (range){(uint32_t)begin, (uint32_t)(end - begin)};
}

/* The pixels of a crop of `size` pixels, resized to `whole`, that a part of the result needs. */
static range needed(uint32_t size, uint32_t whole, range part)
{
	/* A sample of chroma at 1/8 is as wide as SAMPLE pixels, and filters reach as far as a sample of either side.
	 */
	enum { SAMPLE = 32 };
	double scale = (double)size / whole, reach = (scale > SAMPLE ? scale : SAMPLE) + SAMPLE;
	double begin = floor(part.begin * scale - reach), end = ceil(((double)part.begin + part.count) * scale + reach);
	range out = {.begin = begin > 0 ? (uint32_t)begin : 0};
	out.count = (end < size ? (uint32_t)end : size) - out.begin;
	return out;
}

bt_rect bt_crop_visible(const bt_placement *place, uint32_t width, uint32_t height)
{
	range x = visible(place->x, place->width, width), y = visible(place->y, place->height, height);
	return (bt_rect){x.begin, y.begin, x.count, y.count};
}

bt_rect bt_crop_needed(const bt_rect *crop, const bt_placement *place, uint32_t width, uint32_t height)
{
	range x = needed(crop->width, place->width, visible(place->x, place->width, width));
	range y = needed(crop->height, place->height, visible(place->y, place->height, height));
	return (bt_rect){crop->x + x.begin, crop->y + y.begin, x.count, y.count};
}
