/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>

uint8_t fixture_pixel(uint64_t picture, uint32_t x, uint32_t y, uint32_t channel)
{
	/* Waves, and a little noise on top: a JPEG of them is neither trivial nor mush. */
	uint32_t wave = (uint32_t)(x * (3 + picture % 5) + y * (2 + picture % 7) + channel * 60 + picture * 11) & 255;
	uint32_t value = wave < 128 ? wave * 2 : 510 - wave * 2;
	uint32_t noise = (x * 2654435761u + y * 40503u + channel * 97u + (uint32_t)picture) >> 5 & 15;
	return (uint8_t)((value * 15 / 16) + noise);
}

void fixture_size(uint64_t picture, uint32_t *width, uint32_t *height)
{
	*width = 20 + (uint32_t)(picture * 37 % 64);
	*height = 20 + (uint32_t)(picture * 23 % 64);
}

uint8_t *fixture_pixels(uint64_t picture, uint32_t width, uint32_t height)
{
	uint8_t *pixels = malloc((size_t)width * height * 3);
	assert_non_null(pixels);
	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++)
			for (uint32_t c = 0; c < 3; c++)
				pixels[((size_t)y * width + x) * 3 + c] = fixture_pixel(picture, x, y, c);
	return pixels;
}

/* A pixel of Adobe's CMYK: inverted inks, no black taken out but a constant share. */
static void pack_cmyk(const uint8_t *rgb, uint32_t width, uint8_t *out)
{
	for (uint32_t x = 0; x < width; x++, rgb += 3, out += 4) {
		memcpy(out, rgb, 3);
		out[3] = 200;
	}
}

static void set_partial(struct jpeg_compress_struct *jpeg, int partial)
{
	static const jpeg_scan_info scripts[][3] = {
		{{3, {0, 1, 2}, 0, 0, 0, 0}, {1, {0}, 1, 5, 0, 2}},
		{{3, {0, 1, 2}, 0, 0, 0, 0}, {1, {0}, 1, 63, 0, 3}, {1, {0}, 1, 63, 3, 2}},
		{{3, {0, 1, 2}, 0, 0, 0, 2}, {1, {0}, 1, 63, 0, 0}, {1, {1}, 1, 63, 0, 0}},
	};
	jpeg->scan_info = scripts[partial - 1];
	jpeg->num_scans = partial == 1 ? 2 : 3;
}

uint8_t *fixture_jpeg(const uint8_t *pixels, uint32_t width, uint32_t height, fixture_jpeg_options options,
		      unsigned long *size)
{
	struct jpeg_compress_struct jpeg;
	struct jpeg_error_mgr errors;
	unsigned char *bytes = NULL;
	*size = 0;
	jpeg.err = jpeg_std_error(&errors);
	jpeg_create_compress(&jpeg);
	jpeg_mem_dest(&jpeg, &bytes, size);
	jpeg.image_width = width;
	jpeg.image_height = height;
	jpeg.input_components = options.cmyk ? 4 : 3;
	jpeg.in_color_space = options.cmyk ? JCS_CMYK : JCS_RGB;
	jpeg_set_defaults(&jpeg);
	jpeg_set_quality(&jpeg, 90, TRUE);
	if (options.grey)
		jpeg_set_colorspace(&jpeg, JCS_GRAYSCALE);
	if (options.cmyk)
		jpeg_set_colorspace(&jpeg, options.unmarked ? JCS_CMYK : JCS_YCCK);
	if (options.unmarked)
		jpeg.write_Adobe_marker = FALSE;
	if (!options.grey && !options.cmyk) {
		jpeg.comp_info[0].h_samp_factor = options.horizontal ? options.horizontal : 2;
		jpeg.comp_info[0].v_samp_factor = options.vertical ? options.vertical : 2;
	} else if (options.grey && options.horizontal) {
		jpeg.comp_info[0].h_samp_factor = options.horizontal;
		jpeg.comp_info[0].v_samp_factor = options.vertical;
	}
	jpeg.restart_interval = (unsigned int)options.restart;
	if (options.progressive)
		jpeg_simple_progression(&jpeg);
	if (options.partial)
		set_partial(&jpeg, options.partial);
	jpeg_start_compress(&jpeg, TRUE);
	uint8_t *row = malloc((size_t)width * 4);
	assert_non_null(row);
	for (uint32_t y = 0; y < height; y++) {
		const uint8_t *in = pixels + (size_t)y * width * 3;
		if (options.cmyk)
			pack_cmyk(in, width, row);
		else
			memcpy(row, in, (size_t)width * 3);
		JSAMPROW at = row;
		jpeg_write_scanlines(&jpeg, &at, 1);
	}
	free(row);
	jpeg_finish_compress(&jpeg);
	jpeg_destroy_compress(&jpeg);
	return bytes;
}

