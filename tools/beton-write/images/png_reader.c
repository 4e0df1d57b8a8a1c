/* SPDX-License-Identifier: Apache-2.0 */
#include "png_reader.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "common/error.h"
#include "orientation.h"
#include "raster.h"

/* State for libpng's callbacks and for cleaning up after its longjmp. */
typedef struct decoder {
	png_structp png;
	png_infop info;
	const uint8_t *data;
	size_t left;
	bool no_memory;
	char message[160];
	uint32_t pixel_bytes;
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

/* Reads the header for all readers, and chooses samples of 8 or 16 bits. Returns whether there is transparency. */
static bool read_header(decoder *self)
{
	png_set_read_fn(self->png, self, read_bytes);
	png_read_info(self->png, self->info);
	uint8_t type = png_get_color_type(self->png, self->info);
	bool transparent = png_get_valid(self->png, self->info, PNG_INFO_tRNS);
	if (type == PNG_COLOR_TYPE_PALETTE)
		png_set_palette_to_rgb(self->png);
	if (type == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(self->png, self->info) < 8)
		png_set_expand_gray_1_2_4_to_8(self->png);
	if (transparent)
		png_set_tRNS_to_alpha(self->png);
	png_set_interlace_handling(self->png);
	return transparent || type & PNG_COLOR_MASK_ALPHA;
}

/* Call when all conversions are set. */
static void end_header(decoder *self, uint32_t pixel_bytes)
{
	png_read_update_info(self->png, self->info);
	self->pixel_bytes = pixel_bytes;
	size_t row = (size_t)png_get_image_width(self->png, self->info) * pixel_bytes;
	if (png_get_rowbytes(self->png, self->info) != row)
		png_error(self->png, "not a kind of picture that can be decoded");
}

static int read_rgb_header(decoder *self, const image_settings *settings, const char *name, rgb_image *image,
			   beton_error *err)
{
	bool transparent = read_header(self);
	if (png_get_bit_depth(self->png, self->info) == 16)
		png_set_strip_16(self->png);
	if (!(png_get_color_type(self->png, self->info) & PNG_COLOR_MASK_COLOR))
		png_set_gray_to_rgb(self->png);
	end_header(self, transparent ? 4 : 3);
	uint32_t width = png_get_image_width(self->png, self->info);
	uint32_t height = png_get_image_height(self->png, self->info);
	int result = image_check_size(settings, width, height, name, err);
	return result == BETON_OK ? image_allocate_channels(image, width, height, (int)self->pixel_bytes, name, err)
				  : result;
}

static int read_pixels(decoder *self, uint8_t *data, uint32_t width, uint32_t height, const char *name,
		       beton_error *err)
{
	self->rows = calloc(height, sizeof(*self->rows));
	if (!self->rows)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	for (uint32_t y = 0; y < height; y++)
		self->rows[y] = data + (size_t)y * width * self->pixel_bytes;
	png_read_image(self->png, self->rows);
	png_read_end(self->png, self->info);
	return BETON_OK;
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

static int fail(const decoder *self, const char *name, beton_error *err)
{
	if (self->no_memory)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: damaged PNG: %s", name, self->message);
}

static int open_decoder(decoder *self, const uint8_t *data, size_t size, const char *name, beton_error *err)
{
	*self = (decoder){.data = data, .left = size};
	self->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, self, keep_error, ignore_warning, self, allocate,
					     give_back);
	self->info = self->png ? png_create_info_struct(self->png) : NULL;
	if (self->info)
		return BETON_OK;
	release(self);
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
}

/* Callees of the functions below may jump to their setjmp; they reach the memory to clean up by pointers. */

static int decode(decoder *self, const image_settings *settings, const char *name, rgb_image *image, int *orientation,
		  beton_error *err)
{
	if (setjmp(png_jmpbuf(self->png)))
		return fail(self, name, err);
	int result = read_rgb_header(self, settings, name, image, err);
	if (result == BETON_OK)
		result = read_pixels(self, image->data, image->width, image->height, name, err);
	if (result == BETON_OK)
		*orientation = read_orientation(self);
	return result;
}

int png_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
	       int *orientation, beton_error *err)
{
	decoder self;
	rgb_image decoded = {0};
	int result = open_decoder(&self, data, size, name, err);
	if (result != BETON_OK)
		return result;
	result = decode(&self, settings, name, &decoded, orientation, err);
	release(&self);
	if (result != BETON_OK) {
		free(decoded.data);
		return result;
	}
	if (self.pixel_bytes == 4)
		image_blend(&decoded, settings);
	*image = decoded;
	return BETON_OK;
}

static int decode_raster(decoder *self, const raster_request *request, raster_image *out, beton_error *err)
{
	if (setjmp(png_jmpbuf(self->png)))
		return fail(self, request->name, err);
	bool transparent = read_header(self);
	uint8_t type = png_get_color_type(self->png, self->info);
	bool colour = type & (PNG_COLOR_MASK_COLOR | PNG_COLOR_MASK_PALETTE);
	out->type = (raster_type){(colour ? 3 : 1) + transparent, png_get_bit_depth(self->png, self->info) / 8};
	out->type.item_size = out->type.item_size > 1 ? 2 : 1;
	if (out->type.item_size == 2)
		png_set_swap(self->png);
	end_header(self, out->type.channels * out->type.item_size);
	out->width = png_get_image_width(self->png, self->info);
	out->height = png_get_image_height(self->png, self->info);
	int result = raster_allocate(request, out, err);
	if (result != BETON_OK || request->facts_only)
		return result;
	return read_pixels(self, out->data, out->width, out->height, request->name, err);
}

int png_read_raster(const file_bytes *file, const raster_request *request, raster_image *out, beton_error *err)
{
	decoder self;
	int result = open_decoder(&self, file->data, file->size, request->name, err);
	if (result != BETON_OK)
		return result;
	result = decode_raster(&self, request, out, err);
	release(&self);
	if (result != BETON_OK) {
		free(out->data);
		out->data = NULL;
	}
	return result;
}
