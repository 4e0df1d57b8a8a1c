/* SPDX-License-Identifier: Apache-2.0 */
#include "png_writer.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "common/error.h"

struct png_writer {
	png_structp png;
	png_infop info;
	png_put put;
	void *context;
	uint32_t width;
	jmp_buf failed;
	int result;
	beton_error error;
};

static void on_error(png_structp png, png_const_charp message)
{
	png_writer *self = png_get_error_ptr(png);
	if (self->result == BETON_OK)
		self->result = bt_fail(&self->error, BETON_INVALID_ARGUMENT, "PNG: %s", message);
	longjmp(self->failed, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
	(void)png;
	(void)message; /* libpng warns about metadata only, which these files do not have */
}

static void on_bytes(png_structp png, png_bytep data, png_size_t size)
{
	png_writer *self = png_get_io_ptr(png);
	self->result = self->put(self->context, data, size, &self->error);
	if (self->result != BETON_OK)
		longjmp(self->failed, 1);
}

static void on_flush(png_structp png)
{
	(void)png;
}

static int fail(const png_writer *self, beton_error *err)
{
	if (err)
		*err = self->error;
	return self->result;
}

int png_writer_open(png_writer **out, uint32_t width, uint32_t height, png_put put, void *context, beton_error *err)
{
	*out = NULL;
	png_writer *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "no memory for a PNG");
	self->put = put;
	self->context = context;
	self->width = width;
	self->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, self, on_error, on_warning);
	self->info = self->png ? png_create_info_struct(self->png) : NULL;
	if (!self->info) {
		png_writer_close(&self);
		return bt_fail(err, BETON_NO_MEMORY, "no memory for a PNG");
	}
	png_set_write_fn(self->png, self, on_bytes, on_flush);
	if (setjmp(self->failed) != 0) {
		int result = fail(self, err);
		png_writer_close(&self);
		return result;
	}
	png_set_IHDR(self->png, self->info, width, height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
		     PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
	png_write_info(self->png, self->info);
	*out = self;
	return BETON_OK;
}

int png_writer_rows(png_writer *self, const uint8_t *rows, uint32_t count, beton_error *err)
{
	if (setjmp(self->failed) != 0)
		return fail(self, err);
	for (uint32_t i = 0; i < count; i++)
		png_write_row(self->png, rows + (size_t)i * self->width * 3);
	return BETON_OK;
}

int png_writer_finish(png_writer *self, beton_error *err)
{
	if (setjmp(self->failed) != 0)
		return fail(self, err);
	png_write_end(self->png, NULL);
	return BETON_OK;
}

void png_writer_close(png_writer **self)
{
	if (*self)
		png_destroy_write_struct(&(*self)->png, &(*self)->info);
	free(*self);
	*self = NULL;
}

static int put_bytes(void *context, const void *data, size_t size, beton_error *err)
{
	png_bytes *bytes = context;
	if (size > bytes->capacity - bytes->size) {
		size_t capacity = bytes->capacity + bytes->capacity / 2 + size + 4096;
		uint8_t *grown = realloc(bytes->data, capacity);
		if (!grown)
			return bt_fail(err, BETON_NO_MEMORY, "no memory for a PNG of %zu bytes", capacity);
		bytes->data = grown;
		bytes->capacity = capacity;
	}
	memcpy(bytes->data + bytes->size, data, size);
	bytes->size += size;
	return BETON_OK;
}

int png_encode(png_bytes *bytes, const uint8_t *pixels, uint32_t width, uint32_t height, beton_error *err)
{
	png_writer *writer;
	bytes->size = 0;
	int result = png_writer_open(&writer, width, height, put_bytes, bytes, err);
	if (result == BETON_OK)
		result = png_writer_rows(writer, pixels, height, err);
	if (result == BETON_OK)
		result = png_writer_finish(writer, err);
	png_writer_close(&writer);
	return result;
}
