/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of 3 x 3 with a stride of 1 by Winograd's algorithm F(2x2, 3x3): 4 products in place of 9. Sums have an
 * order that depends on shapes alone.
 */
#include <stdlib.h>

#include "common/error.h"
#include "common/isa.h"
#include "core/host.h"
#include "core/shape.h"
#include "cpu.h"
#include "winograd.h"

enum { KERNEL = 3, POINTS = CPU_WINOGRAD_POINTS };

/* Tiles that a thread holds at once, and channels of the output that it computes at least. */
enum { BLOCK = 64, FEWEST = 24, GROUP = 64 };

/* The weights' gradient is summed slice by slice: the tiles of a slice, or as many as its bytes hold. */
enum { SLICE = 128, SLICE_BYTES = 2 << 20 };

/* Numbers between the arrays of two points, so that a tile's points have their own sets in a cache. */
enum { APART = 16 };

/* In the weights' gradient, `from` is x and `to` is d_y. */
typedef struct cpu_winograd_plan {
	cpu_grid grid;
	int64_t from, to;        /* channels that are summed, and channels of the result */
	int64_t tiles, block;    /* block: of a thread, or of a slice */
	int64_t blocks, groups;  /* parts of the tiles, and of the result's channels */
	int64_t group;           /* channels of a group */
	int64_t weights, points; /* numbers: of the weights at all points, and of a thread or a slice */
	bool flipped;
} cpu_winograd_plan;

