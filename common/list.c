/* SPDX-License-Identifier: Apache-2.0 */
#include "list.h"

#include <string.h>

int bt_list_next(const char *what, const char **at, char *out, size_t size, beton_error *err)
{
	const char *text = *at;
	size_t length = strcspn(text, ",");
	if (length == 0)
		return *text ? bt_fail(err, BETON_INVALID_ARGUMENT, "%s: there is nothing before the comma in '%s'",
				       what, text)
			     : bt_fail(err, BETON_INVALID_ARGUMENT, "%s: there is nothing after the last comma", what);
	if (length >= size)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%.*s' is longer than %zu bytes", what, (int)length,
			       text, size - 1);
	memcpy(out, text, length);
	out[length] = 0;
	*at = text[length] ? text + length + 1 : NULL;
	return BETON_OK;
}
