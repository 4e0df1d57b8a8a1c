/* SPDX-License-Identifier: Apache-2.0
 *
 * The view as one PNG. In memory is one row of tiles. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "caption.h"
#include "common/error.h"
#include "tile.h"
#include "tools/common/png_writer.h"
#include "view.h"

enum { MARGIN = 4, LARGE_TILE = 128, LINE = 12, LARGE_LINE = 18 };

static const uint8_t paper[3] = {255, 255, 255};
static const uint8_t alarm_ink[3] = {200, 0, 0};

/* One row of tiles. */
typedef struct strip {
	uint8_t *data;
	uint32_t width;
	uint32_t height;
	caption_painter *captions;
} strip;

static uint32_t tile_width(const view_job *job)
{
	return job->side + 2 * MARGIN;
}

static void set_pixel(strip *self, uint32_t x, uint32_t y, const uint8_t *colour)
{
	memcpy(self->data + ((size_t)y * self->width + x) * 3, colour, 3);
}

/* The picture in the middle of its square; without one, a cross. */
static void draw_tile(strip *self, const pixels *picture, uint32_t x, uint32_t side)
{
	if (!picture->data) {
		for (uint32_t i = 0; i < side; i++) {
			set_pixel(self, x + i, MARGIN + i, alarm_ink);
			set_pixel(self, x + i, MARGIN + side - 1 - i, alarm_ink);
		}
		return;
	}
	uint32_t left = x + (side - picture->width) / 2;
	uint32_t top = MARGIN + (side - picture->height) / 2;
	for (uint32_t y = 0; y < picture->height; y++)
		memcpy(self->data + ((size_t)(top + y) * self->width + left) * 3,
		       picture->data + (size_t)y * picture->width * 3, (size_t)picture->width * 3);
}

/* Fills the strip with the next samples; *found false: there was none. */
static int draw_strip(view_job *job, view_walk *walk, view_sample *sample, strip *self, beton_error *err)
{
	memset(self->data, paper[0], (size_t)self->width * self->height * 3);
	for (uint32_t column = 0; column < job->columns; column++) {
		pixels picture = {0};
		beton_error fault;
		bool found;
		int result = view_next(job, walk, sample, &found, &fault);
		if (result == BETON_OK && !found)
			return BETON_OK;
		if (result == BETON_OK)
			result = tile_decode(&picture, sample->reader, &sample->value, sample->stored, job->max_pixels,
					     job->side, &fault);
		if (result == BETON_SAMPLE_CORRUPT) {
			view_note_damage(job, &fault);
		} else if (result != BETON_OK) {
			*err = fault;
			return result;
		}
		uint32_t x = column * tile_width(job) + MARGIN;
		draw_tile(self, &picture, x, job->side);
		if (sample->caption)
			caption_paint(self->captions, sample->caption,
				      self->data + ((size_t)(job->side + 2 * MARGIN) * self->width + x) * 3,
				      (size_t)self->width * 3);
		free(picture.data);
		progress_sample(job->bar, sample->value.blob.size);
	}
	return BETON_OK;
}

static int put(void *context, const void *data, size_t size, beton_error *err)
{
	if (fwrite(data, 1, size, context) != size)
		return bt_fail_errno(err, errno, "cannot write the picture");
	return BETON_OK;
}

int view_write_png(view_job *job, beton_error *err)
{
	uint64_t rows = (job->shown + job->columns - 1) / job->columns;
	strip band = {.width = job->columns * tile_width(job)};
	uint32_t line = job->side >= LARGE_TILE ? LARGE_LINE : LINE;
	band.height = job->side + 3 * MARGIN + line;
	if (job->shown == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no samples to be shown", job->in->path);
	if (rows > UINT32_MAX / band.height)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%llu rows of pictures are too many for a PNG",
			       (unsigned long long)rows);
	band.data = malloc((size_t)band.width * band.height * 3);
	if (!band.data)
		return bt_fail(err, BETON_NO_MEMORY, "no memory for a row of %u pictures", job->columns);
	png_writer *writer = NULL;
	view_walk walk = {0};
	view_sample sample = {0};
	int result = caption_open(&band.captions, job->side, line, err);
	if (result == BETON_OK)
		result = png_writer_open(&writer, band.width, (uint32_t)rows * band.height, put, job->stream, err);
	for (uint64_t row = 0; row < rows && result == BETON_OK; row++) {
		result = draw_strip(job, &walk, &sample, &band, err);
		if (result == BETON_OK)
			result = png_writer_rows(writer, band.data, band.height, err);
	}
	if (result == BETON_OK)
		result = png_writer_finish(writer, err);
	png_writer_close(&writer);
	caption_close(&band.captions);
	view_sample_free(&sample);
	free(band.data);
	return result;
}
