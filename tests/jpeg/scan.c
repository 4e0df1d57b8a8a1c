/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of common JPEGs against libjpeg: what it decodes, what it leaves, and its inverse DCTs.
 */
#include "tests/loader/fixture.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "jpeg/check.h"
#include "jpeg/coefficients.h"
#include "jpeg/idct.h"
#include "jpeg/scan.h"

enum { PLANES = 3, SIDE_MAX = 256, ROWS = 32 };

static uint32_t seed = 1;

static uint32_t draw(uint32_t least, uint32_t most)
{
	seed = seed * 1664525 + 1013904223;
	return least + (uint32_t)((uint64_t)(seed >> 4) * (most - least + 1) >> 28);
}

/* The planes of a picture; libjpeg's are padded to whole blocks as well. */
typedef struct planes {
	_Alignas(64) uint8_t samples[PLANES][SIDE_MAX * SIDE_MAX];
} planes;

static planes expected, got;

typedef struct reader {
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr errors;
	jmp_buf failed;
} reader;

static void give_up(j_common_ptr jpeg)
{
	longjmp(((reader *)jpeg->client_data)->failed, 1);
}

static void fail_on_warning(j_common_ptr jpeg, int level)
{
	if (level < 0)
		give_up(jpeg);
}

static void open_reader(reader *r, const uint8_t *bytes, size_t size)
{
	r->jpeg.err = jpeg_std_error(&r->errors);
	r->jpeg.client_data = r;
	r->errors.error_exit = give_up;
	r->errors.emit_message = fail_on_warning;
	jpeg_create_decompress(&r->jpeg);
	jpeg_mem_src(&r->jpeg, bytes, size);
}

/* Decodes the picture with libjpeg at 1 / divisor of its size; the strides are SIDE_MAX. False: it has a fault. */
static bool decode_with_library(const uint8_t *bytes, size_t size, unsigned int divisor, planes *out)
{
	reader r;
	if (setjmp(r.failed)) {
		jpeg_destroy_decompress(&r.jpeg);
		return false;
	}
	open_reader(&r, bytes, size);
	jpeg_read_header(&r.jpeg, TRUE);
	r.jpeg.scale_denom = divisor;
	r.jpeg.raw_data_out = TRUE;
	r.jpeg.out_color_space = r.jpeg.jpeg_color_space;
	jpeg_start_decompress(&r.jpeg);
	JSAMPROW rows[PLANES][ROWS];
	JSAMPARRAY at[PLANES] = {rows[0], rows[1], rows[2]};
	for (size_t row = 0; r.jpeg.output_scanline < r.jpeg.output_height; row++) {
		for (int i = 0; i < r.jpeg.num_components; i++) {
			const jpeg_component_info *info = &r.jpeg.comp_info[i];
			size_t count = (size_t)(info->v_samp_factor * info->DCT_scaled_size);
			for (size_t y = 0; y < count; y++)
				rows[i][y] = out->samples[i] + (row * count + y) * SIDE_MAX;
		}
		jpeg_read_raw_data(&r.jpeg, at, ROWS);
	}
	jpeg_finish_decompress(&r.jpeg);
	jpeg_destroy_decompress(&r.jpeg);
	return true;
}

