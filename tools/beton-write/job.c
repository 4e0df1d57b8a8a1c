/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <string.h>
#include <sys/stat.h>

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
			add_number(state, (uint64_t)item.values[1].integer);
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

char *job_make(const char *facts, const write_options *options, source *from, const selection *selected)
{
	XXH3_state_t *state = XXH3_createState();
	if (!state)
		return NULL;
	XXH3_128bits_reset(state);
	add_text(state, facts);
	add_text(state, options->source);
	add_text(state, options->root);
	add_number(state, from->count);
	add_number(state, selected->count);
	for (size_t i = 0; i < selected->num_ranges; i++) {
		add_number(state, selected->ranges[i].first);
		add_number(state, selected->ranges[i].last);
	}
	bool good = true;
	if (strcmp(from->kind, "folder") == 0)
		good = add_names(state, from);
	else
		add_file(state, options->source);
	XXH128_hash_t hash = XXH3_128bits_digest(state);
	XXH3_freeState(state);
	return good ? bt_format("beton-write %016llx%016llx", (unsigned long long)hash.high64,
				(unsigned long long)hash.low64)
		    : NULL;
}
