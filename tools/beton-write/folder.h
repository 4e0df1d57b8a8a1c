/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture files of a folder of class folders. */
#ifndef BETON_WRITE_FOLDER_H
#define BETON_WRITE_FOLDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#include "name_list.h"

typedef struct folder_file {
	char *path;
	uint32_t label;
} folder_file;

typedef struct folder_list {
	folder_file *files;
	size_t count;
	size_t capacity;
} folder_list;

/* What is to be written: class names in byte order, and the files in the order of class and name. */
typedef struct folder_plan {
	name_list classes;
	folder_list train;
	folder_list val;
	bool has_val;
} folder_plan;

/* Looks through root. With folders train and val in it these are the two sets, and train has the classes; else root
 * itself is the training set, of which val_fraction (0: none) of each class, evenly spread, becomes the validation set.
 * Symbolic links are followed, hidden files and folders left out. Errors: NOT_FOUND, ACCESS, IO, INVALID_ARGUMENT (no
 * classes, an empty class, something that is neither file nor folder), NO_MEMORY, CANCELLED (*interrupt became another
 * number than 0). The caller frees the plan, on failure too. */
int folder_plan_make(folder_plan *plan, const char *root, double val_fraction, const atomic_int *interrupt,
		     beton_error *err);
void folder_plan_free(folder_plan *plan);
void folder_list_free(folder_list *list);

#endif
