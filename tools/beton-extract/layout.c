/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/hash.h"
#include "common/system.h"
#include "naming.h"
#include "tools/common/dataset.h"
#include "tools/common/facts.h"
#include "tools/common/program.h"
#include "tools/common/sources.h"
#include "tools/common/text.h"

static int no_memory(const layout *self, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->in->path);
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
					 self->in->path, name);
		else if (json_object_set_new(seen, name, json_true()) != 0)
			result = no_memory(self, err);
	}
	json_decref(seen);
	return result;
}

/* Calls take with the label of each sample of the selection. */
static int each_label(const layout *self, const selection *chosen,
		      int (*take)(void *context, const beton_value *label, beton_error *err), void *context,
		      beton_error *err)
{
	selection_cursor cursor = {0};
	const beton_reader *reader;
	uint64_t sample, number;
	bool found = true;
	for (;;) {
		beton_value value;
		int result = selection_next(chosen, self->in, &cursor, &sample, &found, err);
		if (result == BETON_OK && found)
			result = input_at(self->in, sample, &reader, &number, err);
		if (result == BETON_OK && found)
			result = beton_reader_value(reader, number, (uint32_t)self->label, &value, err);
		if (result == BETON_OK && found)
			result = take(context, &value, err);
		if (result != BETON_OK || !found)
			return result;
	}
}

typedef struct label_range {
	const layout *from;
	uint64_t names; /* classes that have one; 0: folders are called by numbers */
	int64_t smallest, largest;
} label_range;

/* A label without a name makes all folders numbers: half of each would be a riddle. */
static int measure_label(void *context, const beton_value *label, beton_error *err)
{
	label_range *self = context;
	if (self->names && (label->integer < 0 || (uint64_t)label->integer >= self->names))
		return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)label->sample,
				      "%s: sample %" PRIu64 ": label %" PRId64 " is none of the %" PRIu64
				      " named classes; --class-numbers calls folders by numbers",
				      beton_reader_path(input_reader(self->from->in)), label->sample, label->integer,
				      self->names);
	if (label->integer > self->largest)
		self->largest = label->integer;
	if (label->integer < self->smallest)
		self->smallest = label->integer;
	return BETON_OK;
}

typedef struct label_marks {
	const layout *from;
	bool *used; /* for each label whether a sample has it */
	uint64_t count;
} label_marks;

static int mark_label(void *context, const beton_value *label, beton_error *err)
{
	label_marks *self = context;
	if (label->integer < 0 || (uint64_t)label->integer >= self->count)
		return bt_fail(err, BETON_FILE_CHANGED, "%s: sample %" PRIu64 ": the label changed while it was read",
			       beton_reader_path(input_reader(self->from->in)), label->sample);
	self->used[label->integer] = true;
	return BETON_OK;
}

/* A folder, and the label that it stands for. */
typedef struct class_folder {
	char *name;
	uint64_t label;
} class_folder;

static int compare_folders(const void *a, const void *b)
{
	return strcmp(((const class_folder *)a)->name, ((const class_folder *)b)->name);
}

static char *group_name(const layout *self, int64_t label)
{
	if (!self->numbers)
		return text_file_name(facts_class_name(self->facts, label));
	return bt_format("%0*" PRId64, self->label_digits, label);
}

/* A program that reads the folders numbers them in order of their names, without folders that have no sample. */
static int count_renumbered(layout *self, const label_marks *marks, beton_error *err)
{
	class_folder *folders = calloc((size_t)marks->count + 1, sizeof(*folders));
	int result = folders ? BETON_OK : no_memory(self, err);
	for (uint64_t i = 0; i < marks->count && result == BETON_OK; i++) {
		if (!marks->used[i])
			continue;
		char *name = group_name(self, (int64_t)i);
		if (name)
			folders[self->used_classes++] = (class_folder){name, i};
		else
			result = no_memory(self, err);
	}
	if (folders)
		qsort(folders, (size_t)self->used_classes, sizeof(*folders), compare_folders);
	for (uint64_t i = 0; i < self->used_classes; i++) {
		self->renumbered += folders[i].label != i;
		free(folders[i].name);
	}
	free(folders);
	return result;
}

/* Numbers get as many digits as the largest has, so that the order of their bytes is theirs. */
static int measure_labels(layout *self, const selection *chosen, beton_error *err)
{
	uint64_t names = facts_num_classes(self->facts);
	label_range range = {.from = self, .names = self->numbers ? 0 : names};
	self->numbers = self->numbers || names == 0;
	int result = each_label(self, chosen, measure_label, &range, err);
	if (result != BETON_OK)
		return result;
	self->label_digits = digits_of((uint64_t)range.largest);
	uint64_t labels = self->numbers ? (uint64_t)range.largest + 1 : names;
	/* With more labels than samples some labels have none, and get no folder. */
	if (self->numbers && (range.smallest < 0 || labels > self->in->num_samples)) {
		self->renumbered = 1;
		return BETON_OK;
	}
	label_marks marks = {self, calloc((size_t)labels + 1, sizeof(*marks.used)), labels};
	result = marks.used ? each_label(self, chosen, mark_label, &marks, err) : no_memory(self, err);
	if (result == BETON_OK)
		result = count_renumbered(self, &marks, err);
	free(marks.used);
	return result;
}

