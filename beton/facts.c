/* SPDX-License-Identifier: Apache-2.0 */
#include "facts.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "format.h"

static int no_memory(beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "writer options: no memory for the facts");
}

static int parse(json_t **out, const char *given, beton_error *err)
{
	json_error_t fault = {0};
	*out = given ? json_loads(given, JSON_REJECT_DUPLICATES, &fault) : json_object();
	if (json_is_object(*out))
		return BETON_OK;
	if (!*out && (!given || json_error_code(&fault) == json_error_out_of_memory))
		return no_memory(err);
	return bt_fail(err, BETON_INVALID_ARGUMENT, "writer options: the facts are not a JSON object: %s",
		       *out ? "another kind of value" : fault.text);
}

int bt_facts_make(char **out, const char *given, beton_error *err)
{
	json_t *theirs;
	json_t *facts = json_object();
	*out = NULL;
	int result = parse(&theirs, given, err);
	if (result == BETON_OK) {
		bool named = json_object_get(theirs, "writer") ||
			     json_object_set_new(facts, "writer", json_string("libbeton " BETON_VERSION)) == 0;
		if (named && json_object_update(facts, theirs) == 0)
			*out = json_dumps(facts, JSON_COMPACT);
		if (!*out)
			result = no_memory(err);
	}
	json_decref(theirs);
	json_decref(facts);
	if (result == BETON_OK && strlen(*out) > FACTS_SIZE_MAX) {
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "writer options: the facts take %zu bytes, at most %u",
				 strlen(*out), FACTS_SIZE_MAX);
		free(*out);
		*out = NULL;
	}
	return result;
}
