/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "tools/beton-write/images/image_options.h"

/* Sets key to value, which it takes. False: no memory. */
static bool set(json_t *object, const char *key, json_t *value)
{
	return json_object_set_new(object, key, value) == 0;
}

/* The same for a text, unless there is none or it is not UTF-8. */
static bool set_text(json_t *object, const char *key, const char *text)
{
	json_t *value = text ? json_string(text) : NULL;
	return !value || set(object, key, value);
}

/* A folder's name may be any bytes; bytes that are not UTF-8 are escaped. */
static json_t *make_class(const char *name)
{
	json_t *text = json_string(name);
	char *escaped = text ? NULL : malloc(4 * strlen(name) + 1);
	if (!escaped)
		return text;
	size_t used = 0;
	for (const char *at = name; *at; at++)
		used += (size_t)sprintf(escaped + used, (unsigned char)*at < 0x80 ? "%c" : "\\x%02x",
					(unsigned char)*at);
	text = json_string(escaped);
	free(escaped);
	return text;
}

/* The last part of a path. */
static const char *last_part(const char *path)
{
	size_t length = strlen(path);
	while (length > 1 && path[length - 1] == '/')
		length--;
	size_t begin = length;
	while (begin > 0 && path[begin - 1] != '/')
		begin--;
	return path + begin;
}

static bool add_selection(json_t *object, const selection_options *selected)
{
	/* The list in a file is named, not copied. */
	const char *subset = selected->subset;
	bool good = set_text(object, "subset", subset && *subset == '@' ? last_part(subset) : subset);
	if (selected->shuffle) {
		/* JSON's numbers are 64 bits with a sign here. */
		char seed[24];
		snprintf(seed, sizeof(seed), "%llu", (unsigned long long)selected->seed);
		good = good && set(object, "shuffle", json_string(seed));
	}
	if (selected->limit != UINT64_MAX)
		good = good && set(object, "limit", json_integer((json_int_t)selected->limit));
	return good;
}

static bool add_options(json_t *object, const write_options *options)
{
	bool good = set_text(object, "fields", options->fields) && set_text(object, "columns", options->columns) &&
		    add_selection(object, &options->selected);
	good = good && set_text(object, "tokenizer", options->tokenizer ? last_part(options->tokenizer) : NULL) &&
	       set_text(object, "field", options->text_field);
	if (options->val_fraction > 0)
		good = good && set(object, "val_fraction", json_real(options->val_fraction));
	if (options->val_fraction > 0) {
		char seed[24]; /* as above */
		snprintf(seed, sizeof(seed), "%llu", (unsigned long long)options->val_seed);
		good = good && set(object, "val_seed", json_string(seed));
	}
	if (options->no_sources)
		good = good && set(object, "no_sources", json_true());
	if (options->skip_bad)
		good = good && set(object, "on_error", json_string("skip"));
	if (options->compress) {
		char method[24] = "zstd";
		if (options->compression_level)
			snprintf(method, sizeof(method), "zstd:%d", options->compression_level);
		good = good && set(object, "compress", json_string(method));
	}
	return good && image_facts_add(&options->image, object);
}

static json_t *make_tokens(const source *from)
{
	json_t *tokens = json_pack("{s:I}", "count", (json_int_t)from->num_tokens);
	bool good = tokens != NULL;
	if (good && from->vocabulary)
		good = set(tokens, "vocabulary", json_integer((json_int_t)from->vocabulary));
	if (good && from->end_of_text >= 0)
		good = set(tokens, "end_of_text", json_integer((json_int_t)from->end_of_text));
	if (!good)
		json_decref(tokens);
	return good ? tokens : NULL;
}

/* A class that is missing would give all later ones another label. */
static bool add_classes(json_t *names, const name_list *classes)
{
	bool good = true;
	for (size_t i = 0; i < classes->count && good; i++)
		good = json_array_append_new(names, make_class(classes->names[i])) == 0;
	return good;
}

char *dataset_facts_make(const write_options *options, const source *from, const name_list *classes)
{
	json_t *facts = json_object();
	json_t *names = json_array();
	json_t *how = json_object();
	bool good = set_text(facts, "writer", "beton-write " PROJECT_VERSION) &&
		    set_text(facts, "source", last_part(from->name)) && set_text(facts, "kind", from->kind);
	if (from->num_tokens)
		good = good && set(facts, "tokens", make_tokens(from));
	if (classes->count)
		good = good && add_classes(names, classes) && json_object_set(facts, "classes", names) == 0;
	good = good && add_options(how, options) && json_object_set(facts, "options", how) == 0;
	char *text = good ? json_dumps(facts, JSON_COMPACT) : NULL;
	json_decref(how);
	json_decref(names);
	json_decref(facts);
	return text;
}
