/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include <beton/beton.h>

const char *beton_version(void)
{
	return BETON_VERSION;
}

void beton_free(void *memory)
{
	free(memory);
}

const char *beton_status_name(int code)
{
	switch (code) {
#define NAME_CASE(name, value, text) \
	case value:                  \
		return #name;
		BETON_STATUS_LIST(NAME_CASE)
#undef NAME_CASE
	default:
		return "UNKNOWN";
	}
}

const char *beton_status_text(int code)
{
	switch (code) {
#define TEXT_CASE(name, value, text) \
	case value:                  \
		return text;
		BETON_STATUS_LIST(TEXT_CASE)
#undef TEXT_CASE
	default:
		return "unknown status code";
	}
}
