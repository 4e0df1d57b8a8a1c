/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of an index while it is written: .NAME.partial beside it, which is the lock of all who write this index and,
 * when it is complete, takes its name.
 */
#ifndef BETON_SET_FILE_H
#define BETON_SET_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/set.h>

typedef struct set_file {
	const char *path; /* of the index; borrowed */
	const beton_set_options *options;
	uint32_t count; /* of new shards, for options->progress */
	char *partial;
	int fd; /* of partial, locked; -1: none */
} set_file;

/* Whether an index is there, and may be treated in that way. Errors: EXISTS, NOT_FOUND, INVALID_ARGUMENT (a folder, a
 * link), and the system's. */
int bt_set_file_check(const char *path, beton_set_mode mode, beton_error *err);

/* Waits until no other process writes this index, and keeps others from it until set_file is closed. Path and options,
 * whose progress may end the wait, are borrowed until then. Close it after a failure too. Errors: ACCESS, NOT_FOUND
 * (the folder), INVALID_ARGUMENT, CANCELLED, NO_SPACE, IO, NO_MEMORY. */
int bt_set_file_lock(set_file *self, const char *path, const beton_set_options *options, uint32_t count,
		     beton_error *err);

/* Makes text the index, durably. Errors: NO_SPACE, IO; the index is unchanged, unless the sync of the folder failed. */
int bt_set_file_replace(set_file *self, const char *text, size_t size, beton_error *err);

/* Removes the partial file, if it did not become the index, and ends the lock. */
void bt_set_file_close(set_file *self);

#endif
