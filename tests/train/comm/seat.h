/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests that are the same on the host's memory with Gloo and on the device "far": a rank's memory, which put and
 * get copy from and to the host's.
 */
#ifndef TESTS_TRAIN_COMM_SEAT_H
#define TESTS_TRAIN_COMM_SEAT_H

#include <string.h>

#include "tests/train/support/far_place.h"

struct seat {
	bool far;
	struct place place; /* where far */
};

/* Modes that begin with "no-group-far-" run on far. Returns the rest of the mode. */
static inline const char *take_seat(struct rank *r, struct seat *seat)
{
	static const char far[] = "no-group-far-";

	seat->far = strncmp(r->mode, far, strlen(far)) == 0;
	if (seat->far)
		open_place(r, &seat->place);
	return seat->far ? r->mode + strlen(far) : r->mode;
}

static inline void leave_seat(struct rank *r, struct seat *seat)
{
	if (seat->far)
		close_place(r, &seat->place);
}

static inline void *seat_memory(const struct seat *seat, size_t bytes)
{
	void *memory = seat->far ? device_memory(&seat->place, bytes) : malloc(bytes);

	REQUIRE(memory);
	return memory;
}

static inline void seat_free(const struct seat *seat, void *memory)
{
	if (seat->far)
		seat->place.api->free(seat->place.device, memory);
	else
		free(memory);
}

static inline void seat_put(const struct seat *seat, void *to, const void *from, size_t bytes)
{
	beton_error err = {0};

	if (!seat->far) {
		memcpy(to, from, bytes);
		return;
	}
	upload(&seat->place, to, from, bytes);
	MUST(seat->place.api->stream_synchronize(seat->place.stream, &err));
}

static inline void seat_get(const struct seat *seat, void *to, const void *from, size_t bytes)
{
	if (seat->far)
		download(&seat->place, to, from, bytes);
	else
		memcpy(to, from, bytes);
}

#endif