/* The same with bt_scan. sizes: of the planes' whole blocks, which can be compared. */
static bool decode(bt_scan *scan, const uint8_t *bytes, size_t size, unsigned int divisor, planes *out,
		   uint32_t sizes[PLANES][2])
{
	reader r;
	if (setjmp(r.failed)) {
		jpeg_destroy_decompress(&r.jpeg);
		return false;
	}
	open_reader(&r, bytes, size);
	jpeg_read_header(&r.jpeg, TRUE);
	r.jpeg.scale_denom = divisor;
	jpeg_calc_output_dimensions(&r.jpeg);
	bool alone = r.jpeg.num_components == 1;
	uint32_t width = DCTSIZE * (alone ? 1 : (uint32_t)r.jpeg.max_h_samp_factor);
	uint32_t height = DCTSIZE * (alone ? 1 : (uint32_t)r.jpeg.max_v_samp_factor);
	bt_scan_request request = {.end_x = (r.jpeg.image_width + width - 1) / width,
				   .end_y = (r.jpeg.image_height + height - 1) / height};
	for (int i = 0; i < PLANES; i++) {
		const jpeg_component_info *info = i < r.jpeg.num_components ? &r.jpeg.comp_info[i] : NULL;
		request.planes[i] = out->samples[i];
		request.strides[i] = SIDE_MAX;
		sizes[i][0] = info ? info->width_in_blocks * (uint32_t)info->DCT_scaled_size : 0;
		sizes[i][1] = info ? info->height_in_blocks * (uint32_t)info->DCT_scaled_size : 0;
	}
	bool done = r.jpeg.image_width <= SIDE_MAX && r.jpeg.image_height <= SIDE_MAX &&
		    bt_scan_decode(scan, &r.jpeg, &request);
	jpeg_destroy_decompress(&r.jpeg);
	return done;
}

static void compare(uint32_t sizes[PLANES][2])
{
	for (int i = 0; i < PLANES; i++)
		for (uint32_t y = 0; y < sizes[i][1]; y++)
			if (memcmp(expected.samples[i] + (size_t)y * SIDE_MAX, got.samples[i] + (size_t)y * SIDE_MAX,
				   sizes[i][0]))
				fail_msg("row %u of plane %d differs", y, i);
}

/* Whether bt_scan_check takes the JPEG for good; *length: up to the end of the picture. */
static bool check(bt_scan *scan, const uint8_t *bytes, size_t size, size_t *length)
{
	reader r;
	if (setjmp(r.failed)) {
		jpeg_destroy_decompress(&r.jpeg);
		return false;
	}
	open_reader(&r, bytes, size);
	jpeg_read_header(&r.jpeg, TRUE);
	const uint8_t *end = bytes;
	bool good = bt_scan_check(scan, &r.jpeg, NULL, &end);
	*length = (size_t)(end - bytes);
	jpeg_destroy_decompress(&r.jpeg);
	return good;
}

/* Whether bt_scan decodes the JPEG in every size; where it does, libjpeg does as well, to the same planes. */
static bool agrees(bt_scan *scan, const uint8_t *bytes, size_t size)
{
	uint32_t sizes[PLANES][2];
	size_t length = 0;
	bool good = check(scan, bytes, size, &length), all = true;
	if (good)
		assert_true(length >= 2 && length <= size && bytes[length - 2] == 0xff && bytes[length - 1] == 0xd9);
	for (unsigned int divisor = 1; divisor <= DCTSIZE; divisor *= 2) {
		bool decoded = decode(scan, bytes, size, divisor, &got, sizes);
		all = all && decoded;
		/* Coefficients outside the range of the inverse DCT can be checked. */
		assert_true(good || !decoded);
		if (!good)
			continue;
		assert_true(decode_with_library(bytes, size, divisor, &expected));
		if (decoded)
			compare(sizes);
	}
	return all;
}

static bool agrees_on(bt_scan *scan, fixture_jpeg_options options, uint32_t width, uint32_t height)
{
	uint8_t *pixels = fixture_pixels(width, width, height);
	unsigned long size;
	uint8_t *bytes = fixture_jpeg(pixels, width, height, options, &size);
	bool done = agrees(scan, bytes, size);
	free(bytes);
	free(pixels);
	return done;
}

static void common_kinds_are_decoded(void **state)
{
	const int samplings[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};
	const uint32_t sizes[][2] = {{200, 130}, {1, 1}, {8, 8}, {16, 17}, {33, 9}, {70, 90}};
	bt_scan *scan = *state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int restart = 0; restart < 30; restart += 1 + restart / 3) {
			uint32_t width = sizes[i][0], height = sizes[i][1];
			for (size_t j = 0; j < sizeof(samplings) / sizeof(*samplings); j++)
				assert_true(agrees_on(scan,
						      (fixture_jpeg_options){.horizontal = samplings[j][0],
									     .vertical = samplings[j][1],
									     .restart = restart},
						      width, height));
			assert_true(agrees_on(scan, (fixture_jpeg_options){.grey = true, .restart = restart}, width,
					      height));
		}
	assert_true(agrees_on(scan, (fixture_jpeg_options){.grey = true, .horizontal = 2, .vertical = 2}, 50, 70));
}

