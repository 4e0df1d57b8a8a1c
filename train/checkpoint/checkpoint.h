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
	char *text; /* the state's */
	bool sharded;
	dtrain_checkpoint_ranks group;
	const dtrain_checkpoint_ranks *ranks; /* &group, or NULL: one that is alone */
	checkpoint_index index;               /* of the sets that are known */
	dtrain_checkpoint_tensor *listed[DTRAIN_CHECKPOINT_SETS];
};

/* Reads which tensors are where, of the sets that are wanted. For all ranks together. err is not NULL. */
int dtrain__checkpoint_know(dtrain_checkpoint *checkpoint, const bool wanted[DTRAIN_CHECKPOINT_SETS], beton_error *err);

/* Opens a file of it. Both are the caller's then, path (malloc'ed) also where that fails. */
int dtrain__checkpoint_open_file(const dtrain_checkpoint *checkpoint, const char *name, int *fd, char **path,
				 beton_error *err);

/* Checks the chunks that hold these views, of one set, and reads them. Each rank for itself. err is not NULL. */
int dtrain__checkpoint_check_views(const dtrain_checkpoint *checkpoint, int set, const dtrain_checkpoint_list *list,
				   beton_error *err);
int dtrain__checkpoint_read_views(const dtrain_checkpoint *checkpoint, int set, const dtrain_checkpoint_list *list,
				  dtrain_stream *stream, beton_error *err);

#endif
