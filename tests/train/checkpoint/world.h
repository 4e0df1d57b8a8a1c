/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks for tests of checkpoints: processes that talk through memory that they share. When one of them is killed, the
 * others' calls fail. */
#ifndef TESTS_TRAIN_CHECKPOINT_WORLD_H
#define TESTS_TRAIN_CHECKPOINT_WORLD_H

#include <dtrain/checkpoint.h>

#define WORLD_MOST 8

/* A rank's function; the test sees its result, and err. */
typedef int world_body(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err);

typedef struct world_result {
	int code;   /* what the body returned */
	int signal; /* that ended the rank, or 0 */
	beton_error err;
} world_result;

/* Runs the body on `size` ranks at once, each in a process of its own. */
void world_run(int size, world_body *body, void *context, world_result results[WORLD_MOST]);

/* The same; every rank must return 0. */
void world_must(int size, world_body *body, void *context);

#endif
