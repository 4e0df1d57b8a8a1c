/* SPDX-License-Identifier: Apache-2.0 */
#include "histogram.h"

#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "tools/common/dataset.h"
#include "tools/common/facts.h"
#include "tools/common/progress.h"
#include "tools/common/text.h"

enum { BAR_WIDTH = 40 };

typedef struct class_count {
	int64_t label;
	uint64_t count;
} class_count;

static int order_labels(const void *a, const void *b)
{
	int64_t first = ((const class_count *)a)->label;
	int64_t second = ((const class_count *)b)->label;
	return (first > second) - (first < second);
}

/* 0 for 0, else 1 + the place of the highest bit: sizes from 2^(n-1) to 2^n - 1. */
static unsigned bucket_of(uint64_t size)
{
	unsigned bucket = size ? 64 - (unsigned)__builtin_clzll(size) : 0;
	return bucket < HISTOGRAM_SIZES ? bucket : HISTOGRAM_SIZES - 1;
}

static uint64_t bucket_from(unsigned bucket)
{
	return bucket ? UINT64_C(1) << (bucket - 1) : 0;
}

static uint64_t bucket_to(unsigned bucket)
{
	return bucket ? (UINT64_C(1) << bucket) - 1 : 0;
}

static void drop_classes(histogram *self)
{
	tdestroy(self->classes, free);
	self->classes = NULL;
	self->num_classes = 0;
}

static int count_label(histogram *self, int64_t label, beton_error *err)
{
	if (self->too_many)
		return BETON_OK;
	const class_count key = {.label = label};
	class_count *const *found = tfind(&key, &self->classes, order_labels);
	if (found) {
		(*found)->count++;
		return BETON_OK;
	}
	if (self->num_classes == HISTOGRAM_CLASSES_MAX) {
		drop_classes(self);
		self->too_many = true;
		return BETON_OK;
	}
	class_count *one = malloc(sizeof(*one));
	if (one)
		*one = (class_count){label, 1};
	if (!one || !tsearch(one, &self->classes, order_labels)) {
		free(one);
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for the classes", beton_reader_path(self->reader));
	}
	self->num_classes++;
	return BETON_OK;
}

static int count_sample(histogram *self, uint64_t sample, beton_value *values, beton_error *err)
{
	beton_error fault;
	int result = beton_reader_sample(self->reader, sample, values, &fault);
	if (result != BETON_OK && result != BETON_SAMPLE_CORRUPT) {
		if (err)
			*err = fault;
		return result;
	}
	if (result == BETON_SAMPLE_CORRUPT && self->damaged == 0)
		self->fault = fault;
	result = BETON_OK;
	for (uint32_t i = 0; i < beton_reader_info(self->reader)->num_fields && result == BETON_OK; i++) {
		if (values[i].status != BETON_OK)
			self->damaged++;
		else if (bt_type_has_blob(values[i].type))
			self->sizes[i][bucket_of(values[i].blob.size)]++;
		else if ((int)i == self->label_field)
			result = count_label(self, values[i].integer, err);
	}
	return result;
}

int histogram_make(histogram *self, const beton_reader *reader, beton_error *err)
{
	const beton_file_info *info = beton_reader_info(reader);
	*self = (histogram){.reader = reader, .label_field = dataset_label_field(reader)};
	self->sizes = calloc(info->num_fields, sizeof(*self->sizes));
	beton_value *values = calloc(info->num_fields, sizeof(*values));
	int result = facts_load(&self->facts, reader, err);
	if (result == BETON_OK && (!self->sizes || !values))
		result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", beton_reader_path(reader),
				 info->num_fields);
	progress bar;
	progress_start(&bar, info->num_samples, false);
	for (uint64_t i = 0; i < info->num_samples && result == BETON_OK; i++) {
		result = count_sample(self, i, values, err);
		progress_sample(&bar, 0);
	}
	progress_clear(&bar);
	free(values);
	return result;
}

void histogram_free(histogram *self)
{
	drop_classes(self);
	free(self->sizes);
	json_decref(self->facts);
	*self = (histogram){0};
}

