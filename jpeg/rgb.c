/* SPDX-License-Identifier: Apache-2.0 */
#include "rgb.h"

#include <stdlib.h>
#include <string.h>

#include "common/isa.h"

#define TARGET

#include "rgb_lanes.h"

enum { ROW_UNIT = 64 }; /* bytes; rows of planes are whole ones */

const bt_rgb_kernels bt_rgb_c = {.name = "c", .add = add, .spread = spread, .convert = convert_rest};

const bt_rgb_kernels *bt_rgb_get(unsigned index)
{
	const bt_rgb_kernels *list[2];
	unsigned count = 0;
#ifdef __x86_64__
	if (bt_isa_level() >= BT_ISA_AVX2)
		list[count++] = &bt_rgb_avx2;
#elif defined(__aarch64__)
	list[count++] = &bt_rgb_neon;
#endif
	list[count++] = &bt_rgb_c;
	return index < count ? list[index] : NULL;
}

typedef struct picture {
	const struct jpeg_decompress_struct *jpeg;
	const bt_rgb_request *part;
	const bt_rgb_kernels *kernels;
	bt_scan_request planes;
	uint32_t mcu_width, mcu_height; /* pixels */
	uint32_t across, down;          /* pixels of a sample of colour: 1 or 2 */
	uint32_t width, height;         /* samples of colour of the whole picture */
	uint16_t *sums;                 /* of a row of colour, with one on each side */
	uint8_t *colours[2];            /* a row of Cb and of Cr in full width */
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

static uint32_t least_of(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Chooses the MCUs: the part's, and MCUs with the samples of colour around it. */
static void choose_mcus(picture *self)
{
	enum { MARGIN = 4 };
	const struct jpeg_decompress_struct *jpeg = self->jpeg;
	const bt_rgb_request *part = self->part;
	bool alone = jpeg->num_components == 1; /* its MCU is one block */
	uint32_t size = (uint32_t)jpeg->comp_info[0].DCT_scaled_size;
	self->mcu_width = size * (alone ? 1 : (uint32_t)jpeg->max_h_samp_factor);
	self->mcu_height = size * (alone ? 1 : (uint32_t)jpeg->max_v_samp_factor);
	uint32_t margin_x = self->across == 2 ? MARGIN : 0, margin_y = self->down == 2 ? MARGIN : 0;
	uint32_t end_x = least_of(part->x + part->width + margin_x, jpeg->output_width);
	uint32_t end_y = least_of(part->y + part->height + margin_y, jpeg->output_height);
	self->planes = (bt_scan_request){
		.begin_x = (part->x - least_of(part->x, margin_x)) / self->mcu_width,
		.begin_y = (part->y - least_of(part->y, margin_y)) / self->mcu_height,
		.end_x = (end_x + self->mcu_width - 1) / self->mcu_width,
		.end_y = (end_y + self->mcu_height - 1) / self->mcu_height,
		.index = part->index,
		.index_size = part->index_size,
	};
}

/* Divides the memory, or, of NULL, only tells how many bytes it has. */
static size_t place(picture *self, uint8_t *memory)
{
	const struct jpeg_decompress_struct *jpeg = self->jpeg;
	bool alone = jpeg->num_components == 1;
	bt_scan_request *planes = &self->planes;
	size_t total = 0;
	for (int i = 0; i < jpeg->num_components; i++) {
		const jpeg_component_info *info = &jpeg->comp_info[i];
		size_t width = (planes->end_x - planes->begin_x) *
			       (size_t)((alone ? 1 : info->h_samp_factor) * info->DCT_scaled_size);
		size_t height = (planes->end_y - planes->begin_y) *
				(size_t)((alone ? 1 : info->v_samp_factor) * info->DCT_scaled_size);
		planes->strides[i] = (width + ROW_UNIT - 1) / ROW_UNIT * ROW_UNIT;
		planes->planes[i] = memory ? memory + total : NULL;
		total += planes->strides[i] * height;
	}
	size_t row = planes->strides[0] + 4;
	if (memory) {
		self->sums = (uint16_t *)(memory + total) + 1;
		self->colours[0] = memory + total + row * sizeof(*self->sums);
		self->colours[1] = self->colours[0] + row;
	}
	return total + row * (sizeof(*self->sums) + 2);
}

/* The samples of a component from that column and row on, both of the whole picture. */
static const uint8_t *samples_at(const picture *self, int component, uint32_t column, uint32_t row)
{
	const bt_scan_request *planes = &self->planes;
	uint32_t across = component ? self->across : 1, down = component ? self->down : 1;
	uint32_t x = column - planes->begin_x * (self->mcu_width / across);
	uint32_t y = row - planes->begin_y * (self->mcu_height / down);
	return planes->planes[component] + y * planes->strides[component] + x;
}

/* A row of Cb or Cr of the part, in full width. Rows above and below the picture, and samples beside it, are as the
 * last ones. */
static const uint8_t *widen_colour(picture *self, int component, uint32_t y)
{
	static const uint16_t biases[][2] = {{4, 8}, {8, 7}};
	uint32_t row = y / self->down, other = row, x = self->part->x;
	if (self->across == 1)
		return samples_at(self, component, x, row);
	if (self->down == 2 && y % 2 == 0 && row > 0)
		other = row - 1;
	if (self->down == 2 && y % 2 == 1 && row + 1 < self->height)
		other = row + 1;
	uint32_t begin = x / 2, end = (x + self->part->width + 1) / 2;
	uint32_t left = begin > 0, right = end < self->width;
	uint16_t *sums = self->sums;
	self->kernels->add(samples_at(self, component, begin - left, row),
			   samples_at(self, component, begin - left, other), end - begin + left + right, sums - left);
	if (!left)
		sums[-1] = sums[0];
	if (!right)
		sums[end - begin] = sums[end - begin - 1];
	uint8_t *colours = self->colours[component - 1];
	self->kernels->spread(sums, end - begin, biases[self->down - 1], colours);
	return colours + x % 2;
}

static void convert_part(picture *self, uint8_t *out)
{
	const bt_rgb_request *part = self->part;
	for (uint32_t y = part->y; y < part->y + part->height; y++, out += (size_t)part->width * 3) {
		const uint8_t *luma = samples_at(self, 0, part->x, y);
		if (self->jpeg->num_components == 1)
			for (uint32_t x = 0; x < part->width; x++)
				memset(out + (size_t)x * 3, luma[x], 3);
		else
			self->kernels->convert(luma, widen_colour(self, 1, y), widen_colour(self, 2, y), part->width,
					       out);
	}
}

/* False: libjpeg has to decode this kind. */
static bool begin(picture *self, const struct jpeg_decompress_struct *jpeg, const bt_rgb_request *part)
{
	*self = (picture){.jpeg = jpeg, .part = part, .kernels = bt_rgb_get(0)};
	if (!read_kind(self))
		return false;
	choose_mcus(self);
	return true;
}

size_t bt_rgb_memory(const struct jpeg_decompress_struct *jpeg, const bt_rgb_request *request)
{
	picture self;
	return begin(&self, jpeg, request) ? place(&self, NULL) : 0;
}

bool bt_rgb_decode(bt_scan *scan, const struct jpeg_decompress_struct *jpeg, const bt_rgb_request *request,
		   void *memory, uint8_t *out)
{
	picture self;
	if (!begin(&self, jpeg, request))
		return false;
	place(&self, memory);
	if (!bt_scan_decode(scan, jpeg, &self.planes))
		return false;
	convert_part(&self, out);
	return true;
}

bool bt_rgb_decode_whole(const struct jpeg_decompress_struct *jpeg, uint8_t *out)
{
	const bt_rgb_request whole = {.width = jpeg->output_width, .height = jpeg->output_height};
	size_t bytes = bt_rgb_memory(jpeg, &whole);
	void *memory = bytes ? malloc(bytes) : NULL;
	bt_scan *scan = memory ? bt_scan_new() : NULL;
	bool good = scan && bt_rgb_decode(scan, jpeg, &whole, memory, out);
	bt_scan_free(scan);
	free(memory);
	return good;
}
