/* SPDX-License-Identifier: Apache-2.0
 *
 * WebDataset's shards: tar files where consecutive members with the same name, up to the first dot of the last part of
 * the path, are one sample; the part after that dot is the column. Tar files of class folders: see class_tar.h.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive_input.h"
#include "archive_member.h"
#include "class_tar.h"
#include "common/error.h"
#include "common/system.h"
#include "paths.h"
#include "sources.h"
#include "tools/beton-write/faults.h"

/* A hostile archive could name a new column with each member. */
#define COLUMNS_MAX 1024

/* The first columns of each such source: the picture, whatever its ending, and the endings that it may have. */
static const char *const picture_columns[] = {"image", "jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"};
enum { COLUMN_OF_PICTURE, FIRST_ENDING, END_OF_ENDINGS = sizeof(picture_columns) / sizeof(*picture_columns) };

static const struct {
	const char *ending;
	column_type type;
} known_endings[] = {
	{"image", COLUMN_IMAGE}, {"jpg", COLUMN_IMAGE}, {"jpeg", COLUMN_IMAGE},  {"png", COLUMN_IMAGE},
	{"webp", COLUMN_IMAGE},  {"gif", COLUMN_IMAGE}, {"bmp", COLUMN_IMAGE},   {"tif", COLUMN_IMAGE},
	{"tiff", COLUMN_IMAGE},  {"cls", COLUMN_INT},   {"cls2", COLUMN_INT},    {"int", COLUMN_INT},
	{"id", COLUMN_INT},      {"index", COLUMN_INT}, {"float", COLUMN_FLOAT}, {"json", COLUMN_JSON},
	{"npy", COLUMN_ARRAY},
};

typedef struct tar_source {
	source base;
	name_list shards;
	size_t next_shard;
	archive_input *input; /* the open shard, or NULL */
	const atomic_int *interrupt;
	bool learning;     /* the first sample is being read: its endings become columns, and all are wanted */
	bool learned_only; /* without --fields: a sample may have no other columns than the first one */
	bool in_folder;    /* the first sample is in a folder */
	bool skipping;     /* the sample that is read is passed over */
	beton_error *bad;  /* samples before the first good one */
	size_t num_bad;
	size_t bad_capacity;
	size_t given;    /* of them */
	bool has_member; /* member is the next to be looked at */
	archive_member member;
	source_item first; /* given by peek, and by the first next */
	int first_result;
	bool has_first;
	bool settled; /* its picture has been chosen */
	beton_error first_error;
} tar_source;

/* The sample that is being put together from its members. */
typedef struct group {
	char *key; /* path up to the dot; NULL: no member yet */
	source_item *item;
	uint64_t bytes;
	int result; /* fault of the sample; its other members are still skipped */
	beton_error error;
} group;

static column_type type_of_ending(const char *ending)
{
	const char *dot = strrchr(ending, '.');
	const char *last = dot ? dot + 1 : ending;
	for (size_t i = 0; i < sizeof(known_endings) / sizeof(*known_endings); i++)
		if (strcmp(last, known_endings[i].ending) == 0)
			return known_endings[i].type;
	return COLUMN_BYTES;
}

