/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker itself copies blobs that are in the page cache (RWF_NOWAIT). The others go to a pool of reader threads,
 * which start with the first miss, so that the disk sees many reads at a time. A worker that waits for a read that no
 * reader has taken reads it itself, so the engine works, if slowly, without any reader.
 *
 * Files with a source of the caller are read by its functions, in the same threads.
 */
#include "engine_file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"

/* More concurrent reads do not make disks faster, and each costs a thread. */
enum { READERS_MAX = 32, READER_STACK = 256 << 10 };

enum { READ_OVER = 0, READ_QUEUED, READ_TAKEN };

struct bt_engine {
	bt_engine_file file;
	atomic_bool nowait; /* the file system knows RWF_NOWAIT, and reads are not direct */
	pid_t owner;
	uint32_t readers_max;
	pthread_t readers[READERS_MAX];
	cpu_set_t cpus; /* CPUs that the thread that opens the engine may use */
	bool has_cpus;

	pthread_mutex_t lock;
	pthread_cond_t work; /* signals readers: a read is queued, or stop */
	/* Guarded by lock. */
	bt_read *first; /* the queue, oldest first */
	bt_read *last;
	uint32_t queued;
	uint32_t num_readers;
	uint32_t idle;
	bool stop;
};

/* Why a source's read failed, until its worker asks. */
typedef struct failure {
	const bt_read *read;
	int result;
	beton_error error;
	struct failure *next;
} failure;

typedef struct threads_lane {
	bt_lane base;
	bt_engine *engine;
	pthread_cond_t over; /* signals that one of the lane's reads is over */
	bt_read *taken; /* list of reads that readers work on; guarded by the engine's lock, like the reads' states */
	failure *failures; /* guarded by the engine's lock; owned */
} threads_lane;

static int threads_open(bt_engine **out, const bt_engine_config *config, beton_error *err)
{
	bt_engine *engine = calloc(1, sizeof(*engine));
	*out = NULL;
	if (!engine)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the engine", config->file->path);
	bt_engine_file_open(&engine->file, config);
	engine->owner = getpid();
	atomic_store(&engine->nowait, true);
	uint64_t reads = (uint64_t)config->lanes * config->depth;
	uint32_t most = config->readers && config->readers < READERS_MAX ? config->readers : READERS_MAX;
	if (config->file->source && config->file->in_flight < most)
		most = config->file->in_flight;
	engine->readers_max = reads < most ? (uint32_t)reads : most;
	engine->has_cpus = pthread_getaffinity_np(pthread_self(), sizeof(engine->cpus), &engine->cpus) == 0;
	/* With default attributes these calls cannot fail. */
	pthread_mutex_init(&engine->lock, NULL);
	pthread_cond_init(&engine->work, NULL);
	*out = engine;
	return BETON_OK;
}

static size_t threads_footprint(const bt_engine *engine, uint64_t offset, uint64_t size)
{
	return bt_engine_file_footprint(&engine->file, offset, size);
}

static int threads_lane_open(bt_engine *engine, uint32_t index, void *arena, size_t bytes, bt_lane **out,
			     beton_error *err)
{
	(void)index, (void)arena, (void)bytes;
	threads_lane *lane = calloc(1, sizeof(*lane));
	*out = NULL;
	if (!lane)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for a lane", engine->file.file->path);
	lane->engine = engine;
	pthread_cond_init(&lane->over, NULL);
	*out = &lane->base;
	return BETON_OK;
}

/* With the lock held. */
static void enqueue(bt_engine *engine, bt_read *read)
{
	read->state = READ_QUEUED;
	read->next = NULL;
	read->previous = engine->last;
	*(engine->last ? &engine->last->next : &engine->first) = read;
	engine->last = read;
	engine->queued++;
}

static void dequeue(bt_engine *engine, bt_read *read)
{
	*(read->previous ? &read->previous->next : &engine->first) = read->next;
	*(read->next ? &read->next->previous : &engine->last) = read->previous;
	engine->queued--;
}

/* With the lock held. Adds a read to those that readers work on, and removes it. */
static void take(threads_lane *lane, bt_read *read)
{
	read->previous = NULL;
	read->next = lane->taken;
	if (lane->taken)
		lane->taken->previous = read;
	lane->taken = read;
}

