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
#include "source.h"
#include "tools/beton-write/notes.h"

typedef struct folder_file {
	char *path;
	uint32_t label;
} folder_file;

typedef struct folder_list {
	folder_file *files;
	size_t count;
	size_t capacity;
} folder_list;

/* The data to write: class names in byte order, and the files in the order of class and name. */
typedef struct folder_plan {
	name_list classes;
	folder_list sets[NUM_SETS];
	bool has[NUM_SETS];
	bool flat;          /* without classes */
	source_notes notes; /* of all */
} folder_plan;

/* The parameters of a search. */
typedef struct folder_request {
	const char *root;
	bool holds_out;   /* a validation set is made of the training set */
	bool wants_label; /* else a folder of pictures without class folders is accepted */
	bool skip;        /* --on-error=skip */
	const atomic_int *interrupt;
} folder_request;

/* Searches root. If it has a folder train and one of val, valid, validation and test, these are the sets; test is the
 * validation set if there is, and will be (holds_out), none besides. train defines the classes. Otherwise root is the
 * training set; so is train, if it has class folders and nothing is beside it. Symbolic links are followed; litter is
 * counted and left out. Errors are entries of a class folder that are not files, dangling links, and classes that are
 * empty or unreadable. With skip, such a class keeps its label and the fault is noted, and such an entry is listed as a
 * file, which fails when it is read. Errors: NOT_FOUND, ACCESS, IO, INVALID_ARGUMENT, NO_MEMORY, CANCELLED (*interrupt
 * became another number than 0). The caller frees the plan, on failure too. */
int folder_plan_make(folder_plan *plan, const folder_request *request, beton_error *err);
void folder_plan_free(folder_plan *plan);
void folder_list_free(folder_list *list);

#endif
