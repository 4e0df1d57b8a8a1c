/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of dtrain_group.
 */
#ifndef DTRAIN_COMM_GROUP_H
#define DTRAIN_COMM_GROUP_H

#include <pthread.h>

#include "group_backend.h"

struct dtrain_work {
	struct dtrain_work *next; /* in the group's queue */
	struct group_call call;
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
	const dtrain_device_api *api; /* NULL: host memory, no events */
	const struct group_backend *backend;
	void *state;
	uint32_t sequence; /* of the next operation; the caller's thread */
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
 * differently. *will is a descriptor or -1: see struct dtrain_group. */
int dtrain__group_meet(const struct group_member *member, const char *backend, int *will, beton_error *err);

/* Called on the communication thread of a rank whose operation failed, before it ends its connections: from then on the
 * others' operations fail too, and what they see is this rank. False when the store is gone. */
bool dtrain__group_report_fault(const struct group_member *member, const beton_error *err);

/* After that: the ranks agree through the store on what happened first, so that all of them name the rank that is lost,
 * and not the neighbour that gave up because of it. Rewrites err. */
void dtrain__group_agree_on_fault(const struct group_member *member, const char *operation, beton_error *err);

/* Gives a group the device whose events and memory it is going to see, if it has none yet. INVALID_ARGUMENT when it has
 * another; UNSUPPORTED when the backend cannot reach that device's memory. */
int dtrain__group_use_device(dtrain_group *group, dtrain_device *device, beton_error *err);

const char *dtrain__group_op_name(enum group_op op);

#endif
