/* SPDX-License-Identifier: Apache-2.0 */
#include "name_list.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

void *list_grow(void *items, size_t count, size_t *capacity, size_t item_size)
{
	if (count < *capacity)
		return items;
	size_t wanted = *capacity ? *capacity * 2 : 64;
	void *grown = reallocarray(items, wanted, item_size);
	if (grown)
		*capacity = wanted;
	return grown;
}

int name_list_add(name_list *list, const char *name, beton_error *err)
{
	char **names = list_grow(list->names, list->count, &list->capacity, sizeof(*names));
	if (names)
		list->names = names;
	if (!names || !(names[list->count] = strdup(name)))
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	list->count++;
	return BETON_OK;
}

void name_list_free(name_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->names[i]);
	free(list->names);
	*list = (name_list){0};
}
