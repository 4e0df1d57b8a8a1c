/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens and closes a writer: options, schema, and the place of the first page.
 */
#include "types/types.h"
#include "writer.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/isa.h"
#include "common/jpeg.h"
#include "common/sized.h"
#include "facts.h"
#include "fields.h"
#include "job.h"
#include "layout.h"

#define WINDOW_DEFAULT ((size_t)64 << 20)

void beton_writer_options_init_sized(beton_writer_options *options, size_t size)
{
	const beton_writer_options defaults = {
		.struct_size = sizeof(defaults), .page_size = BETON_PAGE_SIZE_DEFAULT, .window = WINDOW_DEFAULT};
	bt_sized_init(options, size, &defaults);
}

static int take_options(const beton_writer_options *given, beton_writer_options *options, beton_error *err)
{
	beton_writer_options_init(options);
	int result = given ? bt_sized_take(options, given, "writer options", err) : BETON_OK;
	if (result != BETON_OK)
		return result;
	uint32_t page_size = options->page_size;
	if (page_size && (page_size < BETON_PAGE_SIZE_MIN || (page_size & (page_size - 1))))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "writer options: page_size %u is not 0 or a power of two from %u to %u", page_size,
			       BETON_PAGE_SIZE_MIN, UINT32_C(1) << 31);
	if (options->max_pixels == 0)
		options->max_pixels = BT_MAX_PIXELS_DEFAULT;
	if (options->flags & ~(BETON_WRITER_NO_EXTENSION | BETON_WRITER_NO_JPEG_INDEX))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "writer options: unknown flags %#x", options->flags);
	if (options->resume && !options->job)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "writer options: resume needs a job");
	if (options->stored_like && (options->job || options->flags & BETON_WRITER_NO_EXTENSION))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "writer options: stored_like goes neither with a job nor without the extension");
	return BETON_OK;
}

static int take_schema(beton_writer *writer, const beton_field *fields, uint32_t num_fields, beton_error *err)
{
	sample_schema *schema = &writer->schema;
	if (num_fields == 0 || num_fields > UINT16_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %u fields, a file has 1 to %u", writer->path,
			       num_fields, UINT16_MAX);
	schema->num_fields = num_fields;
	schema->fields = calloc(num_fields, sizeof(*fields));
	schema->blob_slots = calloc(num_fields, sizeof(*schema->blob_slots));
	schema->field_of_blob = calloc(num_fields, sizeof(*schema->field_of_blob));
	writer->descriptors = calloc(num_fields, FIELD_SIZE);
	writer->blobs = calloc(num_fields, sizeof(*writer->blobs));
	if (!schema->fields || !schema->blob_slots || !schema->field_of_blob || !writer->descriptors || !writer->blobs)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", writer->path, num_fields);
	memcpy(schema->fields, fields, num_fields * sizeof(*fields));
	for (uint32_t i = 0; i < num_fields; i++) {
		int result = bt_field_format(&schema->fields[i], i, schema->page_size,
					     writer->descriptors + (size_t)i * FIELD_SIZE, err);
		if (result != BETON_OK) {
			bt_prefix(err, "%s", writer->path);
			return result;
		}
	}
	int64_t duplicate = bt_duplicate_name(schema->fields, num_fields);
	if (duplicate == -2)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", writer->path, num_fields);
	if (duplicate >= 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: two fields have the name '%s'", writer->path,
			       schema->fields[duplicate].name);
	schema->record_size = bt_layout_record(schema->fields, num_fields);
	for (uint32_t i = 0; i < num_fields; i++) {
		const beton_field *field = &schema->fields[i];
		if (!bt_type_has_blob(field->type))
			continue;
		schema->blob_slots[schema->blob_fields] = field->record_offset + bt_field_slot(field).pointer_offset;
		schema->field_of_blob[schema->blob_fields++] = i;
	}
	return schema->stored ? BETON_OK : bt_compressor_open(&writer->compressor, schema, err);
}

/* Copies the reader's dictionaries, because its stored values are written as they are. */
static int take_dictionaries(beton_writer *writer, const beton_reader *like, beton_error *err)
{
	const sample_schema *schema = &writer->schema;
	bool same = beton_reader_info(like)->num_fields == schema->num_fields;
	for (uint32_t i = 0; i < schema->num_fields && same; i++) {
		const beton_field *theirs = beton_reader_field(like, i);
		same = theirs->type == schema->fields[i].type && theirs->compression == schema->fields[i].compression;
	}
	if (!same)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: writer options: the fields of stored_like, %s, are others", writer->path,
			       beton_reader_path(like));
	return beton_reader_dictionaries(like, &writer->dictionaries, &writer->dictionaries_size, err);
}

void bt_writer_place_pages(beton_writer *writer, uint64_t samples)
{
	const sample_schema *schema = &writer->schema;
	uint64_t room = bt_writer_metadata_offset(writer) + samples * schema->record_size;
	writer->data_offset = (room + schema->page_size - 1) / schema->page_size * schema->page_size;
}

