/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: a folder of safetensors files that PyTorch opens.
 *
 *   DIR/step-000000000120/model.safetensors      parameters and buffers under torchvision's names
 *                         optimizer.safetensors  momentum under the parameter's name + ".momentum"
 *                         state.json             position, seed, world size, options that must agree
 *
 * A checkpoint becomes visible by one rename of a synced folder: what stands under its final name is whole.
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
	size_t struct_size;
	int64_t step;     /* optimizer steps done */
	int64_t epoch;    /* epoch that the next step belongs to */
	int64_t position; /* samples of that epoch consumed by all ranks: beton_loader_start's position */
	uint64_t seed;
	int32_t world_size;
	int32_t batch_size; /* per rank */
	char model[32];
	int64_t classes;
	uint64_t data_samples;
} dtrain_position;

/* Called by one rank. Writes DIR/step-<position.step>, then removes older ones beyond the newest `keep` (0 = all stay).
 * dir is created if missing. Errors: NO_SPACE, IO, ACCESS, NO_MEMORY; nothing is then left under a final name. */
BETON_API int dtrain_checkpoint_save(const char *dir, int keep, const dtrain_params *params, const dtrain_sgd *sgd,
				     const dtrain_position *position, dtrain_stream *stream, beton_error *err);

/* The path of the newest complete checkpoint in dir, malloc'ed. NOT_FOUND if there is none. */
BETON_API int dtrain_checkpoint_latest(const char *dir, char **path, beton_error *err);

/* Reads position alone; then parameters, buffers and momentum (sgd may be NULL). Names, shapes and dtypes must be those
 * of params: MISMATCH names the first that is not. A damaged file: FORMAT, TRUNCATED. */
BETON_API int dtrain_checkpoint_read_position(const char *path, dtrain_position *out, beton_error *err);
BETON_API int dtrain_checkpoint_load(const char *path, dtrain_params *params, dtrain_sgd *sgd, dtrain_stream *stream,
				     beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
