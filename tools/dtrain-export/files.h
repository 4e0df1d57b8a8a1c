/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of an export by their names: FILE itself, or its parts and their index. */
#ifndef DTRAIN_EXPORT_FILES_H
#define DTRAIN_EXPORT_FILES_H

#include "tools/common/staging.h"

/* Existing files under the names of an export to `file`, in one file or in several. Zero-initialise; export_files_free.
 */
typedef struct export_files {
	char **paths; /* the index comes first */
	uint64_t count;
} export_files;

/* Errors: NO_MEMORY, output_check's for each file, and the system's. */
int export_files_find(export_files *self, const char *file, bool force, beton_error *err);
void export_files_free(export_files *self);

/* Gives the `count` files of an export to `file` their names, out of the folder, in place of all the old ones. */
int export_files_publish(export_files *old, staging *place, const char *file, int count, beton_error *err);

#endif
