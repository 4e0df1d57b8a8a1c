/* SPDX-License-Identifier: Apache-2.0
 *
 * The two files that a writer works in, beside the target NAME: `.NAME.partial` becomes the target, and
 * `.NAME.partial.journal` tells what is in it. Their names are fixed, so that what a killed writer left is found again;
 * a lock on the journal keeps a second writer out. */
#ifndef BETON_SPOOL_H
#define BETON_SPOOL_H

#include <stdbool.h>
#include <sys/types.h>

#include <beton/beton.h>

typedef struct spool {
	char *path;
	char *data_path;
	char *journal_path;
	int data_fd;    /* -1 when not open */
	int journal_fd; /* the same; the lock is held while it is open */
	pid_t owner;    /* the process that took the lock */
	bool found;     /* an earlier writer left something */
	bool lost;      /* a sync failed: what can be read back may not be on the disk */
} spool;

/* Takes the lock; the journal is open then, with what an earlier writer left in it, and the data file is not. On
 * failure the spool is still to be closed. Errors: INVALID_ARGUMENT (the target cannot be replaced by a file), EXISTS
 * (another writer is at work), ACCESS, NOT_FOUND, IO, SYSTEM, NO_MEMORY. */
int beton_spool_open(spool *self, const char *path, beton_error *err);

/* Opens the data file that an earlier writer left. Errors: NOT_FOUND, ACCESS, INVALID_ARGUMENT, IO, SYSTEM. */
int beton_spool_continue(spool *self, beton_error *err);

/* Empties the journal, and puts a new data file in place of an older one. Errors: ACCESS, NO_SPACE, IO, SYSTEM. */
int beton_spool_restart(spool *self, beton_error *err);

/* Makes the data file durable. After a failure nothing can be continued. Errors: NO_SPACE, IO. */
int beton_spool_sync(spool *self, beton_error *err);

/* Gives the data file, which is durable, the target's name; then removes the journal. On failure the target is what it
 * was before, unless only the sync of the folder failed. Errors: NO_SPACE, IO, ACCESS, NO_MEMORY. */
int beton_spool_commit(spool *self, beton_error *err);

/* Releases everything. keep: the files stay for a later writer, unless a sync failed; otherwise what is left of them is
 * removed. A spool that was closed, or that is zeros but for descriptors of -1, may be closed. */
void beton_spool_close(spool *self, bool keep);

#endif
