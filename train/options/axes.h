/* SPDX-License-Identifier: Apache-2.0
 *
 * The axes of --mesh. */
#ifndef OPTIONS_AXES_H
#define OPTIONS_AXES_H

#include <beton/error.h>
#include <dtrain/params.h>

#include "options.h"

/* Sizes; 0: --mesh does not name the axis. */
typedef struct run_axes {
	int64_t size[DTRAIN_AXES];
} run_axes;

/* Reads the text of a --mesh; NULL: no axis. Errors: INVALID_ARGUMENT names the option, and the axis. */
int run_axes_parse(const char *mesh, run_axes *out, beton_error *err);
/* Reads --mesh. Errors: INVALID_ARGUMENT names the option, and the axis. */
int run_axes_read(const run_options *options, run_axes *out, beton_error *err);
/* The size of an axis; 0: --mesh does not name it. */
int64_t run_axes_size(const run_options *options, const char *name);
/* Ranks along an axis; 1: --mesh does not name it. The option was checked. */
int64_t run_axes_ranks(const run_options *options, dtrain_axis axis);
/* Ranks that compute one model; 1 without --mesh. The option was checked. */
int64_t run_axes_model_ranks(const run_options *options);
/* The axes of the mesh in the usual order, or as --rank-order has them. Neighbouring ranks differ along the last axis.
 * The axes that --rank-order leaves out have one rank each and come first; *left_out: how many. Returns the number of
 * axes. */
int run_axes_order(const run_options *options, dtrain_axis out[DTRAIN_AXES], int *left_out);
/* The axis's name in --mesh and --rank-order. */
const char *run_axes_name(dtrain_axis axis);

/* "pipeline=2 x replicate=2 x tensor=2": all axes with several ranks. shards: ranks that share a copy of the
 * parameters. Returns out. */
enum { RUN_AXES_TEXT = 128 };
const char *run_axes_describe(const run_options *options, int64_t shards, char out[RUN_AXES_TEXT]);

/* Without --world-size: as many ranks as the axes of --mesh have together. A resumed run keeps its number, unless a new
 * --mesh has copies or shards, or does not divide it. */
void run_axes_default_world(run_options *options);
/* Checks that the ranks that compute one model divide the number of ranks. */
int run_axes_check_model(const run_options *options, beton_error *err);
/* Checks the sizes against the number of ranks, which tensor divides, and --rank-order. shard: ranks that share a copy
 * of the parameters.
 */
int run_axes_check_world(const run_options *options, int64_t shard, beton_error *err);

#endif
