/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a table, and the sums of their gradients.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "cpu.h"

/* Rows of the table that a piece of work owns. */
enum { ROWS = 256 };

typedef struct embedding {
	const void *index;
	bool is_32;
	int64_t count, rows, columns;
	int64_t first, all; /* the number of row 0, and the rows of all ranks */
} embedding;

static int64_t index_at(const embedding *e, int64_t i)
{
	return e->is_32 ? ((const int32_t *)e->index)[i] : ((const int64_t *)e->index)[i];
}

/* The row of this part that a place names; -1: one of another part. */
static int64_t row_at(const embedding *e, int64_t i)
{
	int64_t row = index_at(e, i) - e->first;
	return row >= 0 && row < e->rows ? row : -1;
}

static int check_indices(const embedding *e, beton_error *err)
{
	for (int64_t i = 0; i < e->count; i++) {
		int64_t index = index_at(e, i);
		if (index < 0 || index >= e->all)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "index %lld at position %lld is outside 0..%lld (the table has %lld rows)",
				       (long long)index, (long long)i, (long long)e->all - 1, (long long)e->all);
	}
	return BETON_OK;
}

static embedding embedding_of(const struct dtrain_op *op, int64_t rows, int64_t columns, void *const *operands,
			      void *workspace)
{
	return (embedding){.index = cpu_plain(op, 1, operands, workspace),
			   .is_32 = op->dtypes[1] == DTRAIN_I32,
			   .count = dtrain_shape_count(&op->shapes[1]),
			   .rows = rows,
			   .columns = columns,
			   .first = op->attrs.table.first,
			   .all = op->attrs.table.all ? op->attrs.table.all : rows};
}

static int forward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	embedding e = embedding_of(op, op->shapes[0].dim[0], op->shapes[0].dim[1], operands, workspace);
	const void *w = cpu_plain(op, 0, operands, workspace);
	void *y = operands[op->num_inputs];
	bool rounds = op->dtypes[0] != op->dtype;
	int status = check_indices(&e, err);
	if (status != BETON_OK)
		return status;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (e.count * e.columns > ROWS * ROWS)
#endif
	for (int64_t i = 0; i < e.count; i++) {
		int64_t row = row_at(&e, i), from = row * e.columns;
		void *to = cpu_to(op, y, i * e.columns);
		if (row < 0)
			memset(to, 0, (size_t)e.columns * op->element);
		else if (rounds)
			op->rows->narrow(to, (const float *)w + from, 1, e.columns);
		else
			memcpy(to, cpu_from(op, w, from), (size_t)e.columns * op->element);
	}
	return BETON_OK;
}

/* The places in the order of the pieces of the table that they belong to, and in their own order within a piece: a
 * counting sort. starts [pieces + 1]: where a piece's places begin. Places of other parts are left out. */
static void sort_places(const embedding *e, int64_t pieces, int64_t *starts, int64_t *places)
{
	memset(starts, 0, (size_t)(pieces + 1) * sizeof(*starts));
	for (int64_t i = 0; i < e->count; i++)
		if (row_at(e, i) >= 0)
			starts[row_at(e, i) / ROWS + 1]++;
	for (int64_t p = 0; p < pieces; p++)
		starts[p + 1] += starts[p];
	for (int64_t i = 0; i < e->count; i++)
		if (row_at(e, i) >= 0)
			places[starts[row_at(e, i) / ROWS]++] = i;
	memmove(starts + 1, starts, (size_t)pieces * sizeof(*starts));
	starts[0] = 0;
}

static int64_t pieces_of(int64_t rows)
{
	return (rows + ROWS - 1) / ROWS;
}

/* Each row is summed by one thread, in the order of the places. */
static int backward(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	embedding e = embedding_of(op, op->batch, op->channels, operands, workspace);
	const void *d_y = cpu_plain(op, 0, operands, workspace);
	const float *addend = op->num_inputs > 2 ? cpu_plain(op, 2, operands, workspace) : NULL;
	float *d_w = operands[op->num_inputs];
	int64_t pieces = pieces_of(e.rows), *starts = cpu_own_scratch(op, 0, workspace), *places = starts + pieces + 1;
	int status = check_indices(&e, err);
	if (status != BETON_OK)
		return status;
	sort_places(&e, pieces, starts, places);
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (e.rows * e.columns > ROWS * ROWS)
#endif
	for (int64_t p = 0; p < pieces; p++) {
		int64_t first = p * ROWS, rows = e.rows - first < ROWS ? e.rows - first : ROWS;
		size_t bytes = (size_t)(rows * e.columns) * sizeof(float);
		if (!addend)
			memset(d_w + first * e.columns, 0, bytes);
		else if (addend != d_w)
			memcpy(d_w + first * e.columns, addend + first * e.columns, bytes);
		for (int64_t k = starts[p]; k < starts[p + 1]; k++)
			op->rows->add(d_w + row_at(&e, places[k]) * e.columns, cpu_from(op, d_y, places[k] * e.columns),
				      e.columns);
	}
	return BETON_OK;
}

void cpu_build_embedding(cpu_build *build)
{
	const dtrain_op_desc *desc = build->desc;
	const dtrain_shape *w = desc->kind == DTRAIN_OP_EMBEDDING ? &desc->inputs[0].shape : &desc->outputs[0].shape;
	int64_t count = dtrain_shape_count(&desc->inputs[1].shape);
	build->op->batch = w->dim[0];
	build->op->channels = w->dim[1];
	if (desc->kind == DTRAIN_OP_EMBEDDING)
		cpu_build_function(build, 0, 0, forward);
	else
		cpu_build_function(build, (size_t)(pieces_of(w->dim[0]) + 1 + count) * sizeof(int64_t), 1, backward);
}
