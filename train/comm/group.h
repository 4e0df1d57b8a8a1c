/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of dtrain_group.
 */
#ifndef DTRAIN_COMM_GROUP_H
#define DTRAIN_COMM_GROUP_H

#include <pthread.h>

#include "group_backend.h"
#include "group_sequence.h"
#include "work.h"

struct dtrain_work {
	struct dtrain_work *next; /* in the group's queue */
	dtrain_group_call call;
	struct group_streams *streams; /* NULL: the group's thread runs it */

	/* On a stream: guarded by the mutex of streams. */
	dtrain_event *begun, *ended; /* around it; begun only where it is not captured */
	uint64_t first_ns;           /* it has been the oldest; 0: not yet */
	uint64_t since_ns;           /* begun was complete; 0: not yet */
	bool captured;               /* in a capture: nothing is known of it */
	bool in_flight;              /* the group watches it */
	bool held;                   /* the user has the handle */
	bool complete;               /* with success */
	char label[WORK_LABEL_SIZE];

	/* On the thread. */
	dtrain_event *after;
	const dtrain_device_api *api; /* of after */
	uint64_t start_ns, end_ns;    /* on the communication thread */
	pthread_mutex_t mutex;        /* guards done, status, err: a handle may outlive its group */
	pthread_cond_t finished;
	bool done;
	int status;
	beton_error err;
};

struct dtrain_group {
	struct group_member member; /* name and interface are owned */
	char *name;
	char *interface;
	dtrain_device *device;
	const dtrain_device_api *api;  /* NULL: host memory, no events */
	struct group_streams *streams; /* NULL: the group has a thread for its operations, and what follows */
	const struct group_backend *backend;
	void *state;
	struct group_sequence sequence; /* the caller's thread */
	int splits;
	pthread_t thread;
	bool thread_started;
	int will; /* descriptor: the store tells the others when it is closed, by this process or by its end */

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t changed;
	struct dtrain_work *head, *tail;
	bool stopping;

	beton_error failure; /* code 0: none. Of the communication thread: after the first failure every operation fails
			      */
};

/* Meets the other ranks at the store: TIMEOUT names those that did not come, MISMATCH those that were started
 * differently. Sets the member's host: that of the interface; or the address from which this rank reached the store;
 * or, where that is one of this machine alone, the one at which ranks of other machines reach it, where there are such.
 * *will is a descriptor or -1: see struct dtrain_group. */
int dtrain__group_meet(struct group_member *member, const char *backend, int *will, beton_error *err);

/* Called on the communication thread of a rank whose operation failed, before it ends its connections: from then on the
 * others' operations fail too, and what they see is this rank. False when the store is gone, or does not answer within
 * seconds, which is all that this and what follows waits for it. */
bool dtrain__group_report_fault(const struct group_member *member, const beton_error *err);

/* After that: the ranks agree through the store on what happened first, so that all of them name the rank that is lost,
 * and not the neighbour that gave up because of it. Rewrites err. */
void dtrain__group_agree_on_fault(const struct group_member *member, const char *operation, beton_error *err);

/* For ranks whose engine may not notice that another is gone: a second last will, and a fault, set the same key for
 * all, which is cheap to look at. */
int dtrain__group_leave_alarm(const struct group_member *member, int *will, beton_error *err);
void dtrain__group_raise_alarm(const struct group_member *member);
/* True, and fills err: a rank saw a failure, or left or is gone unless only_faults, or the store is gone. */
bool dtrain__group_is_alarmed(const struct group_member *member, bool only_faults, beton_error *err);

/* What a group is a part of. */
struct group_origin {
	dtrain_group *parent; /* NULL: nothing */
	int color;            /* as for dtrain_group_backend */
	bool own_lane;
};

/* Makes a group's communicator, or a part of another group's, once its ranks have met: exchanges the devices (two ranks
 * on one are refused), and carries the id. */
int dtrain__group_connect_streams(dtrain_group *group, const dtrain_group_backend *backend,
				  const struct group_origin *origin, bool share_device, beton_error *err);

/* A rank's device, as the others are told: the machine, the device, and what people call them. */
struct device_place {
	char machine[64];
	char device[64];
	char host[64];
	char name[64];
};

/* INVALID_ARGUMENT when two ranks have the same device: names them, it, and what to do. */
int dtrain__check_devices(const char *group, const struct device_place *places, int size, beton_error *err);

/* dtrain_group_create, or the part that a split has in it. */
int dtrain__group_create_within(dtrain_store *store, int rank, int world_size, const dtrain_group_options *options,
				const struct group_origin *origin, dtrain_group **out, beton_error *err);

/* Gives a group the device whose events and memory it is going to see, if it has none yet. INVALID_ARGUMENT when it has
 * another; UNSUPPORTED when the backend cannot reach that device's memory. */
int dtrain__group_use_device(dtrain_group *group, dtrain_device *device, beton_error *err);

const char *dtrain__group_op_name(dtrain_group_op op);

#endif
