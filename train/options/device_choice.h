/* SPDX-License-Identifier: Apache-2.0
 *
 * The option --device: NAME or NAME:INDEX.
 */
#ifndef OPTIONS_DEVICE_CHOICE_H
#define OPTIONS_DEVICE_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include <dtrain/device.h>

#include "launch/rank_env.h"

typedef struct run_device_choice {
	char name[32];
	int32_t index; /* -1: not given */
} run_device_choice;

/* INVALID_ARGUMENT: this machine has no device of that name. */
int run_check_device(const char *name, beton_error *err);

/* NAME or NAME:INDEX. INVALID_ARGUMENT: there is no such device here, or the text is none. */
int run_parse_device(const char *text, run_device_choice *out, beton_error *err);

/* The device index of a rank: the given one, or the rank's number on its machine; 0 if ranks share a device or there
 * can be only one. */
int32_t run_device_index(const run_device_choice *choice, int local_rank, bool shared);

/* Opens the device, with the index added to options. If the launcher makes a single GPU visible to each rank (srun
 * --gpus-per-task=1), index 0 is used whatever the rank. Errors: dtrain_device_open's. */
int run_open_device(const run_device_choice *choice, const struct rank_env *env, bool shared,
		    dtrain_device_options *options, dtrain_device **out, beton_error *err);

#endif
