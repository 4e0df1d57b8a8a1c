/* SPDX-License-Identifier: Apache-2.0
 *
 * A lock of the kernel's on a file in the folder: it ends with its process, however that ends, so that there is none to
 * clean up. Locks of an open file description, and not flock()'s: on NFS they are the server's, and so hold between the
 * machines and for programs on the server itself.
 */
#include <dtrain/checkpoint.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/system.h"
#include "folder.h"

#define LOCK_FILE ".lock"
#define HOLDER_BYTES 400

struct dtrain_checkpoint_lock {
	int fd;
	char started[32];
};

/* Reports the line that the holder wrote. */
static int fail_taken(const char *dir, int fd, beton_error *err)
{
	char holder[HOLDER_BYTES + 1];
	ssize_t size = bt_pread_full(fd, holder, HOLDER_BYTES, 0);
	holder[size > 0 ? size : 0] = 0;
	holder[strcspn(holder, "\n")] = 0;
	return bt_fail(err, BETON_EXISTS, "%s: another job uses this folder: %s", dir,
		       *holder ? holder : "it has not said yet which one");
}

static int lock_file(const char *dir, int fd, beton_error *err)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int answer;
	do
		answer = fcntl(fd, F_OFD_SETLK, &whole);
	while (answer != 0 && errno == EINTR);
	if (answer == 0)
		return BETON_OK;
	if (errno == EAGAIN || errno == EACCES)
		return fail_taken(dir, fd, err);
	/* Errors of a server without a lock manager, and of file systems without locks. */
	bool none = errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL;
	int status = bt_fail_errno(err, errno, "%s: cannot be locked", dir);
	if (none && err)
		err->code = BETON_UNSUPPORTED;
	return none ? BETON_UNSUPPORTED : status;
}

/* Later processes that find the checkpoint locked show this text. Failure to write it is ignored. */
void dtrain_checkpoint_lock_describe(dtrain_checkpoint_lock *lock, int world_size)
{
	char host[256] = "?", ranks[32] = "";
	if (!lock)
		return;
	gethostname(host, sizeof(host) - 1);
	if (world_size > 0)
		snprintf(ranks, sizeof(ranks), ", world size %d", world_size);
	char *text = bt_format("process %ld on %s, started %s UTC%s\n", (long)getpid(), host, lock->started, ranks);
	if (text && ftruncate(lock->fd, 0) == 0 && bt_pwrite_full(lock->fd, text, strlen(text), 0) == 0)
		fdatasync(lock->fd);
	free(text);
}

static void note_start(dtrain_checkpoint_lock *lock)
{
	time_t now = time(NULL);
	struct tm utc;
	if (gmtime_r(&now, &utc))
		strftime(lock->started, sizeof(lock->started), "%Y-%m-%d %H:%M:%S", &utc);
}

int dtrain_checkpoint_lock_take(const char *dir, dtrain_checkpoint_lock **out, beton_error *err)
{
	if (BT_MISSING(err, dir, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	int status = dtrain__folder_make(dir, err);
	if (status != BETON_OK)
		return status;
	char *path = bt_format("%s/" LOCK_FILE, dir);
	dtrain_checkpoint_lock *lock = calloc(1, sizeof(*lock));
	if (!path || !lock) {
		free(path);
		free(lock);
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	}
	lock->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
	if (lock->fd < 0)
		status = bt_fail_errno(err, errno, "%s: cannot be opened", path);
	else
		status = lock_file(dir, lock->fd, err);
	if (status == BETON_OK) {
		note_start(lock);
		dtrain_checkpoint_lock_describe(lock, 0);
		*out = lock;
	} else {
		if (lock->fd >= 0)
			close(lock->fd);
		free(lock);
	}
	free(path);
	return status;
}

void dtrain_checkpoint_lock_release(dtrain_checkpoint_lock **lock)
{
	if (!lock)
		return;
	if (!*lock)
		return;
	close((*lock)->fd);
	free(*lock);
	*lock = NULL;
}
