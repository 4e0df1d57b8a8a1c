/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules for the test of the registry: a sound one, or with the fault that a macro gives it.
 */
#include <stddef.h>

#include <dtrain/module.h>

#ifndef MODULE_VERSION
#define MODULE_VERSION DTRAIN_MODULE_API_VERSION
#endif
#ifndef TABLE_VERSION
#define TABLE_VERSION DTRAIN_DEVICE_API_VERSION
#endif
#ifndef HAS_DEVICE
#define HAS_DEVICE 1
#endif
#ifndef HAS_MODULE
#define HAS_MODULE 1
#endif

#ifdef ENTRY
/* A library that has something else. */
BETON_API int ENTRY(void);

int ENTRY(void)
{
	return 1;
}
#else
static int open_device(const dtrain_device_options *options, dtrain_device **out, beton_error *err)
{
	static const char why[] = "made-up device: no hardware";
	(void)options;
	*out = NULL;
	for (size_t i = 0; err && i < sizeof(why); i++)
		err->message[i] = why[i];
	if (err)
		err->code = BETON_DEVICE;
	return BETON_DEVICE;
}

static const dtrain_device_api table = {.api_version = TABLE_VERSION, .name = DEVICE_NAME, .open = open_device};

BETON_API dtrain_module_entry_function dtrain_module_entry;

const dtrain_module *dtrain_module_entry(void)
{
	static const dtrain_module module = {
		.api_version = MODULE_VERSION, .version = "made for a test", .device = HAS_DEVICE ? &table : NULL};
	return HAS_MODULE ? &module : NULL;
}
#endif
