/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that groups use: the device's, or the backend's, which each group's ranks can register in a window.
 *
 * A window belongs to a communicator, but the memory may outlive the group: parameters are freed last. So whichever of
 * the two is destroyed first closes the window, and the other one finds none.
 */
#include <stdlib.h>

#include "common/error.h"
#include "group_stream.h"

struct group_window {
	group_window *next;          /* of the memory's */
	group_window *next_of_group; /* of streams->windows */
	group_streams *streams;
	dtrain_group_memory *memory;
	void *state; /* the backend's */
};

struct dtrain_group_memory {
	const dtrain_group_backend *backend; /* whose memory it is; NULL: the device's */
	const dtrain_device_api *api;
	dtrain_device *device;
	dtrain_registration when;
	size_t bytes;
	void *data;
	group_window *windows;
	bool lost; /* operations that could not be ended may still use it */
};

/* A rank's message to the others. */
typedef struct memory_offer {
	uint64_t bytes;
	int32_t windows; /* whether the memory can have a window */
} memory_offer;

static bool has_several_ranks(const dtrain_group *group)
{
	return group->streams && group->streams->state;
}

static bool is_within_machine(const dtrain_group *group)
{
	const int *machines = group->streams->machines;
	for (int rank = 1; rank < group->member.size; rank++)
		if (machines[rank] != machines[0])
			return false;
	return true;
}

/* The same on all ranks of the group. */
static bool wants_windows(const dtrain_group *group, dtrain_registration when)
{
	return has_several_ranks(group) && group->streams->backend->memory_alloc &&
	       (when == DTRAIN_REGISTER_ALWAYS || (when == DTRAIN_REGISTER_WITHIN_MACHINE && is_within_machine(group)));
}

/* NCCL may refuse for reasons that do not concern the device's memory, so any error leads to that. */
static int allocate(const dtrain_group *group, dtrain_group_memory *memory, beton_error *err)
{
	bool windows = wants_windows(group, memory->when) && memory->bytes > 0;
	const dtrain_group_backend *backend = windows ? group->streams->backend : NULL;
	if (backend && backend->memory_alloc(memory->device, memory->bytes, &memory->data, NULL) == BETON_OK) {
		memory->backend = backend;
		return BETON_OK;
	}
	return memory->api->alloc(memory->device, memory->bytes, &memory->data, err);
}

int dtrain_group_memory_create(const dtrain_group *group, size_t bytes, dtrain_registration when,
			       dtrain_group_memory **out, beton_error *err)
{
	if (BT_MISSING(err, group, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	if (!group->device)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\": memory for a group without a device",
			       group->name);
	if ((unsigned)when > DTRAIN_REGISTER_NEVER)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\": registration %d", group->name, (int)when);
	dtrain_group_memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		return bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", group->name);
	memory->api = group->api;
	memory->device = group->device;
	memory->when = when;
	memory->bytes = bytes;
	int status = allocate(group, memory, err);
	if (status != BETON_OK)
		dtrain_group_memory_destroy(&memory);
	*out = memory;
	return status;
}

/* Compares what the ranks have. *windows: the memory of each can have a window. */
static int agree(dtrain_group *group, const memory_offer *mine, bool *windows, beton_error *err)
{
	const group_membership *member = &group->member;
	int size = member->size;
	memory_offer *all = calloc((size_t)size, sizeof(*all));
	*windows = true;
	if (!all)
		return bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", group->name);
	int status = dtrain__group_gather_host(group, mine, sizeof(*mine), all, err);
	for (int rank = 0; rank < size && status == BETON_OK; rank++) {
		if (all[rank].bytes != all[0].bytes)
			status = bt_fail(err, BETON_MISMATCH,
					 "group \"%s\": rank %d registers %llu bytes of memory, and rank %d %llu",
					 group->name, dtrain__world_rank(member, rank),
					 (unsigned long long)all[rank].bytes, dtrain__world_rank(member, 0),
					 (unsigned long long)all[0].bytes);
		*windows = *windows && all[rank].windows;
	}
	free(all);
	return status;
}

static int open_window(dtrain_group *group, dtrain_group_memory *memory, beton_error *err)
{
	group_streams *streams = group->streams;
	group_window *window = calloc(1, sizeof(*window));
	if (!window)
		return bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", group->name);
	*window = (group_window){
		.next = memory->windows, .next_of_group = streams->windows, .streams = streams, .memory = memory};
	pthread_mutex_lock(&streams->lane->order);
	int status = memory->backend->window_open(streams->state, memory->data, memory->bytes,
						  group->member.join_timeout_ms, &window->state, err);
	pthread_mutex_unlock(&streams->lane->order);
	if (status != BETON_OK)
		bt_prefix(err, "group \"%s\": memory of %zu bytes", group->name, memory->bytes);
	if (status != BETON_OK || !window->state) {
		free(window);
		return status;
	}
	memory->windows = streams->windows = window;
	return BETON_OK;
}

int dtrain_group_memory_register(dtrain_group_memory *memory, dtrain_group *group, beton_error *err)
{
	if (BT_MISSING(err, memory, group))
		return BETON_INVALID_ARGUMENT;
	if (group->device != memory->device)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\": memory of another device", group->name);
	if (group->batch.open)
		return bt_fail(err, BETON_STATE, "group \"%s\": memory is registered within a batch", group->name);
	if (!wants_windows(group, memory->when) || dtrain_group_memory_is_registered(memory, group))
		return BETON_OK;
	const memory_offer mine = {memory->bytes, memory->backend != NULL};
	bool windows;
	int status = agree(group, &mine, &windows, err);
	return status == BETON_OK && windows ? open_window(group, memory, err) : status;
}

void *dtrain_group_memory_data(const dtrain_group_memory *memory)
{
	if (!memory)
		return NULL;
	return memory->data;
}

bool dtrain_group_memory_is_registered(const dtrain_group_memory *memory, const dtrain_group *group)
{
	if (!memory)
		return false;
	const group_window *window = memory->windows;
	while (window && window->streams != group->streams)
		window = window->next;
	return window != NULL;
}

static void close_window(group_window *window)
{
	group_streams *streams = window->streams;
	dtrain_group_memory *memory = window->memory;
	group_window **link = &memory->windows;
	while (*link != window)
		link = &(*link)->next;
	*link = window->next;
	link = &streams->windows;
	while (*link != window)
		link = &(*link)->next_of_group;
	*link = window->next_of_group;
	pthread_mutex_lock(&streams->lane->order);
	if (streams->state)
		memory->backend->window_close(streams->state, window->state);
	else
		memory->lost = true;
	pthread_mutex_unlock(&streams->lane->order);
	free(window);
}

void dtrain__streams_close_windows(group_streams *streams)
{
	while (streams->windows)
		close_window(streams->windows);
}

void dtrain_group_memory_destroy(dtrain_group_memory **out)
{
	if (!out)
		return;
	dtrain_group_memory *memory = *out;
	*out = NULL;
	if (!memory)
		return;
	while (memory->windows)
		close_window(memory->windows);
	if (memory->backend && !memory->lost)
		memory->backend->memory_free(memory->device, memory->data);
	else if (!memory->backend)
		memory->api->free(memory->device, memory->data);
	free(memory);
}
