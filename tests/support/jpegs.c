/* SPDX-License-Identifier: Apache-2.0 */
#include "jpegs.h"

#include <stdlib.h>
#include <string.h>

uint8_t *textured_pixels(uint32_t width, uint32_t height)
{
	uint8_t *rgb = malloc((size_t)width * height * 3);
	uint32_t random = 12345;
	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++)
			for (uint32_t c = 0; c < 3; c++) {
				random = random * 1664525 + 1013904223;
				uint32_t value = 60 + (x * (c + 1) + y * 2) / 4 % 120;
				value += (x / 23 + y / 17) % 2 ? 40 : 0;
				rgb[((size_t)y * width + x) * 3 + c] = (uint8_t)(value + (random >> 24) % 24);
			}
	return rgb;
}

static void set_parameters(struct jpeg_compress_struct *info, const jpeg_sort *sort, int quality)
{
	static const jpeg_scan_info separate[] = {
		{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}, {1, {3}, 0, 63, 0, 0}};
	jpeg_set_defaults(info);
	jpeg_set_colorspace(info, sort->colour);
	jpeg_set_quality(info, quality, TRUE);
	info->comp_info[0].h_samp_factor = sort->h;
	info->comp_info[0].v_samp_factor = sort->v;
	if (sort->progressive)
		jpeg_simple_progression(info);
	if (sort->separate_scans) {
		info->scan_info = separate;
		info->num_scans = info->num_components;
	}
	if (sort->scans) {
		info->scan_info = sort->scans;
		info->num_scans = sort->num_scans;
	}
	info->arith_code = sort->arithmetic;
	info->optimize_coding = sort->optimized;
	info->restart_interval = (unsigned int)sort->restart;
}

static void write_markers(struct jpeg_compress_struct *info, const jpeg_sort *sort)
{
	/* TIFF's header, one entry: tag 0x112, SHORT, one value. */
	uint8_t exif[] = "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\0\0\0\0\0\0\0\0";
	exif[24] = (uint8_t)sort->orientation;
	if (sort->orientation)
		jpeg_write_marker(info, JPEG_APP0 + 1, exif, sizeof(exif) - 1);
	if (sort->comment)
		jpeg_write_marker(info, JPEG_COM, (const uint8_t *)"a comment", 9);
}

jpeg_bytes jpeg_make(const jpeg_sort *sort, uint32_t width, uint32_t height, const uint8_t *rgb, int quality)
{
	struct jpeg_compress_struct info;
	struct jpeg_error_mgr errors;
	jpeg_bytes made = {0};
	bool grey = sort->colour == JCS_GRAYSCALE;
	bool cmyk = sort->colour == JCS_CMYK;
	info.err = jpeg_std_error(&errors);
	jpeg_create_compress(&info);
	jpeg_mem_dest(&info, &made.data, &made.size);
	info.image_width = width;
	info.image_height = height;
	bool unknown = sort->colour == JCS_UNKNOWN;
	info.input_components = grey ? 1 : unknown ? 2 : cmyk ? 4 : 3;
	info.in_color_space = grey ? JCS_GRAYSCALE : unknown ? JCS_UNKNOWN : cmyk ? JCS_CMYK : JCS_RGB;
	set_parameters(&info, sort, quality);
	jpeg_start_compress(&info, TRUE);
	write_markers(&info, sort);
	uint8_t *row = malloc((size_t)width * 4);
	for (uint32_t y = 0; y < height; y++) {
		for (uint32_t x = 0; x < width; x++) {
			const uint8_t *pixel = rgb + ((size_t)y * width + x) * 3;
			memcpy(row + (size_t)x * (size_t)info.input_components, pixel, grey ? 1 : unknown ? 2 : 3);
			if (cmyk)
				row[(size_t)x * 4 + 3] = 255;
		}
		jpeg_write_scanlines(&info, &row, 1);
	}
	free(row);
	jpeg_finish_compress(&info);
	jpeg_destroy_compress(&info);
	return made;
}

/* How far the marker at `at` reaches: a segment to its end, any other marker or coded data to the next one. */
static size_t marker_bytes(const uint8_t *data, size_t size, size_t at)
{
	uint8_t marker = data[at + 1];
	bool alone = marker == 0 || (marker >= 0xd0 && marker <= 0xd9);
	size_t end = at + 2;
	if (!alone && end + 2 <= size)
		end += (size_t)(data[end] << 8 | data[end + 1]);
	while (end < size && data[end] != 0xff)
		end++;
	return (end < size ? end : size) - at;
}

void jpeg_remove(jpeg_bytes *jpeg, uint8_t marker)
{
	size_t to = 0;
	for (size_t at = 0, bytes; at + 1 < jpeg->size; at += bytes) {
		bytes = marker_bytes(jpeg->data, jpeg->size, at);
		if (jpeg->data[at + 1] == marker)
			continue;
		memmove(jpeg->data + to, jpeg->data + at, bytes);
		to += bytes;
	}
	jpeg->size = to;
}

uint8_t *jpeg_pixels(const uint8_t *data, size_t size, uint32_t *width, uint32_t *height)
{
	struct jpeg_decompress_struct info;
	struct jpeg_error_mgr errors;
	info.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&info);
	jpeg_mem_src(&info, data, (unsigned long)size);
	jpeg_read_header(&info, TRUE);
	info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
	jpeg_start_decompress(&info);
	*width = info.output_width;
	*height = info.output_height;
	size_t stride = (size_t)info.output_width * (size_t)info.output_components;
	uint8_t *pixels = malloc(stride * info.output_height);
	while (info.output_scanline < info.output_height) {
		JSAMPROW row = pixels + info.output_scanline * stride;
		jpeg_read_scanlines(&info, &row, 1);
	}
	jpeg_finish_decompress(&info);
	jpeg_destroy_decompress(&info);
	return pixels;
}

size_t jpeg_optimized_size(const uint8_t *data, size_t size, unsigned int interval)
{
	struct jpeg_decompress_struct in;
	struct jpeg_compress_struct out;
	struct jpeg_error_mgr errors;
	jpeg_bytes made = {0};
	in.err = out.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&in);
	jpeg_create_compress(&out);
	jpeg_mem_src(&in, data, (unsigned long)size);
	jpeg_read_header(&in, TRUE);
	jvirt_barray_ptr *coefficients = jpeg_read_coefficients(&in);
	jpeg_mem_dest(&out, &made.data, &made.size);
	jpeg_copy_critical_parameters(&in, &out);
	out.optimize_coding = TRUE;
	out.restart_interval = interval;
	jpeg_write_coefficients(&out, coefficients);
	jpeg_finish_compress(&out);
	jpeg_destroy_compress(&out);
	jpeg_destroy_decompress(&in);
	free(made.data);
	return made.size;
}

const uint8_t *jpeg_find_marker(const uint8_t *data, size_t size, uint8_t marker)
{
	for (size_t at = 2; at + 4 <= size && data[at] == 0xff; at += 2 + (size_t)(data[at + 2] << 8 | data[at + 3])) {
		if (data[at + 1] == marker)
			return data + at + 4;
		if (data[at + 1] == 0xda)
			break;
	}
	return NULL;
}
