/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of dtrain_group.
 */
#ifndef DTRAIN_COMM_GROUP_H
#define DTRAIN_COMM_GROUP_H

#include <pthread.h>

#include "group_backend.h"
#include "group_history.h"
#include "group_sequence.h"
#include "work.h"

typedef struct group_streams group_streams;   /* group_stream.h */
typedef struct message_waiter message_waiter; /* group_messages.c */

struct dtrain_work {
	struct dtrain_work *next; /* in the group's queue */
	int count;                /* of operations: more than one, or none, in a batch */
	dtrain_group_op op;       /* the first, for messages */
	char label[WORK_LABEL_SIZE];
	group_streams *streams; /* NULL: the group's thread runs it */
	uint64_t record;        /* number of the first operation in the group's history */

	/* On a stream: guarded by the mutex of streams. */
	dtrain_event *begun, *ended; /* around it; begun only where it is not captured */
	uint64_t first_ns;           /* it has been the oldest; 0: not yet */
	uint64_t since_ns;           /* begun was complete; 0: not yet */
	bool captured;               /* in a capture: nothing is known of it */
	bool in_flight;              /* the group watches it */
	bool held;                   /* the user has the handle */
	bool complete;               /* with success */

	/* On the thread. */
	work_item *items; /* `count`: the one below, or memory of their own */
	work_item item;
	const dtrain_device_api *api; /* of the events of items */
	uint64_t start_ns, end_ns;    /* on the communication thread */
	pthread_mutex_t mutex;        /* guards done, status, err: a handle may outlive its group */
	pthread_cond_t finished;
	bool done;
	int status;
	beton_error err;
};

/* Operations between dtrain_group_begin and end. */
typedef struct group_batch {
	bool open;
	int count, capacity;
	work_item *items;
	beton_error refused; /* code 0: no call was */
} group_batch;

struct dtrain_group {
	group_membership member; /* name and interface are owned */
	char *name;
	char *interface;
	dtrain_device *device;
	const dtrain_device_api *api; /* NULL: host memory, no events */
	group_streams *streams;       /* NULL: the group has a thread for its operations, and what follows */
	const group_backend *backend;
	void *state;
	group_sequence sequence;     /* the caller's thread */
	group_batch batch;           /* the caller's thread */
	char label[WORK_LABEL_SIZE]; /* the caller's thread; "": none */
	int splits;
	group_history *history; /* that of streams, where there are */
	pthread_t thread;
	bool thread_started;
	int will; /* descriptor: the store tells the others when it is closed, by this process or by its end */

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t changed;
	dtrain_work *head, *tail;
	message_waiter *waiters, *idle;
	bool stopping;

	pthread_mutex_t failing; /* held until the ranks agree on what happened; guards what follows */
	beton_error failure;     /* code 0: none. After the first failure every operation fails */
};

/* The group's thread: runs what is in the queue. */
int dtrain__group_start_thread(dtrain_group *group, beton_error *err);
/* Ends the thread, and with CANCELLED what it had not begun. */
void dtrain__group_stop_thread(dtrain_group *group);
/* It failed, with err: nothing works after that. Rewrites err to what the ranks agree on. */
void dtrain__work_fail(dtrain_group *group, dtrain_work *work, beton_error *err);
/* "allreduce (bucket 2 of 7)", "batch of 4" */
void dtrain__work_describe(const dtrain_work *work, char *text, size_t size);
/* Ends the handle's waits; err: of a status that is not OK. */
void dtrain__work_complete(dtrain_group *group, dtrain_work *work, int status, const beton_error *err);

/* Has a thread of the group's wait for the messages of the work, and then complete it. */
int dtrain__messages_await(dtrain_group *group, dtrain_work *work, beton_error *err);
/* Ends those threads; their messages were aborted. */
void dtrain__messages_stop(dtrain_group *group);

/* Puts an operation that was checked in the open batch. */
int dtrain__batch_add(dtrain_group *group, const dtrain_group_call *call, dtrain_event *after, beton_error *err);
/* Queues or enqueues `count` checked operations as one. */
int dtrain__group_submit(dtrain_group *group, work_item *items, int count, bool in_batch, const work_notes *notes,
			 dtrain_work **out, beton_error *err);

/* Meets the other ranks at the store: TIMEOUT names those that did not come, MISMATCH those that were started
 * differently. Sets the member's host: that of the interface; or the address from which this rank reached the store;
 * or, where that is one of this machine alone, the one at which ranks of other machines reach it, where there are such.
 * *will is a descriptor or -1: see dtrain_group. */
int dtrain__group_meet(group_membership *member, const char *backend, int *will, beton_error *err);

/* Called on the communication thread of a rank whose operation failed, before it ends its connections: from then on the
 * others' operations fail too, and what they see is this rank. Raises the alarm as well. False when the store is gone,
 * or does not answer within seconds, which is all that this and what follows waits for it. */
bool dtrain__group_report_fault(const group_membership *member, group_history *history, int code);

/* After that: the ranks agree through the store on what happened first, so that all of them name the rank that is lost,
 * and not the neighbour that gave up because of it, and what some ranks had begun and others had not. Rewrites err. */
void dtrain__group_agree_on_fault(const group_membership *member, group_history *history, const char *operation,
				  beton_error *err);

/* For ranks that are not in an operation, or whose engine may not notice that another is gone: a fault, and on streams
 * a second last will, set the same key for all, which is cheap to look at. */
int dtrain__group_leave_alarm(const group_membership *member, int *will, beton_error *err);
/* True, and fills err: a rank saw a failure, or left or is gone unless only_faults, or the store is gone. */
bool dtrain__group_is_alarmed(const group_membership *member, bool only_faults, beton_error *err);
/* How long a rank is in no operation before it asks for the first time. */
#define GROUP_IDLE_NS 1000000000ull
/* True, and fills err: a rank saw a failure. That ranks, or the store, are gone is none to a rank that wants nothing of
 * them. *patience_ns: when to ask again. */
bool dtrain__group_others_failed(const group_membership *member, uint64_t *patience_ns, beton_error *err);

/* What a group is a part of. */
typedef struct group_origin {
	dtrain_group *parent; /* NULL: nothing */
	int color;            /* as for dtrain_group_backend */
	bool own_lane;
} group_origin;

/* Makes a group's communicator, or a part of another group's, once its ranks have met: exchanges the devices (two ranks
 * on one are refused), and carries the id. */
int dtrain__group_connect_streams(dtrain_group *group, const dtrain_group_backend *backend, const group_origin *origin,
				  bool share_device, beton_error *err);

/* A rank's device, as the others are told: the machine, the device, and what people call them. */
typedef struct device_place {
	char machine[64];
	char device[64];
	char host[64];
	char name[64];
} device_place;

/* INVALID_ARGUMENT when two ranks have the same device: names them, it, and what to do. */
int dtrain__check_devices(const char *group, const device_place *places, int size, beton_error *err);

/* dtrain_group_create, or the part that a split has in it. */
int dtrain__group_create_within(dtrain_store *store, int rank, int world_size, const dtrain_group_options *options,
				const group_origin *origin, dtrain_group **out, beton_error *err);

/* Gives a group the device whose events and memory it is going to see, if it has none yet. INVALID_ARGUMENT when it has
 * another; UNSUPPORTED when the backend cannot reach that device's memory. */
int dtrain__group_use_device(dtrain_group *group, dtrain_device *device, beton_error *err);

const char *dtrain__group_op_name(dtrain_group_op op);

#endif