uint8_t *fixture_decode(const uint8_t *bytes, unsigned long size, bool fast)
{
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr errors;
	jpeg.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&jpeg);
	jpeg_mem_src(&jpeg, bytes, size);
	jpeg_read_header(&jpeg, TRUE);
	jpeg.out_color_space = JCS_RGB;
	jpeg.dct_method = fast ? JDCT_IFAST : JDCT_ISLOW;
	jpeg_start_decompress(&jpeg);
	size_t stride = (size_t)jpeg.output_width * 3;
	uint8_t *out = malloc(stride * jpeg.output_height);
	assert_non_null(out);
	while (jpeg.output_scanline < jpeg.output_height) {
		JSAMPROW row = out + jpeg.output_scanline * stride;
		jpeg_read_scanlines(&jpeg, &row, 1);
	}
	jpeg_finish_decompress(&jpeg);
	jpeg_destroy_decompress(&jpeg);
	return out;
}

static void append(beton_writer *writer, uint64_t i, bool damaged)
{
	uint32_t width, height;
	fixture_size(i, &width, &height);
	uint8_t *pixels = fixture_pixels(i, width, height);
	unsigned long size = (unsigned long)width * height * 3;
	uint8_t *bytes = pixels;
	if (i % 3 != 2)
		bytes = fixture_jpeg(pixels, width, height,
				     (fixture_jpeg_options){.progressive = i % 7 == 0, .restart = i % 2}, &size);
	beton_input inputs[4] = {
		{.integer = (int64_t)i * 3},
		{.data = bytes,
		 .size = damaged ? size / 2 : size,
		 .mode = i % 3 != 2 ? BETON_IMAGE_JPEG : BETON_IMAGE_RAW,
		 .width = width,
		 .height = height},
		{.real = (double)i / 2},
		{.data = "note", .size = 4},
	};
	char source[40];
	snprintf(source, sizeof(source), "pictures/%d.jpg", (int)i);
	assert_ok(beton_writer_append_from(writer, inputs, source, err));
	if (bytes != pixels)
		free(bytes);
	free(pixels);
}

char *fixture_write(uint64_t n, int64_t damaged)
{
	const char *base = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	size_t room = strlen(base) + 64;
	char *path = malloc(room);
	assert_non_null(path);
	snprintf(path, room, "%s/beton-loader-XXXXXX", base);
	assert_non_null(mkdtemp(path));
	strcat(path, "/data.beton");
	const beton_field fields[4] = {{.name = "label", .type = BETON_FIELD_INT},
				       {.name = "image", .type = BETON_FIELD_IMAGE},
				       {.name = "weight", .type = BETON_FIELD_FLOAT},
				       {.name = "note", .type = BETON_FIELD_BYTES}};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, fields, 4, &options, err));
	for (uint64_t i = 0; i < n; i++)
		append(writer, i, (int64_t)i == damaged);
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	return path;
}

char *fixture_write_picture(const beton_input *picture)
{
	char *path = fixture_write(0, -1);
	const beton_field field = {.name = "image", .type = BETON_FIELD_IMAGE};
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, &field, 1, NULL, err));
	assert_ok(beton_writer_append(writer, picture, err));
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	return path;
}

void fixture_remove(char *path)
{
	unlink(path);
	*strrchr(path, '/') = 0;
	rmdir(path);
	free(path);
}

beton_loader_options fixture_options(uint32_t batch_size, uint32_t num_threads)
{
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.batch_size = batch_size;
	options.num_threads = num_threads;
	options.image.width = 16;
	options.image.height = 12;
	return options;
}

