/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg_common.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include <jerror.h>

#include "common/error.h"
#include "common/jpeg.h"

/* The kinds of JPEG that libjpeg knows by the number of their marker alone. */
static const char *process_name(int marker)
{
	switch (marker) {
	case 0xc3:
	case 0xcb:
		return "lossless JPEG";
	case 0xc5:
	case 0xc6:
	case 0xc7:
	case 0xcd:
	case 0xce:
	case 0xcf:
		return "hierarchical JPEG";
	default:
		return "a kind of JPEG that is not known";
	}
}

static void leave(j_common_ptr info)
{
	jpeg_escape *way = (jpeg_escape *)info->err;
	const struct jpeg_error_mgr *errors = &way->errors;
	way->no_memory = errors->msg_code == JERR_OUT_OF_MEMORY;
	if (errors->msg_code == JERR_SOF_UNSUPPORTED)
		snprintf(way->message, sizeof(way->message), "%s is not supported",
			 process_name(errors->msg_parm.i[0]));
	else if (errors->msg_code == JERR_BAD_PRECISION)
		snprintf(way->message, sizeof(way->message), "JPEG with %d bits a sample is not supported, only 8",
			 errors->msg_parm.i[0]);
	else
		errors->format_message(info, way->message);
	longjmp(way->target, 1);
}

static void leave_on_warning(j_common_ptr info, int level)
{
	if (level < 0)
		leave(info);
}

struct jpeg_error_mgr *jpeg_escape_init(jpeg_escape *way)
{
	jpeg_std_error(&way->errors);
	way->errors.error_exit = leave;
	way->errors.emit_message = leave_on_warning;
	way->no_memory = false;
	way->message[0] = 0;
	return &way->errors;
}

void jpeg_escape_leave(jpeg_escape *way, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(way->message, sizeof(way->message), format, arguments);
	va_end(arguments);
	longjmp(way->target, 1);
}

void jpeg_escape_leave_no_memory(jpeg_escape *way)
{
	way->no_memory = true;
	longjmp(way->target, 1);
}

int jpeg_escape_fail(const jpeg_escape *way, int code, const char *name, const char *what, beton_error *err)
{
	if (way->no_memory)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	return bt_fail(err, code, "%s: %s: %s", name, what, way->message);
}

static void leave_on_many_scans(j_common_ptr info)
{
	if (info->is_decompressor && ((j_decompress_ptr)info)->input_scan_number > BT_JPEG_SCANS_MAX)
		jpeg_escape_leave((jpeg_escape *)info->err, "more than %d scans", BT_JPEG_SCANS_MAX);
}

void jpeg_reader_start(jpeg_reader *self, const uint8_t *data, size_t size)
{
	jpeg_create_decompress(&self->info);
	self->progress.progress_monitor = leave_on_many_scans;
	self->info.progress = &self->progress;
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
	return jpeg_escape_fail(&self->escape, BETON_SAMPLE_CORRUPT, name, "its JPEG cannot be decoded", err);
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
		jpeg_escape_leave_no_memory((jpeg_escape *)info->err);
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
		jpeg_escape_leave_no_memory((jpeg_escape *)info->err);
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
		jpeg_escape_leave_no_memory((jpeg_escape *)info->err);
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
