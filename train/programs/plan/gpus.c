/* SPDX-License-Identifier: Apache-2.0 */
#include "gpus.h"

#include <stddef.h>
#include <string.h>

#define GB 1e9
#define TFLOPS 1e12
/* Rates of tensor cores that a data sheet tells with sparsity. */
#define SPARSE (TFLOPS / 2)
/* Links that a data sheet tells in both directions together. */
#define BOTH_WAYS (GB / 2)
/* A host's network, which its GPUs share. */
#define GBIT_OF_8 (1e9 / 8 / 8)

/* NVIDIA's data sheets: "T4 Tensor Core GPU" (2019), "A10 Tensor Core GPU" (2021), "A100 Tensor Core GPU" (2021), "L4
 * Tensor Core GPU" (2023), "L40S" (2023), "H100 Tensor Core GPU" (2023, the column SXM), "H200 Tensor Core GPU" (2024,
 * SXM), and for a GPU of the B200 an eighth of the "HGX B200" (2024). PCIe of 16 lanes: generation 3 has 32 GB/s in
 * both directions, generation 4 has 64. Networks: a DGX A100 has 8 adapters of 200 Gbit/s, a DGX H100, H200 or B200 has
 * 8 of 400 (their data sheets); Amazon's hosts of 8 GPUs, g4dn.metal, g5.48xlarge and g6.48xlarge, have 100 Gbit/s, and
 * g6e.48xlarge has 400. */
static const dtrain__gpu gpus[] = {
	{.name = "t4",
	 .product = "NVIDIA T4, 16 GB",
	 .memory = 16 * GB,
	 .bandwidth = 300 * GB,
	 .f32 = 8.1 * TFLOPS,
	 .tf32 = 8.1 * TFLOPS, /* has no TF32: F32 */
	 .f16 = 65 * TFLOPS,
	 .link = 32 * BOTH_WAYS,
	 .network = 100 * GBIT_OF_8,
	 .host_gpus = 8},
	{.name = "a10",
	 .product = "NVIDIA A10, 24 GB",
	 .memory = 24 * GB,
	 .bandwidth = 600 * GB,
	 .f32 = 31.2 * TFLOPS,
	 .tf32 = 62.5 * TFLOPS,
	 .f16 = 125 * TFLOPS,
	 .bf16 = 125 * TFLOPS,
	 .link = 64 * BOTH_WAYS,
	 .network = 100 * GBIT_OF_8,
	 .host_gpus = 8},
	{.name = "l4",
	 .product = "NVIDIA L4, 24 GB",
	 .memory = 24 * GB,
	 .bandwidth = 300 * GB,
	 .f32 = 30.3 * TFLOPS,
	 .tf32 = 120 * SPARSE,
	 .f16 = 242 * SPARSE,
	 .bf16 = 242 * SPARSE,
	 .link = 64 * BOTH_WAYS,
	 .network = 100 * GBIT_OF_8,
	 .host_gpus = 8},
	{.name = "l40s",
	 .product = "NVIDIA L40S, 48 GB",
	 .memory = 48 * GB,
	 .bandwidth = 864 * GB,
	 .f32 = 91.6 * TFLOPS,
	 .tf32 = 366 * SPARSE,
	 .f16 = 733 * SPARSE,
	 .bf16 = 733 * SPARSE,
	 .link = 64 * BOTH_WAYS,
	 .network = 400 * GBIT_OF_8,
	 .host_gpus = 8},
	{.name = "a100-40gb",
	 .product = "NVIDIA A100 SXM, 40 GB",
	 .memory = 40 * GB,
	 .bandwidth = 1555 * GB,
	 .f32 = 19.5 * TFLOPS,
	 .tf32 = 156 * TFLOPS,
	 .f16 = 312 * TFLOPS,
	 .bf16 = 312 * TFLOPS,
	 .link = 600 * BOTH_WAYS,
	 .network = 1600 * GBIT_OF_8,
	 .host_gpus = 8},
	{.name = "a100",
	 .product = "NVIDIA A100 SXM, 80 GB",
	 .memory = 80 * GB,
	 .bandwidth = 2039 * GB,
	 .f32 = 19.5 * TFLOPS,
	 .tf32 = 156 * TFLOPS,
	 .f16 = 312 * TFLOPS,
	 .bf16 = 312 * TFLOPS,
	 .link = 600 * BOTH_WAYS,
	 .network = 1600 * GBIT_OF_8,
	 .host_gpus = 8},
	{.name = "h100",
	 .product = "NVIDIA H100 SXM, 80 GB",
	 .memory = 80 * GB,
	 .bandwidth = 3350 * GB,
	 .f32 = 67 * TFLOPS,
	 .tf32 = 989 * SPARSE,
	 .f16 = 1979 * SPARSE,
	 .bf16 = 1979 * SPARSE,
	 .link = 900 * BOTH_WAYS,
	 .network = 3200 * GBIT_OF_8,
	 .host_gpus = 8},
	{.name = "h200",
	 .product = "NVIDIA H200 SXM, 141 GB",
	 .memory = 141 * GB,
	 .bandwidth = 4800 * GB,
	 .f32 = 67 * TFLOPS,
	 .tf32 = 989 * SPARSE,
	 .f16 = 1979 * SPARSE,
	 .bf16 = 1979 * SPARSE,
	 .link = 900 * BOTH_WAYS,
	 .network = 3200 * GBIT_OF_8,
	 .host_gpus = 8},
	{.name = "b200",
	 .product = "NVIDIA B200 SXM, 180 GB",
	 .memory = 180 * GB,
	 .bandwidth = 8000 * GB,
	 .f32 = 75 * TFLOPS,
	 .tf32 = 2250 * SPARSE,
	 .f16 = 4500 * SPARSE,
	 .bf16 = 4500 * SPARSE,
	 .link = 1800 * BOTH_WAYS,
	 .network = 3200 * GBIT_OF_8,
	 .host_gpus = 8},
};

const dtrain__gpu *dtrain__gpu_at(int index)
{
	return index < (int)(sizeof(gpus) / sizeof(gpus[0])) ? &gpus[index] : NULL;
}

const dtrain__gpu *dtrain__gpu_find(const char *name)
{
	for (int i = 0; dtrain__gpu_at(i); i++)
		if (strcmp(gpus[i].name, name) == 0)
			return &gpus[i];
	return NULL;
}
