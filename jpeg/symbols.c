/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "coefficients.h"
#include "huffman.h"
#include "marker.h"
#include "scan.h"

enum {
	LOOK_UP_BITS = 10,
	/* The symbols of an MCU. */
	MCU_SYMBOLS = BT_BLOCKS_MAX * DCTSIZE2,
};

/* Parts of an entry, by their first bit. */
enum {
	ENTRY_LENGTH = 0,  /* bits of code and value; 0: see long_entry */
	ENTRY_SKIP = 8,    /* distance of the coefficient from the one before it; BT_HUFFMAN_END */
	ENTRY_SIZE = 16,   /* bits of the value */
	ENTRY_SYMBOL = 32, /* as it is kept, without its value */
};

typedef struct code {
	uint64_t entries[1 << LOOK_UP_BITS];
	bt_huffman_codes codes;
	uint32_t kind; /* of its symbol 0, as it is written */
	bool dc;
} code;

typedef struct component {
	uint32_t width, height;      /* blocks in an MCU */
	uint32_t blocks_x, blocks_y; /* in the picture */
	const code *dc, *ac;
	int32_t last_in, last_out; /* DC coefficients */
} component;

typedef struct reader {
	bt_segment segment;
	component components[BT_SCAN_COMPONENTS];
	code codes[2 * BT_SCAN_COMPONENTS];
	int num_components;
	uint32_t mcus_x, mcus_y;
	uint32_t interval_in, interval_out; /* MCUs of a segment */
	const uint8_t *end;                 /* of the JPEG */
	bt_symbols *out;
	uint32_t *at; /* the next symbol */
	uint32_t ignored[BT_SYMBOLS_KINDS];
} reader;

/* ---- the header ---- */

/* 0: libjpeg would write the coefficients with other symbols, or the format has no such one. */
static uint64_t entry_of(const code *c, uint32_t length, uint32_t symbol)
{
	uint32_t size = c->dc ? symbol : symbol & 15, run = c->dc ? 0 : symbol >> 4;
	if (size > (c->dc ? BT_DC_BITS_MAX : BT_AC_BITS_MAX) || (size == 0 && run != 0 && run != 15))
		return 0;
	uint32_t skip = c->dc || size ? run + 1 : run ? 16 : BT_HUFFMAN_END;
	return (length + size) << ENTRY_LENGTH | skip << ENTRY_SKIP | size << ENTRY_SIZE |
	       (uint64_t)((c->kind + symbol) << BT_SYMBOLS_VALUE) << ENTRY_SYMBOL;
}

static bool make_code(code *c, const JHUFF_TBL *table, uint32_t kind, bool dc)
{
	c->kind = kind;
	c->dc = dc;
	memset(c->entries, 0, sizeof(c->entries));
	if (!table || !bt_huffman_assign(&c->codes, table->bits, table->huffval, dc))
		return false;
	for (int length = 1, index = 0; length <= LOOK_UP_BITS; length++)
		for (int i = 0; i < table->bits[length]; i++, index++) {
			uint64_t *entries =
				c->entries + ((size_t)(index - c->codes.offsets[length]) << (LOOK_UP_BITS - length));
			uint64_t entry = entry_of(c, (uint32_t)length, table->huffval[index]);
			for (int j = 0; j < 1 << (LOOK_UP_BITS - length); j++)
				entries[j] = entry;
		}
	return true;
}

/* libjpeg sets itself up for writing with the quantizers, and divides by them. */
static bool has_quantizers(const struct jpeg_decompress_struct *in, const jpeg_component_info *info)
{
	if (info->quant_tbl_no < 0 || info->quant_tbl_no >= NUM_QUANT_TBLS || !in->quant_tbl_ptrs[info->quant_tbl_no])
		return false;
	for (int i = 0; i < DCTSIZE2; i++)
		if (in->quant_tbl_ptrs[info->quant_tbl_no]->quantval[i] == 0)
			return false;
	return true;
}

