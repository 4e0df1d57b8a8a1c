/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg_kinds.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCKS_MAX = 10, /* in an MCU */ PIXELS_MAX = 60000, COMPONENTS_MAX = 4 };

/* 0 .. count - 1. */
static uint32_t draw(jpeg_kind *kind, uint32_t count)
{
	kind->random += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t mixed = kind->random;
	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((mixed ^ mixed >> 31) % count);
}

/* ---- scans ---- */

static int blocks_in_mcu(const jpeg_kind *kind)
{
	int blocks = 0;
	for (int i = 0; i < kind->components; i++)
		blocks += kind->h[i] * kind->v[i];
	return blocks;
}

static void add_scan(jpeg_kind *kind, jpeg_scan_info scan)
{
	if (kind->num_scans < KIND_SCANS_MAX)
		kind->scans[kind->num_scans++] = scan;
}

/* Scans of a band of one component: its first bits, and then one bit at a time. The last bits may be missing. */
typedef struct band {
	int component, begin, end;
	int bit;  /* the lowest that the next scan sends */
	int last; /* the lowest that is sent */
	bool begun;
} band;

static void add_band_scan(jpeg_kind *kind, band *one)
{
	add_scan(kind,
		 (jpeg_scan_info){1, {one->component}, one->begin, one->end, one->begun ? one->bit + 1 : 0, one->bit});
	one->begun = true;
	one->bit--;
}

/* Divides AC of a component into one to three bands. Returns how many. */
static int make_bands(jpeg_kind *kind, int component, band *bands)
{
	bool partial = kind->script == SCRIPT_PROGRESSIVE_PARTIAL;
	int count = 0, end = partial && draw(kind, 3) == 0 ? 2 + (int)draw(kind, 61) : 63;
	for (int begin = 1; begin <= end; count++) {
		band *one = &bands[count];
		*one = (band){.component = component, .begin = begin, .end = end, .bit = (int)draw(kind, 4)};
		if (count < 2 && draw(kind, 2))
			one->end = begin + (int)draw(kind, (uint32_t)(end - begin + 1));
		if (partial && draw(kind, 3) == 0)
			one->last = (int)draw(kind, (uint32_t)one->bit + 2);
		begin = one->end + 1;
	}
	return count;
}

/* DC of all components at once, or of each by itself. */
static void add_dc(jpeg_kind *kind, bool together, int high, int low)
{
	jpeg_scan_info scan = {.comps_in_scan = kind->components, .Ah = high, .Al = low};
	for (int i = 0; i < kind->components; i++)
		scan.component_index[i] = i;
	if (together)
		add_scan(kind, scan);
	for (int i = 0; i < kind->components && !together; i++)
		add_scan(kind, (jpeg_scan_info){1, {i}, 0, 0, high, low});
}

static void choose_progression(jpeg_kind *kind)
{
	band bands[3 * COMPONENTS_MAX];
	int count = 0, dc = (int)draw(kind, 3);
	int last_dc = kind->script == SCRIPT_PROGRESSIVE_PARTIAL && draw(kind, 3) == 0 ? (int)draw(kind, 3) : 0;
	bool together = draw(kind, 3) > 0;
	for (int i = 0; i < kind->components; i++)
		count += make_bands(kind, i, bands + count);
	add_dc(kind, together, 0, dc);
	for (int left = 1; left > 0;) {
		band *one = &bands[draw(kind, (uint32_t)count)];
		if (one->bit >= one->last)
			add_band_scan(kind, one);
		else if (dc > last_dc && draw(kind, 2)) {
			add_dc(kind, together, dc, dc - 1);
			dc--;
		}
		left = dc > last_dc;
		for (int i = 0; i < count; i++)
			left += bands[i].bit >= bands[i].last;
	}
}

