/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "image_options.h"

/* Sets key, unless there is no text or it is not UTF-8. */
static void set_text(json_t *object, const char *key, const char *text)
{
	json_t *value = text ? json_string(text) : NULL;
	if (value)
		json_object_set_new(object, key, value);
}

/* The name of a folder may be any bytes: what is not UTF-8 is escaped. */
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

static json_t *make_options(const write_options *options)
{
	const selection_options *selected = &options->selected;
	json_t *object = json_object();
	set_text(object, "fields", options->fields);
	/* The list in a file is named, not copied. */
	set_text(object, "subset",
		 selected->subset && *selected->subset == '@' ? last_part(selected->subset) : selected->subset);
	if (selected->shuffle) {
		/* JSON's numbers are 64 bits with a sign here. */
		char seed[24];
		snprintf(seed, sizeof(seed), "%llu", (unsigned long long)selected->seed);
		set_text(object, "shuffle", seed);
	}
	if (selected->limit != UINT64_MAX)
		json_object_set_new(object, "limit", json_integer((json_int_t)selected->limit));
	if (options->val_fraction > 0)
		json_object_set_new(object, "val_fraction", json_real(options->val_fraction));
	if (options->skip_bad)
		set_text(object, "on_error", "skip");
	if (options->compress) {
		char method[24] = "zstd";
		if (options->compression_level)
			snprintf(method, sizeof(method), "zstd:%d", options->compression_level);
		set_text(object, "compress", method);
	}
	image_facts_add(&options->image, object);
	return object;
}

char *dataset_facts_make(const write_options *options, const source *from, const name_list *classes)
{
	json_t *facts = json_object();
	json_t *how = make_options(options);
	set_text(facts, "writer", "beton-write " PROJECT_VERSION);
	set_text(facts, "source", last_part(from->name));
	set_text(facts, "kind", from->kind);
	if (classes->count) {
		json_t *names = json_array();
		for (size_t i = 0; i < classes->count; i++)
			json_array_append_new(names, make_class(classes->names[i]));
		json_object_set_new(facts, "classes", names);
	}
	json_object_set_new(facts, "options", how);
	char *text = json_dumps(facts, JSON_COMPACT);
	json_decref(facts);
	return text;
}
