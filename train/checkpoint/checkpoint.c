/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/system.h"
#include "folder.h"
#include "manifest.h"
#include "ranks.h"
#include "state.h"

/* ---- the folder of checkpoints ---- */

int dtrain_checkpoint_prepare(const char *dir, beton_error *err)
{
	if (BT_MISSING(err, dir))
		return BETON_INVALID_ARGUMENT;
	char *probe = NULL;
	int status = dtrain__folder_prepare(dir, err);
	if (status == BETON_OK)
		status = dtrain__folder_begin(dir, 0, &probe, err);
	if (status == BETON_OK)
		dtrain__folder_discard(dir, probe, 0);
	free(probe);
	return status;
}

int dtrain_checkpoint_latest(const char *dir, int64_t before_step, char **path, int64_t *step, beton_error *err)
{
	if (BT_MISSING(err, dir))
		return BETON_INVALID_ARGUMENT;
	int64_t *steps = NULL;
	size_t count = 0;
	*path = NULL;
	int status = dtrain__folder_list(dir, &steps, &count, err);
	if (status != BETON_OK)
		return status;
	while (count > 0 && steps[count - 1] >= before_step)
		count--;
	if (count == 0) {
		status = bt_fail(err, BETON_NOT_FOUND, "%s: holds no checkpoint", dir);
	} else {
		*path = dtrain__folder_path(dir, steps[count - 1]);
		if (!*path)
			status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
		if (step)
			*step = steps[count - 1];
	}
	free(steps);
	return status;
}

int dtrain_checkpoint_set_aside(const char *path, beton_error *err)
{
	if (BT_MISSING(err, path))
		return BETON_INVALID_ARGUMENT;
	const char *slash = strrchr(path, '/');
	int folder = slash ? (int)(slash + 1 - path) : 0;
	char *name = bt_format("%.*sdamaged-%s", folder, path, path + folder);
	char *moved = NULL;
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int status = dtrain__folder_rename_unused(path, name, &moved, err);
	free(name);
	free(moved);
	return status;
}

/* ---- one checkpoint ---- */

static int open_state(dtrain_checkpoint *checkpoint, const char *path, uint64_t *hash, beton_error *err)
{
	checkpoint->path = strdup(path);
	if (!checkpoint->path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int status = dtrain__state_read(path, &checkpoint->state, &checkpoint->sharded, hash, err);
	if (status != BETON_OK)
		return status;
	checkpoint->text = json_dumps(checkpoint->state, JSON_COMPACT);
	return checkpoint->text ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
}

int dtrain_checkpoint_open(const char *path, const dtrain_checkpoint_ranks *ranks, dtrain_checkpoint **out,
			   beton_error *err)
{
	if (BT_MISSING(err, path, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));
	beton_error own = {0};
	uint64_t hash = 0;
	*out = NULL;
	if (!err)
		err = &own;
	int status = checkpoint ? open_state(checkpoint, path, &hash, err)
				: bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	status = dtrain__ranks_agree(ranks, hash, path, status, err);
	if (status == BETON_OK && ranks) {
		checkpoint->group = *ranks;
		checkpoint->ranks = &checkpoint->group;
	}
	if (status == BETON_OK)
		*out = checkpoint;
	else
		dtrain_checkpoint_close(&checkpoint);
	return status;
}

void dtrain_checkpoint_close(dtrain_checkpoint **checkpoint)
{
	if (!checkpoint)
		return;
	if (!*checkpoint)
		return;
	dtrain__index_free(&(*checkpoint)->index);
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++)
		free((*checkpoint)->listed[set]);
	json_decref((*checkpoint)->state);
	free((*checkpoint)->text);
	free((*checkpoint)->path);
	free(*checkpoint);
	*checkpoint = NULL;
}

const char *dtrain_checkpoint_state(const dtrain_checkpoint *checkpoint)
{
	if (!checkpoint)
		return NULL;
	return checkpoint->text;
}

