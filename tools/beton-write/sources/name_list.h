/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing list of strings. */
#ifndef BETON_WRITE_NAME_LIST_H
#define BETON_WRITE_NAME_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include <beton/error.h>

/* Zero-initialise. */
typedef struct name_list {
	char **names;
	size_t count;
	size_t capacity;
} name_list;

/* Room for one more item of item_size bytes; the array, grown or not, or NULL (no memory), when the old one stays. */
void *list_grow(void *items, size_t count, size_t *capacity, size_t item_size);

/* Adds a copy of name. Errors: NO_MEMORY. */
int name_list_add(name_list *list, const char *name, beton_error *err);
void name_list_free(name_list *list);

/* A list in the order of the bytes, each name once. Zero-initialise. */
typedef struct name_set {
	name_list list;
} name_set;

/* Adds a copy of name, if it is not in it. Errors: NO_MEMORY. */
int name_set_add(name_set *set, const char *name, beton_error *err);
bool name_set_has(const name_set *set, const char *name);
void name_set_free(name_set *set);

#endif
