/* SPDX-License-Identifier: Apache-2.0 */
#include "hold_out.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "tools/beton-write/convert.h"
#include "tools/common/stratify.h"

/* The class of items whose class cannot be read: they end the program, or are left out, when they are written. */
#define NO_CLASS INT64_MIN

/* Indices and labels of the items. */
typedef struct item_list {
	uint64_t *indices;
	int64_t *labels;
	uint64_t count;
	uint64_t capacity;
} item_list;

/* Reads the classes of items. */
typedef struct class_reader {
	const hold_out_request *request;
	field_plan label; /* of one field, or none */
	source_item item;
	converted value;
	uint64_t read; /* items that a source with next gave */
} class_reader;

static void free_list(item_list *list)
{
	free(list->indices);
	free(list->labels);
}

static int add(item_list *list, uint64_t index, int64_t label, beton_error *err)
{
	if (list->count == list->capacity) {
		uint64_t capacity = list->capacity * 2 + 1024;
		uint64_t *indices = reallocarray(list->indices, (size_t)capacity, sizeof(*indices));
		if (indices)
			list->indices = indices;
		int64_t *labels = reallocarray(list->labels, (size_t)capacity, sizeof(*labels));
		if (labels)
			list->labels = labels;
		if (!indices || !labels)
			return bt_fail(err, BETON_NO_MEMORY, "--val-fraction: no memory for %llu samples",
				       (unsigned long long)capacity);
		list->capacity = capacity;
	}
	list->indices[list->count] = index;
	list->labels[list->count++] = label;
	return BETON_OK;
}

/* The field that holds the class. */
static int64_t find_label(const field_plan *plan)
{
	int64_t found = -1;
	for (uint32_t i = 0; i < plan->count; i++) {
		if (plan->fields[i].type != BETON_FIELD_INT)
			continue;
		if (strcmp(plan->fields[i].name, "label") == 0)
			return i;
		if (found < 0)
			found = i;
	}
	return found;
}

/* The class of the item that was read, or NO_CLASS. */
static int64_t class_of(class_reader *self)
{
	const converter convert = {.plan = &self->label, .from = self->request->from};
	int64_t label = NO_CLASS;
	if (convert_item(&convert, &self->item, &self->value, NULL) == BETON_OK)
		label = self->value.inputs[0].integer;
	converted_clear(&self->value);
	return label;
}

/* Reads item `index`, or without classes passes over it. END: past the last item. */
static int read_item(class_reader *self, uint64_t index, beton_error *err)
{
	source *from = self->request->from;
	bool wanted = self->label.count > 0;
	if (from->ops->at)
		return wanted ? from->ops->at(from, index, &self->item, err) : BETON_OK;
	int result = BETON_OK;
	while (self->read <= index) {
		source_item_clear(&self->item);
		bool skipped = from->ops->skip && (!wanted || self->read < index);
		result = skipped ? from->ops->skip(from, err) : from->ops->next(from, &self->item, err);
		if (result != BETON_OK && result != BETON_SAMPLE_CORRUPT)
			return result;
		self->read++;
	}
	return result;
}

static int collect(class_reader *self, const selection *all, item_list *list, beton_error *err)
{
	int result = BETON_OK;
	for (uint64_t i = 0; i < all->count && result == BETON_OK; i++) {
		uint64_t index = selection_at(all, i);
		if (*self->request->interrupt)
			return bt_fail(err, BETON_CANCELLED, "interrupted while the classes were counted");
		beton_error fault;
		result = read_item(self, index, &fault);
		if (result == BETON_END)
			return BETON_OK;
		bool bad = result == BETON_SAMPLE_CORRUPT || result == BETON_NOT_FOUND || result == BETON_ACCESS;
		if (result != BETON_OK && !bad) {
			*err = fault;
			return result;
		}
		result = add(list, index, bad || self->label.count == 0 ? NO_CLASS : class_of(self), err);
		source_item_clear(&self->item);
	}
	return result;
}

