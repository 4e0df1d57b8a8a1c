/* SPDX-License-Identifier: Apache-2.0
 *
 * The activity of a device in words and as JSON. Unknown values are left out.
 */
#ifndef REPORT_DEVICE_ACTIVITY_H
#define REPORT_DEVICE_ACTIVITY_H

#include <jansson.h>

#include <dtrain/device.h>

#define RUN_ACTIVITY_TEXT 192

/* "1755 of 1980 MHz, memory 2619 MHz, 651 of 700 W, 64 degrees C". Returns text; "": nothing is known. */
const char *run_activity_text(const dtrain_device_activity *activity, char text[RUN_ACTIVITY_TEXT]);
/* The reasons among dtrain_throttle bits: "power cap, heat". Returns text; "": there is none, or bits is negative. */
const char *run_activity_reasons(int32_t bits, char text[RUN_ACTIVITY_TEXT]);
/* Adds members; 0: all are added. */
int run_activity_json(json_t *object, const dtrain_device_activity *activity);

#endif