static void give(threads_lane *lane, bt_read *read)
{
	*(read->previous ? &read->previous->next : &lane->taken) = read->next;
	if (read->next)
		read->next->previous = read->previous;
}

/* Without memory for the reason, NO_MEMORY is the reason. */
static void note_failure(bt_engine *engine, bt_read *read, int result, const beton_error *why)
{
	failure *note = malloc(sizeof(*note));
	if (!note) {
		read->fault = ENOMEM;
		return;
	}
	threads_lane *lane = (threads_lane *)read->lane;
	*note = (failure){.read = read, .result = result, .error = *why};
	pthread_mutex_lock(&engine->lock);
	note->next = lane->failures;
	lane->failures = note;
	pthread_mutex_unlock(&engine->lock);
}

/* The result of a source's read, which is over. */
static int take_failure(threads_lane *lane, const bt_read *read, beton_error *err)
{
	bt_engine *engine = lane->engine;
	pthread_mutex_lock(&engine->lock);
	failure **link = &lane->failures;
	while (*link && (*link)->read != read)
		link = &(*link)->next;
	failure *found = *link;
	if (found)
		*link = found->next;
	pthread_mutex_unlock(&engine->lock);
	int result = found ? found->result : BETON_OK;
	if (found && err)
		*err = found->error;
	free(found);
	return result;
}

/* Reads the rest in the calling thread. */
static void read_rest(bt_engine *engine, bt_read *read)
{
	const beton_reader *source = engine->file.file->source;
	if (!source) {
		bt_read_rest(&engine->file, read);
		return;
	}
	beton_blob blob = {.offset = read->offset, .size = read->size};
	beton_error why;
	int result = beton_reader_read(source, &blob, read->buffer, &why);
	read->done = read->size;
	if (result != BETON_OK)
		note_failure(engine, read, result, &why);
}

static void *read_blobs(void *argument)
{
	bt_engine *engine = argument;
	pthread_mutex_lock(&engine->lock);
	while (!engine->stop) {
		bt_read *read = engine->first;
		if (!read) {
			engine->idle++;
			pthread_cond_wait(&engine->work, &engine->lock);
			engine->idle--;
			continue;
		}
		dequeue(engine, read);
		read->state = READ_TAKEN;
		threads_lane *lane = (threads_lane *)read->lane;
		take(lane, read);
		pthread_mutex_unlock(&engine->lock);

		read_rest(engine, read);

		pthread_mutex_lock(&engine->lock);
		read->state = READ_OVER;
		give(lane, read);
		pthread_cond_signal(&lane->over);
	}
	pthread_mutex_unlock(&engine->lock);
	return NULL;
}

