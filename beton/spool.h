/* SPDX-License-Identifier: Apache-2.0
 *
 * The two temporary files of a writer, beside the target NAME: `.NAME.partial` becomes the target, and
 * `.NAME.partial.journal` describes its content. Fixed names let a later writer find the files of a killed one; a lock
 * on the journal keeps a second writer out.
 */
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
	pid_t owner;    /* that took the lock */
	bool found;     /* an earlier writer left something */
	bool lost;      /* a sync failed: the page cache may differ from the disk */
} spool;

/* Takes the lock and opens the journal, with an earlier writer's content, but not the data file. Close the spool after
 * a failure too. Errors: INVALID_ARGUMENT (a file cannot replace the target), EXISTS (another writer is at work),
 * ACCESS, NOT_FOUND, IO, SYSTEM, NO_MEMORY. */
int bt_spool_open(spool *self, const char *path, beton_error *err);

/* Opens the data file of an earlier writer. Errors: NOT_FOUND, ACCESS, INVALID_ARGUMENT, IO, SYSTEM. */
int bt_spool_continue(spool *self, beton_error *err);

/* Empties the journal, and replaces the data file by a new one. Errors: ACCESS, NO_SPACE, IO, SYSTEM. */
int bt_spool_restart(spool *self, beton_error *err);

/* Syncs the data file. After a failure it cannot be continued. Errors: NO_SPACE, IO. */
int bt_spool_sync(spool *self, beton_error *err);

/* Renames the synced data file to the target, then removes the journal. On failure the target is unchanged, unless only
 * the sync of the folder failed. Errors: NO_SPACE, IO, ACCESS, NO_MEMORY. */
int bt_spool_commit(spool *self, beton_error *err);

/* Releases everything. keep: the files stay for a later writer, unless a sync failed; otherwise they are removed. A
 * closed spool, or one of zeros with descriptors of -1, may be closed. */
void bt_spool_close(spool *self, bool keep);

#endif
