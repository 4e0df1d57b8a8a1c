/* SPDX-License-Identifier: Apache-2.0 */
#include "device_choice.h"

#include <string.h>

#include "common/error.h"
#include "common/system.h"

int run_check_device(const char *name, beton_error *err)
{
	/* Opening a device that does not exist gives the reason. */
	dtrain_device *none = NULL;
	if (dtrain_device_find(name))
		return BETON_OK;
	dtrain_device_open(name, NULL, &none, err);
	bt_prefix(err, "--device");
	return err->code = BETON_INVALID_ARGUMENT;
}

int run_parse_device(const char *text, run_device_choice *out, beton_error *err)
{
	size_t length = strcspn(text, ":");
	uint64_t index = 0;
	*out = (run_device_choice){.index = -1};
	if (length == 0 || length >= sizeof(out->name))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--device: '%s' is not a device", text);
	memcpy(out->name, text, length);
	if (!text[length])
		return run_check_device(out->name, err);
	int status = bt_parse_u64("--device: the index", text + length + 1, 0, 4095, &index, err);
	if (status != BETON_OK)
		return status;
	out->index = (int32_t)index;
	return run_check_device(out->name, err);
}

int32_t run_device_index(const run_device_choice *choice, int local_rank, bool shared)
{
	bool one = strcmp(choice->name, "cpu") == 0 || strcmp(choice->name, "ref") == 0;
	if (choice->index >= 0)
		return choice->index;
	return one || shared ? 0 : local_rank;
}

/* A device checks its index before it starts anything, so a refused index 1 means that there is one device. */
static bool is_alone(const char *name, dtrain_device_options options)
{
	dtrain_device *second = NULL;
	options.index = 1;
	int status = dtrain_device_open(name, &options, &second, NULL);
	dtrain_device_close(&second);
	return status == BETON_INVALID_ARGUMENT;
}

int run_open_device(const run_device_choice *choice, const struct rank_env *env, bool shared,
		    dtrain_device_options *options, dtrain_device **out, beton_error *err)
{
	beton_error refused = {0};
	options->index = run_device_index(choice, env->local_rank, shared);
	int status = dtrain_device_open(choice->name, options, out, &refused);
	/* The ranks of our launcher see all its devices, so there are too few. */
	if (status == BETON_INVALID_ARGUMENT && choice->index < 0 && options->index > 0 && !env->store_hosted &&
	    is_alone(choice->name, *options)) {
		options->index = 0;
		return dtrain_device_open(choice->name, options, out, err);
	}
	if (status != BETON_OK && err)
		*err = refused;
	return status;
}
