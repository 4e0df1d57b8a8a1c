/* SPDX-License-Identifier: Apache-2.0 */
#include "class_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

/* The name in a cell; JSON may have numbers for it, which are printed to number. NULL: it names nothing. */
static const char *name_of(const raw_value *raw, char number[24])
{
	if (raw->kind == RAW_INT) {
		snprintf(number, 24, "%" PRId64, raw->integer);
		return number;
	}
	const char *text = raw->data;
	return raw->kind == RAW_TEXT && raw->size > 0 && strlen(text) == raw->size ? text : NULL;
}

static int add_name(const raw_value *raw, name_set *names, const char *column, beton_error *err)
{
	char number[24];
	const char *name = name_of(raw, number);
	if (!name || name_set_has(names, name))
		return BETON_OK;
	if (names->list.count == CLASSES_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "'%s' names more than %d classes; --fields=...,%s:text stores it as text", column,
			       CLASSES_MAX, column);
	return name_set_add(names, name, err);
}

static int read_names(source *from, uint32_t column, name_set *names, const atomic_int *interrupt, beton_error *err)
{
	source_item item;
	int result = source_item_make(from, &item, err);
	for (uint64_t i = 0; i < from->count && result == BETON_OK; i++) {
		beton_error fault;
		if (*interrupt) {
			result = bt_fail(err, BETON_CANCELLED, "interrupted while the classes were read");
			break;
		}
		result = from->ops->at(from, i, &item, &fault);
		if (result == BETON_OK)
			result = add_name(&item.values[column], names, from->columns[column].name, &fault);
		else if (result == BETON_SAMPLE_CORRUPT)
			result = BETON_OK; /* said, or left out, when the row's turn comes */
		if (result != BETON_OK)
			*err = fault;
		source_item_clear(&item);
	}
	source_item_free(&item);
	return result;
}

/* Tools apply the names to the field that beton-info and others call the label. */
static int check_field(const field_plan *plan, uint32_t field, beton_error *err)
{
	const char *name = plan->fields[field].name;
	for (uint32_t i = 0; i < plan->count; i++) {
		if (i == field || plan->fields[i].type != BETON_FIELD_INT)
			continue;
		if (plan->classes[i])
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "--fields: '%s' and '%s': the names of one field's classes are stored; "
				       "%s:text stores the other one as text",
				       plan->fields[i].name, name, name);
		if (strcmp(plan->fields[i].name, "label") == 0 || (i < field && strcmp(name, "label") != 0))
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "--fields: names of classes belong to the field 'label'; label=%s:class makes "
				       "'%s' that",
				       name, name);
	}
	return BETON_OK;
}

int class_names_read(source *from, const field_plan *plan, const atomic_int *interrupt, beton_error *err)
{
	uint32_t field = 0;
	while (field < plan->count && !plan->classes[field])
		field++;
	if (field == plan->count)
		return BETON_OK;
	if (!from->ops->at || !from->root)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--fields: '%s': only columns of CSV and JSON lines can be of type class",
			       plan->fields[field].name);
	name_set names = {0};
	uint32_t column = plan->columns[field];
	bool *wanted = calloc(from->num_columns + 1, sizeof(*wanted));
	int result =
		wanted ? check_field(plan, field, err) : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", from->name);
	for (uint32_t i = 0; i < from->num_columns && wanted; i++) {
		wanted[i] = from->columns[i].wanted;
		from->columns[i].wanted = i == column;
	}
	if (result == BETON_OK)
		result = read_names(from, column, &names, interrupt, err);
	for (uint32_t i = 0; i < from->num_columns && wanted; i++)
		from->columns[i].wanted = wanted[i];
	free(wanted);
	if (result == BETON_OK)
		from->classes = names.list;
	else
		name_set_free(&names);
	return result;
}

static int compare_name(const void *name, const void *element)
{
	return strcmp(name, *(char *const *)element);
}

int64_t class_names_find(const name_list *classes, const raw_value *raw)
{
	char number[24];
	const char *name = name_of(raw, number);
	char **found = name && classes->count
			       ? bsearch(name, classes->names, classes->count, sizeof(*classes->names), compare_name)
			       : NULL;
	return found ? found - classes->names : -1;
}
