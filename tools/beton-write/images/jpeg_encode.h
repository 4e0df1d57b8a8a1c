/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings of JPEGs that are encoded here.
 */
#ifndef BETON_WRITE_JPEG_ENCODE_H
#define BETON_WRITE_JPEG_ENCODE_H

#include "image.h"
#include "jpeg_common.h"

/* Sets up jpeg_start_compress. colour: of the input: RGB, YCbCr or grey. */
void jpeg_set_encoding(struct jpeg_compress_struct *info, uint32_t width, uint32_t height, J_COLOR_SPACE colour,
		       const image_settings *settings);

#endif
