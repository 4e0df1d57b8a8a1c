/* SPDX-License-Identifier: Apache-2.0 */
#include "module.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"

#define MAX_MODULES 8

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const dtrain_module *loaded[MAX_MODULES];
static int num_loaded;

static const dtrain_module *find_loaded(const char *name)
{
	for (int i = 0; i < num_loaded; i++)
		if (strcmp(loaded[i]->device->name, name) == 0)
			return loaded[i];
	return NULL;
}

static bool is_there(const char *folder, int length, const char *name, char path[PATH_MAX])
{
	int size = snprintf(path, PATH_MAX, "%.*s/dtrain-%s.so", length, folder, name);
	return length > 0 && size > 0 && size < PATH_MAX && access(path, R_OK) == 0;
}

/* Finds the folder of this library, or of the program that contains it; the libraries' folder is beside the program's.
 */
static bool is_beside_library(const char *name, char path[PATH_MAX])
{
	Dl_info self;
	const char *slash;
	char folder[PATH_MAX];
	if (!dladdr((const void *)&num_loaded, &self) || !self.dli_fname || !(slash = strrchr(self.dli_fname, '/')))
		return false;
	int length = snprintf(folder, sizeof(folder), "%.*s/dtrain", (int)(slash - self.dli_fname), self.dli_fname);
	if (length < PATH_MAX && is_there(folder, length, name, path))
		return true;
	length = snprintf(folder, sizeof(folder), "%.*s/../lib/dtrain", (int)(slash - self.dli_fname), self.dli_fname);
	return length < PATH_MAX && is_there(folder, length, name, path);
}

static bool find_file(const char *name, char path[PATH_MAX])
{
	const char *folders = getenv("DTRAIN_MODULE_PATH");
	while (folders && *folders) {
		int length = (int)strcspn(folders, ":");
		if (is_there(folders, length, name, path))
			return true;
		folders += length;
		folders += *folders == ':';
	}
	return is_beside_library(name, path) || is_there(DTRAIN_MODULE_DIR, sizeof(DTRAIN_MODULE_DIR) - 1, name, path);
}

static int check(const dtrain_module *module, const char *name, const char *path, beton_error *err)
{
	if (!module)
		return bt_fail(err, BETON_UNSUPPORTED, "module %s: its entry returned nothing", path);
	if (module->api_version != DTRAIN_MODULE_API_VERSION)
		return bt_fail(err, BETON_UNSUPPORTED, "module %s: version %u, this library needs %u", path,
			       module->api_version, DTRAIN_MODULE_API_VERSION);
	if (!module->device || !module->device->name)
		return bt_fail(err, BETON_UNSUPPORTED, "module %s: it has no device", path);
	if (module->device->api_version != DTRAIN_DEVICE_API_VERSION)
		return bt_fail(err, BETON_UNSUPPORTED, "module %s: device table version %u, this library needs %u",
			       path, module->device->api_version, DTRAIN_DEVICE_API_VERSION);
	if (strcmp(module->device->name, name) != 0)
		return bt_fail(err, BETON_UNSUPPORTED, "module %s: its device is '%s'", path, module->device->name);
	if (num_loaded == MAX_MODULES)
		return bt_fail(err, BETON_NO_MEMORY, "module %s: %d modules are loaded already", path, num_loaded);
	return BETON_OK;
}

/* A refused module is unloaded. An accepted one stays, because its libraries have threads and exit handlers. */
static int load(const char *path, const char *name, const dtrain_module **out, beton_error *err)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return bt_fail(err, BETON_NOT_FOUND, "module %s cannot be loaded: %s", path, dlerror());
	void *symbol = dlsym(library, DTRAIN_MODULE_ENTRY);
	dtrain_module_entry_function *entry;
	memcpy(&entry, &symbol, sizeof(entry));
	int status = entry ? check(entry(), name, path, err)
			   : bt_fail(err, BETON_UNSUPPORTED, "module %s: no symbol " DTRAIN_MODULE_ENTRY, path);
	if (status != BETON_OK) {
		dlclose(library);
		return status;
	}
	*out = loaded[num_loaded++] = entry();
	return BETON_OK;
}

int dtrain__module_load(const char *name, const dtrain_module **out, beton_error *err)
{
	char path[PATH_MAX];
	*out = NULL;
	if (!*name || name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-")])
		return bt_fail(err, BETON_NOT_FOUND, "'%s' is not a valid module name", name);
	pthread_mutex_lock(&mutex);
	*out = find_loaded(name);
	int status = BETON_OK;
	if (!*out && find_file(name, path))
		status = load(path, name, out, err);
	else if (!*out)
		status = bt_fail(err, BETON_NOT_FOUND, "there is no module dtrain-%s.so", name);
	pthread_mutex_unlock(&mutex);
	return status;
}

const dtrain_module *dtrain__module_at(int index)
{
	pthread_mutex_lock(&mutex);
	const dtrain_module *module = index >= 0 && index < num_loaded ? loaded[index] : NULL;
	pthread_mutex_unlock(&mutex);
	return module;
}
