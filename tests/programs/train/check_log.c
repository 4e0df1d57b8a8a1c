/* SPDX-License-Identifier: Apache-2.0
 *
 * check-log SCHEMA LOG: each line of the log is a record as the schema describes it; and each number is written with no
 * more digits than it needs. Of JSON Schema it knows what that schema uses. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_type(const json_t *value, const char *type)
{
	if (strcmp(type, "null") == 0)
		return json_is_null(value);
	if (strcmp(type, "string") == 0)
		return json_is_string(value);
	if (strcmp(type, "integer") == 0)
		return json_is_integer(value);
	if (strcmp(type, "number") == 0)
		return json_is_number(value);
	return strcmp(type, "array") == 0 ? json_is_array(value) : json_is_object(value);
}

static bool has_type(const json_t *value, const json_t *types)
{
	size_t i;
	json_t *type;
	if (!types)
		return true;
	if (json_is_string(types))
		return is_type(value, json_string_value(types));
	json_array_foreach(types, i, type) if (is_type(value, json_string_value(type))) return true;
	return false;
}

static bool is_one_of(const json_t *value, const json_t *list)
{
	size_t i;
	json_t *item;
	json_array_foreach(list, i, item) if (json_equal(item, value)) return true;
	return !list;
}

static bool is_valid(const char *name, const json_t *value, const json_t *schema);

static bool are_members_valid(const char *name, json_t *value, const json_t *schema)
{
	const json_t *known = json_object_get(schema, "properties"),
		     *others = json_object_get(schema, "additionalProperties");
	const char *key;
	json_t *member;
	size_t i;
	json_object_foreach(value, key, member)
	{
		const json_t *of_member = json_object_get(known, key);
		if (!of_member && json_is_false(others)) {
			fprintf(stderr, "%s: '%s' is not in the schema\n", name, key);
			return false;
		}
		if (!is_valid(key, member, of_member ? of_member : others))
			return false;
	}
	json_array_foreach(json_object_get(schema, "required"), i,
			   member) if (!json_object_get(value, json_string_value(member)))
	{
		fprintf(stderr, "%s: '%s' is missing\n", name, json_string_value(member));
		return false;
	}
	return true;
}

static bool is_valid(const char *name, const json_t *value, const json_t *schema)
{
	const json_t *constant = json_object_get(schema, "const"), *items = json_object_get(schema, "items"), *bound;
	size_t i;
	json_t *item;
	bool valid = has_type(value, json_object_get(schema, "type")) && (!constant || json_equal(constant, value)) &&
		     is_one_of(value, json_object_get(schema, "enum"));
	if ((bound = json_object_get(schema, "minimum")) && json_is_number(value))
		valid = valid && json_number_value(value) >= json_number_value(bound);
	if ((bound = json_object_get(schema, "maximum")) && json_is_number(value))
		valid = valid && json_number_value(value) <= json_number_value(bound);
	if (!valid) {
		fprintf(stderr, "'%s' has a value that the schema does not allow\n", name);
		return false;
	}
	json_array_foreach(items ? (json_t *)value : NULL, i, item) if (!is_valid(name, item, items)) return false;
	return !json_is_object(value) || are_members_valid(name, (json_t *)value, schema);
}

/* Whether no number outside of strings has 16 digits or more, but reads back the same with 15. */
static bool are_numbers_short(const char *line)
{
	bool in_string = false;
	for (const char *at = line; *at; at++) {
		if (*at == '"' && at > line && at[-1] != '\\')
			in_string = !in_string;
		if (in_string || !strchr("-0123456789", *at))
			continue;
		size_t length = strspn(at, "-+.eE0123456789");
		double value = strtod(at, NULL);
		char text[32];
		snprintf(text, sizeof(text), "%.15g", value);
		if (length > strlen(text) + 2 && strtod(text, NULL) == value) {
			fprintf(stderr, "%.*s could be %s\n", (int)length, at, text);
			return false;
		}
		at += length - 1;
	}
	return true;
}

int main(int argc, char **argv)
{
	json_t *schema = argc == 3 ? json_load_file(argv[1], 0, NULL) : NULL;
	FILE *file = argc == 3 ? fopen(argv[2], "r") : NULL;
	char *line = NULL;
	size_t room = 0;
	int number = 0;
	if (!schema || !file)
		return fprintf(stderr, "usage: check-log SCHEMA LOG\n"), 2;
	while (getline(&line, &room, file) > 0) {
		json_t *record = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
		const char *type = json_string_value(json_object_get(record, "type"));
		const json_t *of_type = json_object_get(json_object_get(schema, "$defs"), type ? type : "");
		number++;
		if (!of_type || !is_valid(type, record, of_type) || !are_numbers_short(line)) {
			fprintf(stderr, "%s:%d: %s", argv[2], number, line);
			return 1;
		}
		json_decref(record);
	}
	printf("%d records\n", number);
	free(line);
	json_decref(schema);
	return fclose(file) == 0 && number ? 0 : 1;
}
