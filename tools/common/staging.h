/* SPDX-License-Identifier: Apache-2.0
 *
 * A hidden folder beside an output of several files: they are complete in there before the first of them appears. */
#ifndef TOOLS_STAGING_H
#define TOOLS_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/error.h>

/* Zero-initialise; staging_close. */
typedef struct staging {
	char *folder; /* its path; NULL: there is none */
	char *output; /* what it stands beside */
	int lock;     /* of the folder, or -1; says nothing while output is NULL */
} staging;

/* Removes what killed runs for the same output left, when their processes are gone; if one was killed while it gave its
 * files their names, they get what they had before. Before the first look at what stands at output. Errors: those of
 * the system, NO_MEMORY; files that could not be put back are left where they are. */
int staging_recover(const char *output, beton_error *err);

/* Makes the folder beside output, which may not be there yet. Errors: those of the system, NO_MEMORY. */
int staging_open(staging *self, const char *output, beton_error *err);

/* "dir/NAME" -> the path of NAME in the folder; NULL: no memory. The caller frees it. */
char *staging_path(const staging *self, const char *output);

/* Gives all `count` files of the folder their final names, which name(context, i) makes (new memory; NULL: no memory),
 * in place of what had these names. After an error the names have what they had before. Errors: those of the system,
 * NO_MEMORY; if only the sync of the folder failed, the new files stand there. */
int staging_publish(staging *self, char *(*name)(void *context, uint64_t i), void *context, uint64_t count,
		    beton_error *err);

/* Makes the folder itself what output names: nothing, an empty folder, or, with replace, any folder, which is removed
 * then. After an error output is what it was before. Errors: those of the system, NO_MEMORY. */
int staging_become_output(staging *self, bool replace, beton_error *err);

/* Removes the folder with all that is in it. What cannot be removed is left, and false returned. */
bool staging_close(staging *self);

#endif
