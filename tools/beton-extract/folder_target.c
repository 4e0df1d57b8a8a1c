/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder that is filled under a temporary name beside its place. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "layout.h"
#include "target.h"
#include "tools/common/staging.h"

typedef struct folder_target {
	extract_target base;
	staging place;
	bool replace; /* what was extracted there before */
	int fd;       /* of the temporary folder */
	int group_fd; /* of the folder in it that was used last, or -1 */
	char *group;
} folder_target;

static int use_group(folder_target *self, const char *group, beton_error *err)
{
	const char *output = self->place.output;
	if (self->group && strcmp(self->group, group) == 0)
		return BETON_OK;
	if (self->group_fd >= 0)
		close(self->group_fd);
	free(self->group);
	self->group_fd = -1;
	self->group = strdup(group);
	if (!self->group)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", output);
	if (mkdirat(self->fd, group, 0777) != 0 && errno != EEXIST)
		return bt_fail_errno(err, errno, "%s: cannot create the folder '%s'", output, group);
	self->group_fd = openat(self->fd, group, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (self->group_fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open the folder '%s'", output, group);
	return BETON_OK;
}

static int add(extract_target *base, const char *group, const char *name, const void *data, size_t size,
	       beton_error *err)
{
	folder_target *self = (folder_target *)base;
	const char *output = self->place.output;
	int result = group ? use_group(self, group, err) : BETON_OK;
	if (result != BETON_OK)
		return result;
	int fd = openat(group ? self->group_fd : self->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot create '%s'", output, name);
	if (bt_write_full(fd, data, size) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot write '%s'", output, name);
	if (close(fd) != 0 && result == BETON_OK)
		result = bt_fail_errno(err, errno, "%s: cannot close '%s'", output, name);
	return result;
}

static int finish(extract_target *base, beton_error *err)
{
	folder_target *self = (folder_target *)base;
	/* One call for the many small files. */
	if (syncfs(self->fd) != 0)
		return bt_fail_errno(err, errno, "%s: cannot sync", self->place.output);
	return staging_become_output(&self->place, self->replace, err);
}

static void close_folder(extract_target *base)
{
	folder_target *self = (folder_target *)base;
	if (self->group_fd >= 0)
		close(self->group_fd);
	if (self->fd >= 0)
		close(self->fd);
	if (!staging_close(&self->place))
		fputs("beton-extract: cannot remove the temporary folder beside the output\n", stderr);
	free(self->group);
	free(self);
}

/* ---- existing files ---- */

/* Whether a name is this program's: the sample's number, with exactly the digits that nearly all datasets need, so that
 * other numbered pictures are not taken for extracted ones. */
static bool is_extracted_name(const char *name)
{
	return strspn(name, "0123456789") == LAYOUT_KEY_DIGITS && name[LAYOUT_KEY_DIGITS] == '.' &&
	       name[LAYOUT_KEY_DIGITS + 1];
}

/* Looks through the folder at path. *empty: nothing is in it. *other: the path of something that no extraction makes,
 * new memory, or NULL; class folders may be in it if groups. Errors: those of the system, NO_MEMORY. */
static int look_through(const char *path, bool groups, bool *empty, char **other, beton_error *err)
{
	DIR *folder = opendir(path);
	if (!folder)
		return bt_fail_errno(err, errno, "%s: cannot open the folder", path);
	const struct dirent *entry;
	int result = BETON_OK;
	*empty = true;
	while (result == BETON_OK && !*other && (entry = readdir(folder))) {
		const char *name = entry->d_name;
		struct stat status;
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			continue;
		*empty = false;
		bool known = fstatat(dirfd(folder), name, &status, AT_SYMLINK_NOFOLLOW) == 0;
		char *inner = bt_format("%s/%s", path, name);
		if (!inner) {
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
		} else if (known && groups && S_ISDIR(status.st_mode)) {
			bool none;
			result = look_through(inner, false, &none, other, err);
		} else if (!known || !S_ISREG(status.st_mode) || !is_extracted_name(name)) {
			*other = inner;
			inner = NULL;
		}
		free(inner);
	}
	closedir(folder);
	return result;
}

/* A new folder takes the place of an empty one or, if that is wanted, of one that holds an extraction and nothing else:
 * a name that was mistyped must not cost a folder of the user's. */
static int check_place(const char *path, bool force, bool *replace, beton_error *err)
{
	struct stat status;
	*replace = false;
	if (lstat(path, &status) != 0)
		return BETON_OK;
	if (!S_ISDIR(status.st_mode))
		return bt_fail(err, BETON_EXISTS, "%s: exists and is not a folder; --force does not change that", path);
	bool empty;
	char *other = NULL;
	int result = look_through(path, true, &empty, &other, err);
	*replace = !empty;
	if (result == BETON_OK && !empty && !force)
		result = bt_fail(
			err, BETON_EXISTS,
			"%s: the folder is not empty; --force replaces one that holds nothing but extracted files",
			path);
	else if (result == BETON_OK && other)
		result = bt_fail(err, BETON_EXISTS,
				 "%s: no extracted file, and --force replaces a folder only if it holds nothing else",
				 other);
	free(other);
	return result;
}

int target_open_folder(extract_target **out, const char *path, bool force, beton_error *err)
{
	folder_target *self = calloc(1, sizeof(*self));
	*out = NULL;
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	self->base = (extract_target){.add = add, .finish = finish, .close = close_folder};
	self->fd = self->group_fd = -1;
	int result = staging_recover(path, err);
	if (result == BETON_OK)
		result = check_place(path, force, &self->replace, err);
	if (result == BETON_OK)
		result = staging_open(&self->place, path, err);
	if (result == BETON_OK) {
		self->fd = open(self->place.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (self->fd < 0)
			result = bt_fail_errno(err, errno, "%s: cannot open the folder", path);
	}
	if (result == BETON_OK)
		*out = &self->base;
	else
		close_folder(&self->base);
	return result;
}
