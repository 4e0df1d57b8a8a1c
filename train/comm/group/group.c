/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates and destroys process groups.
 */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/store/store.h"
#include "common/error.h"
#include "common/sized.h"
#include "common/system.h"
#include "core/module.h"
#include "group_stream.h"

#define DEFAULT_TIMEOUT_MS 30000

static const char *const op_names[] = {
	[DTRAIN_GROUP_ALLREDUCE] = "allreduce",
	[DTRAIN_GROUP_REDUCE_SCATTER] = "reduce_scatter",
	[DTRAIN_GROUP_ALL_GATHER] = "all_gather",
	[DTRAIN_GROUP_BROADCAST] = "broadcast",
	[DTRAIN_GROUP_REDUCE] = "reduce",
	[DTRAIN_GROUP_GATHER] = "gather",
	[DTRAIN_GROUP_SCATTER] = "scatter",
	[DTRAIN_GROUP_ALL_TO_ALL] = "all_to_all",
	[DTRAIN_GROUP_SEND] = "send",
	[DTRAIN_GROUP_RECV] = "recv",
	[DTRAIN_GROUP_BARRIER] = "barrier",
};

const char *dtrain__group_op_name(dtrain_group_op op)
{
	return op_names[op];
}

static void describe(dtrain_group_op op, int count, const char *label, char *text, size_t size)
{
	if (count != 1)
		snprintf(text, size, "batch of %d", count);
	else
		snprintf(text, size, "%s", dtrain__group_op_name(op));
	if (label && label[0])
		bt_append(text, size, " (%s)", label);
}

void dtrain__work_describe(const dtrain_work *work, char *text, size_t size)
{
	describe(work->op, work->count, work->label, text, size);
}

void dtrain__group_not_begun(const work_item *items, int count, const char *label, beton_error *err)
{
	char what[WORK_LABEL_SIZE + 32];
	describe(count ? items[0].call.op : DTRAIN_GROUP_BARRIER, count, label, what, sizeof(what));
	bt_append(err->message, sizeof(err->message), "; not begun: %s", what);
}

void dtrain_group_options_init_sized(dtrain_group_options *options, size_t size)
{
	const dtrain_group_options defaults = {.struct_size = sizeof(defaults), .timeout_ms = DEFAULT_TIMEOUT_MS};
	bt_sized_init(options, size, &defaults);
}

static int check_options(dtrain_store *store, int rank, int world_size, const dtrain_group_options *options,
			 beton_error *err)
{
	if (world_size < 1 || rank < 0 || rank >= world_size)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group: rank %d of a world of %d", rank, world_size);
	if (world_size > 1 && !store)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group: %d ranks need a store to meet", world_size);
	if (options->timeout_ms <= 0 || options->join_timeout_ms < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group: a timeout of %d ms",
			       options->timeout_ms <= 0 ? options->timeout_ms : options->join_timeout_ms);
	return BETON_OK;
}

/* The group backend of a device's module; NULL for other devices. */
static const dtrain_group_backend *find_module_backend(const dtrain_device_api *api)
{
	const dtrain_module *module;
	for (int i = 0; api && (module = dtrain__module_at(i)); i++)
		if (module->device == api)
			return module->group;
	return NULL;
}

static int join_with_thread(dtrain_group *group, const char *backend, beton_error *err)
{
	int status;
	if (group->member.size == 1) {
		group->backend = &dtrain__group_local;
		status = dtrain__group_use_device(group, group->device, err);
		return status == BETON_OK ? group->backend->connect(&group->member, &group->state, err) : status;
	}
	group->backend = dtrain__group_backend_find(backend);
	if (!group->backend)
		return bt_fail(err, BETON_UNSUPPORTED, "group \"%s\": this build has no backend \"%s\"%s", group->name,
			       backend ? backend : "gloo", group->device ? " for this device" : "");
	status = dtrain__group_use_device(group, group->device, err);
	if (status == BETON_OK)
		status = dtrain__group_announce(&group->member, group->backend->name, &group->will, err);
	if (status == BETON_OK)
		status = dtrain__group_start_alarm(group, err);
	if (status == BETON_OK)
		status = dtrain__group_meet(&group->member, group->backend->name, err);
	if (status != BETON_OK)
		return status;
	void *state = NULL;
	status = group->backend->connect(&group->member, &state, err);
	if (status == BETON_OK)
		return dtrain__group_set_joined(group, state, err);
	bt_prefix(err, "group \"%s\": rank %d cannot connect", group->name,
		  dtrain__world_rank(&group->member, group->member.rank));
	return status;
}

static int join(dtrain_group *group, const dtrain_group_options *options, const group_origin *origin, beton_error *err)
{
	const dtrain_group_backend *streams = find_module_backend(group->api);
	dtrain_device_caps caps = {0};
	if (group->api)
		group->api->caps(group->device, &caps);
	if (group->member.size == 1 && group->api && !caps.host_memory)
		return dtrain__group_connect_streams(group, streams, &(group_origin){0}, true, err);
	int status;
	if (group->member.size == 1 || !streams || (options->backend && strcmp(options->backend, streams->name) != 0)) {
		status = join_with_thread(group, options->backend, err);
		return status == BETON_OK ? dtrain__group_start_thread(group, err) : status;
	}
	status = dtrain__group_announce(&group->member, streams->name, &group->will, err);
	if (status == BETON_OK)
		status = dtrain__group_meet(&group->member, streams->name, err);
	return status != BETON_OK ? status
				  : dtrain__group_connect_streams(group, streams, origin, options->share_device, err);
}

