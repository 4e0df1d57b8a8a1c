/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "common/error.h"
#include "core/host.h"
#include "core/shape.h"
#include "cpu.h"

/* Size of a tile of the result: large enough for oneDNN's speed, and with enough of them for many threads. */
enum { ROWS = 256, COLUMNS = 512 };

/* The memories of a tile. */
enum { A, B, C, SCRATCHPAD, BIAS, MEMORIES };

static const int arguments[MEMORIES] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD,
					DNNL_ARG_BIAS};

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t rows_of(const cpu_product *p)
{
	return p->tile[0] ? p->tile[0] : ROWS;
}

static int64_t columns_of(const cpu_product *p)
{
	return p->tile[1] ? p->tile[1] : COLUMNS;
}

int64_t cpu_product_tiles(const cpu_product *p)
{
	return (p->m + rows_of(p) - 1) / rows_of(p) * ((p->n + columns_of(p) - 1) / columns_of(p));
}

/* ---- BF16: a primitive for each size of tile ---- */

static const_dnnl_memory_desc_t matrix(cpu_build *build, dnnl_data_type_t type, int64_t rows, int64_t columns,
				       int64_t step, bool transposed)
{
	/* oneDNN 3.7 takes a single row that is transposed for one whose elements follow each other. */
	int64_t across = transposed && rows == 1 ? step * columns : 1;
	const dnnl_dims_t dims = {rows, columns}, strides = {transposed ? across : step, transposed ? step : 1};
	onednn_md md = NULL;
	dnnl_status_t status = dnnl_memory_desc_create_with_strides(&md, 2, dims, type, strides);
	return cpu_own_md(build, md, status);
}

/* The attributes of the op's primitives, and what the product does with its result. */
static dnnl_primitive_attr_t attributes(cpu_build *build, const cpu_product *p)
{
	dnnl_primitive_attr_t attr = NULL;
	dnnl_post_ops_t ops = NULL;
	dnnl_status_t status = dnnl_primitive_attr_clone(&attr, build->attr);
	if (status == dnnl_success)
		status = dnnl_post_ops_create(&ops);
	if (status == dnnl_success && p->alpha != 1)
		status = dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_linear, p->alpha, 0);
	if (status == dnnl_success && p->adds)
		status = dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
	if (status == dnnl_success)
		status = dnnl_primitive_attr_set_post_ops(attr, ops);
	if (ops)
		dnnl_post_ops_destroy(ops);
	cpu_check(build, status, "product");
	return attr;
}

cpu_tiling *cpu_add_tiling(cpu_build *build)
{
	if (build->status != BETON_OK)
		return NULL;
	cpu_tiling *tiling = &build->op->tilings[build->op->num_tilings++];
	tiling->threads = build->device->threads;
	return tiling;
}

static void make_memories(cpu_build *build, cpu_tiling *tiling, cpu_tile *tile, const const_dnnl_memory_desc_t mds[])
{
	size_t count = (size_t)tiling->threads * MEMORIES;
	tile->memories = calloc(count, sizeof(dnnl_memory_t));
	if (!tile->memories) {
		build->status = bt_fail(build->err, BETON_NO_MEMORY, "out of memory for the tiles of a product");
		return;
	}
	for (size_t i = 0; i < count; i++)
		if (mds[i % MEMORIES] && build->status == BETON_OK)
			cpu_check(build,
				  dnnl_memory_create(&tile->memories[i], mds[i % MEMORIES], build->device->engine,
						     DNNL_MEMORY_NONE),
				  "memory");
}

