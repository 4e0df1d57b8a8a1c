/* SPDX-License-Identifier: Apache-2.0
 *
 * The sections of JPEG indexes: for each picture of each sample, if its JPEG has no restart markers, an index of its
 * scan. See docs/format.md and jpeg/index.h.
 *
 * An entry is the checksum of what follows it, with the JPEG's checksum as seed, and an index. So the index of another
 * JPEG, and a damaged one, are found when they are used.
 */
#ifndef BETON_JPEG_INDEX_H
#define BETON_JPEG_INDEX_H

#include <beton/beton.h>

#define JPEG_ENTRY_SUM 8 /* bytes of the checksum that begins an entry */

/* Makes the entry of a JPEG. step: see bt_scan_index. entry: room for BETON_JPEG_INDEX_MAX bytes. Returns its size; 0:
 * the JPEG gets none. */
size_t bt_jpeg_entry(const void *jpeg, size_t size, uint64_t max_pixels, uint32_t step, uint8_t *entry);

/* Compares the entry of an intact JPEG, whose stored bytes are given, with the JPEG. Errors: FORMAT (it is damaged or
 * wrong), IO, FILE_CHANGED, NO_MEMORY. */
int bt_jpeg_index_check(const beton_reader *reader, const beton_value *value, const void *stored, uint64_t max_pixels,
			beton_error *err);

#endif
