/* SPDX-License-Identifier: Apache-2.0
 *
 * The content of the key-value store: a map from byte strings to byte strings, in bounded memory. A value is a
 * reference-counted blob. Sessions that send it hold references instead of copies, and it counts until the last
 * reference is dropped.
 */
#ifndef DTRAIN_COMM_STORE_STORE_TABLE_H
#define DTRAIN_COMM_STORE_STORE_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* Limit of all keys and values together, including last wills, and replaced values that are still being sent: far more
 * than a rendezvous needs, and harmless for the machine. */
#define STORE_MAX_BYTES (256u << 20)
#define STORE_MAX_KEYS (1u << 20)

/* Used by all tables, and by blobs that are in no table. */
typedef struct store_memory {
	size_t bytes;
	size_t keys;
} store_memory;

typedef struct store_blob {
	store_memory *memory;
	size_t references;
	size_t size;
	uint8_t data[];
} store_blob;

typedef struct store_entry {
	store_blob *value;
	size_t key_size;
	uint8_t key[];
} store_entry;

typedef struct store_table {
	store_memory *memory;
	void *root; /* tsearch tree of store_entry */
} store_table;

/* Copies the bytes into a blob with one reference. NULL: *status is NO_MEMORY or NO_SPACE. */
store_blob *dtrain__store_blob_create(store_memory *memory, const void *data, size_t size, int *status);
store_blob *dtrain__store_blob_hold(store_blob *blob);
void dtrain__store_blob_release(store_blob *blob); /* NULL allowed */

/* NULL when there is none. */
store_entry *dtrain__store_table_find(const store_table *table, const void *key, size_t key_size);

/* Copies key and value. Returns BETON_OK, NO_MEMORY or NO_SPACE. */
int dtrain__store_table_set(store_table *table, const void *key, size_t key_size, const void *value, size_t value_size);

void dtrain__store_table_free(store_table *table);

#endif
