/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "jpeg.h"
#include "jpeg/scan.h"
#include "jpeg_common.h"
#include "jpeg_encode.h"
#include "resize.h"

enum {
	PLANES_MAX = 3,
	MCU_ROWS_MAX = MAX_SAMP_FACTOR * DCTSIZE, /* rows of a plane in one row of MCUs */
	ROW_UNIT = 64,                            /* bytes; rows of planes are whole ones, as bt_scan writes them */
};

typedef struct plane {
	pixel_rows rows;
	double x_step; /* pixels of the picture for one of the plane */
	double y_step;
} plane;

typedef struct recoder {
	const char *name;
	const image_settings *settings;
	uint32_t from_width; /* of the whole picture, pixels */
	uint32_t from_height;
	uint32_t width;
	uint32_t height;
	int count;
	plane planes[PLANES_MAX];
	jpeg_reader reader;
	bt_scan *scan;
	struct jpeg_compress_struct out;
	bt_jpeg_escape escape; /* of out */
	jpeg_sink sink;
} recoder;

/* Rows have room for whole MCUs. */
static int allocate_plane(const recoder *self, pixel_rows *rows, uint32_t width, uint32_t height, size_t padded_width,
			  size_t padded_height, beton_error *err)
{
	*rows = (pixel_rows){.width = width, .height = height};
	rows->stride = (padded_width + ROW_UNIT - 1) / ROW_UNIT * ROW_UNIT;
	rows->data = malloc(rows->stride * padded_height);
	return rows->data ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
}

static int allocate_planes(recoder *self, beton_error *err)
{
	const struct jpeg_decompress_struct *in = &self->reader.info;
	int result = BETON_OK;
	self->count = in->num_components;
	for (int i = 0; i < self->count && result == BETON_OK; i++) {
		const jpeg_component_info *shape = &in->comp_info[i];
		size_t side = (size_t)shape->DCT_scaled_size;
		self->planes[i].x_step =
			(double)in->max_h_samp_factor * DCTSIZE / (shape->h_samp_factor * (double)side);
		self->planes[i].y_step =
			(double)in->max_v_samp_factor * DCTSIZE / (shape->v_samp_factor * (double)side);
		result = allocate_plane(self, &self->planes[i].rows, shape->downsampled_width,
					shape->downsampled_height, shape->width_in_blocks * side,
					(size_t)in->total_iMCU_rows * (size_t)shape->v_samp_factor * side, err);
	}
	return result;
}

static void read_planes(recoder *self)
{
	struct jpeg_decompress_struct *in = &self->reader.info;
	JSAMPROW rows[PLANES_MAX][MCU_ROWS_MAX];
	JSAMPARRAY planes[PLANES_MAX] = {rows[0], rows[1], rows[2]};
	JDIMENSION lines = (JDIMENSION)(in->max_v_samp_factor * in->min_DCT_scaled_size);
	for (size_t mcu_row = 0; in->output_scanline < in->output_height; mcu_row++) {
		for (int i = 0; i < self->count; i++) {
			const jpeg_component_info *shape = &in->comp_info[i];
			size_t count = (size_t)(shape->v_samp_factor * shape->DCT_scaled_size);
			for (size_t y = 0; y < count; y++)
				rows[i][y] =
					self->planes[i].rows.data + (mcu_row * count + y) * self->planes[i].rows.stride;
		}
		jpeg_read_raw_data(in, planes, lines);
	}
}

/* Decodes the whole picture. False: libjpeg has to. */
static bool scan_planes(recoder *self)
{
	const struct jpeg_decompress_struct *in = &self->reader.info;
	bool alone = in->num_components == 1; /* its MCU is one block */
	uint32_t mcu_width = DCTSIZE * (alone ? 1 : (uint32_t)in->max_h_samp_factor);
	uint32_t mcu_height = DCTSIZE * (alone ? 1 : (uint32_t)in->max_v_samp_factor);
	bt_scan_request request = {.end_x = (in->image_width + mcu_width - 1) / mcu_width,
				   .end_y = (in->image_height + mcu_height - 1) / mcu_height};
	for (int i = 0; i < self->count; i++) {
		request.planes[i] = self->planes[i].rows.data;
		request.strides[i] = self->planes[i].rows.stride;
	}
	self->scan = bt_scan_new();
	return self->scan && bt_scan_decode(self->scan, in, &request);
}

static int decode_planes(recoder *self, const uint8_t *data, size_t size, beton_error *err)
{
	struct jpeg_decompress_struct *in = &self->reader.info;
	in->err = bt_jpeg_escape_init(&self->reader.escape);
	if (setjmp(self->reader.escape.target))
		return jpeg_reader_fail(&self->reader, self->name, err);
	jpeg_reader_start(&self->reader, data, size);
	self->from_width = in->image_width;
	self->from_height = in->image_height;
	jpeg_reader_set_scale(&self->reader, self->width, self->height);
	in->out_color_space = in->jpeg_color_space;
	in->raw_data_out = TRUE;
	jpeg_calc_output_dimensions(in);
	int result = allocate_planes(self, err);
	if (result == BETON_OK && !scan_planes(self)) {
		jpeg_start_decompress(in);
		read_planes(self);
		jpeg_finish_decompress(in);
	}
	jpeg_destroy_decompress(in);
	return result;
}

