/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a group: the backend's, which is known to all ranks in a window, or the device's.
 *
 * A window belongs to the communicator, but the memory may outlive the group: parameters are freed last. So whichever
 * of the two is destroyed first closes the window, and the other one finds none.
 */
#include <stdlib.h>

#include "common/error.h"
#include "group_stream.h"

struct dtrain_group_memory {
	dtrain_group_memory *next;           /* of the group's windows */
	group_streams *streams;              /* NULL: there is no window, or the group is destroyed */
	const dtrain_group_backend *backend; /* whose memory it is; NULL: the device's */
	const dtrain_device_api *api;
	dtrain_device *device;
	void *data;
	void *window;
	bool lost; /* operations that could not be ended may still use it */
};

/* What a rank tells the others. */
typedef struct memory_offer {
	uint64_t bytes;
	int32_t status;  /* of the allocation */
	int32_t windows; /* whether the memory can have a window */
} memory_offer;

static bool has_several_ranks(const dtrain_group *group)
{
	return group->streams && group->streams->state;
}

/* NCCL may refuse for reasons that do not concern the device's memory, so any error leads to that. */
static int allocate(dtrain_group *group, dtrain_group_memory *memory, size_t bytes, bool windows, beton_error *err)
{
	const dtrain_group_backend *backend = windows ? group->streams->backend : NULL;
	if (backend && backend->memory_alloc(memory->device, bytes, &memory->data, NULL) == BETON_OK) {
		memory->backend = backend;
		return BETON_OK;
	}
	return memory->api->alloc(memory->device, bytes, &memory->data, err);
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
					 "group \"%s\": rank %d asks for %llu bytes of memory, and rank %d for %llu",
					 group->name, dtrain__world_rank(member, rank),
					 (unsigned long long)all[rank].bytes, dtrain__world_rank(member, 0),
					 (unsigned long long)all[0].bytes);
		else if (all[rank].status != BETON_OK)
			status = bt_fail(err, all[rank].status, "group \"%s\": rank %d cannot allocate %llu bytes",
					 group->name, dtrain__world_rank(member, rank),
					 (unsigned long long)all[rank].bytes);
		*windows = *windows && all[rank].windows;
	}
	free(all);
	return status;
}

static int open_window(dtrain_group *group, dtrain_group_memory *memory, size_t bytes, beton_error *err)
{
	group_streams *streams = group->streams;
	pthread_mutex_lock(&streams->lane->order);
	int status = memory->backend->window_open(streams->state, memory->data, bytes, group->member.join_timeout_ms,
						  &memory->window, err);
	pthread_mutex_unlock(&streams->lane->order);
	if (status != BETON_OK)
		bt_prefix(err, "group \"%s\": memory of %zu bytes", group->name, bytes);
	if (status != BETON_OK || !memory->window)
		return status;
	memory->streams = streams;
	memory->next = streams->windows;
	streams->windows = memory;
	return BETON_OK;
}

static int create(dtrain_group *group, dtrain_group_memory *memory, size_t bytes, dtrain_registration when,
		  beton_error *err)
{
	bool several = has_several_ranks(group);
	bool wanted = when == DTRAIN_REGISTER_ALWAYS ||
		      (when == DTRAIN_REGISTER_WITHIN_MACHINE && several && group->streams->within_machine);
	bool windows = several && wanted && bytes > 0 && group->streams->backend->memory_alloc;
	beton_error failure = {0};
	int failed = allocate(group, memory, bytes, windows, &failure);
	const memory_offer mine = {bytes, failed, memory->backend != NULL};
	int status = several ? agree(group, &mine, &windows, err) : failed;
	if (failed != BETON_OK && err)
		*err = failure;
	if (failed != BETON_OK)
		return failed;
	return status == BETON_OK && windows ? open_window(group, memory, bytes, err) : status;
}

int dtrain_group_memory_create(dtrain_group *group, size_t bytes, dtrain_registration when, dtrain_group_memory **out,
			       beton_error *err)
{
	*out = NULL;
	if (!group->device)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\": memory for a group without a device",
			       group->name);
	if ((unsigned)when > DTRAIN_REGISTER_NEVER)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\": registration %d", group->name, (int)when);
	if (group->batch.open)
		return bt_fail(err, BETON_STATE, "group \"%s\": memory is made within a batch", group->name);
	dtrain_group_memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		return bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", group->name);
	memory->api = group->api;
	memory->device = group->device;
	int status = create(group, memory, bytes, when, err);
	if (status != BETON_OK)
		dtrain_group_memory_destroy(&memory);
	*out = memory;
	return status;
}

void *dtrain_group_memory_data(const dtrain_group_memory *memory)
{
	return memory->data;
}

bool dtrain_group_memory_is_registered(const dtrain_group_memory *memory)
{
	return memory->window != NULL;
}

static void close_window(dtrain_group_memory *memory)
{
	group_streams *streams = memory->streams;
	dtrain_group_memory **link = &streams->windows;
	while (*link != memory)
		link = &(*link)->next;
	*link = memory->next;
	memory->streams = NULL;
	pthread_mutex_lock(&streams->lane->order);
	if (streams->state)
		memory->backend->window_close(streams->state, memory->window);
	else
		memory->lost = true;
	pthread_mutex_unlock(&streams->lane->order);
	memory->window = NULL;
}

void dtrain__streams_close_windows(group_streams *streams)
{
	while (streams->windows)
		close_window(streams->windows);
}

void dtrain_group_memory_destroy(dtrain_group_memory **out)
{
	dtrain_group_memory *memory = *out;
	*out = NULL;
	if (!memory)
		return;
	if (memory->streams)
		close_window(memory);
	if (memory->backend && !memory->lost)
		memory->backend->memory_free(memory->device, memory->data);
	else if (!memory->backend)
		memory->api->free(memory->device, memory->data);
	free(memory);
}
