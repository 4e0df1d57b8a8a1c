/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a data set; a bounded number is open. A reading thread borrows a file's descriptors and gives them back.
 * A file is opened when it is needed; if the bound is reached, the least recently used idle file is closed. A file that
 * is opened again must be the same file as at its first opening.
 *
 * No thread waits for ever: a thread that waits for room has borrowed nothing, and the borrowers that it waits for give
 * back soon. Lanes that keep loans while they do something else (of a ring's reads) use bt_files_hold, which leaves
 * room for one more.
 */
#ifndef BT_LOADER_FILES_H
#define BT_LOADER_FILES_H

#include <pthread.h>

#include <beton/loader.h>

#include "file.h"
#include "metadata.h"

typedef struct bt_files_config {
	uint32_t count;    /* of files, >= 1 */
	uint64_t open_max; /* files open at a time; 0: as RLIMIT_NOFILE suggests */
	bool direct;       /* open them for direct reads, too, where the file system can */
	void (*log)(void *context, beton_log_level level, const char *line); /* NULL: no log. Called by any thread */
	void *log_context;
	const struct bt_io *io; /* NULL: the system's */
} bt_files_config;

struct bt_files {
	/* Constant. */
	uint32_t count;
	bt_file *list; /* [count] */
	const struct bt_io *io;
	bool direct;
	void (*log)(void *context, beton_log_level level, const char *line);
	void *log_context;
	uint32_t most; /* files open at a time */
	int folder;    /* the working folder at the time of opening, for relative paths; AT_FDCWD: it is not needed */

	atomic_bool was_told;     /* one line of log was written */
	bt_metadata metadata;     /* reads of metadata, and openings, in flight */
	_Atomic uint32_t clock;   /* openings */
	_Atomic uint32_t waiting; /* threads that wait for room */
	_Atomic uint32_t held;    /* loans by bt_files_hold */
	_Atomic uint32_t room;    /* files open at a time: most, or less if the process has no more descriptors */
	pthread_mutex_t lock;
	pthread_cond_t changed; /* signals that a file was opened, or given back while somebody waits */
	/* Guarded by lock. */
	uint32_t num_open; /* or being opened */
	bt_file *first;    /* open files, about in the order of their last use */
	bt_file *last;
};

/* Descriptors on loan. */
typedef struct bt_lease {
	int fd;        /* through the page cache */
	int direct_fd; /* -1: none */
} bt_lease;

/* Close it after a failure too. Errors: NO_MEMORY, SYSTEM. */
int bt_files_open(bt_files **out, const bt_files_config *config, beton_error *err);

/* All loans have ended. NULL is allowed. */
void bt_files_close(bt_files **files);

/* Sets the path of a file, which is copied, before its first loan. Errors: NO_MEMORY; ACCESS, SYSTEM (the working
 * folder of a relative path). */
int bt_files_name(bt_files *files, uint32_t number, const char *path, beton_error *err);

/* Borrows a file's descriptors; waits until there is room. The thread must not have borrowed others, except by
 * bt_files_hold. Errors: NOT_FOUND, ACCESS, SYSTEM (no descriptor is left), IO, NO_MEMORY; FILE_CHANGED: it is not the
 * file that was opened first. */
int bt_files_borrow(bt_file *file, bt_lease *out, beton_error *err);
void bt_files_give_back(bt_file *file);

/* Borrows for long, without a wait for room. Errors: TIMEOUT (no room for such a loan now; err is not filled), and
 * bt_files_borrow's. */
int bt_files_hold(bt_file *file, bt_lease *out, beton_error *err);
void bt_files_end_hold(bt_file *file);

/* Closes an idle file that is not the right one: the next opening sets its identity anew. */
void bt_files_forget(bt_file *file);

/* beton_reader_options.borrow and .give_back; the context is a bt_file. */
int bt_files_lend(void *context, int *fd, beton_error *err);
void bt_files_end_loan(void *context, int fd);

/* Writes a line of log; at most one in the table's life. */
void bt_files_log(bt_files *files, const char *line);

/* The same of a line that begins with the file's name. */
BETON_PRINTF(2, 3) void bt_files_tell(bt_file *file, const char *format, ...);

#endif
