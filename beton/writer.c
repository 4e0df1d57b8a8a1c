/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a file. Pages are written once, as they fill up; metadata and allocation table are kept in memory and written
 * by finish, the header last of all. The metadata stands in front of the pages, but its size is known only at the end:
 * when it outgrows the room that was left, the pages in its way move behind the last one. */
#include <stdlib.h>
#include <errno.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "fields.h"
#include "format.h"
#include "facts.h"
#include "layout.h"
#include "output.h"

typedef struct byte_array {
	uint8_t *data;
	size_t size;
	size_t capacity;
} byte_array;

struct beton_writer {
	bt_atomic_file file;
	char *path;
	beton_field *fields;
	uint8_t *descriptors;
	uint32_t num_fields;
	uint32_t record_size;
	uint32_t blob_fields;
	uint32_t page_size;
	uint32_t flags;
	char *facts; /* what the file will say; NULL without the extension */
	uint64_t num_samples;
	byte_array metadata;
	byte_array blobs;     /* an output_blob for each blob */
	uint64_t data_offset; /* where the first page was put */
	uint64_t pages;       /* written so far */
	uint8_t *page;        /* the one being filled */
	uint32_t page_used;
	int failed; /* the code that ended the writer's life; BETON_OK while it lives */
	bool finished;
};

/* Room for size more bytes; they are zeros, and not counted in array->size yet. False: no memory. */
static bool reserve(byte_array *array, size_t size)
{
	if (size > SIZE_MAX / 2 - array->size)
		return false;
	if (array->size + size > array->capacity) {
		size_t capacity = array->capacity + array->capacity / 2;
		if (capacity < array->size + size)
			capacity = array->size + size + 4096;
		uint8_t *data = realloc(array->data, capacity);
		if (!data)
			return false;
		array->data = data;
		array->capacity = capacity;
	}
	if (size > 0)
		memset(array->data + array->size, 0, size);
	return true;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

void beton_writer_options_init(beton_writer_options *options)
{
	*options = (beton_writer_options){.struct_size = sizeof(*options), .page_size = BETON_PAGE_SIZE_DEFAULT};
}

/* A caller built with an older header knows fewer options; one with a newer header may ask for what is not there. */
static int take_options(const beton_writer_options *given, beton_writer_options *options, beton_error *err)
{
	beton_writer_options_init(options);
	if (given) {
		size_t least = offsetof(beton_writer_options, page_size) + sizeof(options->page_size);
		if (given->struct_size < least || given->struct_size > sizeof(*options))
			return bt_fail(
				err, BETON_INVALID_ARGUMENT,
				"writer options: struct_size is %zu, not %zu to %zu; call beton_writer_options_init",
				given->struct_size, least, sizeof(*options));
		memcpy(options, given, given->struct_size);
	}
	uint32_t page_size = options->page_size;
	if (page_size < BETON_PAGE_SIZE_MIN || (page_size & (page_size - 1)))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "writer options: page_size %u is not a power of two from %u to %u", page_size,
			       BETON_PAGE_SIZE_MIN, UINT32_C(1) << 31);
	if (options->flags & ~(uint32_t)BETON_WRITER_NO_EXTENSION)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "writer options: unknown flags %#x", options->flags);
	return BETON_OK;
}

static int take_schema(beton_writer *writer, const beton_field *fields, uint32_t num_fields, beton_error *err)
{
	if (num_fields == 0 || num_fields > UINT16_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %u fields, a file has 1 to %u", writer->path,
			       num_fields, UINT16_MAX);
	writer->num_fields = num_fields;
	writer->fields = calloc(num_fields, sizeof(*fields));
	writer->descriptors = calloc(num_fields, FIELD_SIZE);
	if (!writer->fields || !writer->descriptors)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", writer->path, num_fields);
	memcpy(writer->fields, fields, num_fields * sizeof(*fields));
	for (uint32_t i = 0; i < num_fields; i++) {
		int result = beton_field_format(&writer->fields[i], i, writer->page_size,
						writer->descriptors + (size_t)i * FIELD_SIZE, err);
		if (result != BETON_OK) {
			bt_prefix(err, "%s", writer->path);
			return result;
		}
	}
	int64_t duplicate = beton_duplicate_name(writer->fields, num_fields);
	if (duplicate == -2)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", writer->path, num_fields);
	if (duplicate >= 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: two fields have the name '%s'", writer->path,
			       writer->fields[duplicate].name);
	writer->record_size = beton_layout_record(writer->fields, num_fields);
	writer->blob_fields = beton_count_blob_fields(writer->fields, num_fields);
	return BETON_OK;
}

