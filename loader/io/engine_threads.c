/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker itself copies blobs that are in the page cache (RWF_NOWAIT). The others go to a pool of reader threads,
 * which start with the first miss, so that the disk sees many reads at a time. A worker that waits for a read that no
 * reader has taken reads it itself, so the engine works, if slowly, without any reader.
 *
 * Files with a source of the caller are read by its functions, in the same threads. If a source allows fewer reads at a
 * time than there are readers, reads above its limit are parked, so that readers go on with other files.
 */
#include "engine_files.h"

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

enum { READ_OVER = 0, READ_QUEUED, READ_PARKED, READ_TAKEN };

typedef struct read_queue {
	bt_read *first; /* the oldest */
	bt_read *last;
} read_queue;

/* A file with a source. Guarded by the engine's lock. */
typedef struct source_reads {
	uint32_t running; /* reads that readers have taken */
	read_queue parked;
} source_reads;

struct bt_engine {
	bt_files *files;
	atomic_bool nowait; /* the file system knows RWF_NOWAIT, and reads are not direct */
	pid_t owner;
	uint32_t readers_max;
	pthread_t readers[READERS_MAX];
	cpu_set_t cpus; /* CPUs that the thread that opens the engine may use */
	bool has_cpus;

	pthread_mutex_t lock;
	pthread_cond_t work; /* signals readers: a read is queued, or stop */
	/* Guarded by lock. */
	read_queue queue;
	uint32_t queued;
	source_reads *sources; /* [files->count]; NULL: no file has a source */
	uint32_t num_readers;
	uint32_t idle;
	bool stop;
};

typedef struct threads_lane {
	bt_lane base;
	bt_engine *engine;
	pthread_cond_t over; /* signals that one of the lane's reads is over */
	bt_read *taken; /* list of reads that readers work on; guarded by the engine's lock, like the reads' states */
	bt_failure *failures; /* guarded by the engine's lock; owned */
} threads_lane;

static bool has_sources(const bt_files *files)
{
	for (uint32_t i = 0; i < files->count; i++)
		if (files->list[i].source)
			return true;
	return false;
}

static int threads_open(bt_engine **out, const bt_engine_config *config, beton_error *err)
{
	bt_files *files = config->files;
	bt_engine *engine = calloc(1, sizeof(*engine));
	bool sources = has_sources(files);
	*out = NULL;
	if (engine && sources)
		engine->sources = calloc(files->count, sizeof(*engine->sources));
	if (!engine || (sources && !engine->sources)) {
		free(engine);
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the engine", files->list[0].path);
	}
	engine->files = files;
	engine->owner = getpid();
	atomic_store(&engine->nowait, true);
	uint64_t reads = (uint64_t)config->lanes * config->depth;
	engine->readers_max = reads < READERS_MAX ? (uint32_t)reads : READERS_MAX;
	engine->has_cpus = pthread_getaffinity_np(pthread_self(), sizeof(engine->cpus), &engine->cpus) == 0;
	/* With default attributes these calls cannot fail. */
	pthread_mutex_init(&engine->lock, NULL);
	pthread_cond_init(&engine->work, NULL);
	*out = engine;
	return BETON_OK;
}

static size_t threads_footprint(const bt_engine *engine, uint64_t offset, uint64_t size)
{
	return bt_read_footprint(engine->files, offset, size);
}

static int threads_lane_open(bt_engine *engine, uint32_t index, void *arena, size_t bytes, bt_lane **out,
			     beton_error *err)
{
	(void)index, (void)arena, (void)bytes;
	threads_lane *lane = calloc(1, sizeof(*lane));
	*out = NULL;
	if (!lane)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for a lane", engine->files->list[0].path);
	lane->engine = engine;
	pthread_cond_init(&lane->over, NULL);
	*out = &lane->base;
	return BETON_OK;
}

static source_reads *source_of(const bt_engine *engine, const bt_read *read)
{
	return read->file->source ? &engine->sources[read->file - engine->files->list] : NULL;
}

static void append(read_queue *queue, bt_read *read)
{
	read->next = NULL;
	read->previous = queue->last;
	*(queue->last ? &queue->last->next : &queue->first) = read;
	queue->last = read;
}

static void take_out(read_queue *queue, bt_read *read)
{
	*(read->previous ? &read->previous->next : &queue->first) = read->next;
	*(read->next ? &read->next->previous : &queue->last) = read->previous;
}

/* With the lock held. */
static void enqueue(bt_engine *engine, bt_read *read)
{
	read->state = READ_QUEUED;
	append(&engine->queue, read);
	engine->queued++;
}

/* With the lock held. Of a read that is queued or parked. */
static void dequeue(bt_engine *engine, bt_read *read)
{
	if (read->state == READ_PARKED) {
		take_out(&source_of(engine, read)->parked, read);
		return;
	}
	take_out(&engine->queue, read);
	engine->queued--;
}

/* With the lock held. The oldest read that a reader may take, which is dequeued; NULL: none. */
static bt_read *next_read(bt_engine *engine)
{
	for (bt_read *read; (read = engine->queue.first);) {
		source_reads *source = source_of(engine, read);
		dequeue(engine, read);
		if (!source || source->running < read->file->in_flight) {
			if (source)
				source->running++;
			return read;
		}
		read->state = READ_PARKED;
		append(&source->parked, read);
	}
	return NULL;
}

