/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm with the statistics of several ranks' batches, in the layouts of oneDNN's convolutions. Sums are over
 * pieces of fixed size, joined in their order, so they do not depend on threads.
 */
#include <math.h>
#include <string.h>

#include "core/host.h"
#include "core/shape.h"
#include "cpu.h"

/* Rows of a piece where all channels are neighbours, and elements that one thread processes faster. */
enum { ROWS = 256, FEW = 16384 };

/* A piece's part of a block of channels is `rows` rows of `width` neighbouring channels; the last piece has fewer.
 * Where the width is 1, the numbers of a channel are neighbours. */
static int64_t rows_of(const cpu_channels *g, int64_t piece)
{
	return piece == g->pieces - 1 ? g->last : g->rows;
}

static int64_t place_of(const cpu_channels *g, int64_t piece, int64_t block)
{
	return (piece * g->blocks + block) * g->rows * g->width;
}

static int64_t padded(const cpu_channels *g)
{
	return g->blocks * g->width;
}

/* ---- a channel whose numbers are neighbours: its number in every lane ---- */

typedef struct spread {
	float of[CPU_LANES_MAX];
} spread;

static spread spread_of(float value)
{
	spread s;
	for (int i = 0; i < CPU_LANES_MAX; i++)
		s.of[i] = value;
	return s;
}

static float sum_of(const spread *s)
{
	double sum = 0;
	for (int i = 0; i < CPU_LANES_MAX; i++)
		sum += (double)s->of[i];
	return (float)sum;
}

/* Sums of a piece's part of a block, for each channel. d_y NULL: of x - shift, and of its square. */
static void sum_part(const struct dtrain_op *op, const void *x, const void *d_y, const uint8_t *mask,
		     const float *shift, int64_t piece, int64_t block, float *sum, float *other)
{
	const cpu_channels *g = &op->grid;
	int64_t rows = rows_of(g, piece), at = place_of(g, piece, block);
	int64_t width = g->width == 1 ? CPU_LANES_MAX : g->width;
	spread sums = spread_of(0), others = sums, from = spread_of(g->width == 1 && shift ? *shift : 0);
	float *to = g->width == 1 ? sums.of : sum, *second = g->width == 1 ? others.of : other;
	if (g->width == 1)
		shift = from.of;
	else
		for (int64_t c = 0; c < width; c++)
			to[c] = second[c] = 0;
	for (int64_t left = rows * g->width; left > 0; left = left > width ? left % width : 0) {
		int64_t each = left < width ? left : width, count = left / each;
		if (d_y)
			op->rows->norm_sums(to, second, cpu_from(op, x, at), cpu_from(op, d_y, at),
					    mask ? mask + at : NULL, shift, count, each);
		else
			op->rows->moments(to, second, cpu_from(op, x, at), shift, count, each);
		at += count * each;
	}
	if (g->width == 1) {
		*sum = sum_of(&sums);
		*other = sum_of(&others);
	}
}

/* ---- moments ---- */

/* Merges the moments of n2 numbers into the moments of n. */
static void merge(double *n, double *mean, double *squares, double n2, double mean2, double squares2)
{
	if (n2 == 0)
		return;
	double share = n2 / (*n + n2), distance = mean2 - *mean;
	*squares += squares2 + distance * distance * *n * share;
	*mean += distance * share;
	*n += n2;
}

/* Mean and squares of a part: the squared distances from a mean that is rounded, corrected. spare: [width] */
static void part_moments(const struct dtrain_op *op, const void *x, int64_t piece, int64_t block, float *mean,
			 float *squares, float *spare)
{
	int64_t width = op->grid.width;
	double rows = (double)rows_of(&op->grid, piece);
	sum_part(op, x, NULL, NULL, NULL, piece, block, mean, squares);
	for (int64_t c = 0; c < width; c++)
		mean[c] = (float)((double)mean[c] / rows);
	sum_part(op, x, NULL, NULL, mean, piece, block, spare, squares);
	for (int64_t c = 0; c < width; c++) {
		double rest = (double)spare[c] / rows, exact = (double)squares[c] - rest * rest * rows;
		squares[c] = (float)(exact > 0 ? exact : 0);
		mean[c] = (float)((double)mean[c] + rest);
	}
}

static int moments(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const cpu_channels *g = &op->grid;
	const void *x = cpu_plain(op, 0, operands, workspace);
	float *parts = cpu_own_scratch(op, 0, workspace), *row = operands[1];
	int64_t all = padded(g), channels = op->channels, length = 2 * channels + 1, units = g->pieces * g->blocks;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > FEW)
