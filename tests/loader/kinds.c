/* SPDX-License-Identifier: Apache-2.0
 *
 * Generated JPEGs of many kinds, beside libjpeg alone: the whole picture, crops, with an index and without, in all ways
 * that the loader asks for pixels; as beton-write stores them; and by a whole loader beside the same pictures as raw
 * pixels. Usage: kinds [COUNT [FIRST [FOLDER]]]: the kinds FIRST .. FIRST + COUNT - 1, whose JPEGs and pixels are also
 * written to FOLDER, for tools/compare/jpegs.py. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/jpeg.h"
#include "jpeg/check.h"
#include "jpeg/partial.h"
#include "loader/pixels/decode.h"
#include "loader/pixels/grey.h"
#include "jpeg_kinds.h"
#include "tools/beton-write/images/image_convert.h"

enum { GROUP = 60, CROPS = 5, PLANES = 3, ROWS_MAX = MAX_SAMP_FACTOR * DCTSIZE, WIDTH = 40, HEIGHT = 36 };

static uint32_t first_kind, num_kinds = 120;
static const char *folder;
static uint64_t random_state = 1;
static int failures;

/* Numbers of comparisons: a run without any fails. */
static struct {
	int whole, refused, crops, indexed, rewritten, kept, loaded;
} counts;

static uint32_t draw(uint32_t count)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(random_state >> 33) % count;
}

static void complain(const jpeg_kind *kind, const char *what)
{
	failures++;
	print_error("%s: %s\n", what, jpeg_kind_text(kind));
}

/* ---- libjpeg alone ---- */

/* A whole picture; of no planes if libjpeg fails or warns. */
typedef struct reference {
	uint32_t width, height;
	bool partial; /* see jpeg/partial.h */
	int count;
	bt_plane planes[PLANES];
	uint8_t *memory;
} reference;

typedef struct library {
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr errors;
	jmp_buf failed;
	reference out;
} library;

static void leave(j_common_ptr jpeg)
{
	longjmp(((library *)jpeg->client_data)->failed, 1);
}

static void leave_on_warning(j_common_ptr jpeg, int level)
{
	if (level < 0)
		leave(jpeg);
}

/* How a picture is asked for. */
typedef struct way {
	const char *name;
	bt_pixels_wanted pixels;
	bool grey;
	uint32_t shrink;
} way;

static const way ways[] = {
	{"RGB", BT_WANT_RGB, false, 1},
	{"fast DCT", BT_WANT_RGB_FAST_DCT, false, 1},
	{"planes", BT_WANT_PLANES, false, 1},
	{"planes at 1/2", BT_WANT_PLANES, false, 2},
	{"planes at 1/4", BT_WANT_PLANES, false, 4},
	{"planes at 1/8", BT_WANT_PLANES, false, 8},
	{"grey", BT_WANT_RGB, true, 1},
	{"grey, fast DCT", BT_WANT_RGB_FAST_DCT, true, 1},
	{"grey plane", BT_WANT_PLANES, true, 1},
	{"grey plane at 1/2", BT_WANT_PLANES, true, 2},
};

enum { RGB, FAST, NUM_WAYS = sizeof(ways) / sizeof(*ways) };

static bool has_luma(const struct jpeg_decompress_struct *jpeg)
{
	return jpeg->jpeg_color_space == JCS_GRAYSCALE || jpeg->jpeg_color_space == JCS_YCbCr;
}

/* Whether the JPEG's own planes are asked for, and have whole numbers of pixels for each sample. */
static bool comes_as_planes(const struct jpeg_decompress_struct *jpeg, const way *wanted)
{
	bool possible = has_luma(jpeg);
	for (int i = 0; i < jpeg->num_components; i++)
		possible = possible && jpeg->comp_info[0].h_samp_factor % jpeg->comp_info[i].h_samp_factor == 0 &&
			   jpeg->comp_info[0].v_samp_factor % jpeg->comp_info[i].v_samp_factor == 0;
	if (jpeg->jpeg_color_space == JCS_GRAYSCALE)
		possible = true;
	return possible && (wanted->pixels == BT_WANT_PLANES || (wanted->grey && wanted->pixels == BT_WANT_RGB));
}

