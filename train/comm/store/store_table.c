/* SPDX-License-Identifier: Apache-2.0 */
#include "store_table.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include <beton/error.h>

/* Memory of a blob or an entry besides its bytes: structs, a tree node, the allocator. */
#define OVERHEAD 64

store_blob *dtrain__store_blob_create(store_memory *memory, const void *data, size_t size, int *status)
{
	if (size + OVERHEAD > STORE_MAX_BYTES - memory->bytes) {
		*status = BETON_NO_SPACE;
		return NULL;
	}
	store_blob *blob = malloc(sizeof(*blob) + size);
	if (!blob) {
		*status = BETON_NO_MEMORY;
		return NULL;
	}
	*blob = (store_blob){.memory = memory, .references = 1, .size = size};
	if (size)
		memcpy(blob->data, data, size);
	memory->bytes += size + OVERHEAD;
	return blob;
}

store_blob *dtrain__store_blob_hold(store_blob *blob)
{
	blob->references++;
	return blob;
}

void dtrain__store_blob_release(store_blob *blob)
{
	if (!blob || --blob->references)
		return;
	blob->memory->bytes -= blob->size + OVERHEAD;
	free(blob);
}

typedef struct table_lookup {
	size_t size;
	const void *key;
} table_lookup;

static int compare_bytes(const void *a, size_t a_size, const void *b, size_t b_size)
{
	int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
	if (order)
		return order;
	return (a_size > b_size) - (a_size < b_size);
}

static int compare_lookup(const void *a, const void *b)
{
	const table_lookup *lookup = a;
	const store_entry *entry = b;
	return compare_bytes(lookup->key, lookup->size, entry->key, entry->key_size);
}

static int compare_entries(const void *a, const void *b)
{
	const store_entry *left = a, *right = b;
	return compare_bytes(left->key, left->key_size, right->key, right->key_size);
}

store_entry *dtrain__store_table_find(const store_table *table, const void *key, size_t key_size)
{
	table_lookup lookup = {.size = key_size, .key = key};
	store_entry **node = tfind(&lookup, &table->root, compare_lookup);
	return node ? *node : NULL;
}

static void free_entry(void *memory)
{
	store_entry *entry = memory;
	entry->value->memory->bytes -= entry->key_size + OVERHEAD;
	entry->value->memory->keys--;
	dtrain__store_blob_release(entry->value);
	free(entry);
}

/* Takes over the reference to the value on success. */
static int insert(store_table *table, const void *key, size_t key_size, store_blob *value)
{
	store_memory *memory = table->memory;
	if (memory->keys >= STORE_MAX_KEYS || key_size + OVERHEAD > STORE_MAX_BYTES - memory->bytes)
		return BETON_NO_SPACE;
	store_entry *entry = malloc(sizeof(*entry) + key_size);
	if (!entry)
		return BETON_NO_MEMORY;
	entry->key_size = key_size;
	entry->value = value;
	memcpy(entry->key, key, key_size);
	if (!tsearch(entry, &table->root, compare_entries)) {
		free(entry);
		return BETON_NO_MEMORY;
	}
	memory->bytes += key_size + OVERHEAD;
	memory->keys++;
	return BETON_OK;
}

int dtrain__store_table_set(store_table *table, const void *key, size_t key_size, const void *value, size_t value_size)
{
	store_entry *entry = dtrain__store_table_find(table, key, key_size);
	int status = BETON_OK;
	store_blob *blob = dtrain__store_blob_create(table->memory, value, value_size, &status);
	if (!blob)
		return status;
	if (entry) {
		dtrain__store_blob_release(entry->value);
		entry->value = blob;
		return BETON_OK;
	}
	status = insert(table, key, key_size, blob);
	if (status != BETON_OK)
		dtrain__store_blob_release(blob);
	return status;
}

void dtrain__store_table_free(store_table *table)
{
	tdestroy(table->root, free_entry);
	table->root = NULL;
}
