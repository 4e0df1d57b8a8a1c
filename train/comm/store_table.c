/* SPDX-License-Identifier: Apache-2.0 */
#include "store_table.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include <beton/error.h>

/* What an entry costs besides its bytes: the structs and the allocator. */
#define ENTRY_OVERHEAD 128

struct lookup {
	size_t size;
	const void *key;
};

static int compare_bytes(const void *a, size_t a_size, const void *b, size_t b_size)
{
	int order = memcmp(a, b, a_size < b_size ? a_size : b_size);

	if (order)
		return order;
	return (a_size > b_size) - (a_size < b_size);
}

static int compare_lookup(const void *a, const void *b)
{
	const struct lookup *lookup = a;
	const struct store_entry *entry = b;

	return compare_bytes(lookup->key, lookup->size, entry->key, entry->key_size);
}

static int compare_entries(const void *a, const void *b)
{
	const struct store_entry *left = a, *right = b;

	return compare_bytes(left->key, left->key_size, right->key, right->key_size);
}

struct store_entry *dtrain__store_table_find(const struct store_table *table, const void *key, size_t key_size)
{
	struct lookup lookup = {.size = key_size, .key = key};
	struct store_entry **node = tfind(&lookup, &table->root, compare_lookup);

	return node ? *node : NULL;
}

static void free_entry(void *memory)
{
	struct store_entry *entry = memory;

	free(entry->value);
	free(entry);
}

static int insert(struct store_table *table, const void *key, size_t key_size, uint8_t *value, size_t value_size)
{
	struct store_entry *entry = malloc(sizeof(*entry) + key_size);

	if (!entry)
		return BETON_NO_MEMORY;
	entry->key_size = key_size;
	entry->value_size = value_size;
	entry->value = value;
	memcpy(entry->key, key, key_size);
	if (!tsearch(entry, &table->root, compare_entries)) {
		free(entry);
		return BETON_NO_MEMORY;
	}
	return BETON_OK;
}

int dtrain__store_table_set(struct store_table *table, const void *key, size_t key_size, const void *value,
			    size_t value_size)
{
	struct store_entry *entry = dtrain__store_table_find(table, key, key_size);
	size_t before = entry ? entry->key_size + entry->value_size + ENTRY_OVERHEAD : 0;
	size_t after = key_size + value_size + ENTRY_OVERHEAD;
	uint8_t *copy;
	int status;

	if (table->bytes - before + after > STORE_MAX_BYTES)
		return BETON_NO_SPACE;
	copy = malloc(value_size ? value_size : 1);
	if (!copy)
		return BETON_NO_MEMORY;
	if (value_size)
		memcpy(copy, value, value_size);
	if (entry) {
		free(entry->value);
		entry->value = copy;
		entry->value_size = value_size;
	} else {
		status = insert(table, key, key_size, copy, value_size);
		if (status) {
			free(copy);
			return status;
		}
	}
	table->bytes += after - before;
	return BETON_OK;
}

void dtrain__store_table_free(struct store_table *table)
{
	tdestroy(table->root, free_entry);
	table->root = NULL;
	table->bytes = 0;
}
