/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of a batch into a network's inputs. On a device in host memory it is a copy. Otherwise the batch lies in
 * memory that the device copies from at full speed (engine_feed_allocator), and goes to one of two buffers of the
 * device on a stream of its own, while the step before is still computed; from there to the inputs when that step is
 * done. */
#ifndef ENGINE_FEED_H
#define ENGINE_FEED_H

#include "task.h"

enum { ENGINE_FEED_BUFFERS = 2 };

typedef struct engine_feed_buffer {
	void *data[ENGINE_INPUTS];
	dtrain_event *copied; /* the copy from the host is complete */
	dtrain_event *taken;  /* the copy into the inputs is complete */
} engine_feed_buffer;

typedef struct engine_feed {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream; /* the network runs on it */
	dtrain_stream *copies; /* NULL: host memory */
	engine_feed_buffer buffers[ENGINE_FEED_BUFFERS];
	uint64_t count;
	int64_t rows;                    /* of each input */
	size_t row_bytes[ENGINE_INPUTS]; /* 0: no such input */
	int64_t *numbers[ENGINE_INPUTS]; /* of columns; NULL: the batch has the input's tensor */
} engine_feed;

/* Serves the inputs of the network's stages, and other networks whose inputs are a prefix of the same sizes. On failure
 * everything is closed; close accepts a zeroed feed. */
int engine_feed_open(engine_feed *feed, dtrain_device *device, dtrain_stream *stream, const engine_network *network,
		     beton_error *err);
void engine_feed_close(engine_feed *feed);

/* Puts the copies of what the network, one stage, has inputs for on the streams: work put on `stream` afterwards finds
 * the batch in the inputs; rows beyond the batch's are 0. The batch must stay alive until such work is complete.
 * FILE_CHANGED: the batch lacks a tensor that has an input's name and type. */
int engine_feed_put(engine_feed *feed, const engine_network *network, const beton_batch *batch, beton_error *err);

/* Allocates the loader's memory so that the device can copy from it; the device must outlive the loader. Changes
 * nothing if the device has no such allocator. */
void engine_feed_allocator(dtrain_device *device, beton_allocator *out);

/* The memory of an input of the network, for the micro-batch that is filled next. */
void *engine_network_data(const engine_network *network, dtrain_tensor tensor);

/* The type of the batch tensor for an input of type dtype. */
beton_dtype engine_batch_type(dtrain_dtype dtype);
/* NULL: no such tensor. */
const beton_tensor *engine_find_tensor(const beton_batch *batch, const char *name, beton_dtype dtype);

#endif