static void read_planes(library *self, const way *wanted)
{
	j_decompress_ptr jpeg = &self->jpeg;
	jpeg->scale_num = DCTSIZE / wanted->shrink;
	jpeg->scale_denom = DCTSIZE;
	jpeg->out_color_space = jpeg->jpeg_color_space;
	jpeg->raw_data_out = TRUE;
	jpeg_start_decompress(jpeg);
	size_t places[PLANES], total = 0;
	for (int i = 0; i < jpeg->num_components; i++) {
		const jpeg_component_info *info = &jpeg->comp_info[i];
		bt_plane *plane = &self->out.planes[i];
		plane->stride = (size_t)info->width_in_blocks * (size_t)info->DCT_scaled_size;
		plane->channels = 1;
		places[i] = total;
		total += plane->stride * jpeg->total_iMCU_rows * (size_t)(info->v_samp_factor * info->DCT_scaled_size);
	}
	self->out.memory = malloc(total);
	JSAMPROW rows[PLANES][ROWS_MAX];
	JSAMPARRAY arrays[PLANES] = {rows[0], rows[1], rows[2]};
	for (size_t row = 0; jpeg->output_scanline < jpeg->output_height; row++) {
		for (int i = 0; i < jpeg->num_components; i++) {
			size_t lines = (size_t)(jpeg->comp_info[i].v_samp_factor * jpeg->comp_info[i].DCT_scaled_size);
			for (size_t y = 0; y < lines; y++)
				rows[i][y] =
					self->out.memory + places[i] + (row * lines + y) * self->out.planes[i].stride;
		}
		jpeg_read_raw_data(jpeg, arrays, (JDIMENSION)(jpeg->max_v_samp_factor * jpeg->min_DCT_scaled_size));
	}
	for (int i = 0; i < jpeg->num_components; i++)
		self->out.planes[i].data = self->out.memory + places[i];
	self->out.count = wanted->grey ? 1 : jpeg->num_components;
}

static void read_pixels(library *self, const way *wanted)
{
	j_decompress_ptr jpeg = &self->jpeg;
	bool cmyk = jpeg->num_components == 4, luma = wanted->grey && has_luma(jpeg);
	jpeg->out_color_space = cmyk ? JCS_CMYK : luma ? JCS_GRAYSCALE : JCS_RGB;
	jpeg->dct_method = wanted->pixels == BT_WANT_RGB_FAST_DCT ? JDCT_IFAST : JDCT_ISLOW;
	jpeg_start_decompress(jpeg);
	self->out.partial = bt_jpeg_is_partial(jpeg);
	uint32_t width = jpeg->output_width, channels = wanted->grey ? 1 : 3;
	size_t stride = (size_t)width * (size_t)jpeg->output_components;
	self->out.memory = malloc(stride * jpeg->output_height);
	while (jpeg->output_scanline < jpeg->output_height) {
		JSAMPROW row = self->out.memory + jpeg->output_scanline * stride;
		jpeg_read_scanlines(jpeg, &row, 1);
		if (cmyk)
			bt_cmyk_to_rgb(row, row, width);
		if (wanted->grey && !luma)
			bt_grey(row, width, wanted->pixels == BT_WANT_RGB_FAST_DCT ? BT_GREY_OPENCV : BT_GREY_PILLOW,
				row);
	}
	self->out.planes[0] = (bt_plane){.data = self->out.memory, .stride = stride, .channels = channels};
	self->out.count = 1;
}

static reference decode_alone(const uint8_t *bytes, size_t size, const way *wanted)
{
	library self = {.jpeg.client_data = &self};
	self.jpeg.err = jpeg_std_error(&self.errors);
	self.errors.error_exit = leave;
	self.errors.emit_message = leave_on_warning;
	if (setjmp(self.failed) == 0) {
		jpeg_create_decompress(&self.jpeg);
		self.jpeg.client_data = &self;
		jpeg_mem_src(&self.jpeg, bytes, (unsigned long)size);
		jpeg_read_header(&self.jpeg, TRUE);
		self.out.width = self.jpeg.image_width;
		self.out.height = self.jpeg.image_height;
		if (comes_as_planes(&self.jpeg, wanted))
			read_planes(&self, wanted);
		else
			read_pixels(&self, wanted);
		jpeg_finish_decompress(&self.jpeg);
	} else {
		free(self.out.memory);
		self.out.memory = NULL;
		self.out.count = 0;
	}
	jpeg_destroy_decompress(&self.jpeg);
	return self.out;
}

