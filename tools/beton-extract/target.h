/* SPDX-License-Identifier: Apache-2.0
 *
 * The target of extracted files: a folder or a tar file. It appears under its name only when it is complete.
 */
#ifndef BETON_EXTRACT_TARGET_H
#define BETON_EXTRACT_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include <beton/error.h>

typedef struct extract_target extract_target;

/* Operations of a kind of target. */
struct extract_target {
	/* Adds a file. group: the folder inside the target, with slashes between folders in each other, or NULL; name:
	 * of the file, without a slash. */
	int (*add)(extract_target *self, const char *group, const char *name, const void *data, size_t size,
		   beton_error *err);
	int (*finish)(extract_target *self, beton_error *err);
	/* Without a successful finish nothing is left. */
	void (*close)(extract_target *self);
};

/* Opens a new folder. force: may replace a folder that has only extracted files. Errors: EXISTS (path is something
 * else, and not an empty folder), and the system's. */
int target_open_folder(extract_target **out, const char *path, bool force, beton_error *err);

/* Whether a name is that of a tar file: .tar, .tar.gz, .tgz, .tar.zst, .tar.xz, or "-", the standard output. */
bool target_is_tar(const char *path);

/* Opens a tar file, compressed according to its name; it contains no times and no owners. Errors: UNSUPPORTED (built
 * without libarchive), and the system's. */
int target_open_tar(extract_target **out, const char *path, beton_error *err);

#endif
