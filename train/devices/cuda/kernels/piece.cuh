/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of parameters (see DTRAIN_PIECE_NUMBERS), for updates with one block for each piece.
 */
#ifndef DTRAIN_CUDA_PIECE_CUH
#define DTRAIN_CUDA_PIECE_CUH

#include "kernel.cuh"

namespace cuda_kernels
{

struct piece {
	int64_t begin, count, first, parts, place;
	float lr, decay;
	float inverse; /* what a gradient is multiplied by */
	bool skips;    /* some gradient is not finite */
};

/* divisor: of gradients. */
__device__ inline piece piece_of(const cuda_update &u, float divisor, int64_t index)
{
	const int64_t *numbers = u.pieces + index * DTRAIN_PIECE_NUMBERS;
	piece p;
	p.begin = numbers[DTRAIN_PIECE_BEGIN];
	p.count = numbers[DTRAIN_PIECE_COUNT];
	p.first = numbers[DTRAIN_PIECE_FIRST];
	p.parts = numbers[DTRAIN_PIECE_PARTS];
	p.place = numbers[DTRAIN_PIECE_PLACE];
	const float *rates = u.scalars + DTRAIN_UPDATE_SCALARS * u.group[p.begin / DTRAIN_PARAM_ALIGN];
	p.lr = rates[0];
	p.decay = rates[1];
	p.skips = u.scaler && u.scaler[DTRAIN_SCALER_INFINITE] != 0;
	p.inverse = 1 / (u.scaler ? divisor * u.scaler[DTRAIN_SCALER_SCALE] : divisor);
	return p;
}

} // namespace cuda_kernels

#endif