/* Whether the picture has the samples of the whole there. */
static bool is_part(const reference *whole, const bt_picture *part, const bt_rect *crop)
{
	for (int i = 0; i < whole->count; i++) {
		const bt_plane *from = &whole->planes[i], *plane = &part->planes[i];
		size_t x = (size_t)(crop->x * (plane->box_width / crop->width) - plane->x + 0.5);
		size_t y = (size_t)(crop->y * (plane->box_height / crop->height) - plane->y + 0.5);
		size_t bytes = (size_t)plane->width * plane->channels;
		if (plane->channels != from->channels)
			return false;
		for (size_t row = 0; row < plane->height; row++)
			if (memcmp(from->data + (y + row) * from->stride + x * from->channels,
				   plane->data + row * plane->stride, bytes))
				return false;
	}
	return true;
}

/* ---- the decoder ---- */

/* A JPEG, and what libjpeg makes of it. */
typedef struct subject {
	const jpeg_kind *kind;
	const uint8_t *bytes;
	size_t size;
	beton_value value;
	uint8_t index[BT_INDEX_BYTES_MAX];
	size_t index_size;
	const reference *whole; /* for each way */
} subject;

static bt_decoder *decoder;

/* Decodes a part, and compares. */
static void compare_part(const subject *self, int number, const bt_rect *crop, bool indexed, bool is_whole)
{
	const way *wanted = &ways[number];
	const reference *whole = &self->whole[number];
	const bt_request request = {.pixels = wanted->pixels,
				    .grey = wanted->grey,
				    .crop = *crop,
				    .shrink = wanted->shrink,
				    .index = self->index,
				    .index_size = indexed ? self->index_size : 0};
	bt_picture picture;
	int result = bt_decode(decoder, 0, &self->value, self->bytes, &request, &picture, NULL);
	char what[120];
	snprintf(what, sizeof(what), "%s of %u x %u at %u, %u%s", wanted->name, crop->width, crop->height, crop->x,
		 crop->y, indexed ? ", by its index" : "");
	if (is_whole && (result == BETON_OK) != (whole->count > 0))
		complain(self->kind, result == BETON_OK ? "libjpeg refuses it" : "libjpeg takes it");
	else if (whole->count > 0 && result != BETON_OK)
		complain(self->kind, "a part cannot be decoded");
	else if (whole->count > 0 && !is_part(whole, &picture, crop))
		complain(self->kind, what);
	*(indexed ? &counts.indexed : is_whole ? &counts.whole : &counts.crops) += whole->count > 0;
}

static void compare_parts(subject *self)
{
	uint32_t width = self->value.width, height = self->value.height;
	bt_index_request index = {.step = draw(2) * (1 + draw(9)), .out = self->index};
	assert_true(bt_jpeg_index(self->bytes, self->size, UINT64_MAX, &index));
	self->index_size = index.size;
	for (int i = 0; i < NUM_WAYS; i++) {
		uint32_t shrink = ways[i].shrink;
		if (width < shrink || height < shrink)
			continue;
		compare_part(self, i, &(bt_rect){.width = width, .height = height}, false, true);
		for (int j = 0; j < CROPS; j++) {
			bt_rect crop = {.width = shrink + draw(width - shrink + 1),
					.height = shrink + draw(height - shrink + 1)};
			crop.x = draw(width - crop.width + 1);
			crop.y = draw(height - crop.height + 1);
			compare_part(self, i, &crop, false, false);
			if (self->index_size)
				compare_part(self, i, &crop, true, false);
		}
	}
}

/* ---- beton-write ---- */

static int convert(const jpeg_bytes *source, bool keep, stored_image *out)
{
	image_settings settings;
	image_settings_init(&settings);
	settings.keep_bytes = keep;
	file_bytes file = {malloc(source->size), source->size};
	memcpy(file.data, source->data, source->size);
	int result = image_convert(&file, "picture", &settings, out, NULL);
	free(file.data);
	return result;
}

/* It has the pixels of the source, which was not CMYK. */
static void compare_stored(const subject *source, const stored_image *stored)
{
	subject self = {.kind = source->kind,
			.bytes = stored->data,
			.size = stored->size,
			.value = source->value,
			.whole = source->whole};
	self.value.blob.size = stored->size;
	compare_parts(&self);
}

