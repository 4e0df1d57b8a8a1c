/* SPDX-License-Identifier: Apache-2.0
 *
 * The content of the key-value store: byte strings to byte strings, in bounded memory.
 */
#ifndef DTRAIN_COMM_STORE_TABLE_H
#define DTRAIN_COMM_STORE_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* All keys and values together: far above what a rendezvous needs, far below what would hurt the machine. */
#define STORE_MAX_BYTES (256u << 20)

struct store_entry {
	size_t key_size;
	size_t value_size;
	uint8_t *value;
	uint8_t key[];
};

struct store_table {
	void *root; /* tsearch tree of struct store_entry */
	size_t bytes;
};

/* NULL when there is none. */
struct store_entry *dtrain__store_table_find(const struct store_table *table, const void *key, size_t key_size);

/* Copies key and value. Returns BETON_OK, NO_MEMORY or NO_SPACE. */
int dtrain__store_table_set(struct store_table *table, const void *key, size_t key_size, const void *value,
			    size_t value_size);

void dtrain__store_table_free(struct store_table *table);

#endif
