/* SPDX-License-Identifier: Apache-2.0
 *
 * A few numbers in device memory that change from step to step. The host does not wait for the device to set them: a
 * copy of theirs in host memory is read by the stream, and only who sets them again waits until it has been.
 */
#ifndef DTRAIN_OPTIM_SCALARS_H
#define DTRAIN_OPTIM_SCALARS_H

#include <dtrain/device.h>

typedef struct dtrain__scalars {
	dtrain_device *device, *streams; /* of memory, and of the streams that put */
	float *memory;                   /* on the device */
	float *host;
	size_t bytes;
	dtrain_event *copied;
} dtrain__scalars;

/* streams: the device, or another one that can call the host, where `device` has its memory. Call close even on
 * failure. */
int dtrain__scalars_open(dtrain__scalars *scalars, dtrain_device *device, dtrain_device *streams, size_t count,
			 beton_error *err);
/* Accepts a zeroed struct. */
void dtrain__scalars_close(dtrain__scalars *scalars);
/* Waits until the previous copy of scalars->host has been made, so that it can be written. */
int dtrain__scalars_begin(dtrain__scalars *scalars, beton_error *err);
/* Puts the copy of scalars->host on the stream. */
int dtrain__scalars_put(dtrain__scalars *scalars, dtrain_stream *stream, beton_error *err);

#endif
