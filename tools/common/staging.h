/* SPDX-License-Identifier: Apache-2.0
 *
 * A hidden folder beside an output of several files: all files are complete in it before the first one appears.
 */
#ifndef TOOLS_STAGING_H
#define TOOLS_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/error.h>

/* Zero-initialise; staging_close. */
typedef struct staging {
	char *folder; /* its path; NULL: there is none */
	char *output; /* the output beside it */
	int lock;     /* of the folder, or -1; says nothing while output is NULL */
} staging;

/* Removes the files of killed runs for the same output. If one was killed while it renamed its files, restores the old
 * files first. Call it before looking at output. Errors: NO_MEMORY, and the system's; files that could not be put back
 * are left where they are. */
int staging_recover(const char *output, beton_error *err);

/* Makes the folder beside output, which may not be there yet. Errors: NO_MEMORY, and the system's. */
int staging_open(staging *self, const char *output, beton_error *err);

/* "dir/NAME" -> the path of NAME in the folder; NULL: no memory. The caller frees it. */
char *staging_path(const staging *self, const char *output);

/* Paths beside the output: name(context, i) returns new memory, or NULL: out of memory. */
typedef struct staging_names {
	char *(*name)(void *context, uint64_t i);
	void *context;
	uint64_t count;
} staging_names;

/* Renames all files of the folder to `made`, in that order, replacing existing files. `gone` (NULL: none) are existing
 * files that are taken away before, in that order, and put back after all others after an error. So a reader that finds
 * the others through the first of them never finds old and new ones together. After an error the old files are back.
 * Errors: NO_MEMORY, and the system's; if only the sync of the folder failed, the new files stay. */
int staging_publish(staging *self, const staging_names *made, const staging_names *gone, beton_error *err);

/* Renames the folder to output, which must not exist, must be empty or, with replace, may be any folder, which is
 * removed. After an error output is unchanged. Errors: NO_MEMORY, and the system's. */
int staging_become_output(staging *self, bool replace, beton_error *err);

/* Removes the folder with its content. False: something could not be removed. */
bool staging_close(staging *self);

#endif
