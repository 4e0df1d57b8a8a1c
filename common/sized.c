/* SPDX-License-Identifier: Apache-2.0 */
#include "sized.h"

#include <string.h>

static size_t size_of(const void *sized)
{
	size_t size;
	memcpy(&size, sized, sizeof(size));
	return size;
}

static bool is_size(size_t size)
{
	return size >= sizeof(size) && size <= BT_SIZED_MAX;
}

int bt_sized_take(void *out, const void *given, const char *what, beton_error *err)
{
	if (!given)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s is NULL", what);
	size_t size = size_of(given), known = size_of(out);
	if (!is_size(size))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: struct_size is %zu, and the struct has %zu bytes: it was not initialised", what,
			       size, known);
	const char *bytes = given;
	for (size_t i = known; i < size; i++)
		if (bytes[i])
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "%s: struct_size is %zu, this library knows %zu bytes, and byte %zu is not 0: "
				       "an option of a newer release",
				       what, size, known, i);
	memcpy(out, given, size < known ? size : known);
	memcpy(out, &known, sizeof(known));
	return BETON_OK;
}

/* Copies what both have, and clears the rest. */
static void copy(void *out, size_t size, const void *from)
{
	size_t known = size_of(from);
	if (size > known)
		memset((char *)out + known, 0, size - known);
	memcpy(out, from, size < known ? size : known);
	memcpy(out, &size, sizeof(size));
}

void bt_sized_init(void *out, size_t size, const void *defaults)
{
	/* Any other size is wrong; the call that takes the struct says so. */
	if (out && is_size(size))
		copy(out, size, defaults);
}

bool bt_sized_give(void *out, const void *facts)
{
	size_t size = size_of(out);
	if (!is_size(size))
		return false;
	copy(out, size, facts);
	return true;
}

bool bt_reserved_is_zero(const uint64_t *reserved, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (reserved[i])
			return false;
	return true;
}
