/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules: devices that are loaded at run time, so that a program starts without the libraries that they need.
 *
 * The device "cuda" is a shared object dtrain-cuda.so with one symbol, dtrain_module_entry. It is looked for in the
 * folders of the environment variable DTRAIN_MODULE_PATH (with colons between them), in the folder dtrain beside
 * libdtrain, and where the installation puts it; the first that is there is loaded, and stays loaded. A module is built
 * against this header alone, needs no symbol of libdtrain, and is refused when its version is another one than the
 * library's.
 */
#ifndef DTRAIN_MODULE_H
#define DTRAIN_MODULE_H

#include <dtrain/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DTRAIN_MODULE_API_VERSION 1

struct group_backend; /* how ranks on such devices talk to each other */

typedef struct dtrain_module {
	uint32_t api_version;              /* DTRAIN_MODULE_API_VERSION */
	const char *version;               /* of what it was built with, for people */
	const dtrain_device_api *device;   /* its name is the module's */
	const struct group_backend *group; /* NULL: none */
} dtrain_module;

#define DTRAIN_MODULE_ENTRY "dtrain_module_entry"
typedef const dtrain_module *dtrain_module_entry_function(void);

#ifdef __cplusplus
}
#endif

#endif
