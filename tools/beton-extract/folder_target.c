/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder that is filled under a temporary name beside its place. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "target.h"

typedef struct folder_target {
	extract_target base;
	char *path;
	char *temporary;
	bool created;
	int fd;       /* of the temporary folder */
	int group_fd; /* of the folder in it that was used last, or -1 */
	char *group;
} folder_target;

static int use_group(folder_target *self, const char *group, beton_error *err)
{
	if (self->group && strcmp(self->group, group) == 0)
		return BETON_OK;
	if (self->group_fd >= 0)
		close(self->group_fd);
	free(self->group);
	self->group_fd = -1;
	self->group = strdup(group);
	if (!self->group)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
	if (mkdirat(self->fd, group, 0777) != 0 && errno != EEXIST)
		return bt_fail_errno(err, errno, "%s: cannot create the folder '%s'", self->path, group);
	self->group_fd = openat(self->fd, group, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (self->group_fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open the folder '%s'", self->path, group);
	return BETON_OK;
}

static int add(extract_target *base, const char *group, const char *name, const void *data, size_t size,
	       beton_error *err)
{
	folder_target *self = (folder_target *)base;
	int result = group ? use_group(self, group, err) : BETON_OK;
	if (result != BETON_OK)
		return result;
	int fd = openat(group ? self->group_fd : self->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot create '%s'", self->path, name);
	if (bt_write_full(fd, data, size) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot write '%s'", self->path, name);
	if (close(fd) != 0 && result == BETON_OK)
		result = bt_fail_errno(err, errno, "%s: cannot close '%s'", self->path, name);
	return result;
}

static int finish(extract_target *base, beton_error *err)
{
	folder_target *self = (folder_target *)base;
	/* One call for the many small files. */
	if (syncfs(self->fd) != 0)
		return bt_fail_errno(err, errno, "%s: cannot sync", self->path);
	if (rename(self->temporary, self->path) != 0)
		return bt_fail_errno(err, errno, "%s: cannot rename to the final name", self->path);
	self->created = false;
	return bt_sync_parent(self->path, err);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

static void close_folder(extract_target *base)
{
	enum { OPEN_FOLDERS = 16 };
	folder_target *self = (folder_target *)base;
	if (self->group_fd >= 0)
		close(self->group_fd);
	if (self->fd >= 0)
		close(self->fd);
	if (self->created && nftw(self->temporary, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS) != 0)
		fprintf(stderr, "beton-extract: cannot remove %s\n", self->temporary);
	free(self->path);
	free(self->temporary);
	free(self->group);
	free(self);
}

static int check_place(const char *path, beton_error *err)
{
	struct stat status;
	if (lstat(path, &status) != 0)
		return BETON_OK;
	if (!S_ISDIR(status.st_mode))
		return bt_fail(err, BETON_EXISTS, "%s: exists and is not a folder", path);
	DIR *folder = opendir(path);
	if (!folder)
		return bt_fail_errno(err, errno, "%s: cannot open the folder", path);
	const struct dirent *entry;
	int others = 0;
	while ((entry = readdir(folder)))
		others += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	closedir(folder);
	return others ? bt_fail(err, BETON_EXISTS, "%s: the folder is not empty", path) : BETON_OK;
}

/* dir/NAME -> dir/.NAME.partial.PID.TIME */
static char *temporary_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	return bt_format("%.*s.%s.partial.%ld.%llx", (int)(name - path), path, name, (long)getpid(),
			 (unsigned long long)bt_now_ns());
}

int target_open_folder(extract_target **out, const char *path, beton_error *err)
{
	folder_target *self = calloc(1, sizeof(*self));
	*out = NULL;
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	self->base = (extract_target){.add = add, .finish = finish, .close = close_folder};
	self->fd = self->group_fd = -1;
	self->path = strdup(path);
	for (size_t n = self->path ? strlen(path) : 0; n > 1 && self->path[n - 1] == '/'; n--)
		self->path[n - 1] = 0;
	self->temporary = self->path ? temporary_name(self->path) : NULL;
	int result = self->temporary ? check_place(self->path, err)
				     : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (result == BETON_OK) {
		self->created = mkdir(self->temporary, 0777) == 0;
		if (!self->created)
			result = bt_fail_errno(err, errno, "%s: cannot create the folder", path);
	}
	if (result == BETON_OK) {
		self->fd = open(self->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (self->fd < 0)
			result = bt_fail_errno(err, errno, "%s: cannot open the folder", path);
	}
	if (result == BETON_OK)
		*out = &self->base;
	else
		close_folder(&self->base);
	return result;
}
