/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"

#define BLANKS " \t\r"

/* ---- where they are ---- */

static bool is_folder(const char *path)
{
	struct stat info;
	return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Relative to the program's own folder, so that an installed tree can be moved; else the configured install folder.
 * NULL: no memory. */
static char *find_folder(void)
{
	char program[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
	program[length > 0 ? length : 0] = 0;
	char *slash = strrchr(program, '/');
	if (slash)
		*slash = 0;
	char *near = bt_format("%s/../share/dtrain/recipes", program);
	if (!near || (slash && is_folder(near)))
		return near;
	free(near);
	return strdup(DTRAIN_RECIPES);
}

static int is_name(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);
	return entry->d_name[0] != '.' && entry->d_name[length - 1] != '~';
}

char **run_recipe_names(void)
{
	struct dirent **entries = NULL;
	char *folder = find_folder();
	int count = folder ? scandir(folder, &entries, is_name, alphasort) : -1;
	char **names = count > 0 ? calloc((size_t)count + 1, sizeof(*names)) : NULL;
	for (int i = 0; i < count; i++) {
		if (names)
			names[i] = strdup(entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	free(folder);
	return names;
}

void run_recipe_names_free(char **names)
{
	for (char **name = names; name && *name; name++)
		free(*name);
	free(names);
}

static int fail_unknown(const char *name, beton_error *err)
{
	char list[256] = "";
	char **names = run_recipe_names();
	bt_suggestion like;
	bt_suggest_begin(&like, name);
	for (int i = 0; names && names[i]; i++) {
		bt_append(list, sizeof(list), "%s%s", i ? ", " : "", names[i]);
		bt_suggest_try(&like, names[i]);
	}
	run_recipe_names_free(names);
	return bt_fail(err, BETON_INVALID_ARGUMENT, "--recipe: '%s' is not one of %s%s", name, *list ? list : "none",
		       access(name, F_OK) == 0 ? "; the name of a file needs a slash, as in ./recipe"
					       : bt_suggest_text(&like));
}

static int find_file(const char *name, char **out, beton_error *err)
{
	char *folder = strchr(name, '/') ? NULL : find_folder();
	char *path = strchr(name, '/') ? strdup(name) : folder ? bt_format("%s/%s", folder, name) : NULL;
	free(folder);
	*out = NULL;
	if (!path)
		return bt_fail(err, BETON_NO_MEMORY, "--recipe: out of memory");
	if (!strchr(name, '/') && (name[0] == '.' || access(path, F_OK) != 0)) {
		free(path);
		return fail_unknown(name, err);
	}
	/* Removes ".." from the path relative to the program. */
	char *plain = strchr(name, '/') ? NULL : realpath(path, NULL);
	if (plain)
		free(path);
	*out = plain ? plain : path;
	return BETON_OK;
}

/* ---- what is in them ---- */

/* Removes blanks at both ends. */
static char *trim(char *text)
{
	text += strspn(text, BLANKS);
	size_t length = strlen(text);
	while (length > 0 && strchr(BLANKS, text[length - 1]))
		length--;
	text[length] = 0;
	return text;
}

static void cut_comment(char *line)
{
	for (char *at = line; (at = strchr(at, '#')); at++)
		if (at == line || strchr(BLANKS, at[-1])) {
			*at = 0;
			return;
		}
}

/* Adds a line of the leading comment. */
static int add_comment(run_recipe *recipe, const char *text, beton_error *err)
{
	bool first = !*recipe->title && !*recipe->about;
	char **end = first ? &recipe->title : &recipe->about;
	char *longer = bt_format("%s%s%s", *end, **end ? " " : "", text);
	if (!longer)
		return bt_fail(err, BETON_NO_MEMORY, "--recipe: out of memory");
	free(*end);
	*end = longer;
	return BETON_OK;
}

static int add_option(run_recipe *recipe, int number, char *line, beton_error *err)
{
	run_recipe_option *longer = realloc(recipe->options, ((size_t)recipe->count + 1) * sizeof(*longer));
	if (!longer)
		return bt_fail(err, BETON_NO_MEMORY, "--recipe: out of memory");
	recipe->options = longer;
	size_t length = strcspn(line, BLANKS "=");
	if (strncmp(line, "--", 2) != 0 || length == 2)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s:%d: '%s' is not an option: a line is --NAME, --NAME VALUE or # COMMENT",
			       recipe->path, number, line);
	char *value = line[length] ? trim(line + length + 1) : NULL;
	line[length] = 0;
	recipe->options[recipe->count++] = (run_recipe_option){.line = number, .name = line + 2, .value = value};
	return BETON_OK;
}

static int parse(run_recipe *recipe, beton_error *err)
{
	char *rest = recipe->text;
	bool top = true;
	int status = BETON_OK;
	for (int number = 1; rest && status == BETON_OK; number++) {
		char *line = strsep(&rest, "\n");
		if (top && *line == '#') {
			status = add_comment(recipe, trim(line + 1), err);
			continue;
		}
		top = false;
		cut_comment(line);
		line = trim(line);
		if (*line)
			status = add_option(recipe, number, line, err);
	}
	return status;
}

int run_recipe_read(const char *name, run_recipe **out, beton_error *err)
{
	*out = NULL;
	run_recipe *recipe = calloc(1, sizeof(*recipe));
	if (!recipe)
		return bt_fail(err, BETON_NO_MEMORY, "--recipe: out of memory");
	recipe->title = strdup("");
	recipe->about = strdup("");
	int status = recipe->title && recipe->about ? find_file(name, &recipe->path, err)
						    : bt_fail(err, BETON_NO_MEMORY, "--recipe: out of memory");
	if (status == BETON_OK) {
		status = bt_read_text(recipe->path, RUN_RECIPE_BYTES_MAX, &recipe->text, err);
		if (status != BETON_OK)
			bt_prefix(err, "--recipe");
	}
	if (status == BETON_OK)
		status = parse(recipe, err);
	if (status == BETON_OK)
		*out = recipe;
	else
		run_recipe_free(&recipe);
	return status;
}

void run_recipe_free(run_recipe **recipe)
{
	run_recipe *r = *recipe;
	if (!r)
		return;
	free(r->path);
	free(r->title);
	free(r->about);
	free(r->options);
	free(r->text);
	free(r);
	*recipe = NULL;
}
