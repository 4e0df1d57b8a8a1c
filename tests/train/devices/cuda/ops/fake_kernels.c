/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "devices/cuda/kernels/kernels.h"
#include "fake_cublaslt.h"
#include "tests/train/devices/cuda/standin/standin.h"

fake_kernel_facts fake_kernels;

float fake_get(const void *memory, dtrain_dtype dtype, int64_t index)
{
	return dtype == DTRAIN_F32 ? ((const float *)memory)[index]
				   : fake_bf16_to_float(((const uint16_t *)memory)[index]);
}

void fake_put(void *memory, dtrain_dtype dtype, int64_t index, float value)
{
	if (dtype == DTRAIN_F32)
		((float *)memory)[index] = value;
	else
		((uint16_t *)memory)[index] = fake_float_to_bf16(value);
}

cudaError_t cuda_kernel_cast(cudaStream_t stream, const void *x, dtrain_dtype from, void *y, dtrain_dtype to,
			     int64_t count)
{
	(void)stream;
	for (int64_t i = 0; i < count; i++)
		fake_put(y, to, i, fake_get(x, from, i));
	fake_kernels.casts++;
	return cudaSuccess;
}

cudaError_t cuda_kernel_spread(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t batch,
			       int64_t rows, int64_t columns, double factor)
{
	(void)stream;
	assert_int_equal(batch, 1);
	for (int64_t i = 0; i < rows * columns; i++)
		fake_put(y, dtype, i, (float)((double)fake_get(x, dtype, i % columns) * factor));
	return cudaSuccess;
}

cudaError_t cuda_kernel_relu(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t count)
{
	(void)stream;
	for (int64_t i = 0; i < count; i++)
		fake_put(y, dtype, i, fmaxf(fake_get(x, dtype, i), 0));
	return cudaSuccess;
}

/* The functions themselves are tested elsewhere; here only the choice of the function is tested. */
static cudaError_t mark(dtrain_dtype dtype, const void *x, void *y, int64_t count, float by)
{
	for (int64_t i = 0; i < count; i++)
		fake_put(y, dtype, i, fake_get(x, dtype, i) + by);
	return cudaSuccess;
}

cudaError_t cuda_kernel_gelu(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t count)
{
	(void)stream;
	return mark(dtype, x, y, count, 100 * DTRAIN_ACTIVATION_GELU);
}

cudaError_t cuda_kernel_gelu_tanh(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t count)
{
	(void)stream;
	return mark(dtype, x, y, count, 100 * DTRAIN_ACTIVATION_GELU_TANH);
}

cudaError_t cuda_kernel_gelu_tanh_bwd(cudaStream_t stream, dtrain_dtype dtype, const void *x, const void *d_y,
				      void *d_x, int64_t count)
{
	(void)stream;
	for (int64_t i = 0; i < count; i++)
		fake_put(d_x, dtype, i, fake_get(x, dtype, i) * fake_get(d_y, dtype, i));
	return cudaSuccess;
}

cudaError_t cuda_kernel_silu(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t count)
{
	(void)stream;
	return mark(dtype, x, y, count, 100 * DTRAIN_ACTIVATION_SILU);
}

size_t cuda_kernel_column_sums_workspace(int64_t batch, int64_t rows, int64_t columns)
{
	(void)rows;
	return (size_t)(batch * columns) * sizeof(float);
}

cudaError_t cuda_kernel_column_sums(cudaStream_t stream, const void *x, dtrain_dtype from, void *y, dtrain_dtype to,
				    int64_t batch, int64_t rows, int64_t columns, double factor, void *workspace)
{
	(void)stream;
	assert_int_equal(batch, 1);
	standin.clock_ns += fake_kernels.sums_ns;
	memset(workspace, 0xee, cuda_kernel_column_sums_workspace(batch, rows, columns));
	for (int64_t c = 0; c < columns; c++) {
		double sum = 0;
		for (int64_t r = 0; r < rows; r++)
			sum += (double)fake_get(x, from, r * columns + c);
		fake_put(y, to, c, (float)(sum * factor));
	}
	return cudaSuccess;
}
