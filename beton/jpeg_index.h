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

#include "jpeg/index.h"

#define JPEG_ENTRY_SUM 8 /* bytes of the checksum that begins an entry */

/* The number of a picture among all samples' pictures: by sample and then by field. */
uint64_t bt_jpeg_picture_number(const beton_reader *reader, const beton_value *value);

/* Makes the index of a JPEG, whose size is 0 where it gets none. False: out of memory. */
bool bt_jpeg_index_make(const void *jpeg, size_t size, uint64_t max_pixels, bt_index_request *index);

/* Sets the checksum of an entry whose index of `used` bytes is there. jpeg_sum: XXH3-64 of the JPEG. */
void bt_jpeg_entry_seal(uint8_t *entry, size_t used, uint64_t jpeg_sum);

/* A stored entry that is compared with its JPEG. Zero-initialise. */
typedef struct index_check {
	beton_blob place; /* of the entry; size 0: the JPEG has none */
	uint8_t *room;    /* the entry, and the index that is made of the JPEG */
	bt_index_request again;
} index_check;

/* Reads the entry of a JPEG. Errors: FORMAT (its place is wrong), IO, FILE_CHANGED, NO_MEMORY. */
int bt_index_check_begin(index_check *self, const beton_reader *reader, const beton_value *value, beton_error *err);

/* Compares the entry with the index that was made meanwhile (`again`) of the JPEG, whose stored bytes are given.
 * Errors: FORMAT (it is damaged or wrong). */
int bt_index_check_end(const index_check *self, const beton_reader *reader, const beton_value *value,
		       const void *stored, beton_error *err);

void bt_index_check_free(index_check *self);

#endif
