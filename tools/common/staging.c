/* SPDX-License-Identifier: Apache-2.0 */
#include "staging.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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

/* A lock ends with its process, so a folder that can be locked is abandoned. -1: it is in use, or the file system has
 * no locks. */
static int lock_folder(const char *folder)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static bool is_folder_of(const char *path, int fd)
{
	struct stat one;
	struct stat other;
	return lstat(path, &one) == 0 && fstat(fd, &other) == 0 && one.st_dev == other.st_dev &&
	       one.st_ino == other.st_ino;
}

/* Sets self->output, without a slash at its end. */
static int set_output(staging *self, const char *output, beton_error *err)
{
	*self = (staging){.output = strdup(output), .lock = -1};
	for (size_t n = self->output ? strlen(output) : 0; n > 1 && self->output[n - 1] == '/'; n--)
		self->output[n - 1] = 0;
	return self->output ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", output);
}

int staging_open(staging *self, const char *output, beton_error *err)
{
	int result = set_output(self, output, err);
	while (result == BETON_OK && !self->folder) {
		char *folder = hidden_name(self->output, "partial");
		if (!folder)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", output);
		if (mkdir(folder, 0777) != 0)
			result = bt_fail_errno(err, errno, "%s: cannot create a folder beside it", output);
		self->lock = result == BETON_OK ? lock_folder(folder) : -1;
		/* Another run may have found it before it was locked, and removed it. */
		struct stat there;
		bool stands = result == BETON_OK &&
			      (self->lock < 0 ? lstat(folder, &there) == 0 : is_folder_of(folder, self->lock));
		if (stands) {
			self->folder = folder;
			break;
		}
		if (self->lock >= 0)
			close(self->lock);
		self->lock = -1;
		free(folder);
	}
	return result;
}

char *staging_path(const staging *self, const char *output)
{
	return bt_format("%s/%s", self->folder, last_part(output));
}

/* In the folder: files that new ones take the place of, and files that are to be gone, until all new ones have their
 * names; and names that had no file before. No staged file has such a name. */
#define OLD_FILES ".old"
#define GONE_FILES ".gone"
#define NEW_NAMES ".new"