/* With the lock held. A reader has done a read, so that its source may begin another one. */
static void end_read(bt_engine *engine, const bt_read *read)
{
	source_reads *source = source_of(engine, read);
	if (!source)
		return;
	source->running--;
	bt_read *parked = source->parked.first;
	if (!parked)
		return;
	take_out(&source->parked, parked);
	enqueue(engine, parked);
	pthread_cond_signal(&engine->work);
}

/* With the lock held. Adds a read to the reads in progress, and removes it. */
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

static void note_failure(bt_engine *engine, bt_read *read, int result, const beton_error *why)
{
	threads_lane *lane = (threads_lane *)read->lane;
	bt_failure *failure = bt_failure_make(read, result, why);
	pthread_mutex_lock(&engine->lock);
	bt_failure_note(&lane->failures, failure);
	pthread_mutex_unlock(&engine->lock);
}

/* The result of a read that has failed. */
static int take_failure(threads_lane *lane, const bt_read *read, beton_error *err)
{
	bt_engine *engine = lane->engine;
	pthread_mutex_lock(&engine->lock);
	bt_failure *failure = bt_failure_take(&lane->failures, read);
	pthread_mutex_unlock(&engine->lock);
	int result = bt_failure_tell(failure, err);
	free(failure);
	return result;
}

/* Borrows the file for a read; false: that failed, and is noted. */
static bool lend(bt_engine *engine, bt_read *read)
{
	bt_lease lease;
	beton_error why;
	int result = bt_files_borrow(read->file, &lease, &why);
	if (result == BETON_OK)
		bt_read_lend(read, lease);
	else
		note_failure(engine, read, result, &why);
	return result == BETON_OK;
}

/* Reads the rest in the calling thread. */
static void read_rest(bt_engine *engine, bt_read *read)
{
	const beton_reader *source = read->file->source;
	if (!source) {
		if (!lend(engine, read))
			return;
		bt_read_rest(read);
		bt_files_give_back(read->file);
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
		bt_read *read = next_read(engine);
		if (!read) {
			engine->idle++;
			pthread_cond_wait(&engine->work, &engine->lock);
			engine->idle--;
			continue;
		}
		read->state = READ_TAKEN;
		threads_lane *lane = (threads_lane *)read->lane;
		take(lane, read);
		pthread_mutex_unlock(&engine->lock);

		read_rest(engine, read);

		pthread_mutex_lock(&engine->lock);
		read->state = READ_OVER;
		give(lane, read);
		end_read(engine, read);
		pthread_cond_signal(&lane->over);
	}
	pthread_mutex_unlock(&engine->lock);
	return NULL;
}

/* With the lock held. Failure is ignored: workers read what no reader takes. */
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

/* Copies what the page cache has. True: the read is not over. */
static bool read_cached(bt_engine *engine, bt_read *read)
{
	if (!lend(engine, read))
		return false;
	bt_piece piece = bt_read_piece(read);
	struct iovec part = {.iov_base = piece.to, .iov_len = piece.size};
	ssize_t answer = engine->files->io->preadv2(piece.fd, &part, 1, (off_t)piece.offset, RWF_NOWAIT);
	int fault = errno;
	bt_files_give_back(read->file);
	if (answer > 0)
		return bt_read_advance(read, answer);
	if (answer < 0 && (fault == EOPNOTSUPP || fault == EINVAL || fault == ENOSYS))
		atomic_store_explicit(&engine->nowait, false, memory_order_relaxed);
	/* Ignore the error: a blocking read will report it. */
	return true;
}

/* Copies what can be had without a wait: what the page cache has, or all. True: the read is not over. */
static bool read_at_hand(bt_engine *engine, bt_read *read)
{
	const bt_file *file = read->file;
	if (file->immediate)
		read_rest(engine, read);
	if (file->source)
		return !file->immediate;
	bool tries = !read->direct && atomic_load_explicit(&engine->nowait, memory_order_relaxed);
	return tries ? read_cached(engine, read) : true;
}

static void threads_submit(bt_lane *base, bt_read *read, void *buffer)
{
	bt_engine *engine = ((threads_lane *)base)->engine;
	read->lane = base;
	read->handed_over = false;
	if (!bt_read_begin(read, buffer, engine->files->direct) || !read_at_hand(engine, read))
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
	if (read->state == READ_QUEUED || read->state == READ_PARKED) {
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
	return read->failed ? take_failure(lane, read, err) : bt_read_outcome(read, err);
}

/* With the lock held. Dequeues a lane's reads. */
static void drop(bt_engine *engine, const read_queue *queue, const bt_lane *lane)
{
	for (bt_read *read = queue->first, *next; read; read = next) {
		next = read->next;
		if (read->lane == lane)
			dequeue(engine, read);
	}
}

static void threads_lane_drain(bt_lane *base)
{
	threads_lane *lane = (threads_lane *)base;
	bt_engine *engine = lane->engine;
	pthread_mutex_lock(&engine->lock);
	drop(engine, &engine->queue, base);
	for (uint32_t i = 0; engine->sources && i < engine->files->count; i++)
		drop(engine, &engine->sources[i].parked, base);
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
	bt_failures_free(&lane->failures);
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
	free(engine->sources);
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
