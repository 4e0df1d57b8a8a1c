/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds a module's file, dtrain-NAME.so, and opens it. <dtrain/module.h> lists the folders.
 */
#ifndef DTRAIN_CORE_MODULE_FILE_H
#define DTRAIN_CORE_MODULE_FILE_H

#include <limits.h>

#include <beton/error.h>

typedef struct module_file {
	char path[PATH_MAX];
	void *library; /* of dlopen */
	void *entry;   /* address of the entry function */
} module_file;

/* Opens the first file found; `entry` is the symbol of its entry function. Errors: NOT_FOUND (no such file, or a
 * library that it needs is missing), UNSUPPORTED (no such symbol). */
int dtrain__module_file_open(const char *name, const char *entry, module_file *out, beton_error *err);
/* Unloads a module that is refused. */
void dtrain__module_file_close(const module_file *file);

#endif