static int place_pages(beton_writer *writer, uint64_t expected_samples, beton_error *err)
{
	const sample_schema *schema = &writer->schema;
	if (expected_samples > (uint64_t)INT64_MAX / 2 / schema->record_size)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: expected_samples %llu is more than a file can hold",
			       writer->path, (unsigned long long)expected_samples);
	writer->expected_samples = expected_samples;
	bt_writer_place_pages(writer, expected_samples);
	if (schema->blob_fields == 0)
		return BETON_OK;
	writer->page = malloc(schema->page_size);
	return writer->page ? BETON_OK
			    : bt_fail(err, BETON_NO_MEMORY, "%s: no memory for a page of %u bytes", writer->path,
				      schema->page_size);
}

static int open_files(beton_writer *writer, const beton_writer_options *options, beton_error *err)
{
	char *job;
	bool continued = false;
	int result = bt_job_describe(writer, options, &job, err);
	if (result == BETON_OK)
		result = bt_spool_open(&writer->files, writer->path, err);
	if (result == BETON_OK)
		result = bt_journal_begin(&writer->journal, writer->files.journal_fd, writer->path,
					  writer->schema.record_size, writer->schema.blob_fields, err);
	if (result == BETON_OK && options->resume)
		result = bt_writer_resume(writer, job, &continued, err);
	/* A writer that fails before it reads an earlier writer's files must keep them. */
	writer->started = result == BETON_OK;
	writer->undecided &= !continued;
	if (result == BETON_OK && !continued)
		result = bt_spool_restart(&writer->files, err);
	if (result == BETON_OK && !continued)
		result = bt_journal_start(&writer->journal, job, writer->resumable, err);
	free(job);
	return result;
}

static beton_writer *allocate(const char *path, const beton_writer_options *options)
{
	beton_writer *writer = calloc(1, sizeof(*writer));
	if (!writer)
		return NULL;
	writer->files = (spool){.data_fd = -1, .journal_fd = -1};
	writer->schema.page_size = options->page_size ? options->page_size : BETON_PAGE_SIZE_DEFAULT;
	writer->schema.max_pixels = options->max_pixels;
	writer->schema.jpeg_index = !(options->flags & (BETON_WRITER_NO_EXTENSION | BETON_WRITER_NO_JPEG_INDEX));
	writer->window_limit = options->window;
	writer->resumable = options->job != NULL;
	writer->keep = options->resume;
	writer->path = strdup(path);
	writer->schema.path = writer->path;
	if (!writer->path || pthread_mutex_init(&writer->mutex, NULL) != 0) {
		free(writer->path);
		free(writer);
		return NULL;
	}
	if (pthread_cond_init(&writer->changed, NULL) == 0)
		return writer;
	pthread_mutex_destroy(&writer->mutex);
	free(writer->path);
	free(writer);
	return NULL;
}

int beton_writer_open(beton_writer **out, const char *path, const beton_field *fields, uint32_t num_fields,
		      const beton_writer_options *given, beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, path, fields))
		return BETON_INVALID_ARGUMENT;
	beton_writer_options options;
	int result = bt_isa_check(err);
	if (result == BETON_OK)
		result = take_options(given, &options, err);
	if (result != BETON_OK)
		return result;
	beton_writer *writer = allocate(path, &options);
	if (!writer)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	writer->schema.stored = options.stored_like != NULL;
	result = take_schema(writer, fields, num_fields, err);
	writer->undecided = options.page_size == 0 && writer->schema.blob_fields > 0;
	if (result == BETON_OK && options.stored_like)
		result = take_dictionaries(writer, options.stored_like, err);
	if (result == BETON_OK && !(options.flags & BETON_WRITER_NO_EXTENSION))
		result = bt_facts_make(&writer->facts, options.facts, err);
	if (result == BETON_OK)
		result = place_pages(writer, options.expected_samples, err);
	if (result == BETON_OK)
		result = open_files(writer, &options, err);
	if (result == BETON_OK)
		*out = writer;
	else
		beton_writer_close(&writer);
	return result;
}

void beton_writer_close(beton_writer **out)
{
	if (!out || !*out)
		return;
	beton_writer *writer = *out;
	/* Files that cannot be continued are not kept. */
	bool worth = writer->keep && writer->journal.end > writer->journal.start;
	bt_spool_close(&writer->files, writer->started ? worth : writer->files.found);
	bt_journal_free(&writer->journal);
	bt_compressor_close(&writer->compressor);
	bt_window_free(&writer->early);
	bt_held_free(&writer->held);
	pthread_cond_destroy(&writer->changed);
	pthread_mutex_destroy(&writer->mutex);
	free(writer->path);
	free(writer->schema.fields);
	free(writer->schema.blob_slots);
	free(writer->schema.field_of_blob);
	free(writer->descriptors);
	free(writer->blobs);
	free(writer->facts);
	free(writer->dictionaries);
	free(writer->page);
	free(writer);
	*out = NULL;
}
