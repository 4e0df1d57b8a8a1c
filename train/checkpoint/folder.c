/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/system.h"

#define TEMPORARY_PREFIX ".tmp-"
#define STEP_PREFIX "step-"
#define STEP_DIGITS 12
#define REPLACED_PREFIX ".replaced-"
#define LEFT_PREFIX "left-"
#define UNUSED_NAMES 100 /* limit of attempts before an error */

const char *const dtrain__set_names[] = {"model", "optimizer"};
const char *const dtrain__set_files[] = {"model.safetensors", "optimizer.safetensors"};

void dtrain__shard_name(char name[CHECKPOINT_SHARD_NAME], int rank, int set, int index, int count)
{
	snprintf(name, CHECKPOINT_SHARD_NAME, "shard-%05d-%s-%05d-of-%05d.safetensors", rank + 1,
		 dtrain__set_names[set], index + 1, count);
}

bool dtrain__shard_name_parse(const char *name, checkpoint_shard *out)
{
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++) {
		char format[64], exact[CHECKPOINT_SHARD_NAME];
		int rank, index, count;
		snprintf(format, sizeof(format), "shard-%%9d-%s-%%9d-of-%%9d", dtrain__set_names[set]);
		if (sscanf(name, format, &rank, &index, &count) != 3 || rank < 1 || index < 1 || index > count)
			continue;
		*out = (checkpoint_shard){rank - 1, set, index - 1, count};
		dtrain__shard_name(exact, out->rank, out->set, out->index, out->count);
		if (strcmp(name, exact) == 0)
			return true;
	}
	return false;
}

/* Length without trailing slashes. */
static int length_of(const char *dir)
{
	size_t length = strlen(dir);
	while (length > 0 && dir[length - 1] == '/')
		length--;
	return (int)length;
}

static char *named_path(const char *dir, const char *prefix, int64_t step)
{
	return bt_format("%.*s/%s" STEP_PREFIX "%0*" PRId64, length_of(dir), dir, prefix, STEP_DIGITS, step);
}

char *dtrain__folder_path(const char *dir, int64_t step)
{
	return named_path(dir, "", step);
}

static int make_folders(const char *path, beton_error *err)
{
	int result = bt_make_parents(path, err);
	if (result != BETON_OK)
		return result;
	struct stat status;
	if (mkdir(path, 0777) == 0)
		return bt_sync_parent(path, err);
	if (errno != EEXIST)
		return bt_fail_errno(err, errno, "%s: cannot create the folder", path);
	if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
		return bt_fail(err, BETON_NOT_FOUND, "%s: is not a folder", path);
	return BETON_OK;
}

/* True for files that belong to a checkpoint; others are never removed. */
static bool is_file_of_ours(const char *name)
{
	checkpoint_shard shard;
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++)
		if (strcmp(dtrain__set_files[set], name) == 0)
			return true;
	return strcmp(name, CHECKPOINT_STATE_FILE) == 0 || strcmp(name, CHECKPOINT_MANIFEST_FILE) == 0 ||
	       dtrain__shard_name_parse(name, &shard);
}

static bool is_ours(const char *name)
{
	/* NFS clients rename removed files that are still open to ".nfs..."; they disappear when closed. */
	return is_file_of_ours(name) || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
	       strncmp(name, ".nfs", 4) == 0;
}

/* True if the folder contains anything that does not belong to a checkpoint. */
static bool has_strangers(const char *path)
{
	DIR *stream = opendir(path);
	struct dirent *item;
	bool found = false;
	if (!stream)
		return false;
	while (!found && (item = readdir(stream)))
		found = !is_ours(item->d_name);
	closedir(stream);
	return found;
}

int dtrain__folder_rename_unused(const char *path, const char *name, char **out, beton_error *err)
{
	int status = BETON_EXISTS;
	*out = NULL;
	for (int attempt = 1; status == BETON_EXISTS && attempt < UNUSED_NAMES; attempt++) {
		char *unused = attempt == 1 ? strdup(name) : bt_format("%s.%d", name, attempt);
		if (!unused)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
		if (rename(path, unused) == 0)
			status = bt_sync_parent(unused, err);
		else if (errno == ENOTEMPTY || errno == EEXIST)
			status = bt_fail_errno(err, EEXIST, "%s", unused);
		else
			status = bt_fail_errno(err, errno, "%s: cannot be renamed to %s", path, unused);
		if (status == BETON_OK)
			*out = unused;
		else
			free(unused);
	}
	return status;
}

/* Removes files as far as possible. Repeats, because reading a folder while files are removed may skip others. */
static void unlink_files(const char *path)
{
	for (bool removed = true; removed;) {
		DIR *stream = opendir(path);
		struct dirent *item;
		if (!stream)
			return;
		removed = false;
		while ((item = readdir(stream)))
			if (is_file_of_ours(item->d_name) && unlinkat(dirfd(stream), item->d_name, 0) == 0)
				removed = true;
		closedir(stream);
	}
}