/* ---- names of files ---- */

static char *picture_name(const layout *self, uint64_t sample, const char *path, const char *ending)
{
	return self->sources ? naming_picture(path, ending)
			     : bt_format("%0*" PRIu64 ".%s", self->key_digits, sample, ending);
}

/* The folder and the name of a sample's files: CLASS and NAME.jpg, or that of the source and the key. Both are the
 * caller's; *group NULL: none. */
static int name_sample(const layout *self, const beton_value *label, const beton_value *picture, uint64_t sample,
		       char **group, char **name, beton_error *err)
{
	char source[BETON_SOURCE_MAX + 1];
	char *path = NULL;
	*group = *name = NULL;
	if (self->sources) {
		const beton_reader *reader;
		uint64_t number;
		int result = input_at(self->in, sample, &reader, &number, err);
		if (result == BETON_OK)
			result = beton_reader_source(reader, number, source, err);
		if (result != BETON_OK)
			return result;
		path = naming_path(source);
	}
	bool good = path || !self->sources;
	if (good && self->kind == LAYOUT_CLASSES) {
		*group = group_name(self, label->integer);
		*name = picture_name(self, sample, path, picture->mode == BETON_IMAGE_JPEG ? "jpg" : "png");
		good = *group && *name;
	} else if (good && self->sources) {
		char *key = naming_key(path);
		const char *last = key ? source_last_part(key) : NULL;
		*name = last ? strdup(last) : NULL;
		*group = last && last > key ? strndup(key, (size_t)(last - key - 1)) : NULL;
		good = *name && (last == key || *group);
		free(key);
	} else if (good) {
		*name = bt_format("%0*" PRIu64, self->key_digits, sample);
		good = *name;
	}
	free(path);
	return good ? BETON_OK : no_memory(self, err);
}

typedef struct name_hashes {
	uint64_t *hashes;
	uint64_t count;
	uint64_t capacity;
} name_hashes;

static int compare_hashes(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a;
	uint64_t other = *(const uint64_t *)b;
	return (one > other) - (one < other);
}

/* Adds the name of the sample's file. *usable false: it has none. */
static int add_name(const layout *self, uint64_t sample, name_hashes *seen, bool *usable, beton_error *err)
{
	char source[BETON_SOURCE_MAX + 1];
	beton_value label = {0};
	beton_value picture = {0};
	char *group = NULL;
	char *name = NULL;
	const beton_reader *reader;
	uint64_t number;
	int result = input_at(self->in, sample, &reader, &number, err);
	if (result == BETON_OK)
		result = beton_reader_source(reader, number, source, err);
	char *path = result == BETON_OK ? naming_path(source) : NULL;
	if (result == BETON_OK && !path)
		result = no_memory(self, err);
	*usable = path && *path;
	free(path);
	if (result == BETON_OK && *usable && self->kind == LAYOUT_CLASSES) {
		result = beton_reader_value(reader, number, (uint32_t)self->label, &label, err);
		if (result == BETON_OK)
			result = beton_reader_value(reader, number, (uint32_t)self->picture, &picture, err);
	}
	if (result == BETON_OK && *usable)
		result = name_sample(self, &label, &picture, sample, &group, &name, err);
	if (result == BETON_OK && *usable && seen->count == seen->capacity) {
		uint64_t capacity = seen->capacity * 2 + 1024;
		uint64_t *grown = reallocarray(seen->hashes, (size_t)capacity, sizeof(*grown));
		result = grown ? BETON_OK : no_memory(self, err);
		seen->hashes = grown ? grown : seen->hashes;
		seen->capacity = grown ? capacity : seen->capacity;
	}
	char *full = result == BETON_OK && *usable ? bt_format("%s/%s", group ? group : "", name) : NULL;
	if (full)
		seen->hashes[seen->count++] = XXH3_64bits(full, strlen(full));
	else if (result == BETON_OK && *usable)
		result = no_memory(self, err);
	free(full);
	free(group);
	free(name);
	return result;
}

/* Whether the sources give each sample of the selection a name of its own. */
static int check_sources(layout *self, const selection *chosen, beton_error *err)
{
	selection_cursor cursor = {0};
	name_hashes seen = {0};
	bool usable = true;
	int result = BETON_OK;
	while (usable && result == BETON_OK) {
		uint64_t sample;
		bool found;
		result = selection_next(chosen, self->in, &cursor, &sample, &found, err);
		if (result != BETON_OK || !found)
			break;
		result = add_name(self, sample, &seen, &usable, err);
	}
	if (seen.count)
		qsort(seen.hashes, (size_t)seen.count, sizeof(*seen.hashes), compare_hashes);
	for (uint64_t i = 1; i < seen.count && usable; i++)
		usable = seen.hashes[i] != seen.hashes[i - 1];
	free(seen.hashes);
	self->sources = usable;
	self->sources_fail = !usable;
	return result;
}

