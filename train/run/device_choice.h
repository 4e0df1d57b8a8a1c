/* SPDX-License-Identifier: Apache-2.0
 *
 * What --device says: NAME or NAME:INDEX.
 */
#ifndef RUN_DEVICE_CHOICE_H
#define RUN_DEVICE_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include <dtrain/device.h>

#include "rank_env.h"

typedef struct run_device_choice {
	char name[32];
	int32_t index; /* -1: not given */
} run_device_choice;

/* Whether there is a device of that name is not looked at. */
int run_parse_device(const char *text, run_device_choice *out, beton_error *err);

/* Which of the devices of that name a rank takes: the one given, or that of the rank's number among the ranks of its
 * machine; the first where ranks share one, and where there can be only one. */
int32_t run_device_index(const run_device_choice *choice, int local_rank, bool shared);

/* Opens it, with the index put into options. Where the ranks' launcher gives each a GPU of its own to see (srun
 * --gpus-per-task=1), that is the first one, whatever the rank's number. Errors: those of dtrain_device_open. */
int run_open_device(const run_device_choice *choice, const struct rank_env *env, bool shared,
		    dtrain_device_options *options, dtrain_device **out, beton_error *err);

#endif