static void others_are_left(void **state)
{
	bt_scan *scan = *state;
	assert_false(agrees_on(scan, (fixture_jpeg_options){.progressive = true}, 60, 40));
	assert_false(agrees_on(scan, (fixture_jpeg_options){.grey = true, .progressive = true}, 60, 40));
	assert_false(agrees_on(scan, (fixture_jpeg_options){.horizontal = 4, .vertical = 1}, 60, 40));
	assert_false(agrees_on(scan, (fixture_jpeg_options){.cmyk = true}, 60, 40));
	/* The next one is as if they had not been. */
	assert_true(agrees_on(scan, (fixture_jpeg_options){0}, 60, 40));
}

typedef enum huffman_code { STANDARD, OPTIMIZED, SHORT_RUNS, CODES } huffman_code;

/* A code with 1 bit for 16 zeros, 2 for a value of 8 bits, and 10 for all other symbols. */
static void set_short_runs(JHUFF_TBL *table)
{
	const UINT8 first[] = {0xf0, 0x08, 0x00};
	int count = 3;
	memcpy(table->huffval, first, sizeof(first));
	for (int symbol = 1; symbol < 256; symbol++)
		if (symbol != 0x08 && (symbol & 15) >= 1 && (symbol & 15) <= 10)
			table->huffval[count++] = (UINT8)symbol;
	memset(table->bits, 0, sizeof(table->bits));
	table->bits[1] = table->bits[2] = 1;
	table->bits[10] = (UINT8)(count - 2);
}

/* A JPEG of coefficients that no picture has. quantizer: of all. */
static uint8_t *write_coefficients(int32_t most, unsigned int quantizer, huffman_code code, unsigned long *size)
{
	struct jpeg_compress_struct jpeg;
	struct jpeg_error_mgr errors;
	unsigned char *bytes = NULL;
	unsigned int quantizers[DCTSIZE2];
	*size = 0;
	jpeg.err = jpeg_std_error(&errors);
	jpeg_create_compress(&jpeg);
	jpeg_mem_dest(&jpeg, &bytes, size);
	jpeg.image_width = jpeg.image_height = 192;
	jpeg.input_components = 3;
	jpeg.in_color_space = JCS_RGB;
	jpeg_set_defaults(&jpeg);
	for (int i = 0; i < DCTSIZE2; i++)
		quantizers[i] = quantizer;
	for (int i = 0; i < 2; i++)
		jpeg_add_quant_table(&jpeg, i, quantizers, 100, TRUE);
	jpeg.optimize_coding = code == OPTIMIZED;
	for (int i = 0; i < 2 && code == SHORT_RUNS; i++)
		set_short_runs(jpeg.ac_huff_tbl_ptrs[i]);
	jvirt_barray_ptr arrays[PLANES];
	for (int i = 0; i < PLANES; i++) {
		JDIMENSION blocks = i == 0 ? 24 : 12;
		arrays[i] = jpeg.mem->request_virt_barray((j_common_ptr)&jpeg, JPOOL_IMAGE, TRUE, blocks, blocks, 2);
	}
	jpeg_write_coefficients(&jpeg, arrays);
	for (int i = 0; i < PLANES; i++)
		for (JDIMENSION y = 0; y < (i == 0 ? 24 : 12); y++) {
			JBLOCKROW row = *jpeg.mem->access_virt_barray((j_common_ptr)&jpeg, arrays[i], y, 1, TRUE);
			for (JDIMENSION x = 0; x < (i == 0 ? 24 : 12); x++)
				for (uint32_t k = 0, count = 1 << draw(0, 6); k < count; k++)
					row[x][draw(0, 63)] = (JCOEF)((int32_t)draw(0, 2 * (uint32_t)most) - most);
		}
	jpeg_finish_compress(&jpeg);
	jpeg_destroy_compress(&jpeg);
	return bytes;
}

