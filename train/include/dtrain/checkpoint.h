/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: folders of safetensors files, written by all ranks of a job, and read by any number of ranks with any
 * partition of the tensors.
 *
 * If every rank has all tensors whole, rank 0 writes one file for each set, which PyTorch can open:
 *
 *   DIR/step-000000000120/model.safetensors
 *                         optimizer.safetensors
 *                         state.json     the caller's state; size and XXH3 of the two other files, and of itself
 *
 * Otherwise each rank writes its parts, and rank 0 an index:
 *
 *   DIR/step-000000000120/shard-00001-model-00001-of-00002.safetensors   of rank 0; the others follow
 *                         manifest.json  the box of a tensor that each file has; size of each file, XXH3 of its chunks
 *                         state.json     the caller's state; size and XXH3 of the manifest, and of itself
 *
 * Shards have the form of PyTorch's distributed checkpoints in safetensors: its HuggingFaceStorageReader loads them. A
 * file has at most one box of a tensor, so a rank whose part of a matrix begins or ends within a row writes several
 * files. Parts that several ranks have are written by one of them.
 *
 * A checkpoint becomes visible by one rename of a synced folder: under its final name it is complete, and its checksums
 * reveal later damage. Names that begin with ".tmp-" and ".replaced-" are left by killed writers; the next prepare or
 * save removes them, or gives a checkpoint its name back. Other files in DIR are never removed; those in a removed
 * checkpoint's folder stay in DIR/left-step-... Only one writer at a time may use a folder: see
 * dtrain_checkpoint_lock_take.
 */
#ifndef DTRAIN_CHECKPOINT_H
#define DTRAIN_CHECKPOINT_H

#include <dtrain/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps other jobs out of dir until the lock is released or the process ends; makes dir (and its parents) if missing.
 * Child programs do not inherit the lock. DIR/.lock names the holder. EXISTS: another job has the lock; the message has
 * its process, host, start and, if described, world size. UNSUPPORTED: the file system has no locks. Other errors:
 * ACCESS, NOT_FOUND, IO, NO_SPACE, NO_MEMORY. The other two functions accept NULL. */
typedef struct dtrain_checkpoint_lock dtrain_checkpoint_lock;
BETON_API int dtrain_checkpoint_lock_take(const char *dir, dtrain_checkpoint_lock **out, beton_error *err);
BETON_API void dtrain_checkpoint_lock_describe(dtrain_checkpoint_lock *lock, int world_size);
BETON_API void dtrain_checkpoint_lock_release(dtrain_checkpoint_lock **lock);

/* Makes dir (and its parents) if missing, removes files of killed writers, and checks that dir is writable, which a
 * save would find out hours later. Errors: ACCESS, NOT_FOUND, IO, NO_SPACE, NO_MEMORY. */
BETON_API int dtrain_checkpoint_prepare(const char *dir, beton_error *err);

/* A rank's part of a tensor: `count` elements from `first` on, in row-major order, of a box of the tensor. A rank of
 * FSDP has a range of the whole tensor, one of tensor parallelism a whole box, one of both a range of a box. Several
 * views may have the same name; a view with count 0 has no effect. */
typedef struct dtrain_checkpoint_view {
	const char *name;
	dtrain_dtype dtype;
	dtrain_shape shape;              /* of the whole tensor; dimensions of at least 1 */
	int64_t offset[DTRAIN_MAX_DIMS]; /* of the box in the tensor */
	int64_t extent[DTRAIN_MAX_DIMS]; /* of the box; at least 1 */
	int64_t first, count;
	void *memory;          /* of the `count` elements, contiguous */
	dtrain_device *device; /* of the memory; NULL: host memory */
} dtrain_checkpoint_view;

/* The view of a whole tensor. name and memory are borrowed. */
BETON_API dtrain_checkpoint_view dtrain_checkpoint_view_whole(const char *name, dtrain_dtype dtype,
							      const dtrain_shape *shape, void *memory,
							      dtrain_device *device);

