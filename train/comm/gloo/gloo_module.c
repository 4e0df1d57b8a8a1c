/* SPDX-License-Identifier: Apache-2.0 */
#include "gloo_module.h"

#include <pthread.h>
#include <string.h>

#include "common/error.h"
#include "core/module_file.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const gloo_api *loaded;

static int load(beton_error *err)
{
	module_file file;
	gloo_entry_function *entry;
	int status = dtrain__module_file_open("gloo", GLOO_MODULE_ENTRY, &file, err);
	if (status != BETON_OK)
		return status;
	memcpy(&entry, &file.entry, sizeof(entry));
	const gloo_api *api = entry();
	if (api->version != GLOO_API_VERSION) {
		status = bt_fail(err, BETON_UNSUPPORTED, "module %s: version %u, this library needs %u", file.path,
				 api->version, GLOO_API_VERSION);
		dtrain__module_file_close(&file);
		return status;
	}
	loaded = api;
	return BETON_OK;
}

int dtrain__gloo_load(const gloo_api **out, beton_error *err)
{
	pthread_mutex_lock(&mutex);
	int status = loaded ? BETON_OK : load(err);
	*out = loaded;
	pthread_mutex_unlock(&mutex);
	return status;
}
