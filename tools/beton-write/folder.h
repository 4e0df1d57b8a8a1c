/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture files of a folder of class folders. */
#ifndef BETON_WRITE_FOLDER_H
#define BETON_WRITE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

typedef struct name_list {
	char **names;
	size_t count;
	size_t capacity;
} name_list;

typedef struct source_file {
	char *path;
	uint32_t label;
} source_file;

typedef struct source_list {
	source_file *files;
	size_t count;
	size_t capacity;
} source_list;

/* What is to be written: class names in byte order, and the files in the order of class and name. */
typedef struct source_plan {
	name_list classes;
	source_list train;
	source_list val;
	bool has_val;
} source_plan;

/* Looks through root. With folders train and val in it these are the two sets, and train has the classes; else root
 * itself is the training set, of which val_fraction (0: none) of each class, evenly spread, becomes the validation set.
 * Symbolic links are followed, hidden files and folders left out. Errors: NOT_FOUND, ACCESS, IO, INVALID_ARGUMENT (no
 * classes, an empty class, something that is neither file nor folder), NO_MEMORY. The caller frees the plan, on failure
 * too. */
int source_plan_make(source_plan *plan, const char *root, double val_fraction, beton_error *err);
void source_plan_free(source_plan *plan);

#endif
