/* SPDX-License-Identifier: Apache-2.0 */
#include "merged.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "facts.h"

static int no_memory(beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "no memory for the facts");
}

static int add_common(merged_facts *self, const json_t *facts, beton_error *err)
{
	const char *key;
	json_t *value;
	void *next;
	if (!self->common) {
		self->common = json_deep_copy(facts);
		if (!self->common)
			return no_memory(err);
		json_object_del(self->common, "writer");
		json_object_del(self->common, "classes");
		return BETON_OK;
	}
	json_object_foreach_safe(self->common, next, key, value)
	{
		if (!json_equal(value, json_object_get(facts, key)))
			json_object_del(self->common, key);
	}
	return BETON_OK;
}

/* The names of one input must equal the known names, as far as both go. */
static int check_names(const merged_facts *self, const json_t *facts, const char *path, beton_error *err)
{
	size_t known = json_array_size(self->classes);
	for (size_t i = 0; i < facts_num_classes(facts) && i < known; i++) {
		const char *name = facts_class_name(facts, (int64_t)i);
		const char *wanted = json_string_value(json_array_get(self->classes, i));
		if (strcmp(name, wanted) != 0)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "%s: class %zu is '%s', but '%s' in %s; --remap-classes gives common numbers",
				       path, i, name, wanted, self->named_by);
	}
	return BETON_OK;
}

/* Gives a number to each name that has none yet. */
static int number_names(merged_facts *self, const json_t *facts, const char *path, beton_error *err)
{
	uint64_t count = facts_num_classes(facts);
	json_t *seen = json_object();
	int result = seen ? BETON_OK : no_memory(err);
	if (count == 0)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no class names; --remap-classes needs them", path);
	for (uint64_t i = 0; i < count && result == BETON_OK; i++) {
		const char *name = facts_class_name(facts, (int64_t)i);
		if (json_object_get(seen, name))
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: two classes are named '%s'", path, name);
		else if (json_object_set_new(seen, name, json_true()) != 0)
			result = no_memory(err);
		else if (!json_object_get(self->numbers, name) &&
			 (json_object_set_new(self->numbers, name,
					      json_integer((json_int_t)json_array_size(self->classes))) != 0 ||
			  json_array_append_new(self->classes, json_string(name)) != 0))
			result = no_memory(err);
	}
	json_decref(seen);
	return result;
}

static int add_classes(merged_facts *self, const json_t *facts, const char *path, beton_error *err)
{
	uint64_t count = facts_num_classes(facts);
	if (!self->classes && (count || self->remap)) {
		self->classes = json_array();
		self->numbers = json_object();
		self->named_by = strdup(path);
		if (!self->classes || !self->numbers || !self->named_by)
			return no_memory(err);
	}
	if (self->remap)
		return number_names(self, facts, path, err);
	int result = check_names(self, facts, path, err);
	for (uint64_t i = json_array_size(self->classes); i < count && result == BETON_OK; i++)
		if (json_array_append_new(self->classes, json_string(facts_class_name(facts, (int64_t)i))) != 0)
			result = no_memory(err);
	return result;
}

int merged_add(merged_facts *self, const beton_reader *reader, beton_error *err)
{
	json_t *facts;
	int result = facts_load(&facts, reader, err);
	if (result == BETON_OK)
		result = add_common(self, facts, err);
	if (result == BETON_OK)
		result = add_classes(self, facts, beton_reader_path(reader), err);
	json_decref(facts);
	return result;
}

int merged_map(const merged_facts *self, const beton_reader *reader, int64_t **to, uint64_t *count, beton_error *err)
{
	json_t *facts;
	*to = NULL;
	*count = 0;
	int result = facts_load(&facts, reader, err);
	if (result != BETON_OK)
		return result;
	*count = facts_num_classes(facts);
	*to = calloc(*count + 1, sizeof(**to));
	if (!*to)
		result = no_memory(err);
	for (uint64_t i = 0; i < *count && result == BETON_OK; i++) {
		const json_t *number = json_object_get(self->numbers, facts_class_name(facts, (int64_t)i));
		if (!number)
			result = bt_fail(err, BETON_FILE_CHANGED, "%s: its classes changed", beton_reader_path(reader));
		else
			(*to)[i] = json_integer_value(number);
	}
	json_decref(facts);
	return result;
}

json_t *merged_object(const merged_facts *self)
{
	json_t *all = json_copy(self->common);
	if (!all || !self->classes || json_object_set(all, "classes", self->classes) == 0)
		return all;
	json_decref(all);
	return NULL;
}

char *merged_text(const merged_facts *self)
{
	json_t *all = merged_object(self);
	char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;
	json_decref(all);
	return text;
}

void merged_free(merged_facts *self)
{
	json_decref(self->common);
	json_decref(self->classes);
	json_decref(self->numbers);
	free(self->named_by);
	*self = (merged_facts){0};
}
