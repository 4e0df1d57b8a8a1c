/* SPDX-License-Identifier: Apache-2.0 */
#include "image.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/jpeg.h"
#include "common/system.h"
#include "jpeg_codec.h"
#include "png_reader.h"

#define FILE_BYTES_MAX (INT64_C(1) << 30)

typedef struct file_bytes {
	uint8_t *data;
	size_t size;
} file_bytes;

int image_allocate(rgb_image *image, uint64_t width, uint64_t height, const char *path, beton_error *err)
{
	if (width < 1 || height < 1 || width > UINT16_MAX || height > UINT16_MAX ||
	    width * height > BT_IMAGE_PIXELS_MAX)
		return bt_fail(err, BETON_SAMPLE_CORRUPT,
			       "%s: %llu x %llu pixels; a side has 1 to %u, a picture at most %llu", path,
			       (unsigned long long)width, (unsigned long long)height, UINT16_MAX,
			       (unsigned long long)BT_IMAGE_PIXELS_MAX);
	*image = (rgb_image){malloc((size_t)(width * height * 3)), (uint32_t)width, (uint32_t)height};
	return image->data ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
}

static int read_open_file(int fd, const char *path, file_bytes *file, beton_error *err)
{
	struct stat status;
	if (fstat(fd, &status) != 0)
		return bt_fail_errno(err, errno, "%s: cannot read its status", path);
	if (!S_ISREG(status.st_mode))
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: not a regular file", path);
	if (status.st_size == 0 || status.st_size > FILE_BYTES_MAX)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: a picture file of %lld bytes", path,
			       (long long)status.st_size);
	file->size = (size_t)status.st_size;
	file->data = malloc(file->size);
	if (!file->data)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for its %zu bytes", path, file->size);
	ssize_t got = bt_pread_full(fd, file->data, file->size, 0);
	if (got < 0)
		return bt_fail_errno(err, errno, "%s: cannot read", path);
	if ((size_t)got != file->size)
		return bt_fail(err, BETON_FILE_CHANGED, "%s: the file became shorter while it was read", path);
	return BETON_OK;
}

static int read_file(const char *path, file_bytes *file, beton_error *err)
{
	/* O_NONBLOCK: opening a pipe must not wait for its writer. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	int result = read_open_file(fd, path, file, err);
	close(fd);
	return result;
}

/* FFCV's rule, rounding included: both sides times limit / longer side, cut to whole pixels. True if it shrinks. */
static bool fitted_size(uint32_t limit, uint32_t *width, uint32_t *height)
{
	uint32_t longer = *width > *height ? *width : *height;
	if (limit == 0 || longer <= limit)
		return false;
	double scale = (double)limit / longer;
	*width = (uint32_t)fmax(1, scale * *width);
	*height = (uint32_t)fmax(1, scale * *height);
	return true;
}

static int store_pixels(rgb_image *image, const char *path, const image_settings *settings, bool as_jpeg,
			stored_image *out, beton_error *err)
{
	uint32_t width = image->width;
	uint32_t height = image->height;
	if (fitted_size(settings->max_resolution, &width, &height)) {
		int result = image_shrink(image, width, height, path, err);
		if (result != BETON_OK)
			return result;
	}
	*out = (stored_image){.mode = BETON_IMAGE_RAW, .width = width, .height = height};
	if (as_jpeg) {
		out->mode = BETON_IMAGE_JPEG;
		return jpeg_encode(image, settings->quality, path, &out->data, &out->size, err);
	}
	out->size = (size_t)width * height * 3;
	out->data = image->data;
	image->data = NULL;
	return BETON_OK;
}

static int load_jpeg(file_bytes *file, const char *path, const image_settings *settings, rgb_image *image,
		     stored_image *out, beton_error *err)
{
	jpeg_facts facts;
	int result = jpeg_inspect(file->data, file->size, path, &facts, err);
	if (result != BETON_OK)
		return result;
	uint32_t width = facts.width;
	uint32_t height = facts.height;
	bool shrinks = fitted_size(settings->max_resolution, &width, &height);
	if (settings->mode == WRITE_ORIGINAL && facts.rgb && !shrinks) {
		result = jpeg_check(file->data, file->size, path, err);
		if (result != BETON_OK)
			return result;
		*out = (stored_image){file->data, file->size, BETON_IMAGE_JPEG, facts.width, facts.height};
		file->data = NULL;
		return BETON_OK;
	}
	result = jpeg_decode(file->data, file->size, path, image, err);
	return result == BETON_OK ? store_pixels(image, path, settings, settings->mode != WRITE_RAW, out, err) : result;
}

static int load_png(const file_bytes *file, const char *path, const image_settings *settings, rgb_image *image,
		    stored_image *out, beton_error *err)
{
	int result = png_decode(file->data, file->size, path, image, err);
	return result == BETON_OK ? store_pixels(image, path, settings, settings->mode == WRITE_JPG, out, err) : result;
}

static bool starts_with(const file_bytes *file, const void *magic, size_t size)
{
	return file->size >= size && memcmp(file->data, magic, size) == 0;
}

int image_load(const char *path, const image_settings *settings, stored_image *out, beton_error *err)
{
	file_bytes file = {0};
	rgb_image image = {0};
	*out = (stored_image){0};
	int result = read_file(path, &file, err);
	if (result == BETON_OK) {
		if (starts_with(&file, "\xff\xd8\xff", 3))
			result = load_jpeg(&file, path, settings, &image, out, err);
		else if (starts_with(&file, "\x89PNG\r\n\x1a\n", 8))
			result = load_png(&file, path, settings, &image, out, err);
		else
			result = bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: not a JPEG or PNG picture", path);
	}
	free(file.data);
	free(image.data);
	return result;
}