/* libjpeg-turbo's C code wraps where its vectors, and the inverse DCTs here, saturate. */
static void need_vectors(void)
{
#ifdef __x86_64__
	if (!getenv("JSIMD_FORCENONE"))
		return;
#endif
	print_message("libjpeg-turbo has no vectors here\n");
	skip();
}

/* Long codes, long runs, pairs of all kinds, and sums at the ends of 16 bits. */
static void any_coefficients_are_decoded(void **state)
{
	need_vectors();
	bt_scan *scan = *state;
	const int32_t most[] = {1, 20, 1023};
	for (int i = 0; i < 60; i++) {
		unsigned long size;
		uint8_t *bytes =
			write_coefficients(most[i % 3], 1 + (unsigned int)i % 4, (huffman_code)(i / 3 % CODES), &size);
		assert_true(agrees(scan, bytes, size));
		free(bytes);
	}
	unsigned long size;
	uint8_t *bytes = write_coefficients(1023, 5, STANDARD, &size);
	assert_false(agrees(scan, bytes, size));
	free(bytes);
}

/* libjpeg accepts all data that bt_scan accepts. */
static void damage_is_left(void **state)
{
	need_vectors();
	bt_scan *scan = *state;
	int accepted = 0, left = 0;
	for (int restart = 0; restart < 4; restart++) {
		unsigned long size;
		uint8_t *pixels = fixture_pixels(7, 64, 48);
		uint8_t *bytes = fixture_jpeg(pixels, 64, 48, (fixture_jpeg_options){.restart = restart}, &size);
		for (int i = 0; i < 3000; i++) {
			size_t at =
				i % 8 == 0 ? draw(0, (uint32_t)size - 1) : draw((uint32_t)size / 3, (uint32_t)size - 1);
			uint8_t before = bytes[at];
			bytes[at] = i % 3 == 0 ? 0xff : (uint8_t)(before ^ 1 << draw(0, 7));
			*(agrees(scan, bytes, size) ? &accepted : &left) += 1;
			bytes[at] = before;
		}
		for (size_t shorter = 1; shorter < size; shorter += 1 + shorter / 40)
			assert_false(agrees(scan, bytes, size - shorter));
		assert_true(agrees(scan, bytes, size));
		free(bytes);
		free(pixels);
	}
	/* Neither all nor nothing. */
	assert_true(accepted > 100 && left > 1000);
}

/* Decodes MCUs of a JPEG to `out`. */
static bool decode_part(bt_scan *scan, const uint8_t *bytes, size_t size, bt_scan_request request, planes *out)
{
	reader r;
	if (setjmp(r.failed)) {
		jpeg_destroy_decompress(&r.jpeg);
		return false;
	}
	open_reader(&r, bytes, size);
	jpeg_read_header(&r.jpeg, TRUE);
	jpeg_calc_output_dimensions(&r.jpeg);
	memset(out, 0, sizeof(*out));
	for (int i = 0; i < PLANES; i++) {
		request.planes[i] = out->samples[i];
		request.strides[i] = SIDE_MAX;
	}
	bool done = bt_scan_decode(scan, &r.jpeg, &request);
	jpeg_destroy_decompress(&r.jpeg);
	return done;
}

