/* SPDX-License-Identifier: Apache-2.0
 *
 * Without cuBLASLt no convolution is a matrix product; test-cuda-conv-product has these.
 */
#include "devices/cuda/cuda.h"

bool cuda_conv_is_product(const dtrain_op_desc *desc)
{
	(void)desc;
	return false;
}

int cuda_build_conv_product(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	(void)op;
	(void)desc;
	(void)err;
	return BETON_UNSUPPORTED;
}
