/* SPDX-License-Identifier: Apache-2.0
 *
 * A language model with trained weights, which computes the logits of a text's next token. */
#ifndef PROGRAMS_GENERATE_TEXT_MODEL_H
#define PROGRAMS_GENERATE_TEXT_MODEL_H

#include <dtrain/graph.h>
#include <dtrain/transformer.h>

enum { GENERATE_LENGTHS = 32 };

typedef struct generate_model {
	dtrain_transformer description;
	int64_t end_of_text; /* the token after each document of the training data; -1: not known */
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_params *params;
	/* The networks that compute 1 << i tokens, or as many as the model has positions, of all texts, and of the
	 * first one alone; made when they are first needed. */
	struct generate_network {
		dtrain_program *program;
		dtrain_tensor tokens, position, past, row, logits;
		bool has_run;
		void *captured; /* its runs but the first, on devices with captures */
	} networks[GENERATE_LENGTHS], alone[GENERATE_LENGTHS];
	int64_t texts; /* that are computed at once */
	void *cache;   /* keys and values of each layer for all positions of all texts, shared by the networks */
	int64_t *seen; /* tokens whose keys and values the cache has, `positions` for each text */
	int64_t num_seen;
	int64_t *inputs; /* memory for a network's tokens, then their positions, then the rows of the last ones */
} generate_model;

/* weights: a safetensors file, a checkpoint, or a folder of checkpoints. name: of the model, or a file; NULL: that of
 * the weights' metadata. texts: that are wanted, at least 1; out->texts is then how many of them are computed at once,
 * which the memory for keys and values limits. What all texts have in common is computed once. device: its name, which
 * dtrain_device_open takes; options->threads 0: as many as the model gains from. Errors name the file. */
int generate_model_open(generate_model *out, const char *weights, const char *name, int64_t texts, const char *device,
			const dtrain_device_options *options, beton_error *err);
void generate_model_close(generate_model *model);

/* Computes the logits [texts, vocabulary] after model->texts texts of `count` tokens, whose documents begin at the same
 * token. Keys and values of their tokens are kept, and not computed again for tokens with which the texts of the
 * previous call began. A text begins after the last end of text before its last token, as in training: earlier
 * documents are not seen, and positions count from there. The model sees the whole text while that has no more tokens
 * than the model has positions. A longer text is cut: the model sees its last half of the positions, and the tokens
 * added to it, until the positions are used up again. Errors: INVALID_ARGUMENT (count 0, documents that begin at
 * different tokens), and the device's. */
int generate_model_logits(generate_model *model, const int64_t *const *tokens, int64_t count, float *out,
			  beton_error *err);

#endif
