/* SPDX-License-Identifier: Apache-2.0 */
#include "scan.h"

#include <stdlib.h>

#include "bits.h"
#include "coefficients.h"
#include "common/isa.h"
#include "idct.h"
#include "marker.h"

enum {
	/* Making tables takes longer than libjpeg takes for less data. */
	LEAST_BYTES = 2048,
	/* MCUs in a row that are transformed at once: their coefficients and the look-ups fit in the first cache. */
	PIECE = 8,
	CACHE_LINE = 64, /* bytes; a vector of coefficients that lies in two lines takes twice as long */
	/* The least MCUs between two points of an index, and the least data for which one is made. */
	INDEX_STEP = 8,
	INDEX_LEAST_BYTES = 8192,
	POSITIONS = 192 + 64, /* of a coefficient, with positions past a run that ends the block */
};

/* State for decoding a component. */
typedef struct component {
	uint32_t width, height; /* blocks in an MCU */
	uint32_t size;          /* samples of a block's side: 8, 4, 2 or 1 */
	bt_idct_row *transform;
	const bt_huffman *dc, *ac;
	int16_t quantizers[64]; /* by row */
	int32_t last;           /* DC coefficient */
	/* A piece's coefficients and their counts, of `height` rows of blocks. Transformed coefficients are cleared. */
	int16_t *blocks;
	uint8_t *counts;
} component;

/* A block of an MCU. */
typedef struct unit {
	component *component;
	size_t block; /* of the piece's first MCU, in the component's */
} unit;

struct bt_scan {
	bt_segment segment;
	component components[BT_SCAN_COMPONENTS];
	unit units[BT_BLOCKS_MAX];
	bt_huffman dc[NUM_HUFF_TBLS], ac[NUM_HUFF_TBLS];
	int num_components, num_units;
	int num_wanted; /* components whose samples are made: the first one, or all */
	uint32_t mcus_x, mcus_y;
	uint32_t interval;  /* MCUs of a segment */
	const uint8_t *end; /* of the JPEG */
	const bt_idct *idct;
	const struct mcu_loops *loops;
	_Alignas(CACHE_LINE) int16_t blocks[PIECE * BT_BLOCKS_MAX * DCTSIZE2]; /* of all components */
	uint8_t counts[PIECE * BT_BLOCKS_MAX];
	uint8_t positions[POSITIONS]; /* of coefficients in zigzag order */
};

/* ---- the header ---- */

bool bt_scan_is_common(const struct jpeg_decompress_struct *jpeg)
{
	if (jpeg->progressive_mode || jpeg->arith_code || jpeg->data_precision != 8 || jpeg->Ss != 0 ||
	    jpeg->Se != DCTSIZE2 - 1 || jpeg->Ah != 0 || jpeg->Al != 0 || jpeg->comps_in_scan != jpeg->num_components)
		return false;
	if (jpeg->num_components == 1)
		return true;
	const jpeg_component_info *info = jpeg->comp_info;
	return jpeg->num_components == 3 && info[0].h_samp_factor <= 2 && info[0].v_samp_factor <= 2 &&
	       info[1].h_samp_factor == 1 && info[1].v_samp_factor == 1 && info[2].h_samp_factor == 1 &&
	       info[2].v_samp_factor == 1;
}

/* The tables of a code; NULL: there is none, or it is wrong, or not worth it. */
static const bt_huffman *read_code(const struct jpeg_decompress_struct *jpeg, bt_huffman tables[NUM_HUFF_TBLS],
				   JHUFF_TBL *const codes[NUM_HUFF_TBLS], int number, bool dc)
{
	if (number < 0 || number >= NUM_HUFF_TBLS || !codes[number])
		return NULL;
	bt_huffman *table = &tables[number];
	const JHUFF_TBL *code = codes[number];
	if (bt_huffman_is(table, code->bits, code->huffval))
		return table;
	return jpeg->src->bytes_in_buffer >= LEAST_BYTES && bt_huffman_make(table, code->bits, code->huffval, dc)
		       ? table
		       : NULL;
}

