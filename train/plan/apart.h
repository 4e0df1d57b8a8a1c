/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAN_APART_H
#define PLAN_APART_H

#include <dtrain/device.h>

/* Lets an open device in host memory say that it has memory of its own, as GPUs have, so that what is offloaded from it
 * can be planned. Only for plans: a step on the device fails. Errors: NO_MEMORY, which closes the device. */
int plan_set_apart(dtrain_device **device, beton_error *err);

#endif
