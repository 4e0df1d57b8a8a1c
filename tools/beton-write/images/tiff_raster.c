/* SPDX-License-Identifier: Apache-2.0
 *
 * The first picture of a TIFF as it is: samples of 8 or 16 bits, in planes or not, in strips or tiles.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "raster.h"
#include "tiff_input.h"

typedef struct tiff_reader {
	TIFF *tiff;
	const tiff_input *input;
	const char *name;
	raster_image *out;
	bool planes; /* each channel has its own strips or tiles */
} tiff_reader;

static int refuse(const char *name, const char *what, beton_error *err)
{
	return bt_fail(err, BETON_SAMPLE_CORRUPT,
		       "%s: a TIFF %s; a raster has whole numbers of 8 or 16 bits without a sign", name, what);
}

static int read_facts(tiff_reader *self, beton_error *err)
{
	uint16_t channels, bits, format, planes, photometric = 0;
	raster_image *out = self->out;
	if (!TIFFGetField(self->tiff, TIFFTAG_IMAGEWIDTH, &out->width) ||
	    !TIFFGetField(self->tiff, TIFFTAG_IMAGELENGTH, &out->height))
		return tiff_input_damaged(self->input, self->name, "it has no size", err);
	TIFFGetFieldDefaulted(self->tiff, TIFFTAG_SAMPLESPERPIXEL, &channels);
	TIFFGetFieldDefaulted(self->tiff, TIFFTAG_BITSPERSAMPLE, &bits);
	TIFFGetFieldDefaulted(self->tiff, TIFFTAG_SAMPLEFORMAT, &format);
	TIFFGetFieldDefaulted(self->tiff, TIFFTAG_PLANARCONFIG, &planes);
	TIFFGetField(self->tiff, TIFFTAG_PHOTOMETRIC, &photometric);
	self->planes = planes == PLANARCONFIG_SEPARATE && channels > 1;
	if (bits != 8 && bits != 16)
		return refuse(self->name, "of samples that have neither 8 nor 16 bits", err);
	if (format != SAMPLEFORMAT_UINT && format != SAMPLEFORMAT_VOID)
		return refuse(self->name, "of samples with a sign or a point", err);
	if (photometric == PHOTOMETRIC_PALETTE)
		return refuse(self->name, "of numbers in a palette", err);
	/* A JPEG in it has subsampled chroma, which libtiff makes RGB. */
	if (photometric == PHOTOMETRIC_YCBCR && !TIFFSetField(self->tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB))
		return refuse(self->name, "of luma and chroma", err);
	out->type = (raster_type){channels, bits / 8};
	return BETON_OK;
}

/* Copies a row of one plane, or of all channels, to its place. */
static void put_row(const tiff_reader *self, const uint8_t *row, uint32_t x, uint32_t y, uint32_t width, uint16_t plane)
{
	const raster_image *out = self->out;
	size_t item = out->type.item_size, pixel = item * out->type.channels;
	uint8_t *to = out->data + ((size_t)y * out->width + x) * pixel;
	if (!self->planes) {
		memcpy(to, row, width * pixel);
		return;
	}
	to += plane * item;
	for (uint32_t i = 0; i < width; i++, to += pixel, row += item)
		memcpy(to, row, item);
}

static bool read_strips(const tiff_reader *self, uint8_t *buffer, uint16_t plane)
{
	for (uint32_t y = 0; y < self->out->height; y++) {
		if (TIFFReadScanline(self->tiff, buffer, y, plane) != 1)
			return false;
		put_row(self, buffer, 0, y, self->out->width, plane);
	}
	return true;
}

static bool read_tiles(const tiff_reader *self, uint8_t *buffer, uint32_t width, uint32_t height, uint16_t plane)
{
	const raster_image *out = self->out;
	size_t row = (size_t)TIFFTileRowSize(self->tiff);
	for (uint32_t y = 0; y < out->height; y += height)
		for (uint32_t x = 0; x < out->width; x += width) {
			if (TIFFReadTile(self->tiff, buffer, x, y, 0, plane) < 0)
				return false;
			uint32_t columns = out->width - x < width ? out->width - x : width;
			uint32_t rows = out->height - y < height ? out->height - y : height;
			for (uint32_t i = 0; i < rows; i++)
				put_row(self, buffer + i * row, x, y + i, columns, plane);
		}
	return true;
}

static int read_samples(const tiff_reader *self, beton_error *err)
{
	const raster_image *out = self->out;
	bool tiled = TIFFIsTiled(self->tiff);
	uint32_t width = out->width, height = 1;
	if (tiled && (!TIFFGetField(self->tiff, TIFFTAG_TILEWIDTH, &width) ||
		      !TIFFGetField(self->tiff, TIFFTAG_TILELENGTH, &height)))
		return tiff_input_damaged(self->input, self->name, "its tiles have no size", err);
	uint64_t pixel = (uint64_t)out->type.item_size * (self->planes ? 1 : out->type.channels);
	tmsize_t row = tiled ? TIFFTileRowSize(self->tiff) : TIFFScanlineSize(self->tiff);
	tmsize_t size = tiled ? TIFFTileSize(self->tiff) : row;
	if (width < 1 || height < 1 || row < 1 || (uint64_t)row != width * pixel ||
	    (uint64_t)size / (uint64_t)row < height)
		return refuse(self->name, "whose rows are not rows of samples", err);
	/* As libtiff may take: a tile of a small picture may be larger than the picture, but a header can claim any. */
	uint64_t picture = (uint64_t)out->width * out->height * out->type.channels * out->type.item_size;
	if ((uint64_t)size > picture + (uint64_t)TIFF_SPARE_MEMORY)
		return bt_fail(err, BETON_SAMPLE_CORRUPT,
			       "%s: a TIFF of %u x %u pixels, and a tile of it has %lld bytes", self->name, out->width,
			       out->height, (long long)size);
	uint8_t *buffer = malloc((size_t)size);
	if (!buffer)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
	bool good = true;
	for (uint16_t plane = 0; good && plane < (self->planes ? out->type.channels : 1); plane++)
		good = tiled ? read_tiles(self, buffer, width, height, plane) : read_strips(self, buffer, plane);
	free(buffer);
	return good ? BETON_OK : tiff_input_damaged(self->input, self->name, "unknown reason", err);
}

static int read_first(tiff_input *input, const raster_request *request, raster_image *out, bool facts_only,
		      beton_error *err)
{
	int64_t bytes = (int64_t)out->width * out->height * out->type.channels * out->type.item_size;
	tiff_reader self = {.tiff = tiff_input_open(input, bytes + TIFF_SPARE_MEMORY),
			    .input = input,
			    .name = request->name,
			    .out = out};
	if (!self.tiff)
		return tiff_input_damaged(input, request->name, "unknown reason", err);
	int result = read_facts(&self, err);
	if (result == BETON_OK && !facts_only)
		result = read_samples(&self, err);
	TIFFClose(self.tiff);
	return result;
}

int tiff_read_raster(const file_bytes *file, const raster_request *request, raster_image *out, beton_error *err)
{
	tiff_input input = {.data = file->data, .size = file->size};
	*out = (raster_image){0};
	/* Twice, since what libtiff may take at once depends on the size. */
	int result = read_first(&input, request, out, true, err);
	if (result == BETON_OK)
		result = raster_allocate(request, out, err);
	if (result == BETON_OK && !request->facts_only)
		result = read_first(&input, request, out, false, err);
	if (result != BETON_OK) {
		free(out->data);
		out->data = NULL;
	}
	return result;
}
