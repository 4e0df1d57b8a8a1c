/* SPDX-License-Identifier: Apache-2.0
 *
 * The file as text for people. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "beton/types/types.h"
#include "histogram.h"
#include "info.h"
#include "tools/common/facts.h"
#include "tools/common/progress.h"
#include "tools/common/sources.h"
#include "tools/common/text.h"

/* Facts common to a field's values. */
typedef struct field_facts {
	uint64_t count;
	uint64_t jpegs;
	uint64_t bytes;
	uint64_t largest; /* bytes */
	uint32_t width_min, width_max;
	uint32_t height_min, height_max;
	int64_t integer_min, integer_max;
	double real_min, real_max;
} field_facts;

static void add_value(field_facts *facts, const beton_value *value)
{
	if (facts->count++ == 0)
		*facts = (field_facts){.count = 1,
				       .width_min = value->width,
				       .height_min = value->height,
				       .integer_min = value->integer,
				       .integer_max = value->integer,
				       .real_min = value->real,
				       .real_max = value->real};
	facts->jpegs += bt_value_is_jpeg(value);
	facts->bytes += value->blob.size;
#define LOWER(member, seen) (facts->member = (seen) < facts->member ? (seen) : facts->member)
#define RAISE(member, seen) (facts->member = (seen) > facts->member ? (seen) : facts->member)
	RAISE(largest, value->blob.size);
	LOWER(width_min, value->width);
	RAISE(width_max, value->width);
	LOWER(height_min, value->height);
	RAISE(height_max, value->height);
	LOWER(integer_min, value->integer);
	RAISE(integer_max, value->integer);
	LOWER(real_min, value->real);
	RAISE(real_max, value->real);
#undef LOWER
#undef RAISE
}

/* Numbers of one size, or of the least and the greatest. */
static void print_side(const char *name, uint32_t least, uint32_t most)
{
	printf("%s %u", name, least);
	if (most > least)
		printf(" to %u", most);
}

static void print_sides(const field_facts *facts)
{
	print_side("width", facts->width_min, facts->width_max);
	print_side(", height", facts->height_min, facts->height_max);
	fputs(" pixels; ", stdout);
}

static void print_facts(const beton_field *field, const field_facts *facts)
{
	switch (bt_form_of(field->type)) {
	case BT_FORM_INTEGER:
		printf("%" PRId64 " to %" PRId64, facts->integer_min, facts->integer_max);
		return;
	case BT_FORM_REAL:
		printf("%g to %g", facts->real_min, facts->real_max);
		return;
	case BT_FORM_IMAGE:
		printf("%" PRIu64 " jpg, %" PRIu64 " raw; ", facts->jpegs, facts->count - facts->jpegs);
		print_sides(facts);
		break;
	case BT_FORM_RASTER:
		print_sides(facts);
		break;
	case BT_FORM_BYTES:
	case BT_FORM_ARRAY:
	case BT_FORM_TEXT:
	case BT_FORM_OTHER:
		break;
	}
	text_buffer size;
	printf("%s, %.0f bytes on average, %" PRIu64 " at most", text_size(size, facts->bytes),
	       facts->count ? (double)facts->bytes / (double)facts->count : 0, facts->largest);
}

static void print_field(const beton_reader *reader, uint32_t index, uint64_t *damaged, beton_error *err)
{
	const beton_field *field = beton_reader_field(reader, index);
	field_facts facts = {0};
	uint64_t bad = 0;
	progress bar;
	progress_start(&bar, beton_reader_info(reader)->num_samples, false);
	for (uint64_t i = 0; i < beton_reader_info(reader)->num_samples; i++) {
		beton_value value;
		beton_error fault;
		if (beton_reader_value(reader, i, index, &value, &fault) == BETON_OK)
			add_value(&facts, &value);
		else if (bad++ == 0 && *damaged == 0 && err)
			*err = fault;
		progress_sample(&bar, 0);
	}
	progress_clear(&bar);
	*damaged += bad;
	fputs("  ", stdout);
	text_print(stdout, field->name, BETON_NAME_MAX + 1);
	printf("%-13s", beton_field_type_name(field->type));
	if (field->compression == BETON_COMPRESSION_ZSTD)
		fputs("zstd; ", stdout);
	if (field->ndim) {
		printf("%s", field->dtype);
		for (uint32_t i = 0; i < field->ndim; i++)
			printf("%s%" PRIu64, i ? "x" : " ", field->shape[i]);
		fputs("; ", stdout);
	}
	if (facts.count)
		print_facts(field, &facts);
	if (bad)
		printf("; %" PRIu64 " DAMAGED", bad);
	putchar('\n');
}

