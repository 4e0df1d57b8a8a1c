/* SPDX-License-Identifier: Apache-2.0 */
#include "class_names.h"

#include <string.h>

#include "common/error.h"

static const char *name_of(const bt_class_names *names, uint32_t label)
{
	return names->set ? beton_set_class(names->set, label) : names->list[label];
}

static int compare(const bt_class_names *first, const bt_class_names *other, beton_error *err)
{
	static const char advice[] = "; beton-merge --remap-classes makes one file with common numbers of several";
	for (uint32_t i = 0; i < first->count && i < other->count; i++)
		if (strcmp(name_of(first, i), name_of(other, i)) != 0)
			return bt_fail(err, BETON_MISMATCH, "%s: class %u is '%.60s', but '%.60s' in %s%s", other->path,
				       i, name_of(other, i), name_of(first, i), first->path, advice);
	if (first->count != other->count)
		return bt_fail(err, BETON_MISMATCH, "%s has names of %u classes, but %s of %u%s", other->path,
			       other->count, first->path, first->count, advice);
	return BETON_OK;
}

int bt_class_names_agree(bt_class_names *self, const beton_set *set, const beton_reader *reader, beton_error *err)
{
	bt_class_names own = {.set = set, .path = set ? beton_set_path(set) : beton_reader_path(reader)};
	int result = BETON_OK;
	if (set)
		own.count = beton_set_get_info(set)->num_classes;
	else
		result = beton_reader_classes(reader, &own.list, &own.count, err);
	if (result == BETON_OK && own.count > 0 && self->count > 0)
		result = compare(self, &own, err);
	if (result == BETON_OK && self->count == 0)
		*self = own;
	else
		bt_class_names_free(&own);
	return result;
}

void bt_class_names_free(bt_class_names *self)
{
	beton_free(self->list);
	*self = (bt_class_names){0};
}
