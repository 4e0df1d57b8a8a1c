/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the module dtrain-gloo.so.
 */
#ifndef DTRAIN_COMM_GLOO_GLOO_MODULE_H
#define DTRAIN_COMM_GLOO_GLOO_MODULE_H

#include "gloo_shim.h"

/* Loads the module, unless it is loaded already; it stays loaded. Any thread. Errors: NOT_FOUND (no such file, or a
 * library that it needs is missing), UNSUPPORTED (another version, no entry). */
int dtrain__gloo_load(const gloo_api **out, beton_error *err);

#endif
