/* SPDX-License-Identifier: Apache-2.0 */
#include "partial.h"

bool bt_jpeg_is_partial(const struct jpeg_decompress_struct *jpeg)
{
	/* Bits that a coefficient lacks, -1: all. */
	for (int i = 0; jpeg->progressive_mode && i < jpeg->num_components; i++)
		for (int k = 0; k < DCTSIZE2; k++)
			if (jpeg->coef_bits[i][k])
				return true;
	return false;
}
