/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <stdio.h>

#include <jpeglib.h>

#include "common/error.h"
#include "common/jpeg_header.h"
#include "escape.h"
#include "partial.h"
#include "scan.h"

/* Making a decoder takes longer than libjpeg takes for less data. */
enum { LEAST_BYTES = 8192 };

typedef struct checker {
	struct jpeg_decompress_struct jpeg;
	bt_jpeg_escape escape;
	bt_scan *scan;
} checker;

/* Reads the header, up to the scan. */
static void begin(checker *self, const uint8_t *data, size_t size, uint64_t max_pixels)
{
	j_decompress_ptr jpeg = &self->jpeg;
	bt_jpeg_escape_open_decoder(&self->escape, jpeg);
	jpeg_mem_src(jpeg, data, (unsigned long)size);
	jpeg_read_header(jpeg, TRUE);
	char why[JMSG_LENGTH_MAX];
	if (!bt_jpeg_header_check(jpeg, max_pixels, why, sizeof(why)))
		bt_jpeg_escape_leave(&self->escape, "%s", why);
}

static void check(checker *self, const uint8_t *data, size_t size, uint64_t max_pixels, bt_index_request *index,
		  bt_jpeg_facts *facts)
{
	j_decompress_ptr jpeg = &self->jpeg;
	begin(self, data, size, max_pixels);
	facts->width = jpeg->image_width;
	facts->height = jpeg->image_height;
	facts->partial = false;
	const uint8_t *end;
	self->scan = size >= LEAST_BYTES ? bt_scan_new() : NULL;
	/* libjpeg needs less memory, but makes no index. */
	if (index && size >= LEAST_BYTES && !self->scan)
		bt_jpeg_escape_leave_no_memory(&self->escape);
	if (self->scan && bt_scan_check(self->scan, jpeg, index, &end)) {
		facts->length = (size_t)(end - data);
		return;
	}
	/* One pixel for each block: every coefficient is decoded, with almost no other work. */
	jpeg->scale_num = 1;
	jpeg->scale_denom = 8;
	jpeg->out_color_space = jpeg->jpeg_color_space;
	jpeg->dct_method = JDCT_IFAST;
	jpeg->do_fancy_upsampling = FALSE;
	jpeg_start_decompress(jpeg);
	facts->partial = bt_jpeg_is_partial(jpeg);
	JSAMPARRAY row = jpeg->mem->alloc_sarray((j_common_ptr)jpeg, JPOOL_IMAGE,
						 jpeg->output_width * (JDIMENSION)jpeg->output_components, 1);
	while (jpeg->output_scanline < jpeg->output_height)
		jpeg_read_scanlines(jpeg, row, 1);
	jpeg_finish_decompress(jpeg);
	facts->length = size - jpeg->src->bytes_in_buffer;
}

static void set_up(checker *self)
{
	*self = (checker){.scan = NULL};
	self->jpeg.err = bt_jpeg_escape_init(&self->escape);
}

static void tear_down(checker *self)
{
	bt_scan_free(self->scan);
	jpeg_destroy_decompress(&self->jpeg);
}

int bt_jpeg_check(const uint8_t *data, size_t size, uint64_t max_pixels, bt_index_request *index, bt_jpeg_facts *facts,
		  beton_error *err)
{
	checker self;
	set_up(&self);
	if (index)
		index->size = 0;
	if (setjmp(self.escape.target) == 0)
		check(&self, data, size, max_pixels, index, facts);
	else
		bt_fail(err, self.escape.code, "its JPEG cannot be decoded: %s", self.escape.message);
	tear_down(&self);
	return self.escape.code;
}

bool bt_jpeg_index(const uint8_t *data, size_t size, uint64_t max_pixels, bt_index_request *index)
{
	checker self;
	set_up(&self);
	index->size = 0;
	if (setjmp(self.escape.target) == 0) {
		const uint8_t *end;
		begin(&self, data, size, max_pixels);
		if (size >= LEAST_BYTES && !self.jpeg.restart_interval) {
			self.scan = bt_scan_new();
			if (!self.scan)
				bt_jpeg_escape_leave_no_memory(&self.escape);
			bt_scan_check(self.scan, &self.jpeg, index, &end);
		}
	}
	tear_down(&self);
	return self.escape.code != BETON_NO_MEMORY;
}
