/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of a rank. */
#ifndef PROGRAMS_FFCV_RANK_CORES_H
#define PROGRAMS_FFCV_RANK_CORES_H

#include "launch/core_share.h"
#include "options/options.h"

/* The number of compute and loader threads of this process: --threads and --workers; else OMP_NUM_THREADS for compute
 * threads; else one for each core. INVALID_ARGUMENT: OMP_NUM_THREADS is not a number. */
int run_cores_count_threads(run_options *options, const run_cores *cores, beton_error *err);

#endif
