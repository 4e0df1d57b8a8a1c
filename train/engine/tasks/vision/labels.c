/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "common/list.h"
#include "common/suggest.h"
#include "common/system.h"
#include "vision_parts.h"

static const char *const loss_names[] = {
	[VISION_LOSS_CROSS_ENTROPY] = "cross-entropy", [VISION_LOSS_BCE] = "bce", [VISION_LOSS_MSE] = "mse"};

/* The loader makes tensors of little-endian arrays alone. */
static bool has_numbers(const beton_field *field)
{
	bool array = bt_form_of(field->type) == BT_FORM_ARRAY;
	return bt_type_is_number(field->type) || (array && field->dtype[0] != '>');
}

static int64_t count_elements(const beton_field *field)
{
	bool array = bt_form_of(field->type) == BT_FORM_ARRAY;
	int64_t count = 1;
	for (uint32_t i = 0; array && i < field->ndim; i++)
		if (__builtin_mul_overflow(count, (int64_t)field->shape[i], &count))
			return INT64_MAX;
	return count;
}

/* "label" if it has numbers; otherwise the first integer field; for numbers the first one of any kind. */
static const beton_field *find_usual(const beton_reader *reader, bool of_numbers)
{
	int index = beton_reader_find_field(reader, "label");
	if (index >= 0 && has_numbers(beton_reader_field(reader, (uint32_t)index)))
		return beton_reader_field(reader, (uint32_t)index);
	index = beton_reader_find_type(reader, BETON_FIELD_INT);
	for (uint32_t i = 0; of_numbers && i < beton_reader_info(reader)->num_fields; i++)
		if (beton_reader_field(reader, i)->type != BETON_FIELD_INT &&
		    has_numbers(beton_reader_field(reader, i)))
			return beton_reader_field(reader, i);
	return index < 0 ? NULL : beton_reader_field(reader, (uint32_t)index);
}

static int no_such_field(const beton_reader *reader, const char *name, beton_error *err)
{
	char others[256] = "";
	bt_suggestion like;
	bt_suggest_begin(&like, name);
	for (uint32_t i = 0; i < beton_reader_info(reader)->num_fields; i++) {
		const beton_field *field = beton_reader_field(reader, i);
		if (!has_numbers(field))
			continue;
		bt_suggest_try(&like, field->name);
		bt_append(others, sizeof(others), "%s%s", *others ? ", " : "", field->name);
	}
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "--label-field '%s': %s has no field of numbers of that name; its fields of numbers: %s%s", name,
		       beton_reader_path(reader), *others ? others : "none", bt_suggest_text(&like));
}

int vision_labels_split(const vision_options *options, const char *field, vision_labels *out, beton_error *err)
{
	*out = (vision_labels){.text = strdup(options->label_field ? options->label_field : field)};
	if (!out->text)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the names of fields");
	if (!options->label_field)
		out->names[out->count++] = out->text;
	/* An item and its NUL take the room of an item and its comma. */
	char *to = out->text;
	size_t size = strlen(to) + 1;
	for (const char *at = options->label_field; at; out->count++) {
		if (out->count == BETON_JOINED_MAX)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "--label-field: more than %d fields",
				       BETON_JOINED_MAX);
		int status = bt_list_next("--label-field", &at, to, size, err);
		if (status != BETON_OK)
			return status;
		out->names[out->count] = to;
		size -= strlen(to) + 1;
		to += strlen(to) + 1;
	}
	return BETON_OK;
}

void vision_labels_free(vision_labels *labels)
{
	free(labels->text);
	*labels = (vision_labels){0};
}

static int find_kind(const beton_reader *reader, const vision_options *options, beton_field_type first,
		     vision_labels *out, beton_error *err)
{
	bool classes = out->count == 1 && first == BETON_FIELD_INT;
	out->kind = options->loss == VISION_LOSS_MSE   ? VISION_NUMBERS
		    : classes                          ? VISION_CLASSES
		    : options->loss == VISION_LOSS_BCE ? VISION_LABELS
						       : VISION_PROBABILITIES;
	if (out->kind == VISION_PROBABILITIES && out->elements < 2)
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"--label-field '%s': %s has one number for each picture there; --loss %s needs the number of "
			"a class, or the probability of each class",
			out->names[0], beton_reader_path(reader), loss_names[options->loss]);
	return BETON_OK;
}

int vision_labels_find(const beton_reader *reader, const vision_options *options, vision_labels *out, beton_error *err)
{
	const beton_field *usual = find_usual(reader, options->loss == VISION_LOSS_MSE);
	beton_field_type first = BETON_FIELD_INT;
	*out = (vision_labels){0};
	if (!options->label_field && !usual)
		return bt_fail(err, BETON_NOT_FOUND, "%s: has no %s field", beton_reader_path(reader),
			       options->loss == VISION_LOSS_MSE ? "number" : "integer (label)");
	int status = vision_labels_split(options, usual ? usual->name : NULL, out, err);
	for (int i = 0; i < out->count && status == BETON_OK; i++) {
		int index = beton_reader_find_field(reader, out->names[i]);
		const beton_field *field = index < 0 ? NULL : beton_reader_field(reader, (uint32_t)index);
		if (!field || !has_numbers(field))
			return no_such_field(reader, out->names[i], err);
		first = i ? first : field->type;
		if (__builtin_add_overflow(out->elements, count_elements(field), &out->elements) ||
		    out->elements > VISION_OUTPUTS_MAX || out->elements < 1)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "--label-field '%s': %s has %" PRIu64 " numbers for a picture, not 1 to %d",
				       out->names[i], beton_reader_path(reader), (uint64_t)out->elements,
				       VISION_OUTPUTS_MAX);
	}
	return status == BETON_OK ? find_kind(reader, options, first, out, err) : status;
}