static bool read_component(bt_scan *scan, const struct jpeg_decompress_struct *jpeg, int index)
{
	component *out = &scan->components[index];
	const jpeg_component_info *info = &jpeg->comp_info[index];
	/* The scan may name its components in another order. */
	if (jpeg->cur_comp_info[index] != info || info->quant_tbl_no < 0 || info->quant_tbl_no >= NUM_QUANT_TBLS ||
	    !jpeg->quant_tbl_ptrs[info->quant_tbl_no])
		return false;
	/* A single component is not interleaved: its MCU is a block, whatever its sampling. */
	bool alone = jpeg->num_components == 1;
	out->width = alone ? 1 : (uint32_t)info->h_samp_factor;
	out->height = alone ? 1 : (uint32_t)info->v_samp_factor;
	out->size = (uint32_t)info->DCT_scaled_size;
	out->transform = bt_idct_row_of(scan->idct, out->size);
	out->dc = read_code(jpeg, scan->dc, jpeg->dc_huff_tbl_ptrs, info->dc_tbl_no, true);
	out->ac = read_code(jpeg, scan->ac, jpeg->ac_huff_tbl_ptrs, info->ac_tbl_no, false);
	const UINT16 *quantizers = jpeg->quant_tbl_ptrs[info->quant_tbl_no]->quantval;
	for (int i = 0; i < DCTSIZE2; i++) {
		if (quantizers[i] > INT16_MAX)
			return false;
		out->quantizers[i] = (int16_t)quantizers[i];
	}
	return out->transform && out->dc && out->ac;
}

/* Divides the memory of a piece, whose coefficients are 0 then. */
static void place_blocks(bt_scan *scan)
{
	memset(scan->blocks, 0, sizeof(scan->blocks));
	size_t before = 0;
	scan->num_units = 0;
	for (int i = 0; i < scan->num_components; i++) {
		component *c = &scan->components[i];
		c->blocks = scan->blocks + before * DCTSIZE2;
		c->counts = scan->counts + before;
		before += (size_t)PIECE * c->width * c->height;
		for (uint32_t y = 0; y < c->height; y++)
			for (uint32_t x = 0; x < c->width; x++)
				scan->units[scan->num_units++] = (unit){c, (size_t)y * PIECE * c->width + x};
	}
}

static bool read_header(bt_scan *scan, const struct jpeg_decompress_struct *jpeg)
{
	if (!bt_scan_is_common(jpeg))
		return false;
	scan->num_components = jpeg->num_components;
	for (int i = 0; i < scan->num_components; i++)
		if (!read_component(scan, jpeg, i))
			return false;
	uint32_t width = scan->components[0].width * DCTSIZE, height = scan->components[0].height * DCTSIZE;
	scan->mcus_x = (jpeg->image_width + width - 1) / width;
	scan->mcus_y = (jpeg->image_height + height - 1) / height;
	scan->interval = jpeg->restart_interval ? jpeg->restart_interval : scan->mcus_x * scan->mcus_y;
	scan->end = jpeg->src->next_input_byte + jpeg->src->bytes_in_buffer;
	place_blocks(scan);
	return true;
}

/* ---- coefficients ---- */

#define INLINE static inline __attribute__((always_inline))

/* The entry of a coefficient whose code or value does not fit into the look-up; 0: not a code. */
static __attribute__((noinline)) uint64_t long_entry(uint64_t window, const bt_huffman *table, uint64_t entry, bool dc)
{
	uint32_t symbol = bt_huffman_part(entry, BT_ENTRY_FIRST), length = bt_huffman_part(entry, BT_ENTRY_LENGTH);
	if (length == 0) {
		int found = bt_huffman_symbol(&table->codes, window, bt_huffman_bits(dc), &length);
		if (found < 0)
			return 0;
		symbol = (uint32_t)found;
	}
	uint32_t size = dc ? symbol : symbol & 15, run = dc ? 0 : symbol >> 4;
	if (size == 0)
		return bt_huffman_entry(length, 0, dc ? 1 : run == 15 ? 16 : BT_HUFFMAN_END, 0);
	int32_t value = (int32_t)(window << length >> (64 - size));
	if (!(value >> (size - 1)))
		value -= (1 << size) - 1;
	return bt_huffman_entry(length + size, 0, run + 1, value);
}

_Static_assert(BT_HUFFMAN_DC_LENGTH + 2 * BT_HUFFMAN_AC_LENGTH <= 56 && 3 * BT_HUFFMAN_AC_LENGTH <= 56,
	       "look-ups outrun the window");

/* Looks up what comes next, and is still to be taken; 0: no code. Between two calls of bt_bits_fill may be one for DC
 * and two for AC, or three for AC: what an entry does not hold is taken here, and the window filled. */
