/* SPDX-License-Identifier: Apache-2.0 */
#include "module.h"

#include <pthread.h>
#include <string.h>

#include "common/error.h"
#include "module_file.h"

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
static int load(const char *name, const dtrain_module **out, beton_error *err)
{
	module_file file;
	dtrain_module_entry_function *entry;
	int status = dtrain__module_file_open(name, DTRAIN_MODULE_ENTRY, &file, err);
	if (status != BETON_OK)
		return status;
	memcpy(&entry, &file.entry, sizeof(entry));
	status = check(entry(), name, file.path, err);
	if (status != BETON_OK) {
		dtrain__module_file_close(&file);
		return status;
	}
	*out = loaded[num_loaded++] = entry();
	return BETON_OK;
}

int dtrain__module_load(const char *name, const dtrain_module **out, beton_error *err)
{
	*out = NULL;
	if (!*name || name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-")])
		return bt_fail(err, BETON_NOT_FOUND, "'%s' is not a valid module name", name);
	pthread_mutex_lock(&mutex);
	*out = find_loaded(name);
	int status = *out ? BETON_OK : load(name, out, err);
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
