/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of parameters that have several blocks (dtrain_placement.blocks), as a checkpoint's boxes: one for each block.
 * Where the blocks alternate in a part's memory, a staging array in host memory has them one after the other.
 */
#ifndef PROGRAMS_FFCV_BLOCKS_H
#define PROGRAMS_FFCV_BLOCKS_H

#include <dtrain/params.h>

/* `count` elements of a part, from `first` on: the part is [outer][blocks][width]. */
typedef struct run_blocks {
	int64_t first, count, outer, blocks, width;
	float *memory; /* of these elements, on the device */
	float *staged; /* the same, block after block; NULL: memory has them so */
} run_blocks;

/* Blocks of a parameter's part, at least 1. */
int64_t run_blocks_count(const dtrain_param *param);
/* Describes the elements, and allocates the staging array where one is needed. Errors: NO_MEMORY. */
int run_blocks_open(const dtrain_param *param, int64_t first, int64_t count, void *memory, run_blocks *out,
		    beton_error *err);
/* The elements of a block: `count` from `first` on of its box, which is [outer][width]. Returns their memory. */
float *run_blocks_at(const run_blocks *blocks, int64_t block, int64_t *first, int64_t *count);
/* Between the memory and the staging array, if there is one; waits. */
int run_blocks_stage(const run_blocks *blocks, dtrain_stream *stream, const dtrain_device_api *api, beton_error *err);
int run_blocks_unstage(const run_blocks *blocks, dtrain_stream *stream, const dtrain_device_api *api, beton_error *err);
void run_blocks_close(run_blocks *blocks);

#endif