INLINE uint64_t look_up(bt_bits *bits, const bt_huffman *table, bool dc)
{
	uint64_t entry = table->entries[bits->window >> (64 - bt_huffman_bits(dc))];
	if (__builtin_expect(bt_huffman_part(entry, BT_ENTRY_SKIP) == 0, 0)) {
		bt_bits_fill(bits);
		entry = long_entry(bits->window, table, entry, dc);
		bt_bits_take(bits, bt_huffman_part(entry, BT_ENTRY_LENGTH));
		bt_bits_fill(bits);
		entry &= ~(UINT64_C(255) << BT_ENTRY_LENGTH | UINT64_C(255) << BT_ENTRY_FIRST_LENGTH);
	}
	return entry;
}

/* The first value of an entry, which has not been taken. */
INLINE int16_t first_value(const bt_bits *bits, uint64_t entry, bool dc)
{
	uint64_t rest = bits->window << bt_huffman_bits(dc) >> 1 >> (entry >> BT_ENTRY_REST);
	return (int16_t)((uint32_t)(entry >> BT_ENTRY_FIRST) + (uint32_t)rest);
}

/* Reads the AC coefficients after coefficient *k that one entry holds, up to *k. False: the block has no more, and the
 * entry is still to be taken. *k is then 63, or at least BT_HUFFMAN_END more than the last coefficient, or something
 * between them after a fault; the entry's second coefficient does not count where the first is 63. */
INLINE bool take_ac(bt_bits *bits, const bt_huffman *table, const uint8_t *positions, int16_t *block, bool keep,
		    uint32_t *k, uint64_t *entry)
{
	*entry = look_up(bits, table, false);
	*k += *entry ? bt_huffman_part(*entry, BT_ENTRY_SKIP) : DCTSIZE2;
	if (keep) {
		/* In this order: a second past coefficient 63, or none, is written over. */
		block[positions[*k]] = (int8_t)(*entry >> BT_ENTRY_SECOND);
		block[positions[*k - bt_huffman_part(*entry, BT_ENTRY_SECOND_SKIP)]] = first_value(bits, *entry, false);
	}
	if (*k >= DCTSIZE2 - 1)
		return false;
	bt_bits_take(bits, bt_huffman_part(*entry, BT_ENTRY_LENGTH));
	return true;
}

/* Decodes a block; without `keep` only as far as the next one needs. Returns the number of coefficients up to the last
 * one that is not 0; 0: a fault. */
INLINE uint32_t take_block(const uint8_t *positions, bt_bits *bits, component *c, int16_t *block, bool keep)
{
	const bt_huffman *ac = c->ac;
	bt_bits_fill(bits);
	uint64_t entry = look_up(bits, c->dc, true);
	c->last += first_value(bits, entry, true);
	bt_bits_take(bits, bt_huffman_part(entry, BT_ENTRY_LENGTH));
	if (!entry || c->last != (int16_t)c->last)
		return 0;
	if (keep)
		block[0] = (int16_t)c->last;
	uint32_t k = 0;
	while (take_ac(bits, ac, positions, block, keep, &k, &entry) &&
	       take_ac(bits, ac, positions, block, keep, &k, &entry)) {
		bt_bits_fill(bits);
		if (!take_ac(bits, ac, positions, block, keep, &k, &entry))
			break;
	}
	bool first = k - bt_huffman_part(entry, BT_ENTRY_SECOND_SKIP) == DCTSIZE2 - 1;
	bt_bits_take(bits, bt_huffman_part(entry, first ? BT_ENTRY_FIRST_LENGTH : BT_ENTRY_LENGTH));
	if (first || k == DCTSIZE2 - 1)
		return DCTSIZE2;
	uint32_t last = k - BT_HUFFMAN_END;
	return last < DCTSIZE2 - 1 ? last + 1 : 0;
}

/* The components whose coefficients are kept. */
typedef enum kept { KEEP_NONE, KEEP_FIRST, KEEP_ALL } kept;

