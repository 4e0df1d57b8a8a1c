/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves intact samples. There are three cases. The file opens: damaged samples are left out. The end of the file is
 * lost, and with it the table: sizes of pictures come from the pictures. The metadata were never written: pictures are
 * searched for in the pages.
 */
#include <beton/verify.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/jpeg.h"
#include "common/sized.h"
#include "content.h"
#include "format.h"
#include "reader.h"
#include "salvage.h"
#include "sums.h"
#include "types/types.h"

/* Bytes that are read first of a picture whose size is not known. */
#define PICTURE_GUESS (UINT64_C(1) << 20)

typedef struct repair {
	const beton_repair_options *options;
	beton_repair_report *report;
	beton_reader *reader;
	beton_writer *writer;
	bool keep_packed;     /* copy compressed values as they are stored */
	summed_part metadata; /* with its checksums, which are hidden from the reader */
	beton_value *values;
	beton_input *inputs;
	content_buffer *buffers; /* [num_fields] */
	uint64_t bytes;
} repair;

void beton_repair_options_init_sized(beton_repair_options *options, size_t size)
{
	const beton_repair_options defaults = {.struct_size = sizeof(defaults)};
	bt_sized_init(options, size, &defaults);
}

static int take_options(const beton_repair_options *given, beton_repair_options *options, beton_error *err)
{
	beton_repair_options_init(options);
	int result = given ? bt_sized_take(options, given, "repair options", err) : BETON_OK;
	if (result != BETON_OK)
		return result;
	if (options->max_pixels == 0)
		options->max_pixels = BT_MAX_PIXELS_DEFAULT;
	return BETON_OK;
}

static bool costs_the_sample(int result)
{
	return result == BETON_SAMPLE_CORRUPT || result == BETON_FORMAT || result == BETON_INVALID_ARGUMENT;
}

static int check_blob(const repair *self, uint32_t field, checked_content *content, beton_error *err)
{
	beton_value value = self->values[field];
	uint64_t bound = value.blob.size;
	bool guess = self->reader->table_lost && bt_value_is_jpeg(&value);
	if (guess && bound > PICTURE_GUESS) {
		value.blob.size = PICTURE_GUESS;
		int result = bt_content_check(self->reader, &value, self->options->max_pixels, NULL,
					      &self->buffers[field], content, err);
		if (result != BETON_SAMPLE_CORRUPT)
			return result;
		value.blob.size = bound;
	}
	return bt_content_check(self->reader, &value, self->options->max_pixels, NULL, &self->buffers[field], content,
				err);
}

/* Fills the inputs of a sample from its values, which are intact. */
static int take_sample(repair *self, beton_error *err)
{
	for (uint32_t i = 0; i < self->reader->info.num_fields; i++) {
		const beton_value *value = &self->values[i];
		self->inputs[i] = (beton_input){.mode = value->mode,
						.width = value->width,
						.height = value->height,
						.integer = value->integer,
						.real = value->real};
		if (!bt_type_has_blob(value->type))
			continue;
		checked_content content;
		int result = check_blob(self, i, &content, err);
		if (result != BETON_OK)
			return result;
		self->inputs[i].data = content.data;
		/* The writer adds the NUL of JSON text. */
		self->inputs[i].size = content.size - (bt_form_of(value->type) == BT_FORM_TEXT);
		if (self->keep_packed && value->compression != BETON_COMPRESSION_NONE) {
			self->inputs[i].data = self->buffers[i].stored;
			self->inputs[i].size = value->blob.size;
			self->inputs[i].value_size = value->size;
		}
		self->bytes += content.size;
	}
	return BETON_OK;
}

/* Whether the record of a sample with blobs is all zeros, even its pointers. A file that lost its table may also have
 * lost the end of its metadata. Such a record would read as a sample of empty bytes. */
static bool never_written(const repair *self)
{
	bool written = self->reader->num_blobs == 0;
	for (uint32_t i = 0; i < self->reader->info.num_fields; i++) {
		const beton_value *value = &self->values[i];
		written |= value->integer != 0 || value->real != 0 || value->blob.offset != 0 || value->blob.size != 0;
	}
	return !written;
}