int dtrain__checkpoint_open_file(const dtrain_checkpoint *checkpoint, const char *name, int *fd, char **path,
				 beton_error *err)
{
	*path = bt_format("%s/%s", checkpoint->path, name);
	*fd = -1;
	if (!*path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", checkpoint->path);
	*fd = open(*path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return *fd >= 0 ? BETON_OK : bt_fail_errno(err, errno, "%s: cannot open", *path);
}

static int read_whole(const char *path, int fd, uint64_t size, char **out, beton_error *err)
{
	if (size > CHECKPOINT_MANIFEST_BYTES_MAX)
		return bt_fail(err, BETON_FORMAT, "%s: %" PRIu64 " bytes, %" PRIu64 " are possible", path, size,
			       CHECKPOINT_MANIFEST_BYTES_MAX);
	*out = malloc(size + 1);
	if (!*out)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %" PRIu64 " bytes", path, size);
	ssize_t got = bt_pread_full(fd, *out, size, 0);
	if (got < 0)
		return bt_fail_errno(err, errno, "%s: cannot read", path);
	if ((uint64_t)got != size)
		return bt_fail(err, BETON_TRUNCATED, "%s: became shorter while it was read", path);
	return BETON_OK;
}

static int read_manifest(dtrain_checkpoint *checkpoint, beton_error *err)
{
	checkpoint_digest digest = {0};
	char *path = NULL, *text = NULL;
	int fd = -1;
	int status = dtrain__state_digest(checkpoint->path, checkpoint->state, CHECKPOINT_MANIFEST_FILE, &digest, err);
	if (status == BETON_OK)
		status = dtrain__checkpoint_open_file(checkpoint, CHECKPOINT_MANIFEST_FILE, &fd, &path, err);
	if (status == BETON_OK)
		status = dtrain__digest_check(&digest, path, fd, 0, 1, err);
	if (status == BETON_OK)
		status = read_whole(path, fd, digest.size, &text, err);
	if (status == BETON_OK)
		status = dtrain__index_from_manifest(&checkpoint->index, path, text, digest.size, err);
	if (fd >= 0)
		close(fd);
	dtrain__digest_free(&digest);
	free(text);
	free(path);
	return status;
}

/* For a file with a single checksum: one rank reads and checks all of it while the others wait. */
static int check_whole(dtrain_checkpoint *checkpoint, int set, size_t *file, beton_error *err)
{
	const char *name = dtrain__set_files[set];
	char *path = NULL;
	int fd = -1;
	int status = dtrain__index_add_file(&checkpoint->index, name, err);
	if (status != BETON_OK)
		return status;
	*file = checkpoint->index.file_count - 1;
	index_file *added = &checkpoint->index.files[*file];
	added->checked = true;
	status = dtrain__state_digest(checkpoint->path, checkpoint->state, name, &added->digest, err);
	if (status == BETON_OK &&
	    set % dtrain__ranks_size(checkpoint->ranks) == dtrain__ranks_self(checkpoint->ranks)) {
		status = dtrain__checkpoint_open_file(checkpoint, name, &fd, &path, err);
		if (status == BETON_OK)
			status = dtrain__digest_check(&added->digest, path, fd, 0, 1, err);
	}
	if (fd >= 0)
		close(fd);
	free(path);
	return status;
}

int dtrain__checkpoint_know(dtrain_checkpoint *checkpoint, const bool wanted[DTRAIN_CHECKPOINT_SETS], beton_error *err)
{
	size_t files[DTRAIN_CHECKPOINT_SETS] = {0};
	bool missing[DTRAIN_CHECKPOINT_SETS], any = false;
	int status = BETON_OK;
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++) {
		missing[set] = wanted[set] && !checkpoint->index.sets[set].known;
		any = any || missing[set];
	}
	if (!any)
		return BETON_OK;
	if (checkpoint->sharded) {
		status = read_manifest(checkpoint, err);
		return dtrain__ranks_agree(checkpoint->ranks, 0, "", status, err);
	}
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS && status == BETON_OK; set++)
		if (missing[set])
			status = check_whole(checkpoint, set, &files[set], err);
	status = dtrain__ranks_agree(checkpoint->ranks, 0, "", status, err);
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS && status == BETON_OK; set++)
		if (missing[set])
			status = dtrain__index_from_file(&checkpoint->index, set, checkpoint->path, files[set], err);
	return dtrain__ranks_agree(checkpoint->ranks, 0, "", status, err);
}

int dtrain_checkpoint_tensors(dtrain_checkpoint *checkpoint, enum dtrain_checkpoint_set set,
			      const dtrain_checkpoint_tensor **tensors, size_t *count, beton_error *err)
{
	if (BT_MISSING(err, checkpoint, count))
		return BETON_INVALID_ARGUMENT;
	bool wanted[DTRAIN_CHECKPOINT_SETS] = {false};
	beton_error own = {0};
	if (!err)
		err = &own;
	wanted[set] = true;
	int status = dtrain__checkpoint_know(checkpoint, wanted, err);
	if (status != BETON_OK)
		return status;
	const struct index_set *known = &checkpoint->index.sets[set];
	if (!checkpoint->listed[set])
		checkpoint->listed[set] = calloc(known->count + 1, sizeof(*checkpoint->listed[set]));
	if (!checkpoint->listed[set])
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", checkpoint->path);
	for (size_t i = 0; i < known->count; i++)
		checkpoint->listed[set][i] = (dtrain_checkpoint_tensor){.name = known->tensors[i].name,
									.dtype = known->tensors[i].type,
									.shape = known->tensors[i].shape};
	*tensors = checkpoint->listed[set];
	*count = known->count;
	return BETON_OK;
}