static const char *shard_name(const tar_source *self)
{
	const char *path = self->shards.names[self->next_shard - 1];
	return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* Adds a column, and room for it in the first item. */
static int add_column(source *base, const char *name, beton_error *err)
{
	tar_source *self = (tar_source *)base;
	if (base->num_columns >= COLUMNS_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: more than %d columns", base->name, COLUMNS_MAX);
	raw_value *values = reallocarray(self->first.values, base->num_columns + 1, sizeof(*values));
	if (!values)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", base->name);
	self->first.values = values;
	values[base->num_columns] = (raw_value){.kind = RAW_MISSING};
	self->first.num_values = base->num_columns + 1;
	return source_add_column(base, name, NULL, type_of_ending(name), err);
}

/* Divides "a/b.SEG.PNG" into "a/b" and "seg.png". False: no sample is meant: litter, or one of those members that
 * describe the archive. */
static bool divide_name(tar_source *self, const char *name, size_t *key_length, char **ending)
{
	if (path_is_litter(name))
		passed_over_add(&self->base.notes.litter, NULL, member_path(name));
	if (path_is_litter(name) || member_is_meta(name))
		return false;
	*key_length = member_key_length(name);
	*ending = strdup(name + *key_length + (name[*key_length] == '.'));
	for (char *letter = *ending; letter && *letter; letter++)
		*letter = (char)tolower((unsigned char)*letter);
	return true;
}

/* Goes to the next member of the shard, or to the next shard, if the sample so far has no member. END: the sample, or
 * the whole source, ends here. */
static int next_member(tar_source *self, bool may_open, beton_error *err)
{
	while (!self->has_member) {
		if (!self->input) {
			if (!may_open || self->next_shard == self->shards.count)
				return BETON_END;
			int result = archive_input_open(&self->input, self->shards.names[self->next_shard++],
							ARCHIVE_TAR, self->interrupt, err);
			if (result != BETON_OK)
				return result;
		}
		int result = archive_input_next(self->input, &self->member, err);
		if (result == BETON_END)
			archive_input_close(&self->input);
		else if (result != BETON_OK)
			return result;
		else
			self->has_member = !self->member.folder;
	}
	return BETON_OK;
}

BETON_PRINTF(2, 3) static void spoil(group *sample, const char *format, ...)
{
	if (sample->result != BETON_OK)
		return;
	char text[256];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	sample->result = bt_fail(&sample->error, BETON_SAMPLE_CORRUPT, "%s: %s", sample->item->name, text);
}

/* Reads the member into value. */
static int read_member(tar_source *self, group *sample, raw_value *value, beton_error *err)
{
	beton_error fault;
	int result = member_read(self->input, sample->item->name, &sample->bytes, value, &fault);
	if (result == BETON_SAMPLE_CORRUPT && sample->result == BETON_OK) {
		sample->result = result;
		sample->error = fault;
	} else if (result != BETON_OK && result != BETON_SAMPLE_CORRUPT && err) {
		*err = fault;
	}
	return result == BETON_SAMPLE_CORRUPT ? BETON_OK : result;
}

static bool is_wanted(const tar_source *self, uint32_t column)
{
	const source_column *columns = self->base.columns;
	if (self->skipping)
		return false;
	return self->learning || columns[column].wanted ||
	       (column >= FIRST_ENDING && column < END_OF_ENDINGS && columns[COLUMN_OF_PICTURE].wanted);
}

static void spoil_special(group *sample, const char *ending, const archive_member *member)
{
	char *what = member_describe(member);
	spoil(sample, "the member '.%s' is %s", ending, what ? what : "no file");
	free(what);
}

/* Adds the member with that ending to the sample. */
static int take_member(tar_source *self, group *sample, const char *ending, beton_error *err)
{
	int64_t column = source_find_column(&self->base, ending);
	if (column < 0 && self->learning) {
		int result = add_column(&self->base, ending, err);
		if (result != BETON_OK)
			return result;
		column = self->base.num_columns - 1;
	}
	if (column < 0 && self->learned_only)
		spoil(sample, "the first sample had no '.%s'; say with --fields what is to be written", ending);
	if (column < 0 || !is_wanted(self, (uint32_t)column))
		return BETON_OK;
	raw_value *value = &sample->item->values[column];
	if (column == COLUMN_OF_PICTURE)
		spoil(sample, "a member with the ending '.image', which stands for any picture");
	else if (value->kind != RAW_MISSING)
		spoil(sample, "two members with the ending '.%s'", ending);
	else if (!self->member.regular)
		spoil_special(sample, ending, &self->member);
	return sample->result == BETON_OK ? read_member(self, sample, value, err) : BETON_OK;
}

/* The column `image` takes the picture, whatever its ending. */
static int choose_picture(const tar_source *self, group *sample, beton_error *err)
{
	raw_value *values = sample->item->values;
	const source_column *columns = self->base.columns;
	for (uint32_t i = FIRST_ENDING; i < END_OF_ENDINGS && columns[COLUMN_OF_PICTURE].wanted; i++) {
		raw_value *chosen = &values[COLUMN_OF_PICTURE];
		if (values[i].kind == RAW_MISSING)
			continue;
		if (chosen->kind != RAW_MISSING) {
			spoil(sample, "it has two pictures");
			break;
		}
		*chosen = values[i];
		values[i] = (raw_value){.kind = RAW_MISSING};
		if (!columns[i].wanted)
			continue;
		values[i] = *chosen;
		values[i].data = values[i].owned = malloc(chosen->size ? chosen->size : 1);
		if (!values[i].owned)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", sample->item->name);
		memcpy(values[i].owned, chosen->data, chosen->size);
	}
	return BETON_OK;
}

/* Whether the member belongs to the sample; the first one gives it its name. *ours false: it begins another. */
static int match_key(tar_source *self, group *sample, size_t length, bool *ours, beton_error *err)
{
	const char *name = self->member.name;
	*ours = !sample->key || (strlen(sample->key) == length && memcmp(sample->key, name, length) == 0);
	if (sample->key)
		return BETON_OK;
	sample->key = strndup(name, length);
	if (self->learning)
		self->in_folder = strchr(member_path(name), '/') != NULL;
	if (sample->key)
		sample->item->name = bt_format("%s: %s", shard_name(self), sample->key);
	if (!sample->item->name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
	return source_item_set_member(sample->item, self->shards.names[self->next_shard - 1], member_path(sample->key),
				      err);
}

/* Reads members as long as they belong to one sample. END: there was none. */
static int read_members(tar_source *self, group *sample, beton_error *err)
{
	int result;
	while ((result = next_member(self, !sample->key, err)) == BETON_OK) {
		size_t length;
		char *ending = NULL;
		if (!divide_name(self, self->member.name, &length, &ending)) {
			self->has_member = false;
			continue;
		}
		bool ours = false;
		if (!ending)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
		else
			result = match_key(self, sample, length, &ours, err);
		if (result == BETON_OK && ours)
			result = take_member(self, sample, ending, err);
		free(ending);
		if (result != BETON_OK || !ours)
			return result;
		self->has_member = false;
	}
	return result == BETON_END && sample->key ? BETON_OK : result;
}

static int read_sample(tar_source *self, source_item *item, beton_error *err)
{
	group sample = {.item = item, .result = BETON_OK};
	int result = read_members(self, &sample, err);
	if (result == BETON_OK && sample.result == BETON_OK)
		result = choose_picture(self, &sample, err);
	if (result == BETON_OK && sample.result != BETON_OK) {
		result = sample.result;
		if (err)
			*err = sample.error;
	}
	free(sample.key);
	return result;
}

/* The first sample was read before the wanted columns were known. */
static int settle_first(tar_source *self, beton_error *err)
{
	group sample = {.item = &self->first, .result = BETON_OK};
	if (self->settled || self->first_result != BETON_OK)
		return BETON_OK;
	int result = choose_picture(self, &sample, err);
	self->settled = result == BETON_OK;
	self->first_result = sample.result;
	self->first_error = sample.error;
	return result;
}

static int give_first(tar_source *self, source_item *item, beton_error *err)
{
	int result = settle_first(self, err);
	if (result != BETON_OK)
		return result;
	self->has_first = false;
	item->name = self->first.name;
	item->source = self->first.source;
	self->first.name = self->first.source = NULL;
	for (uint32_t i = 0; i < item->num_values && i < self->first.num_values; i++) {
		item->values[i] = self->first.values[i];
		self->first.values[i] = (raw_value){.kind = RAW_MISSING};
	}
	if (self->first_result != BETON_OK)
		*err = self->first_error;
	return self->first_result;
}

static int next(source *base, source_item *item, beton_error *err)
{
	tar_source *self = (tar_source *)base;
	if (self->given < self->num_bad) {
		*err = self->bad[self->given++];
		return err->code;
	}
	return self->has_first ? give_first(self, item, err) : read_sample(self, item, err);
}

static int skip(source *base, beton_error *err)
{
	tar_source *self = (tar_source *)base;
	source_item item;
	int result = source_item_make(base, &item, err);
	self->skipping = !self->has_first && self->given == self->num_bad;
	if (result == BETON_OK)
		result = next(base, &item, err);
	self->skipping = false;
	source_item_free(&item);
	return result;
}

static int peek(source *base, const source_item **item, beton_error *err)
{
	tar_source *self = (tar_source *)base;
	int result = settle_first(self, err);
	*item = &self->first;
	if (result == BETON_OK && self->first_result != BETON_OK && err)
		*err = self->first_error;
	return result == BETON_OK ? self->first_result : result;
}

/* Keeps the fault of a sample, for a run that leaves such samples out. */
static int keep_fault(tar_source *self, const beton_error *fault, beton_error *err)
{
	beton_error *bad = list_grow(self->bad, self->num_bad, &self->bad_capacity, sizeof(*bad));
	if (!bad)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
	self->bad = bad;
	bad[self->num_bad] = *fault;
	/* Any other code ends the source. */
	bad[self->num_bad++].code = BETON_SAMPLE_CORRUPT;
	return BETON_OK;
}

static int pass_first(source *base, const beton_error *fault, beton_error *err)
{
	tar_source *self = (tar_source *)base;
	int result = keep_fault(self, fault, err);
	if (result != BETON_OK)
		return result;
	source_item_clear(&self->first);
	self->settled = true; /* the wanted columns are known now */
	self->first_result = read_sample(self, &self->first, &self->first_error);
	self->has_first = self->first_result == BETON_OK || self->first_result == BETON_SAMPLE_CORRUPT;
	if (!self->has_first && self->first_result != BETON_END && err)
		*err = self->first_error;
	return self->has_first ? BETON_OK : self->first_result;
}

static void close_tar(source *base)
{
	tar_source *self = (tar_source *)base;
	archive_input_close(&self->input);
	name_list_free(&self->shards);
	source_item_free(&self->first);
	free(self->bad);
	free(self);
}

static const source_ops tar_ops = {.next = next,
				   .peek = peek,
				   .pass_first = pass_first,
				   .skip = skip,
				   .add_column = add_column,
				   .close = close_tar};

/* The first sample's members become the fields: its picture `image`, its class `label`, the others by their endings. */
static int name_fields(tar_source *self, beton_error *err)
{
	uint32_t pictures = 0;
	for (uint32_t i = FIRST_ENDING; i < END_OF_ENDINGS; i++)
		pictures += self->first.values[i].kind != RAW_MISSING;
	for (uint32_t i = 0; i < self->base.num_columns; i++) {
		source_column *column = &self->base.columns[i];
		bool ending = i >= FIRST_ENDING && i < END_OF_ENDINGS;
		bool wanted = i == COLUMN_OF_PICTURE ? pictures == 1 : self->first.values[i].kind != RAW_MISSING;
		if (!wanted || (ending && pictures == 1))
			continue;
		column->field = strdup(strcmp(column->name, "cls") == 0 ? "label" : column->name);
		if (!column->field)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
	}
	return BETON_OK;
}

/* Forgets what a bad sample has taught. */
static void forget(tar_source *self)
{
	source *base = &self->base;
	source_item_clear(&self->first);
	while (base->num_columns > END_OF_ENDINGS)
		free(base->columns[--base->num_columns].name);
	self->first.num_values = base->num_columns;
}

/* Reads the first sample; faults of bad ones before it are kept for runs that leave them out. */
static int learn_sample(tar_source *self, beton_error *err)
{
	beton_error fault;
	int result;
	while ((result = read_sample(self, &self->first, &fault)) == BETON_SAMPLE_CORRUPT && self->learned_only) {
		if (!self->base.skip_bad) {
			fault_name_option(&fault);
			break;
		}
		int kept = keep_fault(self, &fault, err);
		if (kept != BETON_OK)
			return kept;
		forget(self);
	}
	if (result != BETON_OK && result != BETON_END && err)
		*err = fault;
	return result;
}

static int learn(tar_source *self, beton_error *err)
{
	int result = BETON_OK;
	for (uint32_t i = 0; i < END_OF_ENDINGS && result == BETON_OK; i++)
		result = add_column(&self->base, picture_columns[i], err);
	if (result != BETON_OK)
		return result;
	self->learning = true;
	result = learn_sample(self, err);
	self->learning = false;
	if (result == BETON_END)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no samples in it%s", self->base.name,
			       self->num_bad ? " that are not bad" : "");
	if (result != BETON_OK && (result != BETON_SAMPLE_CORRUPT || self->learned_only))
		return result;
	self->has_first = true;
	self->first_result = result;
	if (result != BETON_OK && err)
		self->first_error = *err;
	return name_fields(self, err);
}

/* A picture alone in a folder: class folders, which cannot be read from a pipe, as the labels follow from the names of
 * all. */
static int check_labels(const tar_source *self, beton_error *err)
{
	uint32_t values = 0;
	for (uint32_t i = 0; i < self->first.num_values; i++)
		values += self->first.values[i].kind != RAW_MISSING;
	bool picture = self->base.columns[COLUMN_OF_PICTURE].field != NULL;
	if (!picture || values > 1 || !self->in_folder)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "%s: the pictures stand in folders, which would be their labels, but all names must be known "
		       "before; give a file, or leave the labels out with --fields=image",
		       self->base.name);
}

static int open_members(const source_spec *spec, name_list *shards, source **train, beton_error *err)
{
	tar_source *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", spec->argument);
	*train = &self->base;
	self->base.count = SOURCE_COUNT_UNKNOWN;
	self->interrupt = spec->interrupt;
	self->learned_only = !spec->has_fields;
	self->base.skip_bad = spec->skip_bad;
	self->shards = *shards;
	*shards = (name_list){0};
	bool standard_input = strcmp(spec->argument, "-") == 0;
	int result = source_init(&self->base, "tar", &tar_ops, standard_input ? "standard input" : spec->argument, err);
	if (result == BETON_OK)
		result = learn(self, err);
	return result;
}

int tar_source_open(const source_spec *spec, source **train, beton_error *err)
{
	name_list shards = {0};
	bool standard_input = strcmp(spec->argument, "-") == 0;
	int result = standard_input ? name_list_add(&shards, "-", err) : paths_expand(spec->argument, &shards, err);
	if (result == BETON_OK && spec->wants_label && !standard_input)
		result = class_tar_open(spec, &shards, train, err);
	bool members = result == BETON_OK && !*train;
	bool twice = members && class_tar_can_read(&shards);
	if (members)
		result = open_members(spec, &shards, train, err);
	if (members && result == BETON_OK && !twice && !spec->has_fields)
		result = check_labels((tar_source *)*train, err);
	name_list_free(&shards);
	return result;
}
