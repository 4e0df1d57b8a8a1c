/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups whose operations are put on a stream of their own by the calling thread: the inside that group_stream.c
 * (operations, handles) and group_watch.c (the thread, failures) share.
 */
#ifndef DTRAIN_COMM_GROUP_STREAM_H
#define DTRAIN_COMM_GROUP_STREAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "group.h"
#include "work.h"

typedef enum group_health {
	GROUP_WORKS,
	GROUP_FAILING, /* something was seen; the thread is to abort, and to agree with the other ranks on what it was
			*/
	GROUP_FAILED,
} group_health;

/* An event that the caller wants to be complete in time. */
typedef struct stream_watch {
	struct stream_watch *next;
	dtrain_event *event;
	uint64_t since_ns; /* 0: there are others in front of it */
	char what[64];
} stream_watch;

/* A stream, which a group and its parts share but those that have one of their own: NCCL wants the operations of
 * different communicators on one device in the same order on all ranks, and on one stream the order of the calls is
 * that. */
typedef struct group_lane {
	dtrain_stream *stream;
	pthread_mutex_t order; /* held while an operation is put on the stream */
	atomic_int users;
} group_lane;

/* Lives until the group and the last handle are gone. */
struct group_streams {
	group_membership member; /* the group's but for the name, which handles need too; store: as long as the group */
	char *name;
	const dtrain_device_api *api;
	dtrain_device *device;
	const dtrain_group_backend *backend; /* NULL: alone on a device that has none */
	void *state;                         /* NULL: alone; changed with the mutex held */
	group_lane *lane;
	bool within_machine;      /* all its ranks are on one */
	int alarm;                /* descriptor of a last will: see dtrain__group_leave_alarm */
	group_sequence sequence;  /* guarded by the lane's lock, and so is what follows */
	dtrain_group_call *calls; /* of the batch that is being put on the stream */
	int calls_capacity;
	group_history *history; /* owned */
	pthread_t thread;
	bool thread_started;

	struct group_streams *next; /* the groups of this process whose communicators may have to be aborted */
	bool aborted;               /* both guarded by the lock of that list */

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t changed;
	int references;            /* the group's, and one for each handle */
	dtrain_work *idle;         /* handles to be used again */
	dtrain_work *first, *last; /* on the stream, and watched */
	stream_watch *watches;
	group_health health;
	char failed_in[WORK_LABEL_SIZE + 32]; /* the operation or event at which `failure` was seen */
	beton_error failure;                  /* first what this rank saw, and then what all ranks say */
	bool idle_thread;                     /* it waits without a deadline */
	bool stopping;
};

/* Makes the part of the group that is not the communicator; alone where backend is NULL or the group has one member.
 * parent: whose lane is shared; NULL: none. */
int dtrain__streams_create(dtrain_group *group, const dtrain_group_backend *backend, const group_streams *parent,
			   group_streams **out, beton_error *err);
/* Starts the thread, and lets failures of other groups reach this one; not for groups of one. */
int dtrain__streams_watch(group_streams *streams, beton_error *err);
/* Undoes that; called by destroy, which then ends what is in flight: the handles find CANCELLED. */
void dtrain__streams_unwatch(group_streams *streams);
void dtrain__streams_destroy(group_streams **streams);

/* UNSUPPORTED when the backend does not take the type. */
int dtrain__streams_check_types(const group_streams *streams, const dtrain_group_call *call, bool reduces,
				beton_error *err);
/* `count` operations that were checked, as one; notes may be NULL. */
int dtrain__streams_submit(group_streams *streams, work_item *items, int count, bool in_batch, const work_notes *notes,
			   const char *label, dtrain_work **out, beton_error *err);
int dtrain__stream_work_wait(dtrain_work **work, beton_error *err);
int dtrain__stream_work_order(dtrain_work **work, dtrain_stream *stream, beton_error *err);
bool dtrain__stream_work_done(dtrain_work *work);

/* With the mutex held. Looks whether the operation has ended, with success; a failure becomes the group's. */
void dtrain__streams_observe(group_streams *streams, dtrain_work *work);
/* With the mutex held. Is everything that is known of complete, and nothing wrong? */
bool dtrain__streams_are_idle(group_streams *streams);
/* With the mutex held. The first failure counts; the thread does the rest. where: the operation. */
void dtrain__streams_fail(group_streams *streams, const char *where, const beton_error *err);
/* With the mutex held. Waits for the verdict if there is a failure. */
int dtrain__streams_check(group_streams *streams, beton_error *err);
/* Without the mutex: see dtrain_group_peek. */
dtrain_group_state dtrain__streams_peek(group_streams *streams, beton_error *err);
/* With the mutex held. The handle of an operation that has ended and that nobody holds is used again. */
void dtrain__streams_retire(group_streams *streams, dtrain_work *work);
/* dtrain_group_backend's, with nothing else on the way; place NULL: this rank joins none. */
int dtrain__streams_split(group_streams *parent, int color, const dtrain_group_place *place, void **state,
			  beton_error *err);

int dtrain__streams_add_watch(group_streams *streams, dtrain_event *event, const char *what, beton_error *err);
void dtrain__streams_forget(group_streams *streams, dtrain_event *event);

#endif
