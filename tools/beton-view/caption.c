/* SPDX-License-Identifier: Apache-2.0 */
#include "caption.h"

#include <stdlib.h>

#include <pango/pangocairo.h>

#include "common/error.h"

struct caption_painter {
	cairo_surface_t *surface;
	cairo_t *cairo;
	PangoLayout *layout;
	uint32_t width;
	uint32_t height;
};

/* The line's height, ascent and descent included, for a size of the letters of 1. */
#define LINE_HEIGHT 1.3

static void set_font(caption_painter *self)
{
	PangoFontDescription *font = pango_font_description_from_string("Sans");
	pango_font_description_set_absolute_size(font, self->height / LINE_HEIGHT * PANGO_SCALE);
	pango_layout_set_font_description(self->layout, font);
	pango_font_description_free(font);
}

int caption_open(caption_painter **out, uint32_t width, uint32_t height, beton_error *err)
{
	caption_painter *self = calloc(1, sizeof(*self));
	*out = self;
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "no memory for captions");
	self->width = width;
	self->height = height;
	self->surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)width, (int)height);
	self->cairo = cairo_create(self->surface);
	if (cairo_status(self->cairo) != CAIRO_STATUS_SUCCESS) {
		caption_close(out);
		return bt_fail(err, BETON_NO_MEMORY, "no memory for captions");
	}
	self->layout = pango_cairo_create_layout(self->cairo);
	pango_layout_set_width(self->layout, (int)width * PANGO_SCALE);
	pango_layout_set_ellipsize(self->layout, PANGO_ELLIPSIZE_END);
	pango_layout_set_single_paragraph_mode(self->layout, TRUE);
	set_font(self);
	return BETON_OK;
}

void caption_paint(caption_painter *self, const char *text, uint8_t *rgb, size_t stride)
{
	cairo_set_source_rgb(self->cairo, 1, 1, 1);
	cairo_paint(self->cairo);
	cairo_set_source_rgb(self->cairo, 0, 0, 0);
	cairo_move_to(self->cairo, 0, 0);
	pango_layout_set_text(self->layout, text, -1);
	pango_cairo_show_layout(self->cairo, self->layout);
	cairo_surface_flush(self->surface);
	const unsigned char *from = cairo_image_surface_get_data(self->surface);
	size_t from_stride = (size_t)cairo_image_surface_get_stride(self->surface);
	for (uint32_t y = 0; y < self->height; y++)
		for (uint32_t x = 0; x < self->width; x++) {
			uint32_t pixel = *(const uint32_t *)(const void *)(from + y * from_stride + (size_t)x * 4);
			uint8_t *to = rgb + y * stride + (size_t)x * 3;
			to[0] = (uint8_t)(pixel >> 16);
			to[1] = (uint8_t)(pixel >> 8);
			to[2] = (uint8_t)pixel;
		}
}

void caption_close(caption_painter **out)
{
	caption_painter *self = *out;
	*out = NULL;
	if (!self)
		return;
	if (self->layout)
		g_object_unref(self->layout);
	cairo_destroy(self->cairo);
	cairo_surface_destroy(self->surface);
	free(self);
}
