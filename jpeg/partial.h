/* SPDX-License-Identifier: Apache-2.0
 *
 * Progressive JPEGs whose scans do not send all bits of all coefficients. libjpeg makes up for them by smoothing: it
 * estimates the first AC coefficients of a block from the DC coefficients of the decoded blocks around it.
 */
#ifndef BT_JPEG_PARTIAL_H
#define BT_JPEG_PARTIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <jpeglib.h>

/* Whether the JPEG, all of whose scans have been read, is one of them. */
bool bt_jpeg_is_partial(const struct jpeg_decompress_struct *jpeg);

#endif