static bool is_table(int number)
{
	return number >= 0 && number < NUM_HUFF_TBLS;
}

static bool read_component(reader *self, const struct jpeg_decompress_struct *in,
			   const struct jpeg_compress_struct *out, int index)
{
	component *c = &self->components[index];
	const jpeg_component_info *info = &in->comp_info[index];
	/* The scan may name its components in another order. */
	if (in->cur_comp_info[index] != info || !has_quantizers(in, info) || !is_table(info->dc_tbl_no) ||
	    !is_table(info->ac_tbl_no))
		return false;
	/* A single component is not interleaved: its MCU is a block, whatever its sampling. */
	bool alone = in->num_components == 1;
	*c = (component){.width = alone ? 1 : (uint32_t)info->h_samp_factor,
			 .height = alone ? 1 : (uint32_t)info->v_samp_factor,
			 .blocks_x = info->width_in_blocks,
			 .blocks_y = info->height_in_blocks,
			 .dc = &self->codes[2 * index],
			 .ac = &self->codes[2 * index + 1]};
	return make_code(&self->codes[2 * index], in->dc_huff_tbl_ptrs[info->dc_tbl_no],
			 bt_symbols_dc(out->comp_info[index].dc_tbl_no), true) &&
	       make_code(&self->codes[2 * index + 1], in->ac_huff_tbl_ptrs[info->ac_tbl_no],
			 bt_symbols_ac(out->comp_info[index].ac_tbl_no), false);
}

static bool read_header(reader *self, const struct jpeg_decompress_struct *in, const struct jpeg_compress_struct *out)
{
	if (!bt_scan_is_common(in))
		return false;
	self->num_components = in->num_components;
	for (int i = 0; i < self->num_components; i++)
		if (!read_component(self, in, out, i))
			return false;
	uint32_t width = self->components[0].width * DCTSIZE, height = self->components[0].height * DCTSIZE;
	self->mcus_x = (in->image_width + width - 1) / width;
	self->mcus_y = (in->image_height + height - 1) / height;
	self->interval_in = in->restart_interval ? in->restart_interval : self->mcus_x * self->mcus_y;
	self->interval_out = out->restart_interval;
	self->end = in->src->next_input_byte + in->src->bytes_in_buffer;
	return true;
}

/* ---- symbols ---- */

#define INLINE static inline __attribute__((always_inline))

/* The entry of a code that is longer than the look-up; 0: no code that is kept. */
static __attribute__((noinline)) uint64_t long_entry(uint64_t window, const code *c)
{
	uint32_t length;
	int symbol = bt_huffman_symbol(&c->codes, window, 0, &length);
	return symbol < 0 ? 0 : entry_of(c, length, (uint32_t)symbol);
}

/* 16 + 10 bits at most: two fit in what bt_bits_fill fills. */
INLINE uint64_t look_up(const bt_bits *bits, const code *c)
{
	uint64_t entry = c->entries[bits->window >> (64 - LOOK_UP_BITS)];
	return __builtin_expect(entry == 0, 0) ? long_entry(bits->window, c) : entry;
}

/* The value after a code that has not been taken. */
INLINE uint32_t value_of(const bt_bits *bits, uint64_t entry)
{
	uint64_t both = bits->window >> (64 - (uint32_t)bt_huffman_part(entry, ENTRY_LENGTH));
	return (uint32_t)both & ((UINT32_C(1) << bt_huffman_part(entry, ENTRY_SIZE)) - 1);
}

INLINE void put(uint32_t **at, uint32_t *counts, uint32_t symbol)
{
	counts[symbol >> BT_SYMBOLS_VALUE]++;
	*(*at)++ = symbol;
}

