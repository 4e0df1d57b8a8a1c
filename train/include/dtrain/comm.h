/* SPDX-License-Identifier: Apache-2.0
 *
 * Communication between ranks: a TCP key-value store for the rendezvous, and process groups.
 */
#ifndef DTRAIN_COMM_H
#define DTRAIN_COMM_H

#include <dtrain/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- key-value store: one server, any number of clients; keys and values are byte strings ---- */

/* Most ranks of a job, and so most clients of a store. */
#define DTRAIN_MAX_RANKS 4096

typedef struct dtrain_store_server dtrain_store_server;
typedef struct dtrain_store dtrain_store;

typedef struct dtrain_store_server_options {
	size_t struct_size;
	const char *host;  /* name or address to listen on; "*": all addresses of this machine; NULL (default): the
			    * loopback  address */
	uint16_t port;     /* 0 (default): the system chooses */
	const char *token; /* 32 hexadecimal digits that clients must know; NULL (default): any host that can reach the
			      port can read and overwrite every key, and so break the job */
	int ranks;         /* ranks that will connect, at most DTRAIN_MAX_RANKS; 0 (default): not known */
} dtrain_store_server_options;

BETON_API void dtrain_store_server_options_init_sized(dtrain_store_server_options *options, size_t size);
static inline void dtrain_store_server_options_init(dtrain_store_server_options *options)
{
	dtrain_store_server_options_init_sized(options, sizeof(*options));
}

/* Starts a server with its own thread. options may be NULL. Raises this process's limit of open files as far as
 * allowed. The server drops a connection that sends garbage, has another token, stops in the middle of a frame or does
 * not read its answer; others are not affected. The memory that clients and strangers can occupy is bounded: frames
 * that arrive take 64 MiB at most, all together, and 4 KiB of each connection besides. Errors: EXISTS (the port is
 * taken; the message names it), NO_SPACE (fewer open files are allowed than the ranks need), NOT_FOUND (host),
 * INVALID_ARGUMENT, ACCESS, SYSTEM, NO_MEMORY. */
BETON_API int dtrain_store_server_start(const dtrain_store_server_options *options, dtrain_store_server **out,
					beton_error *err);
BETON_API uint16_t dtrain_store_server_port(const dtrain_store_server *server);
/* Whether the server had to turn away clients. NO_SPACE: it did; the message names the limit. Any thread. */
BETON_API int dtrain_store_server_check(dtrain_store_server *server, beton_error *err);
/* How many connections were refused because of their token. from: the address of the last one, cut to size bytes; NULL:
 * not wanted. server may be NULL. Any thread. */
BETON_API int64_t dtrain_store_server_refused(dtrain_store_server *server, char *from, size_t size);
BETON_API void dtrain_store_server_stop(dtrain_store_server **server);

/* Connects, and retries until the deadline. token: the server's, or NULL. Several threads may use a client; a blocking
 * get does not delay the others. Errors: TIMEOUT (what was tried), NOT_FOUND (host), ACCESS (the token), NO_SPACE (the
 * server's limit), MISMATCH (no store of this version), INVALID_ARGUMENT, SYSTEM. */
BETON_API int dtrain_store_connect(const char *host, uint16_t port, const char *token, int timeout_ms,
				   dtrain_store **out, beton_error *err);
BETON_API void dtrain_store_close(dtrain_store **store);

/* Sets a key to a value. */
BETON_API int dtrain_store_set(dtrain_store *store, const char *key, const void *value, size_t size, beton_error *err);
/* Waits for the key. The caller frees *value. Errors: TIMEOUT (names the key), PEER_LOST (the server); as
 * dtrain_presence_check where that finds a rank lost. */
BETON_API int dtrain_store_get(dtrain_store *store, const char *key, int timeout_ms, void **value, size_t *size,
			       beton_error *err);
