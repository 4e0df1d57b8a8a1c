/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: folders of safetensors files, written by all ranks of a job, and read by any number of ranks, whatever
 * part of which tensor each of them has.
 *
 * Where every rank has every tensor as a whole, rank 0 writes one file for each set, which PyTorch opens:
 *
 *   DIR/step-000000000120/model.safetensors
 *                         optimizer.safetensors
 *                         state.json     the caller's state; size and XXH3 of the two other files, and of itself
 *
 * Everywhere else each rank writes its parts, and rank 0 what is where:
 *
 *   DIR/step-000000000120/shard-00001-model-00001-of-00002.safetensors   of rank 0; the others follow
 *                         manifest.json  the box of a tensor that each file has; size of each file, XXH3 of its chunks
 *                         state.json     the caller's state; size and XXH3 of the manifest, and of itself
 *
 * Shards have the form of PyTorch's distributed checkpoints in safetensors: its HuggingFaceStorageReader loads them. A
 * file has one box of a tensor at most, so that a rank whose part of a matrix begins or ends within a row has several
 * files. What several ranks have alike is written by one of them.
 *
 * A checkpoint becomes visible by one rename of a synced folder: what stands under its final name is whole, and what
 * was damaged later is found by its checksums. Names that begin with ".tmp-" and ".replaced-" are leftovers of a killed
 * writer; the next prepare or save removes them, or gives a checkpoint its name back. Other files in DIR are left
 * alone, and so are those in a checkpoint's folder: when it is removed, they stay in DIR/left-step-... One writer at a
 * time may use a folder: see dtrain_checkpoint_lock_take.
 */
#ifndef DTRAIN_CHECKPOINT_H
#define DTRAIN_CHECKPOINT_H

#include <dtrain/device.h>

