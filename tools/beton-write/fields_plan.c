/* SPDX-License-Identifier: Apache-2.0 */
#include "fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"
#include "convert.h"
#include "faults.h"

/* A word of --fields for a type. */
typedef struct type_word {
	const char *name;
	beton_field_type type;
	bool classes; /* names of classes become integers */
} type_word;

/* The word at an index from 0; false: past the end. */
static bool word_at(size_t index, type_word *out)
{
	const bt_type *type;
	for (size_t i = 0; (type = bt_type_at(i)) != NULL; i++)
		for (int k = 0; k < 2 && type->words[k]; k++)
			if (index-- == 0) {
				*out = (type_word){type->words[k], type->type, k > 0 && type->form == BT_FORM_INTEGER};
				return true;
			}
	return false;
}

static const beton_field_type natural_types[] = {
	[COLUMN_INT] = BETON_FIELD_INT,       [COLUMN_CLASS] = BETON_FIELD_INT,   [COLUMN_FLOAT] = BETON_FIELD_FLOAT,
	[COLUMN_IMAGE] = BETON_FIELD_IMAGE,   [COLUMN_BYTES] = BETON_FIELD_BYTES, [COLUMN_JSON] = BETON_FIELD_JSON,
	[COLUMN_ARRAY] = BETON_FIELD_NDARRAY,
};

/* Room for one more in *array. False: no memory. */
static bool grow(void *array, uint32_t count, size_t size)
{
	void **memory = array;
	void *grown = reallocarray(*memory, count + 1, size);
	if (grown)
		*memory = grown;
	return grown;
}

/* The last field gets the type of its column, or the given one. */
static int add_field(field_plan *plan, const char *name, uint32_t column, beton_error *err)
{
	size_t length = strlen(name);
	if (length < 1 || length > BETON_NAME_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "the field name '%s' has %zu bytes, not 1 to %d; give another one with --fields", name,
			       length, BETON_NAME_MAX);
	for (uint32_t i = 0; i < plan->count; i++)
		if (plan->columns[i] == column)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "--fields: '%s' and '%s' come from the same column",
				       plan->fields[i].name, name);
	if (!grow(&plan->fields, plan->count, sizeof(*plan->fields)) ||
	    !grow(&plan->columns, plan->count, sizeof(*plan->columns)) ||
	    !grow(&plan->classes, plan->count, sizeof(*plan->classes)) ||
	    !grow(&plan->guessed, plan->count, sizeof(*plan->guessed)) ||
	    !grow(&plan->first, plan->count, sizeof(*plan->first)))
		return bt_fail(err, BETON_NO_MEMORY, "field '%s': out of memory", name);
	plan->fields[plan->count] = (beton_field){0};
	plan->first[plan->count] = NULL;
	memcpy(plan->fields[plan->count].name, name, length);
	plan->columns[plan->count++] = column;
	return BETON_OK;
}

static int add_natural(field_plan *plan, const char *name, const source *from, uint32_t column, beton_error *err)
{
	int result = add_field(plan, name, column, err);
	if (result != BETON_OK)
		return result;
	plan->fields[plan->count - 1].type = natural_types[from->columns[column].type];
	plan->classes[plan->count - 1] = from->columns[column].type == COLUMN_CLASS;
	plan->guessed[plan->count - 1] = true;
	return BETON_OK;
}

static int plan_natural(field_plan *plan, const source *from, beton_error *err)
{
	int result = BETON_OK;
	for (uint32_t i = 0; i < from->num_columns && result == BETON_OK; i++) {
		const source_column *column = &from->columns[i];
		if (column->field)
			result = add_natural(plan, column->field, from, i, err);
	}
	if (result == BETON_OK && plan->count == 0)
		result = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "%s: nothing in it becomes a field by itself; say which "
				 "columns with --fields",
				 from->name);
	return result;
}

static int no_such_column(const source *from, const char *name, beton_error *err)
{
	char list[256] = "";
	size_t used = 0;
	bt_suggestion like;
	bt_suggest_begin(&like, name);
	for (uint32_t i = 0; i < from->num_columns; i++)
		bt_suggest_try(&like, from->columns[i].name);
	for (uint32_t i = 0; i < from->num_columns && used < sizeof(list); i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
					 from->columns[i].name);
	return bt_fail(err, BETON_INVALID_ARGUMENT, "--fields: %s has no column '%s'; it has %s%s", from->name, name,
		       list, bt_suggest_text(&like));
}

