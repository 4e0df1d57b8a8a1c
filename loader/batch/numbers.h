/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of arrays, by their type.
 */
#ifndef BT_LOADER_NUMBERS_H
#define BT_LOADER_NUMBERS_H

#include <stddef.h>

#include <beton/loader.h>

/* Bytes of an element. */
size_t bt_number_bytes(beton_dtype dtype);

/* Element i of an array of a file, whose types do not include BFLOAT16; 64-bit integers are rounded. */
double bt_number(beton_dtype dtype, const void *data, size_t i);

#endif