/* Views of tensors. */
typedef struct dtrain_checkpoint_list {
	const dtrain_checkpoint_view *views;
	size_t count;
} dtrain_checkpoint_list;

/* A checkpoint has these sets of tensors, "model" and "optimizer", with separate names. */
enum dtrain_checkpoint_set { DTRAIN_CHECKPOINT_MODEL, DTRAIN_CHECKPOINT_OPTIMIZER, DTRAIN_CHECKPOINT_SETS };

/* The ranks that save or load together. All of them make the same calls in the same order. */
typedef struct dtrain_checkpoint_ranks {
	int rank, size;
	void *context;
	/* Gathers `bytes` of each rank in `all`, in rank order, and returns when all ranks have called it. bytes is
	 * equal on all ranks, and at least 1. The save or load fails with the status that it returns. */
	int (*all_gather)(void *context, const void *mine, size_t bytes, void *all, beton_error *err);
} dtrain_checkpoint_ranks;

/* Everything that a checkpoint has. */
typedef struct dtrain_checkpoint_content {
	size_t struct_size; /* set by the caller */
	int64_t step;       /* at least 0; the same on all ranks */
	dtrain_checkpoint_list sets[DTRAIN_CHECKPOINT_SETS];
	/* A JSON object of at most 16 MiB; rank 0's is saved. The library replaces its members "version", "files" and
	 * "xxh3", or adds them at the end. A member "metadata", an object of texts, is also written to the files of the
	 * set "model", and to what dtrain_checkpoint_export makes of it, as the metadata of safetensors. */
	const char *state;
	dtrain_stream *stream; /* of the views' device; NULL if all views are in host memory */
	int64_t keep_step;     /* > 0: the checkpoint of this step is kept besides the newest ones; default 0 */
	/* Rank 0: name of a link to make in dir, see dtrain_checkpoint_link, before older checkpoints are removed; NULL
	 * (default): none. If it fails, the save does, although the checkpoint is there. */
	const char *link;
} dtrain_checkpoint_content;

/* Writes dir/step-<content.step>, and replaces an existing one; creates dir if missing. Rank 0 then keeps the newest
 * `keep` checkpoints (0: all) and removes the others. ranks: NULL for a single rank. Each element of a tensor must be
 * on a rank; ranks whose parts overlap must have the same box.
 *
 * All ranks fail with the error of the first rank that failed, which the message names. Nothing is then visible under
 * the final name, and an older checkpoint of the step stays. Only if ranks are lost during the final rename, some may
 * fail although the checkpoint is there. Errors: MISMATCH (of tensors between ranks: it names tensor and ranks),
 * NO_SPACE, IO, ACCESS, NO_MEMORY, INVALID_ARGUMENT, errors of all_gather. */
BETON_API int dtrain_checkpoint_save(const char *dir, int keep, const dtrain_checkpoint_content *content,
				     const dtrain_checkpoint_ranks *ranks, beton_error *err);

/* Saves while the caller goes on: begin copies what this rank will write to host memory, and a thread of the saver
 * writes it as dtrain_checkpoint_save does, to the same files. A saver has one save at a time, and keeps its memory
 * from save to save. One thread at a time calls these functions; has_failed is for any thread.
 *
 * A rank whose process ends during a save leaves what a killed dtrain_checkpoint_save leaves: never half a checkpoint.
 */
typedef struct dtrain_checkpoint_saver dtrain_checkpoint_saver;

/* device: of the memory, which is its memory for fast copies (dtrain_device_api.host_alloc); it must outlive the saver.
 * Errors: SYSTEM (no thread), NO_MEMORY. */
BETON_API int dtrain_checkpoint_saver_create(dtrain_device *device, dtrain_checkpoint_saver **out, beton_error *err);

/* Allocates the memory for saves of this content now, so that no later save lacks it. Collective; the elements are not
 * read. *bytes: the memory's size on this rank, which is that of what the rank writes. Errors: as saving does;
 * NO_MEMORY names the bytes. */
