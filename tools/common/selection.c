/* SPDX-License-Identifier: Apache-2.0 */
#include "selection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "dataset.h"
#include "facts.h"
#include "program.h"
#include "text.h"

static int add_range(selection *self, uint64_t first, uint64_t last, beton_error *err)
{
	index_range *end = self->num_ranges ? &self->ranges[self->num_ranges - 1] : NULL;
	/* Lists of single numbers are often in order: one range takes them together. */
	if (end && end->last != UINT64_MAX && first == end->last + 1) {
		end->last = last;
		return BETON_OK;
	}
	if (self->num_ranges == self->ranges_capacity) {
		size_t capacity = self->ranges_capacity * 2 + 64;
		index_range *grown = reallocarray(self->ranges, capacity, sizeof(*grown));
		if (!grown)
			return bt_fail(err, BETON_NO_MEMORY, "no memory for %zu ranges", capacity);
		self->ranges = grown;
		self->ranges_capacity = capacity;
	}
	self->ranges[self->num_ranges++] = (index_range){first, last};
	return BETON_OK;
}

/* "7", "7-9" or "7-" */
static int parse_range(selection *self, const char *text, beton_error *err)
{
	char first_text[24] = "";
	size_t length = strspn(text, "0123456789");
	uint64_t first = 0;
	uint64_t last = UINT64_MAX;
	if (length < sizeof(first_text))
		memcpy(first_text, text, length);
	int result = bt_parse_u64("", first_text, 0, INT64_MAX, &first, NULL);
	if (result == BETON_OK && text[length] == 0)
		last = first;
	else if (result == BETON_OK &&
		 (text[length] != '-' ||
		  (text[length + 1] && bt_parse_u64("", text + length + 1, first, INT64_MAX, &last, NULL))))
		result = BETON_INVALID_ARGUMENT;
	if (result != BETON_OK)
		return bt_fail(err, result, "'%.60s' is neither a sample's number nor a range like 10-19 or 100-",
			       text);
	return add_range(self, first, last, err);
}

static int parse_list(selection *self, char *list, beton_error *err)
{
	char *rest;
	int result = BETON_OK;
	for (char *word = strtok_r(list, ", \t\r\n", &rest); word && result == BETON_OK;
	     word = strtok_r(NULL, ", \t\r\n", &rest))
		result = parse_range(self, word, err);
	return result;
}

static int parse_word(void *self, const char *word, beton_error *err)
{
	return parse_range(self, word, err);
}

static int parse_file(selection *self, const char *path, beton_error *err)
{
	bool standard = strcmp(path, "-") == 0;
	FILE *file = standard ? stdin : fopen(path, "re");
	if (!file)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	int result = text_each_word(file, path, parse_word, self, err);
	if (!standard)
		fclose(file);
	return result;
}

int selection_add_ranges(selection *self, const char *text, beton_error *err)
{
	self->listed = true;
	if (*text == '@')
		return parse_file(self, text + 1, err);
	char *copy = strdup(text);
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	int result = parse_list(self, copy, err);
	free(copy);
	return result;
}

int selection_add_class(selection *self, const char *text, beton_error *err)
{
	const char **grown = reallocarray(self->classes, self->num_classes + 1, sizeof(*grown));
	if (!grown)
		return bt_fail(err, BETON_NO_MEMORY, "no memory for %zu classes", self->num_classes + 1);
	self->classes = grown;
	self->classes[self->num_classes++] = text;
	return BETON_OK;
}

void selection_free(selection *self)
{
	free(self->ranges);
	free(self->classes);
	free(self->labels);
	condition_free(&self->where);
	*self = (selection){0};
}

static int order_labels(const void *a, const void *b)
{
	int64_t first = *(const int64_t *)a;
	int64_t second = *(const int64_t *)b;
	return (first > second) - (first < second);
}

/* A number is a number, also if a class has it as its name. */
static int find_label(const json_t *facts, const char *text, int64_t *label, beton_error *err)
{
	char *end;
	errno = 0;
	*label = strtoll(text, &end, 10);
	return end != text && !*end && !errno ? BETON_OK : facts_find_class(facts, text, label, err);
}