/* Decodes MCUs of a segment from its MCU x on; `keep` selects MCUs whose coefficients go to the piece. */
INLINE bool take_mcus(bt_scan *scan, uint32_t count, uint32_t x, kept keep)
{
	bt_segment *segment = &scan->segment;
	bt_bits bits = segment->bits;
	for (uint32_t i = 0; i < count; i++) {
		if (__builtin_expect(bits.at > segment->safe, 0)) {
			segment->bits = bits;
			if (!bt_segment_feed(segment))
				return false;
			bits = segment->bits;
		}
		for (int j = 0; j < scan->num_units; j++) {
			component *c = scan->units[j].component;
			size_t at = scan->units[j].block + (size_t)(x + i) * c->width;
			int16_t *block = c->blocks + at * DCTSIZE2;
			bool keeps = keep == KEEP_ALL || (keep == KEEP_FIRST && c == scan->components);
			uint32_t number = keeps ? take_block(scan->positions, &bits, c, block, true)
						: take_block(scan->positions, &bits, c, block, false);
			if (__builtin_expect(number == 0, 0))
				return false;
			if (keeps)
				c->counts[at] = (uint8_t)number;
		}
	}
	segment->bits = bits;
	return true;
}

/* The loops over MCUs, once for each instruction set. */
typedef struct mcu_loops {
	bool (*skip)(bt_scan *scan, uint32_t count);
	bool (*keep)(bt_scan *scan, uint32_t count, uint32_t x);
	bool (*keep_first)(bt_scan *scan, uint32_t count, uint32_t x);
} mcu_loops;