/* Adds to a counter, which is 0 at first, and returns the sum. */
BETON_API int dtrain_store_add(dtrain_store *store, const char *key, int64_t delta, int64_t *sum, beton_error *err);
/* The same for callers that must not wait for a store that hangs: after answer_ms without an answer the connection is
 * dropped, and a late answer is lost. TIMEOUT: it is not known whether the store carried out the call. */
BETON_API int dtrain_store_set_within(dtrain_store *store, const char *key, const void *value, size_t size,
				      int answer_ms, beton_error *err);
BETON_API int dtrain_store_add_within(dtrain_store *store, const char *key, int64_t delta, int answer_ms, int64_t *sum,
				      beton_error *err);

/* ---- presence: which ranks of a job are there, whatever they do ---- */

/* Each rank has a thread that renews a lease at the store. So a phase needs no time limit of its own: a rank whose
 * process has ended, or that is stopped or cut off with its machine for as long as its lease lasts, is missed all the
 * same. The others learn of the first such rank: all groups of that client fail at once, and name it, and no call waits
 * any longer for a key or for ranks to join. Time for which this process, or the store's, was stopped does not count.
 */
typedef struct dtrain_presence dtrain_presence;

typedef struct dtrain_presence_options {
	size_t struct_size;
	int rank;       /* the number by which messages call this rank; its groups number ranks likewise */
	int store_rank; /* which runs the store, and is lost if the store gives no answer; -1 (default): none of the
			   others */
	int lease_ms;   /* default 30,000; it is renewed each second, or four times in its length */
} dtrain_presence_options;

BETON_API void dtrain_presence_options_init_sized(dtrain_presence_options *options, size_t size);
static inline void dtrain_presence_options_init(dtrain_presence_options *options)
{
	dtrain_presence_options_init_sized(options, sizeof(*options));
}

/* At most one of a client, which must outlive it. Errors: as dtrain_store_connect; INVALID_ARGUMENT, NO_MEMORY. */
BETON_API int dtrain_presence_begin(dtrain_store *store, const dtrain_presence_options *options, dtrain_presence **out,
				    beton_error *err);
/* Does not wait. PEER_LOST, TIMEOUT: the rank that is lost, or gives no sign; or the store is gone. */
BETON_API int dtrain_presence_check(dtrain_presence *presence, beton_error *err);
/* Before this rank leaves: it is not lost. */
BETON_API void dtrain_presence_end(dtrain_presence **presence);

/* ---- process groups ---- */

typedef enum dtrain_reduce_op {
	DTRAIN_SUM = 0,
	DTRAIN_MAX = 1,
	DTRAIN_MIN = 2,
	DTRAIN_AVG = 3, /* the sum divided by the size of the group; floating point only */
	DTRAIN_PRODUCT = 4,
} dtrain_reduce_op;

typedef struct dtrain_group dtrain_group;
typedef struct dtrain_work dtrain_work;

typedef struct dtrain_group_options {
	size_t struct_size;
	const char *backend; /* "gloo", or the backend of the device's module ("nccl"); NULL: the device's default */
	const char *name;    /* prefix of keys in the store, which a store accepts once; groups with different names are
				independent; default "world" */
	const char *interface; /* network interface; NULL: the interface to the store */
	int timeout_ms;        /* of each operation; default 30,000 */
	int join_timeout_ms;   /* of joining and splitting; 0 (default): timeout_ms */
	dtrain_device *device; /* whose memory and events the operations use; NULL: host memory, no events */
	bool share_device;     /* ranks may share a GPU, if the backend supports it */
} dtrain_group_options;

BETON_API void dtrain_group_options_init_sized(dtrain_group_options *options, size_t size);
static inline void dtrain_group_options_init(dtrain_group_options *options)
{
	dtrain_group_options_init_sized(options, sizeof(*options));
}

