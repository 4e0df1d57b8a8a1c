/* SPDX-License-Identifier: Apache-2.0
 *
 * What a source finds that is no item of it: files that nobody means, and faults that belong to no single sample. */
#ifndef BETON_WRITE_NOTES_H
#define BETON_WRITE_NOTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#include "name_list.h"

/* Files that are passed over. */
typedef struct passed_over {
	uint64_t count;
	char *first; /* the path of the first one, for the message; NULL: there is none, or no memory for it */
} passed_over;

/* Zero-initialise; source_notes_free. */
typedef struct source_notes {
	passed_over litter;
	passed_over beside;  /* files beside the class folders */
	beton_error *faults; /* what is left out with --on-error=skip, but for samples */
	size_t num_faults;
	size_t capacity;
	name_list remarks; /* sentences: what the user may not have meant */
} source_notes;

/* Whether a file or folder of that name is one that nobody means: hidden, or left behind by Windows, macOS, a file
 * system or a network drive (Thumbs.db, desktop.ini, __MACOSX, lost+found, ...). */
bool name_is_litter(const char *name);

/* Whether a part of the path is, "." and ".." aside. */
bool path_is_litter(const char *path);

/* folder: NULL when name is the whole path. */
void passed_over_add(passed_over *self, const char *folder, const char *name);

/* Errors: NO_MEMORY. */
int source_notes_add_fault(source_notes *self, const beton_error *fault, beton_error *err);

void source_notes_free(source_notes *self);

#endif
