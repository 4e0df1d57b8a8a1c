/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection of a parameter server and one worker: a group of two in host memory, and the arrays that it carries.
 */
#ifndef DTRAIN_PARALLEL_OUTER_SERVER_LINK_H
#define DTRAIN_PARALLEL_OUTER_SERVER_LINK_H

#include <dtrain/server.h>

/* The server's word to a worker: parameters follow; there are no more; they come later. The last is said again and
 * again, so that each side's timeout is that of a message. */
enum link_word { LINK_PARAMETERS, LINK_STOP, LINK_LATER };

typedef struct link_arrays {
	dtrain_params *params;
	dtrain_device *device;
	const dtrain_device_api *api;
	int64_t count;   /* of parameters */
	int64_t buffers; /* elements of the buffers that are not fixed */
	int64_t all;     /* elements of all buffers */
} link_arrays;

/* UNSUPPORTED: parameters that are not F32. */
int dtrain__link_arrays_of(dtrain_params *params, link_arrays *out, beton_error *err);
/* Elements of what a worker pushes: step metrics, gradients, buffers. */
static inline int64_t dtrain__link_pushed(const link_arrays *arrays)
{
	return DTRAIN_STEP_METRICS + arrays->count + arrays->buffers;
}

/* Copies the buffers that are not fixed between the parameters and `packed`, in host memory. */
int dtrain__link_copy_buffers(const link_arrays *arrays, float *packed, bool pack, dtrain_stream *stream,
			      beton_error *err);
/* The first values of all buffers: the server packs them, a worker unpacks them. Waits. */
int dtrain__link_first_buffers(const link_arrays *arrays, float *packed, bool pack, beton_error *err);

/* The ranks of the group. */
enum { LINK_SERVER, LINK_WORKER, LINK_RANKS };

/* Meets the other side. Collective: MISMATCH if it has other arrays. */
int dtrain__link_open(const link_arrays *arrays, dtrain_store *store, int rank, int worker,
		      const dtrain_server_options *options, dtrain_group **out, beton_error *err);

/* Wait until it is sent or received. */
int dtrain__link_send(dtrain_group *group, int peer, const void *data, int64_t count, dtrain_dtype dtype,
		      beton_error *err);
int dtrain__link_receive(dtrain_group *group, int peer, void *data, int64_t count, dtrain_dtype dtype,
			 beton_error *err);

#endif
