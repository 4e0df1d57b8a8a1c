/* SPDX-License-Identifier: Apache-2.0
 *
 * Notes of a source about things that are not items: litter, and faults that belong to no single sample.
 */
#ifndef BETON_WRITE_NOTES_H
#define BETON_WRITE_NOTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#include "tools/beton-write/sources/name_list.h"

/* Files that were ignored. */
typedef struct passed_over {
	uint64_t count;
	char *first; /* the path of the first one, for the message; NULL: there is none, or no memory for it */
} passed_over;

/* Zero-initialise; source_notes_free. */
typedef struct source_notes {
	passed_over litter;
	passed_over beside;  /* files beside the class folders */
	beton_error *faults; /* with --on-error=skip: faults that are left out, except samples' faults */
	size_t num_faults;
	size_t capacity;
	name_list remarks; /* sentences about what the user may not have intended */
} source_notes;

/* Whether a file or folder with that name is litter: hidden, or left by Windows, macOS, a file system or a network
 * drive (Thumbs.db, desktop.ini, __MACOSX, lost+found, ...). */
bool name_is_litter(const char *name);

/* Whether a part of the path is litter; "." and ".." are not. */
bool path_is_litter(const char *path);

/* folder: NULL when name is the whole path. */
void passed_over_add(passed_over *self, const char *folder, const char *name);

/* Errors: NO_MEMORY. */
int source_notes_add_fault(source_notes *self, const beton_error *fault, beton_error *err);

void source_notes_free(source_notes *self);

#endif
