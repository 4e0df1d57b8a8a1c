/* SPDX-License-Identifier: Apache-2.0
 *
 * One ring for each lane. Where the system allows it, the arena and a file that is the only one are registered, so that
 * the kernel need not pin pages and look up the file for each read. Other files are borrowed while they are read.
 *
 * A read is `pending` (not in the ring), in `flight` (in the submission queue or the kernel), or over. At most as many
 * reads are in flight as the ring has entries, so its completion queue cannot overflow. A read's buffer is released
 * only after its completion, even if the ring fails.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "engine_files.h"

enum { ENTRIES_MIN = 4, ENTRIES_MAX = 512 };

/* If one system call is refused so often in a row, with a millisecond between, the ring counts as broken. */
enum { REFUSALS_MAX = 200 };

/* Limit of registered memory, which is pinned whether used or not, of all lanes together. */
#define REGISTERED_MAX (UINT64_C(128) << 20)

enum { FILE_CACHED, FILE_DIRECT };

enum { READ_OVER = 0, READ_PENDING, READ_IN_FLIGHT };

typedef struct read_list {
	bt_read *first;
	bt_read *last;
} read_list;

typedef struct uring_lane {
	bt_lane base;
	bt_engine *engine;
	struct io_uring ring;
	bool is_open;    /* the ring is open */
	bool has_file;   /* the only file is borrowed for the lane's life */
	bool has_files;  /* and registered */
	bool has_buffer; /* the arena is registered, as buffer 0 */
	bool is_broken;  /* the ring does not work; reads bypass it */
	bt_lease lease;  /* of the only file */
	bt_failure *failures;
	uint8_t *arena;
	size_t arena_bytes;
	uint32_t entries;
	uint32_t refusals;
	uint32_t num_in_flight;
	read_list pending;
	read_list flight;
} uring_lane;

struct bt_engine {
	bt_files *files;
	pid_t owner;
	uint32_t num_lanes;
	uring_lane lanes[];
};

static void append(read_list *list, bt_read *read)
{
	read->next = NULL;
	read->previous = list->last;
	*(list->last ? &list->last->next : &list->first) = read;
	list->last = read;
}

static void take_out(read_list *list, bt_read *read)
{
	*(read->previous ? &read->previous->next : &list->first) = read->next;
	*(read->next ? &read->next->previous : &list->last) = read->previous;
}

/* Opens a ring of `wanted` entries, or fewer if memory is short (locked memory is limited per user). Returns 0 or
 * -errno. */
static int open_ring(uring_lane *lane, const bt_io *io, uint32_t wanted)
{
	/* Completions do not interrupt decoding: they are processed when the worker enters the kernel. Linux 5.19. */
	unsigned flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
	int result;
	for (;;) {
		struct io_uring_params params = {.flags = flags};
		result = io->queue_init_params(wanted, &lane->ring, &params);
		if (result == -EINVAL && flags)
			flags = 0;
		else if (result == -ENOMEM && wanted > ENTRIES_MIN)
			wanted /= 2;
		else
			break;
	}
	lane->entries = wanted;
	lane->is_open = result == 0;
	return result;
}

static void uring_close(bt_engine **out)
{
	bt_engine *engine = *out;
	if (!engine)
		return;
	*out = NULL;
	for (uint32_t i = 0; i < engine->num_lanes; i++)
		if (engine->lanes[i].is_open)
			io_uring_queue_exit(&engine->lanes[i].ring);
	free(engine);
}

static int open_rings(bt_engine *engine, const bt_engine_config *config, uint32_t entries, beton_error *err)
{
	const char *path = config->files->list[0].path;
	uint32_t least = entries;
	for (uint32_t i = 0; i < config->lanes; i++) {
		uring_lane *lane = &engine->lanes[i];
		lane->engine = engine;
		int result = open_ring(lane, config->files->io, entries);
		if (result) {
			bt_fail_errno(err, -result, "%s: cannot set up ring %u of %u", path, i + 1, config->lanes);
			if (err)
				err->code = BETON_SYSTEM;
			return BETON_SYSTEM;
		}
		least = lane->entries < least ? lane->entries : least;
	}
	if (least < entries)
		bt_files_tell(&config->files->list[0], "io_uring with %u entries, not %u: no memory for more", least,
			      entries);
	return BETON_OK;
}

static int uring_open(bt_engine **out, const bt_engine_config *config, beton_error *err)
{
	bt_engine *engine = calloc(1, sizeof(*engine) + config->lanes * sizeof(uring_lane));
	*out = engine;
	if (!engine)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the engine", config->files->list[0].path);
	engine->owner = getpid();
	engine->num_lanes = config->lanes;
	engine->files = config->files;
	uint32_t entries = ENTRIES_MIN;
	while (entries < config->depth && entries < ENTRIES_MAX)
		entries *= 2;
	int result = open_rings(engine, config, entries, err);
	if (result)
		uring_close(out);
	return result;
}

static size_t uring_footprint(const bt_engine *engine, uint64_t offset, uint64_t size)
{
	return bt_read_footprint(engine->files, offset, size);
}

