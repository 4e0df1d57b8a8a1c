/* SPDX-License-Identifier: Apache-2.0 */
#include "far_place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static beton_error err;

void open_place(struct rank *r, struct place *place)
{
	dtrain_group_options options;

	MUST(dtrain_device_open("far", NULL, &place->device, &err));
	place->api = dtrain_device_get_api(place->device);
	MUST(place->api->stream_create(place->device, &place->stream, &err));
	MUST(place->api->event_create(place->device, &place->event, &err));
	dtrain_group_options_init(&options);
	options.timeout_ms = r->timeout_ms;
	options.device = place->device;
	MUST(dtrain_group_create(r->store, r->rank, r->size, &options, &r->group, &err));
}

void close_place(struct rank *r, struct place *place)
{
	dtrain_group_destroy(&r->group);
	place->api->event_destroy(place->event);
	place->api->stream_destroy(place->stream);
	dtrain_device_close(&place->device);
}

void *device_memory(const struct place *place, size_t bytes)
{
	void *memory = NULL;

	MUST(place->api->alloc(place->device, bytes, &memory, &err));
	return memory;
}

void upload(const struct place *place, void *to, const void *from, size_t bytes)
{
	MUST(place->api->copy(place->stream, to, from, bytes, DTRAIN_HOST_TO_DEVICE, &err));
}

void download(const struct place *place, void *to, const void *from, size_t bytes)
{
	MUST(place->api->copy(place->stream, to, from, bytes, DTRAIN_DEVICE_TO_HOST, &err));
	MUST(place->api->stream_synchronize(place->stream, &err));
}

dtrain_event *after(const struct place *place)
{
	MUST(place->api->event_record(place->event, place->stream, &err));
	return place->event;
}

void count_calls(const char *mode, int size, int calls[CALLS])
{
	char path[] = "/tmp/dtrain-calls-XXXXXX", letter;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	setenv("DTRAIN_FAR_REGISTRATIONS", path, 1);
	run_ranks(mode, size);
	unsetenv("DTRAIN_FAR_REGISTRATIONS");
	memset(calls, 0, CALLS * sizeof(*calls));
	while (read(fd, &letter, 1) == 1)
		calls[letter & (CALLS - 1)]++;
	close(fd);
	unlink(path);
}

void expect_all(struct ranks *ranks, int lost, int status, const char *text)
{
	int failed = 0;

	for (int rank = 0; rank < ranks->count; rank++) {
		int got = rank == lost ? 0 : end_rank(ranks, rank);

		if (rank == lost || (got == -status && strstr(ranks->err[rank], text)))
			continue;
		print_error("rank %d: status %d: %s\n", rank, got, ranks->err[rank]);
		failed++;
	}
	assert_int_equal(failed, 0);
}