static int64_t divided(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

const cpu_winograd *cpu_winograd_find(void)
{
#if defined(__x86_64__) && defined(_OPENMP)
	if (bt_isa_level() >= BT_ISA_AVX2 && (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 &&
	    (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) != dnnl_cpu_isa_avx512_core)
		return &cpu_winograd_avx2;
#endif
	return NULL;
}

/* With fewer tiles making the weights' points costs more than the products save. The weights' gradient makes points of
 * both operands for one product, which takes as many channels. */
bool cpu_winograd_fits(const cpu_build *build, const dtrain_operand *w, const dtrain_operand *y)
{
	enum { FEWEST_TILES = 96, FEWEST_CHANNELS = 64 };
	const dtrain_window_attrs *window = &build->desc->attrs.window;
	const cpu_winograd *loops = build->device->winograd;
	if (!loops || build->op->dtype != DTRAIN_F32)
		return false;
	for (int i = 0; i < 2; i++)
		if (w->shape.dim[2 + i] != KERNEL || window->stride[i] != 1 ||
		    window->padding[i] != window->padding[0] || window->padding[i] >= KERNEL ||
		    w->shape.dim[i] % (2 * loops->lanes))
			return false;
	const int64_t *channels = w->shape.dim, *size = y->shape.dim;
	if (build->desc->kind == DTRAIN_OP_CONV2D_BWD_WEIGHT &&
	    2 * channels[0] * channels[1] < FEWEST_CHANNELS * (channels[0] + channels[1]))
		return false;
	return size[0] * divided(size[2], 2) * divided(size[3], 2) >= FEWEST_TILES;
}

static int64_t step_of(int64_t channels, int64_t tiles)
{
	return channels * tiles + APART;
}

static cpu_grid grid_of(const dtrain_operand *in, const dtrain_operand *out, int64_t padding)
{
	cpu_grid g = {.batch = in->shape.dim[0], .padding = padding};
	for (int i = 0; i < 2; i++) {
		g.in[i] = in->shape.dim[2 + i];
		g.out[i] = out->shape.dim[2 + i];
		g.tiles[i] = divided(g.out[i], 2);
	}
	return g;
}

/* The blocks of the forward pass, on which no result depends. */
static void divide_among_threads(cpu_winograd_plan *p, int64_t threads)
{
	p->blocks = divided(p->tiles, BLOCK);
	if (p->blocks >= threads || p->to < 2 * GROUP)
		p->blocks = divided(p->blocks, threads) * threads;
	if (p->tiles < p->blocks * FEWEST)
		p->blocks = divided(p->tiles, FEWEST);
	p->block = divided(divided(p->tiles, p->blocks), CPU_WINOGRAD_ROWS) * CPU_WINOGRAD_ROWS;
	p->blocks = divided(p->tiles, p->block);
	p->groups = divided(threads, p->blocks);
	if (p->groups > p->to / GROUP)
		p->groups = p->to < GROUP ? 1 : p->to / GROUP;
	p->group = divided(divided(p->to, p->groups), 2 * CPU_WINOGRAD_LANES_MAX) * 2 * CPU_WINOGRAD_LANES_MAX;
	if (p->group > p->to)
		p->group = p->to;
	p->groups = divided(p->to, p->group);
}

/* ---- forward, and the gradient of the input, which is the forward pass with turned weights ---- */

static void transform_weights(const struct dtrain_op *op, const cpu_winograd_plan *p, const float *weights,
			      float *points)
{
	const cpu_winograd *loops = op->device->winograd;
	int64_t lanes = loops->lanes, from = p->from / lanes, to = p->to / lanes, step = step_of(p->from, p->to);
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(op->device->threads)
#endif
	for (int64_t i = 0; i < to; i++)
		for (int64_t k = 0; k < from; k++) {
			int64_t panel = p->flipped ? k * to + i : i * from + k;
			float *at = points + (i / 2 * p->from + k * lanes) * 2 * lanes + i % 2 * lanes;
			loops->weights(at, step, weights + panel * KERNEL * KERNEL * lanes * lanes, p->flipped);
		}
}

/* Channels [begin, end) of the tiles of a block. */
static void convolve(const struct dtrain_op *op, const cpu_winograd_plan *p, const float *x, const float *weights,
		     float *y, float *points, int64_t block, int64_t group)
{
	const cpu_winograd *loops = op->device->winograd;
	const cpu_grid *g = &p->grid;
	int64_t lanes = loops->lanes, first = block * p->block, begin = group * p->group;
	int64_t count = p->tiles - first < p->block ? p->tiles - first : p->block;
	int64_t channels = p->to - begin < p->group ? p->to - begin : p->group;
	int64_t rows = divided(count, CPU_WINOGRAD_ROWS) * CPU_WINOGRAD_ROWS, panel = p->block * lanes;
	int64_t in = g->in[0] * g->in[1], out = g->out[0] * g->out[1];
	int64_t from_step = step_of(p->from, p->block), to_step = step_of(p->group, p->block);
	float *to = points + POINTS * from_step;
	for (int64_t i = 0; i < p->from / lanes; i++)
		loops->input(points + i * panel, from_step, g, x + i * lanes * in, p->from * in, first, count);
	for (int64_t k = 0; k < POINTS; k++)
		for (int64_t i = 0; i < channels; i += 2 * lanes)
			loops->product(to + k * to_step + i / lanes * panel, panel, points + k * from_step, panel,
				       weights + k * step_of(p->from, p->to) + (begin + i) * p->from, p->from / lanes,
				       rows);
	for (int64_t i = 0; i < channels / lanes; i++)
		loops->output(y + (begin + i * lanes) * out, p->to * out, g, to + i * panel, to_step, first, count);
}

static int run_convolution(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	const cpu_winograd_plan *p = op->table;
	const float *x = cpu_plain(op, 0, operands, workspace);
	float *weights = cpu_own_scratch(op, 0, workspace), *y = cpu_address(op->result, operands, workspace);
	(void)err;
	transform_weights(op, p, cpu_plain(op, 1, operands, workspace), weights);
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(op->device->threads)
#endif
	for (int64_t i = 0; i < p->blocks * p->groups; i++)
		convolve(op, p, x, weights, y, weights + p->weights + omp_get_thread_num() * p->points, i / p->groups,
			 i % p->groups);
	return BETON_OK;
}

/* ---- the gradient of the weights ---- */

typedef struct slice {
	int64_t first, count;
	float *x, *d_y;
	int64_t x_step, d_y_step;
} slice;

static void transform_slice(const struct dtrain_op *op, const cpu_winograd_plan *p, const slice *s, const float *x,
			    const float *d_y, int64_t panel)
{
	const cpu_winograd *loops = op->device->winograd;
	const cpu_grid *g = &p->grid;
	int64_t lanes = loops->lanes, panels = p->from / lanes, size = p->block * lanes;
	int64_t in = g->in[0] * g->in[1], out = g->out[0] * g->out[1];
	if (panel < panels)
		loops->input(s->x + panel * size, s->x_step, g, x + panel * lanes * in, p->from * in, s->first,
			     s->count);
	else
		loops->slope(s->d_y + (panel - panels) * size, s->d_y_step, g, d_y + (panel - panels) * lanes * out,
			     p->to * out, s->first, s->count);
}

static void add_slice(const struct dtrain_op *op, const cpu_winograd_plan *p, const slice *s, float *sums, int64_t i)
{
	const cpu_winograd *loops = op->device->winograd;
	int64_t lanes = loops->lanes, panels = p->to / lanes, point = i / panels, panel = i % panels;
	loops->weights_product(sums + point * step_of(p->from, p->to) + panel * lanes * p->from,
			       s->d_y + point * s->d_y_step + panel * p->block * lanes, s->x + point * s->x_step,
			       p->block * lanes, p->from / lanes, s->count, s->first > 0);
}

static int run_weights(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	const cpu_winograd_plan *p = op->table;
	const cpu_winograd *loops = op->device->winograd;
	const float *x = cpu_plain(op, 0, operands, workspace), *d_y = cpu_plain(op, 1, operands, workspace);
	float *sums = cpu_own_scratch(op, 0, workspace), *points = sums + p->weights;
	float *d_w = cpu_address(op->result, operands, workspace);
	int64_t lanes = loops->lanes, from = p->from / lanes, to = p->to / lanes;
	(void)err;
#ifdef _OPENMP
#pragma omp parallel num_threads(op->device->threads)
#endif
	{
		slice s = {.x = points, .x_step = step_of(p->from, p->block), .d_y_step = step_of(p->to, p->block)};
		s.d_y = points + POINTS * s.x_step;
		for (; s.first < p->tiles; s.first += p->block) {
			s.count = p->tiles - s.first < p->block ? p->tiles - s.first : p->block;
#ifdef _OPENMP
#pragma omp for schedule(dynamic)
#endif
			for (int64_t i = 0; i < from + to; i++)
				transform_slice(op, p, &s, x, d_y, i);
#ifdef _OPENMP
#pragma omp for schedule(dynamic)
#endif
			for (int64_t i = 0; i < POINTS * to; i++)
				add_slice(op, p, &s, sums, i);
		}
#ifdef _OPENMP
#pragma omp for schedule(dynamic)
#endif
		for (int64_t i = 0; i < to * from; i++)
			loops->weights_slope(d_w + (i / from * p->from + i % from) * lanes * KERNEL * KERNEL,
					     p->from * KERNEL * KERNEL, sums + i * lanes * lanes,
					     step_of(p->from, p->to));
	}
	return BETON_OK;
}

/* ---- building ---- */

static cpu_winograd_plan plan_of(const cpu_build *build, const dtrain_operand *x, const dtrain_operand *w,
				 const dtrain_operand *y)
{
	int64_t padding = build->desc->attrs.window.padding[0], threads = build->device->threads;
	bool back = build->desc->kind == DTRAIN_OP_CONV2D_BWD_DATA;
	cpu_winograd_plan p = {.grid = back ? grid_of(y, x, KERNEL - 1 - padding) : grid_of(x, y, padding),
			       .from = w->shape.dim[!back],
			       .to = w->shape.dim[back],
			       .flipped = back};
	p.tiles = p.grid.batch * p.grid.tiles[0] * p.grid.tiles[1];
	p.weights = POINTS * step_of(p.from, p.to);
	if (build->desc->kind == DTRAIN_OP_CONV2D_BWD_WEIGHT) {
		int64_t most = SLICE_BYTES / (POINTS * (int64_t)sizeof(float) * (p.from + p.to));
		p.block = most < SLICE ? SLICE : most;
		p.block = p.block > p.tiles ? p.tiles : p.block;
		p.points = POINTS * (step_of(p.from, p.block) + step_of(p.to, p.block));
	} else {
		divide_among_threads(&p, threads);
		p.points = POINTS * (step_of(p.from, p.block) + step_of(p.group, p.block));
	}
	return p;
}

void cpu_build_winograd(cpu_build *build, const dtrain_operand *x, const dtrain_operand *w, const dtrain_operand *y)
{
	struct dtrain_op *op = build->op;
	dtrain_op_kind kind = build->desc->kind;
	cpu_winograd_plan *plan = malloc(sizeof(*plan));
	op->table = plan;
	if (!plan) {
		build->status = bt_fail(build->err, BETON_NO_MEMORY, "out of memory for a convolution");
		return;
	}
	*plan = plan_of(build, x, w, y);
	bool of_weights = kind == DTRAIN_OP_CONV2D_BWD_WEIGHT;
	const_dnnl_memory_desc_t weights =
		of_weights ? cpu_plain_md(build, w)
			   : cpu_tag_md(build, w, kind == DTRAIN_OP_CONV2D ? dnnl_OIhw8i8o : dnnl_OIhw8o8i);
	const_dnnl_memory_desc_t from = cpu_tag_md(build, kind == DTRAIN_OP_CONV2D_BWD_DATA ? y : x, dnnl_nChw8c);
	const_dnnl_memory_desc_t to = cpu_tag_md(build, kind == DTRAIN_OP_CONV2D ? y : x, dnnl_nChw8c);
	if (of_weights)
		to = cpu_tag_md(build, y, dnnl_nChw8c);
	op->plain[0] = cpu_convert(build, cpu_input(build, 0), from).place;
	op->plain[1] = cpu_convert(build, cpu_input(build, 1), of_weights ? to : weights).place;
	cpu_view result = cpu_output(build, 0, of_weights ? weights : to);
	op->result = result.place;
	int64_t shared = plan->weights, own = plan->points * (of_weights ? 1 : build->device->threads);
	op->scratch = (cpu_place){.operand = CPU_WORKSPACE, .offset = build->workspace};
	build->workspace += dtrain__round_up((size_t)(shared + own) * sizeof(float), DTRAIN__HOST_ALIGNMENT);
	op->finish = of_weights ? run_weights : run_convolution;
	int before = op->num_steps;
	cpu_store(build, 0, result);
	op->late_steps = op->num_steps - before;
}