/* Joins the group as rank of world_size; returns when all ranks have joined. Every rank must make the same calls on a
 * group in the same order. Errors: TIMEOUT (names the missing ranks), PEER_LOST, MISMATCH, UNSUPPORTED,
 * INVALID_ARGUMENT (also for two ranks on one GPU, which the message names), NOT_FOUND (the module dtrain-gloo.so, or a
 * library that it needs). While another group of this client has failed and is not destroyed, joining ends with that
 * failure, because a rank of both is lost. A group of one rank needs no store (NULL) and no backend. The store must
 * outlive the group, and the device the group and its handles.
 *
 * A group on a device whose module has a backend is stream-ordered: the calling thread puts operations on the group's
 * stream, and a thread of the group watches them. Operations can be captured if `after` is part of the capture, and the
 * capturing stream waits for them before the capture ends. Destroy such captures before the group. */
BETON_API int dtrain_group_create(dtrain_store *store, int rank, int world_size, const dtrain_group_options *options,
				  dtrain_group **out, beton_error *err);
/* Tells the other ranks that this rank cannot join: instead of waiting for it they get PEER_LOST with the rank and the
 * reason. name: of the group, as in its options. Errors: as for dtrain_store_set. */
BETON_API int dtrain_group_decline(dtrain_store *store, int rank, const char *name, const char *reason,
				   beton_error *err);
/* Local; work in flight ends with CANCELLED. */
BETON_API void dtrain_group_destroy(dtrain_group **group);
/* A problem that joining overcame, for example a stranger that connected to a rank's port. NULL: none. The text belongs
 * to the group. */
BETON_API const char *dtrain_group_note(const dtrain_group *group);
BETON_API int dtrain_group_rank(const dtrain_group *group);
BETON_API int dtrain_group_size(const dtrain_group *group);

/* All operations are asynchronous: they are queued in call order, run on the group's thread (CPU) or stream (GPU), and
 * return a work handle, which must be waited for exactly once. The caller keeps the buffers valid until then. Counts
 * are elements. after: the operation starts when this event is complete; NULL: at once. A failed call gives no handle.
 * After a failure, every later operation of the group fails with the same error. With Gloo the end of a rank's process
 * is such a failure, on all ranks and at once, unless the process has destroyed the group.
 *
 * Order: all ranks call collectives in the same order. Sends and receives involve two ranks only, which may call them
 * anywhere between collectives; they do not count in the order of collectives.
 *
 * Types: every dtrain_dtype, for transfers and reductions, unless the device's backend supports fewer. Gloo adds F16
 * and BF16 in F32 and rounds to nearest even each time it combines two parts, at most size - 1 times; reduce_scatter
 * rounds once. NCCL does not document when it rounds. Integers wrap around. AVG of F16 and BF16 rounds the sum and then
 * the quotient, so the sum must be finite. */
BETON_API int dtrain_allreduce(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, dtrain_reduce_op op,
			       dtrain_event *after, dtrain_work **work, beton_error *err);
/* output: count elements; input: count * size elements. */
BETON_API int dtrain_reduce_scatter(dtrain_group *group, void *output, const void *input, int64_t count,
				    dtrain_dtype dtype, dtrain_reduce_op op, dtrain_event *after, dtrain_work **work,
				    beton_error *err);
/* output: count * size elements in rank order; input: count elements, which may be this rank's part of output. */
BETON_API int dtrain_all_gather(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
				dtrain_event *after, dtrain_work **work, beton_error *err);
BETON_API int dtrain_broadcast(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, int root,
			       dtrain_event *after, dtrain_work **work, beton_error *err);
/* The root's data becomes the result; the data of the other ranks stay as they are. */
BETON_API int dtrain_reduce(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, dtrain_reduce_op op,
			    int root, dtrain_event *after, dtrain_work **work, beton_error *err);
/* output: of the root. */
BETON_API int dtrain_gather(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
			    int root, dtrain_event *after, dtrain_work **work, beton_error *err);
/* input: of the root. */
BETON_API int dtrain_scatter(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
			     int root, dtrain_event *after, dtrain_work **work, beton_error *err);
