/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of CUB's scans that the kernels use, for the emulation.
 */
#ifndef TESTS_CUDA_KERNELS_CUB_SCAN_H
#define TESTS_CUDA_KERNELS_CUB_SCAN_H

namespace cub
{

template <typename T, int THREADS> class BlockScan
{
      public:
	struct TempStorage {
		T values[THREADS];
	};

	explicit BlockScan(TempStorage &storage) : storage_(storage)
	{
	}

	void ExclusiveSum(T value, T &before)
	{
		T all;
		ExclusiveScan(
			value, before, T(0), [](T a, T b) { return a + b; }, all);
	}

	template <typename F> void ExclusiveScan(T value, T &before, T first, F f, T &all)
	{
		storage_.values[threadIdx.x] = value;
		__syncthreads();
		before = first;
		all = storage_.values[0];
		for (int i = 0; i < (int)threadIdx.x; i++)
			before = f(before, storage_.values[i]);
		for (int i = 1; i < THREADS; i++)
			all = f(all, storage_.values[i]);
	}

      private:
	TempStorage &storage_;
};

} // namespace cub

#endif
