/* SPDX-License-Identifier: Apache-2.0 */
#include "file_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"

static int read_open_file(int fd, const char *path, file_bytes *file, beton_error *err)
{
	struct stat status;
	if (fstat(fd, &status) != 0)
		return bt_fail_errno(err, errno, "%s: cannot read its status", path);
	if (!S_ISREG(status.st_mode))
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: %s, not a regular file", path,
			       S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe");
	if (status.st_size > FILE_BYTES_MAX)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: a file of %lld bytes, more than %lld", path,
			       (long long)status.st_size, (long long)FILE_BYTES_MAX);
	file->size = (size_t)status.st_size;
	if (file->size == 0)
		return BETON_OK;
	file->data = malloc(file->size);
	if (!file->data)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for its %zu bytes", path, file->size);
	ssize_t got = bt_pread_full(fd, file->data, file->size, 0);
	if (got < 0)
		return bt_fail_errno(err, errno, "%s: cannot read", path);
	if ((size_t)got != file->size)
		return bt_fail(err, BETON_FILE_CHANGED, "%s: the file became shorter while it was read", path);
	return BETON_OK;
}

int file_bytes_read(const char *path, file_bytes *file, beton_error *err)
{
	*file = (file_bytes){0};
	/* O_NONBLOCK: opening a pipe must not wait for its writer. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	int result = read_open_file(fd, path, file, err);
	close(fd);
	if (result != BETON_OK) {
		free(file->data);
		*file = (file_bytes){0};
	}
	return result;
}