/* With the lock held. Failure is no error: workers read what no reader takes. */
static void start_reader(bt_engine *engine)
{
	pthread_attr_t attributes;
	if (pthread_attr_init(&attributes) != 0)
		return;
	/* If the system refuses the size, the default remains. */
	pthread_attr_setstacksize(&attributes, READER_STACK);
	/* The worker that starts the reader may be bound to one CPU. */
	if (engine->has_cpus)
		pthread_attr_setaffinity_np(&attributes, sizeof(engine->cpus), &engine->cpus);
	sigset_t before;
	bt_block_signals(&before);
	pthread_t *reader = &engine->readers[engine->num_readers];
	if (pthread_create(reader, &attributes, read_blobs, engine) == 0) {
		char name[16];
		snprintf(name, sizeof(name), "beton-read-%u", engine->num_readers);
		pthread_setname_np(*reader, name);
		engine->num_readers++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
}

/* Copies what can be had without a wait: what the page cache has, or all. True: the read is not over. */
static bool read_at_hand(bt_engine *engine, bt_read *read)
{
	const bt_file *file = engine->file.file;
	if (file->immediate)
		read_rest(engine, read);
	if (file->source)
		return !file->immediate;
	if (read->direct || !atomic_load_explicit(&engine->nowait, memory_order_relaxed))
		return true;
	bt_piece piece = bt_read_piece(&engine->file, read);
	struct iovec part = {.iov_base = piece.to, .iov_len = piece.size};
	ssize_t answer = engine->file.io->preadv2(piece.fd, &part, 1, (off_t)piece.offset, RWF_NOWAIT);
	if (answer > 0)
		return bt_read_advance(&engine->file, read, answer);
	if (answer < 0 && (errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS))
		atomic_store_explicit(&engine->nowait, false, memory_order_relaxed);
	/* Ignore the error: a blocking read will report it. */
	return true;
}

static void threads_submit(bt_lane *base, bt_read *read, void *buffer)
{
	bt_engine *engine = ((threads_lane *)base)->engine;
	read->lane = base;
	read->handed_over = false;
	if (!bt_read_begin(&engine->file, read, buffer) || !read_at_hand(engine, read))
		return;
	read->handed_over = read->missed = true;
	pthread_mutex_lock(&engine->lock);
	enqueue(engine, read);
	if (engine->queued > engine->idle && engine->num_readers < engine->readers_max)
		start_reader(engine);
	pthread_cond_signal(&engine->work);
	pthread_mutex_unlock(&engine->lock);
}

static void wait_for_reader(threads_lane *lane, bt_read *read)
{
	bt_engine *engine = lane->engine;
	pthread_mutex_lock(&engine->lock);
	if (read->state == READ_QUEUED) {
		dequeue(engine, read);
		read->state = READ_OVER;
		pthread_mutex_unlock(&engine->lock);
		bt_lane_begin_wait(&lane->base, read);
		read_rest(engine, read);
		bt_lane_end_wait(&lane->base);
		return;
	}
	if (read->state != READ_OVER) {
		bt_lane_begin_wait(&lane->base, read);
		while (read->state != READ_OVER)
			pthread_cond_wait(&lane->over, &engine->lock);
		bt_lane_end_wait(&lane->base);
	}
	pthread_mutex_unlock(&engine->lock);
}

static int threads_wait(bt_lane *base, bt_read *read, beton_error *err)
{
	threads_lane *lane = (threads_lane *)base;
	if (read->handed_over)
		wait_for_reader(lane, read);
	int result = lane->engine->file.file->source ? take_failure(lane, read, err) : BETON_OK;
	return result == BETON_OK ? bt_read_outcome(&lane->engine->file, read, err) : result;
}

static void threads_lane_drain(bt_lane *base)
{
	threads_lane *lane = (threads_lane *)base;
	bt_engine *engine = lane->engine;
	pthread_mutex_lock(&engine->lock);
	for (bt_read *read = engine->first, *next; read; read = next) {
		next = read->next;
		if (read->lane == base)
			dequeue(engine, read);
	}
	for (bt_read *read; (read = lane->taken);) {
		bt_lane_begin_wait(base, read);
		while (lane->taken == read)
			pthread_cond_wait(&lane->over, &engine->lock);
		bt_lane_end_wait(base);
	}
	pthread_mutex_unlock(&engine->lock);
}

static void threads_lane_close(bt_lane **base)
{
	threads_lane *lane = (threads_lane *)*base;
	if (!lane)
		return;
	*base = NULL;
	if (lane->engine->owner == getpid()) {
		threads_lane_drain(&lane->base);
		pthread_cond_destroy(&lane->over);
	}
	for (failure *note = lane->failures, *next; note; note = next) {
		next = note->next;
		free(note);
	}
	free(lane);
}

static void threads_close(bt_engine **out)
{
	bt_engine *engine = *out;
	if (!engine)
		return;
	*out = NULL;
	/* The child of a fork has no readers, and one of the parent's may have held the lock. */
	if (engine->owner == getpid()) {
		pthread_mutex_lock(&engine->lock);
		engine->stop = true;
		pthread_cond_broadcast(&engine->work);
		pthread_mutex_unlock(&engine->lock);
		for (uint32_t i = 0; i < engine->num_readers; i++)
			pthread_join(engine->readers[i], NULL);
		pthread_cond_destroy(&engine->work);
		pthread_mutex_destroy(&engine->lock);
	}
	bt_engine_file_close(&engine->file);
	free(engine);
}

const bt_engine_api bt_engine_threads = {.name = "threads",
					 .kind = BETON_ENGINE_THREADS,
					 .reads_sources = true,
					 .open = threads_open,
					 .footprint = threads_footprint,
					 .lane_open = threads_lane_open,
					 .submit = threads_submit,
					 .wait = threads_wait,
					 .lane_drain = threads_lane_drain,
					 .lane_close = threads_lane_close,
					 .close = threads_close};
