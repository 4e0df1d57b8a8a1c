/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered groups: state that group_stream.c (operations, handles) and group_watch.c (the thread, failures)
 * share.
 */
#ifndef DTRAIN_COMM_GROUP_GROUP_STREAM_H
#define DTRAIN_COMM_GROUP_GROUP_STREAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "group.h"
#include "work.h"

typedef enum group_health {
	GROUP_WORKS,
	GROUP_FAILING, /* the thread is to abort operations, and to agree with the other ranks on the cause */
	GROUP_FAILED,
} group_health;

/* An event that must be complete in time. */
typedef struct stream_watch {
	struct stream_watch *next;
	dtrain_event *event;
	uint64_t since_ns; /* 0: earlier operations still run */
	char what[64];
} stream_watch;

/* A stream, shared by a group and its parts except those with their own lane. NCCL needs the operations of all
 * communicators on a device in the same order on all ranks; one stream gives the order of the calls. */
typedef struct group_lane {
	dtrain_stream *stream;
	pthread_mutex_t order; /* held while an operation is put on the stream */
	atomic_int users;
} group_lane;

/* A window of the group on memory (group_memory.c). */
typedef struct group_window group_window;

/* Exists until the group and the last handle are gone. */
struct group_streams {
	group_membership
		member; /* the group's; the name is owned, because handles need it; store: valid as long as the group */
	char *name;
	const dtrain_device_api *api;
	dtrain_device *device;
	const dtrain_group_backend *backend; /* NULL: a group of one rank on a device without a backend */
	void *state;                         /* NULL: a group of one rank; changed with the mutex held */
	group_lane *lane;
	int *machines;            /* of each rank: the first one of the group that was split first on the same machine;
				   * owned; NULL: a group of one rank */
	group_sequence sequence;  /* guarded by the lane's lock; so are the next two */
	dtrain_group_call *calls; /* of the batch that is being put on the stream */
	int calls_capacity;
	group_history *history; /* owned */
	group_window *windows;  /* of memory; the threads that register and destroy it */
	pthread_t thread;
	bool thread_started;

	struct group_streams *next; /* groups of this process that have communicators to abort */
	bool aborted;               /* guarded, like next, by the lock of that list */

	pthread_mutex_t mutex; /* guards the members below */
	pthread_cond_t changed;
	int references;            /* one for the group, and one for each handle */
	dtrain_work *idle;         /* handles to reuse */
	dtrain_work *first, *last; /* handles on the stream, which are watched */
	stream_watch *watches;
	group_health health;
	char failed_in[WORK_LABEL_SIZE + 32]; /* operation or event at which `failure` was seen */
	beton_error failure;                  /* as this rank saw it; later as all ranks agree */
	bool idle_thread;                     /* the thread waits without a deadline */
	bool stopping;
};

/* Creates everything but the communicator. backend may be NULL for a group of one rank. parent: whose lane is shared;
 * NULL: none. */
int dtrain__streams_create(dtrain_group *group, const dtrain_group_backend *backend, const group_streams *parent,
			   group_streams **out, beton_error *err);
/* Starts the thread, and makes the group fail together with the others. Not for groups of one rank. */
int dtrain__streams_watch(group_streams *streams, beton_error *err);
/* Undoes that. Called by destroy, which then ends operations in flight with CANCELLED. */
void dtrain__streams_unwatch(group_streams *streams);
void dtrain__streams_destroy(group_streams **streams);

/* UNSUPPORTED if the backend does not support the type. */
int dtrain__streams_check_types(const group_streams *streams, const dtrain_group_call *call, bool reduces,
				beton_error *err);
/* Submits `count` checked operations as one. notes may be NULL. */
int dtrain__streams_submit(group_streams *streams, work_item *items, int count, bool in_batch, const work_notes *notes,
			   const char *label, dtrain_work **out, beton_error *err);
int dtrain__stream_work_wait(dtrain_work **work, beton_error *err);
int dtrain__stream_work_order(dtrain_work **work, dtrain_stream *stream, beton_error *err);
bool dtrain__stream_work_done(dtrain_work *work);

/* With the mutex held. Checks whether the operation has ended with success. A failure becomes the group's. */
void dtrain__streams_observe(group_streams *streams, dtrain_work *work);
/* With the mutex held. Whether all known work is complete and nothing failed. */
bool dtrain__streams_are_idle(group_streams *streams);
/* With the mutex held. Records the first failure; the thread handles it. where: the operation. */
void dtrain__streams_fail(group_streams *streams, const char *where, const beton_error *err);
/* With the mutex held. If there is a failure, waits until the ranks agree on it. */
int dtrain__streams_check(group_streams *streams, beton_error *err);
/* Without the mutex: see dtrain_group_peek. */
dtrain_group_state dtrain__streams_peek(group_streams *streams, beton_error *err);
/* With the mutex held. Makes the handle reusable if its operation has ended and the caller has freed it. */
void dtrain__streams_retire(group_streams *streams, dtrain_work *work);
/* Calls the backend's split while no other operation is put on the stream. place NULL: this rank joins no part. */
int dtrain__streams_split(group_streams *parent, int color, const dtrain_group_place *place, void **state,
			  beton_error *err);

/* Closes the windows of all memory, which then belongs to no group. If the communicator is leaked, so is the memory. */
void dtrain__streams_close_windows(group_streams *streams);

int dtrain__streams_add_watch(group_streams *streams, dtrain_event *event, const char *what, beton_error *err);
void dtrain__streams_forget(group_streams *streams, dtrain_event *event);

#endif
