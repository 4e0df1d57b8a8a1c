/* SPDX-License-Identifier: Apache-2.0
 *
 * Where training stands, and what must be equal for a resumed run to equal the unbroken one: the state that a
 * checkpoint keeps. */
#ifndef PROGRAMS_FFCV_POSITION_H
#define PROGRAMS_FFCV_POSITION_H

#include <dtrain/optim.h>

/* The name of the link to the checkpoint of best_step, in the folder of checkpoints. */
#define RUN_BEST_LINK "best"

typedef struct run_position {
	int64_t step;     /* optimizer steps done */
	int64_t epoch;    /* epoch that the next step belongs to */
	int64_t position; /* samples of that epoch consumed by all ranks, as in beton_iterator_open */
	uint64_t seed;
	int32_t world_size;
	int32_t batch_size; /* per rank and step */
	char model[32];
	int64_t classes;
	uint64_t data_samples;
	float scaler[DTRAIN_SCALERS]; /* of dynamic loss scaling, see dtrain_scaler_element; scale 0: none */
	uint64_t data_fingerprint;    /* beton_reader_fingerprint of the training set; 0: not known */
	uint64_t data_class_names;    /* a hash of its class names; 0: not known, or none */
	int64_t best_step;            /* with --keep-best: the step with the best evaluation; 0: none */
	double best_metric;           /* its first metric */
	bool evaluation_due;          /* with --eval-every: the evaluation after this step was interrupted */
} run_position;

/* The state of a checkpoint, malloc'ed. options: a JSON object, kept as it is; NULL: none. metadata: the same, for the
 * state's member of that name. */
int run_position_to_state(const run_position *position, const char *options, const char *metadata, char **out,
			  beton_error *err);

/* The reverse of run_position_to_state; place: for messages. *options (options NULL allowed): malloc'ed; NULL: saved
 * without options. Errors: FORMAT, NO_MEMORY. */
int run_position_from_state(const char *place, const char *state, run_position *out, char **options, beton_error *err);

/* Reads the position of the checkpoint at path. Errors: also dtrain_checkpoint_open's. */
int run_position_read(const char *path, run_position *out, char **options, beton_error *err);

#endif
