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

/* The place of the first name that is not less than the given one. */
static size_t find_place(const name_list *list, const char *name)
{
	size_t low = 0;
	for (size_t high = list->count; low < high;) {
		size_t middle = low + (high - low) / 2;
		if (strcmp(list->names[middle], name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool name_set_has(const name_set *set, const char *name)
{
	size_t place = find_place(&set->list, name);
	return place < set->list.count && strcmp(set->list.names[place], name) == 0;
}

int name_set_add(name_set *set, const char *name, beton_error *err)
{
	name_list *list = &set->list;
	size_t place = find_place(list, name);
	if (place < list->count && strcmp(list->names[place], name) == 0)
		return BETON_OK;
	int result = name_list_add(list, name, err);
	if (result != BETON_OK)
		return result;
	char *added = list->names[list->count - 1];
	memmove(list->names + place + 1, list->names + place, (list->count - 1 - place) * sizeof(*list->names));
	list->names[place] = added;
	return BETON_OK;
}

void name_set_free(name_set *set)
{
	name_list_free(&set->list);
}