/* Each pixel the mean of four; past the edge the last ones count again. */
static void halve(const pixel_rows *from, const pixel_rows *to)
{
	for (uint32_t y = 0; y < to->height; y++) {
		const uint8_t *upper = from->data + (size_t)y * 2 * from->stride;
		const uint8_t *lower = y * 2 + 1 < from->height ? upper + from->stride : upper;
		uint8_t *out = to->data + y * to->stride;
		uint32_t pairs = from->width / 2;
		for (uint32_t x = 0; x < pairs; x++)
			out[x] =
				(uint8_t)((upper[2 * x] + upper[2 * x + 1] + lower[2 * x] + lower[2 * x + 1] + 2) >> 2);
		if (from->width % 2)
			out[pairs] = (uint8_t)((upper[2 * pairs] + lower[2 * pairs] + 1) >> 1);
	}
}

/* Gives a plane the size that it is encoded in. every: of how many pixels along a side it has one. */
static int fit_plane(const recoder *self, plane *fitted, uint32_t every, beton_error *err)
{
	uint32_t width = (self->width + every - 1) / every;
	uint32_t height = (self->height + every - 1) / every;
	double x_scale = (double)self->from_width / self->width * every / fitted->x_step;
	double y_scale = (double)self->from_height / self->height * every / fitted->y_step;
	const pixel_rows *from = &fitted->rows;
	if (x_scale == 1 && y_scale == 1 && from->width == width && from->height == height)
		return BETON_OK;
	pixel_rows to;
	int result = allocate_plane(self, &to, width, height, width, height, err);
	if (result != BETON_OK)
		return result;
	if (x_scale == 2 && y_scale == 2 && (from->width + 1) / 2 == width && (from->height + 1) / 2 == height)
		halve(from, &to);
	else
		result = resize_pixels(from, &to, 1, x_scale, y_scale, self->settings->filter, self->name, err);
	free(fitted->rows.data);
	fitted->rows = to;
	return result;
}

/* The last pixel of a row again, up to the whole MCU. */
static void pad_rows(const pixel_rows *rows)
{
	for (uint32_t y = 0; y < rows->height; y++) {
		uint8_t *row = rows->data + y * rows->stride;
		memset(row + rows->width, row[rows->width - 1], rows->stride - rows->width);
	}
}

static int fit_planes(recoder *self, beton_error *err)
{
	int result = BETON_OK;
	for (int i = 0; i < self->count && result == BETON_OK; i++) {
		result = fit_plane(self, &self->planes[i], i > 0 && !self->settings->full_colour ? 2 : 1, err);
		if (result == BETON_OK)
			pad_rows(&self->planes[i].rows);
	}
	return result;
}

static void write_planes(recoder *self)
{
	struct jpeg_compress_struct *out = &self->out;
	JSAMPROW rows[PLANES_MAX][MCU_ROWS_MAX];
	JSAMPARRAY planes[PLANES_MAX] = {rows[0], rows[1], rows[2]};
	JDIMENSION lines = (JDIMENSION)(out->max_v_samp_factor * DCTSIZE);
	for (uint32_t mcu_row = 0; out->next_scanline < out->image_height; mcu_row++) {
		for (int i = 0; i < self->count; i++) {
			const pixel_rows *from = &self->planes[i].rows;
			uint32_t count = (uint32_t)(out->comp_info[i].v_samp_factor * DCTSIZE);
			for (uint32_t y = 0; y < count; y++) {
				uint32_t row = mcu_row * count + y;
				row = row < from->height ? row : from->height - 1;
				rows[i][y] = from->data + row * from->stride;
			}
		}
		jpeg_write_raw_data(out, planes, lines);
	}
}

static int encode_planes(recoder *self, beton_error *err)
{
	struct jpeg_compress_struct *out = &self->out;
	out->err = bt_jpeg_escape_init(&self->escape);
	if (setjmp(self->escape.target)) {
		jpeg_destroy_compress(out);
		return jpeg_fail(&self->escape, BETON_INVALID_ARGUMENT, self->name, "cannot be encoded as JPEG", err);
	}
	jpeg_create_compress(out);
	jpeg_set_encoding(out, self->width, self->height, self->count == 1 ? JCS_GRAYSCALE : JCS_YCbCr, self->settings);
	out->raw_data_in = TRUE;
	jpeg_sink_attach(&self->sink, out, (size_t)self->width * self->height / 2 + 4096);
	jpeg_start_compress(out, TRUE);
	write_planes(self);
	jpeg_finish_compress(out);
	jpeg_destroy_compress(out);
	return BETON_OK;
}

int jpeg_reencode(const uint8_t *data, size_t size, uint32_t width, uint32_t height, const image_settings *settings,
		  const char *name, uint8_t **out, size_t *out_size, beton_error *err)
{
	recoder self = {.name = name, .settings = settings, .width = width, .height = height};
	int result = decode_planes(&self, data, size, err);
	if (result == BETON_OK)
		result = fit_planes(&self, err);
	if (result == BETON_OK)
		result = encode_planes(&self, err);
	for (int i = 0; i < PLANES_MAX; i++)
		free(self.planes[i].rows.data);
	if (result == BETON_OK)
		jpeg_sink_take(&self.sink, out, out_size);
	bt_scan_free(self.scan);
	free(self.sink.data);
	return result;
}