/* Does one thing with each entry of the folder at path; a folder that is not there has none. */
static int each_entry(const char *path, int (*visit)(void *context, const char *name, beton_error *err), void *context,
		      beton_error *err)
{
	const struct dirent *entry;
	int result = BETON_OK;
	DIR *folder = opendir(path);
	if (!folder)
		return errno == ENOENT ? BETON_OK : bt_fail_errno(err, errno, "%s: cannot open the folder", path);
	while (result == BETON_OK && (errno = 0, entry = readdir(folder)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			result = visit(context, entry->d_name, err);
	if (result == BETON_OK && errno)
		result = bt_fail_errno(err, errno, "%s: cannot read the folder", path);
	closedir(folder);
	return result;
}

/* A publication that is taken back. */
typedef struct withdrawal {
	const char *folder;
	const char *output;
	const char *files; /* the folder in the folder whose files are put back */
} withdrawal;

static char *beside(const char *output, const char *name)
{
	return bt_format("%.*s%s", (int)(last_part(output) - output), output, name);
}

static int put_back(void *context, const char *name, beton_error *err)
{
	const withdrawal *self = context;
	char *old = bt_format("%s/%s/%s", self->folder, self->files, name);
	char *path = beside(self->output, name);
	int result = BETON_OK;
	if (!old || !path)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->output);
	else if (rename(old, path) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot be put back; it is %s", path, old);
	else if (unlink(old) != 0 && errno != ENOENT) /* there if both were one file */
		result = bt_fail_errno(err, errno, "%s: cannot remove", old);
	free(path);
	free(old);
	return result;
}

static int take_away(void *context, const char *name, beton_error *err)
{
	const withdrawal *self = context;
	char *mark = bt_format("%s/" NEW_NAMES "/%s", self->folder, name);
	char *made = bt_format("%s/%s", self->folder, name);
	char *path = beside(self->output, name);
	struct stat there;
	int result = BETON_OK;
	if (!mark || !made || !path)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->output);
	else if (lstat(made, &there) != 0 && unlink(path) != 0 && errno != ENOENT)
		result = bt_fail_errno(err, errno, "%s: cannot be taken back", path);
	else if (unlink(mark) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot remove", mark);
	free(path);
	free(made);
	free(mark);
	return result;
}

static int withdraw_each(withdrawal *self, const char *files,
			 int (*visit)(void *context, const char *name, beton_error *err), beton_error *err)
{
	char *path = bt_format("%s/%s", self->folder, files);
	self->files = files;
	int result = path ? each_entry(path, visit, self, err)
			  : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->output);
	free(path);
	return result;
}

/* Restores all names to the state before the publication. */
static int withdraw(const char *folder, const char *output, beton_error *err)
{
	withdrawal self = {folder, output, NULL};
	int result = withdraw_each(&self, OLD_FILES, put_back, err);
	if (result == BETON_OK)
		result = withdraw_each(&self, NEW_NAMES, take_away, err);
	return result == BETON_OK ? withdraw_each(&self, GONE_FILES, put_back, err) : result;
}

/* Keeps the old file at path, if there is one, under a second name, so that path always has a file. On file systems
 * without hard links the file is moved. */
static int keep_old(const char *path, const char *old, const char *mark)
{
	if (link(path, old) == 0)
		return 0;
	if (errno != ENOENT)
		return rename(path, old);
	int fd = open(mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	return fd < 0 ? -1 : close(fd);
}

static int publish_one(const staging *self, const char *path, beton_error *err)
{
	char *made = staging_path(self, path);
	char *old = bt_format("%s/" OLD_FILES "/%s", self->folder, last_part(path));
	char *mark = bt_format("%s/" NEW_NAMES "/%s", self->folder, last_part(path));
	int result = BETON_OK;
	if (!made || !old || !mark)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	else if (keep_old(path, old, mark) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot keep the file that it replaces", path);
	else if (rename(made, path) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot rename to the final name", path);
	free(mark);
	free(old);
	free(made);
	return result;
}

static int remove_one(const staging *self, const char *path, beton_error *err)
{
	char *gone = bt_format("%s/" GONE_FILES "/%s", self->folder, last_part(path));
	int result = BETON_OK;
	if (!gone)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	else if (rename(path, gone) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot take it away", path);
	free(gone);
	return result;
}

static int each_name(const staging *self, const staging_names *names,
		     int (*visit)(const staging *self, const char *path, beton_error *err), beton_error *err)
{
	int result = BETON_OK;
	for (uint64_t i = 0; names && i < names->count && result == BETON_OK; i++) {
		char *path = names->name(names->context, i);
		result = path ? visit(self, path, err)
			      : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->output);
		free(path);
	}
	return result;
}

static int make_inner(const staging *self, const char *name, beton_error *err)
{
	char *path = bt_format("%s/%s", self->folder, name);
	int result = BETON_OK;
	if (!path)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->output);
	else if (mkdir(path, 0777) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot create", path);
	free(path);
	return result;
}

int staging_publish(staging *self, const staging_names *made, const staging_names *gone, beton_error *err)
{
	static const char *const inner[] = {OLD_FILES, GONE_FILES, NEW_NAMES};
	int result = BETON_OK;
	for (size_t i = 0; i < sizeof(inner) / sizeof(*inner) && result == BETON_OK; i++)
		result = make_inner(self, inner[i], err);
	if (result == BETON_OK)
		result = each_name(self, gone, remove_one, err);
	if (result == BETON_OK)
		result = each_name(self, made, publish_one, err);
	if (result == BETON_OK)
		return bt_sync_parent(self->output, err);
	beton_error second;
	if (withdraw(self->folder, self->output, &second) != BETON_OK) {
		fprintf(stderr, "%s\n", second.message);
		/* The folder contains files that could not be put back. */
		free(self->folder);
		self->folder = NULL;
	}
	return result;
}

/* ---- what killed runs left ---- */

static int note_staged(void *context, const char *name, beton_error *err)
{
	(void)err;
	if (strcmp(name, OLD_FILES) != 0 && strcmp(name, GONE_FILES) != 0 && strcmp(name, NEW_NAMES) != 0)
		*(bool *)context = true;
	return BETON_OK;
}

/* A publication that is complete has no staged file left, one that has not begun changed no name. */
static int recover_partial(const char *folder, const char *output, beton_error *err)
{
	bool staged = false;
	int result = each_entry(folder, note_staged, &staged, err);
	if (result == BETON_OK && staged)
		result = withdraw(folder, output, err);
	if (result == BETON_OK && !remove_tree(folder))
		result = bt_fail_errno(err, errno, "%s: cannot remove what a killed run left", folder);
	return result;
}

/* The folder that an output has the name of now, or still is to get back. */
static int recover_replaced(const char *folder, const char *output, beton_error *err)
{
	struct stat there;
	if (lstat(output, &there) == 0 ? !remove_tree(folder) : rename(folder, output) != 0)
		return bt_fail_errno(err, errno, "%s: cannot remove what a killed run left", folder);
	return BETON_OK;
}

/* Whether the text is .PID.TIME, as hidden_name makes it. */
static bool is_run(const char *text)
{
	size_t digits = *text == '.' ? strspn(text + 1, "0123456789") : 0;
	const char *time = text + 1 + digits;
	return digits > 0 && *time == '.' && time[1] && strspn(time + 1, "0123456789abcdef") == strlen(time + 1);
}

/* context: the output. */
static int recover_entry(void *context, const char *name, beton_error *err)
{
	static const struct {
		const char *what;
		int (*recover)(const char *folder, const char *output, beton_error *err);
	} kinds[] = {{".partial", recover_partial}, {".replaced", recover_replaced}};
	const char *output = context;
	size_t length = strlen(last_part(output));
	int result = BETON_OK;
	if (name[0] != '.' || strncmp(name + 1, last_part(output), length) != 0)
		return BETON_OK;
	const char *rest = name + 1 + length;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		size_t size = strlen(kinds[i].what);
		if (strncmp(rest, kinds[i].what, size) != 0 || !is_run(rest + size))
			continue;
		char *folder = beside(output, name);
		if (!folder)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", output);
		int lock = lock_folder(folder);
		/* Its run may have ended, or another one have recovered it, before it was locked. */
		if (lock >= 0 && is_folder_of(folder, lock))
			result = kinds[i].recover(folder, output, err);
		if (lock >= 0)
			close(lock);
		free(folder);
	}
	return result;
}

int staging_recover(const char *output, beton_error *err)
{
	staging self;
	int result = set_output(&self, output, err);
	if (result != BETON_OK)
		return result;
	char *parent = last_part(self.output) == self.output ? strdup(".") : beside(self.output, "");
	result = parent ? each_entry(parent, recover_entry, self.output, err)
			: bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", output);
	free(parent);
	staging_close(&self);
	return result;
}

/* Both at once, where the file system can. */
static bool exchange(const staging *self)
{
	return renameat2(AT_FDCWD, self->folder, AT_FDCWD, self->output, RENAME_EXCHANGE) == 0;
}

int staging_become_output(staging *self, bool replace, beton_error *err)
{
	if (replace && exchange(self))
		return bt_sync_parent(self->output, err); /* the folder is the old one, for staging_close */
	char *old = hidden_name(self->output, "replaced");
	if (!old)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->output);
	int lock = replace ? lock_folder(self->output) : -1;
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
	if (lock >= 0)
		close(lock);
	free(old);
	return result;
}

bool staging_close(staging *self)
{
	bool good = !self->folder || remove_tree(self->folder);
	if (self->output && self->lock >= 0)
		close(self->lock);
	free(self->folder);
	free(self->output);
	*self = (staging){0};
	return good;
}