/* Takes the difference of a DC coefficient, and puts its difference from the coefficient to be written before it. */
INLINE bool take_dc(bt_bits *bits, component *c, uint32_t **at, uint32_t *counts)
{
	uint64_t entry = look_up(bits, c->dc);
	if (!entry)
		return false;
	uint32_t size = bt_huffman_part(entry, ENTRY_SIZE), value = value_of(bits, entry);
	bool negative = size && !(value >> (size - 1));
	c->last_in += (int32_t)value - (negative ? (1 << size) - 1 : 0);
	bt_bits_take(bits, bt_huffman_part(entry, ENTRY_LENGTH));
	int32_t difference = c->last_in - c->last_out;
	c->last_out = c->last_in;
	size = difference ? 32 - (uint32_t)__builtin_clz((uint32_t)abs(difference)) : 0;
	value = (uint32_t)(difference - (difference < 0)) & ((UINT32_C(1) << size) - 1);
	put(at, counts, (c->dc->kind + size) << BT_SYMBOLS_VALUE | value);
	return size <= BT_DC_BITS_MAX && c->last_in == (int16_t)c->last_in;
}

/* Takes one AC symbol. False: the block has no more, or *entry is 0. */
INLINE bool take_ac(bt_bits *bits, const code *c, uint32_t **at, uint32_t *counts, uint32_t *k, uint64_t *entry)
{
	*entry = look_up(bits, c);
	if (__builtin_expect(*entry == 0, 0))
		return false;
	put(at, counts, (uint32_t)(*entry >> ENTRY_SYMBOL) | value_of(bits, *entry));
	bt_bits_take(bits, bt_huffman_part(*entry, ENTRY_LENGTH));
	*k += bt_huffman_part(*entry, ENTRY_SKIP);
	return *k < DCTSIZE2 - 1;
}

/* Takes a block's symbols. False: a fault, or others mean the same. */
INLINE bool take_block(bt_bits *bits, component *c, uint32_t **at, uint32_t *counts)
{
	bt_bits_fill(bits);
	if (!take_dc(bits, c, at, counts))
		return false;
	uint32_t k = 0;
	uint64_t entry;
	while (take_ac(bits, c->ac, at, counts, &k, &entry)) {
		bt_bits_fill(bits);
		if (!take_ac(bits, c->ac, at, counts, &k, &entry))
			break;
	}
	/* Zeros at the end are left to the end's symbol. */
	bool ended = k >= BT_HUFFMAN_END;
	uint32_t last = (*at)[ended ? -2 : -1] >> BT_SYMBOLS_VALUE;
	return entry && (ended || k == DCTSIZE2 - 1) && last != c->ac->kind + BT_SKIP_16_ZEROS;
}

/* Takes a block over the edge, and puts what is written there. */
static bool replace_block(reader *self, bt_bits *bits, component *c, uint32_t **at)
{
	uint32_t *begin = *at;
	int32_t last_out = c->last_out;
	if (!take_block(bits, c, at, self->ignored))
		return false;
	c->last_out = last_out;
	*at = begin;
	put(at, self->out->counts, c->dc->kind << BT_SYMBOLS_VALUE);
	put(at, self->out->counts, c->ac->kind << BT_SYMBOLS_VALUE);
	return true;
}

/* Takes an MCU whose blocks are not all in the picture. */
static bool take_edge(reader *self, bt_bits *bits, uint32_t x, uint32_t y, uint32_t **at)
{
	for (int i = 0; i < self->num_components; i++) {
		component *c = &self->components[i];
		for (uint32_t block = 0; block < c->width * c->height; block++) {
			bool inside = x * c->width + block % c->width < c->blocks_x &&
				      y * c->height + block / c->width < c->blocks_y;
			if (!(inside ? take_block(bits, c, at, self->out->counts) : replace_block(self, bits, c, at)))
				return false;
		}
	}
	return true;
}

static bool take_inner(reader *self, bt_bits *bits, uint32_t **at)
{
	for (int i = 0; i < self->num_components; i++) {
		component *c = &self->components[i];
		for (uint32_t block = 0; block < c->width * c->height; block++)
			if (!take_block(bits, c, at, self->out->counts))
				return false;
	}
	return true;
}

