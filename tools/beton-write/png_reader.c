/* SPDX-License-Identifier: Apache-2.0 */
#include "png_reader.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "common/error.h"
#include "orientation.h"

/* State for libpng's callbacks and for cleaning up after its longjmp. */
typedef struct decoder {
	png_structp png;
	png_infop info;
	const uint8_t *data;
	size_t left;
	bool no_memory;
	char message[160];
	uint32_t channels; /* 3, or 4 with transparency */
	rgb_image image;
	png_bytep *rows;
} decoder;

static void read_bytes(png_structp png, png_bytep to, size_t size)
{
	decoder *self = png_get_io_ptr(png);
	if (size > self->left)
		png_error(png, "the file ends too early");
	memcpy(to, self->data, size);
	self->data += size;
	self->left -= size;
}

static void keep_error(png_structp png, png_const_charp text)
{
	decoder *self = png_get_error_ptr(png);
	snprintf(self->message, sizeof(self->message), "%s", text);
	png_longjmp(png, 1);
}

/* Warnings are about colour profiles and text; what concerns pixels is an error in libpng. */
static void ignore_warning(png_structp png, png_const_charp text)
{
	(void)png;
	(void)text;
}

static void release(decoder *self)
{
	png_destroy_read_struct(&self->png, &self->info, NULL);
	free(self->rows);
}

static png_voidp allocate(png_structp png, png_alloc_size_t size)
{
	decoder *self = png_get_mem_ptr(png);
	void *memory = malloc(size);
	self->no_memory = self->no_memory || !memory;
	return memory;
}

static void give_back(png_structp png, png_voidp memory)
{
	(void)png;
	free(memory);
}

static int read_header(decoder *self, const image_settings *settings, const char *name, beton_error *err)
{
	png_set_read_fn(self->png, self, read_bytes);
	png_read_info(self->png, self->info);
	uint8_t type = png_get_color_type(self->png, self->info);
	uint8_t depth = png_get_bit_depth(self->png, self->info);
	bool transparent = png_get_valid(self->png, self->info, PNG_INFO_tRNS);
	if (type == PNG_COLOR_TYPE_PALETTE)
		png_set_palette_to_rgb(self->png);
	if (type == PNG_COLOR_TYPE_GRAY && depth < 8)
		png_set_expand_gray_1_2_4_to_8(self->png);
	if (transparent)
		png_set_tRNS_to_alpha(self->png);
	if (depth == 16)
		png_set_strip_16(self->png);
	if (!(type & PNG_COLOR_MASK_COLOR))
		png_set_gray_to_rgb(self->png);
	png_set_interlace_handling(self->png);
	png_read_update_info(self->png, self->info);
	self->channels = transparent || type & PNG_COLOR_MASK_ALPHA ? 4 : 3;
	uint32_t width = png_get_image_width(self->png, self->info);
	uint32_t height = png_get_image_height(self->png, self->info);
	if (png_get_rowbytes(self->png, self->info) != (size_t)width * self->channels)
		png_error(self->png, "not a kind of picture that can be made RGB");
	int result = image_check_size(settings, width, height, name, err);
	return result == BETON_OK ? image_allocate_channels(&self->image, width, height, self->channels, name, err)
				  : result;
}

/* EXIF may follow the pixels, so call this at the end. */
static int read_orientation(decoder *self)
{
	png_bytep exif;
	png_uint_32 size;
	if (!png_get_eXIf_1(self->png, self->info, &size, &exif))
		return 1;
	int orientation = orientation_of_exif(exif, size);
	self->no_memory = orientation < 0;
	if (orientation < 0)
		png_error(self->png, "out of memory");
	return orientation ? orientation : 1;
}

static int fail(decoder *self, const char *name, beton_error *err)
{
	release(self);
	free(self->image.data);
	if (self->no_memory)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: damaged PNG: %s", name, self->message);
}

int png_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
	       int *orientation, beton_error *err)
{
	decoder self = {.data = data, .left = size};
	self.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &self, keep_error, ignore_warning, &self, allocate,
					    give_back);
	self.info = self.png ? png_create_info_struct(self.png) : NULL;
	if (!self.info) {
		release(&self);
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	}
	if (setjmp(png_jmpbuf(self.png)))
		return fail(&self, name, err);
	int result = read_header(&self, settings, name, err);
	if (result == BETON_OK && !(self.rows = calloc(self.image.height, sizeof(*self.rows))))
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	if (result != BETON_OK) {
		release(&self);
		free(self.image.data);
		return result;
	}
	for (uint32_t y = 0; y < self.image.height; y++)
		self.rows[y] = self.image.data + (size_t)y * self.image.width * self.channels;
	png_read_image(self.png, self.rows);
	png_read_end(self.png, self.info);
	*orientation = read_orientation(&self);
	release(&self);
	if (self.channels == 4)
		image_blend(&self.image, settings);
	*image = self.image;
	return BETON_OK;
}
