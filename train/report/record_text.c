/* SPDX-License-Identifier: Apache-2.0
 *
 * Records as text. jansson prints all numbers of a text with the same number of digits: with 17, which some need, 0.1
 * becomes 0.10000000000000001. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"

static int put_value(FILE *out, const json_t *value);

static int put_real(FILE *out, double value)
{
	char text[32];
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	/* A JSON number without point or exponent would be read as an integer. */
	return fprintf(out, "%s%s", text, strpbrk(text, ".en") ? "" : ".0");
}

static int put_scalar(FILE *out, const json_t *value)
{
	char *text = json_dumps(value, JSON_ENCODE_ANY);
	int result = text ? fputs(text, out) : EOF;
	free(text);
	return result;
}

static int put_object(FILE *out, json_t *object)
{
	const char *key, *separator = "{";
	json_t *member;
	json_object_foreach(object, key, member)
	{
		json_t *name = json_string(key);
		bool put = name && fputs(separator, out) >= 0 && put_scalar(out, name) >= 0 && fputs(": ", out) >= 0 &&
			   put_value(out, member) >= 0;
		json_decref(name);
		if (!put)
			return EOF;
		separator = ", ";
	}
	return fputs(*separator == '{' ? "{}" : "}", out);
}

static int put_array(FILE *out, const json_t *array)
{
	if (fputc('[', out) == EOF)
		return EOF;
	for (size_t i = 0; i < json_array_size(array); i++)
		if ((i && fputs(", ", out) < 0) || put_value(out, json_array_get(array, i)) < 0)
			return EOF;
	return fputc(']', out);
}

static int put_value(FILE *out, const json_t *value)
{
	if (json_is_object(value))
		return put_object(out, (json_t *)value);
	if (json_is_array(value))
		return put_array(out, value);
	return json_is_real(value) ? put_real(out, json_real_value(value)) : put_scalar(out, value);
}

char *run_record_text(const json_t *record)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	bool complete = put_value(out, record) >= 0 && fputc('\n', out) != EOF;
	if (fclose(out) == 0 && complete)
		return text;
	free(text);
	return NULL;
}
