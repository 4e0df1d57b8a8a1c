/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "condition_tree.h"

/* Parentheses and `not` inside of each other: each takes some of the stack. */
enum { DEPTH_MAX = 100 };

typedef struct parser {
	const char *text;
	const char *at;
	int depth;
} parser;

static int wrong(const parser *self, const char *at, const char *expected, beton_error *err)
{
	if (!*at)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "condition '%s': expected %s at the end", self->text,
			       expected);
	return bt_fail(err, BETON_INVALID_ARGUMENT, "condition '%s': expected %s at character %zu ('%.20s')",
		       self->text, expected, (size_t)(at - self->text) + 1, at);
}

static void skip_blanks(parser *self)
{
	self->at += strspn(self->at, " \t\n");
}

static bool is_name_character(char letter)
{
	return isalnum((unsigned char)letter) || (letter && strchr("_-.", letter));
}

/* Takes the sign or the word, if it is next. */
static bool take(parser *self, const char *sign, const char *word)
{
	skip_blanks(self);
	size_t length = strlen(word);
	if (*sign && strncmp(self->at, sign, strlen(sign)) == 0) {
		self->at += strlen(sign);
		return true;
	}
	if (length == 0 || strncmp(self->at, word, length) != 0 || is_name_character(self->at[length]))
		return false;
	self->at += length;
	return true;
}

static condition *make(condition_kind kind, condition *left, const parser *self, beton_error *err)
{
	condition *made = calloc(1, sizeof(*made));
	if (!made) {
		bt_fail(err, BETON_NO_MEMORY, "condition '%s': out of memory", self->text);
		condition_free(&left);
		return NULL;
	}
	made->kind = kind;
	made->left = left;
	return made;
}

static int parse_name(parser *self, char *name, beton_error *err)
{
	skip_blanks(self);
	const char *start = self->at;
	size_t length = 0;
	if (*start == '\'') {
		start++;
		length = strcspn(start, "'");
		if (start[length] != '\'')
			return wrong(self, start - 1, "a name that ends with '", err);
		self->at = start + length + 1;
	} else {
		while (is_name_character(start[length]))
			length++;
		if (length == 0)
			return wrong(self, start, "the name of a field", err);
		self->at = start + length;
	}
	if (length > CONDITION_SUBJECT_MAX)
		return wrong(self, start, "a name of at most 16 bytes", err);
	memcpy(name, start, length);
	name[length] = 0;
	return BETON_OK;
}

static int parse_relation(parser *self, condition_relation *out, beton_error *err)
{
	static const struct {
		const char *sign;
		condition_relation relation;
	} signs[] = {{"<=", CONDITION_LESS_EQUAL}, {">=", CONDITION_GREATER_EQUAL}, {"==", CONDITION_EQUAL},
		     {"!=", CONDITION_NOT_EQUAL},  {"<", CONDITION_LESS},           {">", CONDITION_GREATER},
		     {"~", CONDITION_LIKE}};
	for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++)
		if (take(self, signs[i].sign, "")) {
			*out = signs[i].relation;
			return BETON_OK;
		}
	return wrong(self, self->at, "one of < <= > >= == != ~ in", err);
}

static int parse_text(parser *self, condition_value *out, beton_error *err)
{
	char quote = *self->at;
	const char *end = strchr(self->at + 1, quote);
	if (!end)
		return wrong(self, self->at, "a text that ends as it begins", err);
	out->text = strndup(self->at + 1, (size_t)(end - self->at - 1));
	if (!out->text)
		return bt_fail(err, BETON_NO_MEMORY, "condition '%s': out of memory", self->text);
	self->at = end + 1;
	return BETON_OK;
}

static int parse_number(parser *self, condition_value *out, beton_error *err)
{
	const char *start = self->at;
	char *end;
	char *real_end;
	errno = 0;
	out->integer = strtoll(start, &end, 10);
	out->whole = errno == 0 && end != start;
	out->real = strtod(start, &real_end);
	if (real_end == start || isnan(out->real))
		return wrong(self, start, "a number, or a text between two '", err);
	/* 5.0 and 1e3 are reals, whose comparison with an integer is no less exact. */
	if (real_end != end)
		out->whole = false;
	self->at = real_end;
	return BETON_OK;
}