#define LOOPS(name, target)                                                        \
	static target bool name##_skip(bt_scan *scan, uint32_t count)              \
	{                                                                          \
		return take_mcus(scan, count, 0, KEEP_NONE);                       \
	}                                                                          \
	static target bool name##_keep(bt_scan *scan, uint32_t count, uint32_t x)  \
	{                                                                          \
		return take_mcus(scan, count, x, KEEP_ALL);                        \
	}                                                                          \
	static target bool name##_first(bt_scan *scan, uint32_t count, uint32_t x) \
	{                                                                          \
		return take_mcus(scan, count, x, KEEP_FIRST);                      \
	}                                                                          \
	static const mcu_loops name = {name##_skip, name##_keep, name##_first};

LOOPS(base, )
#ifdef __x86_64__
/* Shifts by a count of any register, and without flags. */
LOOPS(bmi2, __attribute__((target("bmi2"))))
#endif

static const mcu_loops *choose_loops(void)
{
#ifdef __x86_64__
	if (bt_isa_level() >= BT_ISA_AVX2 && __builtin_cpu_supports("bmi2"))
		return &bmi2;
#endif
	return &base;
}

bt_scan *bt_scan_new(void)
{
	bt_scan *scan = aligned_alloc(CACHE_LINE, sizeof(*scan));
	if (!scan)
		return NULL;
	memset(scan, 0, sizeof(*scan));
	/* The end of a block writes 0 to these positions before any other coefficient is written. */
	memset(scan->positions, 63, sizeof(scan->positions));
	memcpy(scan->positions, bt_zigzag, sizeof(bt_zigzag));
	scan->idct = bt_idct_get(0);
	scan->loops = choose_loops();
	return scan;
}

void bt_scan_free(bt_scan *scan)
{
	free(scan);
}

/* ---- the picture ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Writes the samples of a piece. x, row: its first MCU among the wanted ones. False: a coefficient is out of range. */
static bool write_piece(bt_scan *scan, const bt_scan_request *request, uint32_t x, uint32_t row, uint32_t count)
{
	bool good = true;
	for (int i = 0; i < scan->num_wanted; i++) {
		component *c = &scan->components[i];
		size_t stride = request->strides[i];
		uint8_t *out = request->planes[i] + ((size_t)row * c->height * stride + (size_t)x * c->width) * c->size;
		for (uint32_t y = 0; y < c->height; y++, out += c->size * stride)
			good &= c->transform(c->blocks + (size_t)y * PIECE * c->width * DCTSIZE2,
					     c->counts + (size_t)y * PIECE * c->width, count * c->width, c->quantizers,
					     out, stride);
	}
	return good;
}

/* Decodes MCUs x .. end - 1 of a row, all wanted and in one segment. A piece that ends there is written. */
static bool decode_wanted(bt_scan *scan, const bt_scan_request *request, uint32_t x, uint32_t y, uint32_t end)
{
	const struct mcu_loops *loops = scan->loops;
	while (x < end) {
		uint32_t at = x - request->begin_x, in_piece = at % PIECE, count = least(PIECE - in_piece, end - x);
		if (!(scan->num_wanted < scan->num_components ? loops->keep_first : loops->keep)(scan, count, in_piece))
			return false;
		x += count;
		if ((in_piece + count == PIECE || x == request->end_x) &&
		    !write_piece(scan, request, at - in_piece, y - request->begin_y, in_piece + count))
			return false;
	}
	return true;
}

/* Decodes `count` MCUs from (x, y) on, all in one row and one segment. */
static bool decode_run(bt_scan *scan, const bt_scan_request *request, uint32_t x, uint32_t y, uint32_t count)
{
	uint32_t end = x + count;
	if (y < request->begin_y || x >= request->end_x || end <= request->begin_x)
		return scan->loops->skip(scan, count);
	uint32_t begin = x < request->begin_x ? request->begin_x : x, stop = least(end, request->end_x);
	return scan->loops->skip(scan, begin - x) && decode_wanted(scan, request, begin, y, stop) &&
	       scan->loops->skip(scan, end - stop);
}

static void open_segment(bt_scan *scan, const uint8_t *at)
{
	bt_segment_open(&scan->segment, at, scan->end);
	for (int i = 0; i < scan->num_components; i++)
		scan->components[i].last = 0;
}

/* Moves to the marker after the segment, all of whose MCUs have been decoded. */
static bool end_segment(bt_scan *scan, const uint8_t **at)
{
	if (!bt_segment_is_read(&scan->segment))
		return false;
	*at = scan->segment.raw;
	return true;
}

/* Whether MCUs first .. end - 1 have none that is wanted. */
static bool is_outside(const bt_scan *scan, const bt_scan_request *request, uint32_t first, uint32_t end)
{
	uint32_t y = (end - 1) / scan->mcus_x, x = first % scan->mcus_x;
	return y < request->begin_y ||
	       (first / scan->mcus_x == y && (x >= request->end_x || (end - 1) % scan->mcus_x < request->begin_x));
}

/* Decodes MCUs first .. end - 1, all in one segment. */
static bool decode_mcus(bt_scan *scan, const bt_scan_request *request, uint32_t first, uint32_t end)
{
	while (first < end) {
		uint32_t x = first % scan->mcus_x, y = first / scan->mcus_x,
			 count = least(scan->mcus_x - x, end - first);
		if (!decode_run(scan, request, x, y, count))
			return false;
		first += count;
	}
	return true;
}

/* ---- by an index ---- */

/* Opens the segment at a point of the scan's data, which `size` bytes are enough of. False: the point is outside. */
static bool open_point(bt_scan *scan, const uint8_t *data, const bt_point *point, uint64_t size)
{
	uint64_t left = (uint64_t)(scan->end - data), byte = point->bits / 8;
	if (byte >= left)
		return false;
	bt_segment *segment = &scan->segment;
	bt_segment_open(segment, data + byte, data + (size < left ? size : left));
	bt_bits_fill(&segment->bits);
	bt_bits_take(&segment->bits, point->bits % 8);
	for (int i = 0; i < scan->num_components; i++)
		scan->components[i].last = point->last[i];
	return true;
}

/* Decodes the request from points of its index on. False: it has none, or this one does not do. */
static bool decode_by_index(bt_scan *scan, const struct jpeg_decompress_struct *jpeg, const bt_scan_request *request)
{
	const uint8_t *data = jpeg->src->next_input_byte;
	bt_index index;
	if (jpeg->restart_interval || !bt_index_open(&index, request->index, request->index_size, scan->num_components))
		return false;
	uint32_t columns = (scan->mcus_x + index.step - 1) / index.step;
	uint32_t from = request->begin_x / index.step, to = (request->end_x + index.step - 1) / index.step;
	uint32_t x = from * index.step, last = columns * scan->mcus_y;
	for (uint32_t y = request->begin_y; y < request->end_y; y++) {
		if (!bt_index_seek(&index, y * columns + from))
			return false;
		bt_point point = index.point;
		/* With the byte that a point is in, and the zero stuffed after it. */
		if (y * columns + to < last && !bt_index_seek(&index, y * columns + to))
			return false;
		uint64_t size = y * columns + to < last ? index.point.bits / 8 + 2 : UINT64_MAX;
		if (!open_point(scan, data, &point, size) || !decode_run(scan, request, x, y, request->end_x - x) ||
		    !bt_segment_is_good(&scan->segment))
			return false;
	}
	return request->end_y < scan->mcus_y || request->end_x < scan->mcus_x ||
	       (end_segment(scan, &data) && bt_pass_marker(&data, scan->end, 0, true));
}

/* MCUs from one point to the next: four points in a row are enough that little is decoded in vain, and take about one
 * per cent of the JPEG's bytes. */
static uint32_t choose_step(const bt_scan *scan)
{
	uint32_t quarter = (scan->mcus_x + 3) / 4;
	return quarter < INDEX_STEP ? INDEX_STEP : quarter;
}

/* Skips `count` bytes of a scan's data, without the zeros that are stuffed after each 0xff. */
static const uint8_t *pass_plain(const uint8_t *raw, const uint8_t *end, uint64_t count)
{
	while (count > 0 && raw < end) {
		uint64_t left = (uint64_t)(end - raw), part = count < left ? count : left;
		const uint8_t *stuffed = memchr(raw, 0xff, (size_t)part);
		if (!stuffed)
			return raw + part;
		count -= (uint64_t)(stuffed - raw) + 1;
		raw = stuffed + 2;
	}
	return raw;
}

/* Reads the MCUs of a scan without restart markers, which has been opened at `data`, and makes the index. */
static bool skip_indexed(bt_scan *scan, const uint8_t *data, bt_index_request *request)
{
	const uint8_t *raw = data;
	uint64_t plain = 0;
	bt_index index;
	bool fits = true;
	bt_index_begin(&index, request->out, request->step ? request->step : choose_step(scan), scan->num_components);
	for (uint32_t y = 0; y < scan->mcus_y; y++)
		for (uint32_t x = 0; x < scan->mcus_x; x += index.step) {
			uint64_t taken = bt_segment_taken(&scan->segment);
			raw = pass_plain(raw, scan->end, taken / 8 - plain);
			plain = taken / 8;
			bt_point point = {.bits = (uint64_t)(raw - data) * 8 + taken % 8};
			for (int i = 0; i < scan->num_components; i++)
				point.last[i] = scan->components[i].last;
			fits = fits && ((x == 0 && y == 0) || bt_index_put(&index, &point));
			if (!scan->loops->skip(scan, least(index.step, scan->mcus_x - x)))
				return false;
		}
	request->size = fits ? index.size : 0;
	return true;
}

/* ---- in order ---- */

bool bt_scan_decode(bt_scan *scan, const struct jpeg_decompress_struct *jpeg, const bt_scan_request *request)
{
	if (!read_header(scan, jpeg))
		return false;
	scan->num_wanted = request->planes[1] ? scan->num_components : 1;
	if (request->index_size) {
		if (decode_by_index(scan, jpeg, request))
			return true;
		place_blocks(scan);
	}
	const uint8_t *at = jpeg->src->next_input_byte;
	uint32_t total = scan->mcus_x * scan->mcus_y;
	uint32_t wanted = (request->end_y - 1) * scan->mcus_x + request->end_x;
	for (uint32_t first = 0, number = 0; first < wanted; first += scan->interval, number++) {
		uint32_t stop = first + least(total - first, scan->interval);
		if (is_outside(scan, request, first, stop)) {
			at = bt_find_marker(at, scan->end);
		} else {
			open_segment(scan, at);
			if (!decode_mcus(scan, request, first, least(stop, wanted)) ||
			    !bt_segment_is_good(&scan->segment))
				return false;
			if (stop > wanted)
				break;
			if (!end_segment(scan, &at))
				return false;
		}
		if (!bt_pass_marker(&at, scan->end, number, stop == total))
			return false;
	}
	return true;
}

bool bt_scan_check(bt_scan *scan, const struct jpeg_decompress_struct *jpeg, bt_index_request *index,
		   const uint8_t **end)
{
	if (index)
		index->size = 0;
	if (!read_header(scan, jpeg))
		return false;
	const uint8_t *at = jpeg->src->next_input_byte;
	bool indexed = index && !jpeg->restart_interval && scan->end - at >= INDEX_LEAST_BYTES;
	uint32_t total = scan->mcus_x * scan->mcus_y;
	for (uint32_t first = 0, number = 0; first < total; first += scan->interval, number++) {
		uint32_t count = least(total - first, scan->interval);
		open_segment(scan, at);
		if (!(indexed ? skip_indexed(scan, at, index) : scan->loops->skip(scan, count)) ||
		    !end_segment(scan, &at) || !bt_pass_marker(&at, scan->end, number, first + count == total)) {
			if (index)
				index->size = 0;
			return false;
		}
	}
	*end = at;
	return true;
}
