/* SPDX-License-Identifier: Apache-2.0 */
#include "selection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/error.h"
#include "common/system.h"
#include "name_list.h"
#include "tools/common/text.h"

#define UNKNOWN UINT64_MAX

static int add_range(selection *self, uint64_t first, uint64_t last, beton_error *err)
{
	index_range *previous = self->num_ranges ? &self->ranges[self->num_ranges - 1] : NULL;
	uint64_t before = previous ? previous->before + (previous->last - previous->first) + 1 : 0;
	if (previous && previous->last != UNKNOWN && first == previous->last + 1) {
		previous->last = last;
		return BETON_OK;
	}
	index_range *ranges = list_grow(self->ranges, self->num_ranges, &self->capacity, sizeof(*ranges));
	if (!ranges)
		return bt_fail(err, BETON_NO_MEMORY, "--subset: out of memory");
	self->ranges = ranges;
	ranges[self->num_ranges++] = (index_range){first, last, before};
	return BETON_OK;
}

/* "7", "7-9" or "7-". */
static int parse_range(const char *text, uint64_t items, uint64_t *first, uint64_t *last, beton_error *err)
{
	char number[24] = "";
	size_t digits = strspn(text, "0123456789");
	const char *rest = text + digits;
	if (digits < sizeof(number))
		memcpy(number, text, digits);
	int result = bt_parse_u64("--subset", number, 0, INT64_MAX, first, NULL);
	*last = *first;
	if (result == BETON_OK && *rest == '-' && rest[1] == 0)
		*last = items == UNKNOWN ? UNKNOWN : items - 1;
	else if (result == BETON_OK && *rest == '-')
		result = bt_parse_u64("--subset", rest + 1, *first, INT64_MAX, last, NULL);
	else if (*rest)
		result = BETON_INVALID_ARGUMENT;
	if (result != BETON_OK)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--subset: '%.60s' is not a number, FIRST-LAST or FIRST-",
			       text);
	return BETON_OK;
}

static int take_range(selection *self, const char *text, uint64_t items, const char *name, beton_error *err)
{
	uint64_t first;
	uint64_t last;
	int result = parse_range(text, items, &first, &last, err);
	if (result != BETON_OK)
		return result;
	if (items != UNKNOWN && (first >= items || last >= items))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--subset: '%.60s': %s has %llu sample%s, counted from 0",
			       text, name, (unsigned long long)items, bt_plural(items));
	if (items == UNKNOWN && self->num_ranges && first <= self->ranges[self->num_ranges - 1].last)
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"--subset: '%.60s': %s can only be read from its begin to its end, so the ranges must be "
			"ascending",
			text, name);
	return add_range(self, first, last, err);
}

static int parse_list(selection *self, char *text, uint64_t items, const char *name, beton_error *err)
{
	static const char separators[] = ", \t\r\n";
	int result = BETON_OK;
	char *rest = NULL;
	for (char *part = strtok_r(text, separators, &rest); part && result == BETON_OK;
	     part = strtok_r(NULL, separators, &rest))
		result = take_range(self, part, items, name, err);
	return result;
}

/* Target of a file's words. */
typedef struct subset_file {
	selection *to;
	uint64_t items;
	const char *name;
} subset_file;

static int take_word(void *context, const char *word, beton_error *err)
{
	const subset_file *self = context;
	return take_range(self->to, word, self->items, self->name, err);
}

static int parse_file(selection *self, const char *path, uint64_t items, const char *name, beton_error *err)
{
	FILE *file = fopen(path, "re");
	if (!file)
		return bt_fail_errno(err, errno, "--subset: %s: cannot open", path);
	subset_file words = {self, items, name};
	int result = text_each_word(file, path, take_word, &words, err);
	fclose(file);
	return result;
}

static int parse_subset(selection *self, const char *text, uint64_t items, const char *name, beton_error *err)
{
	int result;
	if (text[0] == '@') {
		result = parse_file(self, text + 1, items, name, err);
	} else {
		char *copy = strdup(text);
		result = copy ? parse_list(self, copy, items, name, err)
			      : bt_fail(err, BETON_NO_MEMORY, "--subset: out of memory");
		free(copy);
	}
	if (result == BETON_OK && self->num_ranges == 0)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "--subset: '%.60s' has no index in it", text);
	return result;
}

/* A number below bound (at least 1), the draw-th of the seed. Of 2^64 values, bound divides all but a negligible rest
 * evenly. */
static uint64_t draw_below(uint64_t seed, uint64_t draw, uint64_t bound)
{
	uint8_t bytes[sizeof(draw)];
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(draw >> 8 * i);
	return (uint64_t)((unsigned __int128)XXH3_64bits_withSeed(bytes, sizeof(bytes), seed) * bound >> 64);
}

/* Fisher and Yates' way: each permutation is equally likely, and depends on seed and count alone. */
static int shuffle(selection *self, uint64_t seed, beton_error *err)
{
	if (self->count > SIZE_MAX / sizeof(*self->listed))
		return bt_fail(err, BETON_NO_MEMORY, "--shuffle: out of memory");
	uint64_t *indices = malloc(self->count ? (size_t)self->count * sizeof(*indices) : 1);
	if (!indices)
		return bt_fail(err, BETON_NO_MEMORY, "--shuffle: out of memory for %llu indices",
			       (unsigned long long)self->count);
	for (uint64_t i = 0; i < self->count; i++)
		indices[i] = selection_at(self, i);
	for (uint64_t i = self->count; i > 1; i--) {
		uint64_t other = draw_below(seed, i, i);
		uint64_t moved = indices[i - 1];
		indices[i - 1] = indices[other];
		indices[other] = moved;
	}
	self->listed = indices;
	return BETON_OK;
}

int selection_make(selection *self, const selection_options *options, uint64_t items, const char *name,
		   beton_error *err)
{
	*self = (selection){0};
	if (options->shuffle && items == UNKNOWN)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--shuffle: %s can only be read from its begin to its end; shuffle when the dataset is "
			       "read, or give a source of another kind",
			       name);
	int result = BETON_OK;
	if (options->subset)
		result = parse_subset(self, options->subset, items, name, err);
	else if (items > 0)
		result = add_range(self, 0, items == UNKNOWN ? UNKNOWN : items - 1, err);
	if (result != BETON_OK)
		return result;
	const index_range *last = self->num_ranges ? &self->ranges[self->num_ranges - 1] : NULL;
	if (last)
		self->count = last->last == UNKNOWN ? UNKNOWN : last->before + (last->last - last->first) + 1;
	if (options->shuffle)
		result = shuffle(self, options->seed, err);
	if (self->count > options->limit)
		self->count = options->limit;
	return result;
}

void selection_free(selection *self)
{
	free(self->ranges);
	free(self->listed);
	*self = (selection){0};
}

uint64_t selection_at(const selection *self, uint64_t position)
{
	if (self->listed)
		return self->listed[position];
	/* The last range that begins at or before position. */
	size_t low = 0;
	size_t high = self->num_ranges;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		if (self->ranges[middle].before <= position)
			low = middle;
		else
			high = middle;
	}
	return self->ranges[low].first + (position - self->ranges[low].before);
}

bool selection_is_open(const selection *self)
{
	return self->num_ranges == 0 || self->ranges[self->num_ranges - 1].last == UNKNOWN;
}