void dtrain__folder_discard(const char *dir, const char *path, int64_t step)
{
	char *visible = has_strangers(path) ? named_path(dir, LEFT_PREFIX, step) : NULL;
	char *moved = NULL;
	if (visible)
		dtrain__folder_rename_unused(path, visible, &moved, NULL);
	unlink_files(moved ? moved : path);
	if (!visible)
		rmdir(path);
	free(visible);
	free(moved);
}

/* The step of a checkpoint that a killed process left while it was written or removed; -1 for any other name. */
static int64_t leftover_step(const char *name)
{
	static const char *const forms[] = {TEMPORARY_PREFIX "step-%" SCNd64 ".%*[0-9].%*[0-9a-f]%n",
					    TEMPORARY_PREFIX "old-%" SCNd64 ".%*[0-9].%*[0-9a-f]%n"};
	for (int i = 0; i < 2; i++) {
		int64_t step = -1;
		int length = 0;
		if (sscanf(name, forms[i], &step, &length) == 1 && length && !name[length] && step >= 0)
			return step;
	}
	return -1;
}

/* The step of "step-" and digits; -1 for any other name. */
static int64_t step_of(const char *name)
{
	uint64_t step;
	if (strncmp(name, STEP_PREFIX, strlen(STEP_PREFIX)) != 0)
		return -1;
	const char *digits = name + strlen(STEP_PREFIX);
	if (strlen(digits) < STEP_DIGITS || bt_parse_u64("step", digits, 0, INT64_MAX, &step, NULL) != BETON_OK)
		return -1;
	return (int64_t)step;
}

static int64_t replaced_step(const char *name)
{
	return strncmp(name, REPLACED_PREFIX, strlen(REPLACED_PREFIX)) == 0 ? step_of(name + strlen(REPLACED_PREFIX))
									    : -1;
}