#endif
	for (int64_t u = 0; u < units; u++) {
		float *at = parts + u / g->blocks * 3 * all + u % g->blocks * g->width;
		part_moments(op, x, u / g->blocks, u % g->blocks, at, at + all, at + 2 * all);
	}
	memset(row, 0, (size_t)(op->ranks * length) * sizeof(*row));
	row += op->attrs.norm.rank * length;
	row[0] = (float)(op->count / channels);
	for (int64_t c = 0; c < channels; c++) {
		double n = 0, mean = 0, squares = 0;
		for (int64_t p = 0; p < g->pieces; p++)
			merge(&n, &mean, &squares, (double)rows_of(g, p), (double)parts[p * 3 * all + c],
			      (double)parts[p * 3 * all + all + c]);
		row[1 + c] = (float)mean;
		row[1 + channels + c] = (float)squares;
	}
	return BETON_OK;
}

/* ---- forward ---- */

/* scaling: [3][padded], means, factors and offsets. */
static void join(const struct dtrain_op *op, void *const *operands, float *scaling)
{
	const float *gamma = operands[1], *beta = operands[2], *row = operands[5];
	float *running_mean = operands[3], *running_var = operands[4], *const *out = (float *const *)operands + 6;
	int64_t channels = op->channels, all = padded(&op->grid);
	double momentum = op->attrs.norm.momentum;
	memset(scaling, 0, (size_t)(3 * all) * sizeof(*scaling));
	for (int64_t c = 0; c < channels; c++) {
		double n = 0, mean = 0, squares = 0;
		for (int64_t rank = 0; rank < op->ranks; rank++) {
			const float *part = row + rank * (2 * channels + 1);
			merge(&n, &mean, &squares, (double)part[0], (double)part[1 + c],
			      (double)part[1 + channels + c]);
		}
		out[1][c] = scaling[c] = (float)mean;
		out[2][c] = (float)(squares / n);
		scaling[all + c] = (float)((double)gamma[c] / sqrt(squares / n + op->attrs.norm.epsilon));
		scaling[2 * all + c] = beta[c];
		if (momentum == 0)
			continue;
		running_mean[c] = (float)((1 - momentum) * (double)running_mean[c] + momentum * mean);
		running_var[c] =
			(float)((1 - momentum) * (double)running_var[c] + momentum * squares / (n > 1 ? n - 1 : 1));
	}
}

static void normalize_part(const struct dtrain_op *op, const void *x, const float *scaling, int64_t piece,
			   int64_t block, void *y, uint8_t *mask)
{
	const cpu_channels *g = &op->grid;
	int64_t at = place_of(g, piece, block), all = padded(g), first = block * g->width;
	const float *mean = scaling + first, *scale = mean + all, *shift = scale + all;
	spread spreads[3];
	int64_t width = g->width;
	if (width == 1) {
		spreads[0] = spread_of(*mean), spreads[1] = spread_of(*scale), spreads[2] = spread_of(*shift);
		mean = spreads[0].of, scale = spreads[1].of, shift = spreads[2].of;
		width = CPU_LANES_MAX;
	}
	for (int64_t left = rows_of(g, piece) * g->width; left > 0; left = left > width ? left % width : 0) {
		int64_t each = left < width ? left : width, count = left / each;
		op->rows->normalize(cpu_to(op, y, at), mask ? mask + at : NULL, cpu_from(op, x, at), mean, scale, shift,
				    count, each);
		at += count * each;
	}
}

static int normalize(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const cpu_channels *g = &op->grid;
	const void *x = cpu_plain(op, 0, operands, workspace);
	float *scaling = cpu_own_scratch(op, 0, workspace);
	void *y = operands[6];
	uint8_t *mask = op->attrs.relu ? operands[9] : NULL;
	join(op, operands, scaling);
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > FEW)
#endif
	for (int64_t u = 0; u < g->pieces * g->blocks; u++)
		normalize_part(op, x, scaling, u / g->blocks, u % g->blocks, y, mask);
	return BETON_OK;
}

/* ---- backward ---- */

/* Copies the channels' numbers, and pads them with zeros. */
static void pad(float *to, const float *from, int64_t channels, int64_t all)
{
	memcpy(to, from, (size_t)channels * sizeof(*to));
	memset(to + channels, 0, (size_t)(all - channels) * sizeof(*to));
}