BETON_API int dtrain_checkpoint_saver_reserve(dtrain_checkpoint_saver *saver, const dtrain_checkpoint_content *content,
					      const dtrain_checkpoint_ranks *ranks, size_t *bytes, beton_error *err);

/* Collective. Waits for the save before, if there is one, and begins nothing if it failed: then the error is that
 * save's. On success the content is copied, and may be changed or freed. ranks is copied, too, but its context must
 * exist until the save has ended, and nothing else may use it until then: the saver's thread calls all_gather. Other
 * errors: as for dtrain_checkpoint_save if it fails before anything is written, and errors of the copies; all ranks
 * have them, and nothing was begun. */
BETON_API int dtrain_checkpoint_saver_begin(dtrain_checkpoint_saver *saver, const char *dir, int keep,
					    const dtrain_checkpoint_content *content,
					    const dtrain_checkpoint_ranks *ranks, beton_error *err);

/* Waits until the save has ended. Errors: as for dtrain_checkpoint_save, once: the next call returns OK. Without a
 * save, or with saver NULL: OK. */
BETON_API int dtrain_checkpoint_saver_wait(dtrain_checkpoint_saver *saver, beton_error *err);

/* Waits until no save is being written, for timeout_ms at most. False: one is still being written. NULL: true. */
BETON_API bool dtrain_checkpoint_saver_is_idle(dtrain_checkpoint_saver *saver, int timeout_ms);

/* Whether the last save has failed, and neither wait nor begin has returned its error yet. NULL: false. */
BETON_API bool dtrain_checkpoint_saver_has_failed(dtrain_checkpoint_saver *saver);

/* Time that the thread has taken for all saves that have ended, in nanoseconds. NULL: 0. */
BETON_API uint64_t dtrain_checkpoint_saver_busy_ns(dtrain_checkpoint_saver *saver);

/* Waits until the save has ended, whose error is lost. */
BETON_API void dtrain_checkpoint_saver_destroy(dtrain_checkpoint_saver **saver);

/* Makes dir/<name> a symbolic link to the checkpoint of that step, in place of an older link. Errors: as for the file
 * system, which name the link. */
BETON_API int dtrain_checkpoint_link(const char *dir, int64_t step, const char *name, beton_error *err);

/* The path of the newest checkpoint in dir of a step below before_step (INT64_MAX: any), which the caller frees; step
 * may be NULL. NOT_FOUND: there is none. */
BETON_API int dtrain_checkpoint_latest(const char *dir, int64_t before_step, char **path, int64_t *step,
				       beton_error *err);

/* Whether a file of that path is, or would be, in the folder of a checkpoint, also through links. */
BETON_API bool dtrain_checkpoint_holds(const char *path);

typedef struct dtrain_checkpoint dtrain_checkpoint;

/* A tensor of an open checkpoint. */
typedef struct dtrain_checkpoint_tensor {
	const char *name;
	const char *dtype; /* in safetensors' spelling: "F32" */
	dtrain_shape shape;
} dtrain_checkpoint_tensor;

/* Opens the checkpoint at path and reads its state. ranks (NULL: a single rank) is copied, but its context must outlive
 * the checkpoint; open, tensors and load are then collective, and fail on all ranks alike, as saving does. A damaged
 * checkpoint: FORMAT, TRUNCATED, NOT_FOUND (a file is missing). UNSUPPORTED_VERSION. MISMATCH: the ranks see different
 * checkpoints. Others: ACCESS, IO, NO_MEMORY. */
BETON_API int dtrain_checkpoint_open(const char *path, const dtrain_checkpoint_ranks *ranks, dtrain_checkpoint **out,
				     beton_error *err);
BETON_API void dtrain_checkpoint_close(dtrain_checkpoint **checkpoint);