static int open_classes(layout *self, const selection *chosen, beton_error *err)
{
	int result = input_facts(self->in, &self->facts, err);
	if (result == BETON_OK && !self->numbers)
		result = check_names(self, err);
	return result == BETON_OK ? measure_labels(self, chosen, err) : result;
}

static int open_samples(layout *self, beton_error *err)
{
	uint32_t count = beton_reader_info(self->schema)->num_fields;
	self->fields = calloc(count, sizeof(*self->fields));
	for (uint32_t i = 0; self->fields && i < count; i++) {
		self->fields[i] = text_file_name(beton_reader_field(self->schema, i)->name);
		if (!self->fields[i])
			return no_memory(self, err);
	}
	return self->fields ? BETON_OK : no_memory(self, err);
}

int layout_open(layout *self, dataset_input *in, const layout_request *request, const selection *chosen,
		beton_error *err)
{
	layout_kind kind = request->kind;
	const beton_file_info *info = beton_reader_info(in->schema);
	*self = (layout){.in = in,
			 .schema = in->schema,
			 .kind = kind,
			 .picture = dataset_picture_field(in->schema),
			 .label = dataset_label_field(in->schema),
			 .key_digits = digits_of(in->num_samples),
			 .sources = info->has_sources && !request->file_numbers,
			 .numbers = request->class_numbers};
	if (self->key_digits < LAYOUT_KEY_DIGITS)
		self->key_digits = LAYOUT_KEY_DIGITS;
	bool fits_classes = self->picture >= 0 && self->label >= 0;
	if (kind == LAYOUT_AUTOMATIC)
		self->kind = fits_classes ? LAYOUT_CLASSES : LAYOUT_SAMPLES;
	if (self->kind == LAYOUT_CLASSES && !fits_classes)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: class folders need one field of pictures and an integer field; --layout=samples "
			       "needs neither",
			       in->path);
	self->values = calloc(info->num_fields, sizeof(*self->values));
	if (!self->values)
		return no_memory(self, err);
	int result = self->kind == LAYOUT_CLASSES ? open_classes(self, chosen, err) : open_samples(self, err);
	return result == BETON_OK && self->sources ? check_sources(self, chosen, err) : result;
}

void layout_free(layout *self)
{
	for (uint32_t i = 0; self->fields && i < beton_reader_info(self->schema)->num_fields; i++)
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

int layout_lost_names(const layout *self, uint64_t *count, beton_error *err)
{
	json_t *facts;
	*count = 0;
	if (self->kind == LAYOUT_CLASSES && !self->numbers)
		return BETON_OK;
	int result = input_facts(self->in, &facts, err);
	if (result == BETON_OK && self->label >= 0)
		*count = facts_num_classes(facts);
	json_decref(facts);
	return result;
}

/* KEY.ENDING; a field of another name than its ending's: KEY.FIELD.ENDING. */
static char *file_name(const layout *self, const char *key, uint32_t field, const char *ending)
{
	const char *name = (int)field == self->picture ? ending : self->fields[field];
	if ((int)field == self->label)
		name = ending = "cls";
	bool one = strcmp(name, ending) == 0;
	return bt_format("%s.%s%s%s", key, name, one ? "" : ".", one ? "" : ending);
}

/* key: of the sample, or the name of its only file. */
static int add_value(layout *self, uint32_t field, const char *group, const char *key, extract_target *target,
		     uint64_t *bytes, beton_error *err)
{
	int result = content_make(&self->content, input_reader(self->in), &self->values[field], err);
	if (result != BETON_OK)
		return result;
	char *name = self->kind == LAYOUT_CLASSES ? strdup(key) : file_name(self, key, field, self->content.ending);
	result = name ? target->add(target, group, name, self->content.data, self->content.size, err)
		      : no_memory(self, err);
	*bytes += self->content.size;
	free(name);
	return result;
}

int layout_add(layout *self, uint64_t sample, extract_target *target, uint64_t *bytes, beton_error *err)
{
	char *group;
	char *key;
	*bytes = 0;
	const beton_reader *reader;
	uint64_t number;
	int result = input_at(self->in, sample, &reader, &number, err);
	if (result == BETON_OK)
		result = beton_reader_sample(reader, number, self->values, err);
	if (result != BETON_OK)
		return result;
	bool classes = self->kind == LAYOUT_CLASSES;
	result = name_sample(self, classes ? &self->values[self->label] : NULL,
			     classes ? &self->values[self->picture] : NULL, sample, &group, &key, err);
	if (result == BETON_OK && classes)
		result = add_value(self, (uint32_t)self->picture, group, key, target, bytes, err);
	for (uint32_t i = 0; i < beton_reader_info(self->schema)->num_fields && result == BETON_OK && !classes; i++)
		result = add_value(self, i, group, key, target, bytes, err);
	free(group);
	free(key);
	return result;
}
