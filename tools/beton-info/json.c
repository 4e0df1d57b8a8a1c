/* SPDX-License-Identifier: Apache-2.0
 *
 * The file as JSON. Samples are printed one at a time, so that memory does not grow with their number. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>
#include <nettle/sha2.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "histogram.h"
#include "info.h"
#include "tools/common/dataset.h"
#include "tools/common/facts.h"
#include "tools/common/progress.h"
#include "tools/common/sources.h"
#include "tools/common/text.h"

#define REAL_DIGITS JSON_REAL_PRECISION(17)

/* A blob's bytes, kept from value to value. */
typedef struct buffer {
	uint8_t *data;
	uint64_t capacity;
} buffer;

/* A string of bytes from a file; bytes that are not UTF-8 are escaped. */
static json_t *make_text(const char *bytes)
{
	char *text = text_utf8(bytes);
	json_t *string = text ? json_string(text) : NULL;
	free(text);
	return string;
}

json_t *info_field_json(const beton_field *field)
{
	json_t *object = json_object();
	json_object_set_new(object, "name", make_text(field->name));
	json_object_set_new(object, "type_id", json_integer(field->type));
	json_object_set_new(object, "type", json_string(beton_field_type_name(field->type)));
	if (field->compression == BETON_COMPRESSION_ZSTD)
		json_object_set_new(object, "compression", json_string("zstd"));
	if (field->ndim == 0)
		return object;
	json_t *shape = json_array();
	for (uint32_t i = 0; i < field->ndim; i++)
		json_array_append_new(shape, json_integer((json_int_t)field->shape[i]));
	json_object_set_new(object, "shape", shape);
	json_object_set_new(object, "dtype", json_string(field->dtype));
	return object;
}

bool info_has_checksums(const beton_file_info *info)
{
	return info->has_checksums || (info->has_extension && info->alloc_entries == 0);
}

/* Facts that FFCV's files lack. */
static json_t *make_extension(const beton_reader *reader, beton_error *err)
{
	json_t *facts;
	if (facts_load(&facts, reader, err) != BETON_OK)
		return NULL;
	const beton_file_info *info = beton_reader_info(reader);
	return json_pack("{s:b, s:b, s:o}", "checksums", info_has_checksums(info), "sources", info->has_sources,
			 "facts", facts);
}

static json_t *make_head(const beton_reader *reader)
{
	const beton_file_info *info = beton_reader_info(reader);
	const char *slash = strrchr(beton_reader_path(reader), '/');
	json_t *head = json_object();
	json_t *offsets = json_array();
	json_t *fields = json_array();
	for (uint32_t i = 0; i < info->num_fields; i++) {
		const beton_field *field = beton_reader_field(reader, i);
		json_array_append_new(offsets, json_integer(field->record_offset));
		json_array_append_new(fields, info_field_json(field));
	}
	json_t *name = json_string(slash ? slash + 1 : beton_reader_path(reader));
	json_object_set_new(head, "file", name ? name : json_null());
	json_object_set_new(head, "version", json_integer(info->version));
	json_object_set_new(head, "page_size", json_integer(info->page_size));
	json_object_set_new(head, "num_samples", json_integer((json_int_t)info->num_samples));
	json_object_set_new(head, "metadata_itemsize", json_integer(info->record_size));
	json_object_set_new(head, "metadata_offsets", offsets);
	json_object_set_new(head, "alloc_table_ptr", json_integer((json_int_t)info->alloc_table_offset));
	json_object_set_new(head, "alloc_entries", json_integer((json_int_t)info->alloc_entries));
	json_object_set_new(head, "fields", fields);
	return head;
}

static json_t *make_digest(const uint8_t *data, size_t size)
{
	struct sha256_ctx context;
	uint8_t digest[SHA256_DIGEST_SIZE];
	char text[2 * SHA256_DIGEST_SIZE + 1];
	sha256_init(&context);
	sha256_update(&context, size, data);
	sha256_digest(&context, sizeof(digest), digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	return json_string(text);
}

/* A JSON field holds UTF-8 text and one NUL byte. */
static int check_text(const char *text, size_t size, const char *place, beton_error *err)
{
	json_t *string = size && text[size - 1] == 0 ? json_stringn(text, size - 1) : NULL;
	if (!string)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: the JSON text is not UTF-8 with a NUL at its end",
			       place);
	json_decref(string);
	return BETON_OK;
}

static int make_blob(const beton_reader *reader, const beton_value *value, const char *place, buffer *bytes,
		     json_t **out, beton_error *err)
{
	int result = dataset_read(reader, value, &bytes->data, &bytes->capacity, err);
	if (result == BETON_OK)
		result = beton_reader_check(reader, value, bytes->data, err);
	if (result != BETON_OK)
		return result;
	*out = json_object();
	if (bt_form_of(value->type) == BT_FORM_IMAGE)
		json_object_set_new(*out, "mode", json_string(dataset_mode_name(value->mode)));
	if (bt_type_is_picture(value->type)) {
		json_object_set_new(*out, "width", json_integer(value->width));
		json_object_set_new(*out, "height", json_integer(value->height));
	}
	json_object_set_new(*out, "size", json_integer((json_int_t)value->blob.size));
	json_object_set_new(*out, "sha256", make_digest(bytes->data, (size_t)value->blob.size));
	if (value->compression != BETON_COMPRESSION_NONE)
		json_object_set_new(*out, "value_size", json_integer((json_int_t)value->size));
	else if (bt_form_of(value->type) == BT_FORM_TEXT)
		result = check_text((const char *)bytes->data, (size_t)value->blob.size, place, err);
	return result;
}

