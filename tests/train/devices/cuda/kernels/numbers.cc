/* SPDX-License-Identifier: Apache-2.0 */
#include "numbers.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

double number_get(dtrain_dtype dtype, const void *array, int64_t i)
{
	switch (dtype) {
	case DTRAIN_F32:
		return static_cast<const float *>(array)[i];
	case DTRAIN_F64:
		return static_cast<const double *>(array)[i];
	case DTRAIN_F16:
		return __half2float(static_cast<const __half *>(array)[i]);
	case DTRAIN_BF16:
		return __bfloat162float(static_cast<const __nv_bfloat16 *>(array)[i]);
	case DTRAIN_I64:
		return (double)static_cast<const int64_t *>(array)[i];
	case DTRAIN_I32:
		return static_cast<const int32_t *>(array)[i];
	case DTRAIN_U8:
		return static_cast<const uint8_t *>(array)[i];
	}
	return 0;
}

void number_set(dtrain_dtype dtype, void *array, int64_t i, double value)
{
	switch (dtype) {
	case DTRAIN_F32:
		static_cast<float *>(array)[i] = (float)value;
		break;
	case DTRAIN_F64:
		static_cast<double *>(array)[i] = value;
		break;
	case DTRAIN_F16:
		static_cast<__half *>(array)[i] = __double2half(value);
		break;
	case DTRAIN_BF16:
		static_cast<__nv_bfloat16 *>(array)[i] = __double2bfloat16(value);
		break;
	case DTRAIN_I64:
		static_cast<int64_t *>(array)[i] = (int64_t)value;
		break;
	case DTRAIN_I32:
		static_cast<int32_t *>(array)[i] = (int32_t)value;
		break;
	case DTRAIN_U8:
		static_cast<uint8_t *>(array)[i] = (uint8_t)value;
		break;
	}
}