static int *copy_numbers(const int *from, int count)
{
	int *copy = malloc((size_t)count * sizeof(*copy));
	return copy ? memcpy(copy, from, (size_t)count * sizeof(*copy)) : NULL;
}

int dtrain__group_create_within(dtrain_store *store, int rank, int world_size, const dtrain_group_options *options,
				const group_origin *origin, dtrain_group **out, beton_error *err)
{
	*out = NULL;
	int status = check_options(store, rank, world_size, options, err);
	if (status != BETON_OK)
		return status;
	dtrain_group *group = calloc(1, sizeof(*group));
	if (!group)
		return bt_fail(err, BETON_NO_MEMORY, "group: out of memory");
	pthread_mutex_init(&group->mutex, NULL);
	pthread_mutex_init(&group->failing, NULL);
	bt_condition_init(&group->changed);
	group->device = options->device;
	group->api = options->device ? dtrain_device_get_api(options->device) : NULL;
	group->will = group->alarm_fd = group->stop_fd = -1;
	group->name = strdup(options->name ? options->name : "world");
	group->interface = options->interface ? strdup(options->interface) : NULL;
	group->world = origin->world ? copy_numbers(origin->world, world_size) : NULL;
	group->member = (group_membership){store,
					   group->name,
					   group->interface,
					   rank,
					   world_size,
					   options->timeout_ms,
					   options->join_timeout_ms ? options->join_timeout_ms : options->timeout_ms,
					   "",
					   group->world,
					   -1};
	group->history = dtrain__history_create();
	if (!dtrain__sequence_init(&group->sequence, world_size) || !group->history || !group->name ||
	    (options->interface && !group->interface) || (origin->world && !group->world))
		status = bt_fail(err, BETON_NO_MEMORY, "group: out of memory");
	if (status == BETON_OK)
		status = join(group, options, origin, err);
	if (status != BETON_OK) {
		dtrain_group_destroy(&group);
		return status;
	}
	*out = group;
	return BETON_OK;
}

int dtrain_group_create(dtrain_store *store, int rank, int world_size, const dtrain_group_options *given,
			dtrain_group **out, beton_error *err)
{
	if (BT_MISSING(err, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	dtrain_group_options options;
	dtrain_group_options_init(&options);
	int status = given ? bt_sized_take(&options, given, "group options", err) : BETON_OK;
	return status != BETON_OK
		       ? status
		       : dtrain__group_create_within(store, rank, world_size, &options, &(group_origin){0}, out, err);
}

void dtrain_group_destroy(dtrain_group **out)
{
	dtrain_group *group = out ? *out : NULL;
	if (!group)
		return;
	bool streamed = group->streams != NULL;
	dtrain__streams_destroy(&group->streams);
	dtrain__group_stop_thread(group);
	if (group->backend && (group->state || group->backend == &dtrain__group_local))
		group->backend->close(group->state);
	if (group->noted)
		dtrain__store_forget_failure(group->member.store);
	if (group->will >= 0)
		close(group->will);
	pthread_cond_destroy(&group->changed);
	pthread_mutex_destroy(&group->mutex);
	pthread_mutex_destroy(&group->failing);
	dtrain__sequence_free(&group->sequence);
	if (!streamed)
		dtrain__history_destroy(group->history);
	free(group->batch.items);
	free(group->name);
	free(group->interface);
	free(group->world);
	free(group);
	*out = NULL;
}

const char *dtrain_group_note(const dtrain_group *group)
{
	if (!group)
		return NULL;
	return group->state && group->backend && group->backend->note ? group->backend->note(group->state) : NULL;
}

int dtrain_group_rank(const dtrain_group *group)
{
	if (!group)
		return 0;
	return group->member.rank;
}

int dtrain_group_size(const dtrain_group *group)
{
	if (!group)
		return 0;
	return group->member.size;
}

int dtrain__group_use_device(dtrain_group *group, dtrain_device *device, beton_error *err)
{
	dtrain_device_caps caps = {0};
	if (!device)
		return BETON_OK;
	if (group->device && group->device != device)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\" was created for another device", group->name);
	if (group->streams)
		return BETON_OK;
	const dtrain_device_api *api = dtrain_device_get_api(device);
	api->caps(device, &caps);
	if (group->backend->host_memory && !caps.host_memory)
		return bt_fail(err, BETON_UNSUPPORTED,
			       "group \"%s\": %s cannot reach the memory of the device \"%s\"; "
			       "give the group that device when it is created, without naming another backend",
			       group->name, group->backend->name, api->name);
	group->device = device;
	group->api = api;
	return BETON_OK;
}
