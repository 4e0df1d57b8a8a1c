/* SPDX-License-Identifier: Apache-2.0
 *
 * Conditions and samples: looking up what a condition names, and testing. */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "condition_tree.h"
#include "dataset.h"
#include "facts.h"

static const struct {
	const char *name;
	condition_subject subject;
} parts[] = {{"width", SUBJECT_WIDTH}, {"height", SUBJECT_HEIGHT}, {"bytes", SUBJECT_BYTES}};

static bool is_text(condition_subject subject)
{
	return subject == SUBJECT_TEXT || subject == SUBJECT_JSON || subject == SUBJECT_SOURCE;
}

static condition_subject subject_of(beton_field_type type)
{
	switch (bt_form_of(type)) {
	case BT_FORM_REAL:
		return SUBJECT_REAL;
	case BT_FORM_INTEGER:
		return SUBJECT_INTEGER;
	case BT_FORM_BYTES:
		return SUBJECT_TEXT;
	case BT_FORM_TEXT:
		return SUBJECT_JSON;
	case BT_FORM_ARRAY:
	case BT_FORM_IMAGE:
	case BT_FORM_RASTER:
	case BT_FORM_OTHER:
		return SUBJECT_BYTES;
	}
	return SUBJECT_BYTES;
}

/* A field by its name. */
static bool find_field(condition *one, const beton_reader *reader)
{
	int index = beton_reader_find_field(reader, one->name);
	if (index < 0)
		return false;
	one->field = (uint32_t)index;
	one->subject = subject_of(beton_reader_field(reader, one->field)->type);
	return true;
}

/* width, FIELD.width and the like. */
static bool find_part(condition *one, const beton_reader *reader)
{
	const char *dot = strrchr(one->name, '.');
	char field[BETON_NAME_MAX + 1] = "";
	if (dot && (size_t)(dot - one->name) > BETON_NAME_MAX)
		return false;
	if (dot)
		memcpy(field, one->name, (size_t)(dot - one->name));
	int index = dot ? beton_reader_find_field(reader, field) : dataset_picture_field(reader);
	for (size_t i = 0; index >= 0 && i < sizeof(parts) / sizeof(*parts); i++) {
		beton_field_type type = beton_reader_field(reader, (uint32_t)index)->type;
		if (strcmp(dot ? dot + 1 : one->name, parts[i].name) != 0)
			continue;
		one->field = (uint32_t)index;
		one->subject = parts[i].subject;
		return one->subject == SUBJECT_BYTES ? bt_type_has_blob(type) : bt_type_is_picture(type);
	}
	return false;
}

static int find_subject(condition *one, const beton_reader *reader, beton_error *err)
{
	if (find_field(one, reader)) {
		if (one->subject != SUBJECT_BYTES)
			return BETON_OK;
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: field '%s' is neither a number nor a text; it cannot be compared, but %s.bytes can",
			       beton_reader_path(reader), one->name, one->name);
	}
	if (find_part(one, reader))
		return BETON_OK;
	if (strcmp(one->name, "sample") == 0) {
		one->subject = SUBJECT_SAMPLE;
		return BETON_OK;
	}
	int label = strcmp(one->name, "class") == 0 ? dataset_label_field(reader) : -1;
	if (label >= 0) {
		one->subject = SUBJECT_INTEGER;
		one->field = (uint32_t)label;
		return BETON_OK;
	}
	one->subject = SUBJECT_SOURCE;
	return strcmp(one->name, "source") == 0 ? BETON_OK : dataset_no_field(reader, one->name, err);
}

/* The name of a class stands for its number. */
static int find_class(condition_value *value, json_t *facts, beton_error *err)
{
	value->whole = true;
	return facts_find_class(facts, value->text, &value->integer, err);
}