static void choose_scans(jpeg_kind *kind)
{
	int n = kind->components;
	kind->num_scans = 0;
	if (kind->script == SCRIPT_SEPARATE)
		for (int i = 0; i < n; i++)
			add_scan(kind, (jpeg_scan_info){1, {i}, 0, 63, 0, 0});
	if (kind->script == SCRIPT_LUMA_AND_COLOUR) {
		add_scan(kind, (jpeg_scan_info){1, {0}, 0, 63, 0, 0});
		if (n > 1)
			add_scan(kind, (jpeg_scan_info){n - 1, {1, 2, 3}, 0, 63, 0, 0});
	}
	if (kind->script > SCRIPT_PROGRESSIVE)
		choose_progression(kind);
}

/* ---- the kind ---- */

static uint32_t choose_side(jpeg_kind *kind)
{
	static const uint32_t ranges[][2] = {{1, 16}, {17, 64}, {65, 130}, {131, 300}};
	const uint32_t *range = ranges[draw(kind, 4)];
	return range[0] + draw(kind, range[1] - range[0] + 1);
}

static void choose_sampling(jpeg_kind *kind)
{
	static const int luma[][2] = {{2, 1}, {2, 2}, {1, 2}, {2, 2}, {4, 1}, {4, 2}, {1, 4}, {2, 4}};
	uint32_t choice = draw(kind, 4), pair = draw(kind, choice == 1 ? 4 : 8);
	do
		for (int i = 0; i < kind->components; i++) {
			bool full = i == 0 || i == 3; /* black is as fine as luma */
			kind->h[i] = choice == 3 ? 1 + (int)draw(kind, 4) : choice && full ? luma[pair][0] : 1;
			kind->v[i] = choice == 3 ? 1 + (int)draw(kind, 4) : choice && full ? luma[pair][1] : 1;
			if (i == 3 && choice != 3 && blocks_in_mcu(kind) > BLOCKS_MAX)
				choice = 0;
		}
	while (blocks_in_mcu(kind) > BLOCKS_MAX);
}

static void choose_colour(jpeg_kind *kind)
{
	static const J_COLOR_SPACE colours[] = {JCS_GRAYSCALE, JCS_GRAYSCALE, JCS_YCbCr, JCS_YCbCr, JCS_YCbCr,
						JCS_YCbCr,     JCS_YCbCr,     JCS_RGB,   JCS_CMYK,  JCS_YCCK};
	kind->colour = colours[draw(kind, 10)];
	kind->components = kind->colour == JCS_GRAYSCALE                          ? 1
			   : kind->colour == JCS_CMYK || kind->colour == JCS_YCCK ? 4
										  : 3;
	kind->jfif = draw(kind, 4) > 0;
	kind->adobe = draw(kind, 8) > 0;
}

/* One of the kind that loaders decode by themselves, and long enough for an index. */
static void make_large(jpeg_kind *kind)
{
	kind->width = 180 + draw(kind, 140);
	kind->height = 180 + draw(kind, 140);
	kind->script = SCRIPT_ONE_SCAN;
	kind->arithmetic = false;
	kind->restart = draw(kind, 4) ? 0 : kind->restart;
	kind->quality = 90 + kind->quality / 10;
	kind->tables = draw(kind, 2) ? TABLES_STANDARD : TABLES_ONES;
	for (int i = 0; i < kind->components; i++)
		kind->h[i] = kind->v[i] = 1;
	kind->h[0] = 1 + (int)draw(kind, 2);
	kind->v[0] = 1 + (int)draw(kind, 2);
}