static void print_value(const beton_reader *reader, uint64_t sample, uint32_t index)
{
	beton_value value;
	beton_error fault;
	text_print(stdout, beton_reader_field(reader, index)->name, 0);
	if (beton_reader_value(reader, sample, index, &value, &fault) != BETON_OK) {
		fputs("=DAMAGED", stdout);
		return;
	}
	char text[BT_TYPE_TEXT];
	bt_type_of(value.type)->describe(&value, text, sizeof(text));
	printf("=%s", text);
}

static int print_samples(const beton_reader *reader, const selection *chosen, beton_error *err)
{
	dataset_input in = input_of(reader);
	selection_cursor cursor = {0};
	for (uint64_t printed = 0;; printed++) {
		uint64_t sample;
		bool found;
		int result = selection_next(chosen, &in, &cursor, &sample, &found, err);
		if (result == BETON_OK && !found && printed == 0 && chosen->where)
			printf("none of its %" PRIu64 " samples is selected\n", beton_reader_info(reader)->num_samples);
		if (result != BETON_OK || !found)
			return result;
		char *source = source_text(reader, sample);
		printf("%" PRIu64 ":", sample);
		if (source && *source)
			printf(" source=%s", source);
		free(source);
		for (uint32_t i = 0; i < beton_reader_info(reader)->num_fields; i++) {
			putchar(' ');
			print_value(reader, sample, i);
		}
		putchar('\n');
	}
}

static int print_extension(const beton_reader *reader, beton_error *err)
{
	enum { NAMES_SHOWN = 5 };
	const beton_file_info *info = beton_reader_info(reader);
	json_t *facts;
	if (!info->has_extension)
		return BETON_OK;
	int result = facts_load(&facts, reader, err);
	if (result != BETON_OK)
		return result;
	const char *writer = json_string_value(json_object_get(facts, "writer"));
	uint64_t classes = facts_num_classes(facts);
	text_buffer count;
	printf("  checksums: %s; written by ", info_has_checksums(info) ? "yes" : "no");
	text_print_utf8(stdout, writer ? writer : "an unknown program", 0);
	if (classes)
		printf("; %s: ", text_count(count, classes, "class", "classes"));
	for (uint64_t i = 0; i < classes && i < NAMES_SHOWN; i++) {
		fputs(i ? ", " : "", stdout);
		text_print_utf8(stdout, facts_class_name(facts, (int64_t)i), 0);
	}
	fputs(classes > NAMES_SHOWN ? ", ..." : "", stdout);
	fputs(info->has_sources ? "; sources: yes\n" : "\n", stdout);
	json_decref(facts);
	return BETON_OK;
}

/* The index lets a loader decode only what is near a crop. */
static void print_index(const beton_reader *reader)
{
	const beton_file_info *info = beton_reader_info(reader);
	const char *fault = beton_reader_jpeg_index_fault(reader);
	if (info->has_jpeg_indexes)
		printf("  index of JPEGs: %s\n", info->jpeg_indexes_beside ? "in the side file" : "yes");
	if (fault) {
		fputs("  ", stdout);
		text_print(stdout, fault, 0);
		putchar('\n');
	}
}

static int print_histogram(const beton_reader *reader, beton_error *err)
{
	histogram spread;
	int result = histogram_make(&spread, reader, err);
	if (result == BETON_OK)
		histogram_print(&spread);
	histogram_free(&spread);
	return result;
}

int info_print_text(const beton_reader *reader, const info_options *options, uint64_t *damaged, beton_error *err)
{
	const beton_file_info *info = beton_reader_info(reader);
	printf("%s: .beton version %u\n", beton_reader_path(reader), info->version);
	text_buffer size;
	text_buffer samples;
	printf("  size %s, %s, pages of %u bytes, %u bytes of metadata a sample\n", text_size(size, info->file_size),
	       text_count(samples, info->num_samples, "sample", "samples"), info->page_size, info->record_size);
	int result = print_extension(reader, err);
	if (result == BETON_OK)
		print_index(reader);
	printf("%u field%s:\n", info->num_fields, info->num_fields == 1 ? "" : "s");
	for (uint32_t i = 0; i < info->num_fields; i++)
		print_field(reader, i, damaged, err);
	beton_error fault;
	if (options->histogram && result == BETON_OK && print_histogram(reader, &fault) != BETON_OK) {
		*err = fault;
		result = fault.code;
	}
	return options->samples && result == BETON_OK ? print_samples(reader, &options->chosen, err) : result;
}
