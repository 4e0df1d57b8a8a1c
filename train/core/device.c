/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "builtin.h"

/* Fastest first: that is the order in which "auto" tries them. */
static const dtrain_device_api *const builtin[] = {
#ifdef DTRAIN_HAVE_CPU
	&dtrain__cpu_api,
#endif
	&dtrain__ref_api,
};

#define BUILTIN_COUNT ((int)(sizeof(builtin) / sizeof(builtin[0])))

const dtrain_device_api *dtrain_device_at(int index)
{
	return index >= 0 && index < BUILTIN_COUNT ? builtin[index] : NULL;
}

const dtrain_device_api *dtrain_device_find(const char *name)
{
	if (strcmp(name, "auto") == 0)
		return builtin[0];
	for (int i = 0; i < BUILTIN_COUNT; i++)
		if (strcmp(builtin[i]->name, name) == 0)
			return builtin[i];
	return NULL;
}

static int open_one(const dtrain_device_api *api, const dtrain_device_options *options, dtrain_device **out,
		    beton_error *err)
{
	if (api->api_version != DTRAIN_DEVICE_API_VERSION)
		return bt_fail(err, BETON_UNSUPPORTED, "device '%s': table version %u, this library needs %u",
			       api->name, api->api_version, DTRAIN_DEVICE_API_VERSION);
	return api->open(options, out, err);
}

static int open_first(const dtrain_device_options *options, dtrain_device **out, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < BUILTIN_COUNT; i++) {
		status = open_one(builtin[i], options, out, err);
		if (status == BETON_OK || status == BETON_INVALID_ARGUMENT)
			break;
	}
	return status;
}

static int unknown_name(const char *name, beton_error *err)
{
	char names[256];
	size_t used = (size_t)snprintf(names, sizeof(names), "auto");
	for (int i = 0; i < BUILTIN_COUNT; i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, ", %s", builtin[i]->name);
	return bt_fail(err, BETON_NOT_FOUND, "no device '%s'; this build has: %s", name, names);
}

int dtrain_device_open(const char *name, const dtrain_device_options *options, dtrain_device **out, beton_error *err)
{
	*out = NULL;
	dtrain_device_options given = {.struct_size = sizeof(given)};
	if (options) {
		if (options->struct_size < sizeof(given))
			return bt_fail(err, BETON_INVALID_ARGUMENT, "device options: struct_size %zu, need %zu",
				       options->struct_size, sizeof(given));
		given = *options;
	}
	if (given.threads < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "device '%s': threads %d is negative", name, given.threads);
	if (given.index < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "device '%s': index %d is negative", name, given.index);
	if (strcmp(name, "auto") == 0)
		return open_first(&given, out, err);
	const dtrain_device_api *api = dtrain_device_find(name);
	return api ? open_one(api, &given, out, err) : unknown_name(name, err);
}

const dtrain_device_api *dtrain_device_get_api(const dtrain_device *device)
{
	/* The first member of every device's struct. */
	return *(const dtrain_device_api *const *)device;
}

void dtrain_device_close(dtrain_device **device)
{
	if (!*device)
		return;
	dtrain_device_get_api(*device)->close(*device);
	*device = NULL;
}
