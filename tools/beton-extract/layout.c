/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "tools/common/dataset.h"
#include "tools/common/facts.h"
#include "tools/common/program.h"
#include "tools/common/text.h"

static int no_memory(const layout *self, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", beton_reader_path(self->reader));
}

static int digits_of(uint64_t number)
{
	int digits = 1;
	while ((number /= 10))
		digits++;
	return digits;
}

/* Two classes of one name would become one folder. */
static int check_names(const layout *self, beton_error *err)
{
	json_t *seen = json_object();
	int result = seen ? BETON_OK : no_memory(self, err);
	for (uint64_t i = 0; i < facts_num_classes(self->facts) && result == BETON_OK; i++) {
		const char *name = facts_class_name(self->facts, (int64_t)i);
		if (json_object_get(seen, name))
			result = bt_fail(err, BETON_INVALID_ARGUMENT,
					 "%s: two classes have the name '%s'; --class-numbers calls folders by numbers",
					 beton_reader_path(self->reader), name);
		else if (json_object_set_new(seen, name, json_true()) != 0)
			result = no_memory(self, err);
	}
	json_decref(seen);
	return result;
}

/* Numbers get as many digits as the largest has, so that the order of their bytes is theirs. A label without a name
 * makes all folders numbers: half of each would be a riddle. */
static int measure_labels(layout *self, const selection *chosen, beton_error *err)
{
	selection_cursor cursor = {0};
	uint64_t sample;
	bool found = true;
	int64_t largest = 0;
	uint64_t names = facts_num_classes(self->facts);
	self->numbers = self->numbers || names == 0;
	for (;;) {
		beton_value value;
		int result = selection_next(chosen, self->reader, &cursor, &sample, &found, err);
		if (result == BETON_OK && found)
			result = beton_reader_value(self->reader, sample, (uint32_t)self->label, &value, err);
		if (result != BETON_OK || !found) {
			self->label_digits = digits_of((uint64_t)largest);
			return result;
		}
		if (!self->numbers && (value.integer < 0 || (uint64_t)value.integer >= names))
			return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)sample,
					      "%s: sample %" PRIu64 ": label %" PRId64 " is none of the %" PRIu64
					      " named classes; --class-numbers calls folders by numbers",
					      beton_reader_path(self->reader), sample, value.integer, names);
		if (value.integer > largest)
			largest = value.integer;
	}
}

static int open_classes(layout *self, const selection *chosen, beton_error *err)
{
	int result = facts_load(&self->facts, self->reader, err);
	if (result == BETON_OK && !self->numbers)
		result = check_names(self, err);
	return result == BETON_OK ? measure_labels(self, chosen, err) : result;
}

static int open_samples(layout *self, beton_error *err)
{
	uint32_t count = beton_reader_info(self->reader)->num_fields;
	self->fields = calloc(count, sizeof(*self->fields));
	for (uint32_t i = 0; self->fields && i < count; i++) {
		self->fields[i] = text_file_name(beton_reader_field(self->reader, i)->name);
		if (!self->fields[i])
			return no_memory(self, err);
	}
	return self->fields ? BETON_OK : no_memory(self, err);
}

int layout_open(layout *self, const beton_reader *reader, layout_kind kind, bool numbers, const selection *chosen,
		beton_error *err)
{
	const beton_file_info *info = beton_reader_info(reader);
	*self = (layout){.reader = reader,
			 .kind = kind,
			 .picture = dataset_picture_field(reader),
			 .label = dataset_label_field(reader),
			 .key_digits = digits_of(info->num_samples),
			 .numbers = numbers};
	if (self->key_digits < LAYOUT_KEY_DIGITS)
		self->key_digits = LAYOUT_KEY_DIGITS;
	bool fits_classes = self->picture >= 0 && self->label >= 0;
	if (kind == LAYOUT_AUTOMATIC)
		self->kind = fits_classes ? LAYOUT_CLASSES : LAYOUT_SAMPLES;
	if (self->kind == LAYOUT_CLASSES && !fits_classes)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: class folders need one field of pictures and an integer field; --layout=samples "
			       "needs neither",
			       beton_reader_path(reader));
	self->values = calloc(info->num_fields, sizeof(*self->values));
	if (!self->values)
		return no_memory(self, err);
	return self->kind == LAYOUT_CLASSES ? open_classes(self, chosen, err) : open_samples(self, err);
}

void layout_free(layout *self)
{
	for (uint32_t i = 0; self->fields && i < beton_reader_info(self->reader)->num_fields; i++)
		free(self->fields[i]);
	free(self->fields);
	free(self->values);
	json_decref(self->facts);
	content_free(&self->content);
	*self = (layout){0};
}

bool layout_leaves_out(const layout *self, uint32_t field)
{
	return self->kind == LAYOUT_CLASSES && (int)field != self->picture && (int)field != self->label;
}

static char *group_name(const layout *self, int64_t label)
{
	if (!self->numbers)
		return text_file_name(facts_class_name(self->facts, label));
	return bt_format("%0*" PRId64, self->label_digits, label);
}

/* KEY.ENDING; a field of another name than its ending's: KEY.FIELD.ENDING. */
static char *file_name(const layout *self, uint64_t sample, uint32_t field, const char *ending)
{
	const char *name = self->kind == LAYOUT_CLASSES || (int)field == self->picture ? ending : self->fields[field];
	if (self->kind == LAYOUT_SAMPLES && (int)field == self->label)
		name = ending = "cls";
	bool one = strcmp(name, ending) == 0;
	return bt_format("%0*" PRIu64 ".%s%s%s", self->key_digits, sample, name, one ? "" : ".", one ? "" : ending);
}

static int add_value(layout *self, uint32_t field, const char *group, extract_target *target, uint64_t *bytes,
		     beton_error *err)
{
	const beton_value *value = &self->values[field];
	int result = content_make(&self->content, self->reader, value, err);
	if (result != BETON_OK)
		return result;
	char *name = file_name(self, value->sample, field, self->content.ending);
	result = name ? target->add(target, group, name, self->content.data, self->content.size, err)
		      : no_memory(self, err);
	*bytes += self->content.size;
	free(name);
	return result;
}

int layout_add(layout *self, uint64_t sample, extract_target *target, uint64_t *bytes, beton_error *err)
{
	*bytes = 0;
	int result = beton_reader_sample(self->reader, sample, self->values, err);
	if (result != BETON_OK)
		return result;
	if (self->kind == LAYOUT_CLASSES) {
		char *group = group_name(self, self->values[self->label].integer);
		result = group ? add_value(self, (uint32_t)self->picture, group, target, bytes, err)
			       : no_memory(self, err);
		free(group);
		return result;
	}
	for (uint32_t i = 0; i < beton_reader_info(self->reader)->num_fields && result == BETON_OK; i++)
		result = add_value(self, i, NULL, target, bytes, err);
	return result;
}
