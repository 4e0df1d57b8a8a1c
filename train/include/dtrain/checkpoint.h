/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: a folder of safetensors files that PyTorch opens.
 *
 *   DIR/step-000000000120/model.safetensors      parameters and buffers under torchvision's names
 *                         optimizer.safetensors  momentum under the parameter's name + ".momentum", slow weights of
 *                                                Lookahead under that of the parameter or buffer + ".slow"
 *                         state.json             position, seed, world size, the caller's options; size and
 *                                                XXH3 of the two other files, and of itself
 *
 * A checkpoint becomes visible by one rename of a synced folder: what stands under its final name is whole, and what
 * was damaged later is found by its checksums. Names that begin with ".tmp-" and ".replaced-" are leftovers of a killed
 * writer; the next prepare or save removes them, or gives a checkpoint its name back. Other files in DIR are left
 * alone, and so are those in a checkpoint's folder: when it is removed, they stay in DIR/left-step-... One writer at a
 * time may use a folder: see dtrain_checkpoint_lock_take.
 */
#ifndef DTRAIN_CHECKPOINT_H
#define DTRAIN_CHECKPOINT_H

#include <dtrain/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where training stands, and what must be equal for a resumed run to equal the unbroken one. Strings: NUL terminated.
 */
typedef struct dtrain_position {
	size_t struct_size; /* set by the caller, for reading too */
	int64_t step;       /* optimizer steps done */
	int64_t epoch;      /* epoch that the next step belongs to */
	int64_t position;   /* samples of that epoch consumed by all ranks: beton_iterator_open's position */
	uint64_t seed;
	int32_t world_size;
	int32_t batch_size; /* per rank */
	char model[32];
	int64_t classes;
	uint64_t data_samples;
	float scaler[DTRAIN_SCALERS]; /* of dynamic loss scaling, see dtrain_scaler_element; a scale of 0: none */
	uint64_t data_fingerprint;    /* beton_reader_fingerprint of the training set; 0: not known */
	uint64_t data_class_names;    /* a hash of the names of its classes; 0: not known, or it has none */
} dtrain_position;

/* Keeps other jobs out of dir, which is made (with its parents) if missing, until the lock is released or the process
 * ends; it is not passed on to programs that are started. DIR/.lock names the holder. EXISTS: another job has it, and
 * the message names that one by process, host, start and, when it has been described, world size. UNSUPPORTED: the file
 * system has no locks. Others: ACCESS, NOT_FOUND, IO, NO_SPACE, NO_MEMORY. Both others take NULL. */
typedef struct dtrain_checkpoint_lock dtrain_checkpoint_lock;
BETON_API int dtrain_checkpoint_lock_take(const char *dir, dtrain_checkpoint_lock **out, beton_error *err);
BETON_API void dtrain_checkpoint_lock_describe(dtrain_checkpoint_lock *lock, int world_size);
BETON_API void dtrain_checkpoint_lock_release(dtrain_checkpoint_lock **lock);

/* Makes dir (and its parents) if missing, removes what killed writers left, and checks that dir can be written: what a
 * save would find out only hours later. Errors: ACCESS, NOT_FOUND, IO, NO_SPACE, NO_MEMORY. */
BETON_API int dtrain_checkpoint_prepare(const char *dir, beton_error *err);

/* Called by one rank. Writes dir/step-<position.step> (replacing one of the same step), then removes older ones beyond
 * the newest `keep` (0 = all stay). dir is created if missing. batch norm's num_batches_tracked is written as
 * position.step. sgd and lookahead may be NULL. options: a JSON object of the caller's, kept as it is; NULL: none.
 * Errors: NO_SPACE, IO, ACCESS, NO_MEMORY, INVALID_ARGUMENT; nothing is then left under a final name. */
BETON_API int dtrain_checkpoint_save(const char *dir, int keep, const dtrain_params *params, const dtrain_sgd *sgd,
				     const dtrain_lookahead *lookahead, const dtrain_position *position,
				     const char *options, dtrain_stream *stream, beton_error *err);

/* The path of the newest checkpoint in dir of a step below before_step (INT64_MAX: of any), malloc'ed; step may be
 * NULL. NOT_FOUND if there is none. */
BETON_API int dtrain_checkpoint_latest(const char *dir, int64_t before_step, char **path, int64_t *step,
				       beton_error *err);

/* Reads the position, and the options it was saved with (malloc'ed; NULL: with none; options itself may be NULL);
 * then parameters, buffers, momentum and slow weights (sgd and lookahead: as they were
 * saved, or both NULL: the optimizer's file is left alone). Names, shapes and dtypes must be those of params: MISMATCH
 * names the first that is not. STATE: it was saved with slow weights and lookahead is NULL, or the other way round. A
 * damaged checkpoint: FORMAT, TRUNCATED, NOT_FOUND (a file of it is gone). Everything is checked before the first value
 * is changed. */
BETON_API int dtrain_checkpoint_read_position(const char *path, dtrain_position *out, char **options, beton_error *err);
BETON_API int dtrain_checkpoint_load(const char *path, dtrain_params *params, dtrain_sgd *sgd,
				     dtrain_lookahead *lookahead, dtrain_stream *stream, beton_error *err);

/* Renames a damaged checkpoint to "damaged-step-...", so that it is not found again. Errors: ACCESS, IO, EXISTS. */
BETON_API int dtrain_checkpoint_set_aside(const char *path, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
