/* SPDX-License-Identifier: Apache-2.0
 *
 * Recipes: ways to train, as files of options. A line is an option as on the command line (`--lr 0.5`, `--lr=0.5`,
 * `--nesterov`), without quotes: the value goes to the end of the line. A # at the beginning of a line or after a blank
 * begins a comment. The comment at the top is the title, in one line, and notes. */
#ifndef OPTIONS_RECIPES_H
#define OPTIONS_RECIPES_H

#include <stdbool.h>

#include <beton/error.h>

#define RUN_RECIPE_BYTES_MAX (64 << 10)

typedef struct run_recipe_option {
	int line;          /* counted from 1 */
	const char *name;  /* without the dashes */
	const char *value; /* as on the command line; NULL: none */
} run_recipe_option;

typedef struct run_recipe {
	char *path;
	char *title; /* one line; empty: none */
	char *about; /* sentences; empty: none */
	run_recipe_option *options;
	int count;
	char *text; /* contains the names and values */
} run_recipe;

/* name: a file if it has a slash; else a recipe installed with the program. Free *out with run_recipe_free. Does not
 * check that the options exist. Errors: INVALID_ARGUMENT (no such recipe, or a line that is not an option: the message
 * names file, line and text), NOT_FOUND, IO, NO_MEMORY. */
int run_recipe_read(const char *name, run_recipe **out, beton_error *err);
void run_recipe_free(run_recipe **recipe);

/* The sorted names of the installed recipes, in an array that ends with NULL; free it with run_recipe_names_free. NULL:
 * no memory, or no recipes. */
char **run_recipe_names(void);
void run_recipe_names_free(char **names);

#endif
