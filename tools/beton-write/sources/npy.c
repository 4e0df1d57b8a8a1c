/* SPDX-License-Identifier: Apache-2.0 */
#include "npy.h"

#include <math.h>
#include <string.h>

#include "common/error.h"

/* The header is a Python dictionary as numpy.save writes it: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3),
 * } This reads that form alone: three known keys in any order, a string, a truth value, a tuple of numbers. */
typedef struct cursor {
	const char *at;
	const char *end;
} cursor;

static void skip_blanks(cursor *text)
{
	while (text->at < text->end && (*text->at == ' ' || *text->at == '\n'))
		text->at++;
}

static bool take(cursor *text, const char *word)
{
	skip_blanks(text);
	size_t length = strlen(word);
	if ((size_t)(text->end - text->at) < length || memcmp(text->at, word, length) != 0)
		return false;
	text->at += length;
	return true;
}

/* A string without escapes, in single quotes. */
static bool take_string(cursor *text, char *out, size_t capacity)
{
	if (!take(text, "'"))
		return false;
	size_t length = 0;
	while (text->at < text->end && *text->at != '\'' && *text->at != '\\') {
		if (length + 1 >= capacity)
			return false;
		out[length++] = *text->at++;
	}
	out[length] = 0;
	return take(text, "'");
}

static bool take_number(cursor *text, uint64_t *out)
{
	skip_blanks(text);
	const char *begin = text->at;
	for (*out = 0; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
		uint64_t digit = (uint64_t)(*text->at - '0');
		if (*out > ((uint64_t)INT64_MAX - digit) / 10)
			return false;
		*out = *out * 10 + digit;
	}
	return text->at > begin;
}

/* (), (3,) or (3, 4) */
static bool take_shape(cursor *text, array_type *type)
{
	type->ndim = 0;
	if (!take(text, "("))
		return false;
	while (!take(text, ")")) {
		uint64_t side;
		if (type->ndim == BETON_DIMS_MAX || !take_number(text, &side))
			return false;
		type->shape[type->ndim++] = side;
		if (!take(text, ",")) {
			if (type->ndim == 1)
				return false;
			return take(text, ")");
		}
	}
	return true;
}

/* Plain numbers: b1, i1 to i8, u1 to u8, f2 to f8, c8, c16. */
static bool check_dtype(array_type *type)
{
	const char *dtype = type->dtype;
	static const char *const numbers[] = {"b1", "i1", "i2", "i4", "i8", "u1", "u2",
					      "u4", "u8", "f2", "f4", "f8", "c8", "c16"};
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		if (strcmp(dtype + (dtype[0] != 0), numbers[i]) != 0)
			continue;
		type->item_size = 0;
		for (const char *digit = numbers[i] + 1; *digit; digit++)
			type->item_size = type->item_size * 10 + (uint32_t)(*digit - '0');
		return type->item_size == 1 ? strchr("|<>", dtype[0]) != NULL : strchr("<>", dtype[0]) != NULL;
	}
	return false;
}

static bool parse_dictionary(cursor text, array_type *type, bool *fortran)
{
	char key[16];
	unsigned seen = 0;
	if (!take(&text, "{"))
		return false;
	while (!take(&text, "}")) {
		unsigned bit = 0;
		if (!take_string(&text, key, sizeof(key)) || !take(&text, ":"))
			return false;
		if (strcmp(key, "descr") == 0 && take_string(&text, type->dtype, sizeof(type->dtype)))
			bit = 1;
		else if (strcmp(key, "fortran_order") == 0 &&
			 ((*fortran = take(&text, "True")) || take(&text, "False")))
			bit = 2;
		else if (strcmp(key, "shape") == 0 && take_shape(&text, type))
			bit = 4;
		if (bit == 0 || (seen & bit))
			return false;
		seen |= bit;
		if (!take(&text, ","))
			return take(&text, "}") && seen == 7;
	}
	return seen == 7;
}