/* input and output: count * size elements, count for each rank. */
BETON_API int dtrain_all_to_all(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
				dtrain_event *after, dtrain_work **work, beton_error *err);
/* A send matches the peer's receive with the same tag (>= 0); messages with the same tag match in call order. count and
 * dtype must be equal on both sides. A send is complete when the receiver has the message. The timeouts of both count
 * from their own starts.
 *
 * With Gloo, messages with different tags may be received in any order, and a message does not delay later operations.
 * On streams, a message delays later operations, and two ranks that both send before they receive wait until the
 * timeout: put such messages into a batch. NCCL has no tags: the nth message that a rank sends is the nth that its peer
 * receives, in a batch too. A program for both backends must receive in the order of sending. */
BETON_API int dtrain_send(dtrain_group *group, const void *data, int64_t count, dtrain_dtype dtype, int peer, int tag,
			  dtrain_event *after, dtrain_work **work, beton_error *err);
BETON_API int dtrain_recv(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, int peer, int tag,
			  dtrain_event *after, dtrain_work **work, beton_error *err);
BETON_API int dtrain_barrier(dtrain_group *group, dtrain_work **work, beton_error *err);

/* A batch: the operations between begin and end are one submission (NCCL: one group call) with one handle, which end
 * returns. The calls in between return no handles; their work may be NULL. All operations start when all of their
 * events are complete. Messages of a batch run concurrently, so each side may call sends and receives in any order.
 * They may match single messages of another rank. But if a batch has messages and collectives, all ranks must call the
 * collectives in a batch: NCCL runs one kind after the other. Collectives keep their call order. No operation may use
 * what another one of the batch writes. An empty batch ends at once.
 *
 * A refused call (INVALID_ARGUMENT, UNSUPPORTED) refuses the batch: end submits nothing and returns the first such
 * error, and the group still works. If that happens on one rank only, the ranks that wait for its operations time out,
 * and the group fails on all ranks, as with a single refused call. A later failure fails the batch, whose results are
 * then all undefined, and the group, with the same message on all ranks.
 *
 * One thread calls begin, the operations and end. Errors: STATE (begin or split within a batch, end without one), those
 * of the operations, NO_MEMORY. */
BETON_API int dtrain_group_begin(dtrain_group *group, beton_error *err);
BETON_API int dtrain_group_end(dtrain_group *group, dtrain_work **work, beton_error *err);

/* When the memory of a group is registered with its backend. Between machines registration has had faults
 * (NVIDIA/nccl#2389), and gains less than over NVLink. */
typedef enum dtrain_registration {
	DTRAIN_REGISTER_WITHIN_MACHINE, /* if all ranks of the group are on one machine */
	DTRAIN_REGISTER_ALWAYS,
	DTRAIN_REGISTER_NEVER,
} dtrain_registration;

/* Device memory that makes operations of groups fastest, for buffers that are used often. With NCCL 2.27 and newer it
 * can have a symmetric window of each group that uses it: each rank's GPU can reach the others' memory, at the same
 * offset. Operations whose buffers are in windows of their group must have them at the same offsets of the memory on
 * all ranks. All other work, and other groups, can use it like any memory of the device. */
typedef struct dtrain_group_memory dtrain_group_memory;

/* Local. Memory that the group, and its parts, can register; where they never would (one rank, Gloo, an older NCCL, by
 * `when`), or if there is no such memory left, it is memory of the device. It is zeroed and ready. Errors:
 * INVALID_ARGUMENT (a group without a device), NO_MEMORY. */
BETON_API int dtrain_group_memory_create(const dtrain_group *group, size_t bytes, dtrain_registration when,
					 dtrain_group_memory **out, beton_error *err);
/* Collective: each rank of the group registers memory of the same size, which then has a window of the group. If one
 * rank's memory cannot have one, or the GPUs do not reach each other, no rank has one, and the call succeeds.
 * A second call with a group does nothing. If the group is not stream-ordered, nothing is communicated. Errors:
 * INVALID_ARGUMENT (another device), STATE (within a batch), MISMATCH (names a rank that has memory of another size),
 * NO_MEMORY, and errors of operations. */
