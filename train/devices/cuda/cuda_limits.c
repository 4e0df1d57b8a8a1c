/* SPDX-License-Identifier: Apache-2.0
 *
 * Upper bounds of a GPU's speed.
 */
#include "cuda.h"

/* Dense products, 2 for each multiply-add, of one multiprocessor in one clock: NVIDIA's data sheets of A100, A40,
 * L40S, H100, B200 and RTX PRO 6000, divided by their multiprocessors and highest clocks. GeForce cards of 8.6,
 * 8.9 and 12.0 have half of the tensor cores' rates where sums are F32. */
static const struct {
	int capability;
	double f32, tf32, f16, bf16;
} rates[] = {
	{80, 128, 1024, 2048, 2048}, {86, 256, 512, 1024, 1024},   {89, 256, 512, 1024, 1024},
	{90, 256, 2048, 4096, 4096}, {100, 256, 4096, 8192, 8192}, {120, 256, 512, 1024, 1024},
};

int cuda_read_limits(int index, const struct cudaDeviceProp *gpu, bool tf32, cuda_limits *out, beton_error *err)
{
	int memory_khz = 0, khz = 0;
	int status = cuda_check(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, index), err,
				"device 'cuda' %d: its memory's clock", index);
	if (status == BETON_OK)
		status = cuda_check(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, index), err,
				    "device 'cuda' %d: its clock", index);
	*out = (cuda_limits){0};
	/* Two transfers per clock. */
	out->bandwidth = 2e3 * memory_khz * gpu->memoryBusWidth / 8;
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		if (rates[i].capability == 10 * gpu->major + gpu->minor) {
			double clocks = 1e3 * khz * gpu->multiProcessorCount;
			out->flops[DTRAIN_F32] = clocks * (tf32 ? rates[i].tf32 : rates[i].f32);
			out->flops[DTRAIN_F16] = clocks * rates[i].f16;
			out->flops[DTRAIN_BF16] = clocks * rates[i].bf16;
		}
	return status;
}
