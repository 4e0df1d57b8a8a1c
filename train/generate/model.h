/* SPDX-License-Identifier: Apache-2.0
 *
 * A language model with trained weights that tells the logits of the token behind a text. */
#ifndef GENERATE_MODEL_H
#define GENERATE_MODEL_H

#include <dtrain/graph.h>
#include <dtrain/transformer.h>

enum { GENERATE_LENGTHS = 32 };

typedef struct generate_model {
	dtrain_transformer description;
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_params *params;
	/* The network for texts of up to 1 << i tokens, or of the model's most; made when it is first needed. */
	struct generate_network {
		dtrain_program *program;
		dtrain_tensor tokens, row, logits;
	} networks[GENERATE_LENGTHS];
	int64_t *tokens; /* memory for a network's input */
} generate_model;

/* weights: a safetensors file, a checkpoint, or a folder of checkpoints. name: of the model, or a file; NULL: that of
 * the weights' metadata. Takes ownership of the device, even on failure. Errors name the file. */
int generate_model_open(generate_model *model, const char *weights, const char *name, dtrain_device *device,
			beton_error *err);
void generate_model_close(generate_model *model);

/* Computes the logits [vocabulary] behind the text, of which the model sees the last tokens that it has positions
 * for. Nothing is kept of one call for the next. Errors: INVALID_ARGUMENT (count 0), those of the device. */
int generate_model_logits(generate_model *model, const int64_t *tokens, int64_t count, float *out, beton_error *err);

#endif