void fixture_start(beton_iterator **iterator, beton_loader *loader, uint64_t epoch, uint64_t position)
{
	beton_iterator_close(iterator);
	assert_ok(beton_iterator_open(iterator, loader, epoch, position, err));
}

void fixture_close(beton_loader **loader, beton_iterator **iterator)
{
	static atomic_int turn;
	bool loader_first = atomic_fetch_add(&turn, 1) % 2;
	if (loader_first)
		beton_loader_close(loader);
	beton_iterator_close(iterator);
	beton_loader_close(loader);
}

const beton_tensor *fixture_look(const beton_batch *batch, const char *name)
{
	for (uint32_t i = 0; i < batch->num_tensors; i++)
		if (strcmp(batch->tensors[i].name, name) == 0)
			return &batch->tensors[i];
	return NULL;
}

const beton_tensor *fixture_find(const beton_batch *batch, const char *name)
{
	const beton_tensor *found = fixture_look(batch, name);
	if (!found)
		fail_msg("no output '%s'", name);
	return found;
}

size_t fixture_element_bytes(beton_dtype dtype)
{
	switch (dtype) {
	case BETON_UINT8:
	case BETON_INT8:
	case BETON_BOOL:
		return 1;
	case BETON_FLOAT16:
	case BETON_BFLOAT16:
	case BETON_INT16:
	case BETON_UINT16:
		return 2;
	case BETON_FLOAT32:
	case BETON_INT32:
	case BETON_UINT32:
		return 4;
	default:
		return 8;
	}
}

size_t fixture_row_bytes(const beton_tensor *tensor)
{
	size_t bytes = fixture_element_bytes(tensor->dtype);
	for (uint32_t i = 1; i < tensor->ndim; i++)
		bytes *= (size_t)tensor->shape[i];
	return bytes;
}

uint8_t *fixture_load(const char *path, size_t samples, const beton_loader_options *options,
		      const beton_iterator_options *sizes, const char *name, size_t bytes)
{
	uint8_t *out = calloc(samples, bytes);
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	assert_non_null(out);
	assert_ok(beton_loader_open(&loader, path, options, err));
	beton_iterator_options chosen;
	beton_iterator_options_init(&chosen);
	if (sizes)
		chosen = *sizes;
	chosen.epoch = 2;
	assert_ok(beton_iterator_open_with(&iterator, loader, &chosen, err));
	int result;
	while ((result = beton_iterator_next(iterator, &batch, -1, NULL)) == BETON_OK) {
		const beton_tensor *tensor = fixture_find(batch, name);
		assert_int_equal(fixture_row_bytes(tensor), bytes);
		for (uint32_t i = 0; i < batch->count; i++)
			memcpy(out + batch->sample_ids[i] * bytes, (const char *)tensor->data + i * bytes, bytes);
		beton_batch_release(&batch);
	}
	assert_int_equal(result, BETON_END);
	fixture_close(&loader, &iterator);
	return out;
}

void fixture_refuse(const char *path, const beton_loader_options *options, const char *words)
{
	beton_loader *loader = NULL;
	beton_error fault;
	assert_int_equal(beton_loader_open(&loader, path, options, &fault), BETON_INVALID_ARGUMENT);
	if (!strstr(fault.message, words))
		fail_msg("'%s' does not say '%s'", fault.message, words);
}

static int count_entries(const char *folder)
{
	DIR *list = opendir(folder);
	assert_non_null(list);
	int count = 0;
	for (const struct dirent *entry; (entry = readdir(list));)
		count += entry->d_name[0] != '.';
	closedir(list);
	return count;
}

static void *allocate(void *context, size_t bytes, size_t alignment)
{
	void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
	atomic_fetch_add((atomic_int *)context, memory != NULL);
	return memory;
}

static void release(void *context, void *memory, size_t bytes)
{
	memset(memory, 0x5a, bytes);
	free(memory);
	atomic_fetch_sub((atomic_int *)context, 1);
}

beton_allocator fixture_allocator(atomic_int *count)
{
	return (beton_allocator){.allocate = allocate, .release = release, .context = count};
}

int fixture_threads(void)
{
	return count_entries("/proc/self/task");
}

int fixture_files(void)
{
	return count_entries("/proc/self/fd");
}

void fixture_pause(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