/* Collects the selected items and their classes. Only the column of the class is read. */
static int read_classes(const hold_out_request *request, const selection *all, item_list *list, bool *classes,
			beton_error *err)
{
	source *from = request->from;
	int64_t field = find_label(request->plan);
	class_reader self = {.request = request};
	*classes = field >= 0;
	if (*classes)
		self.label = (field_plan){.fields = &request->plan->fields[field],
					  .columns = &request->plan->columns[field],
					  .classes = &request->plan->classes[field],
					  .guessed = &request->plan->guessed[field],
					  .count = 1};
	bool *wanted = calloc(from->num_columns + 1, sizeof(*wanted));
	int result = wanted ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", from->name);
	for (uint32_t i = 0; i < from->num_columns && wanted; i++) {
		wanted[i] = from->columns[i].wanted;
		from->columns[i].wanted = *classes && i == self.label.columns[0];
	}
	if (result == BETON_OK)
		result = source_item_make(from, &self.item, err);
	if (result == BETON_OK)
		result = converted_make(&self.value, 1, err);
	if (result == BETON_OK)
		result = collect(&self, all, list, err);
	for (uint32_t i = 0; i < from->num_columns && wanted; i++)
		from->columns[i].wanted = wanted[i];
	converted_free(&self.value);
	source_item_free(&self.item);
	free(wanted);
	return result;
}

/* Moves the items of one part into a selection. */
static int take_part(const item_list *list, const uint32_t *part, uint32_t wanted, selection *out, beton_error *err)
{
	uint64_t *indices = malloc((size_t)(list->count + 1) * sizeof(*indices));
	uint64_t count = 0;
	if (!indices)
		return bt_fail(err, BETON_NO_MEMORY, "--val-fraction: no memory for %llu samples",
			       (unsigned long long)list->count);
	for (uint64_t i = 0; i < list->count; i++)
		if (part[i] == wanted)
			indices[count++] = list->indices[i];
	*out = (selection){.listed = indices, .count = count};
	return BETON_OK;
}

/* Whether the field that holds the class is surely one. Another integer may be a number for each sample, so that no
 * class would have a sample to spare. */
static bool is_label(const field_plan *plan)
{
	int64_t field = find_label(plan);
	return field >= 0 && (plan->classes[field] || strcmp(plan->fields[field].name, "label") == 0);
}

static int divide(const hold_out_request *request, const item_list *list, bool classes, selection *train,
		  selection *val, beton_error *err)
{
	enum { PART_VAL, PART_TRAIN, NUM_PARTS };
	const double shares[NUM_PARTS] = {request->fraction, 1 - request->fraction};
	uint64_t totals[NUM_PARTS];
	stratify_totals(totals, shares, NUM_PARTS, list->count);
	bool keep_one = is_label(request->plan);
	uint32_t *part = calloc((size_t)list->count + 1, sizeof(*part));
	int result = part ? stratify(part, classes ? list->labels : NULL, list->count, totals, NUM_PARTS, request->seed,
				     keep_one, err)
			  : bt_fail(err, BETON_NO_MEMORY, "--val-fraction: no memory for %llu samples",
				    (unsigned long long)list->count);
	if (result == BETON_OK)
		result = take_part(list, part, PART_VAL, val, err);
	if (result == BETON_OK)
		result = take_part(list, part, PART_TRAIN, train, err);
	free(part);
	if (result == BETON_OK && val->count == 0)
		result = bt_fail(
			err, BETON_INVALID_ARGUMENT, "--val-fraction: %g of %llu samples holds out none%s",
			request->fraction, (unsigned long long)list->count,
			keep_one ? ", as one of each class at least stays for training; beton-split --random divides "
				   "what is written without this option by chance"
				 : "");
	return result;
}

int hold_out(const hold_out_request *request, selection *train, selection *val, beton_error *err)
{
	selection all;
	item_list list = {0};
	bool classes = false;
	int result = selection_make(&all, request->selected, request->from->count, request->from->name, err);
	if (result == BETON_OK)
		result = read_classes(request, &all, &list, &classes, err);
	if (result == BETON_OK)
		result = divide(request, &list, classes, train, val, err);
	free_list(&list);
	selection_free(&all);
	return result;
}