/* The saved state with the library's members: JSON. Belongs to the checkpoint. */
BETON_API const char *dtrain_checkpoint_state(const dtrain_checkpoint *checkpoint);

/* The tensors of a set, sorted by name. They belong to the checkpoint. Errors: as open. */
BETON_API int dtrain_checkpoint_tensors(dtrain_checkpoint *checkpoint, enum dtrain_checkpoint_set set,
					const dtrain_checkpoint_tensor **tensors, size_t *count, beton_error *err);

/* Fills the views' memory. sets: NULL for sets to skip, the same ones on all ranks. A rank reads and checks the chunks
 * that it needs; one rank checks a file that has a single checksum. Names, shapes and dtypes must be the checkpoint's,
 * and for each of its tensors a rank must have a view, which may be empty: MISMATCH names the first exception. All
 * ranks check everything before any value is changed. After values of parameters were loaded: dtrain_params_changed.
 * Errors: as open; INVALID_ARGUMENT, errors of the device. */
BETON_API int dtrain_checkpoint_load(dtrain_checkpoint *checkpoint,
				     const dtrain_checkpoint_list *const sets[DTRAIN_CHECKPOINT_SETS],
				     dtrain_stream *stream, beton_error *err);

typedef struct dtrain_checkpoint_export_options {
	size_t struct_size;
	enum dtrain_checkpoint_set set; /* default: DTRAIN_CHECKPOINT_MODEL */
	/* Instead of a set: the tensors of one state of the optimizer, "NAME.state", under the names of the model's, so
	 * that a moving average ("ema") is a model. Default NULL. */
	const char *state;
	/* Bytes of tensors in a file; a larger tensor has a file to itself. Default 0: one file. */
	uint64_t max_file_bytes;
	/* Called before each piece; a status other than OK ends the export. Default NULL: none. */
	int (*check)(beton_error *err);
	/* "timm", "torchvision" or "huggingface": the tensors get that program's names, and Hugging Face's ViTs
	 * separate queries, keys and values. For a model's tensors. Default NULL: the names of this library. */
	const char *names;
} dtrain_checkpoint_export_options;

BETON_API void dtrain_checkpoint_export_options_init_sized(dtrain_checkpoint_export_options *options, size_t size);
static inline void dtrain_checkpoint_export_options_init(dtrain_checkpoint_export_options *options)
{
	dtrain_checkpoint_export_options_init_sized(options, sizeof(*options));
}

/* Writes tensors, after checking them, in pieces smaller than a tensor: to one safetensors file as in an
 * unsharded checkpoint, or, if max_file_bytes is less than all of them, to several, with an index for Hugging Face's
 * programs and dtrain_tensor_file_open. Tensors are taken in the order of their names. Each file is visible, and
 * replaces an older one, when it is complete; the index comes last. Files of an older export are not removed.
 * options NULL: the defaults. files, which may be NULL: how many were written, without the index. For a single rank.
 * Errors: as open; NO_SPACE, UNSUPPORTED (an element type that dtrain does not have; a model that the program of the
 * names does not have), NOT_FOUND (no tensors of the state), INVALID_ARGUMENT (several files, and `file` does not end
 * with ".safetensors"; more than 99,999; names that are not known, or of an optimizer's tensors). */
BETON_API int dtrain_checkpoint_export(dtrain_checkpoint *checkpoint, const dtrain_checkpoint_export_options *options,
				       const char *file, int *files, beton_error *err);

/* The path of file `index` of an export of `count` files to `file`: "DIR/NAME-00001-of-00002.safetensors" for the first
 * of two, and for index `count` "DIR/NAME.safetensors.index.json". A single file is `file` itself. The caller frees it;
 * NULL: out of memory. */
BETON_API char *dtrain_checkpoint_export_path(const char *file, int index, int count);

/* Renames a damaged checkpoint to "damaged-step-...", so that it is not found any more. Errors: ACCESS, IO, EXISTS. */
BETON_API int dtrain_checkpoint_set_aside(const char *path, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