/* Damaged sources are left out, like damaged facts. */
static int read_source(const repair *self, uint64_t sample, char *source, beton_error *err)
{
	beton_error fault;
	int result = beton_reader_source(self->reader, sample, source, &fault);
	if (result == BETON_OK || result == BETON_FORMAT)
		return BETON_OK;
	if (err)
		*err = fault;
	return result;
}

static int repair_sample(repair *self, uint64_t sample, beton_error *err)
{
	const beton_file_info *info = &self->reader->info;
	int result = beton_reader_sample(self->reader, sample, self->values, err);
	if (result != BETON_OK)
		return result;
	result = bt_sums_touch(self->reader, &self->metadata, sample * info->record_size, info->record_size,
			       (int64_t)sample, err);
	bool unverified = result == BETON_SAMPLE_CORRUPT;
	if (result != BETON_OK && (!unverified || self->options->strict))
		return result;
	if (self->reader->table_lost && never_written(self))
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)sample,
				      "%s: sample %llu: its record holds only zeros: it was never written",
				      self->reader->path, (unsigned long long)sample);
	result = take_sample(self, err);
	char source[BETON_SOURCE_MAX + 1];
	if (result == BETON_OK)
		result = read_source(self, sample, source, err);
	if (result == BETON_OK)
		result = beton_writer_append_from(self->writer, self->inputs, source, err);
	self->report->kept += result == BETON_OK;
	self->report->unverified += result == BETON_OK && unverified;
	return result;
}

static bool go_on(const repair *self, uint64_t done)
{
	return !self->options->progress ||
	       self->options->progress(self->options->context, done, self->report->samples, self->bytes);
}

static int cancelled(const repair *self, beton_error *err)
{
	return bt_fail(err, BETON_CANCELLED, "%s: the repair was stopped", self->reader->path);
}

static bool tell_lost(const repair *self, uint64_t first, uint64_t count, const char *reason)
{
	return !self->options->lost || self->options->lost(self->options->context, first, count, reason);
}

static int repair_samples(repair *self, beton_error *err)
{
	uint64_t there = self->reader->info.num_samples;
	beton_error fault;
	for (uint64_t i = 0; i < there; i++) {
		int result = repair_sample(self, i, &fault);
		if (result != BETON_OK && !costs_the_sample(result)) {
			if (err)
				*err = fault;
			return result;
		}
		if ((result != BETON_OK && !tell_lost(self, i, 1, fault.message)) || !go_on(self, i + 1))
			return cancelled(self, err);
	}
	if (self->report->samples > there &&
	    !tell_lost(self, there, self->report->samples - there, "the file ends before their records"))
		return cancelled(self, err);
	return BETON_OK;
}

static int keep_picture(void *context, const beton_input *picture, beton_error *err)
{
	repair *self = context;
	int result = beton_writer_append(self->writer, picture, err);
	if (result != BETON_OK)
		return result;
	self->report->pictures++;
	self->report->kept++;
	self->bytes += picture->size;
	return go_on(self, self->report->kept) ? BETON_OK : cancelled(self, err);
}

/* Copies the fields, and renames fields whose names the writer refuses, so that their samples are not lost. NULL: out
 * of memory. */
static beton_field *name_fields(const beton_field *from, uint32_t count)
{
	beton_field *fields = calloc(count, sizeof(*fields));
	for (uint32_t i = 0; fields && i < count; i++) {
		fields[i] = from[i];
		bool good = from[i].name[0] != 0;
		for (const char *at = from[i].name; *at; at++)
			good &= *at >= 0x20 && *at <= 0x7e;
		if (!good)
			snprintf(fields[i].name, sizeof(fields[i].name), "field_%u", i);
	}
	return fields;
}

/* Whether compressed values can be copied. If their dictionaries are damaged, values that need none (the first of a
 * file) are compressed again. */
static int keep_packed(repair *self, beton_error *err)
{
	const beton_reader *reader = self->reader;
	void *dictionaries = NULL;
	uint64_t size;
	beton_error fault;
	int result = beton_reader_dictionaries(reader, &dictionaries, &size, &fault);
	free(dictionaries);
	for (uint32_t i = 0; i < reader->info.num_fields && result == BETON_OK; i++)
		self->keep_packed |= reader->fields[i].compression != BETON_COMPRESSION_NONE;
	if (result == BETON_OK || result == BETON_FORMAT)
		return BETON_OK;
	if (err)
		*err = fault;
	return result;
}

