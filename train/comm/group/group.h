/* SPDX-License-Identifier: Apache-2.0
 *
 * The members of dtrain_group, and functions that its files share.
 */
#ifndef DTRAIN_COMM_GROUP_GROUP_H
#define DTRAIN_COMM_GROUP_GROUP_H

#include <pthread.h>

#include "group_backend.h"
#include "group_history.h"
#include "group_sequence.h"
#include "work.h"

typedef struct group_streams group_streams;   /* group_stream.h */
typedef struct message_waiter message_waiter; /* group_messages.c */

struct dtrain_work {
	struct dtrain_work *next; /* in the group's queue */
	int count;                /* of operations; a batch may have any number */
	dtrain_group_op op;       /* first operation, for messages */
	char label[WORK_LABEL_SIZE];
	group_streams *streams; /* NULL: the group's thread runs it */
	uint64_t record;        /* number of the first operation in the group's history */

	/* On a stream. Guarded by the mutex of streams. */
	dtrain_event *begun, *ended; /* events around the operation; begun only if it is not captured */
	uint64_t first_ns;           /* when it became the oldest; 0: it is not yet */
	uint64_t since_ns;           /* when begun was complete; 0: it is not yet */
	bool captured;               /* part of a capture, so its state is unknown */
	bool in_flight;              /* the group watches it */
	bool held;                   /* the caller has the handle */
	bool complete;               /* with success */

	/* On the group's thread. */
	work_item *items; /* `count` items: &item, or allocated */
	work_item item;
	const dtrain_device_api *api; /* for the items' events */
	uint64_t start_ns, end_ns;    /* on the group's thread */
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
	beton_error refused; /* by the first refused call; code 0: none */
} group_batch;

struct dtrain_group {
	group_membership member; /* name, interface and world are owned */
	char *name;
	int *world;
	char *interface;
	dtrain_device *device;
	const dtrain_device_api *api; /* NULL: host memory, no events */
	group_streams *streams;       /* NULL: the group has a thread, and uses the members below */
	const group_backend *backend;
	void *state;
	group_sequence sequence;     /* the caller's thread */
	group_batch batch;           /* the caller's thread */
	char label[WORK_LABEL_SIZE]; /* the caller's thread; "": none */
	const work_notes *notes;     /* of the next operations; the caller's thread; NULL: none */
	int splits;
	group_history *history; /* of streams, if the group has streams */
	pthread_t thread;
	bool thread_started;
	int will; /* descriptor of last wills: the store tells the other ranks when this process closes it or ends */

	/* Only a group of several ranks with a thread has these: see group_alarm.c. */
	pthread_t alarm_thread;
	bool alarm_started;
	int alarm_fd, stop_fd; /* readable: the alarm is raised, the thread is to end */

	pthread_mutex_t mutex; /* guards the members below */
	pthread_cond_t changed;
	dtrain_work *head, *tail;
	message_waiter *waiters, *idle;
	dtrain_work *running; /* by the group's thread */
	bool stopping;
	bool joined; /* state is set */

	pthread_mutex_t failing; /* held until the ranks agree on the cause; guards failure */
	beton_error failure;     /* code 0: none. After the first failure every operation fails */
	bool noted;              /* the store's client knows of it */
};

/* The group is connected. Fails if a rank was lost meanwhile. */
int dtrain__group_set_joined(dtrain_group *group, void *state, beton_error *err);
/* Starts the group's thread, which runs the queue. */
int dtrain__group_start_thread(dtrain_group *group, beton_error *err);
/* Ends the threads; queued operations end with CANCELLED. If nothing failed, the other ranks learn that this one
 * leaves. */
void dtrain__group_stop_thread(dtrain_group *group);
/* Fails the group: aborts all operations, and rewrites err to the cause on which the ranks agree. where: the operation
 * that failed. False: the group had failed before, and err has that failure. Any thread. */
bool dtrain__group_fail(dtrain_group *group, const char *where, beton_error *err);
/* The same, because the work failed with err. */
void dtrain__work_fail(dtrain_group *group, dtrain_work *work, beton_error *err);
/* Writes "allreduce (bucket 2 of 7)" or "batch of 4". */
void dtrain__work_describe(const dtrain_work *work, char *text, size_t size);
/* The group failed before this operation began: appends the operation's name to the failure's message, which may name
 * none. label: NULL or "": none. */
void dtrain__group_not_begun(const work_item *items, int count, const char *label, beton_error *err);
/* Completes the handle. err: for a status other than OK. */
void dtrain__work_complete(dtrain_group *group, dtrain_work *work, int status, const beton_error *err);

/* Lets another thread of the group wait for the work's messages and complete it. */
int dtrain__messages_await(dtrain_group *group, dtrain_work *work, beton_error *err);
/* Ends those threads. Their messages must have been aborted. */
void dtrain__messages_stop(dtrain_group *group);
/* With the group's mutex held. A work that one of them waits for; NULL: there is none. */
const dtrain_work *dtrain__messages_running(const dtrain_group *group);

/* Starts and ends the thread that fails the group when a rank is lost. After this rank is announced. */
int dtrain__group_start_alarm(dtrain_group *group, beton_error *err);
void dtrain__group_stop_alarm(dtrain_group *group);