static void compare_writing(const subject *self, const jpeg_bytes *source)
{
	const jpeg_kind *kind = self->kind;
	bool good = self->whole[RGB].count > 0;
	for (int keep = 0; keep < 2; keep++) {
		stored_image stored = {0};
		int result = convert(source, keep, &stored);
		if ((result == BETON_OK) != good)
			complain(kind, good ? "the writer refuses it" : "the writer takes it");
		else if (good && kind->components < 4) {
			bool same = stored.size == source->size && !memcmp(stored.data, source->data, stored.size);
			if (keep && !same)
				complain(kind, "its bytes are not kept");
			if (!same)
				compare_stored(self, &stored);
			*(same ? &counts.kept : &counts.rewritten) += 1;
		}
		free(stored.data);
		free(stored.index);
	}
}

/* ---- the loader ---- */

/* Files of the same pictures. */
enum { AS_WRITTEN, KEPT, KEPT_WITHOUT_INDEX, RAW, RAW_FAST, FILES };

typedef struct files {
	char *paths[FILES];
	beton_writer *writers[FILES];
	size_t samples;
	uint32_t first;
} files;

static void open_files(files *self, uint32_t first)
{
	static const beton_field field = {.name = "image", .type = BETON_FIELD_IMAGE};
	*self = (files){.first = first};
	for (int i = 0; i < FILES; i++) {
		beton_writer_options options;
		beton_writer_options_init(&options);
		options.page_size = BETON_PAGE_SIZE_MIN;
		options.flags = i == KEPT_WITHOUT_INDEX ? BETON_WRITER_NO_JPEG_INDEX : 0;
		self->paths[i] = strdup("/tmp/beton-kinds-XXXXXX");
		int fd = mkstemp(self->paths[i]);
		assert_true(fd >= 0);
		close(fd);
		assert_ok(beton_writer_open(&self->writers[i], self->paths[i], &field, 1, &options, err));
	}
}

static void put(files *self, int file, const void *data, size_t size, beton_image_mode mode, const reference *whole)
{
	const beton_input input = {
		.data = data, .size = size, .mode = mode, .width = whole->width, .height = whole->height};
	assert_ok(beton_writer_append(self->writers[file], &input, err));
}

static void put_picture(files *self, const subject *one, const jpeg_bytes *source)
{
	if (one->kind->components == 4 || one->whole[RGB].count == 0)
		return;
	for (int file = 0; file < FILES; file++) {
		const reference *whole = &one->whole[file == RAW_FAST ? FAST : RGB];
		stored_image stored = {0};
		if (file < RAW && convert(source, file != AS_WRITTEN, &stored) == BETON_OK)
			put(self, file, stored.data, stored.size, BETON_IMAGE_JPEG, whole);
		else
			put(self, file, whole->memory, (size_t)whole->width * whole->height * 3, BETON_IMAGE_RAW,
			    whole);
		free(stored.data);
		free(stored.index);
	}
	self->samples++;
}

/* Loads all files, and compares with `expected`. */
static void compare_files(const files *self, beton_loader_options options, int expected, const char *what)
{
	size_t row = (size_t)WIDTH * HEIGHT * (options.image.color == BETON_COLOR_GREY ? 1 : 3);
	uint8_t *right = fixture_load(self->paths[expected], self->samples, &options, NULL, "image", row);
	for (int file = 0; file < RAW; file++) {
		uint8_t *got = fixture_load(self->paths[file], self->samples, &options, NULL, "image", row);
		for (size_t i = 0; i < self->samples; i++)
			if (memcmp(got + i * row, right + i * row, row)) {
				failures++;
				print_error("%s: file %d, sample %zu of the kinds from %u on\n", what, file, i,
					    self->first);
			}
		free(got);
		counts.loaded += (int)self->samples;
	}
	free(right);
}