/* Adds the next value. */
static int parse_value(parser *self, condition *to, beton_error *err)
{
	condition_value *values = reallocarray(to->values, to->num_values + 1, sizeof(*values));
	if (!values)
		return bt_fail(err, BETON_NO_MEMORY, "condition '%s': out of memory", self->text);
	to->values = values;
	condition_value *value = &values[to->num_values++];
	*value = (condition_value){0};
	skip_blanks(self);
	if (*self->at == '\'' || *self->at == '"')
		return parse_text(self, value, err);
	if (to->relation == CONDITION_LIKE)
		return wrong(self, self->at, "a pattern between two '", err);
	return parse_number(self, value, err);
}

/* The values after `in`. */
static int parse_values(parser *self, condition *to, beton_error *err)
{
	to->relation = CONDITION_EQUAL;
	if (!take(self, "(", ""))
		return wrong(self, self->at, "'(' and values with commas between them", err);
	int result = parse_value(self, to, err);
	while (result == BETON_OK && take(self, ",", ""))
		result = parse_value(self, to, err);
	if (result == BETON_OK && !take(self, ")", ""))
		result = wrong(self, self->at, "',' or ')'", err);
	return result;
}

/* A comparison, or its negation. */
static int parse_comparison(parser *self, condition **out, beton_error *err)
{
	condition *one = *out = make(CONDITION_COMPARISON, NULL, self, err);
	if (!one)
		return BETON_NO_MEMORY;
	int result = parse_name(self, one->name, err);
	if (result != BETON_OK)
		return result;
	if (take(self, "", "not")) {
		if (!take(self, "", "in"))
			return wrong(self, self->at, "'in'", err);
		*out = make(CONDITION_NOT, one, self, err);
		return *out ? parse_values(self, one, err) : BETON_NO_MEMORY;
	}
	if (take(self, "", "in"))
		return parse_values(self, one, err);
	result = parse_relation(self, &one->relation, err);
	return result == BETON_OK ? parse_value(self, one, err) : result;
}

static int parse_condition(parser *self, condition **out, beton_error *err);

static int parse_factor(parser *self, condition **out, beton_error *err)
{
	int result;
	skip_blanks(self);
	if (self->depth == DEPTH_MAX)
		return wrong(self, self->at, "fewer parentheses", err);
	if (take(self, "(", "")) {
		self->depth++;
		result = parse_condition(self, out, err);
		self->depth--;
		if (result == BETON_OK && !take(self, ")", ""))
			result = wrong(self, self->at, "'and', 'or' or ')'", err);
		return result;
	}
	/* A field may have the name `not`. */
	const char *start = self->at;
	if (take(self, "", "not") && !strchr("<>=!~", (skip_blanks(self), *self->at))) {
		self->depth++;
		*out = make(CONDITION_NOT, NULL, self, err);
		result = *out ? parse_factor(self, &(*out)->left, err) : BETON_NO_MEMORY;
		self->depth--;
		return result;
	}
	self->at = start;
	return parse_comparison(self, out, err);
}

static int parse_term(parser *self, condition **out, beton_error *err)
{
	int result = parse_factor(self, out, err);
	while (result == BETON_OK && take(self, "&&", "and")) {
		*out = make(CONDITION_AND, *out, self, err);
		result = *out ? parse_factor(self, &(*out)->right, err) : BETON_NO_MEMORY;
	}
	return result;
}

static int parse_condition(parser *self, condition **out, beton_error *err)
{
	int result = parse_term(self, out, err);
	while (result == BETON_OK && take(self, "||", "or")) {
		*out = make(CONDITION_OR, *out, self, err);
		result = *out ? parse_term(self, &(*out)->right, err) : BETON_NO_MEMORY;
	}
	return result;
}

int condition_parse(condition **all, const char *text, beton_error *err)
{
	parser self = {.text = text, .at = text};
	condition *parsed = NULL;
	int result = parse_condition(&self, &parsed, err);
	skip_blanks(&self);
	if (result == BETON_OK && *self.at)
		result = wrong(&self, self.at, "'and', 'or' or the end", err);
	if (result == BETON_OK && *all) {
		*all = make(CONDITION_AND, *all, &self, err);
		result = *all ? BETON_OK : BETON_NO_MEMORY;
		if (*all)
			(*all)->right = parsed;
		else
			condition_free(&parsed);
	} else if (result == BETON_OK) {
		*all = parsed;
	} else {
		condition_free(&parsed);
	}
	return result;
}

void condition_free(condition **all)
{
	condition *freed = *all;
	*all = NULL;
	/* `a and b and c ...` leans to the left, and may be long. */
	while (freed) {
		condition *left = freed->left;
		condition_free(&freed->right);
		for (size_t i = 0; i < freed->num_values; i++)
			free(freed->values[i].text);
		free(freed->values);
		free(freed);
		freed = left;
	}
}
