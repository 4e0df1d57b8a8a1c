/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>
#include <xxhash.h>

#include "common/system.h"

static void add_text(XXH3_state_t *state, const char *text)
{
	XXH3_128bits_update(state, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void add_number(XXH3_state_t *state, uint64_t number)
{
	XXH3_128bits_update(state, &number, sizeof(number));
}

/* A picture folder's names and labels; its files are not opened. */
static bool add_names(XXH3_state_t *state, source *from)
{
	source_item item;
	bool good = source_item_make(from, &item, NULL) == BETON_OK;
	for (uint64_t i = 0; i < from->count && good; i++) {
		good = from->ops->at(from, i, &item, NULL) == BETON_OK;
		if (good) {
			add_text(state, item.name);
			add_number(state, item.num_values > 1 ? (uint64_t)item.values[1].integer : 0);
		}
		source_item_clear(&item);
	}
	source_item_free(&item);
	return good;
}

static void add_file(XXH3_state_t *state, const char *path)
{
	struct stat status;
	if (stat(path, &status) != 0 || !S_ISREG(status.st_mode))
		return;
	add_number(state, (uint64_t)status.st_size);
	add_number(state, (uint64_t)status.st_mtim.tv_sec);
	add_number(state, (uint64_t)status.st_mtim.tv_nsec);
}

/* "--write-mode: raw", a line for each option that the facts of the dataset have. NULL: no memory. */
static char *list_options(const json_t *facts)
{
	char *text = strdup("");
	const char *key;
	json_t *value;
	json_object_foreach(json_object_get(facts, "options"), key, value)
	{
		char *shown = json_is_string(value) ? strdup(json_string_value(value))
						    : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
		size_t begin = text ? strlen(text) : 0;
		char *longer = text && shown ? bt_format("%s--%s: %s\n", text, key, shown) : NULL;
		for (char *at = longer ? longer + begin : NULL; at && *at && *at != ':'; at++)
			if (*at == '_')
				*at = '-';
		free(shown);
		free(text);
		text = longer;
	}
	return text;
}

static XXH128_hash_t hash_selection(XXH3_state_t *state, const selection *selected)
{
	XXH3_128bits_reset(state);
	for (size_t i = 0; i < selected->num_ranges; i++) {
		add_number(state, selected->ranges[i].first);
		add_number(state, selected->ranges[i].last);
	}
	return XXH3_128bits_digest(state);
}

/* *hash: of everything in the source that can be known before it is read. False: no memory. */
static bool hash_source(XXH3_state_t *state, const char *facts, const write_options *options, source *from,
			XXH128_hash_t *hash)
{
	bool good = true;
	XXH3_128bits_reset(state);
	add_text(state, facts); /* with the names of classes */
	if (strcmp(from->kind, "folder") == 0)
		good = add_names(state, from);
	else
		add_file(state, options->source);
	*hash = XXH3_128bits_digest(state);
	return good;
}

char *job_make(const char *facts, const write_options *options, source *from, const selection *selected)
{
	XXH3_state_t *state = XXH3_createState();
	json_t *object = json_loads(facts, 0, NULL);
	char *listed = object ? list_options(object) : NULL;
	char *text = NULL;
	XXH128_hash_t content;
	if (state && listed && hash_source(state, facts, options, from, &content)) {
		XXH128_hash_t chosen = hash_selection(state, selected);
		text = bt_format("%ssource: %s\n--root: %s\nsamples of the source: %llu\nsamples to write: %llu\n"
				 "list of samples to write: %016llx%016llx\n"
				 "names of the source's files and classes, or its size and time: %016llx%016llx",
				 listed, options->source, options->root ? options->root : "its folder",
				 (unsigned long long)from->count, (unsigned long long)selected->count,
				 (unsigned long long)chosen.high64, (unsigned long long)chosen.low64,
				 (unsigned long long)content.high64, (unsigned long long)content.low64);
	}
	XXH3_freeState(state);
	free(listed);
	json_decref(object);
	return text;
}
