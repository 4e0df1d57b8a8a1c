/* SPDX-License-Identifier: Apache-2.0 */
#include "staging.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* dir/NAME -> dir/.NAME.WHAT.PID.TIME */
static char *hidden_name(const char *path, const char *what)
{
	const char *name = last_part(path);
	return bt_format("%.*s.%s.%s.%ld.%llx", (int)(name - path), path, name, what, (long)getpid(),
			 (unsigned long long)bt_now_ns());
}

int staging_open(staging *self, const char *output, beton_error *err)
{
	self->output = strdup(output);
	for (size_t n = self->output ? strlen(output) : 0; n > 1 && self->output[n - 1] == '/'; n--)
		self->output[n - 1] = 0;
	char *folder = self->output ? hidden_name(self->output, "partial") : NULL;
	if (!folder)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", output);
	if (mkdir(folder, 0777) != 0) {
		int number = errno;
		free(folder);
		return bt_fail_errno(err, number, "%s: cannot create a folder beside it", output);
	}
	self->folder = folder;
	return BETON_OK;
}

char *staging_path(const staging *self, const char *output)
{
	return bt_format("%s/%s", self->folder, last_part(output));
}

/* Where a file goes that a new one takes the place of, until all new ones have their names. */
static char *old_path(const staging *self, uint64_t i)
{
	return bt_format("%s/old.%llu", self->folder, (unsigned long long)i);
}

/* Keeps what stands at path, if anything. A second name, so that path is never without a file; where there is no such
 * thing the file is moved. */
static int keep_old(const char *path, const char *old)
{
	if (link(path, old) == 0 || errno == ENOENT)
		return 0;
	return rename(path, old);
}

static int publish_one(const staging *self, const char *path, uint64_t i, beton_error *err)
{
	char *made = staging_path(self, path);
	char *old = old_path(self, i);
	int result = BETON_OK;
	if (!made || !old)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	else if (keep_old(path, old) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot keep the file that it replaces", path);
	else if (rename(made, path) != 0) {
		result = bt_fail_errno(err, errno, "%s: cannot rename to the final name", path);
		/* If it was moved; one file's second name is not changed by this. */
		rename(old, path);
	}
	free(old);
	free(made);
	return result;
}

/* Gives path what it had before it was published. */
static void take_back(const staging *self, const char *path, uint64_t i)
{
	char *old = old_path(self, i);
	if (!path || !old || (rename(old, path) != 0 && (errno != ENOENT || unlink(path) != 0)))
		fprintf(stderr, "%s: cannot be taken back\n", path ? path : self->output);
	free(old);
}

int staging_publish(staging *self, char *(*name)(void *context, uint64_t i), void *context, uint64_t count,
		    beton_error *err)
{
	int result = BETON_OK;
	uint64_t done = 0;
	while (done < count && result == BETON_OK) {
		char *path = name(context, done);
		result = path ? publish_one(self, path, done, err)
			      : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->output);
		free(path);
		done += result == BETON_OK;
	}
	if (result == BETON_OK)
		return bt_sync_parent(self->output, err);
	while (done-- > 0) {
		char *path = name(context, done);
		take_back(self, path, done);
		free(path);
	}
	return result;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

static bool remove_tree(const char *folder)
{
	enum { OPEN_FOLDERS = 16 };
	return nftw(folder, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS) == 0;
}

int staging_become_output(staging *self, bool replace, beton_error *err)
{
	char *old = hidden_name(self->output, "replaced");
	if (!old)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->output);
	bool moved = replace && rename(self->output, old) == 0;
	int result = BETON_OK;
	if (replace && !moved && errno != ENOENT) {
		result = bt_fail_errno(err, errno, "%s: cannot rename the folder that it replaces", self->output);
	} else if (rename(self->folder, self->output) != 0) {
		result = bt_fail_errno(err, errno, "%s: cannot rename to the final name", self->output);
		if (moved)
			rename(old, self->output);
	} else {
		free(self->folder);
		self->folder = NULL;
		result = bt_sync_parent(self->output, err);
		if (moved && !remove_tree(old) && result == BETON_OK)
			result = bt_fail(err, BETON_IO, "%s: is replaced, but the old folder is left as %s",
					 self->output, old);
	}
	free(old);
	return result;
}

bool staging_close(staging *self)
{
	bool good = !self->folder || remove_tree(self->folder);
	free(self->folder);
	free(self->output);
	*self = (staging){0};
	return good;
}