void jpeg_kind_choose(jpeg_kind *kind, uint32_t number)
{
	static const kind_damage damages[20] = {DAMAGE_CUT,  DAMAGE_CUT,         DAMAGE_NO_END,      DAMAGE_BYTE,
						DAMAGE_BYTE, DAMAGE_FEWER_SCANS, DAMAGE_FEWER_SCANS, DAMAGE_MORE};
	*kind = (jpeg_kind){.number = number, .random = number * UINT64_C(0xd1342543de82ef95)};
	kind->width = choose_side(kind);
	kind->height = choose_side(kind);
	while (kind->width * kind->height > PIXELS_MAX)
		kind->height /= 2;
	choose_colour(kind);
	choose_sampling(kind);
	kind->script = (kind_script)draw(kind, 6);
	kind->arithmetic = draw(kind, 6) == 0;
	kind->restart = draw(kind, 3) ? 0 : 1 + (int)draw(kind, draw(kind, 2) ? 6 : 80);
	kind->tables = (kind_tables)draw(kind, 4);
	kind->quality = 1 + (int)draw(kind, 100);
	kind->codes = (kind_codes)draw(kind, 3);
	kind->damage = damages[draw(kind, 20)];
	if (number % 8 == 7)
		make_large(kind);
	choose_scans(kind);
}

const char *jpeg_kind_text(const jpeg_kind *kind)
{
	static const char *const scripts[] = {"one scan",    "separate scans",     "luma and colour",
					      "progressive", "random progression", "partial progression"};
	static const char *const tables[] = {"standard", "odd", "wide", "ones"};
	static const char *const codes[] = {"standard", "optimal", "odd"};
	static const char *const damages[] = {"none", "cut", "no end", "byte", "fewer scans", "more"};
	static char text[400];
	char sampling[40] = "";
	for (int i = 0; i < kind->components; i++)
		snprintf(sampling + 4 * i, sizeof(sampling) - 4 * (size_t)i, " %dx%d", kind->h[i] & 7, kind->v[i] & 7);
	snprintf(text, sizeof(text),
		 "kind %u: %u x %u, colour %d, sampling%s, %s%s (%d scans), restart %d, tables %s, codes %s, damage %s",
		 kind->number, kind->width, kind->height, (int)kind->colour, sampling, scripts[kind->script],
		 kind->arithmetic ? ", arithmetic" : "", kind->num_scans, kind->restart, tables[kind->tables],
		 codes[kind->codes], damages[kind->damage]);
	return text;
}

/* ---- tables ---- */

static void set_tables(jpeg_kind *kind, struct jpeg_compress_struct *info)
{
	unsigned int quantizers[DCTSIZE2];
	if (kind->tables == TABLES_STANDARD) {
		jpeg_set_quality(info, kind->quality, TRUE);
		return;
	}
	for (int table = 0; table < NUM_QUANT_TBLS; table++) {
		for (int i = 0; i < DCTSIZE2; i++) {
			int frequency = i / DCTSIZE + i % DCTSIZE;
			quantizers[i] = 1;
			if (kind->tables == TABLES_ODD)
				quantizers[i] = 1 + draw(kind, frequency ? 255 : 40);
			if (kind->tables == TABLES_WIDE)
				quantizers[i] = 1 + draw(kind, 40 + 80 * (uint32_t)frequency);
		}
		jpeg_add_quant_table(info, table, quantizers, 100, FALSE);
	}
	for (int i = 0; i < kind->components; i++)
		info->comp_info[i].quant_tbl_no = (int)draw(kind, NUM_QUANT_TBLS);
}

/* A code of random lengths for the symbols, in random order. The word of 16 ones stays free. */
static void make_code(jpeg_kind *kind, const uint8_t *symbols, uint32_t count, JHUFF_TBL *table)
{
	uint32_t room = (1 << 16) - 1;
	uint8_t left[256];
	memcpy(left, symbols, count);
	memset(table->bits, 0, sizeof(table->bits));
	for (uint32_t i = 0; i < count; i++) {
		uint32_t most = room - (count - i - 1), length = 1 + draw(kind, 16);
		while (1u << (16 - length) > most)
			length++;
		room -= 1u << (16 - length);
		table->bits[length]++;
	}
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = draw(kind, count - i);
		table->huffval[i] = left[at];
		left[at] = left[count - i - 1];
	}
}