/* The check of a JPEG makes the same index, and finds the same length and faults as one without. */
static void check_in_one_pass(uint8_t *bytes, size_t size, const bt_index_request *expected_index)
{
	static uint8_t out[BT_INDEX_BYTES_MAX];
	bt_index_request made = {.step = expected_index->step, .out = out};
	bt_jpeg_facts facts = {0}, without = {0};
	assert_int_equal(bt_jpeg_check(bytes, size, UINT64_MAX, &made, &facts, NULL), BETON_OK);
	assert_int_equal(bt_jpeg_check(bytes, size, UINT64_MAX, NULL, &without, NULL), BETON_OK);
	assert_memory_equal(&facts, &without, sizeof(facts));
	assert_int_equal(made.size, expected_index->size);
	assert_memory_equal(out, expected_index->out, made.size);
	for (int i = 0; i < 20; i++) {
		size_t at = draw((uint32_t)size / 2, (uint32_t)size - 1);
		beton_error err, other;
		bytes[at] ^= 0x40;
		int result = bt_jpeg_check(bytes, size, UINT64_MAX, &made, &facts, &err);
		assert_int_equal(result, bt_jpeg_check(bytes, size, UINT64_MAX, NULL, &without, &other));
		if (result != BETON_OK) {
			assert_string_equal(err.message, other.message);
			assert_int_equal(made.size, 0);
		}
		bytes[at] ^= 0x40;
	}
}

/* Parts decoded by an index equal parts decoded without. With bytes of the data before the part destroyed, only the
 * index leads to it. A damaged index does no harm. */
static void check_index(bt_scan *scan, fixture_jpeg_options options, uint32_t mcus_x, uint32_t mcus_y, uint32_t step)
{
	uint8_t index[BT_INDEX_BYTES_MAX];
	uint8_t *pixels = fixture_pixels(7, 255, 250);
	unsigned long size;
	uint8_t *bytes = fixture_jpeg(pixels, 255, 250, options, &size);
	bt_index_request made = {.step = step, .out = index};
	bt_jpeg_index(bytes, size, UINT64_MAX, &made);
	size_t used = made.size;
	assert_true(used > 0);
	check_in_one_pass(bytes, size, &made);
	for (int i = 0; i < 200; i++) {
		bt_scan_request request = {.begin_x = draw(0, mcus_x - 1), .begin_y = draw(0, mcus_y - 1)};
		request.end_x = draw(request.begin_x + 1, mcus_x);
		request.end_y = draw(request.begin_y + 1, mcus_y);
		assert_true(decode_part(scan, bytes, size, request, &expected));
		request.index = index;
		request.index_size = used;
		assert_true(decode_part(scan, bytes, size, request, &got));
		assert_memory_equal(&expected, &got, sizeof(got));
		/* The scan's first bytes; they are not restored, to see the decoding after them. */
		uint8_t *data = memmem(bytes, size, "\xff\xda", 2);
		uint8_t before = data[16];
		data[16] ^= 0x55;
		if (request.begin_y > 0) {
			assert_true(decode_part(scan, bytes, size, request, &got));
			assert_memory_equal(&expected, &got, sizeof(got));
		}
		data[16] = before;
		size_t at = draw(0, (uint32_t)used - 1);
		index[at] ^= (uint8_t)(1 << draw(0, 7));
		decode_part(scan, bytes, size, request, &got);
		request.index_size = draw(0, (uint32_t)used);
		decode_part(scan, bytes, size, request, &got);
		bt_jpeg_index(bytes, size, UINT64_MAX, &made);
		assert_int_equal(made.size, used);
	}
	free(bytes);
	free(pixels);
}

static void an_index_leads_to_the_same(void **state)
{
	for (uint32_t step = 0; step < 40; step += 1 + step / 2) {
		check_index(*state, (fixture_jpeg_options){.horizontal = 2, .vertical = 2}, 16, 16, step);
		check_index(*state, (fixture_jpeg_options){.horizontal = 1, .vertical = 1}, 32, 32, step);
		check_index(*state, (fixture_jpeg_options){.grey = true}, 32, 32, step);
	}
}

static size_t put_bits(uint8_t *out, size_t at, const char *bits)
{
	for (; *bits; bits++, at++)
		out[at / 8] |= (uint8_t)((*bits == '1') << (7 - at % 8));
	return at;
}

