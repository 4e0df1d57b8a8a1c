/* SPDX-License-Identifier: Apache-2.0 */
#include "condition.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

typedef enum relation { LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, EQUAL, NOT_EQUAL } relation;

struct condition {
	condition *next;
	char name[BETON_NAME_MAX + 1];
	uint32_t field;
	relation relation;
	bool whole; /* the number is one that `integer` holds exactly */
	int64_t integer;
	double real;
};

static int wrong(const char *text, const char *at, const char *expected, beton_error *err)
{
	return bt_fail(err, BETON_INVALID_ARGUMENT, "condition '%s': expected %s at character %zu ('%.20s')", text,
		       expected, (size_t)(at - text) + 1, at);
}

static const char *skip_blanks(const char *at)
{
	return at + strspn(at, " \t\n");
}

static int parse_name(const char *text, const char **at, char *name, beton_error *err)
{
	const char *start = skip_blanks(*at);
	size_t length = 0;
	if (*start == '\'') {
		start++;
		length = strcspn(start, "'");
		if (start[length] != '\'')
			return wrong(text, start - 1, "a name that ends with '", err);
		*at = start + length + 1;
	} else {
		while (isalnum((unsigned char)start[length]) || (start[length] && strchr("_-.", start[length])))
			length++;
		if (length == 0)
			return wrong(text, start, "the name of a field", err);
		*at = start + length;
	}
	if (length > BETON_NAME_MAX)
		return wrong(text, start, "a name of at most 16 bytes", err);
	memcpy(name, start, length);
	name[length] = 0;
	return BETON_OK;
}

static int parse_relation(const char *text, const char **at, relation *out, beton_error *err)
{
	static const struct {
		const char *sign;
		relation relation;
	} signs[] = {{"<=", LESS_EQUAL}, {">=", GREATER_EQUAL}, {"==", EQUAL},
		     {"!=", NOT_EQUAL},  {"<", LESS},           {">", GREATER}};
	*at = skip_blanks(*at);
	for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++)
		if (strncmp(*at, signs[i].sign, strlen(signs[i].sign)) == 0) {
			*out = signs[i].relation;
			*at += strlen(signs[i].sign);
			return BETON_OK;
		}
	return wrong(text, *at, "one of < <= > >= == !=", err);
}

static int parse_number(const char *text, const char **at, condition *out, beton_error *err)
{
	const char *start = skip_blanks(*at);
	char *end;
	char *real_end;
	errno = 0;
	out->integer = strtoll(start, &end, 10);
	out->whole = errno == 0 && end != start;
	out->real = strtod(start, &real_end);
	if (real_end == start || isnan(out->real))
		return wrong(text, start, "a number", err);
	/* 5.0 and 1e3 are reals, whose comparison with an integer is no less exact (see compare). */
	if (real_end != end)
		out->whole = false;
	*at = real_end;
	return BETON_OK;
}

static bool parse_and(const char **at)
{
	if (strncmp(*at, "&&", 2) == 0)
		*at += 2;
	else if (strncmp(*at, "and", 3) == 0 && strchr(" \t\n'", (*at)[3]))
		*at += 3;
	else
		return false;
	return true;
}

int condition_parse(condition **list, const char *text, beton_error *err)
{
	const char *at = text;
	for (;;) {
		condition *one = calloc(1, sizeof(*one));
		if (!one)
			return bt_fail(err, BETON_NO_MEMORY, "condition '%s': out of memory", text);
		one->next = *list;
		*list = one;
		int result = parse_name(text, &at, one->name, err);
		if (result == BETON_OK)
			result = parse_relation(text, &at, &one->relation, err);
		if (result == BETON_OK)
			result = parse_number(text, &at, one, err);
		if (result != BETON_OK)
			return result;
		at = skip_blanks(at);
		if (!*at)
			return BETON_OK;
		if (!parse_and(&at))
			return wrong(text, at, "'and' or the end", err);
	}
}

void condition_free(condition **list)
{
	while (*list) {
		condition *next = (*list)->next;
		free(*list);
		*list = next;
	}
}

int condition_bind(condition *list, const beton_reader *reader, beton_error *err)
{
	for (; list; list = list->next) {
		int index = beton_reader_find_field(reader, list->name);
		if (index < 0)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: there is no field '%s'",
				       beton_reader_path(reader), list->name);
		list->field = (uint32_t)index;
		beton_field_type type = beton_reader_field(reader, list->field)->type;
		if (type != BETON_FIELD_INT && type != BETON_FIELD_FLOAT)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "%s: field '%s' is neither an integer nor a float; it cannot be compared",
				       beton_reader_path(reader), list->name);
	}
	return BETON_OK;
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

static bool holds_for(const condition *one, const beton_value *value)
{
	int order;
	if (value->type == BETON_FIELD_FLOAT && isnan(value->real))
		return one->relation == NOT_EQUAL;
	if (value->type == BETON_FIELD_FLOAT)
		order = one->whole ? -order_integer(one->integer, value->real) : order_reals(value->real, one->real);
	else if (one->whole)
		order = (value->integer > one->integer) - (value->integer < one->integer);
	else
		order = order_integer(value->integer, one->real);
	switch (one->relation) {
	case LESS:
		return order < 0;
	case LESS_EQUAL:
		return order <= 0;
	case GREATER:
		return order > 0;
	case GREATER_EQUAL:
		return order >= 0;
	case EQUAL:
		return order == 0;
	case NOT_EQUAL:
		break;
	}
	return order != 0;
}

int condition_test(const condition *list, const beton_reader *reader, uint64_t sample, bool *holds, beton_error *err)
{
	*holds = true;
	for (; list && *holds; list = list->next) {
		beton_value value;
		int result = beton_reader_value(reader, sample, list->field, &value, err);
		if (result != BETON_OK)
			return result;
		*holds = holds_for(list, &value);
	}
	return BETON_OK;
}