static int uring_lane_open(bt_engine *engine, uint32_t index, void *arena, size_t bytes, bt_lane **out,
			   beton_error *err)
{
	uring_lane *lane = &engine->lanes[index];
	const bt_io *io = engine->files->io;
	*out = NULL;
	/* A file that is not open yet may never be needed. */
	if (engine->files->count == 1 && engine->files->list[0].descriptors.known) {
		int result = bt_files_borrow(&engine->files->list[0], &lane->lease, err);
		if (result)
			return result;
		lane->has_file = true;
		int files[] = {[FILE_CACHED] = lane->lease.fd, [FILE_DIRECT] = lane->lease.direct_fd};
		lane->has_files = io->register_files(&lane->ring, files, lane->lease.direct_fd < 0 ? 1 : 2) == 0;
	}
	struct iovec part = {.iov_base = arena, .iov_len = bytes};
	/* Refused where locked memory is limited, and above 1 GiB; the lane then works without registration. */
	bool affordable = bytes > 0 && (uint64_t)(index + 1) * bytes <= REGISTERED_MAX;
	lane->has_buffer = affordable && io->register_buffers(&lane->ring, &part, 1) == 0;
	lane->arena = arena;
	lane->arena_bytes = bytes;
	*out = &lane->base;
	return BETON_OK;
}

static void prepare(uring_lane *lane, bt_read *read, struct io_uring_sqe *sqe)
{
	bt_piece piece = bt_read_piece(read);
	int fd = !lane->has_files ? piece.fd : read->direct ? FILE_DIRECT : FILE_CACHED;
	size_t place = (size_t)(piece.to - lane->arena);
	read->fixed = lane->has_buffer && piece.to >= lane->arena && place <= lane->arena_bytes &&
		      piece.size <= lane->arena_bytes - place;
	if (read->fixed)
		io_uring_prep_read_fixed(sqe, fd, piece.to, (unsigned)piece.size, piece.offset, 0);
	else
		io_uring_prep_read(sqe, fd, piece.to, (unsigned)piece.size, piece.offset);
	if (lane->has_files)
		sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data(sqe, read);
}

/* Borrows a read's file until the ring's answer. Errors: bt_files_hold's. */
static int lend(const uring_lane *lane, bt_read *read, beton_error *err)
{
	bt_lease lease = lane->lease;
	int result = lane->has_file ? BETON_OK : bt_files_hold(read->file, &lease, err);
	if (result == BETON_OK)
		bt_read_lend(read, lease);
	return result;
}

static void end_loan(const uring_lane *lane, const bt_read *read)
{
	if (!lane->has_file)
		bt_files_end_hold(read->file);
}

/* The read is over, without an answer. */
static void fail(uring_lane *lane, bt_read *read, int result, const beton_error *why)
{
	bt_failure_note(&lane->failures, bt_failure_make(read, result, why));
	read->state = READ_OVER;
}

/* Reads without the ring. The read is in no list, and none of the lane's is in flight. */
static void read_alone(uring_lane *lane, bt_read *read)
{
	bt_lease lease = lane->lease;
	beton_error why;
	int result = lane->has_file ? BETON_OK : bt_files_borrow(read->file, &lease, &why);
	if (result) {
		fail(lane, read, result, &why);
		return;
	}
	bt_read_lend(read, lease);
	bt_read_rest(read);
	if (!lane->has_file)
		bt_files_give_back(read->file);
	read->state = READ_OVER;
}

/* Takes completions out of the ring; reads that must continue become pending again. */
static bool reap(uring_lane *lane)
{
	const bt_io *io = lane->engine->files->io;
	bool any = false;
	for (struct io_uring_cqe *cqe; io->peek_cqe(&lane->ring, &cqe) == 0; any = true) {
		bt_read *read = io_uring_cqe_get_data(cqe);
		int answer = cqe->res;
		io_uring_cqe_seen(&lane->ring, cqe);
		take_out(&lane->flight, read);
		lane->num_in_flight--;
		end_loan(lane, read);
		bool more;
		if (read->fixed && (answer == -EFAULT || answer == -EINVAL)) {
			/* The registered buffer may be the cause; if not, the next answer is the same. */
			lane->has_buffer = false;
			more = true;
		} else {
			more = bt_read_advance(read, answer);
		}
		read->state = more ? READ_PENDING : READ_OVER;
		if (more)
			append(&lane->pending, read);
	}
	if (any)
		lane->refusals = 0;
	return any;
}

