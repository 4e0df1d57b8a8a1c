/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of dtrain_ddp.
 */
#ifndef DTRAIN_PARALLEL_DDP_H
#define DTRAIN_PARALLEL_DDP_H

#include <dtrain/ddp.h>

struct bucket {
	int pending;         /* parameters of this step whose gradient is not complete */
	int params;          /* in all */
	dtrain_event *ready; /* on the stream behind the last of them */
	dtrain_work *work;
	dtrain_event *begin, *end; /* marks around its reduction, where the group is stream-ordered */
	double exposed_ms;         /* of the step that was finished last: see dtrain_ddp_bucket_exposed_ms */
	char label[48];            /* "bucket 2 of 7" */
};

struct dtrain_ddp {
	dtrain_group *group;
	dtrain_params *params;
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_bucket *plan;
	struct bucket *buckets;
	int count;
	int *bucket_of;               /* by index of the parameter */
	bool *seen;                   /* by index: its gradient is complete in this step */
	int next;                     /* the first bucket that is not started */
	bool running;                 /* a gradient of this step has come */
	bool sync;                    /* and its buckets are reduced */
	dtrain_event *first;          /* marks: the first gradient of a step is ready, */
	dtrain_event *last, *resumed; /* backward has ended, the reductions have been waited for */
	bool has_marks;               /* they are those of the step that was finished last */
	dtrain_ddp_step step;         /* of the step that was finished last, if it has no marks */
	void *registration;           /* of the gradients with the group; NULL: none */
	dtrain_program_hooks sync_hooks;
	dtrain_program_hooks local_hooks;
	struct accumulation *accumulation; /* NULL until it is used */

	dtrain_event *ready; /* the buffers are packed */
	void *packed;        /* all buffers, for one reduction; on the device, which is what the group takes */
	int64_t packed_count;
	int64_t moving_count; /* of the buffers that are not fixed */
};

/* Cuts the flat space: *plan has *count buckets, bucket_of says where each parameter is. Both malloc'ed. */
int dtrain__plan_buckets(const dtrain_params *params, size_t first_bytes, size_t bytes, dtrain_bucket **plan,
			 int *count, int **bucket_of, beton_error *err);

/* Collective: MISMATCH when the ranks have different models or plans. */
int dtrain__ddp_compare(const dtrain_ddp *ddp, beton_error *err);

/* Collective: rank 0's values and buffers for all. */
int dtrain__ddp_broadcast(dtrain_ddp *ddp, beton_error *err);

/* Where an element of the flat space (or an extra one, below 0) has its gradient. */
void *dtrain__ddp_grads_at(const dtrain_ddp *ddp, int64_t offset);

/* Puts on the stream: keep: a bucket's gradients are added to what is accumulated; else: what is accumulated, if
 * anything, is added to its gradients and forgotten. */
int dtrain__ddp_accumulate(dtrain_ddp *ddp, int bucket, bool keep, dtrain_stream *stream, beton_error *err);
void dtrain__ddp_accumulation_free(dtrain_ddp *ddp);

#endif