/* All values of the comparison with the field of the class, which are names. */
static int find_classes(condition *one, const dataset_input *in, beton_error *err)
{
	json_t *facts;
	if (one->relation != CONDITION_EQUAL && one->relation != CONDITION_NOT_EQUAL)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: '%s': names of classes can be compared by ==, != and in", in->path,
			       one->values->text);
	int result = input_facts(in, &facts, err);
	if (result != BETON_OK)
		return result;
	for (size_t i = 0; i < one->num_values && result == BETON_OK; i++)
		if (one->values[i].text)
			result = find_class(&one->values[i], facts, err);
	if (result != BETON_OK)
		bt_prefix(err, "%s", in->path);
	json_decref(facts);
	return result;
}

/* The first value that is a text, or a number. NULL: there is none. */
static const condition_value *find_value(const condition *one, bool text)
{
	for (size_t i = 0; i < one->num_values; i++)
		if (text == (one->values[i].text != NULL))
			return &one->values[i];
	return NULL;
}

static int bind_comparison(condition *one, const dataset_input *in, beton_error *err)
{
	int result = find_subject(one, in->schema, err);
	if (result != BETON_OK || !find_value(one, !is_text(one->subject)))
		return result;
	if (one->subject == SUBJECT_INTEGER && (int)one->field == dataset_label_field(in->schema))
		return find_classes(one, in, err);
	return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is compared with %s, and is a %s", in->path, one->name,
		       is_text(one->subject) ? "a number" : "a text", is_text(one->subject) ? "text" : "number");
}

int condition_bind(condition *all, const dataset_input *in, beton_error *err)
{
	int result = BETON_OK;
	for (; all && result == BETON_OK; all = all->left) {
		if (all->kind == CONDITION_COMPARISON)
			result = bind_comparison(all, in, err);
		else
			result = condition_bind(all->right, in, err);
	}
	return result;
}

/* -1, 0 or 1; neither is a NaN. */
static int order_reals(double a, double b)
{
	return (a > b) - (a < b);
}

/* The order of an integer and a real, exact where a conversion to double would round. */
static int order_integer(int64_t a, double b)
{
	if (b >= 0x1p63)
		return -1;
	if (b < -0x1p63)
		return 1;
	int64_t whole = (int64_t)b; /* towards zero */
	if (a != whole)
		return a > whole ? 1 : -1;
	return order_reals(0, b - (double)whole);
}

static bool order_holds(condition_relation relation, int order)
{
	switch (relation) {
	case CONDITION_LESS:
		return order < 0;
	case CONDITION_LESS_EQUAL:
		return order <= 0;
	case CONDITION_GREATER:
		return order > 0;
	case CONDITION_GREATER_EQUAL:
		return order >= 0;
	case CONDITION_EQUAL:
		return order == 0;
	default:
		return order != 0;
	}
}

/* The order of the integer and the value. */
static int order_integer_value(int64_t integer, const condition_value *value)
{
	return value->whole ? (integer > value->integer) - (integer < value->integer)
			    : order_integer(integer, value->real);
}

static bool integer_holds(const condition *one, int64_t integer)
{
	for (size_t i = 0; i < one->num_values; i++)
		if (order_holds(one->relation, order_integer_value(integer, &one->values[i])))
			return true;
	return false;
}

/* The order of the real, which is not NaN, and the value. */
static int order_real_value(double real, const condition_value *value)
{
	return value->whole ? -order_integer(value->integer, real) : order_reals(real, value->real);
}

static bool real_holds(const condition *one, double real)
{
	if (isnan(real))
		return one->relation == CONDITION_NOT_EQUAL;
	for (size_t i = 0; i < one->num_values; i++)
		if (order_holds(one->relation, order_real_value(real, &one->values[i])))
			return true;
	return false;
}

static bool text_value_holds(condition_relation relation, const char *value, const char *text, size_t size)
{
	if (relation == CONDITION_LIKE)
		return strlen(text) == size && fnmatch(value, text, 0) == 0;
	size_t wanted = strlen(value);
	int order = memcmp(text, value, size < wanted ? size : wanted);
	if (order == 0)
		order = (size > wanted) - (size < wanted);
	return order_holds(relation, order);
}

