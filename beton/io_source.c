/* SPDX-License-Identifier: Apache-2.0 */
#include "io_source.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/sized.h"
#include "common/system.h"

struct io_source {
	beton_io io; /* name and identity are copies */

	pthread_mutex_t lock;
	pthread_cond_t place; /* signals that a call ended, or cancel */
	/* Guarded by lock. */
	uint32_t running; /* calls of read_at */
	bool cancelled;
};

void beton_io_init_sized(beton_io *io, size_t size)
{
	const beton_io defaults = {.struct_size = sizeof(defaults), .in_flight = 1};
	bt_sized_init(io, size, &defaults);
}

static int read_memory(void *context, beton_io_read *read, beton_error *err)
{
	const beton_memory *memory = context;
	(void)err;
	memcpy(read->destination, (const uint8_t *)memory->bytes + read->offset, (size_t)read->size);
	read->done = read->size;
	return BETON_OK;
}

void beton_io_memory_sized(beton_io *io, size_t size, const char *name, const beton_memory *memory)
{
	beton_io_init_sized(io, size);
	if (!io || !memory || (memory->size && !memory->bytes))
		return; /* opening it reports that read_at is NULL */
	io->name = name;
	io->size = memory->size;
	io->in_flight = BETON_IO_IN_FLIGHT_MAX;
	io->flags = BETON_IO_IMMEDIATE;
	io->read_at = read_memory;
	io->context = (void *)memory;
}

static int check(const beton_io *io, beton_error *err)
{
	if (!io->name || !io->read_at)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "beton_io: %s is NULL", io->name ? "read_at" : "name");
	if (io->size > INT64_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "beton_io: %s: size is %llu, more than 2^63 - 1", io->name,
			       (unsigned long long)io->size);
	if (io->in_flight < 1 || io->in_flight > BETON_IO_IN_FLIGHT_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "beton_io: %s: in_flight is %u, not 1 to %d", io->name,
			       io->in_flight, BETON_IO_IN_FLIGHT_MAX);
	if (io->flags & ~BETON_IO_IMMEDIATE)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "beton_io: %s: flags is 0x%x, with unknown bits", io->name,
			       io->flags);
	return BETON_OK;
}

int bt_io_source_open(io_source **out, const beton_io *given, beton_error *err)
{
	beton_io io;
	*out = NULL;
	beton_io_init(&io);
	int result = bt_sized_take(&io, given, "beton_io", err);
	if (result == BETON_OK)
		result = check(&io, err);
	if (result)
		return result;
	io_source *source = calloc(1, sizeof(*source));
	char *name = strdup(io.name), *identity = strdup(io.identity ? io.identity : "");
	if (!source || !name || !identity) {
		free(source);
		free(name);
		free(identity);
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", io.name);
	}
	io.name = name;
	io.identity = identity;
	source->io = io;
	/* With default attributes these calls cannot fail. */
	pthread_mutex_init(&source->lock, NULL);
	bt_condition_init(&source->place);
	*out = source;
	return BETON_OK;
}

void bt_io_source_close(io_source **out, bool released)
{
	io_source *source = *out;
	*out = NULL;
	if (!source)
		return;
	if (released && source->io.close)
		source->io.close(source->io.context);
	pthread_cond_destroy(&source->place);
	pthread_mutex_destroy(&source->lock);
	free((char *)source->io.name);
	free((char *)source->io.identity);
	free(source);
}

const beton_io *bt_io_source_get(const io_source *source)
{
	return &source->io;
}

static int late(const io_source *source, const char *what, beton_error *err)
{
	return bt_fail(err, BETON_TIMEOUT, "%s after %llu ms, its timeout_ms", what,
		       (unsigned long long)source->io.timeout_ms);
}

static int given_up(beton_error *err)
{
	return bt_fail(err, BETON_CANCELLED, "the read was cancelled");
}

