/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs of every size that a program of another release may pass. */
#ifndef TESTS_SUPPORT_SIZED_H
#define TESTS_SUPPORT_SIZED_H

/* cmocka wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <beton/error.h>

/* A public function that takes options. call returns what the function does, and has closed what that opened. */
typedef struct sized_options {
	const char *name;
	const void *good; /* options that the function accepts */
	size_t size;      /* of the struct */
	int (*call)(const void *options, beton_error *err);
} sized_options;

/* The first bytes of good options, followed by `fill` for the rest, in memory of that size alone, so that a sanitizer
 * sees reads beyond it. */
static inline int sized_call(const sized_options *of, size_t claimed, size_t size, char fill, beton_error *err)
{
	char *copy = malloc(size);
	assert_non_null(copy);
	memset(copy, fill, size);
	memcpy(copy, of->good, size < of->size ? size : of->size);
	memcpy(copy, &claimed, sizeof(claimed));
	*err = (beton_error){0};
	int result = of->call(copy, err);
	free(copy);
	return result;
}

static inline void sized_expect(const sized_options *of, size_t claimed, size_t size, char fill, int code)
{
	beton_error err;
	int result = sized_call(of, claimed, size, fill, &err);
	if (result != code)
		fail_msg("%s: struct_size %zu of %zu, filled with %d: %d, not %d: %s", of->name, claimed, of->size,
			 fill, result, code, err.message);
	if (code != BETON_OK && !strstr(err.message, "struct_size is "))
		fail_msg("%s: struct_size %zu of %zu: '%s'", of->name, claimed, of->size, err.message);
}

static inline void sized_check(const sized_options *of)
{
	/* Large structs not byte by byte: it would take long. */
	for (size_t size = sizeof(size_t); size < of->size; size += of->size / 64 + 1)
		sized_expect(of, size, size, 0, BETON_OK);
	sized_expect(of, of->size, of->size, 0, BETON_OK);
	for (size_t more = 1; more <= 40; more += 13) {
		sized_expect(of, of->size + more, of->size + more, 0, BETON_OK);
		sized_expect(of, of->size + more, of->size + more, 1, BETON_INVALID_ARGUMENT);
	}
	for (size_t size = 0; size < sizeof(size_t); size++)
		sized_expect(of, size, of->size, 0, BETON_INVALID_ARGUMENT);
	/* Content of uninitialised memory. */
	sized_expect(of, 4097, 4097, 0, BETON_INVALID_ARGUMENT);
	sized_expect(of, SIZE_MAX, of->size, 0, BETON_INVALID_ARGUMENT);
	sized_expect(of, (size_t)UINT64_C(0x5a5a5a5a5a5a5a5a), of->size, 0, BETON_INVALID_ARGUMENT);
}

/* A function that sets defaults in a struct of `size` bytes here, and of other sizes in programs of other releases:
 * memory after their struct is not touched. */
static inline void sized_check_init(const char *name, size_t size, void (*call)(void *options, size_t size))
{
	enum { MORE = 64 };
	char *options = malloc(size + MORE), *whole = malloc(size);
	assert_true(options && whole);
	call(whole, size);
	for (size_t claimed = 0; claimed <= size + MORE; claimed++) {
		size_t filled = claimed < sizeof(size_t) ? 0 : claimed < size ? claimed : size;
		memset(options, 0x5a, size + MORE);
		call(options, claimed);
		if (filled && memcmp(options, &claimed, sizeof(claimed)) != 0)
			fail_msg("%s: struct_size is not %zu", name, claimed);
		if (filled && memcmp(options + sizeof(size_t), whole + sizeof(size_t), filled - sizeof(size_t)) != 0)
			fail_msg("%s: %zu bytes of %zu: other defaults", name, claimed, size);
		for (size_t i = filled; i < size + MORE; i++)
			if (options[i] != (filled && i < claimed ? 0 : 0x5a))
				fail_msg("%s: %zu bytes of %zu: byte %zu is %d", name, claimed, size, i, options[i]);
	}
	free(options);
	free(whole);
}

/* The same for TYPE, whose function is TYPE_init_sized. */
#define SIZED_INIT(type)                                        \
	static void type##_init_any(void *options, size_t size) \
	{                                                       \
		type##_init_sized(options, size);               \
	}
#define SIZED_CHECK_INIT(type) sized_check_init(#type, sizeof(type), type##_init_any)

/* A public function that fills in a struct of size bytes, always with the same. */
static inline void sized_check_filled(const char *name, size_t size, void (*call)(void *facts))
{
	enum { MORE = 64 };
	char *facts = malloc(size + MORE), *whole = malloc(size + MORE);
	assert_true(facts && whole);
	for (size_t claimed = 0; claimed <= size + MORE; claimed++) {
		memset(facts, 0x5a, size + MORE);
		memcpy(facts, &claimed, sizeof(claimed));
		memset(whole, 0x5a, size + MORE);
		memcpy(whole, &size, sizeof(size));
		call(facts);
		call(whole);
		if (memcmp(facts, &claimed, sizeof(claimed)) != 0)
			fail_msg("%s: struct_size %zu was changed", name, claimed);
		size_t filled = claimed < sizeof(size_t) ? sizeof(size_t) : claimed < size ? claimed : size;
		if (memcmp(facts + sizeof(size_t), whole + sizeof(size_t), filled - sizeof(size_t)) != 0)
			fail_msg("%s: struct_size %zu of %zu: it was not filled in", name, claimed, size);
		for (size_t i = filled; i < size + MORE; i++) {
			char expected = i < claimed ? 0 : 0x5a;
			if (facts[i] != expected)
				fail_msg("%s: struct_size %zu of %zu: byte %zu is %d", name, claimed, size, i,
					 facts[i]);
		}
	}
	free(facts);
	free(whole);
}

#endif