/* Opens the writer with the reader's schema; without metadata, with its first image field alone. */
static int open_writer(repair *self, const char *output, beton_error *err)
{
	const beton_reader *reader = self->reader;
	const beton_field *fields = reader->fields;
	uint32_t count = reader->info.num_fields;
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = reader->info.page_size;
	options.expected_samples = reader->info.num_samples;
	options.max_pixels = self->options->max_pixels;
	if (reader->info.has_facts) {
		beton_error fault;
		options.facts = beton_reader_facts(reader, &fault);
		/* Damaged facts are left out, like damaged samples. */
		if (!options.facts && fault.code != BETON_FORMAT) {
			if (err)
				*err = fault;
			return fault.code;
		}
	}
	if (self->report->metadata_lost) {
		int image = beton_reader_find_type(reader, BETON_FIELD_IMAGE);
		if (image < 0)
			return bt_fail(
				err, BETON_INCOMPLETE,
				"%s: its metadata and its allocation table are lost, and it has no pictures that "
				"could be found without them",
				reader->path);
		fields = &fields[image];
		count = 1;
	} else {
		int result = keep_packed(self, err);
		if (result != BETON_OK)
			return result;
		options.stored_like = self->keep_packed ? reader : NULL;
	}
	beton_field *named = name_fields(fields, count);
	int result = named ? beton_writer_open(&self->writer, output, named, count, &options, err)
			   : bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", reader->path, count);
	free(named);
	return result;
}

static int allocate(repair *self, beton_error *err)
{
	uint32_t count = self->reader->info.num_fields;
	self->values = calloc(count, sizeof(*self->values));
	self->inputs = calloc(count, sizeof(*self->inputs));
	self->buffers = calloc(count, sizeof(*self->buffers));
	return self->values && self->inputs && self->buffers
		       ? BETON_OK
		       : bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", self->reader->path, count);
}

static int write_output(repair *self, const char *output, beton_error *err)
{
	beton_repair_report *report = self->report;
	int result = open_writer(self, output, err);
	if (result == BETON_OK && report->metadata_lost)
		result = bt_find_pictures(self->reader, self->options->max_pixels, keep_picture, self, err);
	else if (result == BETON_OK)
		result = repair_samples(self, err);
	if (result == BETON_OK && report->kept == 0 && (report->samples || report->metadata_lost))
		result = bt_fail(err, BETON_FORMAT, "%s: nothing in it is whole", self->reader->path);
	return result == BETON_OK ? beton_writer_finish(self->writer, err) : result;
}

/* Refuses to overwrite the input. */
static int check_paths(const char *input, const char *output, beton_error *err)
{
	struct stat from, to;
	if (stat(input, &from) == 0 && stat(output, &to) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is the same file as %s", output, input);
	return BETON_OK;
}

int beton_repair(const char *input, const char *output, const beton_repair_options *given, beton_repair_report *report,
		 beton_error *err)
{
	if (BT_MISSING(err, input, output, report))
		return BETON_INVALID_ARGUMENT;
	beton_repair_options options;
	*report = (beton_repair_report){0};
	repair self = {.options = &options, .report = report};
	int result = take_options(given, &options, err);
	if (result == BETON_OK)
		result = check_paths(input, output, err);
	if (result == BETON_OK)
		result = bt_salvage_open(&self.reader, input, report, err);
	if (result == BETON_OK)
		result = allocate(&self, err);
	if (result == BETON_OK) {
		self.metadata = self.reader->metadata;
		self.reader->metadata.sums = self.reader->table.sums = 0;
		result = write_output(&self, output, err);
	}
	beton_writer_close(&self.writer);
	for (uint32_t i = 0; self.buffers && i < self.reader->info.num_fields; i++)
		bt_content_free(&self.buffers[i]);
	free(self.values);
	free(self.inputs);
	free(self.buffers);
	beton_reader_close(&self.reader);
	return result;
}
