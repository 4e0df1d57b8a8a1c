/* SPDX-License-Identifier: Apache-2.0
 *
 * The known name that is most like a misspelt one. */
#ifndef BT_SUGGEST_H
#define BT_SUGGEST_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

struct option;

/* Longer names are neither corrected nor suggested. */
enum { BT_SUGGEST_MAX = 63 };

typedef struct bt_suggestion {
	const char *word; /* borrowed */
	size_t length;    /* of the part of word that counts */
	size_t distance;  /* of name */
	bool begins;      /* name begins with word */
	char name[BT_SUGGEST_MAX + 1];
	char text[BT_SUGGEST_MAX + 32];
} bt_suggestion;

/* Begins with a word that none of the names is. */
void bt_suggest_begin(bt_suggestion *self, const char *word);

/* Considers a name, which is copied. One that begins with the word comes first. NULL is none. */
void bt_suggest_try(bt_suggestion *self, const char *name);

/* "; did you mean 'NAME'?", or "" if no name is like the word. Valid as long as *self. */
const char *bt_suggest_text(bt_suggestion *self);

/* The same for one of several names, ended by NULL. */
const char *bt_suggest_of(bt_suggestion *self, const char *word, const char *const *names);

/* The same for an argument, such as "--colour=red", that getopt_long found unknown: "; did you mean '--color'?". */
const char *bt_suggest_option(bt_suggestion *self, const char *argument, const struct option *options);

/* The index of text in choices, ended by NULL. Errors: INVALID_ARGUMENT, whose message has `what`, all choices and the
 * choice most like the text. */
int bt_parse_choice(const char *what, const char *text, const char *const *choices, int *out, beton_error *err);

#endif