/* text: size bytes and a NUL. NULs that fill up a text do not count. */
static bool text_holds(const condition *one, const char *text, size_t size)
{
	while (size > 0 && text[size - 1] == 0)
		size--;
	for (size_t i = 0; i < one->num_values; i++)
		if (text_value_holds(one->relation, one->values[i].text, text, size))
			return true;
	return false;
}

/* JSON values other than strings equal no text. */
static bool json_holds(const condition *one, const char *text, size_t size)
{
	json_t *value = json_loadb(text, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	bool holds = json_is_string(value) ? text_holds(one, json_string_value(value), json_string_length(value))
					   : one->relation == CONDITION_NOT_EQUAL;
	json_decref(value);
	return holds;
}

static int test_text(const condition *one, const beton_reader *reader, const beton_value *value, bool *holds,
		     beton_error *err)
{
	char *text = value->size < SIZE_MAX ? malloc((size_t)value->size + 1) : NULL;
	if (!text)
		return bt_fail(err, BETON_NO_MEMORY, "%s: sample %llu: no memory for %llu bytes",
			       beton_reader_path(reader), (unsigned long long)value->sample,
			       (unsigned long long)value->size);
	int result = beton_reader_read_value(reader, value, text, err);
	size_t size = (size_t)value->size;
	text[size] = 0;
	if (result == BETON_OK && one->subject == SUBJECT_JSON)
		*holds = json_holds(one, text, size ? size - 1 : 0);
	else if (result == BETON_OK)
		*holds = text_holds(one, text, size);
	free(text);
	return result;
}

static int test_source(const condition *one, const beton_reader *reader, uint64_t sample, bool *holds, beton_error *err)
{
	char source[BETON_SOURCE_MAX + 1];
	int result = beton_reader_source(reader, sample, source, err);
	if (result == BETON_OK)
		*holds = text_holds(one, source, strlen(source));
	return result;
}

static int test_comparison(const condition *one, dataset_input *in, uint64_t sample, bool *holds, beton_error *err)
{
	const beton_reader *reader;
	uint64_t number;
	beton_value value;
	if (one->subject == SUBJECT_SAMPLE) {
		*holds = integer_holds(one, (int64_t)sample);
		return BETON_OK;
	}
	int result = input_at(in, sample, &reader, &number, err);
	if (result == BETON_OK && one->subject == SUBJECT_SOURCE)
		return test_source(one, reader, number, holds, err);
	if (result == BETON_OK)
		result = beton_reader_value(reader, number, one->field, &value, err);
	if (result != BETON_OK)
		return result;
	switch (one->subject) {
	case SUBJECT_INTEGER:
		*holds = integer_holds(one, value.integer);
		return BETON_OK;
	case SUBJECT_REAL:
		*holds = real_holds(one, value.real);
		return BETON_OK;
	case SUBJECT_WIDTH:
	case SUBJECT_HEIGHT:
		*holds = integer_holds(one, one->subject == SUBJECT_WIDTH ? value.width : value.height);
		return BETON_OK;
	case SUBJECT_BYTES:
		*holds = integer_holds(one, (int64_t)value.blob.size);
		return BETON_OK;
	default:
		return test_text(one, reader, &value, holds, err);
	}
}

int condition_test(const condition *all, dataset_input *in, uint64_t sample, bool *holds, beton_error *err)
{
	*holds = true;
	if (!all)
		return BETON_OK;
	if (all->kind == CONDITION_COMPARISON)
		return test_comparison(all, in, sample, holds, err);
	int result = condition_test(all->left, in, sample, holds, err);
	if (result == BETON_OK && all->kind == CONDITION_NOT)
		*holds = !*holds;
	else if (result == BETON_OK && *holds == (all->kind == CONDITION_AND))
		result = condition_test(all->right, in, sample, holds, err);
	return result;
}
