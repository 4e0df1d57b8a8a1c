/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks talking to each other: a TCP key-value store for the rendezvous, and process groups over it.
 */
#ifndef DTRAIN_COMM_H
#define DTRAIN_COMM_H

#include <dtrain/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- key-value store: one server, any number of clients; keys and values are byte strings ---- */

/* Ranks of a world: what a store has room for. */
#define DTRAIN_MAX_RANKS 4096

typedef struct dtrain_store_server dtrain_store_server;
typedef struct dtrain_store dtrain_store;

typedef struct dtrain_store_server_options {
	size_t struct_size;
	const char *host;  /* name or address to listen on; "*": all of this machine; NULL (default): 127.0.0.1 */
	uint16_t port;     /* 0 (default): the system chooses */
	const char *token; /* 32 hexadecimal digits that clients have to know; NULL (default): whoever can reach the
			      port can read and overwrite everything, and so end or spoil the job */
	int ranks;         /* that will connect, at most DTRAIN_MAX_RANKS; 0 (default): not known */
} dtrain_store_server_options;

BETON_API void dtrain_store_server_options_init(dtrain_store_server_options *options);

/* Listens with a thread of its own. options may be NULL. Raises the number of files that this process may have open as
 * far as it can. A connection that sends garbage, has another token, stops in the middle of a frame or does not read
 * its answer is dropped; the others go on. What strangers can make it hold is bounded, and so is what clients can: see
 * train/comm/store_session.h. Errors: EXISTS (the port is taken; the message names it), NO_SPACE (fewer open files are
 * allowed than the ranks need), NOT_FOUND (host), INVALID_ARGUMENT, ACCESS, SYSTEM, NO_MEMORY. */
BETON_API int dtrain_store_server_start(const dtrain_store_server_options *options, dtrain_store_server **out,
					beton_error *err);
BETON_API uint16_t dtrain_store_server_port(const dtrain_store_server *server);
/* Has it had to turn away clients? NO_SPACE: for want of room; the message says which limit. Any thread. */
BETON_API int dtrain_store_server_check(dtrain_store_server *server, beton_error *err);
BETON_API void dtrain_store_server_stop(dtrain_store_server **server);

/* Connects, trying again until the deadline. token: that of the server, or NULL. A client may be used by several
 * threads; a blocking get does not hold up the others. Errors: TIMEOUT (what was tried), NOT_FOUND (host), ACCESS (the
 * token), NO_SPACE (the server's limit), MISMATCH (no store of this version), INVALID_ARGUMENT, SYSTEM. */
BETON_API int dtrain_store_connect(const char *host, uint16_t port, const char *token, int timeout_ms,
				   dtrain_store **out, beton_error *err);
BETON_API void dtrain_store_close(dtrain_store **store);

BETON_API int dtrain_store_set(dtrain_store *store, const char *key, const void *value, size_t size, beton_error *err);
/* Waits for the key. *value is malloc'ed, the caller frees it. Errors: TIMEOUT (names the key), PEER_LOST (the server).
 */
BETON_API int dtrain_store_get(dtrain_store *store, const char *key, int timeout_ms, void **value, size_t *size,
			       beton_error *err);
/* Adds to a counter (0 at first) and returns the sum. */
BETON_API int dtrain_store_add(dtrain_store *store, const char *key, int64_t delta, int64_t *sum, beton_error *err);

/* ---- process groups ---- */

typedef enum dtrain_reduce_op {
	DTRAIN_SUM = 0,
	DTRAIN_MAX = 1,
	DTRAIN_MIN = 2,
	DTRAIN_AVG = 3, /* sum, then divided by the size of the group; floating point only */
	DTRAIN_PRODUCT = 4,
} dtrain_reduce_op;

typedef struct dtrain_group dtrain_group;
typedef struct dtrain_work dtrain_work;

typedef struct dtrain_group_options {
	size_t struct_size;
	const char *backend; /* "gloo", or that of the device's module ("nccl"); NULL = the one for the device */
	const char *name;    /* key prefix in the store, used once in its life: groups with different names do not meet;
				default "world" */
	const char *interface; /* network interface; NULL = the one that reaches the store */
	int timeout_ms;        /* of each operation; default 30,000 */
	int join_timeout_ms;   /* of joining and splitting; 0 (default): timeout_ms */
	dtrain_device *device; /* whose memory and events the operations get; NULL = host memory, no events */
	bool share_device;     /* several ranks may use the same GPU, where the backend can do that at all */
} dtrain_group_options;

