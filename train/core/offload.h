/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of parameters in pinned host memory: what an optimizer there updates, and how the device gets what its ops
 * read. <dtrain/params.h> says what is where.
 */
#ifndef DTRAIN_CORE_OFFLOAD_H
#define DTRAIN_CORE_OFFLOAD_H

#include <stdatomic.h>

#include <dtrain/params.h>

/* A range (and its unit, which has the same index) in host memory. */
typedef struct dtrain__offload_range {
	void *values, *grads;
	void *copies;    /* 16 bits, on their way to the device; NULL: the device gets the values */
	void *to;        /* what they replace on the device; NULL: the unit is prefetched */
	size_t bytes;    /* of that */
	dtrain_op *cast; /* of the host device: values -> copies; NULL: none */
} dtrain__offload_range;

typedef struct dtrain__offload {
	dtrain_device *host; /* NULL: nothing is offloaded */
	const dtrain_device_api *api;
	bool units;            /* see dtrain_params_offload */
	dtrain_stream *stream; /* of the host device, whose ops run at once */
	void *memory;          /* pinned */
	size_t bytes;
	dtrain__offload_range *ranges;
	int count;
	void *workspace;     /* of the casts, which run one after the other */
	atomic_int failed;   /* 2: failure is that of a call of the host */
	beton_error failure; /* the first one */
} dtrain__offload;

/* Allocates the memory, and makes it that of the ranges. Values, copies and ranges must be allocated. Call free even on
 * failure. */
int dtrain__offload_allocate(dtrain_params *params, beton_error *err);
void dtrain__offload_free(dtrain_params *params);

/* In a thread of the device's: rounds the values of a range for the copy that follows. */
int dtrain__offload_round(const dtrain_params *params, int range, beton_error *err);
/* Puts the copy of what ops read of a range on the stream, where the device keeps it. */
int dtrain__offload_send(const dtrain_params *params, int range, dtrain_stream *stream, beton_error *err);
/* Puts the copy of a range of a prefetched unit on the stream: of its values, or of its copies. to: the
 * place of the range in the unit's memory. */
int dtrain__offload_prefetch(const dtrain_params *params, int range, bool copies, void *to, dtrain_stream *stream,
			     beton_error *err);
/* Puts the copy of a range's gradients into host memory on the stream. */
int dtrain__offload_fetch(const dtrain_params *params, int range, dtrain_stream *stream, beton_error *err);
/* dtrain_params_changed: both, for all ranges. */
int dtrain__offload_changed(dtrain_params *params, dtrain_stream *stream, beton_error *err);

/* Notes the failure of a call of the host, and reports the first one. */
void dtrain__offload_fail(dtrain_params *params, const beton_error *failure);
int dtrain__offload_check(dtrain_params *params, beton_error *err);

#endif