static int sums(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const cpu_channels *g = &op->grid;
	const void *x = cpu_plain(op, 0, operands, workspace), *d_y = cpu_plain(op, 1, operands, workspace);
	const uint8_t *mask = op->attrs.relu ? cpu_plain(op, 4, operands, workspace) : NULL;
	const float *var = operands[3];
	float *const *out = (float *const *)operands + op->num_inputs;
	float *mean = cpu_own_scratch(op, 0, workspace), *parts = mean + padded(g);
	int64_t all = padded(g), channels = op->channels;
	pad(mean, operands[2], channels, all);
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > FEW)
#endif
	for (int64_t u = 0; u < g->pieces * g->blocks; u++) {
		int64_t first = u % g->blocks * g->width;
		float *at = parts + u / g->blocks * 2 * all + first;
		sum_part(op, x, d_y, mask, mean + first, u / g->blocks, u % g->blocks, at, at + all);
	}
	out[0][0] = (float)(op->count / channels);
	for (int64_t c = 0; c < channels; c++) {
		double sum = 0, product = 0;
		for (int64_t p = 0; p < g->pieces; p++) {
			sum += (double)parts[p * 2 * all + c];
			product += (double)parts[p * 2 * all + all + c];
		}
		product /= sqrt((double)var[c] + op->attrs.norm.epsilon);
		out[0][1 + c] = out[2][c] = (float)sum;
		out[0][1 + channels + c] = out[1][c] = (float)product;
	}
	return BETON_OK;
}

static void back_part(const struct dtrain_op *op, const void *x, const void *d_y, const uint8_t *mask,
		      const cpu_slopes *slopes, int64_t piece, int64_t block, void *d_x)
{
	const cpu_channels *g = &op->grid;
	int64_t at = place_of(g, piece, block), first = block * g->width, width = g->width;
	cpu_slopes own = {slopes->mean + first, slopes->scale + first, slopes->tilt + first, slopes->level + first};
	spread spreads[4];
	if (width == 1) {
		spreads[0] = spread_of(*own.mean), spreads[1] = spread_of(*own.scale);
		spreads[2] = spread_of(*own.tilt), spreads[3] = spread_of(*own.level);
		own = (cpu_slopes){spreads[0].of, spreads[1].of, spreads[2].of, spreads[3].of};
		width = CPU_LANES_MAX;
	}
	for (int64_t left = rows_of(g, piece) * g->width; left > 0; left = left > width ? left % width : 0) {
		int64_t each = left < width ? left : width, count = left / each;
		op->rows->norm_back(cpu_to(op, d_x, at), cpu_from(op, x, at), cpu_from(op, d_y, at),
				    mask ? mask + at : NULL, &own, count, each);
		at += count * each;
	}
}

static int back(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const cpu_channels *g = &op->grid;
	const void *x = cpu_plain(op, 0, operands, workspace), *d_y = cpu_plain(op, 1, operands, workspace);
	const uint8_t *mask = op->attrs.relu ? cpu_plain(op, 6, operands, workspace) : NULL;
	const float *gamma = operands[2], *var = operands[4], *totals = operands[5];
	int64_t all = padded(g), channels = op->channels;
	float *mean = cpu_own_scratch(op, 0, workspace), *scale = mean + all, *tilt = scale + all, *level = tilt + all;
	memset(mean, 0, (size_t)(4 * all) * sizeof(*mean));
	pad(mean, operands[3], channels, all);
	for (int64_t c = 0; c < channels; c++) {
		double inverse = 1 / sqrt((double)var[c] + op->attrs.norm.epsilon), n = (double)totals[0];
		scale[c] = (float)((double)gamma[c] * inverse);
		tilt[c] = (float)((double)totals[1 + channels + c] / n * inverse);
		level[c] = (float)((double)totals[1 + c] / n);
	}
	const cpu_slopes slopes = {mean, scale, tilt, level};
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > FEW)
#endif
	for (int64_t u = 0; u < g->pieces * g->blocks; u++)
		back_part(op, x, d_y, mask, &slopes, u / g->blocks, u % g->blocks, operands[op->num_inputs]);
	return BETON_OK;
}

/* ---- building ---- */

/* The layouts of pictures that the functions process; the first is plain. */
static const dnnl_format_tag_t tags[] = {dnnl_nchw, dnnl_nhwc, dnnl_nChw16c, dnnl_nChw8c};

/* The first of them that x has; plain for any other layout. */
static dnnl_format_tag_t tag_of(cpu_build *build)
{
	const dtrain_operand *x = &build->desc->inputs[0];
	const cpu_layout *layout = x->layout;
	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]) && layout && x->shape.ndim == 4; i++)
		if (dnnl_memory_desc_equal(layout->md, cpu_tag_md(build, x, tags[i])))
			return tags[i];
	return dnnl_nchw;
}

