/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests with ranks on the device "far": a rank's device, stream and group.
 */
#ifndef TESTS_TRAIN_SUPPORT_FAR_PLACE_H
#define TESTS_TRAIN_SUPPORT_FAR_PLACE_H

#include "ranks.h"

struct place {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_event *event;
};

/* The device, and a group on it in r->group. */
void open_place(struct rank *r, struct place *place);
void close_place(struct rank *r, struct place *place);

void *device_memory(const struct place *place, size_t bytes);
/* On the stream; download waits for it. */
void upload(const struct place *place, void *to, const void *from, size_t bytes);
void download(const struct place *place, void *to, const void *from, size_t bytes);
/* An event after all work on the stream. */
dtrain_event *after(const struct place *place);

enum { CALLS = 128 };

/* run_ranks, and how often the ranks together have called what DTRAIN_FAR_REGISTRATIONS has a letter for. */
void count_calls(const char *mode, int size, int calls[CALLS]);

/* All but one (-1: all), which was killed or is stopped, end with the status and say the text. */
void expect_all(struct ranks *ranks, int lost, int status, const char *text);

#endif