/* oneDNN plans for OpenMP's number of threads. */
void cpu_plan_tile(cpu_build *build, cpu_tiling *tiling, cpu_tile *tile, const cpu_product *p)
{
	struct dtrain_op *op = build->op;
	if (build->status != BETON_OK || p->m == 0 || p->n == 0 || p->k == 0)
		return;
	const_dnnl_memory_desc_t mds[MEMORIES] = {
		[A] = matrix(build, dnnl_bf16, p->m, p->k, p->a_step, p->of_a == 'T'),
		[B] = matrix(build, dnnl_bf16, p->k, p->n, p->b_step, p->of_b == 'T'),
		[C] = matrix(build, p->wide ? dnnl_f32 : dnnl_bf16, p->m, p->n, p->c_step, false),
		[BIAS] = p->bias ? matrix(build, dnnl_f32, 1, p->n, p->n, false) : NULL};
	dnnl_primitive_attr_t attr = attributes(build, p);
	dnnl_primitive_desc_t pd = NULL;
	if (build->status == BETON_OK) {
		omp_set_num_threads(1);
		cpu_check(build,
			  dnnl_matmul_primitive_desc_create(&pd, build->device->engine, mds[A], mds[B], mds[BIAS],
							    mds[C], attr),
			  "product");
		if (pd)
			cpu_check(build, dnnl_primitive_create(&tile->primitive, pd), "product");
		omp_set_num_threads(build->device->threads);
	}
	mds[SCRATCHPAD] = pd ? cpu_query(build, pd, dnnl_query_scratchpad_md, 0) : NULL;
	if (build->status == BETON_OK) {
		size_t bytes = dnnl_memory_desc_get_size(mds[SCRATCHPAD]);
		bytes = dtrain__round_up(bytes, DTRAIN__HOST_ALIGNMENT);
		op->tile_bytes = bytes > op->tile_bytes ? bytes : op->tile_bytes;
		bytes = (size_t)tiling->threads * op->tile_bytes;
		build->scratchpad = bytes > build->scratchpad ? bytes : build->scratchpad;
		make_memories(build, tiling, tile, mds);
	}
	if (pd)
		dnnl_primitive_desc_destroy(pd);
	if (attr)
		dnnl_primitive_attr_destroy(attr);
}

void cpu_plan_product(cpu_build *build, cpu_product *p)
{
	struct dtrain_op *op = build->op;
	if (op->dtype == DTRAIN_F32 || build->status != BETON_OK)
		return;
	p->tiling = op->num_tilings;
	cpu_tiling *tiling = cpu_add_tiling(build);
	int64_t rows = rows_of(p), columns = columns_of(p);
	for (int i = 0; i < 4; i++) {
		cpu_product tile = *p;
		tile.m = i / 2 ? p->m % rows : p->m < rows ? 0 : rows;
		tile.n = i % 2 ? p->n % columns : p->n < columns ? 0 : columns;
		tile.c_step = p->n;
		cpu_plan_tile(build, tiling, &tiling->tiles[i / 2][i % 2], &tile);
	}
}

void cpu_destroy_tiling(cpu_tiling *tiling)
{
	for (int k = 0; k < 4; k++) {
		cpu_tile *tile = &tiling->tiles[k / 2][k % 2];
		for (int i = 0; tile->memories && i < tiling->threads * MEMORIES; i++)
			if (tile->memories[i])
				dnnl_memory_destroy(tile->memories[i]);
		if (tile->primitive)
			dnnl_primitive_destroy(tile->primitive);
		free(tile->memories);
	}
}

static dnnl_status_t run_tile(const struct dtrain_op *op, const cpu_tile *tile, const void *const *addresses)
{
	dnnl_memory_t *memories = tile->memories + omp_get_thread_num() * MEMORIES;
	dnnl_exec_arg_t args[MEMORIES];
	dnnl_status_t status = dnnl_success;
	int count = 0;
	for (int i = 0; i < MEMORIES && status == dnnl_success; i++) {
		if (!memories[i])
			continue;
		args[count++] = (dnnl_exec_arg_t){.arg = arguments[i], .memory = memories[i]};
		status = dnnl_memory_set_data_handle(memories[i], (void *)(uintptr_t)addresses[i]);
	}
	return status == dnnl_success ? dnnl_primitive_execute(tile->primitive, op->device->stream, count, args)
				      : status;
}

