/* SPDX-License-Identifier: Apache-2.0 */
#include "rgb_pair.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "jpeg/rgb.h"

enum { PARTS = 6 };

typedef struct pair {
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr errors;
	jmp_buf failed;
	rgb_verdict verdict;
	uint8_t *own, *library;
} pair;

static void give_up(j_common_ptr jpeg)
{
	longjmp(((pair *)jpeg->client_data)->failed, 1);
}

static void give_up_on_warning(j_common_ptr jpeg, int level)
{
	if (level < 0)
		give_up(jpeg);
}

/* Whether a part is decoded to its pixels of the whole picture. */
static bool same_part(pair *self, const bt_rgb_request *part)
{
	const struct jpeg_decompress_struct *jpeg = &self->jpeg;
	size_t row = (size_t)part->width * 3, whole_row = (size_t)jpeg->output_width * 3;
	void *memory = malloc(bt_rgb_memory(jpeg, part));
	bt_scan *scan = bt_scan_new();
	bool same = memory && scan && bt_rgb_decode(scan, jpeg, part, memory, self->own);
	for (uint32_t y = 0; same && y < part->height; y++)
		same = memcmp(self->own + y * row, self->library + (part->y + y) * whole_row + (size_t)part->x * 3,
			      row) == 0;
	bt_scan_free(scan);
	free(memory);
	return same;
}

static void compare(pair *self, const uint8_t *data, size_t size, unsigned int divisor, uint64_t max_pixels)
{
	struct jpeg_decompress_struct *jpeg = &self->jpeg;
	jpeg_create_decompress(jpeg);
	jpeg_mem_src(jpeg, data, (unsigned long)size);
	jpeg_read_header(jpeg, TRUE);
	if ((uint64_t)jpeg->image_width * jpeg->image_height > max_pixels || jpeg->num_components == 4)
		return;
	jpeg->scale_denom = divisor;
	jpeg->out_color_space = JCS_RGB;
	jpeg_calc_output_dimensions(jpeg);
	size_t row = (size_t)jpeg->output_width * 3, bytes = row * jpeg->output_height;
	self->own = malloc(bytes);
	self->library = malloc(bytes);
	if (!self->own || !self->library || !bt_rgb_decode_whole(jpeg, self->own))
		return;
	self->verdict = RGB_DIFFERS;
	jpeg_start_decompress(jpeg);
	while (jpeg->output_scanline < jpeg->output_height) {
		JSAMPROW at = self->library + jpeg->output_scanline * row;
		jpeg_read_scanlines(jpeg, &at, 1);
	}
	jpeg_finish_decompress(jpeg);
	if (memcmp(self->own, self->library, bytes) == 0)
		self->verdict = RGB_SAME;
	/* The header is needed again for parts. */
	uint32_t width = jpeg->output_width, height = jpeg->output_height;
	for (uint32_t i = 1; i <= PARTS && self->verdict == RGB_SAME; i++) {
		bt_rgb_request part = {.width = 1 + size * i % width, .height = 1 + size * 7 * i % height};
		part.x = (uint32_t)(size / 3 * i % (width - part.width + 1));
		part.y = (uint32_t)(size / 5 * i % (height - part.height + 1));
		jpeg_mem_src(jpeg, data, (unsigned long)size);
		jpeg_read_header(jpeg, TRUE);
		jpeg->scale_denom = divisor;
		jpeg->out_color_space = JCS_RGB;
		jpeg_calc_output_dimensions(jpeg);
		if (!same_part(self, &part))
			self->verdict = RGB_DIFFERS;
		jpeg_abort_decompress(jpeg);
	}
}

rgb_verdict compare_rgb(const uint8_t *data, size_t size, unsigned int divisor, uint64_t max_pixels)
{
	pair self = {.verdict = RGB_LEFT};
	self.jpeg.err = jpeg_std_error(&self.errors);
	self.jpeg.client_data = &self;
	self.errors.error_exit = give_up;
	self.errors.emit_message = give_up_on_warning;
	if (setjmp(self.failed) == 0)
		compare(&self, data, size, divisor, max_pixels);
	jpeg_destroy_decompress(&self.jpeg);
	free(self.own);
	free(self.library);
	return self.verdict;
}