static void close_files(files *self)
{
	for (int i = 0; i < FILES; i++) {
		assert_ok(beton_writer_finish(self->writers[i], err));
		beton_writer_close(&self->writers[i]);
	}
	beton_loader_options options = fixture_options(7, 1);
	options.order = BETON_ORDER_SEQUENTIAL;
	options.image.width = WIDTH;
	options.image.height = HEIGHT;
	for (int crop = 0; crop < 3; crop++) {
		options.image.crop = (beton_crop)crop;
		options.image.pixels = BETON_PIXELS_TORCHVISION;
		compare_files(self, options, RAW, "TORCHVISION");
		options.image.pixels = BETON_PIXELS_FFCV;
		compare_files(self, options, RAW_FAST, "FFCV");
		options.image.pixels = BETON_PIXELS_FAST;
		compare_files(self, options, KEPT_WITHOUT_INDEX, "FAST");
		options.image.filter = BETON_FILTER_BILINEAR;
		compare_files(self, options, RAW, "BILINEAR");
		options.image.filter = BETON_FILTER_AUTO;
		options.image.color = BETON_COLOR_GREY;
		compare_files(self, options, KEPT_WITHOUT_INDEX, "grey");
		options.image.color = BETON_COLOR_RGB;
	}
	for (int i = 0; i < FILES; i++)
		fixture_remove(self->paths[i]);
}

/* ---- kinds ---- */

static void write_one(uint32_t number, const char *ending, const void *bytes, size_t size)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/%u%s", folder, number, ending);
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

static void write_both(uint32_t number, const jpeg_bytes *made, const reference *whole)
{
	write_one(number, ".jpg", made->data, made->size);
	if (whole->count > 0)
		write_one(number, whole->partial ? ".partial" : ".rgb", whole->memory,
			  (size_t)whole->height * whole->planes[0].stride);
}

static void compare_kind(uint32_t number, files *group)
{
	static jpeg_kind kind;
	static subject one;
	reference whole[NUM_WAYS];
	random_state = number;
	jpeg_kind_choose(&kind, number);
	jpeg_bytes made = jpeg_kind_make(&kind);
	for (int i = 0; i < NUM_WAYS; i++)
		whole[i] = decode_alone(made.data, made.size, &ways[i]);
	if (folder && kind.components < 4)
		write_both(number, &made, &whole[RGB]);
	/* A damaged header may say another size. */
	if ((uint64_t)whole[RGB].width * whole[RGB].height < 1 << 20) {
		one = (subject){.kind = &kind, .bytes = made.data, .size = made.size, .whole = whole};
		one.value = (beton_value){.type = BETON_FIELD_IMAGE,
					  .mode = BETON_IMAGE_JPEG,
					  .width = whole[RGB].width ? whole[RGB].width : kind.width,
					  .height = whole[RGB].height ? whole[RGB].height : kind.height,
					  .blob.size = made.size};
		compare_parts(&one);
		compare_writing(&one, &made);
		put_picture(group, &one, &made);
		counts.refused += whole[RGB].count == 0;
	}
	for (int i = 0; i < NUM_WAYS; i++)
		free(whole[i].memory);
	free(made.data);
}

static void all_kinds_are_as_libjpeg_has_them(void **state)
{
	(void)state;
	assert_ok(bt_decoder_open(&decoder, UINT64_MAX, NULL, err));
	for (uint32_t first = 0; first < num_kinds; first += GROUP) {
		files group;
		open_files(&group, first_kind + first);
		for (uint32_t i = first; i < first + GROUP && i < num_kinds; i++)
			compare_kind(first_kind + i, &group);
		close_files(&group);
	}
	bt_decoder_close(&decoder);
	print_message(
		"%u kinds: %d whole pictures, %d crops, %d crops by an index; %d refused as by libjpeg; %d rewritten, "
		"%d kept; %d loaded; %d differences\n",
		num_kinds, counts.whole, counts.crops, counts.indexed, counts.refused, counts.rewritten, counts.kept,
		counts.loaded, failures);
	assert_int_equal(failures, 0);
	assert_true(num_kinds < GROUP || (counts.whole && counts.crops && counts.indexed && counts.refused &&
					  counts.rewritten && counts.kept && counts.loaded));
}

int main(int argc, char **argv)
{
	if (argc > 1)
		num_kinds = (uint32_t)strtoul(argv[1], NULL, 10);
	if (argc > 2)
		first_kind = (uint32_t)strtoul(argv[2], NULL, 10);
	folder = argc > 3 ? argv[3] : NULL;
	const struct CMUnitTest tests[] = {cmocka_unit_test(all_kinds_are_as_libjpeg_has_them)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
