/* SPDX-License-Identifier: Apache-2.0
 *
 * Trained weights in host memory, from a safetensors file of any program or from a checkpoint's folder, and what is
 * known about the model they belong to. */
#ifndef ENGINE_PRETRAINED_WEIGHT_SOURCE_H
#define ENGINE_PRETRAINED_WEIGHT_SOURCE_H

#include <jansson.h>

#include <dtrain/tensor_file.h>

typedef struct run_source_tensor {
	char *name; /* without the prefixes of DistributedDataParallel and torch.compile; PyTorch's words replace
		       TensorFlow's (LayerNorm.gamma) */
	dtrain_shape shape;
	float *values; /* NULL: not of a floating-point type */
} run_source_tensor;

typedef struct run_source {
	char *path;      /* of the file, of the checkpoint, or of the folder of shards */
	char *absent;    /* of shards: see dtrain_tensor_file_absent; else NULL */
	bool incomplete; /* shards: the same */
	json_t *info;    /* texts by the names of dtrain's metadata (see run_metadata_make); empty: nothing is known */
	int64_t step;    /* of a checkpoint; 0: not known */
	bool average;    /* the tensors are a checkpoint's moving averages */
	run_source_tensor *tensors;
	size_t count;
} run_source;

/* given: a safetensors file; the index of several (see dtrain_tensor_file_open); a checkpoint's folder; a folder of
 * checkpoints, whose newest is taken; or the folder of a model.safetensors, its index, or its shards. A checkpoint of a
 * run with --ema gives its averages. Errors name the file; they are the errors of dtrain_tensor_file_open and
 * dtrain_checkpoint_load. */
int run_source_open(const char *given, run_source *out, beton_error *err);
/* Reads only the info and the shapes. */
int run_source_open_info(const char *given, run_source *out, beton_error *err);
/* Accepts a zeroed struct. */
void run_source_close(run_source *source);

/* NULL: no such tensor. */
const run_source_tensor *run_source_find(const run_source *source, const char *name);
/* The number of classes that the last layer tells apart, for files that do not say it; 0: no layer has a name by which
 * it is known to be the last. */
int64_t run_source_classes(const run_source *source);
/* NULL: not known. */
const char *run_source_info(const run_source *source, const char *name);

#endif