static JHUFF_TBL **place_of(JHUFF_TBL **tables, struct jpeg_compress_struct *info, int number)
{
	if (!tables[number])
		tables[number] = jpeg_alloc_huff_table((j_common_ptr)info);
	return &tables[number];
}

static void set_codes(jpeg_kind *kind, struct jpeg_compress_struct *info)
{
	uint8_t dc[12], ac[162];
	uint32_t count = 0;
	info->optimize_coding = kind->codes == CODES_OPTIMAL;
	if (kind->codes != CODES_ODD)
		return;
	for (int i = 0; i < 12; i++)
		dc[i] = (uint8_t)i;
	for (int run = 0; run < 16; run++)
		for (int size = 0; size <= 10; size++)
			if (size > 0 || run == 0 || run == 15)
				ac[count++] = (uint8_t)(run << 4 | size);
	for (int i = 0; i < NUM_HUFF_TBLS; i++) {
		make_code(kind, dc, sizeof(dc), *place_of(info->dc_huff_tbl_ptrs, info, i));
		make_code(kind, ac, count, *place_of(info->ac_huff_tbl_ptrs, info, i));
	}
	for (int i = 0; i < kind->components; i++) {
		info->comp_info[i].dc_tbl_no = (int)draw(kind, NUM_HUFF_TBLS);
		info->comp_info[i].ac_tbl_no = (int)draw(kind, NUM_HUFF_TBLS);
	}
}

/* ---- coefficients ---- */

static int32_t within(int32_t value, int32_t most)
{
	return value < -most ? -most : value > most ? most : value;
}

/* Slopes, and edges between some blocks; detail that is less the finer it is. */
static void fill_block(jpeg_kind *kind, const JQUANT_TBL *table, uint32_t x, uint32_t y, uint32_t detail, JCOEF *block)
{
	int32_t mean = (int32_t)(x * 70 + y * 50) % 1400 - 700 + ((x / 3 + y / 2) % 2 ? 150 : 0);
	mean += (int32_t)draw(kind, 120);
	block[0] = (JCOEF)within(mean / table->quantval[0], 1000);
	for (int i = 1; i < DCTSIZE2; i++) {
		int32_t frequency = i / DCTSIZE + i % DCTSIZE;
		int32_t most = (int32_t)detail / (frequency * frequency);
		int32_t value = most > 0 ? (int32_t)draw(kind, 2 * (uint32_t)most + 1) - most : 0;
		block[i] = (JCOEF)within(value / table->quantval[i], 1000);
	}
}

static void fill_component(jpeg_kind *kind, struct jpeg_compress_struct *info, int number, jvirt_barray_ptr array,
			   JDIMENSION columns, JDIMENSION rows)
{
	const JQUANT_TBL *table = info->quant_tbl_ptrs[info->comp_info[number].quant_tbl_no];
	uint32_t detail = 1 + draw(kind, draw(kind, 2) ? 60 : 900);
	for (JDIMENSION y = 0; y < rows; y++) {
		JBLOCKROW row = *info->mem->access_virt_barray((j_common_ptr)info, array, y, 1, TRUE);
		for (JDIMENSION x = 0; x < columns; x++)
			fill_block(kind, table, x, y, detail, row[x]);
	}
}

static JDIMENSION blocks_along(uint32_t pixels, int factor, int most)
{
	uint32_t unit = (uint32_t)most * DCTSIZE;
	JDIMENSION blocks = (pixels * (uint32_t)factor + unit - 1) / unit;
	return (blocks + (JDIMENSION)factor - 1) / (JDIMENSION)factor * (JDIMENSION)factor;
}

