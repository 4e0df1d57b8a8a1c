/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that asks the device for its activity during training: clocks, power, temperature, and whether it is
 * throttled. The first answer takes longer than a step, so the training thread does not ask itself.
 */
#ifndef PROGRAMS_FFCV_DEVICE_WATCH_H
#define PROGRAMS_FFCV_DEVICE_WATCH_H

#include <stdbool.h>

#include <dtrain/device.h>

typedef struct run_device_watch run_device_watch;

/* NULL if the device has no get_activity, or a thread cannot be started; the other functions take that. The device must
 * stay open until run_device_watch_end. */
run_device_watch *run_device_watch_begin(const dtrain_device_api *api, dtrain_device *device);
/* Whether there is an answer that was not taken before. watch: may be NULL. */
bool run_device_watch_take(run_device_watch *watch, dtrain_device_activity *out);
/* NULL allowed. */
void run_device_watch_end(run_device_watch **watch);

#endif