static uint64_t metadata_offset(const beton_writer *writer)
{
	return HEADER_SIZE + (uint64_t)writer->num_fields * FIELD_SIZE;
}

static int place_pages(beton_writer *writer, uint64_t expected_samples, beton_error *err)
{
	if (expected_samples > (uint64_t)INT64_MAX / 2 / writer->record_size)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: expected_samples %llu is more than a file can hold",
			       writer->path, (unsigned long long)expected_samples);
	writer->data_offset =
		round_up(metadata_offset(writer) + expected_samples * writer->record_size, writer->page_size);
	if (writer->blob_fields == 0)
		return BETON_OK;
	writer->page = calloc(1, writer->page_size);
	return writer->page ? BETON_OK
			    : bt_fail(err, BETON_NO_MEMORY, "%s: no memory for a page of %u bytes", writer->path,
				      writer->page_size);
}

int beton_writer_open(beton_writer **out, const char *path, const beton_field *fields, uint32_t num_fields,
		      const beton_writer_options *given, beton_error *err)
{
	*out = NULL;
	beton_writer_options options;
	int result = take_options(given, &options, err);
	if (result != BETON_OK)
		return result;
	beton_writer *writer = calloc(1, sizeof(*writer));
	if (!writer)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	writer->file.fd = -1;
	writer->page_size = options.page_size;
	writer->flags = options.flags;
	writer->path = strdup(path);
	if (!writer->path)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (result == BETON_OK)
		result = take_schema(writer, fields, num_fields, err);
	if (result == BETON_OK && !(writer->flags & BETON_WRITER_NO_EXTENSION))
		result = beton_facts_make(&writer->facts, options.facts, err);
	if (result == BETON_OK)
		result = place_pages(writer, options.expected_samples, err);
	if (result == BETON_OK)
		result = bt_atomic_open(&writer->file, path, err);
	if (result == BETON_OK)
		*out = writer;
	else
		beton_writer_close(&writer);
	return result;
}

/* Bytes that the value takes in the page. */
static uint64_t stored_size(const beton_field *field, const beton_input *value)
{
	return field->type == BETON_FIELD_JSON ? value->size + 1 : value->size;
}

/* Bytes that it uses up there: an empty blob takes one too, so that no two blobs have the same pointer, by which FFCV
 * finds a blob's size. */
static uint64_t used_size(const beton_field *field, const beton_input *value)
{
	uint64_t size = stored_size(field, value);
	return size ? size : 1;
}

static int check_value(const beton_writer *writer, const beton_field *field, const beton_input *value, beton_error *err)
{
	uint64_t expected = value->size;
	if (value->size && !value->data)
		return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)writer->num_samples,
				      "%s: sample %llu, field '%s': %llu bytes at NULL", writer->path,
				      (unsigned long long)writer->num_samples, field->name,
				      (unsigned long long)value->size);
	if (field->type == BETON_FIELD_IMAGE) {
		if (value->width < 1 || value->width > UINT16_MAX || value->height < 1 || value->height > UINT16_MAX ||
		    (value->mode != BETON_IMAGE_JPEG && value->mode != BETON_IMAGE_RAW) || value->size == 0)
			return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)writer->num_samples,
					      "%s: sample %llu, field '%s': an image of %u x %u pixels, mode %d, %llu "
					      "bytes; sides are 1 to %u",
					      writer->path, (unsigned long long)writer->num_samples, field->name,
					      value->width, value->height, (int)value->mode,
					      (unsigned long long)value->size, UINT16_MAX);
		if (value->mode == BETON_IMAGE_RAW)
			expected = (uint64_t)value->width * value->height * 3;
	}
	if (beton_type_is_array(field->type))
		expected = beton_array_bytes(field);
	if (value->size != expected)
		return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)writer->num_samples,
				      "%s: sample %llu, field '%s': %llu bytes, expected %llu", writer->path,
				      (unsigned long long)writer->num_samples, field->name,
				      (unsigned long long)value->size, (unsigned long long)expected);
	return BETON_OK;
}

