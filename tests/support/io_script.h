/* SPDX-License-Identifier: Apache-2.0
 *
 * A source for beton_reader_open_io and for loaders, which does what the test tells it: short reads, errors, another
 * identity, reads that hang. */
#ifndef TESTS_SUPPORT_IO_SCRIPT_H
#define TESTS_SUPPORT_IO_SCRIPT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <beton/io.h>

/* Action for a read that touches bytes from `from` to `to`. */
typedef enum io_script_what {
	IO_SCRIPT_NOTHING = 0,
	IO_SCRIPT_FAIL,     /* code, message */
	IO_SCRIPT_END,      /* done = 0 */
	IO_SCRIPT_TOO_MUCH, /* done = size + 1 */
	IO_SCRIPT_LATE,     /* waits for the deadline, and then reads one byte */
	IO_SCRIPT_HANG,     /* waits for the deadline, cancel, or the end of this */
	IO_SCRIPT_STUBBORN, /* waits for the end of this alone */
} io_script_what;

typedef struct io_script {
	/* Constant. */
	const uint8_t *bytes;
	uint64_t size;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Guarded by lock. What to do: */
	io_script_what what;
	uint64_t from, to;
	int code;
	const char *message;
	uint64_t most; /* bytes that a call reads; 0: all */
	char identity[16];
	/* Record of the calls: */
	bool cancelled;
	int calls, running, most_running, held, closed, announcements;
	uint64_t largest; /* read */
} io_script;

/* identity "one". */
void io_script_init(io_script *script, const void *bytes, uint64_t size);
void io_script_destroy(io_script *script);

/* Describes the source. name: "script:data". */
beton_io io_script_io(io_script *script);

/* From now on, reads that touch these bytes do this; held reads go on. */
void io_script_do(io_script *script, io_script_what what, uint64_t from, uint64_t to);

/* Waits until as many reads are held. */
void io_script_wait_for_held(io_script *script, int count);

#endif