BETON_API void dtrain_group_options_init(dtrain_group_options *options);

/* Joins the group as rank of world_size; returns when all have joined. Every rank must make the same calls on a group
 * in the same order. Errors: TIMEOUT (names the ranks that did not come), PEER_LOST, MISMATCH, UNSUPPORTED,
 * INVALID_ARGUMENT (also for two ranks on one GPU: names them and it). world_size 1 needs neither store (NULL) nor
 * backend. The store and the device must outlive the group, and its handles the device.
 *
 * A group on a device whose module has a backend is stream-ordered: its operations are put on a stream of its own by
 * the calling thread, and can be part of a capture, if `after` is and the capturing stream is ordered behind them
 * before the capture ends; such captures must be destroyed before the group. A thread of the group watches what is in
 * flight.
 */
BETON_API int dtrain_group_create(dtrain_store *store, int rank, int world_size, const dtrain_group_options *options,
				  dtrain_group **out, beton_error *err);
/* Instead of joining, by a rank that cannot: the others, who would wait for it, get PEER_LOST with the rank and the
 * reason. name: of the group, as in its options. Errors: those of dtrain_store_set. */
BETON_API int dtrain_group_decline(dtrain_store *store, int rank, const char *name, const char *reason,
				   beton_error *err);
/* Local; work in flight ends with CANCELLED. */
BETON_API void dtrain_group_destroy(dtrain_group **group);
/* What went wrong while the ranks were joining, although they have joined: a stranger connected to a port of theirs,
 * say. NULL: nothing. Belongs to the group. */
BETON_API const char *dtrain_group_note(const dtrain_group *group);
BETON_API int dtrain_group_rank(const dtrain_group *group);
BETON_API int dtrain_group_size(const dtrain_group *group);

/* All operations are asynchronous: they are queued in call order, run on the group's own thread (CPU) or stream (GPU),
 * and return a work handle to be waited for exactly once. Buffers are the caller's and must stay until then; counts are
 * elements. after: the operation starts when this event is complete; NULL = at once. On failure no handle is returned.
 * After an operation failed, every later one of the group fails with the same error.
 *
 * Order. Collectives are called in the same order by all ranks of the group, sends and receives only by the two that
 * they are between, wherever these want among the collectives: they move nobody else's sequence.
 *
 * Types: every dtrain_dtype, for moving and for reducing, unless the backend of the group's device takes fewer. With
 * Gloo sums of F16 and BF16 are formed in F32 and rounded to nearest even each time two parts are combined, at most
 * size - 1 times; reduce_scatter rounds once. NCCL does not say when it rounds. Whole numbers wrap around. AVG of F16
 * and BF16 rounds the sum and then the quotient, so the sum has to be finite. */
BETON_API int dtrain_allreduce(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, dtrain_reduce_op op,
			       dtrain_event *after, dtrain_work **work, beton_error *err);
/* output: count elements; input: count * size elements. */
BETON_API int dtrain_reduce_scatter(dtrain_group *group, void *output, const void *input, int64_t count,
				    dtrain_dtype dtype, dtrain_reduce_op op, dtrain_event *after, dtrain_work **work,
				    beton_error *err);
/* output: count * size elements in rank order; input: count elements. */
BETON_API int dtrain_all_gather(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
				dtrain_event *after, dtrain_work **work, beton_error *err);
BETON_API int dtrain_broadcast(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, int root,
			       dtrain_event *after, dtrain_work **work, beton_error *err);
BETON_API int dtrain_reduce(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, dtrain_reduce_op op,
			    int root, dtrain_event *after, dtrain_work **work, beton_error *err);
BETON_API int dtrain_gather(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
			    int root, dtrain_event *after, dtrain_work **work, beton_error *err);
BETON_API int dtrain_scatter(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
			     int root, dtrain_event *after, dtrain_work **work, beton_error *err);
/* input and output: count * size elements, count for each rank. */
BETON_API int dtrain_all_to_all(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
				dtrain_event *after, dtrain_work **work, beton_error *err);
