/* SPDX-License-Identifier: Apache-2.0 */
#include "rgb.h"

#include <stdlib.h>
#include <string.h>

#include "scan.h"

#define TARGET

#include "rgb_lanes.h"

enum { ROW_UNIT = 64 }; /* bytes; rows of planes are whole ones */

const bt_rgb_kernels bt_rgb_c = {.name = "c", .add = add, .spread = spread, .convert = convert_rest};

const bt_rgb_kernels *bt_rgb_get(unsigned index)
{
	const bt_rgb_kernels *list[2];
	unsigned count = 0;
#ifdef __x86_64__
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2"))
		list[count++] = &bt_rgb_avx2;
#elif defined(__aarch64__)
	list[count++] = &bt_rgb_neon;
#endif
	list[count++] = &bt_rgb_c;
	return index < count ? list[index] : NULL;
}

typedef struct picture {
	const struct jpeg_decompress_struct *jpeg;
	const bt_rgb_kernels *kernels;
	bt_scan_request planes;
	uint32_t across, down;  /* pixels of a sample of colour: 1 or 2 */
	uint32_t width, height; /* samples of colour */
	uint8_t *memory;
	uint16_t *sums;      /* of a row of colour, with one on each side */
	uint8_t *colours[2]; /* a row of Cb and of Cr in full width */
} picture;

/* Pixels of a component's sample along an axis; 0: not a whole number. */
static uint32_t pixels_of(int most, int factor, int least_size, int size)
{
	return (most * least_size) % (factor * size) ? 0 : (uint32_t)(most * least_size / (factor * size));
}

/* Whether colour is made as below. libjpeg repeats it where rows are narrow or blocks have one sample. */
static bool read_kind(picture *self)
{
	const struct jpeg_decompress_struct *jpeg = self->jpeg;
	self->across = self->down = 1;
	if (!bt_scan_is_common(jpeg) || jpeg->out_color_space != JCS_RGB)
		return false;
	if (jpeg->num_components == 1)
		return jpeg->jpeg_color_space == JCS_GRAYSCALE;
	const jpeg_component_info *luma = &jpeg->comp_info[0], *colour = &jpeg->comp_info[1];
	int least = jpeg->min_DCT_scaled_size;
	self->across = pixels_of(jpeg->max_h_samp_factor, colour->h_samp_factor, least, colour->DCT_scaled_size);
	self->down = pixels_of(jpeg->max_v_samp_factor, colour->v_samp_factor, least, colour->DCT_scaled_size);
	self->width = colour->downsampled_width;
	self->height = colour->downsampled_height;
	bool even = self->across == 1 && self->down == 1;
	bool fancy = self->across == 2 && (self->down == 1 || self->down == 2) && least > 1 && self->width > 2;
	return jpeg->jpeg_color_space == JCS_YCbCr && luma->h_samp_factor == jpeg->max_h_samp_factor &&
	       luma->v_samp_factor == jpeg->max_v_samp_factor && luma->DCT_scaled_size == least && (even || fancy);
}

static bool allocate(picture *self)
{
	const struct jpeg_decompress_struct *jpeg = self->jpeg;
	bool alone = jpeg->num_components == 1; /* its MCU is one block */
	uint32_t mcu_width = DCTSIZE * (alone ? 1 : (uint32_t)jpeg->max_h_samp_factor);
	uint32_t mcu_height = DCTSIZE * (alone ? 1 : (uint32_t)jpeg->max_v_samp_factor);
	bt_scan_request *planes = &self->planes;
	*planes = (bt_scan_request){.end_x = (jpeg->image_width + mcu_width - 1) / mcu_width,
				    .end_y = (jpeg->image_height + mcu_height - 1) / mcu_height};
	size_t offsets[BT_SCAN_COMPONENTS], total = 0;
	for (int i = 0; i < jpeg->num_components; i++) {
		const jpeg_component_info *info = &jpeg->comp_info[i];
		size_t width = planes->end_x * (size_t)((alone ? 1 : info->h_samp_factor) * info->DCT_scaled_size);
		size_t height = planes->end_y * (size_t)((alone ? 1 : info->v_samp_factor) * info->DCT_scaled_size);
		planes->strides[i] = (width + ROW_UNIT - 1) / ROW_UNIT * ROW_UNIT;
		offsets[i] = total;
		total += planes->strides[i] * height;
	}
	size_t row = planes->strides[0] + 2;
	self->memory = malloc(total + row * (sizeof(*self->sums) + 2));
	if (!self->memory)
		return false;
	for (int i = 0; i < jpeg->num_components; i++)
		planes->planes[i] = self->memory + offsets[i];
	self->sums = (uint16_t *)(self->memory + total) + 1;
	self->colours[0] = self->memory + total + row * sizeof(*self->sums);
	self->colours[1] = self->colours[0] + row;
	return true;
}

/* A row of Cb or Cr in full width. Rows above and below the picture, and samples beside it, are as the last ones. */
static const uint8_t *widen_colour(picture *self, int component, uint32_t y)
{
	static const uint16_t biases[][2] = {{4, 8}, {8, 7}};
	const uint8_t *plane = self->planes.planes[component];
	size_t stride = self->planes.strides[component];
	uint32_t row = y / self->down, other = row;
	if (self->across == 1)
		return plane + row * stride;
	if (self->down == 2 && y % 2 == 0 && row > 0)
		other = row - 1;
	if (self->down == 2 && y % 2 == 1 && row + 1 < self->height)
		other = row + 1;
	self->kernels->add(plane + row * stride, plane + other * stride, self->width, self->sums);
	self->sums[-1] = self->sums[0];
	self->sums[self->width] = self->sums[self->width - 1];
	self->kernels->spread(self->sums, self->width, biases[self->down - 1], self->colours[component - 1]);
	return self->colours[component - 1];
}

static void convert_picture(picture *self, uint8_t *out)
{
	uint32_t width = self->jpeg->output_width;
	for (uint32_t y = 0; y < self->jpeg->output_height; y++, out += (size_t)width * 3) {
		const uint8_t *luma = self->planes.planes[0] + y * self->planes.strides[0];
		if (self->jpeg->num_components == 1)
			for (uint32_t x = 0; x < width; x++)
				memset(out + (size_t)x * 3, luma[x], 3);
		else
			self->kernels->convert(luma, widen_colour(self, 1, y), widen_colour(self, 2, y), width, out);
	}
}

bool bt_rgb_decode(const struct jpeg_decompress_struct *jpeg, uint8_t *out)
{
	picture self = {.jpeg = jpeg, .kernels = bt_rgb_get(0)};
	bt_scan *scan = NULL;
	bool good = read_kind(&self) && allocate(&self) && (scan = bt_scan_new()) &&
		    bt_scan_decode(scan, jpeg, &self.planes);
	if (good)
		convert_picture(&self, out);
	bt_scan_free(scan);
	free(self.memory);
	return good;
}
