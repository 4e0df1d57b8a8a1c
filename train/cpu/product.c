/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"

/* Size of a tile of the result: large enough for oneDNN's speed, and with enough of them for many threads. */
enum { ROWS = 256, COLUMNS = 512 };

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* What is done to the product is done while the tile is in the cache. */
static void find_tile(const cpu_vector *vector, const cpu_product *p, int64_t row, int64_t column)
{
	const float *a = p->a + (p->of_a == 'T' ? row : row * p->a_step);
	const float *b = p->b + (p->of_b == 'T' ? column * p->b_step : column);
	if (p->m == 1 && p->of_a == 'N' && p->alpha == 1)
		vector->row_product(p->c + column, a, b, p->b_step, least(COLUMNS, p->n - column), p->k, p->of_b == 'T',
				    false);
	else
		(void)dnnl_sgemm(p->of_a, p->of_b, least(ROWS, p->m - row), least(COLUMNS, p->n - column), p->k,
				 p->alpha, a, p->a_step, b, p->b_step, 0, p->c + row * p->n + column, p->n);
	if (!p->bias && p->activation == CPU_IDENTITY)
		return;
	for (int64_t i = row; i < row + least(ROWS, p->m - row); i++) {
		int64_t at = i * p->n + column, count = least(COLUMNS, p->n - column);
		if (p->bias)
			vector->add(p->c + at, p->bias + column, count);
		if (p->activation != CPU_IDENTITY)
			vector->activate(p->activated + at, p->c + at, count, p->activation);
	}
}

/* Also a single tile is found in a parallel region: outside of one oneDNN would divide its sums among threads. */
void cpu_products(const dtrain_device *device, const cpu_product *first, int64_t count, int64_t a_step, int64_t b_step)
{
	int64_t across = (first->n + COLUMNS - 1) / COLUMNS, tiles = (first->m + ROWS - 1) / ROWS * across;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(device->threads)
#endif
	for (int64_t i = 0; i < count * tiles; i++) {
		cpu_product p = *first;
		p.a += i / tiles * a_step;
		p.b += i / tiles * b_step;
		p.c += i / tiles * p.m * p.n;
		find_tile(device->vector, &p, i % tiles / across * ROWS, i % across * COLUMNS);
	}
}
