/* SPDX-License-Identifier: Apache-2.0 */
#include "raster.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "image.h"
#include "tools/beton-write/sources/npy.h"

int raster_allocate(const raster_request *request, raster_image *out, beton_error *err)
{
	const raster_type *type = &out->type;
	uint64_t pixels = (uint64_t)out->width * out->height;
	if (type->channels < 1 || type->channels > BETON_CHANNELS_MAX)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: %u channels; a raster has 1 to %d", request->name,
			       type->channels, BETON_CHANNELS_MAX);
	if (out->width < 1 || out->height < 1 || out->width > UINT16_MAX || out->height > UINT16_MAX)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: %u x %u pixels; a side has 1 to %u", request->name,
			       out->width, out->height, UINT16_MAX);
	if (pixels > request->max_pixels)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: %u x %u pixels, more than --max-pixels=%llu",
			       request->name, out->width, out->height, (unsigned long long)request->max_pixels);
	uint64_t bytes = pixels * type->channels * type->item_size;
	if (bytes > INT32_MAX)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: %llu bytes of samples, more than a page can have",
			       request->name, (unsigned long long)bytes);
	if (request->facts_only)
		return BETON_OK;
	out->data = malloc((size_t)bytes);
	return out->data ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", request->name);
}

int raster_read_array(const array_type *type, const void *elements, const raster_request *request, raster_image *out,
		      beton_error *err)
{
	bool plain = type->dtype[1] == 'u' && type->item_size <= 2;
	*out = (raster_image){0};
	if (!plain || (type->ndim != 2 && type->ndim != 3))
		return bt_fail(
			err, BETON_SAMPLE_CORRUPT,
			"%s: an array of type '%s' with %u dimensions is not a raster: that is of uint8 or uint16, "
			"height x width (x channels)",
			request->name, type->dtype, type->ndim);
	for (uint32_t i = 0; i < type->ndim; i++)
		if (type->shape[i] > UINT32_MAX)
			return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: a dimension of %llu", request->name,
				       (unsigned long long)type->shape[i]);
	out->height = (uint32_t)type->shape[0];
	out->width = (uint32_t)type->shape[1];
	out->type = (raster_type){type->ndim == 3 ? (uint32_t)type->shape[2] : 1, type->item_size};
	int result = raster_allocate(request, out, err);
	if (result != BETON_OK || request->facts_only)
		return result;
	size_t samples = (size_t)out->width * out->height * out->type.channels;
	memcpy(out->data, elements, samples * type->item_size);
	bool swaps = type->dtype[0] == '>' && type->item_size == 2;
	for (size_t i = 0; swaps && i < samples; i++) {
		uint8_t high = out->data[2 * i];
		out->data[2 * i] = out->data[2 * i + 1];
		out->data[2 * i + 1] = high;
	}
	return BETON_OK;
}

static int read_npy(const file_bytes *file, const raster_request *request, raster_image *out, beton_error *err)
{
	array_type type;
	size_t offset;
	uint64_t bytes;
	int result = npy_parse(file->data, file->size, request->name, &type, &offset, err);
	if (result != BETON_OK)
		return result;
	if (!array_bytes(&type, &bytes) || file->size - offset != bytes)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: an array of %zu bytes, and its header promises others",
			       request->name, file->size - offset);
	return raster_read_array(&type, file->data + offset, request, out, err);
}

int raster_read(const file_bytes *file, const raster_request *request, raster_image *out, beton_error *err)
{
	*out = (raster_image){0};
	if (file->size >= 6 && memcmp(file->data, "\x93NUMPY", 6) == 0)
		return read_npy(file, request, out, err);
	image_kind kind = file->size ? image_kind_of(file->data, file->size) : IMAGE_UNKNOWN;
	if (kind == IMAGE_PNG)
		return png_read_raster(file, request, out, err);
	if (kind == IMAGE_TIFF)
		return tiff_read_raster(file, request, out, err);
	if (kind == IMAGE_UNKNOWN)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: not a PNG, TIFF or .npy file", request->name);
	return bt_fail(
		err, BETON_SAMPLE_CORRUPT,
		"%s: rasters are made of PNG, TIFF and .npy files; this one has RGB of 8 bits, for the type image",
		request->name);
}
