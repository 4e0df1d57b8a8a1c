/* SPDX-License-Identifier: Apache-2.0 */
#include "tiff_input.h"

#include <stdio.h>
#include <string.h>

#include "common/error.h"

static tmsize_t read_bytes(thandle_t handle, void *to, tmsize_t wanted)
{
	tiff_input *self = handle;
	uint64_t left = self->at < self->size ? self->size - self->at : 0;
	uint64_t size = (uint64_t)wanted < left ? (uint64_t)wanted : left;
	memcpy(to, self->data + self->at, (size_t)size);
	self->at += size;
	return (tmsize_t)size;
}

static tmsize_t write_bytes(thandle_t handle, void *from, tmsize_t size)
{
	(void)handle;
	(void)from;
	(void)size;
	return -1;
}

static toff_t seek(thandle_t handle, toff_t offset, int whence)
{
	tiff_input *self = handle;
	uint64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? self->at : self->size;
	/* Beyond the end nothing can be read. */
	self->at = base + offset <= self->size ? base + offset : self->size;
	return self->at;
}

static int close_input(thandle_t handle)
{
	(void)handle;
	return 0;
}

static toff_t input_size(thandle_t handle)
{
	return ((tiff_input *)handle)->size;
}

/* The file is in memory: libtiff reads it there. (4.5.0 refuses tiles without compression of other files.) */
static int map_input(thandle_t handle, void **base, toff_t *size)
{
	const tiff_input *self = handle;
	*base = (void *)self->data;
	*size = self->size;
	return 1;
}

static void unmap_input(thandle_t handle, void *base, toff_t size)
{
	(void)handle;
	(void)base;
	(void)size;
}

static int keep_error(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments)
{
	tiff_input *self = user;
	(void)tiff;
	(void)module;
	if (!*self->message)
		vsnprintf(self->message, sizeof(self->message), format, arguments);
	return 1;
}

static int ignore_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments)
{
	(void)tiff;
	(void)user;
	(void)module;
	(void)format;
	(void)arguments;
	return 1;
}

TIFF *tiff_input_open(tiff_input *input, int64_t memory)
{
	TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
	if (!options)
		return NULL;
	input->at = 0;
	TIFFOpenOptionsSetErrorHandlerExtR(options, keep_error, input);
	TIFFOpenOptionsSetWarningHandlerExtR(options, ignore_warning, NULL);
	TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)memory);
	TIFF *tiff = TIFFClientOpenExt("the file", "r", input, read_bytes, write_bytes, seek, close_input, input_size,
				       map_input, unmap_input, options);
	TIFFOpenOptionsFree(options);
	return tiff;
}

int tiff_input_damaged(const tiff_input *input, const char *name, const char *otherwise, beton_error *err)
{
	return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: its TIFF cannot be decoded: %s", name,
		       *input->message ? input->message : otherwise);
}