static int bind_classes(selection *self, const dataset_input *in, beton_error *err)
{
	int field = dataset_label_field(in->schema);
	json_t *facts;
	if (self->num_classes == 0)
		return BETON_OK;
	if (field < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no integer field holds classes", in->path);
	self->label_field = (uint32_t)field;
	int result = input_facts(in, &facts, err);
	free(self->labels);
	self->labels = calloc(self->num_classes, sizeof(*self->labels));
	if (!self->labels && result == BETON_OK)
		result = bt_fail(err, BETON_NO_MEMORY, "no memory for %zu classes", self->num_classes);
	for (size_t i = 0; i < self->num_classes && result == BETON_OK; i++) {
		result = find_label(facts, self->classes[i], &self->labels[i], err);
		if (result != BETON_OK)
			bt_prefix(err, "%s", in->path);
	}
	if (result == BETON_OK)
		qsort(self->labels, self->num_classes, sizeof(*self->labels), order_labels);
	json_decref(facts);
	return result;
}

static int check_ranges(const selection *self, const dataset_input *in, beton_error *err)
{
	uint64_t count = in->num_samples;
	for (size_t i = 0; i < self->num_ranges; i++) {
		const index_range *range = &self->ranges[i];
		uint64_t largest = range->last == UINT64_MAX ? range->first : range->last;
		/* "0-" is every sample, also when there are none. */
		if (largest >= count && !(range->last == UINT64_MAX && range->first == count))
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no sample %llu: the %s has %llu", in->path,
				       (unsigned long long)largest, bt_is_set(in->path) ? "set" : "file",
				       (unsigned long long)count);
	}
	return BETON_OK;
}

int selection_bind(selection *self, const dataset_input *in, beton_error *err)
{
	int result = check_ranges(self, in, err);
	if (result == BETON_OK)
		result = bind_classes(self, in, err);
	return result == BETON_OK ? condition_bind(self->where, in, err) : result;
}

static int test_sample(const selection *self, dataset_input *in, uint64_t sample, bool *taken, beton_error *err)
{
	*taken = true;
	if (self->num_classes) {
		const beton_reader *reader;
		uint64_t number;
		beton_value value;
		int result = input_at(in, sample, &reader, &number, err);
		if (result == BETON_OK)
			result = beton_reader_value(reader, number, self->label_field, &value, err);
		if (result != BETON_OK)
			return result;
		*taken = bsearch(&value.integer, self->labels, self->num_classes, sizeof(*self->labels),
				 order_labels) != NULL;
	}
	return *taken ? condition_test(self->where, in, sample, taken, err) : BETON_OK;
}

int selection_next(const selection *self, dataset_input *in, selection_cursor *cursor, uint64_t *sample, bool *found,
		   beton_error *err)
{
	const index_range all = {0, UINT64_MAX};
	const index_range *ranges = self->listed ? self->ranges : &all;
	size_t num_ranges = self->listed ? self->num_ranges : 1;
	uint64_t count = in->num_samples;
	*found = false;
	while (cursor->range < num_ranges && !*found) {
		const index_range *range = &ranges[cursor->range];
		uint64_t end = range->last == UINT64_MAX ? count : range->last + 1;
		if (cursor->step >= end - range->first) {
			*cursor = (selection_cursor){.range = cursor->range + 1};
			continue;
		}
		*sample = range->first + cursor->step++;
		int result = program_check_signals(err);
		if (result == BETON_OK)
			result = test_sample(self, in, *sample, found, err);
		if (result != BETON_OK)
			return result;
	}
	return BETON_OK;
}

int selection_count(const selection *self, dataset_input *in, uint64_t *count, beton_error *err)
{
	selection_cursor cursor = {0};
	uint64_t sample;
	bool found = true;
	*count = 0;
	while (found) {
		int result = selection_next(self, in, &cursor, &sample, &found, err);
		if (result != BETON_OK)
			return result;
		*count += found;
	}
	return BETON_OK;
}
