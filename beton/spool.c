/* SPDX-License-Identifier: Apache-2.0 */
#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"

/* In a folder that others can write to, a name can be a trap: a link to another file, or a pipe that never opens. */
#define OPEN_FLAGS (O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)

static int make_names(spool *self, const char *path, beton_error *err)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	int folder = (int)(name - path);
	if (!*name)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "'%s' does not name a file", path);
	/* Reported here, because the system's message would be cut after the long path. */
	if (strlen(name) + strlen("..partial.journal") > NAME_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "a name of %zu bytes is too long: with '.' and '.partial.journal' around it, as the "
			       "temporary file has them, it would be more than %d: '%s'",
			       strlen(name), NAME_MAX, path);
	self->path = strdup(path);
	self->data_path = bt_format("%.*s.%s.partial", folder, path, name);
	self->journal_path = bt_format("%.*s.%s.partial.journal", folder, path, name);
	if (!self->path || !self->data_path || !self->journal_path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	return BETON_OK;
}

static int open_regular(const char *path, int flags, int *fd, struct stat *status, beton_error *err)
{
	*fd = open(path, OPEN_FLAGS | flags, 0666);
	if (*fd < 0 || fstat(*fd, status) != 0)
		return bt_fail_errno(err, errno, "%s: cannot %s", path, flags & O_CREAT ? "create" : "open");
	/* With a second name, another file would be changed too. */
	if (!S_ISREG(status->st_mode) || status->st_nlink > 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is in the way: not a temporary file of a writer",
			       path);
	return BETON_OK;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static int lock(int fd)
{
	int result;
	do
		result = flock(fd, LOCK_EX | LOCK_NB);
	while (result != 0 && errno == EINTR);
	return result;
}

static int lock_failed(const spool *self, int error_number, bool empty, beton_error *err)
{
	if (error_number == EWOULDBLOCK)
		return bt_fail(err, BETON_EXISTS, "%s: another process is writing it", self->path);
	/* This file system has no locks. An empty journal belongs to no other writer. */
	if (empty)
		unlink(self->journal_path);
	return bt_fail_errno(err, error_number, "%s: cannot lock", self->journal_path);
}

static int open_journal(spool *self, beton_error *err)
{
	for (;;) {
		struct stat opened;
		struct stat named;
		int result = open_regular(self->journal_path, O_CREAT, &self->journal_fd, &opened, err);
		if (result == BETON_OK && lock(self->journal_fd) != 0)
			result = lock_failed(self, errno, opened.st_size == 0, err);
		if (result != BETON_OK) {
			/* It belongs to another writer, or is unusable: close must not remove it. */
			close_fd(&self->journal_fd);
			return result;
		}
		/* The last writer may have finished, and removed the name, between open and lock. */
		if (stat(self->journal_path, &named) == 0 && named.st_ino == opened.st_ino &&
		    named.st_dev == opened.st_dev) {
			self->found = named.st_size > 0;
			self->owner = getpid();
			return BETON_OK;
		}
		close_fd(&self->journal_fd);
	}
}

int bt_spool_open(spool *self, const char *path, beton_error *err)
{
	*self = (spool){.data_fd = -1, .journal_fd = -1};
	int result = make_names(self, path, err);
	if (result != BETON_OK)
		return result;
	struct stat status;
	/* A device or a pipe (/dev/null) must not be replaced by a file. */
	if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is %s", path,
			       S_ISDIR(status.st_mode) ? "a folder" : "not a regular file");
	result = open_journal(self, err);
	/* The missing name is internal: report the folder instead. */
	if (result == BETON_NOT_FOUND)
		return bt_fail_errno(err, ENOENT, "%s: cannot find the folder", path);
	if (result != BETON_OK && result != BETON_EXISTS)
		bt_prefix(err, "%s", path);
	return result;
}

int bt_spool_continue(spool *self, beton_error *err)
{
	struct stat status;
	return open_regular(self->data_path, 0, &self->data_fd, &status, err);
}

int bt_spool_restart(spool *self, beton_error *err)
{
	close_fd(&self->data_fd);
	if (ftruncate(self->journal_fd, 0) != 0)
		return bt_fail_errno(err, errno, "%s: cannot empty", self->journal_path);
	if (unlink(self->data_path) != 0 && errno != ENOENT)
		return bt_fail_errno(err, errno, "%s: cannot remove", self->data_path);
	struct stat status;
	return open_regular(self->data_path, O_CREAT | O_EXCL, &self->data_fd, &status, err);
}

int bt_spool_sync(spool *self, beton_error *err)
{
	if (fsync(self->data_fd) == 0)
		return BETON_OK;
	int result = bt_fail_errno(err, errno, "%s: cannot sync", self->path);
	/* A second sync may succeed although the data is lost, and reads may still come from the page cache. So no
	 * writer, this or a later one, tries again. Close removes the files; this covers a process that ends before. */
	self->lost = true;
	if (ftruncate(self->journal_fd, 0) != 0)
		unlink(self->journal_path);
	return result;
}

int bt_spool_commit(spool *self, beton_error *err)
{
	int fd = self->data_fd;
	self->data_fd = -1;
	if (close(fd) != 0)
		return bt_fail_errno(err, errno, "%s: cannot close", self->path);
	if (rename(self->data_path, self->path) != 0)
		return bt_fail_errno(err, errno, "%s: cannot rename to the final name", self->path);
	int result = bt_sync_parent(self->path, err);
	unlink(self->journal_path);
	close_fd(&self->journal_fd);
	return result;
}

void bt_spool_close(spool *self, bool keep)
{
	close_fd(&self->data_fd);
	/* A child of fork has the descriptors too, but files and lock belong to its parent. */
	bool owned = self->journal_fd >= 0 && self->owner == getpid();
	/* Only the holder of the lock may remove the names, the data file's first: a new writer opens the journal
	 * first. */
	if (owned && (!keep || self->lost)) {
		unlink(self->data_path);
		unlink(self->journal_path);
	}
	/* Only closing would leave the lock to children that have the descriptor. */
	if (owned)
		flock(self->journal_fd, LOCK_UN);
	close_fd(&self->journal_fd);
	free(self->path);
	free(self->data_path);
	free(self->journal_path);
	*self = (spool){.data_fd = -1, .journal_fd = -1};
}
