/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a field descriptor: refused with a message, or a field whose numbers hold, and which gives the same
 * field when it is written and parsed again. The first byte chooses the page size. */
#include "fuzz.h"

#include <string.h>

#include <beton/beton.h>

#include "beton/fields.h"
#include "beton/format.h"
#include "beton/layout.h"
#include "beton/types/types.h"
#include "exercise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t descriptor[FIELD_SIZE] = {0};
	uint8_t again[FIELD_SIZE];
	if (size == 0)
		return 0;
	uint32_t page_size = BETON_PAGE_SIZE_MIN << data[0] % 11;
	memcpy(descriptor, data + 1, size - 1 < FIELD_SIZE ? size - 1 : FIELD_SIZE);
	beton_field field;
	beton_error err = {0};
	int result = bt_field_parse(descriptor, "fuzz", 3, page_size, &field, &err);
	if (result != BETON_OK) {
		require((result == BETON_FORMAT || result == BETON_UNSUPPORTED_FIELD) && err.code == result &&
				err.message[0],
			"a field that is refused says why");
		return 0;
	}
	require(field.name[BETON_NAME_MAX] == 0, "a name ends");
	require(bt_layout_record(&field, 1) > 0, "a field has a record");
	bool compressed = field.compression != BETON_COMPRESSION_NONE;
	if (bt_form_of(field.type) == BT_FORM_ARRAY) {
		require(field.ndim >= 1 && field.ndim <= BETON_DIMS_MAX && field.item_size > 0, "an array has a shape");
		require(bt_array_bytes(&field) <= (compressed ? COMPRESSED_VALUE_MAX : page_size),
			"an array fits a page");
		require(memchr(field.dtype, 0, sizeof(field.dtype)) != NULL, "a type ends");
	}
	const char *contradiction = bt_field_contradiction(descriptor, &field);
	/* Fields that cannot be written: names that are not printable, arrays without elements. */
	beton_field written = field;
	if (compressed || bt_field_format(&written, 3, page_size, again, NULL) != BETON_OK)
		return 0;
	require(bt_field_parse(again, "fuzz", 3, page_size, &written, &err) == BETON_OK, "it can be parsed again");
	require(strcmp(field.name, written.name) == 0 && field.type == written.type && field.ndim == written.ndim &&
			memcmp(field.shape, written.shape, sizeof(field.shape)) == 0 &&
			strcmp(field.dtype, written.dtype) == 0 && field.item_size == written.item_size,
		"it is the same field");
	require(bt_field_contradiction(again, &written) == NULL, "what is written does not contradict itself");
	/* The type of an array can be spelt with blanks. */
	require(contradiction || bt_form_of(field.type) == BT_FORM_ARRAY || memcmp(descriptor, again, FIELD_SIZE) == 0,
		"a descriptor without a contradiction is one that could have been written");
	return 0;
}