/* One part of --fields, NAME[=COLUMN][:TYPE]; changes part. */
static int plan_part(field_plan *plan, char *part, source *from, beton_error *err)
{
	char *type_name = strrchr(part, ':');
	if (type_name)
		*type_name++ = 0;
	char *column_name = strchr(part, '=');
	if (column_name)
		*column_name++ = 0;
	else
		column_name = part;
	if (!*part || !*column_name)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--fields: a part without a name; each is NAME[=COLUMN][:TYPE]");
	int64_t column = source_find_column(from, column_name);
	if (column < 0 && from->ops->add_column) {
		int result = from->ops->add_column(from, column_name, err);
		if (result != BETON_OK)
			return result;
		column = source_find_column(from, column_name);
	}
	if (column < 0)
		return no_such_column(from, column_name, err);
	if (!type_name)
		return add_natural(plan, part, from, (uint32_t)column, err);
	bt_suggestion like;
	bt_suggest_begin(&like, type_name);
	char list[256] = "";
	type_word word;
	for (size_t i = 0; word_at(i, &word); i++) {
		bt_suggest_try(&like, word.name);
		bt_append(list, sizeof(list), "%s%s", i ? ", " : "", word.name);
		if (strcmp(type_name, word.name) != 0)
			continue;
		int result = add_field(plan, part, (uint32_t)column, err);
		if (result != BETON_OK)
			return result;
		plan->fields[plan->count - 1].type = word.type;
		plan->classes[plan->count - 1] = word.classes;
		plan->guessed[plan->count - 1] = false;
		return BETON_OK;
	}
	return bt_fail(err, BETON_INVALID_ARGUMENT, "--fields: '%s' has the unknown type '%s'; there are %s%s", part,
		       type_name, list, bt_suggest_text(&like));
}

bool field_text_names(const char *text, const char *column)
{
	size_t length = strlen(column);
	for (const char *part = text; part;) {
		size_t size = strcspn(part, ",");
		const char *name = memchr(part, '=', size);
		name = name ? name + 1 : part;
		if (strncmp(name, column, length) == 0 && strchr(",:", name[length]))
			return true;
		part = part[size] ? part + size + 1 : NULL;
	}
	return text == NULL;
}

static int plan_text(field_plan *plan, const char *text, source *from, beton_error *err)
{
	char *copy = strdup(text);
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "--fields: out of memory");
	int result = BETON_OK;
	char *rest = copy;
	while (rest && result == BETON_OK) {
		char *part = strsep(&rest, ",");
		result = plan_part(plan, part, from, err);
	}
	free(copy);
	return result;
}

char *field_plan_text(const field_plan *plan, const source *from, uint32_t changed, const char *type)
{
	char *text = strdup("");
	for (uint32_t i = 0; i < plan->count && text; i++) {
		const char *name = plan->fields[i].name;
		const char *column = from->columns[plan->columns[i]].name;
		const char *own = type;
		type_word word;
		for (size_t t = 0; i != changed && word_at(t, &word); t++)
			if (word.type == plan->fields[i].type && word.classes == plan->classes[i])
				own = word.name;
		bool same = strcmp(name, column) == 0;
		bool said = i == changed || !plan->guessed[i];
		char *longer = bt_format("%s%s%s%s%s%s%s", text, i ? "," : "", name, same ? "" : "=",
					 same ? "" : column, said ? ":" : "", said ? own : "");
		free(text);
		text = longer;
	}
	return text;
}

/* Looks at an item of a source. */
typedef int look(source *from, const source_item *item, uint32_t column, void *out, beton_error *err);

/* Bad items that are passed over in search of one that tells a type. */
enum { LOOKS_MAX = 1000 };

/* The source returns items one after the other. */
static int look_in_order(source *from, uint32_t column, look *function, void *out, beton_error *err)
{
	beton_error passed;
	for (int i = 0;; i++) {
		const source_item *item;
		int result = from->ops->peek(from, &item, err);
		if (result == BETON_OK)
			result = function(from, item, column, out, err);
		if (!from->skip_bad || !fault_is_of_item(result) || !from->ops->pass_first || i == LOOKS_MAX)
			return result;
		int next = from->ops->pass_first(from, err, &passed);
		if (next == BETON_END)
			return result;
		if (next != BETON_OK) {
			*err = passed;
			return next;
		}
	}
}

