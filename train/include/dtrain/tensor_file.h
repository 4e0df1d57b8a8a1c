/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files of any program: tensors by name, and texts that describe them. Several files with Hugging Face's
 * index (model.safetensors.index.json), or the shards of PyTorch's distributed checkpoints, are opened as one.
 */
#ifndef DTRAIN_TENSOR_FILE_H
#define DTRAIN_TENSOR_FILE_H

#include <dtrain/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtrain_tensor_file dtrain_tensor_file;

/* Opens a file and checks its header. A path that ends with ".index.json" is an index: each of its tensors is read from
 * the file that it names, which must be in the index's folder. A folder is one of shards as PyTorch's
 * HuggingFaceStorageWriter(save_distributed=True) and this library write them,
 * shard-00001-model-00001-of-00001.safetensors and so on: the boxes in all files make up the tensors,
 * which end where the last box ends. All files stay open; for several the limit of open files (RLIMIT_NOFILE) is raised
 * to the hard limit. The functions below belong to one thread at a time. Errors: NOT_FOUND (also a folder without
 * shards), ACCESS, IO, TRUNCATED, FORMAT (also for files of torch.save; the message says how to convert one; if a file
 * lacks a tensor that the index has there; and if shards have boxes that overlap, differ in type, or are not all of
 * their tensor, including the name of a missing shard), UNSUPPORTED (more than DTRAIN_MAX_DIMS dimensions,
 * another DCP_VERSION), INVALID_ARGUMENT (an index that is not text), NO_MEMORY. */
BETON_API int dtrain_tensor_file_open(const char *path, dtrain_tensor_file **out, beton_error *err);
BETON_API void dtrain_tensor_file_close(dtrain_tensor_file **file); /* NULL allowed */

/* The tensor at an index from 0, in the file's order, of an index by file and name, of a folder by name; NULL: no more.
 * Belongs to the file. */
BETON_API const dtrain_checkpoint_tensor *dtrain_tensor_file_at(const dtrain_tensor_file *file, size_t index);

/* A text of the metadata, of the first file that has it; NULL: none of that name. Belongs to the file. */
BETON_API const char *dtrain_tensor_file_metadata(const dtrain_tensor_file *file, const char *key);

/* For a folder: the name of the first shard that it does not have. Shards do not contain the number of ranks: without
 * the last ones a tensor ends earlier, or is not there. *incomplete: other shards' names tell that this one was
 * written, or had nothing to hold. NULL: not a folder. Belongs to the file. */
BETON_API const char *dtrain_tensor_file_absent(const dtrain_tensor_file *file, bool *incomplete);

/* Reads all elements of a tensor of type F32, F64, F16 or BF16 as float (F64 is rounded). Errors: INVALID_ARGUMENT (no
 * such tensor), UNSUPPORTED (another type), IO, TRUNCATED, NO_MEMORY. */
BETON_API int dtrain_tensor_file_read(const dtrain_tensor_file *file, size_t index, float *out, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
