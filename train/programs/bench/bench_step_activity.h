/* SPDX-License-Identifier: Apache-2.0
 *
 * The activity of the device under the load of the steps. Unknown values are left out.
 */
#ifndef PROGRAMS_BENCH_BENCH_STEP_ACTIVITY_H
#define PROGRAMS_BENCH_BENCH_STEP_ACTIVITY_H

#include <jansson.h>

#include <dtrain/device.h>

void bench_activity_print(const dtrain_device_activity *activity);
/* Adds members; 0: all are added. */
int bench_activity_json(json_t *object, const dtrain_device_activity *activity);

#endif