/* A message goes to the receive of the same peer with the same tag, any number from 0 on; those with the same tag in
 * the order of their calls. count and dtype are the same on both sides. A send ends when its receiver has it; the
 * timeout of either counts from its start.
 *
 * Without a device's backend (Gloo) messages with different tags may be received in any order, and a message holds up
 * nothing that is called after it. On streams messages are in the way of what is called after them, and two ranks that
 * send to each other first and receive afterwards wait for ever (until the timeout): such messages have to be a batch.
 * NCCL has no tags: between two ranks the nth message that is sent is the nth that is received, whatever their tags, in
 * a batch too. A program that is to run with both receives in the order in which it sends. */
BETON_API int dtrain_send(dtrain_group *group, const void *data, int64_t count, dtrain_dtype dtype, int peer, int tag,
			  dtrain_event *after, dtrain_work **work, beton_error *err);
BETON_API int dtrain_recv(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, int peer, int tag,
			  dtrain_event *after, dtrain_work **work, beton_error *err);
BETON_API int dtrain_barrier(dtrain_group *group, dtrain_work **work, beton_error *err);

/* The operations that are called between begin and end are one submission with one handle, that of end (NCCL: one
 * group call). They return no handles; their work may be NULL. All of them start when all their events are complete.
 * Messages of a batch are under way together, so any order of sends and receives will do on either side. They may meet
 * single messages of another rank, but where a batch has collectives too the others have them in a batch as well: NCCL
 * runs one kind after the other. Collectives count in the order of their calls, as single ones do. No operation may
 * use what another of the same batch writes. An empty batch ends at once.
 *
 * A call that is refused (INVALID_ARGUMENT, UNSUPPORTED) refuses the batch: end submits nothing, returns the first such
 * error, and the group works on. A rank on which alone that happens has left operations out, as with a single call that
 * is refused: the ranks that wait for them time out, and the group fails on all ranks. What fails later fails the
 * batch, all of whose results are undefined then, and the group, on all ranks with one message.
 *
 * One thread calls begin, the operations and end. Errors: STATE (begin or split within a batch, end without one),
 * those of the operations, NO_MEMORY. */
BETON_API int dtrain_group_begin(dtrain_group *group, beton_error *err);
BETON_API int dtrain_group_end(dtrain_group *group, dtrain_work **work, beton_error *err);

/* Waits and frees the handle, whatever the outcome; sets *work to NULL. Errors: TIMEOUT, PEER_LOST (name the operation
 * and the group), CANCELLED. */
BETON_API int dtrain_work_wait(dtrain_work **work, beton_error *err);
/* Has the operation ended, with success or not? Wait returns at once then. Not for one that was captured. */
BETON_API bool dtrain_work_done(const dtrain_work *work);
/* Orders what is put on the stream from now on behind the operation, and frees the handle, whatever the outcome. The
 * host waits for nothing where the group is stream-ordered, and for the operation elsewhere. Errors: as
 * dtrain_work_wait, of what is known by now; what happens later is told by dtrain_group_check. */
BETON_API int dtrain_work_stream_wait(dtrain_work **work, dtrain_stream *stream, beton_error *err);

/* Has anything gone wrong in the group so far? To be asked after waiting for results of the device: those of an
 * operation that failed are undefined, and become available all the same. Waits a few seconds at most, for the ranks to
 * agree on what happened. Errors: as dtrain_work_wait. */
BETON_API int dtrain_group_check(dtrain_group *group, beton_error *err);

typedef enum dtrain_group_state {
	DTRAIN_GROUP_WORKS = 0,
	DTRAIN_GROUP_BUSY,    /* it cannot tell without waiting */
	DTRAIN_GROUP_FAILING, /* operations are being aborted, and the ranks asked what happened */
	DTRAIN_GROUP_FAILED,  /* dtrain_group_check returns at once */
} dtrain_group_state;

/* dtrain_group_check for threads that must not wait, not even for a driver that holds up the group: any thread, at any
 * time while the group exists. err, which may be NULL, is filled for FAILING, with what this rank saw, and FAILED. A
 * group that is not stream-ordered always works. */
BETON_API dtrain_group_state dtrain_group_peek(dtrain_group *group, beton_error *err);

/* Watches an event that was recorded outside any capture, behind operations of the group that the group cannot watch
 * itself, being parts of a capture that was launched: it must be complete within the group's timeout, counted from now
 * or from the end of the event given before it. If it is not, the group fails: its operations are aborted, and `what`
 * (a step, say) is named. The event must stay until it is complete or forgotten; recorded anew, it must be given anew.
 * Does nothing for groups that are not stream-ordered, whose operations have deadlines of their own. Errors: those of
 * dtrain_group_check, NO_MEMORY. */
