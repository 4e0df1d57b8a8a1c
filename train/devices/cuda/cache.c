/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"

char *cuda_cache_folder(void)
{
	const char *own = getenv("DTRAIN_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	if (own)
		return *own ? strdup(own) : NULL;
	/* The XDG specification says to ignore relative paths. */
	if (cache && *cache == '/')
		return bt_format("%s/dtrain", cache);
	return home && *home == '/' ? bt_format("%s/.cache/dtrain", home) : NULL;
}

void cuda_cache_make_harmless(char *name)
{
	static const char harmless[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
	for (; *name; name++)
		if (!strchr(harmless, *name))
			*name = '_';
}

char *cuda_cache_read(const char *path, size_t most, size_t *length)
{
	/* O_NONBLOCK: the path may be a pipe without a writer. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	struct stat info;
	char *text = NULL;
	if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 && (size_t)info.st_size <= most)
		text = malloc((size_t)info.st_size);
	ssize_t got = text ? bt_pread_full(fd, text, (size_t)info.st_size, 0) : -1;
	close(fd);
	if (got < 0) {
		free(text);
		return NULL;
	}
	*length = (size_t)got;
	return text;
}

int cuda_cache_write(const char *path, const char *text, size_t length, beton_error *err)
{
	bt_atomic_file file = {0};
	int status = bt_make_parents(path, err);
	if (status == BETON_OK)
		status = bt_atomic_open(&file, path, err);
	if (status != BETON_OK)
		return status;
	if (bt_write_full(file.fd, text, length) != 0) {
		status = bt_fail_errno(err, errno, "cannot write '%s'", path);
		bt_atomic_abandon(&file);
		return status;
	}
	return bt_atomic_commit(&file, err);
}

enum { LOCK_PAUSE_MS = 2 };

int cuda_cache_lock(const char *path, int patience_ms, int *fd, beton_error *err)
{
	int result = -1, status = bt_make_parents(path, err);
	if (status != BETON_OK)
		return status;
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	for (int waited = 0; *fd >= 0 && result != 0; waited += LOCK_PAUSE_MS) {
		result = flock(*fd, LOCK_EX | LOCK_NB);
		if (result == 0 || (errno != EINTR && errno != EWOULDBLOCK) || waited >= patience_ms)
			break;
		usleep(LOCK_PAUSE_MS * 1000);
	}
	if (result == 0)
		return BETON_OK;
	status = bt_fail_errno(err, errno, "cannot lock '%s'", path);
	if (*fd >= 0)
		close(*fd);
	return status;
}
