/* SPDX-License-Identifier: Apache-2.0 */
#include "io_script.h"

#include <string.h>
#include <time.h>

#include "common/error.h"
#include "common/system.h"

void io_script_init(io_script *script, const void *bytes, uint64_t size)
{
	*script = (io_script){.bytes = bytes, .size = size, .code = BETON_IO, .identity = "one"};
	pthread_mutex_init(&script->lock, NULL);
	bt_condition_init(&script->changed);
}

void io_script_destroy(io_script *script)
{
	pthread_cond_destroy(&script->changed);
	pthread_mutex_destroy(&script->lock);
}

static bool touches(const io_script *self, const beton_io_read *read)
{
	return read->offset < self->to && read->offset + read->size > self->from;
}

/* With the lock held. Until what holds the read is over; `what` then is what to do with it. */
static void hold(io_script *self, const beton_io_read *read)
{
	self->held++;
	pthread_cond_broadcast(&self->changed);
	while (self->what >= IO_SCRIPT_LATE && touches(self, read)) {
		bool stubborn = self->what == IO_SCRIPT_STUBBORN;
		uint64_t now = bt_now_ns();
		if (!stubborn && (now >= read->deadline_ns || self->cancelled))
			break;
		if (stubborn || read->deadline_ns == UINT64_MAX)
			pthread_cond_wait(&self->changed, &self->lock);
		else
			bt_wait_ns(&self->changed, &self->lock, read->deadline_ns - now);
	}
	self->held--;
	pthread_cond_broadcast(&self->changed);
}

/* With the lock held. */
static int answer(io_script *self, beton_io_read *read, beton_error *err)
{
	bool touched = touches(self, read);
	if (touched && self->what >= IO_SCRIPT_LATE)
		hold(self, read);
	io_script_what what = touched ? self->what : IO_SCRIPT_NOTHING;
	if (self->cancelled)
		return bt_fail(err, BETON_CANCELLED, "the script was cancelled");
	if (strcmp(read->identity, self->identity) != 0)
		return bt_fail(err, BETON_FILE_CHANGED, "it is '%s' now, not '%s'", self->identity, read->identity);
	if (what == IO_SCRIPT_FAIL)
		return self->message ? bt_fail(err, self->code, "%s", self->message) : self->code;
	if (what == IO_SCRIPT_HANG)
		return bt_fail(err, BETON_TIMEOUT, "the script gave up at the deadline");
	uint64_t count = read->size;
	if (what == IO_SCRIPT_LATE)
		count = 1;
	else if (self->most && count > self->most)
		count = self->most;
	if (what != IO_SCRIPT_END)
		memcpy(read->destination, self->bytes + read->offset, (size_t)count);
	read->done = what == IO_SCRIPT_END ? 0 : what == IO_SCRIPT_TOO_MUCH ? read->size + 1 : count;
	return BETON_OK;
}

static int read_at(void *context, beton_io_read *read, beton_error *err)
{
	io_script *self = context;
	pthread_mutex_lock(&self->lock);
	self->calls++;
	self->running++;
	self->most_running = self->running > self->most_running ? self->running : self->most_running;
	self->largest = read->size > self->largest ? read->size : self->largest;
	bool inside = read->size > 0 && read->offset <= self->size && read->size <= self->size - read->offset;
	int result = inside ? answer(self, read, err) : bt_fail(err, BETON_STATE, "the read is not inside the file");
	self->running--;
	pthread_mutex_unlock(&self->lock);
	return result;
}

static void announce(void *context, uint64_t offset, uint64_t size)
{
	io_script *self = context;
	pthread_mutex_lock(&self->lock);
	self->announcements += offset <= self->size && size > 0 && size <= self->size - offset;
	pthread_mutex_unlock(&self->lock);
}

static void cancel(void *context)
{
	io_script *self = context;
	pthread_mutex_lock(&self->lock);
	self->cancelled = true;
	pthread_cond_broadcast(&self->changed);
	pthread_mutex_unlock(&self->lock);
}

static void close_script(void *context)
{
	io_script *self = context;
	pthread_mutex_lock(&self->lock);
	self->closed += self->running == 0 ? 1 : 1000;
	pthread_cond_broadcast(&self->changed);
	pthread_mutex_unlock(&self->lock);
}

beton_io io_script_io(io_script *script)
{
	beton_io io;
	beton_io_init(&io);
	io.name = "script:data";
	io.size = script->size;
	io.identity = "one";
	io.read_at = read_at;
	io.announce = announce;
	io.cancel = cancel;
	io.close = close_script;
	io.context = script;
	return io;
}

void io_script_do(io_script *script, io_script_what what, uint64_t from, uint64_t to)
{
	pthread_mutex_lock(&script->lock);
	script->what = what;
	script->from = from;
	script->to = to;
	pthread_cond_broadcast(&script->changed);
	pthread_mutex_unlock(&script->lock);
}

void io_script_wait_for_held(io_script *script, int count)
{
	pthread_mutex_lock(&script->lock);
	while (script->held < count)
		pthread_cond_wait(&script->changed, &script->lock);
	pthread_mutex_unlock(&script->lock);
}