int npy_parse(const uint8_t *data, size_t size, const char *name, array_type *type, size_t *offset, beton_error *err)
{
	*type = (array_type){0};
	if (size < 10 || memcmp(data, "\x93NUMPY", 6) != 0)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: not a .npy file", name);
	if (data[6] < 1 || data[6] > 3 || data[7] != 0)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: version %u.%u of .npy is not known", name, data[6],
			       data[7]);
	size_t begin = data[6] == 1 ? 10 : 12;
	size_t length = (size_t)data[8] | (size_t)data[9] << 8;
	if (data[6] > 1 && (size < 12 || data[10] || data[11]))
		length = SIZE_MAX;
	if (begin > size || length > size - begin)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: its .npy header is cut off or longer than 65535 bytes",
			       name);
	bool fortran = false;
	const char *text = (const char *)data + begin;
	if (!parse_dictionary((cursor){text, text + length}, type, &fortran))
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: its .npy header is not that of a plain array: %.*s",
			       name, (int)(length < 120 ? length : 120), text);
	if (!check_dtype(type))
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: an array of type '%s'; only plain numbers can be read",
			       name, type->dtype);
	uint64_t bytes;
	if (!array_bytes(type, &bytes))
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: an array of more than 2^63 bytes", name);
	if (fortran && type->ndim > 1)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: an array in Fortran order; save it in C order", name);
	*offset = begin + length;
	return BETON_OK;
}

bool array_bytes(const array_type *type, uint64_t *bytes)
{
	*bytes = type->item_size;
	for (uint32_t i = 0; i < type->ndim; i++)
		if (type->shape[i] == 0) {
			*bytes = 0;
			return true;
		}
	for (uint32_t i = 0; i < type->ndim; i++) {
		if (type->shape[i] > (uint64_t)INT64_MAX / *bytes)
			return false;
		*bytes *= type->shape[i];
	}
	return true;
}

/* The element's bits, in the lowest bytes. */
static uint64_t load_bits(const array_type *type, const void *element)
{
	const uint8_t *bytes = element;
	uint64_t bits = 0;
	for (uint32_t i = 0; i < type->item_size; i++) {
		uint32_t from = type->dtype[0] == '>' ? i : type->item_size - 1 - i;
		bits = bits << 8 | bytes[from];
	}
	return bits;
}

bool array_read_int(const array_type *type, const void *element, int64_t *out)
{
	char kind = type->dtype[1];
	if (kind != 'b' && kind != 'i' && kind != 'u')
		return false;
	uint64_t bits = load_bits(type, element);
	uint32_t unused = 64 - 8 * type->item_size;
	if (kind == 'i')
		*out = (int64_t)(bits << unused) >> unused;
	else
		*out = (int64_t)bits;
	return kind == 'i' || *out >= 0;
}

/* IEEE 754's half precision, which C has no portable type for. */
static double read_half(uint32_t bits)
{
	int exponent = (int)(bits >> 10 & 31);
	int fraction = (int)(bits & 1023);
	double value = exponent == 31 ? (fraction ? NAN : INFINITY)
		       : exponent     ? ldexp(1024 + fraction, exponent - 25)
				      : ldexp(fraction, -24);
	return bits >> 15 & 1 ? -value : value;
}

bool array_read_real(const array_type *type, const void *element, double *out)
{
	uint64_t bits = load_bits(type, element);
	uint32_t low = (uint32_t)bits;
	float single;
	if (type->dtype[1] == 'f') {
		switch (type->item_size) {
		case 2:
			*out = read_half(low);
			return true;
		case 4:
			memcpy(&single, &low, sizeof(single));
			*out = (double)single;
			return true;
		default:
			memcpy(out, &bits, sizeof(*out));
			return true;
		}
	}
	int64_t whole;
	if (!array_read_int(type, element, &whole))
		return false;
	*out = (double)whole;
	return true;
}
