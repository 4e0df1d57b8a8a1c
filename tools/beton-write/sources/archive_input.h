/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed files, by libarchive: tar (plain, gzip, bzip2, xz, zstd), zip, and single packed files. */
#ifndef BETON_WRITE_ARCHIVE_INPUT_H
#define BETON_WRITE_ARCHIVE_INPUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <beton/error.h>

typedef enum archive_kind {
	ARCHIVE_TAR,
	ARCHIVE_ZIP,
	ARCHIVE_PACKED_FILE, /* one file, packed or not: one member */
} archive_kind;

typedef struct archive_input archive_input;

/* One member: its name as the archive has it, until the next one is asked for. */
typedef struct archive_member {
	const char *name;
	bool regular; /* a file with bytes of its own, not a folder, link or device */
	bool folder;
	const char *hard_link; /* the member that it is a second name of; NULL: of none */
	const char *soft_link; /* where it leads; NULL: not a symbolic link */
} archive_member;

/* Opens the archive at path; "-" is standard input. interrupt: when it is not 0, reading ends with CANCELLED, even
 * while it waits for a pipe. The caller closes *out. Errors: UNSUPPORTED, NO_MEMORY, and errors of opening a file. */
int archive_input_open(archive_input **out, const char *path, archive_kind kind, const atomic_int *interrupt,
		       beton_error *err);
void archive_input_close(archive_input **self);

/* Goes to the next member. END after the last one. Errors: FORMAT (damaged or cut archive), IO, CANCELLED. */
int archive_input_next(archive_input *self, archive_member *member, beton_error *err);

/* Reads up to size bytes of the member; *got 0: its end. Errors: as next. */
int archive_input_read(archive_input *self, void *data, size_t size, size_t *got, beton_error *err);

#endif