/* Waits until one call more is allowed. */
static int enter(io_source *source, uint64_t deadline, beton_error *err)
{
	int result = BETON_OK;
	pthread_mutex_lock(&source->lock);
	while (!source->cancelled && source->running >= source->io.in_flight && result == BETON_OK) {
		uint64_t now = bt_now_ns();
		if (deadline == UINT64_MAX)
			pthread_cond_wait(&source->place, &source->lock);
		else if (now < deadline)
			bt_wait_ns(&source->place, &source->lock, deadline - now);
		else
			result = late(source, "other reads were still in flight", err);
	}
	if (source->cancelled)
		result = given_up(err);
	source->running += result == BETON_OK;
	pthread_mutex_unlock(&source->lock);
	return result;
}

static void leave(io_source *source)
{
	pthread_mutex_lock(&source->lock);
	source->running--;
	pthread_cond_signal(&source->place);
	pthread_mutex_unlock(&source->lock);
}

static bool is_cancelled(io_source *source)
{
	pthread_mutex_lock(&source->lock);
	bool cancelled = source->cancelled;
	pthread_mutex_unlock(&source->lock);
	return cancelled;
}

/* Why read_at failed. Texts of codes that a read cannot have, such as END, would mislead. */
static int fail_read(int code, const beton_error *given, beton_error *err)
{
	bool suits = code == BETON_IO || code == BETON_FILE_CHANGED || code == BETON_NO_MEMORY ||
		     code == BETON_CANCELLED || code == BETON_NOT_FOUND || code == BETON_ACCESS ||
		     code == BETON_TIMEOUT;
	if (given->message[0])
		return bt_fail(err, code, "%s", given->message);
	if (suits)
		return bt_fail(err, code, "%s", beton_status_text(code));
	return bt_fail(err, code, "read_at returned %d (%s) without a message", code, beton_status_name(code));
}

/* Calls read_at until all bytes are there. */
static int read_all(io_source *source, beton_io_read *part, beton_error *err)
{
	const beton_io *io = &source->io;
	for (;;) {
		part->done = 0;
		beton_error why = {0};
		int result = io->read_at(io->context, part, &why);
		if (result != BETON_OK)
			return fail_read(result, &why, err);
		if (part->done > part->size)
			return bt_fail(err, BETON_USER_ERROR, "read_at says it read %llu bytes",
				       (unsigned long long)part->done);
		if (part->done == 0)
			return bt_fail(err, BETON_FILE_CHANGED, "it ends at byte %llu, and had %llu",
				       (unsigned long long)part->offset, (unsigned long long)io->size);
		part->offset += part->done;
		part->size -= part->done;
		part->destination = (uint8_t *)part->destination + part->done;
		if (part->size == 0)
			return BETON_OK;
		if (is_cancelled(source))
			return given_up(err);
		if (bt_now_ns() >= part->deadline_ns)
			return late(source, "only a part was read", err);
	}
}

int bt_io_source_read(io_source *source, const char *section, void *destination, size_t size, uint64_t offset,
		      beton_error *err)
{
	const beton_io *io = &source->io;
	const uint64_t most = UINT64_MAX / 2000000;
	/* Do not ask read_at about an empty file: it could only answer "the end". */
	if (size == 0)
		return BETON_OK;
	beton_io_read part = {.offset = offset,
			      .size = size,
			      .destination = destination,
			      .identity = io->identity,
			      .deadline_ns = UINT64_MAX};
	if (io->timeout_ms)
		part.deadline_ns = bt_now_ns() + (io->timeout_ms < most ? io->timeout_ms : most) * 1000000;
	beton_error why;
	int result = enter(source, part.deadline_ns, &why);
	if (result == BETON_OK) {
		result = read_all(source, &part, &why);
		leave(source);
	}
	if (result == BETON_OK)
		return BETON_OK;
	/* A code such as TIMEOUT or END would mean something else to the caller of a reader or loader. */
	if (result != BETON_FILE_CHANGED && result != BETON_NO_MEMORY && result != BETON_CANCELLED)
		result = BETON_IO;
	return bt_fail(err, result, "%s: cannot read %zu bytes at offset %llu (%s): %s", io->name, size,
		       (unsigned long long)offset, section, why.message);
}

void bt_io_source_cancel(io_source *source)
{
	pthread_mutex_lock(&source->lock);
	bool first = !source->cancelled;
	source->cancelled = true;
	pthread_cond_broadcast(&source->place);
	pthread_mutex_unlock(&source->lock);
	if (first && source->io.cancel)
		source->io.cancel(source->io.context);
}
