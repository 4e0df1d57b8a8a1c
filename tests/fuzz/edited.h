/* SPDX-License-Identifier: Apache-2.0
 *
 * A good file with an extension block and compressed fields, edited, with checksums that match the edits, to reach the
 * code after the checksums. */
#ifndef TESTS_FUZZ_EDITED_H
#define TESTS_FUZZ_EDITED_H

#include <stddef.h>
#include <stdint.h>

enum { EDITED_PATH = 64 };

/* The input, of at least a byte: a byte that chooses the file and what is sealed, then edits of 2 bytes of place, one
 * of length and the bytes. Returns a descriptor, to be closed; path names the file until then. */
int edited_open(const uint8_t *data, size_t size, char path[EDITED_PATH]);

#endif
