/* SPDX-License-Identifier: Apache-2.0
 *
 * Recipes: published ways to train, as values of the options. */
#ifndef RUN_RECIPES_H
#define RUN_RECIPES_H

typedef struct run_recipe_option {
	const char *name;  /* without the dashes; NULL ends a list */
	const char *value; /* as on the command line; NULL: an option that takes none */
} run_recipe_option;

typedef struct run_recipe {
	const char *name;
	const char *text; /* for --help */
	const run_recipe_option *options;
} run_recipe;

/* NULL beyond the last. */
const run_recipe *run_recipe_at(int index);

#endif
