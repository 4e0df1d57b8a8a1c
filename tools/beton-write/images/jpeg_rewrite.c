/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include <turbojpeg.h>

#include "common/error.h"
#include "huffman.h"
#include "jpeg.h"
#include "jpeg/partial.h"
#include "jpeg_common.h"
#include "jpeg_rewrite.h"

enum { TABLES = 2 };

static unsigned int restart_interval(const struct jpeg_decompress_struct *in)
{
	if (in->num_components == 1)
		return jpeg_restart_interval(in->comp_info[0].width_in_blocks, 1);
	unsigned int width = DCTSIZE * (unsigned int)in->max_h_samp_factor;
	unsigned int blocks = 0;
	for (int i = 0; i < in->num_components; i++)
		blocks += (unsigned int)(in->comp_info[i].h_samp_factor * in->comp_info[i].v_samp_factor);
	return jpeg_restart_interval((in->image_width + width - 1) / width, blocks);
}

void jpeg_rewrite_start(struct jpeg_compress_struct *out, struct jpeg_decompress_struct *in)
{
	jpeg_create_compress(out);
	jpeg_copy_critical_parameters(in, out);
	out->optimize_coding = FALSE;
	out->arith_code = FALSE;
	out->restart_interval = restart_interval(in);
}

typedef struct rewriter {
	jpeg_reader reader;
	struct jpeg_compress_struct out;
	bt_jpeg_escape escape; /* of out */
	jpeg_sink sink;
	jvirt_barray_ptr *coefficients;
	huffman_counts dc[TABLES];
	huffman_counts ac[TABLES];
} rewriter;

/* Counts the blocks of one component in one row of MCUs, in the order of writing. An MCU that reaches over the edge is
 * filled up with blocks that repeat the DC before them. False: a coefficient is too large. */
static bool count_row(rewriter *self, int component, JDIMENSION mcu_row)
{
	struct jpeg_decompress_struct *in = &self->reader.info;
	const jpeg_component_info *shape = &in->comp_info[component];
	bool alone = in->num_components == 1; /* its MCU is one block */
	JDIMENSION mcu_width = alone ? 1 : (JDIMENSION)shape->h_samp_factor;
	JDIMENSION mcu_height = alone ? 1 : (JDIMENSION)shape->v_samp_factor;
	JDIMENSION top = mcu_row * mcu_height;
	JDIMENSION rows = shape->height_in_blocks - top < mcu_height ? shape->height_in_blocks - top : mcu_height;
	JBLOCKARRAY blocks =
		in->mem->access_virt_barray((j_common_ptr)in, self->coefficients[component], top, mcu_height, FALSE);
	huffman_counts *dc = &self->dc[self->out.comp_info[component].dc_tbl_no];
	huffman_counts *ac = &self->ac[self->out.comp_info[component].ac_tbl_no];
	int last_dc = 0;
	JDIMENSION mcus = 0;
	for (JDIMENSION x = 0; x < shape->width_in_blocks; x += mcu_width, mcus++) {
		if (mcus % self->out.restart_interval == 0)
			last_dc = 0;
		for (JDIMENSION y = 0; y < rows; y++)
			for (JDIMENSION i = x; i < x + mcu_width && i < shape->width_in_blocks; i++)
				if (!huffman_count_block(blocks[y][i], &last_dc, dc, ac))
					return false;
	}
	JDIMENSION fill = mcus * mcu_width * mcu_height - shape->width_in_blocks * rows;
	huffman_count_fill(fill, dc, ac);
	return true;
}

static bool count_symbols(rewriter *self)
{
	const struct jpeg_decompress_struct *in = &self->reader.info;
	JDIMENSION rows = in->num_components == 1 ? in->comp_info[0].height_in_blocks : in->total_iMCU_rows;
	for (int component = 0; component < in->num_components; component++)
		for (JDIMENSION row = 0; row < rows; row++)
			if (!count_row(self, component, row))
				return false;
	return true;
}

static void make_tables(rewriter *self)
{
	struct jpeg_compress_struct *out = &self->out;
	for (int i = 0; i < TABLES; i++) {
		/* jpeg_set_defaults, called for the copied parameters, has put standard tables in all these places. */
		huffman_make_table(&self->dc[i], out->dc_huff_tbl_ptrs[i]);
		huffman_make_table(&self->ac[i], out->ac_huff_tbl_ptrs[i]);
	}
}

