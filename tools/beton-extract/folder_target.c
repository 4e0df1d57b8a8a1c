/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder that is filled under a temporary name beside its place. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/hash.h"
#include "common/system.h"
#include "target.h"
#include "tools/common/output.h"
#include "tools/common/staging.h"

/* "beton-extract FILES SUM" */
#define MARK_NAME OUTPUT_EXTRACT_MARK
#define MARK_FORMAT "beton-extract %" PRIu64 " %016" PRIx64 "\n"
#define MARK_FORMAT_READ "beton-extract %" SCNu64 " %" SCNx64
#define MARK_SIZE 80

/* The files of an extraction: how many, and a sum of the hashes of their paths, whatever their order. */
typedef struct contents {
	uint64_t count;
	uint64_t sum;
} contents;

typedef struct folder_target {
	extract_target base;
	staging place;
	bool replace; /* what was extracted there before */
	int fd;       /* of the temporary folder */
	int group_fd; /* of the folder in it that was used last, or -1 */
	char *group;
	contents added; /* so far */
} folder_target;

/* False: no memory. */
static bool contents_add(contents *self, const char *group, const char *name)
{
	char *path = bt_format("%s%s%s", group ? group : "", group ? "/" : "", name);
	if (!path)
		return false;
	self->count++;
	self->sum += XXH3_64bits(path, strlen(path));
	free(path);
	return true;
}

/* A file in the folder says that it was extracted, and what was. Programs that read class folders pass over it. */
static int write_mark(const folder_target *self, beton_error *err)
{
	char text[MARK_SIZE];
	int size = snprintf(text, sizeof(text), MARK_FORMAT, self->added.count, self->added.sum);
	int fd = openat(self->fd, MARK_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot create '%s'", self->place.output, MARK_NAME);
	int result = BETON_OK;
	if (bt_write_full(fd, text, (size_t)size) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot write '%s'", self->place.output, MARK_NAME);
	if (close(fd) != 0 && result == BETON_OK)
		result = bt_fail_errno(err, errno, "%s: cannot close '%s'", self->place.output, MARK_NAME);
	return result;
}

/* Makes the folder and those around it. */
static int make_folders(const folder_target *self, const char *group, beton_error *err)
{
	size_t length = strlen(group);
	for (size_t end = strcspn(group, "/"); end <= length; end += 1 + strcspn(group + end + 1, "/")) {
		char *path = strndup(group, end);
		if (!path)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->place.output);
		bool made = mkdirat(self->fd, path, 0777) == 0 || errno == EEXIST;
		int number = errno;
		free(path);
		if (!made)
			return bt_fail_errno(err, number, "%s: cannot create the folder '%s'", self->place.output,
					     group);
		if (end == length)
			break;
	}
	return BETON_OK;
}

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
	int result = make_folders(self, group, err);
	if (result != BETON_OK)
		return result;
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
	if (!contents_add(&self->added, group, name))
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", output);
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
	int result = write_mark(self, err);
	if (result != BETON_OK)
		return result;
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

/* The contents recorded in the folder's mark. False: no mark. */
static bool read_mark(const char *path, contents *marked)
{
	char text[MARK_SIZE] = "";
	char *name = bt_format("%s/%s", path, MARK_NAME);
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
	ssize_t got = fd >= 0 ? bt_pread_full(fd, text, sizeof(text) - 1, 0) : -1;
	if (fd >= 0)
		close(fd);
	free(name);
	return got > 0 && sscanf(text, MARK_FORMAT_READ, &marked->count, &marked->sum) == 2;
}

/* Adds what is below the folder at path to found; inner: the path from the extracted folder to here, "" for itself.
 * *empty: nothing is in it. Anything but files and folders counts as a file. Errors: NO_MEMORY, and the system's. */
static int look_through(const char *path, const char *inner, contents *found, bool *empty, beton_error *err)
{
	DIR *folder = opendir(path);
	if (!folder)
		return bt_fail_errno(err, errno, "%s: cannot open the folder", path);
	const struct dirent *entry;
	int result = BETON_OK;
	*empty = true;
	while (result == BETON_OK && (entry = readdir(folder))) {
		const char *name = entry->d_name;
		struct stat status;
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			continue;
		*empty = false;
		if (!*inner && strcmp(name, MARK_NAME) == 0)
			continue;
		bool known = fstatat(dirfd(folder), name, &status, AT_SYMLINK_NOFOLLOW) == 0;
		if (!known || !S_ISDIR(status.st_mode)) {
			if (!contents_add(found, *inner ? inner : NULL, name))
				result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
			continue;
		}
		bool none = false;
		char *below = bt_format("%s/%s", path, name);
		char *inner_below = bt_format("%s%s%s", inner, *inner ? "/" : "", name);
		if (below && inner_below)
			result = look_through(below, inner_below, found, &none, err);
		else
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
		/* No extraction makes an empty folder. */
		if (result == BETON_OK && none && !contents_add(found, inner_below, ""))
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
		free(below);
		free(inner_below);
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
	contents found = {0};
	contents marked = {0};
	int result = look_through(path, "", &found, &empty, err);
	*replace = !empty;
	if (result != BETON_OK || empty)
		return result;
	if (!force)
		return bt_fail(
			err, BETON_EXISTS,
			"%s: the folder is not empty; --force replaces one that holds nothing but extracted files",
			path);
	if (!read_mark(path, &marked))
		return bt_fail(err, BETON_EXISTS,
			       "%s: not extracted by this program (no %s in it); --force replaces only such "
			       "folders",
			       path, MARK_NAME);
	if (found.count != marked.count || found.sum != marked.sum)
		return bt_fail(err, BETON_EXISTS,
			       "%s: its files are not the extracted ones (%llu, and %llu then); --force replaces "
			       "a folder only if it holds nothing else",
			       path, (unsigned long long)found.count, (unsigned long long)marked.count);
	return BETON_OK;
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