dnnl_status_t cpu_tile_product(const struct dtrain_op *op, const cpu_tile *tile, const void *a, const void *b, void *c,
			       void *workspace)
{
	const void *scratchpad = (char *)workspace + (size_t)omp_get_thread_num() * op->tile_bytes;
	return run_tile(op, tile, (const void *[MEMORIES]){[A] = a, [B] = b, [C] = c, [SCRATCHPAD] = scratchpad});
}

/* ---- */

/* Finishes a tile of the product while it is in the cache. */
static void finish_tile(const struct dtrain_op *op, const cpu_product *p, int64_t row, int64_t column)
{
	for (int64_t i = row; i < row + least(rows_of(p), p->m - row); i++) {
		int64_t at = i * p->n + column, count = least(columns_of(p), p->n - column);
		if (p->bias && op->dtype == DTRAIN_F32)
			op->rows->add((float *)p->c + at, p->bias + column, count);
		if (p->activation != CPU_IDENTITY)
			op->rows->activate(cpu_to(op, p->activated, at), cpu_from(op, p->c, at), count, p->activation);
	}
}

dnnl_status_t cpu_product_tile(const struct dtrain_op *op, const cpu_product *p, int64_t index, void *workspace)
{
	int64_t across = (p->n + columns_of(p) - 1) / columns_of(p);
	int64_t row = index / across * rows_of(p), column = index % across * columns_of(p);
	int64_t m = least(rows_of(p), p->m - row), n = least(columns_of(p), p->n - column);
	const void *a = cpu_from(op, p->a, p->of_a == 'T' ? row : row * p->a_step);
	const void *b = cpu_from(op, p->b, p->of_b == 'T' ? column * p->b_step : column);
	int64_t at = row * p->n + column;
	dnnl_status_t status;
	if (op->dtype == DTRAIN_F32 && p->m == 1 && p->of_a == 'N' && p->alpha == 1) {
		op->device->vector->row_product((float *)p->c + at, a, b, p->b_step, n, p->k, p->of_b == 'T', p->adds);
		status = dnnl_success;
	} else if (op->dtype == DTRAIN_F32) {
		status = dnnl_sgemm(p->of_a, p->of_b, m, n, p->k, p->alpha, a, p->a_step, b, p->b_step, p->adds ? 1 : 0,
				    (float *)p->c + at, p->n);
	} else {
		const void *c = p->wide ? (float *)p->c + at : cpu_to(op, p->c, at);
		const cpu_tile *tile = &op->tilings[p->tiling].tiles[m < rows_of(p)][n < columns_of(p)];
		status = run_tile(op, tile,
				  (const void *[]){[A] = a,
						   [B] = b,
						   [C] = c,
						   [BIAS] = p->bias ? p->bias + column : NULL,
						   [SCRATCHPAD] = (char *)workspace +
								  (size_t)omp_get_thread_num() * op->tile_bytes});
	}
	if (status == dnnl_success && (p->bias || p->activation != CPU_IDENTITY))
		finish_tile(op, p, row, column);
	return status;
}

int cpu_product_failed(int status, beton_error *err)
{
	return bt_fail(err, BETON_DEVICE, "oneDNN failed with status %d in a product", status);
}

int cpu_products(const struct dtrain_op *op, const cpu_product *first, int64_t count, int64_t a_step, int64_t b_step,
		 void *workspace, beton_error *err)
{
	int64_t tiles = cpu_product_tiles(first);
	int failure = dnnl_success;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(op->device->threads) reduction(max : failure)
#endif
	for (int64_t i = 0; i < count * tiles; i++) {
		cpu_product p = *first;
		p.a = cpu_from(op, p.a, i / tiles * a_step);
		p.b = cpu_from(op, p.b, i / tiles * b_step);
		p.c = p.wide ? (float *)p.c + i / tiles * p.m * p.n : cpu_to(op, p.c, i / tiles * p.m * p.n);
		dnnl_status_t status = cpu_product_tile(op, &p, i % tiles, workspace);
		failure = status == dnnl_success ? failure : (int)status;
	}
	return failure == dnnl_success ? BETON_OK : cpu_product_failed(failure, err);
}