static void release(rewriter *self)
{
	jpeg_destroy_compress(&self->out);
	jpeg_destroy_decompress(&self->reader.info);
	free(self->sink.data);
}

static int read_coefficients(rewriter *self, const uint8_t *data, size_t size, const char *name, beton_error *err)
{
	if (setjmp(self->reader.escape.target))
		return jpeg_reader_fail(&self->reader, name, err);
	jpeg_reader_start(&self->reader, data, size);
	self->coefficients = jpeg_read_coefficients(&self->reader.info);
	return BETON_OK;
}

/* Leaves the sink empty if the JPEG has what sequential JPEG cannot express, which is that coefficients are missing
 * too. */
static int write_coefficients(rewriter *self, size_t size, const char *name, beton_error *err)
{
	struct jpeg_compress_struct *out = &self->out;
	if (setjmp(self->escape.target)) {
		free(self->sink.data);
		self->sink.data = NULL;
		return self->escape.code == BETON_NO_MEMORY ? bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name)
							    : BETON_OK;
	}
	if (bt_jpeg_is_partial(&self->reader.info))
		return BETON_OK;
	/* Looking at the coefficients may fail too, and then leads here. */
	self->reader.info.err = &self->escape.errors;
	jpeg_rewrite_start(out, &self->reader.info);
	if (!count_symbols(self))
		return BETON_OK;
	make_tables(self);
	jpeg_sink_attach(&self->sink, out, size + 1024);
	jpeg_write_coefficients(out, self->coefficients);
	jpeg_finish_compress(out);
	return BETON_OK;
}

int jpeg_rewrite_coefficients(const uint8_t *data, size_t size, const char *name, uint8_t **out, size_t *out_size,
			      beton_error *err)
{
	rewriter self = {0};
	*out = NULL;
	self.reader.info.err = bt_jpeg_escape_init(&self.reader.escape);
	self.out.err = bt_jpeg_escape_init(&self.escape);
	int result = read_coefficients(&self, data, size, name, err);
	if (result == BETON_OK)
		result = write_coefficients(&self, size, name, err);
	if (result == BETON_OK && self.sink.data)
		jpeg_sink_take(&self.sink, out, out_size);
	release(&self);
	return result;
}

int jpeg_rewrite(const uint8_t *data, size_t size, const char *name, uint8_t **out, size_t *out_size, beton_error *err)
{
	int result = jpeg_rewrite_symbols(data, size, name, out, out_size, err);
	return result == BETON_OK && !*out ? jpeg_rewrite_coefficients(data, size, name, out, out_size, err) : result;
}

static bool transform(const uint8_t *data, size_t size, int orientation, uint8_t **out, unsigned long *out_size)
{
	static const int operations[] = {
		[2] = TJXOP_HFLIP, [3] = TJXOP_ROT180,     [4] = TJXOP_VFLIP, [5] = TJXOP_TRANSPOSE,
		[6] = TJXOP_ROT90, [7] = TJXOP_TRANSVERSE, [8] = TJXOP_ROT270};
	tjtransform turn = {.op = operations[orientation], .options = TJXOPT_PERFECT | TJXOPT_COPYNONE};
	tjhandle handle = tjInitTransform();
	if (!handle)
		return false;
	bool done = tjTransform(handle, data, (unsigned long)size, 1, out, out_size, &turn, 0) == 0;
	tjDestroy(handle);
	return done;
}

int jpeg_turn(const uint8_t *data, size_t size, int orientation, const char *name, uint8_t **out, size_t *out_size,
	      beton_error *err)
{
	uint8_t *turned = NULL;
	unsigned long turned_size = 0;
	*out = NULL;
	bool partial = false;
	int result = jpeg_check(data, size, name, NULL, &partial, err);
	if (result == BETON_OK && !partial && transform(data, size, orientation, &turned, &turned_size))
		result = jpeg_rewrite(turned, turned_size, name, out, out_size, err);
	tjFree(turned);
	return result;
}
