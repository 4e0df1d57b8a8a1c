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

/* "model", "optimizer", and their files if nothing is sharded: "model.safetensors", "optimizer.safetensors". */
extern const char *const dtrain__set_names[DTRAIN_CHECKPOINT_SETS];
extern const char *const dtrain__set_files[DTRAIN_CHECKPOINT_SETS];

/* Name of file `index` (from 0) of `count` with a rank's part of a set:
 * "shard-00001-model-00001-of-00001.safetensors". */
#define CHECKPOINT_SHARD_NAME 80
void dtrain__shard_name(char name[CHECKPOINT_SHARD_NAME], int rank, int set, int index, int count);
/* The numbers in a shard's name; all but count start at 0. */
typedef struct checkpoint_shard {
	int rank, set, index, count;
} checkpoint_shard;
/* False: not the name of a shard. */
bool dtrain__shard_name_parse(const char *name, checkpoint_shard *out);

/* Makes dir and its parents if they are missing. */
int dtrain__folder_make(const char *dir, beton_error *err);

/* The same, and removes what killed processes left, as far as possible. A checkpoint whose replacement was interrupted
 * gets its name back. */
int dtrain__folder_prepare(const char *dir, beton_error *err);

/* Makes a new, empty temporary folder inside dir for that step. *path is malloc'ed. */
int dtrain__folder_begin(const char *dir, int64_t step, char **path, beton_error *err);

/* Syncs the temporary folder, gives it its final name, and syncs dir. If the name is taken, the two names are exchanged
 * atomically, or in two steps if the file system cannot do that. */
int dtrain__folder_publish(const char *dir, int64_t step, const char *temporary, beton_error *err);

/* Removes a checkpoint's files and its folder, which no longer has a final name. If other files are in it, the folder
 * is kept as dir/left-step-<step>. The next prepare retries what could not be removed. */
void dtrain__folder_discard(const char *dir, const char *path, int64_t step);

/* Renames path to name or, if taken, to name.2, name.3...; *out, malloc'ed, is the new name. */
int dtrain__folder_rename_unused(const char *path, const char *name, char **out, beton_error *err);

/* Lists the steps of the checkpoints in dir, ascending, malloc'ed. NOT_FOUND: no such folder. */
int dtrain__folder_list(const char *dir, int64_t **steps, size_t *count, beton_error *err);

/* dir/step-<step>, malloc'ed; NULL: out of memory. */
char *dtrain__folder_path(const char *dir, int64_t step);

/* Makes dir/<name> a link to the checkpoint of that step, in one step. */
int dtrain__folder_link(const char *dir, int64_t step, const char *name, beton_error *err);

/* Removes all checkpoints but the newest `keep` and that of keep_step (0: none). */
int dtrain__folder_prune(const char *dir, int keep, int64_t keep_step, beton_error *err);

#endif
