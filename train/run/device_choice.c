/* SPDX-License-Identifier: Apache-2.0 */
#include "device_choice.h"

#include <string.h>

#include "common/error.h"
#include "common/system.h"

int run_parse_device(const char *text, run_device_choice *out, beton_error *err)
{
	size_t length = strcspn(text, ":");
	uint64_t index = 0;
	*out = (run_device_choice){.index = -1};
	if (length == 0 || length >= sizeof(out->name))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--device: '%s' is no device", text);
	memcpy(out->name, text, length);
	if (!text[length])
		return BETON_OK;
	int result = bt_parse_u64("--device: the index", text + length + 1, 0, 4095, &index, err);
	if (result == BETON_OK)
		out->index = (int32_t)index;
	return result;
}

int32_t run_device_index(const run_device_choice *choice, int local_rank, bool shared)
{
	bool one = strcmp(choice->name, "cpu") == 0 || strcmp(choice->name, "ref") == 0;
	if (choice->index >= 0)
		return choice->index;
	return one || shared ? 0 : local_rank;
}
