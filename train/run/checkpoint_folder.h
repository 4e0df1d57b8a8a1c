/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder that holds checkpoints: names, order, publishing by rename, removal. Knows nothing of their content. */
#ifndef RUN_CHECKPOINT_FOLDER_H
#define RUN_CHECKPOINT_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

/* Makes dir (and its parents) if missing and removes what killed writers left. */
int checkpoint_folder_prepare(const char *dir, beton_error *err);

/* A new, empty temporary folder inside dir for that step. *path is malloc'ed. */
int checkpoint_folder_begin(const char *dir, int64_t step, char **path, beton_error *err);

/* Syncs the temporary folder, gives it its final name (in one atomic step even if that exists), and syncs dir. */
int checkpoint_folder_publish(const char *dir, int64_t step, const char *temporary, beton_error *err);

/* Removes a folder of plain files. */
int checkpoint_folder_remove(const char *path, beton_error *err);

/* The steps of the checkpoints in dir, ascending, malloc'ed. NOT_FOUND: no such folder. */
int checkpoint_folder_list(const char *dir, int64_t **steps, size_t *count, beton_error *err);

/* dir/step-<step>, malloc'ed; NULL when out of memory. */
char *checkpoint_folder_path(const char *dir, int64_t step);

/* Removes the oldest ones until `keep` are left. */
int checkpoint_folder_prune(const char *dir, int keep, beton_error *err);

#endif
