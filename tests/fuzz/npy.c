/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a .npy file: refused with a message, or an array whose numbers hold, and whose first element can be
 * read. */
#include <string.h>

#include "exercise.h"
#include "fuzz.h"
#include "tools/beton-write/sources/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	array_type type;
	size_t offset;
	beton_error err = {0};
	int result = npy_parse(data, size, "fuzz", &type, &offset, &err);
	if (result != BETON_OK) {
		require(result == BETON_SAMPLE_CORRUPT && err.code == result && err.message[0],
			"a file that is refused says why");
		return 0;
	}
	uint64_t bytes;
	require(offset <= size, "the elements begin in the file");
	require(type.ndim <= BETON_DIMS_MAX, "there are as many dimensions as fit");
	require(memchr(type.dtype, 0, sizeof(type.dtype)) != NULL, "a type ends");
	require(type.item_size >= 1 && type.item_size <= 16, "an element has a size");
	require(array_bytes(&type, &bytes) && bytes <= INT64_MAX, "the size of the elements is a number");
	int64_t whole;
	double real;
	bool is_int = false;
	bool is_real = false;
	if (size - offset >= type.item_size) {
		is_int = array_read_int(&type, data + offset, &whole);
		is_real = array_read_real(&type, data + offset, &real);
	}
	require(!is_int || (is_real && (double)whole == real), "a whole number is a real one");
	return 0;
}
