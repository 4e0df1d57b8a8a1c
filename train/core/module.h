/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds and loads modules: see <dtrain/module.h>.
 */
#ifndef DTRAIN_CORE_MODULE_H
#define DTRAIN_CORE_MODULE_H

#include <dtrain/module.h>

/* Loads a module, unless it is loaded already; it stays loaded. Any thread. Errors: NOT_FOUND (no such file, or a
 * library that it needs is missing), UNSUPPORTED (another version, no entry), NO_MEMORY. */
int dtrain__module_load(const char *name, const dtrain_module **out, beton_error *err);

/* The loaded modules, in the order of loading; NULL past the end. */
const dtrain_module *dtrain__module_at(int index);

#endif
