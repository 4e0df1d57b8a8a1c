/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint_folder.h"

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

char *checkpoint_folder_path(const char *dir, int64_t step)
{
	return bt_format("%s/" STEP_PREFIX "%0*" PRId64, dir, STEP_DIGITS, step);
}

static int make_folders(char *path, beton_error *err)
{
	for (char *at = path + 1; *at; at++) {
		if (*at != '/')
			continue;
		*at = 0;
		int failed = mkdir(path, 0777) != 0 && errno != EEXIST;
		int error_number = errno;
		if (failed)
			bt_fail_errno(err, error_number, "%s: cannot create the folder", path);
		*at = '/';
		if (failed)
			return err ? err->code : BETON_IO;
	}
	struct stat status;
	if (mkdir(path, 0777) == 0)
		return bt_sync_parent(path, err);
	if (errno != EEXIST)
		return bt_fail_errno(err, errno, "%s: cannot create the folder", path);
	if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
		return bt_fail(err, BETON_NOT_FOUND, "%s: is not a folder", path);
	return BETON_OK;
}

int checkpoint_folder_remove(const char *path, beton_error *err)
{
	DIR *stream = opendir(path);
	if (!stream)
		return bt_fail_errno(err, errno, "%s: cannot open the folder", path);
	int result = BETON_OK;
	struct dirent *item;
	while (result == BETON_OK && (errno = 0, item = readdir(stream))) {
		if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(stream), item->d_name, 0) != 0)
			result = bt_fail_errno(err, errno, "%s/%s: cannot remove", path, item->d_name);
	}
	closedir(stream);
	if (result == BETON_OK && rmdir(path) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot remove", path);
	return result;
}

static int remove_leftovers(const char *dir, beton_error *err)
{
	DIR *stream = opendir(dir);
	if (!stream)
		return bt_fail_errno(err, errno, "%s: cannot open the folder", dir);
	int result = BETON_OK;
	struct dirent *item;
	while (result == BETON_OK && (errno = 0, item = readdir(stream))) {
		if (strncmp(item->d_name, TEMPORARY_PREFIX, strlen(TEMPORARY_PREFIX)) != 0)
			continue;
		char *path = bt_format("%s/%s", dir, item->d_name);
		result = path ? checkpoint_folder_remove(path, err)
			      : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
		free(path);
	}
	closedir(stream);
	return result;
}

int checkpoint_folder_prepare(const char *dir, beton_error *err)
{
	char *copy = *dir ? strdup(dir) : NULL;
	if (!copy)
		return bt_fail(err, *dir ? BETON_NO_MEMORY : BETON_INVALID_ARGUMENT, "checkpoint folder '%s'", dir);
	int result = make_folders(copy, err);
	free(copy);
	return result == BETON_OK ? remove_leftovers(dir, err) : result;
}

static char *temporary_path(const char *dir, const char *what, int64_t step)
{
	return bt_format("%s/" TEMPORARY_PREFIX "%s-%" PRId64 ".%ld.%llx", dir, what, step, (long)getpid(),
			 (unsigned long long)bt_now_ns());
}

int checkpoint_folder_begin(const char *dir, int64_t step, char **path, beton_error *err)
{
	*path = temporary_path(dir, "step", step);
	if (!*path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	if (mkdir(*path, 0777) == 0)
		return BETON_OK;
	int result = bt_fail_errno(err, errno, "%s: cannot create", *path);
	free(*path);
	*path = NULL;
	return result;
}

static int sync_folder(const char *path, beton_error *err)
{
	char *inside = bt_format("%s/.", path);
	if (!inside)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int result = bt_sync_parent(inside, err);
	free(inside);
	return result;
}

/* Puts the new folder where an older one of the same step stands; what was there ends under the temporary name. */
static int replace(const char *temporary, const char *final, beton_error *err)
{
	if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) != 0)
		return bt_fail_errno(err, errno, "%s: cannot replace the older checkpoint", final);
	return checkpoint_folder_remove(temporary, err);
}

int checkpoint_folder_publish(const char *dir, int64_t step, const char *temporary, beton_error *err)
{
	char *final = checkpoint_folder_path(dir, step);
	if (!final)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	int result = sync_folder(temporary, err);
	if (result == BETON_OK && rename(temporary, final) != 0) {
		if (errno == EEXIST || errno == ENOTEMPTY)
			result = replace(temporary, final, err);
		else
			result = bt_fail_errno(err, errno, "%s: cannot rename to the final name", final);
	}
	if (result == BETON_OK)
		result = bt_sync_parent(final, err);
	free(final);
	return result;
}

/* "step-" and digits alone; -1 for any other name. */
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

static int compare_steps(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a;
	int64_t y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

int checkpoint_folder_list(const char *dir, int64_t **steps, size_t *count, beton_error *err)
{
	*steps = NULL;
	*count = 0;
	DIR *stream = opendir(dir);
	if (!stream)
		return bt_fail_errno(err, errno, "%s: cannot open the folder", dir);
	int result = BETON_OK;
	struct dirent *item;
	while (result == BETON_OK && (errno = 0, item = readdir(stream))) {
		int64_t step = step_of(item->d_name);
		if (step < 0)
			continue;
		int64_t *grown = realloc(*steps, (*count + 1) * sizeof(**steps));
		if (!grown) {
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
			break;
		}
		*steps = grown;
		grown[(*count)++] = step;
	}
	if (result == BETON_OK && errno)
		result = bt_fail_errno(err, errno, "%s: cannot read the folder", dir);
	closedir(stream);
	if (*count)
		qsort(*steps, *count, sizeof(**steps), compare_steps);
	if (result != BETON_OK) {
		free(*steps);
		*steps = NULL;
	}
	return result;
}

static int remove_step(const char *dir, int64_t step, beton_error *err)
{
	char *path = checkpoint_folder_path(dir, step);
	char *temporary = temporary_path(dir, "old", step);
	int result = BETON_OK;
	if (!path || !temporary)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	/* First out of sight: a removal that is cut short must not leave half a checkpoint under a final name. */
	else if (rename(path, temporary) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot remove the old checkpoint", path);
	else
		result = checkpoint_folder_remove(temporary, err);
	free(path);
	free(temporary);
	return result;
}

int checkpoint_folder_prune(const char *dir, int keep, beton_error *err)
{
	int64_t *steps = NULL;
	size_t count = 0;
	int result = checkpoint_folder_list(dir, &steps, &count, err);
	for (size_t i = 0; result == BETON_OK && i + (size_t)keep < count; i++)
		result = remove_step(dir, steps[i], err);
	free(steps);
	return result;
}
