/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg_common.h"

#include <math.h>
#include <stdlib.h>

#include "common/error.h"

int jpeg_fail(const bt_jpeg_escape *escape, int code, const char *name, const char *what, beton_error *err)
{
	if (escape->code == BETON_NO_MEMORY)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	return bt_fail(err, code, "%s: %s: %s", name, what, escape->message);
}

void jpeg_reader_start(jpeg_reader *self, const uint8_t *data, size_t size)
{
	bt_jpeg_escape_open_decoder(&self->escape, &self->info);
	jpeg_mem_src(&self->info, data, (unsigned long)size);
	jpeg_save_markers(&self->info, JPEG_APP0 + 1, 0xffff);
	jpeg_read_header(&self->info, TRUE);
}

/* Colour has fewer pixels than brightness. libjpeg makes up for that by decoding it at a larger scale if it can do so
 * in both directions, which it cannot for 4:2:2. */
static bool plane_suffices(const struct jpeg_decompress_struct *info, const jpeg_component_info *plane, int eighths,
			   uint32_t width, uint32_t height)
{
	double across = (double)info->max_h_samp_factor / plane->h_samp_factor;
	double down = (double)info->max_v_samp_factor / plane->v_samp_factor;
	double full_width = info->image_width / across;
	double full_height = info->image_height / down;
	double scale = eighths / 8.0;
	while (scale < 1 && fmod(across, 2) == 0 && fmod(down, 2) == 0) {
		scale *= 2;
		across /= 2;
		down /= 2;
	}
	return full_width * scale >= fmin(width, full_width) && full_height * scale >= fmin(height, full_height);
}

int jpeg_reader_set_scale(jpeg_reader *self, uint32_t width, uint32_t height)
{
	struct jpeg_decompress_struct *info = &self->info;
	int eighths = 8;
	for (int smaller = 4; smaller >= 1; smaller /= 2) {
		bool suffices = true;
		for (int i = 0; i < info->num_components && suffices; i++)
			suffices = plane_suffices(info, &info->comp_info[i], smaller, width, height);
		if (suffices)
			eighths = smaller;
	}
	info->scale_num = (unsigned int)eighths;
	info->scale_denom = 8;
	return eighths;
}

int jpeg_reader_fail(jpeg_reader *self, const char *name, beton_error *err)
{
	jpeg_destroy_decompress(&self->info);
	return jpeg_fail(&self->escape, BETON_SAMPLE_CORRUPT, name, "its JPEG cannot be decoded", err);
}

unsigned int jpeg_restart_interval(unsigned int mcus_per_row, unsigned int blocks_per_mcu)
{
	unsigned int least = (6 + blocks_per_mcu - 1) / blocks_per_mcu;
	unsigned int most = mcus_per_row / 10 > 3 ? mcus_per_row / 10 : 3;
	for (unsigned int interval = most; interval >= least; interval--)
		if (mcus_per_row % interval == 0)
			return interval;
	for (unsigned int interval = most > least ? most : least; interval < mcus_per_row; interval++)
		if (mcus_per_row % interval == 0)
			return interval;
	return mcus_per_row;
}

static void sink_start(j_compress_ptr info)
{
	(void)info;
}

uint8_t *jpeg_sink_reserve(jpeg_sink *self, struct jpeg_compress_struct *info, size_t bytes)
{
	size_t used = self->capacity - self->manager.free_in_buffer;
	uint8_t *larger = bytes <= SIZE_MAX - used ? realloc(self->data, used + bytes) : NULL;
	if (!larger)
		bt_jpeg_escape_leave_no_memory((bt_jpeg_escape *)info->err);
	self->data = larger;
	self->capacity = used + bytes;
	self->manager.next_output_byte = larger + used;
	self->manager.free_in_buffer = bytes;
	return larger + used;
}

static boolean sink_grow(j_compress_ptr info)
{
	jpeg_sink *self = (jpeg_sink *)info->dest;
	size_t used = self->capacity;
	uint8_t *larger = used <= SIZE_MAX / 2 ? realloc(self->data, used * 2) : NULL;
	if (!larger)
		bt_jpeg_escape_leave_no_memory((bt_jpeg_escape *)info->err);
	self->data = larger;
	self->capacity = used * 2;
	self->manager.next_output_byte = larger + used;
	self->manager.free_in_buffer = used;
	return TRUE;
}

static void sink_end(j_compress_ptr info)
{
	jpeg_sink *self = (jpeg_sink *)info->dest;
	self->size = self->capacity - self->manager.free_in_buffer;
}

void jpeg_sink_attach(jpeg_sink *self, struct jpeg_compress_struct *info, size_t capacity)
{
	self->manager.init_destination = sink_start;
	self->manager.empty_output_buffer = sink_grow;
	self->manager.term_destination = sink_end;
	self->data = malloc(capacity);
	if (!self->data)
		bt_jpeg_escape_leave_no_memory((bt_jpeg_escape *)info->err);
	self->capacity = capacity;
	self->manager.next_output_byte = self->data;
	self->manager.free_in_buffer = capacity;
	info->dest = &self->manager;
}

void jpeg_sink_take(jpeg_sink *self, uint8_t **data, size_t *size)
{
	uint8_t *fitting = realloc(self->data, self->size);
	*data = fitting ? fitting : self->data;
	*size = self->size;
	self->data = NULL;
}