BETON_API int dtrain_group_memory_register(dtrain_group_memory *memory, dtrain_group *group, beton_error *err);
/* Owned by the memory. */
BETON_API void *dtrain_group_memory_data(const dtrain_group_memory *memory);
/* Whether the memory has a window of the group. */
BETON_API bool dtrain_group_memory_is_registered(const dtrain_group_memory *memory, const dtrain_group *group);
/* Local; before or after the groups' destruction, but not at the same time. No rank's operation may be using the
 * memory. The device must exist until then. NULL allowed. */
BETON_API void dtrain_group_memory_destroy(dtrain_group_memory **memory);

/* Waits, and always frees the handle and sets *work to NULL. Errors: TIMEOUT, PEER_LOST (name the operation and the
 * group), CANCELLED. */
BETON_API int dtrain_work_wait(dtrain_work **work, beton_error *err);
/* Whether the operation has ended, with success or not, so that wait returns at once. Not for captured operations. */
BETON_API bool dtrain_work_done(const dtrain_work *work);
/* Makes later work on the stream wait for the operation, and always frees the handle. The host does not wait if the
 * group is stream-ordered; otherwise it waits for the operation. Errors: as dtrain_work_wait, for failures known by
 * now; dtrain_group_check reports later ones. */
BETON_API int dtrain_work_stream_wait(dtrain_work **work, dtrain_stream *stream, beton_error *err);

/* Whether the group has failed. Call it after waiting for results on the device, because a failed operation's results
 * look available but are undefined. May wait a few seconds until the ranks agree on the cause. Errors: as
 * dtrain_work_wait. */
BETON_API int dtrain_group_check(dtrain_group *group, beton_error *err);

/* The state of a group. */
typedef enum dtrain_group_state {
	DTRAIN_GROUP_WORKS = 0,
	DTRAIN_GROUP_BUSY,    /* unknown: telling would need waiting */
	DTRAIN_GROUP_FAILING, /* operations are being aborted, and ranks agree on the cause */
	DTRAIN_GROUP_FAILED,  /* dtrain_group_check returns at once */
} dtrain_group_state;

/* dtrain_group_check for threads that must not wait, not even for a driver that blocks the group. Any thread, while the
 * group exists. err (NULL allowed) is filled for FAILING, with this rank's error, and for FAILED. A group that is not
 * stream-ordered always works. */
BETON_API dtrain_group_state dtrain_group_peek(dtrain_group *group, beton_error *err);

/* Watches an event that was recorded, outside any capture, after a launched capture with operations of the group,
 * which the group cannot watch itself. The event must be complete within the group's timeout, from now or from the
 * completion of the event watched before it. Otherwise the group fails: its operations are aborted, and the message
 * names `what` (for example a step). The event must exist until it is complete or forgotten; if it is recorded again,
 * watch it again. Does nothing for groups that are not stream-ordered, whose operations have their own deadlines.
 * Errors: as for dtrain_group_check, NO_MEMORY. */
BETON_API int dtrain_group_watch(dtrain_group *group, dtrain_event *event, const char *what, beton_error *err);
/* Stops watching the event, which may then be destroyed. */
BETON_API void dtrain_group_forget(dtrain_group *group, dtrain_event *event);

typedef struct dtrain_group_split_options {
	size_t struct_size;
	bool own_lane;     /* see dtrain_group_split; default false */
	bool copy_engines; /* see dtrain_group_split; default false: as the parent */
} dtrain_group_split_options;

BETON_API void dtrain_group_split_options_init_sized(dtrain_group_split_options *options, size_t size);
static inline void dtrain_group_split_options_init(dtrain_group_split_options *options)
{
	dtrain_group_split_options_init_sized(options, sizeof(*options));
}

