/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of dtrain_sync with ranks: layers side by side, whose gradients are whole numbers that are known.
 */
#ifndef TESTS_TRAIN_PARALLEL_SYNC_MODEL_H
#define TESTS_TRAIN_PARALLEL_SYNC_MODEL_H

#include <dtrain/sync.h>

#include "tests/train/support/ranks.h"

#define SYNC_MAX_LAYERS 8

typedef struct sync_model {
	dtrain_device *device; /* the caller's, as is the stream */
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params
		*params; /* "layer0.weight" [width, width], "layer0.bias" [width] ...; buffers "fixed", "statistics" */
	dtrain_sync *sync;
	dtrain_sync_trace *trace;
	dtrain_program *program;
	dtrain_mesh *mesh;
	int64_t width;
	int layers;
	dtrain_tensor x, numbers, d_y[SYNC_MAX_LAYERS];
	void *inputs; /* on the host, for copies that are under way */
} sync_model;

/* The mesh whose only axis has all ranks of the group. */
dtrain_mesh *sync_model_mesh(dtrain_group *group);
/* Takes ownership of the mesh (NULL: none). Nothing of the model depends on the rank. */
void sync_model_open(sync_model *model, dtrain_device *device, dtrain_stream *stream, dtrain_mesh *mesh,
		     const dtrain_sync_options *options, int64_t width, int layers);
void sync_model_close(sync_model *model);
/* The sync of such a model as it would be for the options' plan_ranks; destroy it before its params. */
void sync_model_plan(dtrain_device *device, const dtrain_sync_options *options, int64_t width, int layers,
		     dtrain_params **params, dtrain_sync **sync);

/* Puts the inputs of a rank's step on the stream. The copies before must be complete. */
void sync_model_fill(sync_model *model, int rank, int step);
/* Waits, and requires that the gradients that this rank keeps, and the figures, are the sums over ranks 0, stride, 2 *
 * stride ... < ranks and the steps first .. last. */
void sync_model_check(const sync_model *model, int ranks, int stride, int first, int last);

/* The times of the step that the trace events have. Requires that the units' times sum up to exposed_ms. */
dtrain_sync_step sync_model_times(const sync_model *model, dtrain_sync_trace *trace);
/* Whether this unit's part of the step is more than half of exposed_ms, on rank 0; the other ranks get its answer.
 * round: unique in the test. */
bool sync_model_unit_has_most(const sync_model *model, struct rank *r, int unit, int round);

/* On the stream, and waits. */
void sync_model_upload(const sync_model *model, void *to, const void *from, size_t bytes);
void sync_model_download(const sync_model *model, void *to, const void *from, size_t bytes);

#endif