static void write_coefficients(jpeg_kind *kind, struct jpeg_compress_struct *info)
{
	jvirt_barray_ptr arrays[COMPONENTS_MAX];
	JDIMENSION columns[COMPONENTS_MAX], rows[COMPONENTS_MAX];
	int most_h = 1, most_v = 1;
	for (int i = 0; i < kind->components; i++) {
		most_h = kind->h[i] > most_h ? kind->h[i] : most_h;
		most_v = kind->v[i] > most_v ? kind->v[i] : most_v;
	}
	for (int i = 0; i < kind->components; i++) {
		columns[i] = blocks_along(kind->width, kind->h[i], most_h);
		rows[i] = blocks_along(kind->height, kind->v[i], most_v);
		arrays[i] = info->mem->request_virt_barray((j_common_ptr)info, JPOOL_IMAGE, TRUE, columns[i], rows[i],
							   (JDIMENSION)kind->v[i]);
	}
	jpeg_write_coefficients(info, arrays);
	for (int i = 0; i < kind->components; i++)
		fill_component(kind, info, i, arrays[i], columns[i], rows[i]);
	jpeg_finish_compress(info);
}

/* ---- damage ---- */

/* The beginnings of scans; returns how many. */
static size_t find_scans(const jpeg_bytes *made, size_t *places, size_t most)
{
	size_t count = 0;
	for (size_t i = 0; i + 1 < made->size && count < most; i++)
		if (made->data[i] == 0xff && made->data[i + 1] == 0xda)
			places[count++] = i;
	return count;
}

static void do_damage(jpeg_kind *kind, jpeg_bytes *made)
{
	size_t scans[KIND_SCANS_MAX], count;
	switch (kind->damage) {
	case DAMAGE_CUT:
		made->size = 4 + draw(kind, (uint32_t)made->size - 4);
		break;
	case DAMAGE_NO_END:
		made->size -= 2;
		break;
	case DAMAGE_BYTE:
		made->data[4 + draw(kind, (uint32_t)made->size - 4)] ^= (uint8_t)(1 << draw(kind, 8));
		break;
	case DAMAGE_FEWER_SCANS:
		count = find_scans(made, scans, KIND_SCANS_MAX);
		if (count < 2)
			break;
		made->size = scans[1 + draw(kind, (uint32_t)count - 1)];
		made->data[made->size++] = 0xff;
		made->data[made->size++] = 0xd9;
		break;
	case DAMAGE_MORE:
		made->data = realloc(made->data, made->size + 7);
		memcpy(made->data + made->size, "\0\xff\xd8\xff\xd9 x", 7);
		made->size += 7;
		break;
	default:
		break;
	}
}

jpeg_bytes jpeg_kind_make(jpeg_kind *kind)
{
	struct jpeg_compress_struct info;
	struct jpeg_error_mgr errors;
	jpeg_bytes made = {0};
	info.err = jpeg_std_error(&errors);
	errors.trace_level = -1; /* coarse tables are meant */
	jpeg_create_compress(&info);
	jpeg_mem_dest(&info, &made.data, &made.size);
	info.image_width = kind->width;
	info.image_height = kind->height;
	info.input_components = kind->components;
	info.in_color_space = kind->colour == JCS_YCCK ? JCS_CMYK : kind->colour;
	jpeg_set_defaults(&info);
	jpeg_set_colorspace(&info, kind->colour);
	info.write_JFIF_header = info.write_JFIF_header && kind->jfif;
	info.write_Adobe_marker = info.write_Adobe_marker && kind->adobe;
	for (int i = 0; i < kind->components; i++) {
		info.comp_info[i].h_samp_factor = kind->h[i];
		info.comp_info[i].v_samp_factor = kind->v[i];
	}
	set_tables(kind, &info);
	info.arith_code = kind->arithmetic;
	if (kind->script < SCRIPT_PROGRESSIVE && !kind->arithmetic)
		set_codes(kind, &info);
	info.restart_interval = (unsigned int)kind->restart;
	if (kind->script == SCRIPT_PROGRESSIVE)
		jpeg_simple_progression(&info);
	if (kind->num_scans) {
		info.scan_info = kind->scans;
		info.num_scans = kind->num_scans;
	}
	write_coefficients(kind, &info);
	jpeg_destroy_compress(&info);
	do_damage(kind, &made);
	return made;
}
