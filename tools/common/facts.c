/* SPDX-License-Identifier: Apache-2.0 */
#include "facts.h"

#include <string.h>

#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"

int facts_load(json_t **out, const beton_reader *reader, beton_error *err)
{
	*out = NULL;
	beton_error fault;
	const char *text = beton_reader_info(reader)->has_facts ? beton_reader_facts(reader, &fault) : "{}";
	if (!text) {
		if (err)
			*err = fault;
		return fault.code;
	}
	json_error_t where;
	*out = json_loads(text, JSON_REJECT_DUPLICATES, &where);
	if (!*out)
		return bt_fail(err, BETON_FORMAT, "%s: the facts: %s", beton_reader_path(reader), where.text);
	const json_t *classes = json_object_get(*out, "classes");
	bool good = !classes || json_is_array(classes);
	for (size_t i = 0; good && i < json_array_size(classes); i++)
		good = json_is_string(json_array_get(classes, i));
	if (good)
		return BETON_OK;
	json_decref(*out);
	*out = NULL;
	return bt_fail(err, BETON_FORMAT, "%s: the facts: 'classes' is not an array of texts",
		       beton_reader_path(reader));
}

uint64_t facts_num_classes(const json_t *facts)
{
	return json_array_size(json_object_get(facts, "classes"));
}

const char *facts_class_name(const json_t *facts, int64_t label)
{
	return label < 0 ? NULL : json_string_value(json_array_get(json_object_get(facts, "classes"), (size_t)label));
}

/* The first of them, for a message. */
static void list_classes(const json_t *facts, uint64_t count, char *text, size_t size)
{
	for (uint64_t i = 0; i < count; i++) {
		const char *known = facts_class_name(facts, (int64_t)i);
		if (strlen(text) + strlen(known ? known : "") + 16 > size) {
			bt_append(text, size, ", ...");
			return;
		}
		bt_append(text, size, "%s%s", i ? ", " : "; they are ", known ? known : "?");
	}
}

int facts_find_class(const json_t *facts, const char *name, int64_t *label, beton_error *err)
{
	uint64_t count = facts_num_classes(facts);
	uint64_t found = 0;
	for (uint64_t i = 0; i < count; i++)
		if (strcmp(facts_class_name(facts, (int64_t)i), name) == 0) {
			found++;
			*label = (int64_t)i;
		}
	if (found == 1)
		return BETON_OK;
	bt_suggestion like;
	char names[200] = "";
	bt_suggest_begin(&like, name);
	for (uint64_t i = 0; i < count && found == 0; i++)
		bt_suggest_try(&like, facts_class_name(facts, (int64_t)i));
	if (found == 0 && !*bt_suggest_text(&like))
		list_classes(facts, count, names, sizeof(names));
	return bt_fail(err, BETON_INVALID_ARGUMENT, "%llu of %llu classes have the name '%s'%s%s",
		       (unsigned long long)found, (unsigned long long)count, name, bt_suggest_text(&like), names);
}

int facts_copy(char **out, const beton_reader *reader, beton_error *err)
{
	json_t *facts;
	*out = NULL;
	int result = facts_load(&facts, reader, err);
	if (result != BETON_OK)
		return result;
	json_object_del(facts, "writer");
	*out = json_dumps(facts, JSON_COMPACT);
	json_decref(facts);
	return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", beton_reader_path(reader));
}