static const_dnnl_memory_desc_t md_of(cpu_build *build, const dtrain_operand *operand, dnnl_format_tag_t tag)
{
	return operand->shape.ndim == 4 ? cpu_tag_md(build, operand, tag) : cpu_plain_md(build, operand);
}

static cpu_channels grid_of(const dtrain_shape *x, dnnl_format_tag_t tag)
{
	int64_t n = x->dim[0], c = x->dim[1], area = x->ndim == 4 ? x->dim[2] * x->dim[3] : 1;
	int64_t block = tag == dnnl_nChw16c ? 16 : tag == dnnl_nChw8c ? 8 : 1;
	if (tag == dnnl_nhwc || (block == 1 && area == 1)) {
		int64_t pieces = (n * area + ROWS - 1) / ROWS;
		return (cpu_channels){c, 1, pieces, ROWS, n * area - (pieces - 1) * ROWS};
	}
	return (cpu_channels){block, (c + block - 1) / block, n, area, area};
}

/* Scratch memory of so many numbers for each channel, and for each channel of a piece. */
static void place_scratch(cpu_build *build, int64_t numbers, int64_t of_piece)
{
	dtrain_op *op = build->op;
	size_t bytes = (size_t)(padded(&op->grid) * (numbers + of_piece * op->grid.pieces)) * sizeof(float);
	op->scratch_bytes = dtrain__round_up(bytes, DTRAIN__HOST_ALIGNMENT);
	op->scratch = (cpu_place){.operand = CPU_WORKSPACE, .offset = build->workspace};
	build->workspace += op->scratch_bytes;
}

/* Places inputs 0 ... count - 1, the mask (index of the input, 0: none), and output 0, if it has x's shape, in that
 * layout. */
static void place(cpu_build *build, dnnl_format_tag_t tag, int count, int mask, bool writes)
{
	dtrain_op_desc *desc = build->desc;
	const_dnnl_memory_desc_t md = md_of(build, &desc->inputs[0], tag);
	for (int i = 0; i < count; i++)
		build->op->plain[i] = cpu_convert(build, cpu_input(build, i), md).place;
	if (mask)
		build->op->plain[mask] =
			cpu_convert(build, cpu_input(build, mask), md_of(build, &desc->inputs[mask], tag)).place;
	for (int i = 0; i < desc->num_outputs; i++)
		if (desc->outputs[i].dtype != DTRAIN_U8)
			cpu_output(build, i, i == 0 && writes ? md : cpu_plain_md(build, &desc->outputs[i]));
	build->op->channels = desc->inputs[0].shape.dim[1];
	build->op->grid = grid_of(&desc->inputs[0].shape, tag);
}

static void build_moments(cpu_build *build)
{
	place(build, tag_of(build), 1, 0, false);
	build->op->ranks = build->desc->outputs[0].shape.dim[0];
	build->op->finish = moments;
	place_scratch(build, 0, 3);
}

static void build_normalize(cpu_build *build)
{
	dtrain_op_desc *desc = build->desc;
	dnnl_format_tag_t tag = desc->plain_output[0] ? dnnl_nchw : tag_of(build);
	place(build, tag, 1, 0, true);
	if (desc->attrs.relu)
		cpu_private_output(build, 3, md_of(build, &desc->outputs[3], tag), NULL, NULL);
	build->op->ranks = desc->inputs[5].shape.dim[0];
	build->op->finish = normalize;
	place_scratch(build, 3, 0);
}

static void build_sums(cpu_build *build)
{
	place(build, tag_of(build), 2, build->desc->attrs.relu ? 4 : 0, false);
	build->op->finish = sums;
	place_scratch(build, 1, 2);
}

static void build_back(cpu_build *build)
{
	dnnl_format_tag_t tag = build->desc->plain_output[0] ? dnnl_nchw : tag_of(build);
	place(build, tag, 2, build->desc->attrs.relu ? 6 : 0, true);
	build->op->finish = back;
	place_scratch(build, 4, 0);
}

void cpu_build_batch_norm_sync(cpu_build *build)
{
	switch (build->desc->kind) {
	case DTRAIN_OP_BATCH_NORM_MOMENTS:
		build_moments(build);
		break;
	case DTRAIN_OP_BATCH_NORM_SYNC:
		build_normalize(build);
		break;
	case DTRAIN_OP_BATCH_NORM_SUMS:
		build_sums(build);
		break;
	default:
		build_back(build);
	}
}
