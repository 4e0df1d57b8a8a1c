/* SPDX-License-Identifier: Apache-2.0
 *
 * Resolves the user's SOURCE: patterns, endings, kinds of files.
 */
#ifndef BETON_WRITE_PATHS_H
#define BETON_WRITE_PATHS_H

#include <stdbool.h>

#include "name_list.h"

/* Adds the files that argument names: itself if it exists, else what the pattern gives. {000..012} counts, with as many
 * digits as its first number; {a,b}, *, ? and [] are the shell's, and what *, ? and [] find is sorted. Errors:
 * NOT_FOUND, INVALID_ARGUMENT (more than a million files), NO_MEMORY. */
int paths_expand(const char *argument, name_list *paths, beton_error *err);

/* Guesses the pattern, for paths_expand, that a shell expanded to these names (at least one), or lists them if they are
 * few. NULL: no memory. The caller frees it. */
char *paths_pattern(char *const *names, size_t count);

/* Whether name ends with ending, in upper or lower case. */
bool path_ends_with(const char *name, const char *ending);

bool path_is_folder(const char *path);
bool path_exists(const char *path);

/* Whether both are there and one file, links followed. */
bool path_is_same_file(const char *one, const char *other);

/* Whether path, which need not exist, is in the folder or below it. Follows links in its parents. */
bool path_is_inside(const char *path, const char *folder);

/* The folder part of path ("." if it has none); NULL: no memory. The caller frees it. */
char *path_folder(const char *path);

/* Opens an unnamed file in the folder, which disappears when the program ends in any way. */
int path_open_unnamed(const char *folder, int *fd, beton_error *err);

#endif
