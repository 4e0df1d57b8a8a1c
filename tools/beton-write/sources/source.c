/* SPDX-License-Identifier: Apache-2.0 */
#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"

void source_close(source **self)
{
	source *closing = *self;
	*self = NULL;
	if (!closing)
		return;
	free(closing->name);
	free(closing->root);
	for (uint32_t i = 0; i < closing->num_columns; i++) {
		free(closing->columns[i].name);
		free(closing->columns[i].field);
	}
	free(closing->columns);
	name_list_free(&closing->classes);
	source_notes_free(&closing->notes);
	closing->ops->close(closing);
}

int source_item_make(const source *self, source_item *item, beton_error *err)
{
	*item = (source_item){.num_values = self->num_columns};
	item->values = calloc(self->num_columns ? self->num_columns : 1, sizeof(*item->values));
	return item->values ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
}

void source_item_clear(source_item *item)
{
	free(item->name);
	free(item->source);
	item->name = item->source = NULL;
	for (uint32_t i = 0; i < item->num_values; i++) {
		free(item->values[i].owned);
		item->values[i] = (raw_value){.kind = RAW_MISSING};
	}
}

void source_item_free(source_item *item)
{
	source_item_clear(item);
	free(item->values);
	*item = (source_item){0};
}

int source_item_set_member(source_item *item, const char *path, const char *name, beton_error *err)
{
	const char *slash = strrchr(path, '/');
	item->source = strcmp(path, "-") == 0 ? strdup(name) : bt_format("%s/%s", slash ? slash + 1 : path, name);
	return item->source ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
}

int source_item_set_record(source_item *item, const char *path, uint64_t index, beton_error *err)
{
	char number[24];
	snprintf(number, sizeof(number), "%llu", (unsigned long long)index);
	return source_item_set_member(item, path, number, err);
}

int source_init(source *self, const char *kind, const source_ops *ops, const char *name, beton_error *err)
{
	self->ops = ops;
	self->kind = kind;
	self->name = strdup(name);
	return self->name ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
}

int source_add_column(source *self, const char *name, const char *field, column_type type, beton_error *err)
{
	if (self->num_columns >= UINT16_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: more than %u columns", self->name, UINT16_MAX);
	source_column *columns = reallocarray(self->columns, self->num_columns + 1, sizeof(*columns));
	if (!columns)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
	self->columns = columns;
	source_column *added = &columns[self->num_columns];
	*added = (source_column){.name = strdup(name), .field = field ? strdup(field) : NULL, .type = type};
	if (!added->name || (field && !added->field)) {
		free(added->name);
		free(added->field);
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
	}
	self->num_columns++;
	return BETON_OK;
}

int64_t source_find_column(const source *self, const char *name)
{
	for (uint32_t i = 0; i < self->num_columns; i++)
		if (strcmp(self->columns[i].name, name) == 0)
			return i;
	return -1;
}