static json_t *sizes_json(const uint64_t *counts)
{
	json_t *array = json_array();
	for (unsigned i = 0; i < HISTOGRAM_SIZES; i++)
		if (counts[i])
			json_array_append_new(array,
					      json_pack("{s:I, s:I, s:I}", "from", (json_int_t)bucket_from(i), "to",
							(json_int_t)bucket_to(i), "count", (json_int_t)counts[i]));
	return array;
}

typedef struct class_walk {
	const histogram *self;
	json_t *array;
	uint64_t largest;
} class_walk;

static void add_class(const void *node, VISIT visit, void *context)
{
	const class_count *one = *(const class_count *const *)node;
	class_walk *walk = context;
	if (visit != postorder && visit != leaf)
		return;
	json_t *object = json_pack("{s:I, s:I}", "label", (json_int_t)one->label, "count", (json_int_t)one->count);
	const char *name = facts_class_name(walk->self->facts, one->label);
	if (name)
		json_object_set_new(object, "name", json_string(name));
	json_array_append_new(walk->array, object);
}

json_t *histogram_json(const histogram *self)
{
	json_t *sizes = json_object();
	for (uint32_t i = 0; i < beton_reader_info(self->reader)->num_fields; i++) {
		const beton_field *field = beton_reader_field(self->reader, i);
		if (!bt_type_has_blob(field->type))
			continue;
		char *name = text_utf8(field->name);
		if (name)
			json_object_set_new(sizes, name, sizes_json(self->sizes[i]));
		free(name);
	}
	class_walk walk = {.self = self, .array = json_array()};
	twalk_r(self->classes, add_class, &walk);
	json_t *classes = self->label_field < 0 || self->too_many ? json_null() : json_incref(walk.array);
	json_decref(walk.array);
	return json_pack("{s:o, s:o}", "sizes", sizes, "classes", classes);
}

static void print_bar(uint64_t count, uint64_t largest)
{
	int length = (int)((double)count / (double)largest * BAR_WIDTH + 0.5);
	printf(" %10" PRIu64 " %.*s\n", count, length, "########################################");
}

static void print_sizes(const histogram *self, uint32_t index)
{
	const uint64_t *counts = self->sizes[index];
	uint64_t largest = 1;
	for (unsigned i = 0; i < HISTOGRAM_SIZES; i++)
		largest = counts[i] > largest ? counts[i] : largest;
	fputs("bytes of ", stdout);
	text_print(stdout, beton_reader_field(self->reader, index)->name, 0);
	fputs(":\n", stdout);
	for (unsigned i = 0; i < HISTOGRAM_SIZES; i++)
		if (counts[i]) {
			printf("  %10" PRIu64 " to %10" PRIu64, bucket_from(i), bucket_to(i));
			print_bar(counts[i], largest);
		}
}

static void find_largest(const void *node, VISIT visit, void *context)
{
	const class_count *one = *(const class_count *const *)node;
	class_walk *walk = context;
	if ((visit == postorder || visit == leaf) && one->count > walk->largest)
		walk->largest = one->count;
}

static void print_class(const void *node, VISIT visit, void *context)
{
	const class_count *one = *(const class_count *const *)node;
	const class_walk *walk = context;
	if (visit != postorder && visit != leaf)
		return;
	const char *name = facts_class_name(walk->self->facts, one->label);
	printf("  %6" PRId64 " ", one->label);
	text_print_utf8(stdout, name ? name : "", 20);
	print_bar(one->count, walk->largest);
}

void histogram_print(const histogram *self)
{
	for (uint32_t i = 0; i < beton_reader_info(self->reader)->num_fields; i++)
		if (bt_type_has_blob(beton_reader_field(self->reader, i)->type))
			print_sizes(self, i);
	if (self->label_field < 0)
		return;
	fputs("samples of each ", stdout);
	text_print(stdout, beton_reader_field(self->reader, (uint32_t)self->label_field)->name, 0);
	if (self->too_many) {
		printf(": more than %d different ones\n", HISTOGRAM_CLASSES_MAX);
		return;
	}
	fputs(":\n", stdout);
	class_walk walk = {.self = self};
	twalk_r(self->classes, find_largest, &walk);
	twalk_r(self->classes, print_class, &walk);
}
