/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules: devices that are loaded at run time, so that a program starts without the libraries that they need.
 *
 * The device "cuda" is a shared object dtrain-cuda.so with one symbol, dtrain_module_entry. It is looked for in the
 * folders of the environment variable DTRAIN_MODULE_PATH (with colons between them), in the folder dtrain beside
 * libdtrain, and where the installation puts it; the first that is there is loaded, and stays loaded. A module is built
 * against this header alone, needs no symbol of libdtrain, and is refused when its version is another one than the
 * library's.
 */
#ifndef DTRAIN_MODULE_H
#define DTRAIN_MODULE_H

#include <dtrain/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DTRAIN_MODULE_API_VERSION 3

typedef enum dtrain_group_op {
	DTRAIN_GROUP_ALLREDUCE,
	DTRAIN_GROUP_REDUCE_SCATTER,
	DTRAIN_GROUP_ALL_GATHER,
	DTRAIN_GROUP_BROADCAST,
	DTRAIN_GROUP_REDUCE,
	DTRAIN_GROUP_GATHER,
	DTRAIN_GROUP_SCATTER,
	DTRAIN_GROUP_ALL_TO_ALL,
	DTRAIN_GROUP_SEND,
	DTRAIN_GROUP_RECV,
	DTRAIN_GROUP_BARRIER,
} dtrain_group_op;

/* One operation. In-place operations have input == output; count is that of the public function, never 0 except for
 * the barrier. AVG reaches a backend as it is. */
typedef struct dtrain_group_call {
	dtrain_group_op op;
	void *output;
	const void *input;
	int64_t count;
	dtrain_dtype dtype;
	dtrain_reduce_op reduce;
	int root;          /* or the peer of send and recv */
	int tag;           /* of send and recv; messages with the same one keep their order */
	uint32_t sequence; /* of collectives in this group, of messages from or to this peer, from 0: collectives have
			      the same on all ranks */
} dtrain_group_call;

/* The largest id that a backend may want to have carried from rank 0 to the others. */
#define DTRAIN_GROUP_ID_BYTES 128

/* A rank's place in a group that is being made. The pointers are valid during the call. */
typedef struct dtrain_group_place {
	dtrain_device *device;
	const char *name; /* of the group, for messages */
	int rank;
	int size;            /* at least 2 */
	int timeout_ms;      /* of an operation */
	int join_timeout_ms; /* of making the group */
} dtrain_group_place;

/* A physical device. */
typedef struct dtrain_device_identity {
	char id[64];   /* the same in each process that uses it: same ids on the same machine are one device */
	char name[64]; /* what people call it by */
	char pci[24];  /* its PCI address, as in sysfs: "0000:18:00.0"; "": it has none */
} dtrain_device_identity;

/* How ranks on the module's device talk to each other: an engine that puts operations on streams. The library does the
 * rest: meeting, order, deadlines, time-outs, agreement on what failed.
 *
 * A state is a group's communicator. connect, split, enqueue, register_memory, unregister_memory and close of one state
 * are called by one thread at a time; poll and abort by any, also at the same time as these. Every int is a
 * beton_status; the message begins with the engine's own text. */
typedef struct dtrain_group_backend {
	const char *name;
	size_t id_bytes;     /* of the id, at most DTRAIN_GROUP_ID_BYTES */
	uint32_t dtypes;     /* bit 1 << dtrain_dtype: may be moved */
	uint32_t reductions; /* and reduced */

	/* What the library needs of the device besides its table. A stream for communication: of high priority, where
	 * there are priorities; stream_destroy of the table ends it. */
	int (*stream_create)(dtrain_device *device, dtrain_stream **out, beton_error *err);
	/* Is the stream part of a capture that has begun and not ended? Asked by the thread that captures. */
	int (*stream_capturing)(dtrain_stream *stream, bool *capturing, beton_error *err);
	/* Without waiting, from any thread, whatever another thread captures. Never asked about an event whose last
	 * recording was in a capture. */
	int (*event_query)(dtrain_event *event, bool *complete, beton_error *err);

	int (*identify)(dtrain_device *device, dtrain_device_identity *out, beton_error *err);
	/* Do copies between the memory of two devices of this machine, either way, do without the host's? */
	int (*can_reach)(dtrain_device *a, dtrain_device *b, bool *out, beton_error *err);
	/* May ranks share a device? UNSUPPORTED says why not, and what to do. */
	int (*check_sharing)(beton_error *err);

	int (*make_id)(void *id, beton_error *err); /* on rank 0 */
	/* Collective. Ends by the deadline: TIMEOUT. */
	int (*connect)(const dtrain_group_place *place, const void *id, void **state, beton_error *err);
	/* Collective over the parent, which has nothing in flight. color < 0 (place NULL): joins none, *state NULL. */
	int (*split)(void *parent, int color, const dtrain_group_place *place, int timeout_ms, void **state,
		     beton_error *err);

	/* Puts `count` operations, at least one, on the stream as one: no order of the messages among them may keep
	 * any from ending. The stream may be capturing; allocates nothing and waits for no device. */
	int (*enqueue)(void *state, const dtrain_group_call *calls, int count, dtrain_stream *stream, beton_error *err);
	/* What has gone wrong since, if anything. */
	int (*poll)(void *state, beton_error *err);
	/* Ends what runs on all of them, which refuse everything after, within a deadline of its own: TIMEOUT when that
	 * passed. The streams go on then, with undefined results. */
	int (*abort)(void *const *states, int count, beton_error *err);
	/* Without abort: when nothing is in flight; after it: at any time. NULL allowed. */
	void (*close)(void *state);

	/* (optional, both) Memory that will often be an operand, for engines that move registered memory faster.
	 * An error means that it is moved as other memory is. */
	int (*register_memory)(void *state, void *memory, size_t bytes, void **handle, beton_error *err);
	void (*unregister_memory)(void *state, void *handle);
} dtrain_group_backend;

typedef struct dtrain_module {
	uint32_t api_version;              /* DTRAIN_MODULE_API_VERSION */
	const char *version;               /* of what it was built with, for people */
	const dtrain_device_api *device;   /* its name is the module's */
	const dtrain_group_backend *group; /* NULL: none */
} dtrain_module;

#define DTRAIN_MODULE_ENTRY "dtrain_module_entry"
typedef const dtrain_module *dtrain_module_entry_function(void);

#ifdef __cplusplus
}
#endif

#endif