static int make_value(const beton_reader *reader, uint64_t sample, uint32_t index, buffer *bytes, json_t **out,
		      beton_error *err)
{
	beton_value value;
	int result = beton_reader_value(reader, sample, index, &value, err);
	if (result != BETON_OK)
		return result;
	bt_form form = bt_form_of(value.type);
	if (form == BT_FORM_INTEGER) {
		*out = json_integer(value.integer);
	} else if (form == BT_FORM_REAL) {
		*out = json_real(value.real);
		if (!*out)
			*out = json_null(); /* JSON has no NaN and no infinity */
	} else {
		char place[512];
		snprintf(place, sizeof(place), "%s: sample %llu, field '%s'", beton_reader_path(reader),
			 (unsigned long long)sample, beton_reader_field(reader, index)->name);
		return make_blob(reader, &value, place, bytes, out, err);
	}
	return BETON_OK;
}

static int make_sample(const beton_reader *reader, uint64_t sample, buffer *bytes, json_t *object, uint64_t *damaged,
		       beton_error *err)
{
	char *source = source_text(reader, sample);
	/* No field of FFCV's has such a name, and WebDataset writes `__key__`. */
	if (source && *source)
		json_object_set_new(object, "__source__", json_string(source));
	free(source);
	for (uint32_t i = 0; i < beton_reader_info(reader)->num_fields; i++) {
		json_t *value = NULL;
		beton_error fault;
		int result = make_value(reader, sample, i, bytes, &value, &fault);
		if (result == BETON_SAMPLE_CORRUPT || result == BETON_FORMAT) {
			json_decref(value);
			value = json_pack("{s:o}", "error", make_text(fault.message));
			if ((*damaged)++ == 0 && err)
				*err = fault;
		} else if (result != BETON_OK) {
			json_decref(value);
			if (err)
				*err = fault;
			return result;
		}
		json_t *name = make_text(beton_reader_field(reader, i)->name);
		json_object_set_new(object, json_string_value(name), value);
		json_decref(name);
	}
	return BETON_OK;
}

static int print_samples(const beton_reader *reader, const selection *chosen, uint64_t *damaged, beton_error *err)
{
	buffer bytes = {0};
	dataset_input in = input_of(reader);
	int result = BETON_OK;
	uint64_t count = in.num_samples;
	progress bar;
	/* On a terminal the samples themselves are the progress. */
	progress_start(&bar, count, isatty(STDOUT_FILENO));
	fputs(",\n \"samples\": [", stdout);
	selection_cursor cursor = {0};
	uint64_t printed = 0;
	for (;;) {
		uint64_t i;
		bool found = false;
		if (result == BETON_OK)
			result = selection_next(chosen, &in, &cursor, &i, &found, err);
		if (result != BETON_OK || !found)
			break;
		json_t *object = json_object();
		result = make_sample(reader, i, &bytes, object, damaged, err);
		fputs(printed++ ? ",\n  " : "\n  ", stdout);
		if (json_dumpf(object, stdout, REAL_DIGITS) != 0 && result == BETON_OK)
			result = bt_fail_errno(err, errno, "standard output: sample %llu", (unsigned long long)i);
		json_decref(object);
		progress_sample(&bar, 0);
	}
	progress_clear(&bar);
	fputs(printed ? "\n ]" : "]", stdout);
	free(bytes.data);
	return result;
}

static int add_histogram(json_t *head, const beton_reader *reader, bool count, uint64_t *damaged, beton_error *err)
{
	histogram spread;
	int result = histogram_make(&spread, reader, err);
	if (result == BETON_OK)
		json_object_set_new(head, "histogram", histogram_json(&spread));
	if (result == BETON_OK && count && spread.damaged) {
		*damaged += spread.damaged;
		*err = spread.fault;
	}
	histogram_free(&spread);
	return result;
}

int info_print_json(const beton_reader *reader, const info_options *options, uint64_t *damaged, beton_error *err)
{
	json_t *head = make_head(reader);
	json_t *extension = NULL;
	int result = BETON_OK;
	if (beton_reader_info(reader)->has_extension) {
		extension = make_extension(reader, err);
		result = extension ? BETON_OK : err->code;
		json_object_set_new(head, "extension", extension);
	}
	if (beton_reader_info(reader)->has_jpeg_indexes)
		json_object_set_new(head, "jpeg_index",
				    json_string(beton_reader_info(reader)->jpeg_indexes_beside ? "side file" : "file"));
	/* With the samples, their damage is counted there. */
	if (options->histogram && result == BETON_OK)
		result = add_histogram(head, reader, !options->samples, damaged, err);
	char *text = json_dumps(head, JSON_INDENT(1) | REAL_DIGITS);
	json_decref(head);
	if (!text)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", beton_reader_path(reader));
	/* The samples go before the closing brace. */
	printf("%.*s", (int)strlen(text) - 2, text);
	free(text);
	if (options->samples && result == BETON_OK)
		result = print_samples(reader, &options->chosen, damaged, err);
	fputs("\n}\n", stdout);
	return result;
}
