/* SPDX-License-Identifier: Apache-2.0
 *
 * Connects a stream-ordered group: exchanges the ranks' devices, and the id that rank 0 makes.
 *
 * Keys under the group's name: device/R, rank R's device; id, the communicator's id.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/store/store.h"
#include "common/error.h"
#include "common/system.h"
#include "group_stream.h"

/* Uses the kernel's boot id: containers of one machine share it, but may have different host names. */
static void identify_machine(device_place *place)
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	if (gethostname(place->host, sizeof(place->host)))
		place->host[0] = '\0';
	place->host[sizeof(place->host) - 1] = '\0';
	if (!file || !fgets(place->machine, sizeof(place->machine), file))
		memcpy(place->machine, place->host, sizeof(place->machine));
	if (file)
		fclose(file);
	place->machine[strcspn(place->machine, "\n")] = '\0';
}

static bool is_same_device(const device_place *a, const device_place *b)
{
	return strcmp(a->machine, b->machine) == 0 && strcmp(a->device, b->device) == 0;
}

int dtrain__check_devices(const char *group, const device_place *places, int size, beton_error *err)
{
	for (int i = 0; i < size; i++) {
		size_t used = 0;
		int same = 0;
		char ranks[120];
		for (int k = i; k < size; k++) {
			if (!is_same_device(&places[i], &places[k]))
				continue;
			same++;
			if (used + 16 < sizeof(ranks))
				used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, used ? ", %d" : "%d", k);
			else if (strcmp(ranks + used - 3, "...") != 0)
				used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, " ...");
		}
		if (same > 1)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "group \"%s\": ranks %s have the same device: %s (%s) on %s; give each rank one "
				       "of its own (device index = local rank, or CUDA_VISIBLE_DEVICES), or start "
				       "fewer ranks there, or let them share it: --share-device, with NCCL 2.30.3 or "
				       "newer and NCCL_MULTI_RANK_GPU_ENABLE=1",
				       group, ranks, places[i].name, places[i].device, places[i].host);
	}
	return BETON_OK;
}

static void find_machines(const device_place *places, int size, int *out)
{
	for (int i = 0; i < size; i++) {
		out[i] = 0;
		while (strcmp(places[i].machine, places[out[i]].machine) != 0)
			out[i]++;
	}
}

static int set_bytes(const group_membership *member, const char *what, int rank, const void *bytes, size_t size,
		     beton_error *err)
{
	char *key =
		rank >= 0 ? bt_format("%s/%s/%d", member->name, what, rank) : bt_format("%s/%s", member->name, what);
	int status = key ? dtrain_store_set(member->store, key, bytes, size, err)
			 : bt_fail(err, BETON_NO_MEMORY, "group: out of memory");
	free(key);
	return status;
}

static int get_bytes(const group_membership *member, const char *what, int rank, void *bytes, size_t size,
		     beton_error *err)
{
	char *key =
		rank >= 0 ? bt_format("%s/%s/%d", member->name, what, rank) : bt_format("%s/%s", member->name, what);
	void *value = NULL;
	size_t got = 0;
	int status = key ? dtrain_store_get(member->store, key, member->join_timeout_ms, &value, &got, err)
			 : bt_fail(err, BETON_NO_MEMORY, "group: out of memory");
	if (status == BETON_OK && got != size)
		status = bt_fail(err, BETON_MISMATCH, "group \"%s\": %s has %zu bytes instead of %zu: another version?",
				 member->name, key, got, size);
	if (status == BETON_OK)
		memcpy(bytes, value, size);
	free(value);
	free(key);
	return status;
}

