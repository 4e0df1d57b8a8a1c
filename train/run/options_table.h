/* SPDX-License-Identifier: Apache-2.0
 *
 * Every option as a row: its name and help, where its value is, what it may be, and whether a resumed run may change
 * it. */
#ifndef RUN_OPTIONS_TABLE_H
#define RUN_OPTIONS_TABLE_H

#include "options.h"

typedef enum option_kind {
	OPTION_GROUP, /* a heading of --help */
	OPTION_TEXT,
	OPTION_PATH,  /* a text; kept with the folder it is relative to */
	OPTION_PATHS, /* run_files, with commas between them, or one; a backslash in front of a comma that is in a name
		       */
	OPTION_NAME,  /* the name of something that is known, or a path where it has a slash */
	OPTION_WHOLE, /* int64_t */
	OPTION_SEED,  /* uint64_t */
	OPTION_REALS, /* double [count] */
	OPTION_CHOICE,
	OPTION_FLAG,   /* bool; alone it is "yes" */
	OPTION_SWITCH, /* a choice; alone it is "yes" */
} option_kind;

/* When a run is resumed, as what it was saved with. */
typedef enum option_change {
	OPTION_FREE,     /* nothing that is trained depends on it, or what does is compared by itself */
	OPTION_TOLD,     /* a change is named */
	OPTION_PLACE,    /* the same; what is where on a machine, which ranks may have different; data is compared by
			    itself */
	OPTION_FIXED,    /* cannot change */
	OPTION_SWITCHED, /* cannot change from 0 or to 0; other changes are named */
} option_change;

typedef struct option_row {
	const char *name;
	const char *argument;
	const char *standard; /* the value where none is given; NULL: there is none */
	const char *text;     /* for --help and the manual page, without the default; %s: all that is possible */
	/* What the manual page says besides, in sentences; NULL: nothing. Here and in text: `typed as it is`. */
	const char *manual;
	option_kind kind;
	option_change change;
	size_t offset;
	double least, most;
	int count;                  /* of reals */
	const char *const *choices; /* the index is the value */
	bool none;                  /* an empty text means that there is none */
	const char *alias;          /* another name; NULL */
	/* Of a text that is one of a list elsewhere: its names, from 0 on, and NULL; else NULL. */
	const char *(*name_at)(int index);
} option_row;

extern const option_row run_rows[];
extern const int run_row_count;

/* By name, without the dashes; -1: there is no such option. */
int run_row_find(const char *name);

/* What may be given for a row, from 0 on; NULL: no more, or it is no list. */
const char *run_row_possible(const option_row *row, int index);

/* The row's text with its default, on one line, without the dashes; cut to size. marks: with what stands around what is
 * typed as it is. */
void run_row_describe(const option_row *row, bool marks, char *out, size_t size);

/* A recipe's options as they would stand on a command line, in lines that begin with indent. */
void run_recipe_print(FILE *out, const run_recipe *recipe, const char *indent, int columns);

/* Sets the option of that row; texts are borrowed. text NULL: a flag or switch without a value.
 * INVALID_ARGUMENT: the message names the option, the text and what is possible. */
int run_row_parse(const option_row *row, const char *text, run_options *options, beton_error *err);

/* The value as run_row_parse takes it, malloc'ed; NULL: none. */
int run_row_text(const option_row *row, const run_options *options, char **out, beton_error *err);

/* The steps of reading options, for the two ways to do it. */
int run_options_set_defaults(run_options *options, beton_error *err);
int run_options_apply_arguments(run_options *options, int argc, char **argv, beton_error *err);
/* What is given once more in another way, or means nothing with what is given. */
void run_options_drop_void(run_options *options);
/* What goes together, and which names there are. */
int run_options_check(run_options *options, beton_error *err);
/* Of a run that begins, whose arguments were applied: its recipe, and the check. */
int run_options_combine(run_options *options, int argc, char **argv, beton_error *err);

#endif
