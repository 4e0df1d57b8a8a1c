/* SPDX-License-Identifier: Apache-2.0 */
#include "webp_reader.h"

#include <stdlib.h>

#include <webp/decode.h>
#include <webp/demux.h>

#include "common/error.h"
#include "orientation.h"

static int refuse(VP8StatusCode status, const char *name, beton_error *err)
{
	static const char *const reasons[] = {
		[VP8_STATUS_INVALID_PARAM] = "invalid parameter",
		[VP8_STATUS_BITSTREAM_ERROR] = "damaged data",
		[VP8_STATUS_UNSUPPORTED_FEATURE] = "unsupported feature",
		[VP8_STATUS_NOT_ENOUGH_DATA] = "the file ends too early",
	};
	if (status == VP8_STATUS_OUT_OF_MEMORY)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	size_t code = (size_t)status;
	const char *reason = code < sizeof(reasons) / sizeof(*reasons) ? reasons[code] : NULL;
	return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: its WebP cannot be decoded: %s", name,
		       reason ? reason : "unknown reason");
}

/* 0: it has none, or its EXIF cannot be found; -1: out of memory. */
static int read_orientation(const uint8_t *data, size_t size)
{
	WebPData file = {data, size};
	WebPChunkIterator chunk;
	WebPDemuxer *demuxer = WebPDemux(&file);
	int orientation = 0;
	if (demuxer && WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk)) {
		orientation = orientation_of_exif(chunk.chunk.bytes, chunk.chunk.size);
		WebPDemuxReleaseChunkIterator(&chunk);
	}
	WebPDemuxDelete(demuxer);
	return orientation;
}

static VP8StatusCode decode_pixels(const uint8_t *data, size_t size, const WebPBitstreamFeatures *features, uint8_t *to)
{
	WebPDecoderConfig config;
	if (!WebPInitDecoderConfig(&config))
		return VP8_STATUS_INVALID_PARAM;
	int channels = features->has_alpha ? 4 : 3;
	config.output.colorspace = features->has_alpha ? MODE_RGBA : MODE_RGB;
	config.output.is_external_memory = 1;
	config.output.u.RGBA.rgba = to;
	config.output.u.RGBA.stride = features->width * channels;
	config.output.u.RGBA.size = (size_t)features->width * (size_t)features->height * (size_t)channels;
	return WebPDecode(data, size, &config);
}

static int decode_still(const uint8_t *data, size_t size, const WebPBitstreamFeatures *features,
			const image_settings *settings, const char *name, rgb_image *image, beton_error *err)
{
	rgb_image room;
	int result = image_check_size(settings, (uint64_t)features->width, (uint64_t)features->height, name, err);
	if (result == BETON_OK)
		result = image_allocate_channels(&room, (uint64_t)features->width, (uint64_t)features->height,
						 features->has_alpha ? 4 : 3, name, err);
	if (result != BETON_OK)
		return result;
	VP8StatusCode status = decode_pixels(data, size, features, room.data);
	if (status != VP8_STATUS_OK) {
		free(room.data);
		return refuse(status, name, err);
	}
	if (features->has_alpha)
		image_blend(&room, settings);
	*image = room;
	return BETON_OK;
}

int webp_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
		int *orientation, beton_error *err)
{
	WebPBitstreamFeatures features;
	VP8StatusCode status = WebPGetFeatures(data, size, &features);
	if (status != VP8_STATUS_OK)
		return refuse(status, name, err);
	if (features.has_animation)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: an animated WebP, not a single picture", name);
	int found = read_orientation(data, size);
	if (found < 0)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	*orientation = found ? found : 1;
	return decode_still(data, size, &features, settings, name, image, err);
}
