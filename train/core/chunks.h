/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the rows of a rank's chunks are in the whole sequence (dtrain_chunk_attrs). Rows are in the order of the
 * sequence, so that later ones have higher positions.
 */
#ifndef DTRAIN_CORE_CHUNKS_H
#define DTRAIN_CORE_CHUNKS_H

#include <dtrain/device.h>

/* Kernels of the cuda device call these functions, too. */
#ifdef __CUDACC__
#define DTRAIN__CHUNKS __host__ __device__ static inline
#else
#define DTRAIN__CHUNKS static inline
#endif

/* The number of this rank's first (half 0) or second chunk. */
DTRAIN__CHUNKS int64_t dtrain__chunk_number(dtrain_chunk_attrs chunks, int64_t half)
{
	return half ? 2 * (int64_t)chunks.ranks - 1 - chunks.rank : chunks.rank;
}

/* The position of row i of this rank's `rows`. */
DTRAIN__CHUNKS int64_t dtrain__chunk_position(dtrain_chunk_attrs chunks, int64_t rows, int64_t i)
{
	const int64_t each = rows / 2, half = i >= each;
	return chunks.ranks ? dtrain__chunk_number(chunks, half) * each + i - half * each : i;
}

/* The first row at this position or after it; `rows`: none is. */
DTRAIN__CHUNKS int64_t dtrain__chunk_row(dtrain_chunk_attrs chunks, int64_t rows, int64_t position)
{
	const int64_t each = rows / 2;
	int64_t row = position;
	if (chunks.ranks) {
		const int64_t low = dtrain__chunk_number(chunks, 0) * each,
			      high = dtrain__chunk_number(chunks, 1) * each;
		row = position < low + each ? position - low : position < high ? each : each + position - high;
	}
	return row < 0 ? 0 : row < rows ? row : rows;
}

/* DROPOUT: how many pieces of x [rows, ...] have consecutive numbers each: rows, parts of them, or chunks. */
DTRAIN__CHUNKS int64_t dtrain__dropout_pieces(dtrain_dropout_attrs a, int64_t rows)
{
	return a.chunks.ranks && !a.parts ? 2 * rows : rows;
}

/* The number of piece i among the pieces of the batch of all ranks; with per_row, of its row. */
DTRAIN__CHUNKS int64_t dtrain__dropout_number(dtrain_dropout_attrs a, const int64_t *random, int64_t i)
{
	const int64_t place = a.first + i, ranks = a.chunks.ranks ? a.chunks.ranks : 1;
	const int64_t pieces = a.parts ? a.parts : dtrain__dropout_pieces(a, 1);
	const int64_t row = pieces == 1 ? place : place / pieces;
	const int64_t number = random[DTRAIN_RANDOM_FIRST_ROW] + row * random[DTRAIN_RANDOM_ROW_STRIDE];
	return a.per_row ? number
			 : number * pieces * ranks + dtrain__chunk_position(a.chunks, pieces, place - row * pieces);
}

#endif
