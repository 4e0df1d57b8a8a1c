/* SPDX-License-Identifier: Apache-2.0
 *
 * Every option as a row: its name and help, where its value is, what it may be, and whether a resumed run may change
 * it. */
#ifndef OPTIONS_OPTIONS_TABLE_H
#define OPTIONS_OPTIONS_TABLE_H

#include "options.h"
#include "options_constraints.h"

typedef enum option_kind {
	OPTION_GROUP, /* a heading of --help */
	OPTION_TEXT,
	OPTION_PATH,  /* a text; saved with the folder that it is relative to */
	OPTION_PATHS, /* run_files: one path, or several with commas between them; a backslash escapes a comma in a name
		       */
	OPTION_NAME,  /* a known name, or a path if it has a slash or the row's suffix */
	OPTION_WHOLE, /* int64_t */
	OPTION_TOKENS, /* lm_tokens */
	OPTION_SEED,   /* uint64_t */
	OPTION_REALS,  /* double [count] */
	OPTION_CHOICE,
	OPTION_FLAG,   /* bool; "yes" without a value */
	OPTION_SWITCH, /* a choice; "yes" without a value */
} option_kind;

/* How an option may change when a run is resumed. */
typedef enum option_change {
	OPTION_FREE,  /* may change: training does not depend on it, or it is compared elsewhere */
	OPTION_TOLD,  /* may change; the change is reported */
	OPTION_PLACE, /* the same, for places on a machine, which may differ between ranks; data is compared elsewhere
		       */
	OPTION_FIXED, /* cannot change */
	OPTION_SWITCHED, /* cannot change from 0 or to 0; other changes are reported */
} option_change;

typedef struct option_row {
	const char *name;
	const char *argument;
	const char *standard; /* default value; NULL: none */
	const char *text;     /* for --help and the manual page, without the default; %s: all possible values */
	/* Additional sentences for the manual page; NULL: none. Here and in text, backquotes mark what is typed
	 * literally. */
	const char *manual;
	option_kind kind;
	option_change change;
	size_t offset;
	double least, most;
	int count;                  /* number of reals */
	const char *const *choices; /* the index is the value */
	bool none;                  /* an empty text means none */
	bool of_kind;       /* a flag or one real number, whose default depends on --optimizer; standard: that of sgd */
	const char *suffix; /* of an OPTION_NAME; NULL: none */
	const char *alias;  /* another name; NULL: none */
	const char *fact;   /* its key in the metadata of weights, which --evaluate reads; NULL: none */
	/* For a text from a list elsewhere: the name at an index from 0, NULL at the end. NULL: any text. */
	const char *(*name_at)(int index);
	const option_constraint *constraints; /* of this option; the last one is OPTION_NO_MORE. NULL: none */
} option_row;

extern const option_row run_rows[];
extern const int run_row_count;

/* The row of a name without dashes; -1: no such option. */
int run_row_find(const char *name);

/* The possible value at an index from 0; NULL: no more, or the row has no list of values. */
const char *run_row_possible(const option_row *row, int index);

/* The row's text with its default, on one line, without the dashes; truncated to size. marks: keep the backquotes
 * around literals. */
void run_row_describe(const option_row *row, bool marks, char *out, size_t size);

/* Prints a recipe's options as on a command line, in lines that begin with indent. */
void run_recipe_print(FILE *out, const run_recipe *recipe, const char *indent, int columns);

/* Sets the option of a row; texts are borrowed. text NULL: a flag or switch without a value. INVALID_ARGUMENT: the
 * message names the option, the text and the possible values. */
int run_row_parse(const option_row *row, const char *text, run_options *options, beton_error *err);

/* The options as constraints see them. */
option_values run_options_values(const run_options *options);

/* A copy that lives as long as the options; NULL: no memory. */
const char *run_options_keep(run_options *options, const char *text);

/* The value in the form that run_row_parse accepts, malloc'ed; NULL: none. */
int run_row_text(const option_row *row, const run_options *options, char **out, beton_error *err);

/* Steps of reading options, shared by run_options_parse and run_options_resume. task: run_task, whose defaults these
 * are. */
int run_options_set_defaults(run_options *options, int task, beton_error *err);
int run_options_apply_arguments(run_options *options, int argc, char **argv, beton_error *err);
/* Drops options that the command line overrides under another name, or that have no effect with it. */
void run_options_drop_void(run_options *options);
/* Completes the options and checks them: constraints, and names. Call it when world_size is final. INVALID_ARGUMENT:
 * the message also says what of it the recipe has. */
int run_options_check(run_options *options, beton_error *err);
/* Applies the recipe of a run that begins. argv's must have been applied. */
int run_options_combine(run_options *options, int argc, char **argv, beton_error *err);

#endif
