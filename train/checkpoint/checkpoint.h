/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a checkpoint that is open. */
#ifndef DTRAIN_CHECKPOINT_CHECKPOINT_H
#define DTRAIN_CHECKPOINT_CHECKPOINT_H

#include <jansson.h>

#include "index.h"

struct dtrain_checkpoint {
	char *path;
	json_t *state;
	char *text; /* the state as text */
	bool sharded;
	dtrain_checkpoint_ranks group;
	const dtrain_checkpoint_ranks *ranks; /* &group; NULL: one rank alone */
	checkpoint_index index;               /* of the sets that have been read */
	dtrain_checkpoint_tensor *listed[DTRAIN_CHECKPOINT_SETS];
};

/* Collective: reads the index of the wanted sets. err must not be NULL. */
int dtrain__checkpoint_know(dtrain_checkpoint *checkpoint, const bool wanted[DTRAIN_CHECKPOINT_SETS], beton_error *err);

/* Opens a file of the checkpoint. The caller owns *fd and *path (malloc'ed); path also on failure. */
int dtrain__checkpoint_open_file(const dtrain_checkpoint *checkpoint, const char *name, int *fd, char **path,
				 beton_error *err);

/* Check or read the chunks that contain these views of one set. Each rank on its own. err must not be NULL. */
int dtrain__checkpoint_check_views(const dtrain_checkpoint *checkpoint, int set, const dtrain_checkpoint_list *list,
				   beton_error *err);
int dtrain__checkpoint_read_views(const dtrain_checkpoint *checkpoint, int set, const dtrain_checkpoint_list *list,
				  dtrain_stream *stream, beton_error *err);

#endif
