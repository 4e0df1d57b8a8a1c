/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules: devices that are loaded at run time, so that a program starts without their libraries.
 *
 * The device "cuda" is a shared object dtrain-cuda.so with one symbol, dtrain_module_entry. It is searched for in the
 * folders of the environment variable DTRAIN_MODULE_PATH (separated by colons), in the folder dtrain beside libdtrain,
 * and in the installation's folder. The first one found is loaded, and stays loaded. A module is built against this
 * header alone, needs no symbol of libdtrain, and is refused if its version differs from the library's. The part of
 * libdtrain that calls Gloo, dtrain-gloo.so, is found in the same way, but its interface is private.
 */
#ifndef DTRAIN_MODULE_H
#define DTRAIN_MODULE_H

#include <dtrain/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the tables of modules. */
#define DTRAIN_MODULE_API_VERSION 4

/* Operations of groups. */
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

/* One operation. In-place operations have input == output; count is that of the public function, never 0 except for the
 * barrier. AVG is passed to the backend as AVG. */
typedef struct dtrain_group_call {
	dtrain_group_op op;
	void *output;
	const void *input;
	int64_t count;
	dtrain_dtype dtype;
	dtrain_reduce_op reduce;
	int root;          /* or the peer of send and recv */
	int tag;           /* of send and recv; messages with the same tag keep their order */
	uint32_t sequence; /* counts from 0: collectives of this group (equal on all ranks), or messages from or to this
			      peer */
} dtrain_group_call;

/* The largest id of a communicator that rank 0 makes for the others. */
#define DTRAIN_GROUP_ID_BYTES 128

/* A rank's place in a new group. The pointers are valid during the call. */
typedef struct dtrain_group_place {
	dtrain_device *device;
	const char *name; /* of the group, for messages */
	int rank;
	int size;            /* at least 2 */
	int timeout_ms;      /* of an operation */
	int join_timeout_ms; /* of making the group */
	bool copy_engines;   /* of a split: if the engine can, copy engines move what is not added up */
} dtrain_group_place;

/* A physical device. */
typedef struct dtrain_device_identity {
	char id[64];   /* unique on a machine, and the same in each process that uses the device */
	char name[64]; /* for people */
	char pci[24];  /* PCI address, as in sysfs: "0000:18:00.0"; "": none */
} dtrain_device_identity;

/* Communication between ranks on the module's device: an engine that puts operations on streams. The library does the
 * rest: rendezvous, order, deadlines, and agreement on failures.
 *
 * A state is a group's communicator. One thread at a time calls connect, split, enqueue, window_open, window_close and
 * close of a state; any thread may call poll and abort meanwhile. Every int is a beton_status; messages begin with the
 * engine's own text. */
typedef struct dtrain_group_backend {
	const char *name;
	size_t id_bytes;     /* of the id, at most DTRAIN_GROUP_ID_BYTES */
	uint32_t dtypes;     /* bit 1 << dtrain_dtype: types for transfers */
	uint32_t reductions; /* types for reductions */

	/* Device functions besides the table's. stream_create makes a stream for communication, with high priority if
	 * possible; the table's stream_destroy destroys it. */
	int (*stream_create)(dtrain_device *device, dtrain_stream **out, beton_error *err);
	/* Whether the stream is part of a capture that has not ended. Called by the thread that captures. */
	int (*stream_capturing)(dtrain_stream *stream, bool *capturing, beton_error *err);
	/* Whether the event is complete, without waiting. Any thread, even while another thread captures. Not called
	 * for an event whose last recording was in a capture. */
	int (*event_query)(dtrain_event *event, bool *complete, beton_error *err);

	int (*identify)(dtrain_device *device, dtrain_device_identity *out, beton_error *err);
	/* Whether the memories of two devices of this machine can be copied to each other, both ways, without host
	 * memory. */
	int (*can_reach)(dtrain_device *a, dtrain_device *b, bool *out, beton_error *err);
	/* Whether ranks may share a device. UNSUPPORTED says why not, and what to do. */
	int (*check_sharing)(beton_error *err);

	int (*make_id)(void *id, beton_error *err); /* on rank 0 */
	/* Collective. Fails with TIMEOUT after the deadline. */
	int (*connect)(const dtrain_group_place *place, const void *id, void **state, beton_error *err);
	/* Collective over the parent, which has nothing in flight. color < 0 (place NULL): joins no part, and *state is
	 * NULL. */
	int (*split)(void *parent, int color, const dtrain_group_place *place, int timeout_ms, void **state,
		     beton_error *err);

	/* Puts `count` >= 1 operations on the stream as one submission, so that any order of messages is free of
	 * deadlocks. The stream may be capturing. Allocates nothing and does not wait for a device. */
	int (*enqueue)(void *state, const dtrain_group_call *calls, int count, dtrain_stream *stream, beton_error *err);
	/* Returns the communicator's asynchronous error, if any. */
	int (*poll)(void *state, beton_error *err);
	/* Ends all running operations of these states, which refuse later ones. The streams continue, with undefined
	 * results. TIMEOUT: it took longer than the backend's own limit. */
	int (*abort)(void *const *states, int count, beton_error *err);
	/* Without abort: when nothing is in flight. After abort: at any time. NULL allowed. */
	void (*close)(void *state);

	/* (optional, all four) Memory that all ranks of a communicator can reach. memory_alloc: zeroed and ready;
	 * after any error the device's memory is used. memory_free waits for work on the device, as the device's free
	 * does. Any thread. */
	int (*memory_alloc)(dtrain_device *device, size_t bytes, void **memory, beton_error *err);
	void (*memory_free)(dtrain_device *device, void *memory);
	/* Collective: makes memory of memory_alloc known to all ranks, each with the same number of bytes; or to this
	 * rank's engine, if it has nothing better. *window NULL with success: the ranks cannot reach it.
	 * TIMEOUT: the state is aborted. */
	int (*window_open)(void *state, void *memory, size_t bytes, int timeout_ms, void **window, beton_error *err);
	/* Local: before memory_free and close, also after abort. No rank's operation uses the memory. */
	void (*window_close)(void *state, void *window);
} dtrain_group_backend;

/* The table of a module. */
typedef struct dtrain_module {
	uint32_t api_version;              /* DTRAIN_MODULE_API_VERSION */
	const char *version;               /* of the libraries it was built with, for people */
	const dtrain_device_api *device;   /* its name is the module's */
	const dtrain_group_backend *group; /* NULL: none */
} dtrain_module;

/* The function that a module exports, and its type. */
#define DTRAIN_MODULE_ENTRY "dtrain_module_entry"
typedef const dtrain_module *dtrain_module_entry_function(void);

#ifdef __cplusplus
}
#endif

#endif