/* Every rank checks all devices, so that no rank waits for a refused one. */
static int exchange_devices(const group_membership *member, dtrain_device *device, const dtrain_group_backend *backend,
			    bool share, int *machines, beton_error *err)
{
	device_place *places = calloc((size_t)member->size, sizeof(*places));
	device_place *own = places ? &places[member->rank] : NULL;
	dtrain_device_identity identity = {0};
	int status = places ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "group: out of memory");
	if (status == BETON_OK) {
		identify_machine(own);
		status = backend->identify(device, &identity, err);
	}
	if (status == BETON_OK) {
		snprintf(own->device, sizeof(own->device), "%s", identity.id);
		snprintf(own->name, sizeof(own->name), "%s", identity.name);
	}
	if (status == BETON_OK)
		status = set_bytes(member, "device", member->rank, own, sizeof(*own), err);
	for (int rank = 0; rank < member->size && status == BETON_OK; rank++) {
		if (rank == member->rank)
			continue;
		status = get_bytes(member, "device", rank, &places[rank], sizeof(places[rank]), err);
		places[rank].machine[sizeof(own->machine) - 1] = '\0';
		places[rank].device[sizeof(own->device) - 1] = '\0';
		places[rank].host[sizeof(own->host) - 1] = '\0';
		places[rank].name[sizeof(own->name) - 1] = '\0';
	}
	if (status == BETON_OK)
		status = dtrain__check_devices(member->name, places, member->size, err);
	if (status == BETON_INVALID_ARGUMENT && share)
		status = backend->check_sharing(err);
	if (status == BETON_OK)
		find_machines(places, member->size, machines);
	free(places);
	return status;
}

static int exchange_id(const group_membership *member, const dtrain_group_backend *backend,
		       unsigned char id[DTRAIN_GROUP_ID_BYTES], beton_error *err)
{
	if (member->rank != 0)
		return get_bytes(member, "id", -1, id, backend->id_bytes, err);
	int status = backend->make_id(id, err);
	return status == BETON_OK ? set_bytes(member, "id", -1, id, backend->id_bytes, err) : status;
}

static int connect_state(dtrain_group *group, group_streams *streams, const group_origin *origin, beton_error *err)
{
	const group_membership *member = &group->member;
	const dtrain_group_backend *backend = streams->backend;
	unsigned char id[DTRAIN_GROUP_ID_BYTES] = {0};
	dtrain_group_place place = {.device = group->device,
				    .name = group->name,
				    .rank = member->rank,
				    .size = member->size,
				    .timeout_ms = member->timeout_ms,
				    .join_timeout_ms = member->join_timeout_ms,
				    .copy_engines = origin->copy_engines};
	if (origin->parent)
		return dtrain__streams_split(origin->parent->streams, origin->color, &place, &streams->state, err);
	int status = exchange_id(member, backend, id, err);
	return status == BETON_OK ? backend->connect(&place, id, &streams->state, err) : status;
}

int dtrain__group_connect_streams(dtrain_group *group, const dtrain_group_backend *backend, const group_origin *origin,
				  bool share_device, beton_error *err)
{
	bool shares_lane = origin->parent && !origin->own_lane;
	int status = dtrain__streams_create(group, backend, shares_lane ? origin->parent->streams : NULL,
					    &group->streams, err);
	if (status != BETON_OK || group->member.size == 1)
		return status;
	group_streams *streams = group->streams;
	const group_membership *member = &group->member;
	streams->machines = calloc((size_t)member->size, sizeof(*streams->machines));
	if (status == BETON_OK && !streams->machines)
		status = bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", group->name);
	/* The parts of a group have the same devices as the whole. */
	if (status == BETON_OK && !origin->parent)
		status = exchange_devices(member, group->device, backend, share_device, streams->machines, err);
	else if (status == BETON_OK)
		memcpy(streams->machines, origin->machines, (size_t)member->size * sizeof(*streams->machines));
	if (status == BETON_OK) {
		status = connect_state(group, streams, origin, err);
		if (status != BETON_OK)
			bt_prefix(err, "group \"%s\": rank %d cannot connect", group->name,
				  dtrain__world_rank(member, member->rank));
	}
	return status == BETON_OK ? dtrain__streams_watch(streams, err) : status;
}