/* Handles a checkpoint that was renamed to be replaced: it gets its name back if the replacement is missing. */
static int restore(const char *dir, const char *path, int64_t step, beton_error *err)
{
	char *final = dtrain__folder_path(dir, step);
	int status = BETON_OK;
	if (!final)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	if (access(final, F_OK) == 0)
		dtrain__folder_discard(dir, path, step);
	else if (rename(path, final) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot be renamed to %s", path, final);
	else
		status = bt_sync_parent(final, err);
	free(final);
	return status;
}

static int tidy(const char *dir, beton_error *err)
{
	DIR *stream = opendir(dir);
	if (!stream)
		return bt_fail_errno(err, errno, "%s: cannot open the folder", dir);
	int status = BETON_OK;
	struct dirent *item;
	while (status == BETON_OK && (errno = 0, item = readdir(stream))) {
		int64_t leftover = leftover_step(item->d_name), replaced = replaced_step(item->d_name);
		if (leftover < 0 && replaced < 0)
			continue;
		char *path = bt_format("%s/%s", dir, item->d_name);
		if (!path)
			status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
		else if (replaced >= 0)
			status = restore(dir, path, replaced, err);
		else
			dtrain__folder_discard(dir, path, leftover);
		free(path);
	}
	closedir(stream);
	return status;
}

int dtrain__folder_make(const char *dir, beton_error *err)
{
	char *copy = *dir ? strdup(dir) : NULL;
	if (!copy)
		return bt_fail(err, *dir ? BETON_NO_MEMORY : BETON_INVALID_ARGUMENT, "checkpoint folder '%s'", dir);
	int status = make_folders(copy, err);
	free(copy);
	return status;
}

int dtrain__folder_prepare(const char *dir, beton_error *err)
{
	int status = dtrain__folder_make(dir, err);
	return status == BETON_OK ? tidy(dir, err) : status;
}

static char *temporary_path(const char *dir, const char *what, int64_t step)
{
	return bt_format("%.*s/" TEMPORARY_PREFIX "%s-%" PRId64 ".%ld.%llx", length_of(dir), dir, what, step,
			 (long)getpid(), (unsigned long long)bt_now_ns());
}

int dtrain__folder_begin(const char *dir, int64_t step, char **path, beton_error *err)
{
	*path = temporary_path(dir, "step", step);
	if (!*path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	if (mkdir(*path, 0777) == 0)
		return BETON_OK;
	int status = bt_fail_errno(err, errno, "%s: cannot create", *path);
	free(*path);
	*path = NULL;
	return status;
}

static int sync_folder(const char *path, beton_error *err)
{
	char *inside = bt_format("%s/.", path);
	if (!inside)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int status = bt_sync_parent(inside, err);
	free(inside);
	return status;
}

/* NFS and FUSE cannot exchange two names. */
static bool is_refused(int error_number)
{
	return error_number == EINVAL || error_number == ENOSYS || error_number == EOPNOTSUPP || error_number == EPERM;
}

/* The older one is renamed first: if the process is killed in between, tidy() restores it. */
static int replace_in_two(const char *dir, int64_t step, const char *temporary, const char *final, beton_error *err)
{
	char *aside = named_path(dir, REPLACED_PREFIX, step);
	int status = BETON_OK;
	if (!aside)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	if (rename(final, aside) != 0) {
		status = bt_fail_errno(err, errno, "%s: cannot be renamed to %s", final, aside);
	} else if (rename(temporary, final) != 0) {
		status = bt_fail_errno(err, errno, "%s: cannot rename to the final name", final);
		rename(aside, final); /* on failure, the next save does this */
	} else {
		status = bt_sync_parent(final, err);
	}
	/* The new checkpoint is on disk. */
	if (status == BETON_OK)
		dtrain__folder_discard(dir, aside, step);
	free(aside);
	return status;
}

/* Replaces an older checkpoint of the same step with the new folder. */
static int replace(const char *dir, int64_t step, const char *temporary, const char *final, beton_error *err)
{
	if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
		int status = bt_sync_parent(final, err);
		if (status == BETON_OK)
			dtrain__folder_discard(dir, temporary, step);
		return status;
	}
	if (is_refused(errno))
		return replace_in_two(dir, step, temporary, final, err);
	return bt_fail_errno(err, errno, "%s: cannot replace the older checkpoint", final);
}

int dtrain__folder_publish(const char *dir, int64_t step, const char *temporary, beton_error *err)
{
	char *final = dtrain__folder_path(dir, step);
	if (!final)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	int status = sync_folder(temporary, err);
	if (status == BETON_OK && rename(temporary, final) != 0) {
		if (errno == EEXIST || errno == ENOTEMPTY)
			status = replace(dir, step, temporary, final, err);
		else
			status = bt_fail_errno(err, errno, "%s: cannot rename to the final name", final);
	}
	if (status == BETON_OK)
		status = bt_sync_parent(final, err);
	free(final);
	return status;
}

static int compare_steps(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a;
	int64_t y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

int dtrain__folder_list(const char *dir, int64_t **steps, size_t *count, beton_error *err)
{
	*steps = NULL;
	*count = 0;
	DIR *stream = opendir(dir);
	if (!stream)
		return bt_fail_errno(err, errno, "%s: cannot open the folder", dir);
	int status = BETON_OK;
	struct dirent *item;
	while (status == BETON_OK && (errno = 0, item = readdir(stream))) {
		int64_t step = step_of(item->d_name);
		if (step < 0)
			continue;
		int64_t *grown = realloc(*steps, (*count + 1) * sizeof(**steps));
		if (!grown) {
			status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
			break;
		}
		*steps = grown;
		grown[(*count)++] = step;
	}
	if (status == BETON_OK && errno)
		status = bt_fail_errno(err, errno, "%s: cannot read the folder", dir);
	closedir(stream);
	if (*count)
		qsort(*steps, *count, sizeof(**steps), compare_steps);
	if (status != BETON_OK) {
		free(*steps);
		*steps = NULL;
	}
	return status;
}

static int remove_step(const char *dir, int64_t step, beton_error *err)
{
	char *path = dtrain__folder_path(dir, step);
	char *temporary = temporary_path(dir, "old", step);
	int status = BETON_OK;
	/* Renamed first: an interrupted removal must not leave half a checkpoint under a final name. */
	if (!path || !temporary)
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	else if (rename(path, temporary) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot remove the old checkpoint", path);
	else
		dtrain__folder_discard(dir, temporary, step);
	free(path);
	free(temporary);
	return status;
}

int dtrain__folder_link(const char *dir, int64_t step, const char *name, beton_error *err)
{
	char *path = dtrain__folder_path(dir, step);
	char *link = bt_format("%s/%s", dir, name), *temporary = bt_format("%s/.%s", dir, name);
	int status = BETON_OK;
	if (!path || !link || !temporary)
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	else if ((unlink(temporary) != 0 && errno != ENOENT) || symlink(strrchr(path, '/') + 1, temporary) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot make the link", temporary);
	else if (rename(temporary, link) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot make the link", link);
	else
		status = bt_sync_parent(link, err);
	free(path);
	free(link);
	free(temporary);
	return status;
}

int dtrain__folder_prune(const char *dir, int keep, int64_t keep_step, beton_error *err)
{
	int64_t *steps = NULL;
	size_t count = 0;
	int status = dtrain__folder_list(dir, &steps, &count, err);
	for (size_t i = 0; status == BETON_OK && i + (size_t)keep < count; i++)
		if (steps[i] != keep_step)
			status = remove_step(dir, steps[i], err);
	free(steps);
	return status;
}

/* Whether the folder that the path names is a checkpoint. */
static bool is_beside_state(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *state = bt_format("%.*s" CHECKPOINT_STATE_FILE, slash ? (int)(slash + 1 - path) : 0, path);
	bool found = state && access(state, F_OK) == 0;
	free(state);
	return found;
}

bool dtrain_checkpoint_holds(const char *path)
{
	if (!path)
		return false;
	char *whole = realpath(path, NULL);
	bool found = is_beside_state(path) || (whole && is_beside_state(whole));
	free(whole);
	return found;
}
