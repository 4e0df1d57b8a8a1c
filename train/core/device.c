/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "builtin.h"
#include "common/sized.h"
#include "common/suggest.h"
#include "common/system.h"
#include "module.h"

/* Fastest first: "auto" tries them in this order, after the modules. */
static const dtrain_device_api *const builtin[] = {
#ifdef DTRAIN_HAVE_CPU
	&dtrain__cpu_api,
#endif
	&dtrain__ref_api,
};

#define BUILTIN_COUNT ((int)(sizeof(builtin) / sizeof(builtin[0])))

/* Modules that "auto" tries before the built-in devices. */
static const char *const modules[] = {"cuda"};

#define MODULE_COUNT ((int)(sizeof(modules) / sizeof(modules[0])))

const dtrain_device_api *dtrain_device_at(int index)
{
	if (index >= 0 && index < BUILTIN_COUNT)
		return builtin[index];
	const dtrain_module *module = dtrain__module_at(index - BUILTIN_COUNT);
	return module ? module->device : NULL;
}

static const dtrain_device_api *find_builtin(const char *name)
{
	for (int i = 0; i < BUILTIN_COUNT; i++)
		if (strcmp(builtin[i]->name, name) == 0)
			return builtin[i];
	return NULL;
}

/* Finds a device by name. The error lists the names. */
static const dtrain_device_api *find(const char *name, beton_error *err)
{
	const dtrain_device_api *api = find_builtin(name);
	const dtrain_module *module = NULL;
	beton_error missing = {0};
	if (api)
		return api;
	if (dtrain__module_load(name, &module, &missing) == BETON_OK)
		return module->device;
	char names[256] = "auto";
	bt_suggestion like;
	bt_suggest_begin(&like, name);
	bt_suggest_try(&like, "auto");
	for (int i = 0; i < MODULE_COUNT; i++)
		if (strcmp(name, modules[i]) != 0)
			bt_suggest_try(&like, modules[i]);
	for (int i = 0; dtrain_device_at(i); i++) {
		bt_append(names, sizeof(names), ", %s", dtrain_device_at(i)->name);
		bt_suggest_try(&like, dtrain_device_at(i)->name);
	}
	/* The usual word for it, which is like the name of another device. */
	const char *meant = strcmp(name, "gpu") == 0 ? "; did you mean 'cuda'?" : bt_suggest_text(&like);
	bt_fail(err, missing.code, "no device '%s' (%s); there are: %s%s", name, missing.message, names, meant);
	return NULL;
}

/* An index is for kinds with several devices; if there are some, but not that one, it is an error. Built-in
 * devices exist once. */
static int open_first(const dtrain_device_options *options, dtrain_device **out, beton_error *err)
{
	const dtrain_module *module;
	int status = BETON_OK;
	for (int i = 0; i < MODULE_COUNT; i++) {
		if (dtrain__module_load(modules[i], &module, NULL) != BETON_OK)
			continue;
		beton_error why = {0};
		status = module->device->open(options, out, &why);
		if (status == BETON_INVALID_ARGUMENT && err)
			*err = why;
		if (status == BETON_OK || status == BETON_INVALID_ARGUMENT)
			return status;
	}
	dtrain_device_options only = *options;
	only.index = 0;
	for (int i = 0; i < BUILTIN_COUNT; i++) {
		status = builtin[i]->open(&only, out, err);
		if (status == BETON_OK || status == BETON_INVALID_ARGUMENT)
			break;
	}
	return status;
}

const dtrain_device_api *dtrain_device_find(const char *name)
{
	if (!name)
		return NULL;
	return strcmp(name, "auto") == 0 ? builtin[0] : find(name, NULL);
}

int dtrain_device_open(const char *name, const dtrain_device_options *options, dtrain_device **out, beton_error *err)
{
	if (BT_MISSING(err, name, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	dtrain_device_options given = {.struct_size = sizeof(given)};
	int status = options ? bt_sized_take(&given, options, "device options", err) : BETON_OK;
	if (status != BETON_OK)
		return status;
	if (given.threads < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "device '%s': threads %d is negative", name, given.threads);
	if (given.index < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "device '%s': index %d is negative", name, given.index);
	if (strcmp(name, "auto") == 0)
		return open_first(&given, out, err);
	beton_error missing = {0};
	const dtrain_device_api *api = find(name, &missing);
	if (api)
		return api->open(&given, out, err);
	if (err)
		*err = missing;
	return missing.code;
}

const dtrain_device_api *dtrain_device_get_api(const dtrain_device *device)
{
	if (!device)
		return NULL;
	/* the first member of every device's struct */
	return *(const dtrain_device_api *const *)device;
}

void dtrain_device_close(dtrain_device **device)
{
	if (!device)
		return;
	if (!*device)
		return;
	dtrain_device_get_api(*device)->close(*device);
	*device = NULL;
}
