/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of a batch into a network's inputs. On a device in host memory it is a copy. Otherwise the batch lies in
 * memory that the device copies from at full speed (engine_feed_allocator), and goes to one of two buffers of the
 * device on a stream of its own, while the step before is still computed; from there to the inputs when that step is
 * done. */
#ifndef ENGINE_FEED_H
#define ENGINE_FEED_H

#include <beton/loader.h>
#include <dtrain/device.h>

enum { ENGINE_FEED_BUFFERS = 2 };

typedef struct engine_feed_buffer {
	void *pixels;
	void *labels;
	dtrain_event *copied; /* from the host */
	dtrain_event *taken;  /* into the inputs */
} engine_feed_buffer;

typedef struct engine_feed {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream; /* of the network's runs */
	dtrain_stream *copies; /* NULL: host memory */
	engine_feed_buffer buffers[ENGINE_FEED_BUFFERS];
	uint64_t count;
	int64_t rows;
	size_t row_bytes;
} engine_feed;

/* For batches of at most `rows` rows of row_bytes bytes of pixels and a label. staged: by way of buffers. On failure
 * everything is closed; close is allowed on a feed of zeros. */
int engine_feed_open(engine_feed *feed, dtrain_device *device, dtrain_stream *stream, bool staged, int64_t rows,
		     size_t row_bytes, beton_error *err);
void engine_feed_close(engine_feed *feed);

/* Where the inputs and the batch are. */
typedef struct engine_feed_batch {
	void *pixels_input;
	void *labels_input;
	const void *pixels;
	const int64_t *labels;
	uint32_t rows; /* inputs' rows beyond become 0 */
} engine_feed_batch;

/* Puts the copies on the streams: what is put on `stream` afterwards finds the batch in the inputs. The batch must stay
 * until something behind that is complete. */
int engine_feed_put(engine_feed *feed, const engine_feed_batch *batch, beton_error *err);

/* The loader's memory for such a device, which must outlive the loader. Changes nothing where the device has none. */
void engine_feed_allocator(dtrain_device *device, beton_allocator *out);

#endif
