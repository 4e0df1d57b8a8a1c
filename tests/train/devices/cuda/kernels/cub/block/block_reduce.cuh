/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of CUB that the kernels use, for the emulation. Only thread 0 gets the result, as there.
 */
#ifndef TESTS_CUDA_KERNELS_CUB_H
#define TESTS_CUDA_KERNELS_CUB_H

#include <math.h>

namespace cub
{

template <typename T, int THREADS> class BlockReduce
{
      public:
	struct TempStorage {
		T values[THREADS];
	};

	explicit BlockReduce(TempStorage &storage) : storage_(storage)
	{
	}

	template <typename F> T Reduce(T value, F f)
	{
		storage_.values[threadIdx.x] = value;
		__syncthreads();
		if (threadIdx.x != 0)
			return T(NAN);
		T out = storage_.values[0];
		for (int i = 1; i < THREADS; i++)
			out = f(out, storage_.values[i]);
		return out;
	}

      private:
	TempStorage &storage_;
};

} // namespace cub

#endif
