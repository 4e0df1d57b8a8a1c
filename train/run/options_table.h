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
	const char *text; /* for --help */
	option_kind kind;
	option_change change;
	size_t offset;
	double least, most;
	int count;                  /* of reals */
	const char *const *choices; /* the index is the value */
	bool none;                  /* an empty text means that there is none */
	const char *alias;          /* another name; NULL */
} option_row;

extern const option_row run_rows[];
extern const int run_row_count;

/* By name, without the dashes; -1: there is no such option. */
int run_row_find(const char *name);

/* Sets the option of that row; texts are borrowed. text NULL: a flag or switch without a value. INVALID_ARGUMENT: the
 * message names the option, the text and what is possible. */
int run_row_parse(const option_row *row, const char *text, run_options *options, beton_error *err);

/* The value as run_row_parse takes it, malloc'ed; NULL: none. */
int run_row_text(const option_row *row, const run_options *options, char **out, beton_error *err);

/* The steps of reading options, for the two ways to do it. */
void run_options_set_defaults(run_options *options);
int run_options_apply_arguments(run_options *options, int argc, char **argv, beton_error *err);
/* What is given once more in another way, or means nothing with what is given. */
void run_options_drop_void(run_options *options);
/* What goes together, and which names there are. */
int run_options_check(run_options *options, beton_error *err);
/* Of a run that begins, whose arguments were applied: its recipe, and the check. */
int run_options_combine(run_options *options, int argc, char **argv, beton_error *err);

#endif
