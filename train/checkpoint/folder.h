/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder that holds checkpoints: names, order, publishing by rename, removal. Knows nothing of their content. */
#ifndef DTRAIN_CHECKPOINT_FOLDER_H
#define DTRAIN_CHECKPOINT_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/checkpoint.h>

#define CHECKPOINT_STATE_FILE "state.json"
#define CHECKPOINT_MANIFEST_FILE "manifest.json"

/* "model.safetensors", "optimizer.safetensors": what there is of a set when nothing is sharded. */
extern const char *const dtrain__set_names[DTRAIN_CHECKPOINT_SETS];
extern const char *const dtrain__set_files[DTRAIN_CHECKPOINT_SETS];

/* Of a rank's part of a set the file of that index (from 0), of `count`:
 * "shard-00001-model-00001-of-00001.safetensors".
 */
#define CHECKPOINT_SHARD_NAME 80
void dtrain__shard_name(char name[CHECKPOINT_SHARD_NAME], int rank, int set, int index, int count);
/* Is it one of these names? */
bool dtrain__shard_name_is(const char *name);

/* Makes dir and its parents if missing. */
int dtrain__folder_make(const char *dir, beton_error *err);

/* The same, and removes what killed writers left, as far as it can be removed. A checkpoint whose replacement was cut
 * short gets its name back. */
int dtrain__folder_prepare(const char *dir, beton_error *err);

/* A new, empty temporary folder inside dir for that step. *path is malloc'ed. */
int dtrain__folder_begin(const char *dir, int64_t step, char **path, beton_error *err);

/* Syncs the temporary folder, gives it its final name, and syncs dir. If the name is taken, the two folders change
 * their names in one atomic step; in two steps where the file system cannot do that. */
int dtrain__folder_publish(const char *dir, int64_t step, const char *temporary, beton_error *err);

/* Removes a checkpoint's files and its folder, which has no final name any more. With other files in it, the folder
 * stays, as dir/left-step-<step>. What cannot be removed now, the next prepare tries again. */
void dtrain__folder_discard(const char *dir, const char *path, int64_t step);

/* Renames path to name, or where that is taken to name.2, name.3...; *out, malloc'ed, is what it became. */
int dtrain__folder_rename_unused(const char *path, const char *name, char **out, beton_error *err);

/* The steps of the checkpoints in dir, ascending, malloc'ed. NOT_FOUND: no such folder. */
int dtrain__folder_list(const char *dir, int64_t **steps, size_t *count, beton_error *err);

/* dir/step-<step>, malloc'ed; NULL when out of memory. */
char *dtrain__folder_path(const char *dir, int64_t step);

/* Removes the oldest ones until `keep` are left. */
int dtrain__folder_prune(const char *dir, int keep, beton_error *err);

#endif
