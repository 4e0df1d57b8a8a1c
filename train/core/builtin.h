/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices that are part of the library.
 */
#ifndef DTRAIN_CORE_BUILTIN_H
#define DTRAIN_CORE_BUILTIN_H

#include <dtrain/device.h>

extern const dtrain_device_api dtrain__ref_api;
extern const dtrain_device_api dtrain__cpu_api; /* only if DTRAIN_HAVE_CPU is defined */

#endif
