/* SPDX-License-Identifier: Apache-2.0 */
#include "file_access.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/error.h"

static int lend(const file_access *self, int *fd, beton_error *err)
{
	*fd = self->fd;
	return self->borrow ? self->borrow(self->context, fd, err) : BETON_OK;
}

/* Keeps errno. */
static void end_loan(const file_access *self, int fd)
{
	int kept = errno;
	if (self->borrow)
		self->give_back(self->context, fd);
	errno = kept;
}

int bt_access_open(file_access *self, const char *path, struct stat *status, beton_error *err)
{
	if (!self->borrow != !self->give_back)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: option %s is given, but %s is NULL", path,
			       self->borrow ? "borrow" : "give_back", self->borrow ? "give_back" : "borrow");
	/* O_NONBLOCK: opening a pipe must not wait for its writer. It has no effect on regular files. */
	if (!self->borrow)
		self->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (!self->borrow && self->fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	int fd, result = lend(self, &fd, err);
	if (result != BETON_OK)
		return result;
	int fault = fstat(fd, status);
	end_loan(self, fd);
	return fault ? bt_fail_errno(err, errno, "%s: cannot read its status", path) : BETON_OK;
}

void bt_access_close(file_access *self)
{
	if (self->fd >= 0)
		close(self->fd); /* opened for reading: an error loses nothing */
	self->fd = -1;
}

int bt_access_read(const file_access *self, void *destination, size_t size, uint64_t offset, ssize_t *got,
		   beton_error *err)
{
	int fd, result = lend(self, &fd, err);
	if (result != BETON_OK)
		return result;
	*got = bt_read_full(self->read, self->context, fd, destination, size, offset);
	end_loan(self, fd);
	return BETON_OK;
}

int bt_access_result(const char *path, ssize_t got, size_t size, uint64_t offset, beton_error *err)
{
	if (got < 0)
		return bt_fail_errno(err, errno, "%s: cannot read %zu bytes at offset %llu", path, size,
				     (unsigned long long)offset);
	if ((size_t)got != size)
		return bt_fail(err, BETON_FILE_CHANGED,
			       "%s: the file became shorter while it was open (%lld of %zu bytes at offset %llu)", path,
			       (long long)got, size, (unsigned long long)offset);
	return BETON_OK;
}
