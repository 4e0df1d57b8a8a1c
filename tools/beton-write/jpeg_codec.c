/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg_codec.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

#include "common/error.h"
#include "common/jpeg.h"

/* libjpeg leaves a failing call by longjmp; everything that the way out needs is in here. */
typedef struct escape {
	struct jpeg_error_mgr errors;
	jmp_buf target;
	char message[JMSG_LENGTH_MAX];
} escape;

typedef struct decoder {
	struct jpeg_decompress_struct info;
	struct jpeg_progress_mgr progress;
	escape escape;
	uint8_t *row;
	rgb_image image;
} decoder;

static void leave(j_common_ptr info)
{
	escape *way = (escape *)info->err;
	way->errors.format_message(info, way->message);
	longjmp(way->target, 1);
}

static void leave_on_warning(j_common_ptr info, int level)
{
	if (level < 0)
		leave(info);
}

static void leave_on_many_scans(j_common_ptr info)
{
	if (info->is_decompressor && ((j_decompress_ptr)info)->input_scan_number > BT_JPEG_SCANS_MAX) {
		escape *way = (escape *)info->err;
		snprintf(way->message, sizeof(way->message), "more than %d scans", BT_JPEG_SCANS_MAX);
		longjmp(way->target, 1);
	}
}

static struct jpeg_error_mgr *init_escape(escape *way)
{
	jpeg_std_error(&way->errors);
	way->errors.error_exit = leave;
	way->errors.emit_message = leave_on_warning;
	way->message[0] = 0;
	return &way->errors;
}

/* Up to the header, whose size is checked before the library takes memory for it. */
static void start(decoder *self, const uint8_t *data, size_t size)
{
	jpeg_create_decompress(&self->info);
	self->progress.progress_monitor = leave_on_many_scans;
	self->info.progress = &self->progress;
	jpeg_mem_src(&self->info, data, (unsigned long)size);
	jpeg_read_header(&self->info, TRUE);
	if ((uint64_t)self->info.image_width * self->info.image_height > BT_IMAGE_PIXELS_MAX) {
		snprintf(self->escape.message, sizeof(self->escape.message),
			 "%u x %u pixels; a picture has at most %llu", self->info.image_width, self->info.image_height,
			 (unsigned long long)BT_IMAGE_PIXELS_MAX);
		longjmp(self->escape.target, 1);
	}
}

static int fail(decoder *self, const char *path, beton_error *err)
{
	jpeg_destroy_decompress(&self->info);
	free(self->row);
	free(self->image.data);
	return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: its JPEG cannot be decoded: %s", path, self->escape.message);
}

static bool is_cmyk(const struct jpeg_decompress_struct *info)
{
	return info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
}

int jpeg_inspect(const uint8_t *data, size_t size, const char *path, jpeg_facts *facts, beton_error *err)
{
	decoder self = {.row = NULL};
	self.info.err = init_escape(&self.escape);
	if (setjmp(self.escape.target))
		return fail(&self, path, err);
	start(&self, data, size);
	*facts = (jpeg_facts){self.info.image_width, self.info.image_height, !is_cmyk(&self.info)};
	jpeg_destroy_decompress(&self.info);
	return BETON_OK;
}

int jpeg_check(const uint8_t *data, size_t size, const char *path, beton_error *err)
{
	decoder self = {.row = NULL};
	self.info.err = init_escape(&self.escape);
	if (setjmp(self.escape.target))
		return fail(&self, path, err);
	start(&self, data, size);
	/* The pixels are not kept, so the cheapest arithmetic will do. */
	self.info.dct_method = JDCT_IFAST;
	self.info.do_fancy_upsampling = FALSE;
	jpeg_start_decompress(&self.info);
	JSAMPARRAY row =
		self.info.mem->alloc_sarray((j_common_ptr)&self.info, JPOOL_IMAGE,
					    self.info.output_width * (JDIMENSION)self.info.output_components, 1);
	while (self.info.output_scanline < self.info.output_height)
		jpeg_read_scanlines(&self.info, row, 1);
	jpeg_finish_decompress(&self.info);
	jpeg_destroy_decompress(&self.info);
	return BETON_OK;
}

static void read_rows(decoder *self)
{
	bool cmyk = is_cmyk(&self->info);
	while (self->info.output_scanline < self->info.output_height) {
		JSAMPROW to = self->image.data + (size_t)self->info.output_scanline * self->image.width * 3;
		JSAMPROW row = cmyk ? self->row : to;
		if (jpeg_read_scanlines(&self->info, &row, 1) == 1 && cmyk)
			bt_cmyk_to_rgb(self->row, to, self->image.width);
	}
}

int jpeg_decode(const uint8_t *data, size_t size, const char *path, rgb_image *image, beton_error *err)
{
	decoder self = {.row = NULL};
	self.info.err = init_escape(&self.escape);
	if (setjmp(self.escape.target))
		return fail(&self, path, err);
	start(&self, data, size);
	self.info.out_color_space = is_cmyk(&self.info) ? JCS_CMYK : JCS_RGB;
	jpeg_start_decompress(&self.info);
	self.row = malloc((size_t)self.info.output_width * 4);
	int result = self.row ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (result == BETON_OK)
		result = image_allocate(&self.image, self.info.output_width, self.info.output_height, path, err);
	if (result != BETON_OK) {
		jpeg_destroy_decompress(&self.info);
		free(self.row);
		return result;
	}
	read_rows(&self);
	jpeg_finish_decompress(&self.info);
	jpeg_destroy_decompress(&self.info);
	free(self.row);
	*image = self.image;
	return BETON_OK;
}

typedef struct encoder {
	struct jpeg_compress_struct info;
	escape escape;
	uint8_t *room;
	uint8_t *data; /* room, unless libjpeg took a larger buffer */
	unsigned long size;
} encoder;

int jpeg_encode(const rgb_image *image, int quality, const char *path, uint8_t **data, size_t *size, beton_error *err)
{
	/* Room for nearly anything, so that libjpeg need not take a larger buffer: when that fails half-way, its own
	 * first buffer is freed already, and data still points there. */
	size_t room_size = ((size_t)image->width + 15) * ((size_t)image->height + 15) * 3 + 2048;
	encoder self = {.room = malloc(room_size)};
	if (!self.room)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	self.info.err = init_escape(&self.escape);
	if (setjmp(self.escape.target)) {
		jpeg_destroy_compress(&self.info);
		free(self.room);
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: cannot be encoded as JPEG: %s", path,
			       self.escape.message);
	}
	jpeg_create_compress(&self.info);
	self.data = self.room;
	self.size = (unsigned long)room_size;
	jpeg_mem_dest(&self.info, &self.data, &self.size);
	self.info.image_width = image->width;
	self.info.image_height = image->height;
	self.info.input_components = 3;
	self.info.in_color_space = JCS_RGB;
	jpeg_set_defaults(&self.info);
	jpeg_set_quality(&self.info, quality, TRUE);
	jpeg_start_compress(&self.info, TRUE);
	while (self.info.next_scanline < self.info.image_height) {
		JSAMPROW row = image->data + (size_t)self.info.next_scanline * image->width * 3;
		jpeg_write_scanlines(&self.info, &row, 1);
	}
	jpeg_finish_compress(&self.info);
	jpeg_destroy_compress(&self.info);
	if (self.data != self.room)
		free(self.room);
	uint8_t *fitting = realloc(self.data, self.size);
	*data = fitting ? fitting : self.data;
	*size = self.size;
	return BETON_OK;
}