/* Collective over the parent: ranks with the same color >= 0 form a group, ordered by key, then by rank; with color < 0
 * a rank joins none, and *out is NULL. options: the same on all ranks; NULL: the defaults.
 *
 * A lane runs a group's operations one after the other. With Gloo each group has its own thread and connections, and so
 * its own lane. On streams a part shares its parent's stream: the operations of both run in the order of the calls,
 * which must be the same on all ranks of a device. With own_lane the part has its own stream, on which its operations
 * run concurrently with other groups' (for example a gather and a reduce-scatter). NCCL still requires that the ranks
 * common to two groups call the operations of both in the same order, so from one thread, or under a lock of the
 * caller's. Otherwise kernels can deadlock: they wait for their peers on the device, and one rank may have room for one
 * group's kernel only, another rank for the other's. From version 2.26 on, NCCL_LAUNCH_ORDER_IMPLICIT=1 makes NCCL
 * launch them in the order of the calls. Captured operations of two lanes are ordered by the capture alone.
 *
 * With copy_engines the device's copy engines move what the part's operations do not add up (gathers, all-to-all), and
 * its processors stay free for other work. NCCL 2.28 and newer do that for memory that has a window of the part
 * (dtrain_group_memory_register). Everything else works as without. */
BETON_API int dtrain_group_split(dtrain_group *group, int color, int key, const dtrain_group_split_options *options,
				 dtrain_group **out, beton_error *err);

/* ---- the last operations of a group ---- */

/* Number of operations that are kept. */
#define DTRAIN_HISTORY_LENGTH 1024

/* The state of an operation in the history. */
typedef enum dtrain_record_state {
	DTRAIN_RECORD_QUEUED = 0, /* called, and not yet started */
	DTRAIN_RECORD_STARTED,    /* it may be waiting for other ranks */
	DTRAIN_RECORD_COMPLETED,
	DTRAIN_RECORD_FAILED,
	DTRAIN_RECORD_CAPTURED, /* part of a capture: its launches are not recorded */
} dtrain_record_state;

/* One operation, on this rank. Times are nanoseconds of CLOCK_MONOTONIC; 0: not yet, or not known. On streams, the
 * group sees events a few milliseconds late, but the time from start to end is measured on the device. A group of one
 * rank does not wait, and its operations count as completed when they are on the stream. Operations of a batch start
 * and end together. */
typedef struct dtrain_record {
	uint64_t number;   /* of the operation in its group on this rank, from 1 */
	uint64_t batch;    /* number of its batch's first operation; 0: it was not in a batch */
	uint32_t sequence; /* counts from 1: collectives of the group (equal on all ranks), or messages to (or from)
			      this peer */
	const char *kind;  /* "allreduce", ...; static */
	char label[64];    /* see dtrain_group_label; "": none */
	int64_t count;     /* elements, as in the call */
	dtrain_dtype dtype;
	int64_t bytes; /* of these elements */
	int reduce;    /* dtrain_reduce_op; -1: no reduction */
	int peer;      /* or the root; -1: none */
	int tag;       /* -1: none */
	dtrain_record_state state;
	uint64_t enqueued_ns, started_ns, ended_ns;
} dtrain_record;

/* Copies the last operations, at most `capacity`, oldest first, and returns how many. Any thread, while the group
 * exists. Does not wait for operations or allocate. records: owned by the caller.
 *
 * With the environment variable DTRAIN_HISTORY=FOLDER each rank writes its records when the group fails, to
 * FOLDER/GROUP.RANK.jsonl: a line about the group, and one for each record. */
BETON_API int dtrain_group_history(dtrain_group *group, dtrain_record *records, int capacity);
/* Sets the name, in messages and records, of operations called from now on: a unit, a bucket. NULL or "" (default): no
 * name. At most 63 bytes are used. Called by the thread that calls the operations. */
BETON_API void dtrain_group_label(dtrain_group *group, const char *label);

#ifdef __cplusplus
}
#endif

#endif
