/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <gif_lib.h>

#include "common/error.h"
#include "more_readers.h"

typedef struct gif_input {
	const uint8_t *data;
	size_t left;
} gif_input;

static int read_bytes(GifFileType *gif, GifByteType *to, int wanted)
{
	gif_input *self = gif->UserData;
	size_t size = (size_t)wanted < self->left ? (size_t)wanted : self->left;
	memcpy(to, self->data, size);
	self->data += size;
	self->left -= size;
	return (int)size;
}

static int damaged(const char *name, int code, beton_error *err)
{
	const char *reason = GifErrorString(code);
	if (code == D_GIF_ERR_NOT_ENOUGH_MEM)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: damaged GIF: %s", name, reason ? reason : "unknown reason");
}

/* Goes to the first picture. *transparent: the index of the colour that is none, or NO_TRANSPARENT_COLOR. */
static int find_picture(GifFileType *gif, const char *name, int *transparent, beton_error *err)
{
	GifRecordType record;
	*transparent = NO_TRANSPARENT_COLOR;
	while (DGifGetRecordType(gif, &record) == GIF_OK) {
		int code;
		GifByteType *bytes;
		if (record == IMAGE_DESC_RECORD_TYPE)
			return DGifGetImageDesc(gif) == GIF_OK ? BETON_OK : damaged(name, gif->Error, err);
		if (record == TERMINATE_RECORD_TYPE)
			return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: a GIF without a picture", name);
		if (record != EXTENSION_RECORD_TYPE)
			continue;
		int result = DGifGetExtension(gif, &code, &bytes);
		while (result == GIF_OK && bytes) {
			GraphicsControlBlock block;
			if (code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(bytes[0], bytes + 1, &block) == GIF_OK)
				*transparent = block.TransparentColor;
			result = DGifGetExtensionNext(gif, &bytes);
		}
		if (result != GIF_OK)
			break;
	}
	return damaged(name, gif->Error, err);
}

/* Puts a row of the picture on the canvas, as far as it is on it. False: there is no such colour. */
static bool put_row(const GifFileType *gif, const GifPixelType *row, int y, int transparent, rgb_image *canvas)
{
	const GifImageDesc *frame = &gif->Image;
	const ColorMapObject *colours = frame->ColorMap ? frame->ColorMap : gif->SColorMap;
	for (int x = 0; x < frame->Width; x++) {
		if (row[x] == transparent)
			continue;
		if (row[x] >= colours->ColorCount)
			return false;
		uint32_t to_x = (uint32_t)(frame->Left + x);
		uint32_t to_y = (uint32_t)(frame->Top + y);
		if (to_x >= canvas->width || to_y >= canvas->height)
			continue;
		const GifColorType *colour = &colours->Colors[row[x]];
		uint8_t *to = canvas->data + ((size_t)to_y * canvas->width + to_x) * 4;
		to[0] = colour->Red;
		to[1] = colour->Green;
		to[2] = colour->Blue;
		to[3] = 255;
	}
	return true;
}

static int read_rows(GifFileType *gif, int transparent, const char *name, rgb_image *canvas, beton_error *err)
{
	/* The first row of each pass, and the distance of its rows; all rows are one pass without interlacing. */
	static const int first[] = {0, 4, 2, 1};
	static const int step[] = {8, 8, 4, 2};
	int passes = gif->Image.Interlace ? 4 : 1;
	GifPixelType *row = malloc((size_t)gif->Image.Width);
	int result = row ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	for (int pass = 0; pass < passes && result == BETON_OK; pass++)
		for (int y = first[pass]; y < gif->Image.Height && result == BETON_OK;
		     y += passes == 1 ? 1 : step[pass]) {
			if (DGifGetLine(gif, row, gif->Image.Width) != GIF_OK)
				result = damaged(name, gif->Error, err);
			else if (!put_row(gif, row, y, transparent, canvas))
				result = bt_fail(err, BETON_SAMPLE_CORRUPT,
						 "%s: damaged GIF: a pixel of a colour that it has not", name);
		}
	free(row);
	return result;
}

static int decode(GifFileType *gif, const image_settings *settings, const char *name, rgb_image *image,
		  beton_error *err)
{
	int transparent;
	int result = find_picture(gif, name, &transparent, err);
	if (result != BETON_OK)
		return result;
	const GifImageDesc *frame = &gif->Image;
	if (!frame->ColorMap && !gif->SColorMap)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: a GIF without colours", name);
	if (frame->Width < 1 || frame->Height < 1)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: a GIF of %d x %d pixels", name, frame->Width,
			       frame->Height);
	uint64_t width = (uint64_t)(gif->SWidth > 0 ? gif->SWidth : frame->Left + frame->Width);
	uint64_t height = (uint64_t)(gif->SHeight > 0 ? gif->SHeight : frame->Top + frame->Height);
	result = image_check_size(settings, width, height, name, err);
	if (result == BETON_OK)
		result = image_check_size(settings, (uint64_t)frame->Width, (uint64_t)frame->Height, name, err);
	if (result == BETON_OK)
		result = image_allocate_channels(image, width, height, 4, name, err);
	if (result != BETON_OK)
		return result;
	memset(image->data, 0, (size_t)(width * height) * 4);
	result = read_rows(gif, transparent, name, image, err);
	if (result == BETON_OK)
		image_blend(image, settings);
	else
		free(image->data);
	return result;
}

int gif_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
	       beton_error *err)
{
	gif_input input = {data, size};
	int code = 0;
	GifFileType *gif = DGifOpen(&input, read_bytes, &code);
	if (!gif)
		return damaged(name, code, err);
	int result = decode(gif, settings, name, image, err);
	DGifCloseFile(gif, &code);
	if (result != BETON_OK)
		*image = (rgb_image){0};
	return result;
}
