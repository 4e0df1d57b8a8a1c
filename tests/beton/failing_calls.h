/* SPDX-License-Identifier: Apache-2.0
 *
 * System calls and allocations that fail when a test wants it. The linker puts them before the C library's
 * (--wrap) for the library's objects; meson.build lists their names. */
#ifndef TESTS_BETON_FAILING_CALLS_H
#define TESTS_BETON_FAILING_CALLS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum failing_call {
	CALL_ALLOCATE,
	CALL_WRITE,
	CALL_OPEN,
	CALL_TRUNCATE,
	CALL_SYNC,
	CALL_CLOSE, /* the descriptor is gone all the same, as with a real EIO */
	CALL_RENAME,
	CALL_LOCK, /* not the end of a lock */
	CALL_MODE,
	/* The wait for a condition, and its end; these never fail. */
	CALL_WAIT,
	CALL_WOKEN,
} failing_call;

/* The fault that is injected: into calls of one kind, from number `first` on (from 0), once or for ever. */
typedef struct failing_calls {
	failing_call kind;
	long first; /* below 0: none */
	bool for_ever;
	int error_number;
	bool cut; /* writes half of what it should, without an error */
	long seen;
	long hits;
	/* Called before each call of any kind, by its thread; true: it fails. size: bytes of memory. May be NULL. */
	bool (*before)(failing_call kind, size_t size);
} failing_calls;

extern failing_calls fault;

/* Lets call number k, from now on, fail. */
void fail_call(failing_call kind, int error_number, long k);

#endif
