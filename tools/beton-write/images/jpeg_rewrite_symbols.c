/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "huffman.h"
#include "jpeg/symbols.h"
#include "jpeg_common.h"
#include "jpeg_rewrite.h"
#include "symbol_writer.h"

typedef struct rewriter {
	jpeg_reader reader;
	struct jpeg_compress_struct out;
	jpeg_sink sink;
	bt_symbols symbols;
	symbol_codes codes;
} rewriter;

static void make_table(const uint32_t *counts, JHUFF_TBL *table)
{
	huffman_counts copy;
	memcpy(copy.symbols, counts, sizeof(copy.symbols));
	huffman_make_table(&copy, table);
}

/* Leaves the sink empty where libjpeg has to read the JPEG. */
static void rewrite(rewriter *self, const uint8_t *data, size_t size)
{
	struct jpeg_compress_struct *out = &self->out;
	jpeg_reader_start(&self->reader, data, size);
	jpeg_rewrite_start(out, &self->reader.info);
	if (!bt_symbols_read(&self->symbols, &self->reader.info, out))
		return;
	for (int i = 0; i < BT_SYMBOLS_TABLES; i++) {
		make_table(self->symbols.counts + bt_symbols_dc(i), out->dc_huff_tbl_ptrs[i]);
		make_table(self->symbols.counts + bt_symbols_ac(i), out->ac_huff_tbl_ptrs[i]);
	}
	symbol_codes_make(&self->codes, out->dc_huff_tbl_ptrs, out->ac_huff_tbl_ptrs);
	jpeg_sink_attach(&self->sink, out, 1024);
	jpeg_start_compress(out, TRUE);
	/* Without pixels, writes only the headers before the scan's data. */
	jpeg_write_scanlines(out, NULL, 0);
	uint8_t *at = jpeg_sink_reserve(&self->sink, out, symbol_bytes_max(&self->symbols, &self->codes) + 2);
	at = symbol_write(&self->symbols, &self->codes, at);
	*at++ = 0xff;
	*at++ = JPEG_EOI;
	self->sink.size = (size_t)(at - self->sink.data);
}

static int rewrite_or_leave(rewriter *self, const uint8_t *data, size_t size, const char *name, beton_error *err)
{
	bt_jpeg_escape *escape = &self->reader.escape;
	self->reader.info.err = self->out.err = bt_jpeg_escape_init(escape);
	if (setjmp(escape->target)) {
		free(self->sink.data);
		self->sink.data = NULL;
		return escape->code == BETON_NO_MEMORY ? bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name)
						       : BETON_OK;
	}
	rewrite(self, data, size);
	return BETON_OK;
}

int jpeg_rewrite_symbols(const uint8_t *data, size_t size, const char *name, uint8_t **out, size_t *out_size,
			 beton_error *err)
{
	rewriter self = {0};
	int result = rewrite_or_leave(&self, data, size, name, err);
	*out = NULL;
	if (self.sink.data)
		jpeg_sink_take(&self.sink, out, out_size);
	bt_symbols_free(&self.symbols);
	jpeg_destroy_compress(&self.out);
	jpeg_destroy_decompress(&self.reader.info);
	return result;
}