static void pause_briefly(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Leaves the ring: waits for the kernel's reads, and takes back those still in the submission queue. */
static void leave_ring(uring_lane *lane)
{
	const bt_io *io = lane->engine->files->io;
	lane->is_broken = true;
	while (lane->num_in_flight > io_uring_sq_ready(&lane->ring)) {
		struct io_uring_cqe *cqe;
		bt_lane_begin_wait(&lane->base, lane->flight.first);
		int result = io->wait_cqe(&lane->ring, &cqe);
		if (!reap(lane) && result != 0)
			pause_briefly();
	}
	bt_lane_end_wait(&lane->base);
	for (bt_read *read; (read = lane->flight.first);) {
		take_out(&lane->flight, read);
		end_loan(lane, read);
		read->state = READ_PENDING;
		append(&lane->pending, read);
	}
	lane->num_in_flight = 0;
}

/* Submits the queue to the kernel, and waits for `wait` completions. */
static void enter(uring_lane *lane, unsigned wait)
{
	int result = lane->engine->files->io->submit_and_wait(&lane->ring, wait);
	if (result >= 0) {
		lane->refusals = 0;
		return;
	}
	/* Interrupted while waiting. Not counted, because a profiler's signals come for ever. */
	if (result == -EINTR && io_uring_sq_ready(&lane->ring) == 0)
		return;
	/* EAGAIN: no memory for a request now. EBUSY: completions must be taken out first. */
	bool passing = result == -EINTR || result == -EAGAIN || result == -EBUSY;
	if (passing && ++lane->refusals <= REFUSALS_MAX) {
		if (wait)
			pause_briefly();
		return;
	}
	bt_files_tell(&lane->engine->files->list[0], "io_uring fails (errno %d): reading without it", -result);
	leave_ring(lane);
}

/* Moves pending reads into the ring while there is room. */
static void pump(uring_lane *lane)
{
	if (lane->is_broken || !lane->pending.first)
		return;
	while (lane->pending.first && lane->num_in_flight < lane->entries && io_uring_sq_space_left(&lane->ring) > 0) {
		bt_read *read = lane->pending.first;
		beton_error why;
		int result = lend(lane, read, &why);
		/* Completions make room; without any, the file is borrowed for a moment. */
		if (result == BETON_TIMEOUT && lane->num_in_flight > 0)
			break;
		take_out(&lane->pending, read);
		if (result) {
			if (result == BETON_TIMEOUT)
				read_alone(lane, read);
			else
				fail(lane, read, result, &why);
			continue;
		}
		struct io_uring_sqe *sqe = io_uring_get_sqe(&lane->ring);
		prepare(lane, read, sqe);
		read->state = READ_IN_FLIGHT;
		append(&lane->flight, read);
		lane->num_in_flight++;
	}
	enter(lane, 0);
}

static void uring_submit(bt_lane *base, bt_read *read, void *buffer)
{
	uring_lane *lane = (uring_lane *)base;
	read->lane = base;
	read->state = READ_OVER;
	if (!bt_read_begin(read, buffer, lane->engine->files->direct))
		return;
	read->state = READ_PENDING;
	append(&lane->pending, read);
	if (lane->num_in_flight >= lane->entries)
		reap(lane);
	pump(lane);
	/* Reads from the page cache have completed by now. */
	reap(lane);
	read->missed = read->state != READ_OVER;
}

static void wait_for_ring(uring_lane *lane, bt_read *read)
{
	while (read->state != READ_OVER) {
		bool any = reap(lane);
		pump(lane);
		if (read->state == READ_OVER)
			return;
		if (lane->is_broken) {
			/* The read must be pending, because nothing is in flight. */
			take_out(&lane->pending, read);
			read_alone(lane, read);
		} else if (!any) {
			enter(lane, 1);
		}
	}
}

static int uring_wait(bt_lane *base, bt_read *read, beton_error *err)
{
	uring_lane *lane = (uring_lane *)base;
	if (read->state != READ_OVER)
		reap(lane);
	if (read->state != READ_OVER) {
		bt_lane_begin_wait(base, read);
		wait_for_ring(lane, read);
		bt_lane_end_wait(base);
	}
	if (!read->failed)
		return bt_read_outcome(read, err);
	bt_failure *failure = bt_failure_take(&lane->failures, read);
	int result = bt_failure_tell(failure, err);
	free(failure);
	return result;
}

/* Does not cancel: most reads of a disk cannot be cancelled, and they are short. */
static void uring_lane_drain(bt_lane *lane)
{
	leave_ring((uring_lane *)lane);
}

static void uring_lane_close(bt_lane **base)
{
	uring_lane *lane = (uring_lane *)*base;
	*base = NULL;
	/* In the child of a fork the ring and its reads belong to the parent. */
	if (!lane || lane->engine->owner != getpid())
		return;
	leave_ring(lane);
	bt_failures_free(&lane->failures);
	if (lane->has_file)
		bt_files_give_back(&lane->engine->files->list[0]);
	lane->has_file = false;
	if (lane->has_buffer)
		io_uring_unregister_buffers(&lane->ring);
	lane->has_buffer = false;
}

const bt_engine_api bt_engine_uring = {.name = "uring",
				       .kind = BETON_ENGINE_URING,
				       .open = uring_open,
				       .footprint = uring_footprint,
				       .lane_open = uring_lane_open,
				       .submit = uring_submit,
				       .wait = uring_wait,
				       .lane_drain = uring_lane_drain,
				       .lane_close = uring_lane_close,
				       .close = uring_close};
