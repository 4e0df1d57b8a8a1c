/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <dtrain/checkpoint.h>

#include "common/error.h"
#include "common/system.h"
#include "tools/common/output.h"

#define SUFFIX ".safetensors"
#define FIVE "[0-9][0-9][0-9][0-9][0-9]"
#define PART "-" FIVE "-of-" FIVE SUFFIX

/* Takes ownership of path; a missing file is not part of the export. */
static int add(export_files *self, char *path, bool force, beton_error *err)
{
	struct stat there;
	char **grown = path ? realloc(self->paths, (self->count + 1) * sizeof(*grown)) : NULL;
	if (!grown) {
		free(path);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the names of files");
	}
	self->paths = grown;
	if (lstat(path, &there) != 0) {
		free(path);
		return BETON_OK;
	}
	grown[self->count++] = path;
	return output_check(path, NULL, force, err);
}

static size_t folder_length(const char *file)
{
	const char *slash = strrchr(file, '/');
	return slash ? (size_t)(slash + 1 - file) : 0;
}

static int add_parts(export_files *self, const char *file, bool force, beton_error *err)
{
	size_t folder = folder_length(file), stem = strlen(file) - folder - strlen(SUFFIX);
	char *parent = folder ? strndup(file, folder) : strdup(".");
	DIR *entries = parent ? opendir(parent) : NULL;
	const struct dirent *entry;
	int result = BETON_OK;
	if (!parent)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", file);
	else if (!entries)
		result = bt_fail_errno(err, errno, "%s: cannot open the folder", parent);
	while (result == BETON_OK && (errno = 0, entry = readdir(entries)))
		if (strncmp(entry->d_name, file + folder, stem) == 0 && fnmatch(PART, entry->d_name + stem, 0) == 0)
			result = add(self, bt_format("%.*s%s", (int)folder, file, entry->d_name), force, err);
	if (result == BETON_OK && errno)
		result = bt_fail_errno(err, errno, "%s: cannot read the folder", parent);
	if (entries)
		closedir(entries);
	free(parent);
	return result;
}

int export_files_find(export_files *self, const char *file, bool force, beton_error *err)
{
	int result = add(self, dtrain_checkpoint_export_path(file, 2, 2), force, err);
	if (result == BETON_OK)
		result = add(self, strdup(file), force, err);
	return result == BETON_OK && bt_ends_with(file, SUFFIX) ? add_parts(self, file, force, err) : result;
}

void export_files_free(export_files *self)
{
	for (uint64_t i = 0; i < self->count; i++)
		free(self->paths[i]);
	free(self->paths);
	*self = (export_files){0};
}

/* ---- publication ---- */

typedef struct made_files {
	const char *file;
	int count; /* without the index */
} made_files;

static char *made_name(void *context, uint64_t i)
{
	const made_files *made = context;
	return dtrain_checkpoint_export_path(made->file, (int)i, made->count);
}

static char *gone_name(void *context, uint64_t i)
{
	const export_files *gone = context;
	return strdup(gone->paths[i]);
}

/* Whether a new file takes the place of the old one at path. The index goes in any case, so that no reader finds old
 * parts and new ones through it. */
static bool is_replaced(const char *path, const made_files *made)
{
	size_t length = strlen(made->file);
	if (made->count == 1)
		return strcmp(path, made->file) == 0;
	if (strlen(path) != length + strlen("-00001-of-00002"))
		return false;
	int number = atoi(path + length - strlen(SUFFIX) + 1);
	char *name = dtrain_checkpoint_export_path(made->file, number - 1, made->count);
	bool same = name && strcmp(path, name) == 0;
	free(name);
	return same;
}

int export_files_publish(export_files *old, staging *place, const char *file, int count, beton_error *err)
{
	made_files made = {file, count};
	uint64_t gone = 0;
	for (uint64_t i = 0; i < old->count; i++) {
		char *path = old->paths[i];
		if (is_replaced(path, &made))
			free(path);
		else
			old->paths[gone++] = path;
	}
	old->count = gone;
	return staging_publish(place, &(staging_names){made_name, &made, (uint64_t)count + (count > 1)},
			       &(staging_names){gone_name, old, gone}, err);
}
