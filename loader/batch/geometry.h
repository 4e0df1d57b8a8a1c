/* SPDX-License-Identifier: Apache-2.0
 *
 * The outputs of option geometry: boxes and points, moved as the pixels of a picture were.
 */
#ifndef BT_LOADER_GEOMETRY_H
#define BT_LOADER_GEOMETRY_H

#include "operations/moves.h"
#include "outputs.h"

/* Bytes of the array in the file. */
size_t bt_geometry_bytes(const bt_output *output);

/* Fills a row of a GEOMETRY output, and of the KEPT output after it, from the array in the file. */
void bt_geometry_fill(const bt_output *output, const void *array, const bt_moves *moves, float *to, float *kept);

#endif