/* Checks all values; *used: the bytes of page that they need together. */
static int check_sample(const beton_writer *writer, const beton_input *values, uint64_t *used, beton_error *err)
{
	*used = 0;
	for (uint32_t i = 0; i < writer->num_fields; i++) {
		const beton_field *field = &writer->fields[i];
		if (!beton_type_has_blob(field->type))
			continue;
		int result = check_value(writer, field, &values[i], err);
		if (result != BETON_OK)
			return result;
		uint64_t left = writer->page_size - *used;
		/* The first test also keeps the + 1 of JSON from overflowing. */
		if (values[i].size > left || used_size(field, &values[i]) > left)
			return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)writer->num_samples,
					      "%s: sample %llu, field '%s' (%llu bytes): the sample does not fit a "
					      "page of %u bytes; raise the page size",
					      writer->path, (unsigned long long)writer->num_samples, field->name,
					      (unsigned long long)values[i].size, writer->page_size);
		if (field->type == BETON_FIELD_JSON && values[i].size &&
		    memchr(values[i].data, 0, (size_t)values[i].size))
			return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)writer->num_samples,
					      "%s: sample %llu, field '%s': the JSON text has a NUL byte", writer->path,
					      (unsigned long long)writer->num_samples, field->name);
		*used += used_size(field, &values[i]);
	}
	return BETON_OK;
}

static int flush_page(beton_writer *writer, beton_error *err)
{
	if (writer->page_used == 0)
		return BETON_OK;
	uint64_t offset = writer->data_offset + writer->pages * writer->page_size;
	if (bt_pwrite_full(writer->file.fd, writer->page, writer->page_size, offset) != 0)
		return bt_fail_errno(err, errno, "%s: cannot write a page at offset %llu", writer->path,
				     (unsigned long long)offset);
	writer->pages++;
	memset(writer->page, 0, writer->page_used);
	writer->page_used = 0;
	return BETON_OK;
}

/* Copies a blob to the page, which has room for it, and enters it in the allocation table; returns its pointer. */
static uint64_t put_blob(beton_writer *writer, const beton_field *field, const beton_input *value)
{
	uint64_t pointer = writer->data_offset + writer->pages * writer->page_size + writer->page_used;
	if (value->size)
		memcpy(writer->page + writer->page_used, value->data, (size_t)value->size);
	uint64_t size = stored_size(field, value);
	const output_blob blob = {pointer, size, XXH3_64bits(writer->page + writer->page_used, (size_t)size)};
	writer->page_used += (uint32_t)used_size(field, value);
	memcpy(writer->blobs.data + writer->blobs.size, &blob, sizeof(blob));
	writer->blobs.size += sizeof(blob);
	return pointer;
}

static void put_value(beton_writer *writer, uint8_t *record, const beton_field *field, const beton_input *value)
{
	uint8_t *slot = record + field->record_offset;
	uint64_t bits = (uint64_t)value->integer;
	switch (field->type) {
	case BETON_FIELD_FLOAT:
		memcpy(&bits, &value->real, sizeof(bits));
		break;
	case BETON_FIELD_INT:
		break;
	case BETON_FIELD_IMAGE:
		slot[0] = (uint8_t)value->mode;
		store_u16(slot + 1, (uint16_t)value->width);
		store_u16(slot + 3, (uint16_t)value->height);
		store_u64(slot + 5, put_blob(writer, field, value));
		return;
	case BETON_FIELD_BYTES:
	case BETON_FIELD_JSON:
		store_u64(slot + 8, stored_size(field, value));
		bits = put_blob(writer, field, value);
		break;
	case BETON_FIELD_NDARRAY:
	case BETON_FIELD_TORCH_TENSOR:
		bits = put_blob(writer, field, value);
		break;
	}
	store_u64(slot, bits);
}

static int usable(const beton_writer *writer, beton_error *err)
{
	if (writer->finished || writer->failed != BETON_OK)
		return bt_fail(err, BETON_STATE, "%s: the writer has %s", writer->path,
			       writer->finished ? "finished" : "failed");
	return BETON_OK;
}

int beton_writer_append(beton_writer *writer, const beton_input *values, beton_error *err)
{
	uint64_t used;
	int result = usable(writer, err);
	if (result == BETON_OK)
		result = check_sample(writer, values, &used, err);
	if (result != BETON_OK)
		return result;
	if (!reserve(&writer->metadata, writer->record_size) ||
	    !reserve(&writer->blobs, writer->blob_fields * sizeof(output_blob)))
		result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for the metadata of %llu samples", writer->path,
				 (unsigned long long)writer->num_samples + 1);
	else if (used > writer->page_size - writer->page_used)
		result = flush_page(writer, err);
	if (result != BETON_OK)
		return writer->failed = result;
	for (uint32_t i = 0; i < writer->num_fields; i++)
		put_value(writer, writer->metadata.data + writer->metadata.size, &writer->fields[i], &values[i]);
	writer->metadata.size += writer->record_size;
	writer->num_samples++;
	return BETON_OK;
}