BETON_API int dtrain_group_watch(dtrain_group *group, dtrain_event *event, const char *what, beton_error *err);
/* Forgets the event, which may be destroyed then. */
BETON_API void dtrain_group_forget(dtrain_group *group, dtrain_event *event);

typedef struct dtrain_group_split_options {
	size_t struct_size;
	bool own_lane; /* see dtrain_group_split; default false */
} dtrain_group_split_options;

BETON_API void dtrain_group_split_options_init(dtrain_group_split_options *options);

/* Collective over the parent: ranks with the same color >= 0 form a group, ordered by key then rank; color < 0 joins
 * none and gets *out NULL. options: the same on all ranks; NULL: the defaults.
 *
 * A lane is what runs a group's operations one after the other. Without a device's backend each group has a thread and
 * connections of its own, and so a lane. On streams a part has its parent's stream: the operations of both run in the
 * order of the calls, which has to be the same on all ranks of a device. With own_lane the part has a stream of its own
 * on which its operations run beside those of other groups (a gather beside a reduce-scatter, say). What NCCL demands
 * then: all ranks that two groups with different lanes have in common call the operations of both in the same order,
 * as without lanes of their own, so from one thread, or under a lock of the caller's; for a rank's kernels wait for
 * their peers on the device, and if one rank has room for that of one group only, and another rank for that of the
 * other, none ends. From version 2.26 on NCCL_LAUNCH_ORDER_IMPLICIT=1 makes NCCL launch them in the order of the calls.
 * Captured operations of two lanes have no order between them but that of the capture. */
BETON_API int dtrain_group_split(dtrain_group *group, int color, int key, const dtrain_group_split_options *options,
				 dtrain_group **out, beton_error *err);

/* ---- the last operations of a group ---- */

/* How many are kept. */
#define DTRAIN_HISTORY_LENGTH 1024

typedef enum dtrain_record_state {
	DTRAIN_RECORD_QUEUED = 0, /* called, and not yet started */
	DTRAIN_RECORD_STARTED,    /* it may be waiting for other ranks */
	DTRAIN_RECORD_COMPLETED,
	DTRAIN_RECORD_FAILED,
	DTRAIN_RECORD_CAPTURED, /* part of a capture: its launches are not recorded */
} dtrain_record_state;

/* One operation, on this rank. Times are nanoseconds of CLOCK_MONOTONIC; 0: not yet, or not known. On streams a time is
 * when the group saw the event, a few milliseconds late, but the time between the two is the device's; a group of one
 * rank waits for nobody, and its operations count as completed when they are on the stream. Operations of a batch start
 * and end together. */
typedef struct dtrain_record {
	uint64_t number;   /* of the operation in its group on this rank, from 1 */
	uint64_t batch;    /* the number of the first operation of its batch; 0: it was not in one */
	uint32_t sequence; /* among the group's collectives, or the messages to (from) this peer, from 1: for
			      collectives the same on all ranks */
	const char *kind;  /* "allreduce", ...; of the library */
	char label[64];    /* see dtrain_group_label; "": none */
	int64_t count;     /* elements, as the call has them */
	dtrain_dtype dtype;
	int64_t bytes; /* of these elements */
	int reduce;    /* dtrain_reduce_op; -1: it does not reduce */
	int peer;      /* or the root; -1: it has none */
	int tag;       /* -1: it has none */
	dtrain_record_state state;
	uint64_t enqueued_ns, started_ns, ended_ns;
} dtrain_record;

/* Copies the last operations, at most `capacity`, oldest first, and returns how many. Any thread, at any time while the
 * group exists; waits for no operation, allocates nothing. records: the caller's.
 *
 * With the environment variable DTRAIN_HISTORY=FOLDER each rank writes its records when the group fails, to
 * FOLDER/GROUP.RANK.jsonl: a line about the group, and one for each record. */
BETON_API int dtrain_group_history(dtrain_group *group, dtrain_record *records, int capacity);
/* Names the operations that are called from now on, in messages and records: a unit, a bucket. NULL or "" (default): no
 * name; 63 bytes of it count. By the thread that calls the operations. */
BETON_API void dtrain_group_label(dtrain_group *group, const char *label);

#ifdef __cplusplus
}
#endif

#endif