#ifdef __cplusplus
extern "C" {
#endif

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

/* What a rank has of a tensor: `count` elements from `first` on of a box of it, counted in the box's row-major order.
 * A rank of FSDP has a range of the whole tensor, one of tensor parallelism all of a box, one of both a range of a box.
 * Several views may have the same name; a view with count 0 counts as none. */
typedef struct dtrain_checkpoint_view {
	const char *name;
	dtrain_dtype dtype;
	dtrain_shape shape;              /* of the whole tensor; dimensions of at least 1 */
	int64_t offset[DTRAIN_MAX_DIMS]; /* of the box in the tensor */
	int64_t extent[DTRAIN_MAX_DIMS]; /* of the box; at least 1 */
	int64_t first, count;
	void *memory;          /* of the `count` elements, one behind the other */
	dtrain_device *device; /* whose memory that is; NULL: the host's */
} dtrain_checkpoint_view;

/* The view of a whole tensor. name and memory stay the caller's. */
BETON_API dtrain_checkpoint_view dtrain_checkpoint_view_whole(const char *name, dtrain_dtype dtype,
							      const dtrain_shape *shape, void *memory,
							      dtrain_device *device);

typedef struct dtrain_checkpoint_list {
	const dtrain_checkpoint_view *views;
	size_t count;
} dtrain_checkpoint_list;

/* A checkpoint has these sets of tensors, each with names of its own: "model" and "optimizer". */
enum dtrain_checkpoint_set { DTRAIN_CHECKPOINT_MODEL, DTRAIN_CHECKPOINT_OPTIMIZER, DTRAIN_CHECKPOINT_SETS };

/* The ranks that save or load together. Each of them makes the same calls in the same order. */
typedef struct dtrain_checkpoint_ranks {
	int rank, size;
	void *context;
	/* Returns when all ranks have called it: `bytes`, which is the same for all and at least 1, of each rank are
	 * then in `all`, in the order of the ranks. What it returns is what the save or load fails with. */
	int (*all_gather)(void *context, const void *mine, size_t bytes, void *all, beton_error *err);
} dtrain_checkpoint_ranks;

typedef struct dtrain_checkpoint_content {
	size_t struct_size; /* set by the caller */
	int64_t step;       /* at least 0; the same on all ranks */
	dtrain_checkpoint_list sets[DTRAIN_CHECKPOINT_SETS];
	/* A JSON object, of which that of rank 0 is saved. Its members "version", "files" and "xxh3" are the
	 * library's: whatever state has there is replaced where it stands, or else they are added at the end. */
	const char *state;
	dtrain_stream *stream; /* of the device of the views; NULL where all are the host's */
} dtrain_checkpoint_content;

/* Writes dir/step-<content.step>, replacing one of the same step; dir is created if missing. Rank 0 then removes older
 * ones beyond the newest `keep` (0 = all stay). ranks: NULL for one that is alone. Every element of a tensor must be on
 * a rank, and what several ranks have of it must be the same box.
 *
 * All ranks fail with what the first of them failed with, which the message names if it is another one; nothing is then
 * left under a final name, and an older checkpoint of the step stays. Only where ranks are lost while the folder gets
 * its name some may fail with that although it is there. Errors: MISMATCH (of tensors between ranks: it names tensor
 * and ranks), NO_SPACE, IO, ACCESS, NO_MEMORY, INVALID_ARGUMENT, those of all_gather. */
BETON_API int dtrain_checkpoint_save(const char *dir, int keep, const dtrain_checkpoint_content *content,
				     const dtrain_checkpoint_ranks *ranks, beton_error *err);

/* The path of the newest checkpoint in dir of a step below before_step (INT64_MAX: of any), malloc'ed; step may be
 * NULL. NOT_FOUND if there is none. */
BETON_API int dtrain_checkpoint_latest(const char *dir, int64_t before_step, char **path, int64_t *step,
				       beton_error *err);

typedef struct dtrain_checkpoint dtrain_checkpoint;

typedef struct dtrain_checkpoint_tensor {
	const char *name;
	const char *dtype; /* as safetensors calls it: "F32" */
	dtrain_shape shape;
} dtrain_checkpoint_tensor;

/* Opens the checkpoint at path: its state, that is. ranks (NULL: one that is alone) is copied; its context must outlive
 * the checkpoint, and open, tensors and load are then for all ranks together and fail on all alike, as saving does. A
 * damaged checkpoint: FORMAT, TRUNCATED, NOT_FOUND (a file of it is gone). UNSUPPORTED_VERSION. MISMATCH: the ranks see
 * different checkpoints there. Others: ACCESS, IO, NO_MEMORY. */
BETON_API int dtrain_checkpoint_open(const char *path, const dtrain_checkpoint_ranks *ranks, dtrain_checkpoint **out,
				     beton_error *err);
BETON_API void dtrain_checkpoint_close(dtrain_checkpoint **checkpoint);

/* The state as it was saved, with the library's members: JSON. Belongs to the checkpoint. */
BETON_API const char *dtrain_checkpoint_state(const dtrain_checkpoint *checkpoint);

/* The tensors of a set, in the order of their names. They belong to the checkpoint. Errors: as open. */
BETON_API int dtrain_checkpoint_tensors(dtrain_checkpoint *checkpoint, enum dtrain_checkpoint_set set,
					const dtrain_checkpoint_tensor **tensors, size_t *count, beton_error *err);

/* Fills the memory of the views. sets: NULL for what is left alone, the same on all ranks. A rank reads what it needs,
 * and checks it in chunks; a file with one checksum for all of it is checked by one of the ranks. Names, shapes and
 * dtypes must be those of the checkpoint, and each of its tensors one that a rank has a view of, be it an empty one:
 * MISMATCH names the first that is not. Everything is checked, on all ranks, before the first value is changed.
 * Errors: as open; INVALID_ARGUMENT, those of the device. */
BETON_API int dtrain_checkpoint_load(dtrain_checkpoint *checkpoint,
				     const dtrain_checkpoint_list *const sets[DTRAIN_CHECKPOINT_SETS],
				     dtrain_stream *stream, beton_error *err);

/* Writes all tensors of a set, checked, to one safetensors file, as it is where nothing is sharded, in pieces: there
 * need not be memory for a whole tensor. The file is replaced when the new one is complete. check (NULL: none) is
 * called before each piece, and ends it with what it returns, if that is not OK. One rank alone. Errors: as open;
 * NO_SPACE, UNSUPPORTED (an element type that dtrain has not). */
BETON_API int dtrain_checkpoint_export(dtrain_checkpoint *checkpoint, enum dtrain_checkpoint_set set, const char *file,
				       int (*check)(beton_error *err), beton_error *err);

/* Renames a damaged checkpoint to "damaged-step-...", so that it is not found again. Errors: ACCESS, IO, EXISTS. */
BETON_API int dtrain_checkpoint_set_aside(const char *path, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
