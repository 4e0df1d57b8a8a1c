/* SPDX-License-Identifier: Apache-2.0
 *
 * A language model with trained weights, which computes the logits of a text's next token. */
#ifndef PROGRAMS_GENERATE_TEXT_MODEL_H
#define PROGRAMS_GENERATE_TEXT_MODEL_H

#include <dtrain/graph.h>
#include <dtrain/pipeline_run.h>
#include <dtrain/sync.h>
#include <dtrain/transformer.h>

#include "engine/pretrained/weight_source.h"

enum { GENERATE_LENGTHS = 32 };

/* The part of the model that a rank computes: consecutive blocks, and in these a part of the heads, of the MLP and of
 * the vocabulary. */
typedef struct generate_part {
	int32_t stages, stage, ranks;       /* of the pipeline; ranks that divide the layers */
	int32_t first[DTRAIN_MAX_STAGES];   /* each stage's first block, once it is known */
	bool *layers;                       /* whether this rank has the layer */
	int64_t num_layers;                 /* that it has */
	dtrain_params *outline;             /* the whole model's, without memory; NULL: one stage */
	dtrain_pipeline_schedule *schedule; /* NULL: one stage */
} generate_part;

typedef struct generate_model {
	run_source source; /* until the model is loaded */
	dtrain_transformer description;
	int64_t end_of_text; /* the token after each document of the training data; -1: not known */
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_mesh *mesh; /* NULL: this rank has the whole model */
	dtrain_params *params;
	dtrain_sync *sync; /* of a mesh */
	generate_part part;
	/* The networks that compute 1 << i tokens, or as many as the model has positions, of all texts, and of the
	 * first one alone; made when they are first needed. */
	struct generate_network {
		dtrain_stage *stage;       /* of a pipeline */
		dtrain_pipeline *pipeline; /* the same */
		dtrain_program *program;
		dtrain_tensor tokens, position, past, row, logits;
		bool has_run;
		void *captured; /* its runs but the first, on devices with captures */
	} networks[GENERATE_LENGTHS], alone[GENERATE_LENGTHS];
	int64_t texts; /* that are computed at once */
	/* Keys and values of this rank's heads and layers, for all positions of all texts, shared by the networks. */
	void *cache;
	size_t cache_bytes;
	int64_t *seen; /* tokens whose keys and values the cache has, `positions` for each text */
	int64_t num_seen;
	int64_t *inputs; /* memory for a network's tokens, then their positions, then the rows of the last ones */
} generate_model;

/* weights: a safetensors file, a checkpoint, or a folder of checkpoints. name: of the model, or a file; NULL: that of
 * the weights' metadata. Errors name the file. */
int generate_model_open(generate_model *out, const char *weights, const char *name, beton_error *err);
/* As many threads as the model gains from, if `ranks` divide its layers. */
int32_t generate_model_threads(const generate_model *model, int64_t texts, int64_t ranks);
/* Takes ownership of the device, even on failure. mesh: its axes "pipeline" and "tensor" divide the model; collective
 * then; NULL: one rank. It must outlive the model, and model->sync is stopped before it is destroyed. texts: that are
 * wanted, at least 1; model->texts is then how many of them are computed at once, which the memory for keys and values
 * limits. What all texts have in common is computed once. Errors: INVALID_ARGUMENT (the mesh does not divide the
 * model), and the device's. */
int generate_model_load(generate_model *model, dtrain_device *device, dtrain_mesh *mesh, int64_t texts,
			beton_error *err);
/* Gives up what uses the mesh. */
void generate_model_disconnect(generate_model *model);
void generate_model_close(generate_model *model);

/* Computes the logits [texts, vocabulary] after model->texts texts of `count` tokens, whose documents begin at the same
 * token; collective on a mesh, where the ranks of the last stage get them. Keys and values of their tokens are kept,
 * and not computed again for tokens with which the texts of the previous call began. A text begins after the last end
 * of text before its last token, as in training: earlier documents are not seen, and positions count from there. The
 * model sees the whole text while that has no more tokens than the model has positions. A longer text is cut: the model
 * sees its last half of the positions, and the tokens added to it, until the positions are used up again. Errors:
 * INVALID_ARGUMENT (count 0, documents that begin at different tokens), and the device's. */
int generate_model_logits(generate_model *model, const int64_t *const *tokens, int64_t count, float *out,
			  beton_error *err);

#endif