/* A picture of blocks that are 0, but for the first; what that has is between its mean and its end. */
static bool decodes_block(bt_scan *scan, const char *bits)
{
	enum { BLOCKS_MORE = 144 * 6 - 1 };
	const char end[] = "1100000000";
	unsigned long size;
	uint8_t *bytes = write_coefficients(1, 1, SHORT_RUNS, &size);
	uint8_t *marker = memmem(bytes, size, (const uint8_t[]){0xff, 0xda}, 2);
	assert_non_null(marker);
	uint8_t *data = marker + 2 + marker[3];
	memset(data, 0, size - (size_t)(data - bytes));
	size_t at = put_bits(data, put_bits(data, put_bits(data, 0, "00"), bits), end);
	for (int i = 0; i < BLOCKS_MORE; i++)
		at = put_bits(data, put_bits(data, at, "00"), end);
	while (at % 8)
		at = put_bits(data, at, "1");
	memcpy(data + at / 8, (const uint8_t[]){0xff, 0xd9}, 2);
	/* The bytes after the picture make it long enough to be worth making tables. */
	bool done = agrees(scan, bytes, size);
	free(bytes);
	return done;
}

/* A value of 8 bits, and 48 or 64 zeros. libjpeg then takes the block's end for the next block. */
static void runs_that_lead_too_far_are_left(void **state)
{
	assert_true(decodes_block(*state, "1010000000000"));
	assert_false(decodes_block(*state, "10100000000000"));
}

/* A code of all ones, which no symbol needs. */
static void other_codes_are_left(void **state)
{
	unsigned long size;
	uint8_t *pixels = fixture_pixels(7, 200, 130);
	uint8_t *bytes = fixture_jpeg(pixels, 200, 130, (fixture_jpeg_options){0}, &size);
	uint8_t *table = memmem(bytes, size, (const uint8_t[]){0xff, 0xc4}, 2);
	assert_non_null(table);
	/* The standard code for luma's differences has one of 2, five of 3, and one each of 4 to 9 bits: one more of 9.
	 */
	assert_int_equal(table[4 + 9], 1);
	uint8_t *longer = malloc(size + 1);
	assert_non_null(longer);
	size_t symbols = (size_t)(table - bytes) + 5 + 16 + 12;
	memcpy(longer, bytes, symbols);
	longer[symbols] = 12;
	memcpy(longer + symbols + 1, bytes + symbols, size - symbols);
	uint8_t *changed = longer + (table - bytes);
	changed[3]++;
	changed[4 + 9]++;
	assert_false(decode_with_library(longer, size + 1, 1, &expected));
	assert_false(agrees(*state, longer, size + 1));
	free(longer);
	free(bytes);
	free(pixels);
}

/* Bytes before a marker: fill bytes, and any others. */
static void other_ends_are_left(void **state)
{
	unsigned long size;
	uint8_t *pixels = fixture_pixels(7, 200, 130);
	uint8_t *bytes = fixture_jpeg(pixels, 200, 130, (fixture_jpeg_options){0}, &size);
	uint8_t *longer = malloc(size + 1);
	assert_non_null(longer);
	memcpy(longer, bytes, size - 2);
	memcpy(longer + size - 2, (const uint8_t[]){0x12, 0xff, 0xd9}, 3);
	assert_false(agrees(*state, longer, size + 1));
	longer[size - 2] = 0xff;
	assert_true(agrees(*state, longer, size + 1));
	bytes[size - 1] = 0xd0;
	assert_false(agrees(*state, bytes, size));
	free(longer);
	free(bytes);
	free(pixels);
}

enum { BLOCKS = 16, STRIDE = 128 };

/* The same bytes, verdict and cleared memory from all inverse DCTs to blocks of that size. */
static void compare_transforms(uint32_t side, const int16_t *blocks, const uint8_t *counts, uint32_t count,
			       const int16_t quantizers[64])
{
	static int16_t copy[BLOCKS * 64];
	static uint8_t outputs[2][8 * STRIDE];
	memcpy(copy, blocks, sizeof(copy));
	memset(outputs, 0, sizeof(outputs));
	bool good = bt_idct_row_of(&bt_idct_c, side)(copy, counts, count, quantizers, outputs[0], STRIDE);
	for (unsigned int one = 0; bt_idct_get(one); one++) {
		const bt_idct *idct = bt_idct_get(one);
		memcpy(copy, blocks, sizeof(copy));
		bool same = bt_idct_row_of(idct, side)(copy, counts, count, quantizers, outputs[1], STRIDE) == good;
		for (uint32_t y = 0; good && y < side; y++)
			same = same && memcmp(outputs[0] + y * STRIDE, outputs[1] + y * STRIDE, count * side) == 0;
		for (int k = 0; k < BLOCKS * 64; k++)
			same = same && copy[k] == 0;
		if (!same)
			fail_msg("%s: %u blocks of %u x %u samples", idct->name, count, side, side);
	}
}