static int look_at(source *from, uint64_t index, source_item *item, uint32_t column, look *function, void *out,
		   beton_error *err)
{
	source_item_clear(item);
	int result = from->ops->at(from, index, item, err);
	return result == BETON_OK ? function(from, item, column, out, err) : result;
}

/* Looks at the first item, or, where bad ones are left out, at the first good one. */
static int look_at_first(source *from, uint32_t column, look *function, void *out, beton_error *err)
{
	beton_error later;
	if (from->ops->peek)
		return look_in_order(from, column, function, out, err);
	if (from->count == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no sample tells the shape of the arrays in '%s'",
			       from->name, from->columns[column].name);
	source_item item;
	int result = source_item_make(from, &item, err);
	if (result != BETON_OK)
		return result;
	result = look_at(from, 0, &item, column, function, out, err);
	int next = result;
	for (uint64_t i = 1; from->skip_bad && fault_is_of_item(next) && i < from->count && i < LOOKS_MAX; i++)
		next = look_at(from, i, &item, column, function, out, &later);
	source_item_free(&item);
	return next == BETON_OK ? next : result;
}

static int look_for_array(source *from, const source_item *item, uint32_t column, void *out, beton_error *err)
{
	return convert_array_type(from, item, column, out, err);
}

static int look_for_raster(source *from, const source_item *item, uint32_t column, void *out, beton_error *err)
{
	return convert_raster_type(from, item, column, out, err);
}

static int plan_array(beton_field *field, source *from, uint32_t column, beton_error *err)
{
	array_type array;
	int result = BETON_OK;
	if (from->columns[column].has_array)
		array = from->columns[column].array;
	else
		result = look_at_first(from, column, look_for_array, &array, err);
	if (result != BETON_OK)
		return result;
	if (array.ndim == 0) {
		/* The format has no arrays without dimensions. */
		array.ndim = 1;
		array.shape[0] = 1;
	}
	memcpy(field->dtype, array.dtype, sizeof(field->dtype));
	field->item_size = array.item_size;
	field->ndim = array.ndim;
	memcpy(field->shape, array.shape, sizeof(field->shape));
	return BETON_OK;
}

/* *first receives the name of what tells the type. */
static int plan_raster(beton_field *field, source *from, uint32_t column, char **first, beton_error *err)
{
	named_raster named;
	int result = look_at_first(from, column, look_for_raster, &named, err);
	if (result != BETON_OK)
		return result;
	*first = named.name;
	snprintf(field->dtype, sizeof(field->dtype), "%s", named.type.item_size == 1 ? "|u1" : "<u2");
	field->item_size = named.type.item_size;
	field->ndim = 1;
	field->shape[0] = named.type.channels;
	return BETON_OK;
}

int field_plan_make(field_plan *plan, const char *text, source *from, beton_error *err)
{
	*plan = (field_plan){0};
	int result = text ? plan_text(plan, text, from, err) : plan_natural(plan, from, err);
	for (uint32_t i = 0; i < plan->count && result == BETON_OK; i++)
		from->columns[plan->columns[i]].wanted = true;
	for (uint32_t i = 0; i < plan->count && result == BETON_OK; i++)
		if (bt_form_of(plan->fields[i].type) == BT_FORM_ARRAY)
			result = plan_array(&plan->fields[i], from, plan->columns[i], err);
	for (uint32_t i = 0; i < plan->count && result == BETON_OK; i++)
		if (bt_form_of(plan->fields[i].type) == BT_FORM_RASTER)
			result = plan_raster(&plan->fields[i], from, plan->columns[i], &plan->first[i], err);
	return result;
}

int field_plan_apply(const field_plan *plan, const source *planned, source *other, beton_error *err)
{
	for (uint32_t i = 0; i < plan->count; i++) {
		uint32_t column = plan->columns[i];
		if (column >= other->num_columns ||
		    strcmp(planned->columns[column].name, other->columns[column].name) != 0)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: it has not the columns of %s", other->name,
				       planned->name);
		other->columns[column].wanted = true;
	}
	return BETON_OK;
}

void field_plan_free(field_plan *plan)
{
	free(plan->fields);
	free(plan->columns);
	free(plan->classes);
	free(plan->guessed);
	for (uint32_t i = 0; i < plan->count; i++)
		free(plan->first[i]);
	free(plan->first);
	*plan = (field_plan){0};
}
