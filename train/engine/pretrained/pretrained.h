/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives a model trained weights. The head is the layer that was declared last: with another number of classes it keeps
 * its initial values. */
#ifndef ENGINE_PRETRAINED_PRETRAINED_H
#define ENGINE_PRETRAINED_PRETRAINED_H

#include <dtrain/params.h>

#include "weight_source.h"

/* The result; strings are malloc'ed. */
typedef struct run_init {
	int taken;       /* tensors */
	json_t *fresh;   /* texts: the head's tensors that keep their initial values, and why; empty: none */
	json_t *resized; /* texts: positions of a ViT that were resized for other pictures; empty: none */
	json_t *unused;  /* names: of the file's tensors that the model does not have */
} run_init;

/* Copies the source's tensors to all parameters and buffers, on the stream, and waits for it. model: declarations of
 * the whole model, if params are a stage of it; otherwise params. whole: the head must be the source's. If anything
 * does not fit, all stay unchanged. MISMATCH: a tensor is missing or has another shape; the message names the tensor,
 * both shapes and the file. FORMAT: a number is not finite; the message names file, tensor and place. Errors: also the
 * device's. */
int run_init_apply(const run_source *source, const dtrain_params *model, dtrain_params *params, dtrain_stream *stream,
		   bool whole, run_init *out, beton_error *err);
/* Accepts a zeroed struct. */
void run_init_free(run_init *init);

/* Prints what was taken and what was not. */
void run_init_tell(const run_init *init, const run_source *source);

/* The same for the log; NULL: out of memory. */
json_t *run_init_json(const run_init *init, const run_source *source);

#endif
