/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg_header.h"

bool bt_jpeg_header_check(const struct jpeg_decompress_struct *jpeg, uint64_t max_pixels, char *why, size_t size)
{
	why[0] = 0;
	if ((uint64_t)jpeg->image_width * jpeg->image_height > max_pixels)
		snprintf(why, size, "it has %u x %u pixels, more than max_pixels (%llu)", jpeg->image_width,
			 jpeg->image_height, (unsigned long long)max_pixels);
	else if (jpeg->jpeg_color_space == JCS_UNKNOWN)
		snprintf(why, size, "%d components of unknown meaning", jpeg->num_components);
	else if (jpeg->data_precision != BITS_IN_JSAMPLE)
		snprintf(why, size, "JPEG with %d bits a sample is not supported, only %d", jpeg->data_precision,
			 BITS_IN_JSAMPLE);
	else if (!jpeg->progressive_mode && jpeg->Ss != 0)
		/* The first scan of a lossy JPEG begins with the DC coefficient; lossless JPEG has the predictor's
		 * number there. */
		snprintf(why, size, "lossless JPEG is not supported");
	return !why[0];
}