/* Up and down the diagonals, as T.81 draws it. */
static void coefficients_are_in_zigzag_order(void **state)
{
	int k = 0;
	(void)state;
	for (int diagonal = 0; diagonal < 15; diagonal++)
		for (int i = 0; i <= diagonal; i++) {
			int y = diagonal % 2 ? i : diagonal - i, x = diagonal - y;
			if (x > 7 || y > 7)
				continue;
			assert_int_equal(bt_zigzag[k], y * 8 + x);
			assert_int_equal(bt_zigzag_numbers[y * 8 + x], k);
			k++;
		}
	assert_int_equal(k, 64);
}

static void transforms_agree(void **state)
{
	static int16_t blocks[BLOCKS * 64];
	static uint8_t counts[BLOCKS];
	(void)state;
	for (int i = 0; i < 20000; i++) {
		uint32_t count = draw(1, BLOCKS), most = 1U << draw(0, 15);
		int16_t quantizers[64];
		for (int k = 0; k < 64; k++)
			quantizers[k] = (int16_t)draw(1, i % 5 == 0 ? 32767 : 4);
		memset(blocks, 0, sizeof(blocks));
		for (uint32_t j = 0; j < count; j++) {
			counts[j] = (uint8_t)(i % 3 == 0 ? 1 : draw(1, i % 3 == 1 ? BT_IDCT_CORNER : 64));
			for (uint32_t k = 0; k < counts[j]; k++)
				blocks[j * 64 + bt_zigzag[k]] = (int16_t)((int32_t)draw(0, most) - (int32_t)(most / 2));
		}
		for (uint32_t side = 1; side <= 8; side *= 2)
			compare_transforms(side, blocks, counts, count, quantizers);
	}
	assert_null(bt_idct_row_of(&bt_idct_c, 3));
}

/* libjpeg's means of blocks wrap from here on. */
static void means_have_a_range(void **state)
{
	const int16_t quantizers[64] = {1}, most = 4091, least = -4100;
	int16_t blocks[64] = {0};
	uint8_t counts[1] = {1}, out = 1;
	(void)state;
	blocks[0] = most;
	assert_true(bt_idct_1(blocks, counts, 1, quantizers, &out, 1) && out == 255);
	blocks[0] = least;
	assert_true(bt_idct_1(blocks, counts, 1, quantizers, &out, 1) && out == 0);
	blocks[0] = most + 1;
	assert_false(bt_idct_1(blocks, counts, 1, quantizers, &out, 1));
	blocks[0] = least - 1;
	assert_false(bt_idct_1(blocks, counts, 1, quantizers, &out, 1));
}

static int open_scan(void **state)
{
	*state = bt_scan_new();
	return *state == NULL;
}

static int close_scan(void **state)
{
	bt_scan_free(*state);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(common_kinds_are_decoded),
		cmocka_unit_test(others_are_left),
		cmocka_unit_test(any_coefficients_are_decoded),
		cmocka_unit_test(damage_is_left),
		cmocka_unit_test(an_index_leads_to_the_same),
		cmocka_unit_test(runs_that_lead_too_far_are_left),
		cmocka_unit_test(other_codes_are_left),
		cmocka_unit_test(other_ends_are_left),
		cmocka_unit_test(coefficients_are_in_zigzag_order),
		cmocka_unit_test(transforms_agree),
		cmocka_unit_test(means_have_a_range),
	};
	return cmocka_run_group_tests(tests, open_scan, close_scan);
}
