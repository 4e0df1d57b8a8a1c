/* SPDX-License-Identifier: Apache-2.0
 *
 * The first samples of a file whose page size follows from its data: they are held until all are there, or too many.
 */
#ifndef BETON_HELD_H
#define BETON_HELD_H

#include "sample.h"

/* Zero-initialise; bt_held_free. */
typedef struct held_samples {
	sample **list;
	size_t count;
	size_t room;
	uint64_t used;  /* bytes of page that they need */
	uint64_t bytes; /* of memory */
} held_samples;

/* Takes a copy of a sample. Whether there was memory. */
bool bt_held_add(held_samples *self, const sample *one, const sample_schema *schema);

/* Whether there are so many that small pages would hardly make the file smaller. */
bool bt_held_full(const held_samples *self);

/* The page size with which the file is smallest, the smaller one if two are equal. metadata: bytes before the first
 * page. */
uint32_t bt_held_page_size(const held_samples *self, uint64_t metadata);

void bt_held_free(held_samples *self);

#endif