/* Adds delta to the pointers that lie in front of limit, in the metadata and in the table. */
static void move_pointers(beton_writer *writer, uint64_t limit, uint64_t delta)
{
	for (uint32_t i = 0; i < writer->num_fields; i++) {
		const beton_field *field = &writer->fields[i];
		if (!beton_type_has_blob(field->type))
			continue;
		uint8_t *slot = writer->metadata.data + field->record_offset + beton_field_slot(field).pointer_offset;
		for (uint64_t n = 0; n < writer->num_samples; n++, slot += writer->record_size)
			if (load_u64(slot) < limit)
				store_u64(slot, load_u64(slot) + delta);
	}
	output_blob *blobs = (output_blob *)writer->blobs.data;
	for (size_t i = 0; i < writer->blobs.size / sizeof(*blobs); i++)
		if (blobs[i].pointer < limit)
			blobs[i].pointer += delta;
}

/* Moves the pages that stand where the metadata must go. *end: the end of the last page then. */
static int make_room(beton_writer *writer, uint64_t *end, beton_error *err)
{
	uint64_t first = writer->data_offset;
	uint64_t limit = round_up(metadata_offset(writer) + writer->metadata.size, writer->page_size);
	*end = first + writer->pages * writer->page_size;
	if (limit <= first || writer->pages == 0)
		return BETON_OK;
	uint64_t target = *end > limit ? *end : limit;
	uint64_t delta = target - first;
	uint64_t stop = *end < limit ? *end : limit;
	for (uint64_t from = first; from < stop; from += writer->page_size) {
		ssize_t got = bt_pread_full(writer->file.fd, writer->page, writer->page_size, from);
		if (got != (ssize_t)writer->page_size)
			return bt_fail_errno(err, got < 0 ? errno : EIO, "%s: cannot read back a page at offset %llu",
					     writer->path, (unsigned long long)from);
		if (bt_pwrite_full(writer->file.fd, writer->page, writer->page_size, from + delta) != 0)
			return bt_fail_errno(err, errno, "%s: cannot move a page to offset %llu", writer->path,
					     (unsigned long long)(from + delta));
	}
	/* What the metadata does not cover of the old pages must be zeros, as in every file. */
	uint64_t hole = metadata_offset(writer) + writer->metadata.size;
	memset(writer->page, 0, writer->page_size);
	if (bt_pwrite_full(writer->file.fd, writer->page, (size_t)(limit - hole), hole) != 0)
		return bt_fail_errno(err, errno, "%s: cannot write at offset %llu", writer->path,
				     (unsigned long long)hole);
	move_pointers(writer, limit, delta);
	*end = stop + delta;
	return BETON_OK;
}

static int write_all(beton_writer *writer, beton_error *err)
{
	uint64_t end = 0;
	int result = flush_page(writer, err);
	if (result == BETON_OK)
		result = make_room(writer, &end, err);
	if (result != BETON_OK)
		return result;
	const output_job job = {.fd = writer->file.fd,
				.path = writer->path,
				.descriptors = writer->descriptors,
				.num_fields = writer->num_fields,
				.record_size = writer->record_size,
				.blob_fields = writer->blob_fields,
				.page_size = writer->page_size,
				.num_samples = writer->num_samples,
				.pages_end = end,
				.has_pages = writer->pages > 0,
				.extension = writer->facts != NULL,
				.facts = writer->facts};
	output file;
	result = beton_output_begin(&file, &job, err);
	const output_blob *blobs = (const output_blob *)writer->blobs.data;
	for (uint64_t i = 0; i < writer->num_samples && result == BETON_OK; i++)
		result = beton_output_sample(&file, writer->metadata.data + i * writer->record_size,
					     blobs + i * writer->blob_fields, err);
	if (result == BETON_OK)
		result = beton_output_end(&file, err);
	beton_output_free(&file);
	return result;
}

int beton_writer_finish(beton_writer *writer, beton_error *err)
{
	int result = usable(writer, err);
	if (result != BETON_OK)
		return result;
	result = write_all(writer, err);
	if (result == BETON_OK)
		result = bt_atomic_commit(&writer->file, err);
	writer->failed = result;
	writer->finished = result == BETON_OK;
	return result;
}

void beton_writer_close(beton_writer **out)
{
	if (!out || !*out)
		return;
	beton_writer *writer = *out;
	bt_atomic_abandon(&writer->file);
	free(writer->path);
	free(writer->fields);
	free(writer->descriptors);
	free(writer->metadata.data);
	free(writer->blobs.data);
	free(writer->facts);
	free(writer->page);
	free(writer);
	*out = NULL;
}
