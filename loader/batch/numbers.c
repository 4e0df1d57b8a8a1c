/* SPDX-License-Identifier: Apache-2.0 */
#include "numbers.h"

#include "common/half.h"

size_t bt_number_bytes(beton_dtype dtype)
{
	switch (dtype) {
	case BETON_UINT8:
	case BETON_INT8:
	case BETON_BOOL:
		return 1;
	case BETON_FLOAT16:
	case BETON_BFLOAT16:
	case BETON_INT16:
	case BETON_UINT16:
		return 2;
	case BETON_FLOAT32:
	case BETON_INT32:
	case BETON_UINT32:
		return 4;
	default:
		return 8;
	}
}

double bt_number(beton_dtype dtype, const void *data, size_t i)
{
	switch (dtype) {
	case BETON_UINT8:
	case BETON_BOOL:
		return ((const uint8_t *)data)[i];
	case BETON_INT8:
		return ((const int8_t *)data)[i];
	case BETON_INT16:
		return ((const int16_t *)data)[i];
	case BETON_UINT16:
		return ((const uint16_t *)data)[i];
	case BETON_INT32:
		return ((const int32_t *)data)[i];
	case BETON_UINT32:
		return ((const uint32_t *)data)[i];
	case BETON_INT64:
		return (double)((const int64_t *)data)[i];
	case BETON_UINT64:
		return (double)((const uint64_t *)data)[i];
	case BETON_FLOAT16:
		return (double)bt_widen_float16(((const uint16_t *)data)[i]);
	case BETON_FLOAT32:
		return (double)((const float *)data)[i];
	default:
		return ((const double *)data)[i];
	}
}
