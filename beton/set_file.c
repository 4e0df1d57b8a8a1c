/* SPDX-License-Identifier: Apache-2.0 */
#include "set_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"

int bt_set_file_check(const char *path, beton_set_mode mode, beton_error *err)
{
	struct stat facts;
	bool there = lstat(path, &facts) == 0;
	if (!there && errno != ENOENT)
		return bt_fail_errno(err, errno, "%s: cannot read its status", path);
	if (!there && mode == BETON_SET_APPEND)
		return bt_fail(err, BETON_NOT_FOUND, "%s: there is no such set of shards", path);
	/* The shards of a link's target are in the target's folder, not in the link's. */
	if (there && S_ISLNK(facts.st_mode))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: a symbolic link; name the file that it points to",
			       path);
	if (there && !S_ISREG(facts.st_mode))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is %s", path,
			       S_ISDIR(facts.st_mode) ? "a folder" : "not a regular file");
	if (there && mode == BETON_SET_CREATE)
		return bt_fail(err, BETON_EXISTS, "%s: the set of shards exists already", path);
	return BETON_OK;
}

static int make_name(set_file *self, beton_error *err)
{
	const char *slash = strrchr(self->path, '/');
	const char *name = slash ? slash + 1 : self->path;
	if (strlen(name) + strlen("..partial") > NAME_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: a name of %zu bytes is too long: with '.' and '.partial' around it, it would be "
			       "more than %d",
			       self->path, strlen(name), NAME_MAX);
	self->partial = bt_format("%.*s.%s.partial", (int)(name - self->path), self->path, name);
	return self->partial ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
}

/* Waits for the lock of the partial file. A caller that may give up asks from time to time, others wait in the kernel.
 */
static int wait_for_lock(const set_file *self, beton_error *err)
{
	enum { POLL_NS = 10000000 };
	const beton_set_options *options = self->options;
	const int operation = options->progress ? LOCK_EX | LOCK_NB : LOCK_EX;
	while (flock(self->fd, operation) != 0) {
		bool taken = errno == EWOULDBLOCK;
		if (!taken && errno != EINTR)
			return bt_fail_errno(err, errno, "%s: cannot lock", self->partial);
		if (taken && !options->progress(options->context, self->count, self->count))
			return bt_fail(err, BETON_CANCELLED, "%s: given up, while another process writes it",
				       self->path);
		if (taken)
			nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
	}
	return BETON_OK;
}

/* Opens the partial file and locks it. *current: whether it still has its name then. */
static int open_locked(set_file *self, bool *current, beton_error *err)
{
	struct stat opened, named;
	/* In a folder that others can write to, a name can be a trap: a link to another file, or a pipe that never
	 * opens. */
	self->fd = open(self->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
	if (self->fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot create", self->partial);
	int result = wait_for_lock(self, err);
	if (result != BETON_OK)
		return result;
	if (fstat(self->fd, &opened) != 0)
		return bt_fail_errno(err, errno, "%s: cannot read its status", self->partial);
	/* The process that had the lock may have made it the index, or removed it. */
	*current = lstat(self->partial, &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
	/* With a second name, another file would be changed too. */
	if (*current && (!S_ISREG(opened.st_mode) || opened.st_nlink > 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is in the way: not a temporary file of this library",
			       self->partial);
	return BETON_OK;
}

static void close_fd(set_file *self)
{
	if (self->fd >= 0)
		close(self->fd);
	self->fd = -1;
}

int bt_set_file_lock(set_file *self, const char *path, const beton_set_options *options, uint32_t count,
		     beton_error *err)
{
	*self = (set_file){.path = path, .options = options, .count = count, .fd = -1};
	int result = make_name(self, err);
	for (bool current = false; result == BETON_OK && !current;) {
		close_fd(self);
		result = open_locked(self, &current, err);
	}
	/* A file that is not ours must stay. */
	if (result != BETON_OK)
		close_fd(self);
	return result;
}

int bt_set_file_replace(set_file *self, const char *text, size_t size, beton_error *err)
{
	struct stat old;
	/* An index that not everybody may read stays so. */
	bool there = stat(self->path, &old) == 0;
	if (there && fchmod(self->fd, old.st_mode & 0777) != 0)
		return bt_fail_errno(err, errno, "%s: cannot set its permissions", self->partial);
	/* A killed process may have left a part of another index. */
	if (ftruncate(self->fd, 0) != 0 || bt_pwrite_full(self->fd, text, size, 0) != 0)
		return bt_fail_errno(err, errno, "%s: cannot write", self->partial);
	if (fsync(self->fd) != 0)
		return bt_fail_errno(err, errno, "%s: cannot sync", self->partial);
	if (rename(self->partial, self->path) != 0)
		return bt_fail_errno(err, errno, "%s: cannot rename to the final name", self->path);
	free(self->partial);
	self->partial = NULL;
	return bt_sync_parent(self->path, err);
}

void bt_set_file_close(set_file *self)
{
	if (self->fd >= 0 && self->partial)
		unlink(self->partial);
	close_fd(self);
	free(self->partial);
	self->partial = NULL;
}