/* Adds a checked operation to the open batch. */
int dtrain__batch_add(dtrain_group *group, const dtrain_group_call *call, dtrain_event *after, beton_error *err);
/* Queues or enqueues `count` checked operations as one. */
int dtrain__group_submit(dtrain_group *group, work_item *items, int count, bool in_batch, const work_notes *notes,
			 dtrain_work **out, beton_error *err);

/* Tells the other ranks at the store that this one is there, and leaves its last wills. *will: see dtrain_group. */
int dtrain__group_announce(group_membership *member, const char *backend, int *will, beton_error *err);
/* Then meets them. TIMEOUT names the missing ranks, MISMATCH ranks that were started differently; a group of this
 * process that fails ends it with its failure. Sets member->store_rank, and member->host: the interface's address, or
 * else this rank's address on its connection to the store. Where that is a loopback address, and the group has ranks of
 * other machines, the host is the address at which those ranks reach this machine. */
int dtrain__group_meet(group_membership *member, const char *backend, beton_error *err);
/* Changes the last wills, before the group is destroyed without a failure: this rank is not lost. completed: its last
 * collective; UINT32_MAX: it gives up joining, and the others do not wait for it in vain yet. */
void dtrain__group_leave(const group_membership *member, int will, uint32_t completed);

/* A rank as its report says. */
typedef enum group_rank_state {
	GROUP_RANK_UNKNOWN, /* the store did not answer */
	GROUP_RANK_HERE,
	GROUP_RANK_LEFT,
	GROUP_RANK_FAILED,
	GROUP_RANK_GONE,
} group_rank_state;

/* completed: of a rank that left: see dtrain__group_leave. */
group_rank_state dtrain__group_look_at(const group_membership *member, int rank, uint32_t *completed);
/* Opens a connection that becomes readable when the alarm is raised. */
int dtrain__group_watch_alarm(const group_membership *member, int *fd, beton_error *err);
/* False: the connection has ended. The caller frees *text. */
bool dtrain__group_read_alarm(const group_membership *member, int fd, char **text);
/* Whether the alarm says that a rank has left. */
bool dtrain__group_is_left(const char *text);
/* Rewrites err if the store does not answer, to name the rank that runs it. */
void dtrain__group_blame_store(const group_membership *member, const char *where, beton_error *err);

/* Reports this rank's failure to the store and raises the alarm. Call it on the thread whose operation failed, before
 * its connections are closed: closing them makes the other ranks' operations fail, with this rank as the apparent
 * cause. *follows: this rank lost a peer after another rank had failed, and so does not know the cause. False: the
 * store is gone, or did not answer within seconds; again: it has not before, and gets little more time. This function
 * and the next wait no longer for it. */
bool dtrain__group_report_fault(const group_membership *member, group_history *history, int code, bool again,
				bool *follows);

/* After that, lets the ranks agree through the store on the first failure. So all of them name the lost rank instead of
 * a neighbour that gave up because of it, and the operations that some ranks had begun and others not. A rank that
 * follows leaves the cause to the rank that failed first, as long as that one answers. Rewrites err. */
void dtrain__group_agree_on_fault(const group_membership *member, group_history *history, const char *operation,
				  bool follows, beton_error *err);

/* The alarm: one key that a failure or a last will sets. */

/* Whether the alarm is raised, or the store is gone; fills err. only_faults: ignore ranks that left or are gone. */
bool dtrain__group_is_alarmed(const group_membership *member, bool only_faults, beton_error *err);
/* A rank asks for the first time after so long without an operation. */
#define GROUP_IDLE_NS 1000000000ull
/* Whether a rank saw a failure; fills err. Lost ranks, or a lost store, do not count, because this rank is not in an
 * operation. *patience_ns: how long to wait before asking again. */
bool dtrain__group_others_failed(const group_membership *member, uint64_t *patience_ns, beton_error *err);

/* The parent of a group that was split off. */
typedef struct group_origin {
	dtrain_group *parent; /* NULL: none */
	int color;            /* as for dtrain_group_backend */
	const int *world;     /* as for group_membership; copied */
	const int *machines;  /* as for group_streams; copied; NULL: no parent */
	bool own_lane, copy_engines;
} group_origin;

/* Connects a group whose ranks have met: exchanges the ranks' devices (refusing two ranks on one device) and the id,
 * and creates the communicator, or splits the parent's. */
int dtrain__group_connect_streams(dtrain_group *group, const dtrain_group_backend *backend, const group_origin *origin,
				  bool share_device, beton_error *err);

/* A rank's device as published: the machine's and the device's ids, and their names. */
typedef struct device_place {
	char machine[64];
	char device[64];
	char host[64];
	char name[64];
} device_place;

/* INVALID_ARGUMENT if two ranks have the same device; the message names the ranks and the device. */
int dtrain__check_devices(const char *group, const device_place *places, int size, beton_error *err);

/* dtrain_group_create, or a part of origin's parent. */
int dtrain__group_create_within(dtrain_store *store, int rank, int world_size, const dtrain_group_options *options,
				const group_origin *origin, dtrain_group **out, beton_error *err);

/* Sets the device of a group that has none yet, for its events and memory. INVALID_ARGUMENT: the group has another one.
 * UNSUPPORTED: the backend cannot access the device's memory. */
int dtrain__group_use_device(dtrain_group *group, dtrain_device *device, beton_error *err);

const char *dtrain__group_op_name(dtrain_group_op op);

#endif