/* ---- the picture ---- */

void bt_symbols_free(bt_symbols *symbols)
{
	free(symbols->symbols);
	free(symbols->ends);
}

/* Makes room for the symbols of an MCU. */
static bool reserve(reader *self)
{
	bt_symbols *out = self->out;
	size_t used = out->symbols ? (size_t)(self->at - out->symbols) : 0;
	if (out->capacity - used >= MCU_SYMBOLS)
		return true;
	/* A byte has about 1.2 of them. */
	size_t capacity =
		out->symbols ? 2 * out->capacity : (size_t)(self->end - self->segment.raw) * 3 / 2 + MCU_SYMBOLS;
	uint32_t *larger = realloc(out->symbols, capacity * sizeof(*larger));
	if (!larger)
		return false;
	out->symbols = larger;
	out->capacity = capacity;
	self->at = larger + used;
	return true;
}

/* Begins a segment of the output before MCU `number`. */
static void begin_segment(reader *self, uint32_t number)
{
	if (number)
		self->out->ends[number / self->interval_out - 1] = (size_t)(self->at - self->out->symbols);
	for (int i = 0; i < self->num_components; i++)
		self->components[i].last_out = 0;
}

/* Takes MCUs first .. end - 1, which are in one segment of the JPEG. */
static bool take_mcus(reader *self, uint32_t first, uint32_t end)
{
	bt_segment *segment = &self->segment;
	bt_bits bits = segment->bits;
	uint32_t x = first % self->mcus_x, y = first / self->mcus_x,
		 left = self->interval_out - first % self->interval_out;
	for (uint32_t number = first; number < end; number++) {
		if (!reserve(self))
			return false;
		if (left == self->interval_out)
			begin_segment(self, number);
		left = left > 1 ? left - 1 : self->interval_out;
		if (__builtin_expect(bits.at > segment->safe, 0)) {
			segment->bits = bits;
			if (!bt_segment_feed(segment))
				return false;
			bits = segment->bits;
		}
		uint32_t *at = self->at;
		bool inside = x + 1 < self->mcus_x && y + 1 < self->mcus_y;
		if (!(inside ? take_inner(self, &bits, &at) : take_edge(self, &bits, x, y, &at)))
			return false;
		self->at = at;
		x = x + 1 < self->mcus_x ? x + 1 : 0;
		y += x == 0;
	}
	segment->bits = bits;
	return true;
}

static bool take_segments(reader *self, const uint8_t *at)
{
	uint32_t total = self->mcus_x * self->mcus_y, stop;
	for (uint32_t first = 0, number = 0; first < total; first = stop, number++) {
		stop = total - first < self->interval_in ? total : first + self->interval_in;
		bt_segment_open(&self->segment, at, self->end);
		for (int i = 0; i < self->num_components; i++)
			self->components[i].last_in = 0;
		if (!take_mcus(self, first, stop) || !bt_segment_is_read(&self->segment))
			return false;
		at = self->segment.raw;
		if (!bt_pass_marker(&at, self->end, number, stop == total))
			return false;
	}
	return true;
}

bool bt_symbols_read(bt_symbols *symbols, const struct jpeg_decompress_struct *in,
		     const struct jpeg_compress_struct *out)
{
	reader *self = malloc(sizeof(*self));
	bool good = self && read_header(self, in, out);
	if (good) {
		self->out = symbols;
		self->at = NULL;
		uint32_t total = self->mcus_x * self->mcus_y;
		symbols->num_segments = (total + out->restart_interval - 1) / out->restart_interval;
		symbols->ends = malloc(symbols->num_segments * sizeof(*symbols->ends));
		good = symbols->ends && take_segments(self, in->src->next_input_byte);
	}
	if (good)
		symbols->ends[symbols->num_segments - 1] = (size_t)(self->at - symbols->symbols);
	free(self);
	return good;
}
