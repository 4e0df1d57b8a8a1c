/* SPDX-License-Identifier: Apache-2.0 */
#include "complete.h"

#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include <beton/beton.h>

#include "common/error.h"

/* Their order does not count. */
static bool same_facts(const char *ours, const char *theirs)
{
	json_t *one = json_loads(ours, 0, NULL), *other = json_loads(theirs, 0, NULL);
	bool same = one && other && json_equal(one, other);
	json_decref(one);
	json_decref(other);
	return same;
}

/* Whether the samples come from the pictures of a folder, in their order. skip: some may be missing. */
static bool same_names(const beton_reader *reader, source *from, const selection *selected, bool skip)
{
	const uint64_t samples = beton_reader_info(reader)->num_samples;
	char stored[BETON_SOURCE_MAX + 1];
	source_item item;
	uint64_t sample = 0;
	bool good = source_item_make(from, &item, NULL) == BETON_OK;
	for (uint64_t i = 0; i < selected->count && good; i++) {
		good = from->ops->at(from, selection_at(selected, i), &item, NULL) == BETON_OK;
		if (good && sample < samples)
			good = beton_reader_source(reader, sample, stored, NULL) == BETON_OK;
		bool same = good && sample < samples && strcmp(stored, item.source ? item.source : "") == 0;
		sample += same;
		good = good && (same || skip);
		source_item_clear(&item);
	}
	source_item_free(&item);
	return good && sample == samples;
}

static bool is_younger(const char *path, const struct stat *output)
{
	struct stat status;
	if (stat(path, &status) != 0 || !S_ISREG(status.st_mode))
		return false;
	const struct timespec *in = &status.st_mtim, *out = &output->st_mtim;
	return in->tv_sec != out->tv_sec ? in->tv_sec > out->tv_sec : in->tv_nsec > out->tv_nsec;
}

static bool is_same(const beton_reader *reader, const char *facts, const write_options *options, source *from,
		    const selection *selected)
{
	const beton_file_info *info = beton_reader_info(reader);
	const char *theirs = beton_reader_facts(reader, NULL);
	if (!theirs || !same_facts(facts, theirs))
		return false;
	if (options->page_size && options->page_size != info->page_size)
		return false;
	if (info->has_sources && strcmp(from->kind, "folder") == 0)
		return same_names(reader, from, selected, options->skip_bad);
	return options->skip_bad || selected->count == SOURCE_COUNT_UNKNOWN || selected->count == info->num_samples;
}

int complete_check(const char *path, const char *facts, const write_options *options, source *from,
		   const selection *selected, bool *there, beton_error *err)
{
	struct stat status;
	beton_reader *reader = NULL;
	*there = lstat(path, &status) == 0;
	if (!*there)
		return BETON_OK;
	bool same = !is_younger(options->source, &status) && beton_reader_open(&reader, path, NULL) == BETON_OK &&
		    is_same(reader, facts, options, from, selected);
	beton_reader_close(&reader);
	return same ? BETON_OK
		    : bt_fail(err, BETON_EXISTS, "%s: exists, and is not what this command writes; --force replaces it",
			      path);
}
