/* SPDX-License-Identifier: Apache-2.0
 *
 * A save in its two parts: what has to be known of all ranks, and the writing, which a thread of its own may do. */
#ifndef DTRAIN_CHECKPOINT_SAVE_H
#define DTRAIN_CHECKPOINT_SAVE_H

#include <jansson.h>

#include "save_plan.h"

/* Must not be moved. */
typedef struct save_job {
	char *dir;
	int keep;
	dtrain_checkpoint_content content; /* after the plan: step, stream and keep_step alone */
	dtrain_checkpoint_ranks group;
	const dtrain_checkpoint_ranks *ranks; /* &group; NULL: one rank alone */
	json_t *state;                        /* on rank 0 */
	char *link;                           /* NULL: none */
	checkpoint_plan plan;                 /* its names belong to the views, or are in: */
	char *names;
	char *temporary; /* the folder to fill */
	bool published;
} save_job;

/* Collective: checks the content, and finds out what this rank writes. The content's views are used until the job is
 * free. On failure, the same on all ranks, nothing is to be freed. err must not be NULL. */
int dtrain__save_plan(save_job *job, const char *dir, int keep, const dtrain_checkpoint_content *content,
		      const dtrain_checkpoint_ranks *ranks, beton_error *err);
/* Collective: writes the checkpoint. On failure, the same on all ranks, nothing is left. err must not be NULL. */
int dtrain__save_write(save_job *job, beton_error *err);
void dtrain__save_free(save_job *job);

#endif
