/* SPDX-License-Identifier: Apache-2.0 */
#include "suggest.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "system.h"

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static bool is_same(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* The number of letters to insert, remove, replace or swap with their neighbour, without regard to case. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
	size_t rows[3][BT_SUGGEST_MAX + 1];
	size_t *two_above = rows[0], *above = rows[1], *row = rows[2];
	for (size_t k = 0; k <= b_length; k++)
		row[k] = k;
	for (size_t i = 1; i <= a_length; i++) {
		size_t *oldest = two_above;
		two_above = above;
		above = row;
		row = oldest;
		row[0] = i;
		for (size_t k = 1; k <= b_length; k++) {
			row[k] = least(above[k - 1] + !is_same(a[i - 1], b[k - 1]), least(above[k], row[k - 1]) + 1);
			if (i > 1 && k > 1 && is_same(a[i - 1], b[k - 2]) && is_same(a[i - 2], b[k - 1]))
				row[k] = least(row[k], two_above[k - 2] + 1);
		}
	}
	return row[b_length];
}

/* The first letters of a name that mean it. */
enum { SHORTEST_BEGINNING = 3 };

static void begin(bt_suggestion *self, const char *word, size_t length)
{
	*self = (bt_suggestion){.word = word, .length = length};
	/* A third of the letters may be wrong: more would suggest what has nothing in common with the word. */
	self->distance = length > BT_SUGGEST_MAX ? 0 : length / 3 + 1 + (length == 2);
}

void bt_suggest_begin(bt_suggestion *self, const char *word)
{
	begin(self, word, strlen(word));
}

/* Names of the same thing: each program, library and paper has its own. */
static const char *const synonyms[][6] = {
	{"f16", "fp16", "float16", "half"},
	{"bf16", "bfloat16"},
	{"f32", "fp32", "float32", "float", "single"},
};

static bool is_one_of(const char *const *names, const char *word, size_t length)
{
	while (*names && (strncasecmp(*names, word, length) != 0 || (*names)[length]))
		names++;
	return *names != NULL;
}

static bool means(const bt_suggestion *self, const char *name)
{
	for (size_t i = 0; i < sizeof(synonyms) / sizeof(synonyms[0]); i++)
		if (is_one_of(synonyms[i], self->word, self->length) && is_one_of(synonyms[i], name, strlen(name)))
			return true;
	return false;
}

void bt_suggest_try(bt_suggestion *self, const char *name)
{
	size_t length = name ? strlen(name) : 0;
	if (self->distance == 0 || length == 0 || length > BT_SUGGEST_MAX)
		return;
	const bool same = means(self, name);
	const bool begins = !same && self->length >= SHORTEST_BEGINNING && length > self->length &&
			    strncasecmp(name, self->word, self->length) == 0;
	size_t found = same ? 0 : distance(self->word, self->length, name, length);
	/* The rest of a name may be long. */
	if (begins ? self->begins && found >= self->distance
		   : self->begins || found >= self->distance || found >= length)
		return;
	self->distance = found;
	self->begins = begins;
	memcpy(self->name, name, length + 1);
}

const char *bt_suggest_text(bt_suggestion *self)
{
	if (*self->name)
		snprintf(self->text, sizeof(self->text), "; did you mean '%s'?", self->name);
	return self->text;
}

const char *bt_suggest_of(bt_suggestion *self, const char *word, const char *const *names)
{
	bt_suggest_begin(self, word);
	while (*names)
		bt_suggest_try(self, *names++);
	return bt_suggest_text(self);
}

const char *bt_suggest_option(bt_suggestion *self, const char *argument, const struct option *options)
{
	bool is_long = strncmp(argument, "--", 2) == 0;
	const char *word = is_long ? argument + 2 : "";
	size_t length = strcspn(word, "=");
	begin(self, word, length);
	for (const struct option *one = options; one->name; one++) {
		/* An abbreviation of several options is not a misspelling. */
		if (strncmp(one->name, word, length) == 0)
			return "";
		bt_suggest_try(self, one->name);
	}
	if (*self->name)
		snprintf(self->text, sizeof(self->text), "; did you mean '--%s'?", self->name);
	return self->text;
}

int bt_parse_choice(const char *what, const char *text, const char *const *choices, int *out, beton_error *err)
{
	char list[256] = "";
	bt_suggestion like;
	for (int i = 0; choices[i]; i++) {
		if (strcmp(choices[i], text) == 0) {
			*out = i;
			return BETON_OK;
		}
		bt_append(list, sizeof(list), "%s%s", i ? ", " : "", choices[i]);
	}
	return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is not one of %s%s", what, text, list,
		       bt_suggest_of(&like, text, choices));
}
