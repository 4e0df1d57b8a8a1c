/* SPDX-License-Identifier: Apache-2.0 */
#include "pictures.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>

const char *const picture_names[PICTURE_KINDS] = {"rgb", "grey",      "progressive", "cmyk",        "ycck",
						  "png", "png-alpha", "png-grey",    "png-grey-16", "png-palette"};

void picture_pixel(picture_kind kind, uint32_t x, uint32_t y, uint8_t rgb[3])
{
	rgb[0] = (uint8_t)(40 + x % 160);
	rgb[1] = (uint8_t)(60 + y % 160);
	rgb[2] = (uint8_t)(100 + (x + y) / 2 % 120);
	if (kind == PICTURE_GREY || kind == PICTURE_PNG_GREY || kind == PICTURE_PNG_GREY_16)
		rgb[1] = rgb[2] = rgb[0];
	if (kind == PICTURE_PNG_PALETTE) {
		rgb[0] = (uint8_t)(100 + x % 16 * 2);
		rgb[1] = 7;
		rgb[2] = (uint8_t)(255 - rgb[0]);
	}
}

/* Black is what all three inks have in common; stored inverted, as Adobe does it. */
static void to_cmyk(const uint8_t rgb[3], uint8_t *cmyk)
{
	uint8_t light = rgb[0] > rgb[1] ? rgb[0] : rgb[1];
	light = light > rgb[2] ? light : rgb[2];
	for (int c = 0; c < 3; c++)
		cmyk[c] = (uint8_t)(rgb[c] * 255 / light);
	cmyk[3] = light;
}

static void fill_row(picture_kind kind, uint32_t width, uint32_t y, uint8_t *row)
{
	for (uint32_t x = 0; x < width; x++) {
		uint8_t rgb[3];
		picture_pixel(kind, x, y, rgb);
		switch (kind) {
		case PICTURE_GREY:
		case PICTURE_PNG_GREY:
			row[x] = rgb[0];
			break;
		case PICTURE_PNG_GREY_16:
			row[2 * x] = rgb[0];
			row[2 * x + 1] = 0x9c;
			break;
		case PICTURE_PNG_PALETTE:
			row[x] = (uint8_t)(x % 16);
			break;
		case PICTURE_CMYK:
		case PICTURE_YCCK:
			to_cmyk(rgb, row + 4 * x);
			break;
		case PICTURE_PNG_ALPHA:
			memcpy(row + 4 * x, rgb, 3);
			row[4 * x + 3] = (uint8_t)(x * 3);
			break;
		default:
			memcpy(row + 3 * x, rgb, 3);
		}
	}
}

static void write_jpeg(picture_kind kind, uint32_t width, uint32_t height, FILE *file, uint8_t *row)
{
	struct jpeg_compress_struct info;
	struct jpeg_error_mgr errors;
	bool cmyk = kind == PICTURE_CMYK || kind == PICTURE_YCCK;
	info.err = jpeg_std_error(&errors);
	jpeg_create_compress(&info);
	jpeg_stdio_dest(&info, file);
	info.image_width = width;
	info.image_height = height;
	info.input_components = cmyk ? 4 : kind == PICTURE_GREY ? 1 : 3;
	info.in_color_space = cmyk ? JCS_CMYK : kind == PICTURE_GREY ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_set_defaults(&info);
	jpeg_set_quality(&info, 97, TRUE);
	if (kind == PICTURE_YCCK)
		jpeg_set_colorspace(&info, JCS_YCCK);
	if (kind == PICTURE_PROGRESSIVE)
		jpeg_simple_progression(&info);
	jpeg_start_compress(&info, TRUE);
	for (uint32_t y = 0; y < height; y++) {
		fill_row(kind, width, y, row);
		jpeg_write_scanlines(&info, &row, 1);
	}
	jpeg_finish_compress(&info);
	jpeg_destroy_compress(&info);
}

static void write_png(picture_kind kind, uint32_t width, uint32_t height, FILE *file, uint8_t *row)
{
	png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
	png_infop info = png ? png_create_info_struct(png) : NULL;
	if (!info || setjmp(png_jmpbuf(png)))
		abort();
	static const int types[PICTURE_KINDS] = {[PICTURE_PNG] = PNG_COLOR_TYPE_RGB,
						 [PICTURE_PNG_ALPHA] = PNG_COLOR_TYPE_RGB_ALPHA,
						 [PICTURE_PNG_GREY] = PNG_COLOR_TYPE_GRAY,
						 [PICTURE_PNG_GREY_16] = PNG_COLOR_TYPE_GRAY,
						 [PICTURE_PNG_PALETTE] = PNG_COLOR_TYPE_PALETTE};
	png_init_io(png, file);
	png_set_IHDR(png, info, width, height, kind == PICTURE_PNG_GREY_16 ? 16 : 8, types[kind], PNG_INTERLACE_NONE,
		     PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
	if (kind == PICTURE_PNG_PALETTE) {
		png_color palette[16];
		png_byte alpha[16] = {0, 128};
		for (uint32_t i = 0; i < 16; i++) {
			uint8_t rgb[3];
			picture_pixel(kind, i, 0, rgb);
			palette[i] = (png_color){rgb[0], rgb[1], rgb[2]};
		}
		png_set_PLTE(png, info, palette, 16);
		png_set_tRNS(png, info, alpha, 2, NULL);
	}
	png_write_info(png, info);
	for (uint32_t y = 0; y < height; y++) {
		fill_row(kind, width, y, row);
		png_write_row(png, row);
	}
	png_write_end(png, NULL);
	png_destroy_write_struct(&png, &info);
}

void picture_write(picture_kind kind, uint32_t width, uint32_t height, const char *path)
{
	FILE *file = fopen(path, "wb");
	uint8_t *row = malloc((size_t)width * 4);
	if (!file || !row) {
		perror(path);
		exit(1);
	}
	if (kind >= PICTURE_PNG)
		write_png(kind, width, height, file, row);
	else
		write_jpeg(kind, width, height, file, row);
	free(row);
	if (fclose(file) != 0) {
		perror(path);
		exit(1);
	}
}
