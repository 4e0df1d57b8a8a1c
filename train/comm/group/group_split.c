/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "common/error.h"
#include "common/sized.h"
#include "common/system.h"
#include "group_stream.h"

typedef struct part_place {
	int rank; /* in the new group */
	int size;
} part_place;

static int64_t color_of(const int64_t *all, int rank)
{
	return all[2 * rank];
}

static int64_t key_of(const int64_t *all, int rank)
{
	return all[2 * rank + 1];
}

static part_place find_place(const int64_t *all, int size, int self)
{
	part_place place = {0};
	for (int rank = 0; rank < size; rank++) {
		if (color_of(all, rank) != color_of(all, self))
			continue;
		place.size++;
		if (key_of(all, rank) < key_of(all, self) || (key_of(all, rank) == key_of(all, self) && rank < self))
			place.rank++;
	}
	return place;
}

/* Whether a communicator is split. All of its ranks must take part, even if they end up alone or in no part. */
static bool makes_communicators(const dtrain_group *group, const int64_t *all)
{
	for (int rank = 0; group->streams && group->streams->state && rank < group->member.size; rank++) {
		if (color_of(all, rank) >= 0 && find_place(all, group->member.size, rank).size > 1)
			return true;
	}
	return false;
}

/* The part's ranks by their numbers in the group that was split first. NULL: out of memory. */
static int *list_part(const dtrain_group *group, const int64_t *all, int count)
{
	int *world = calloc((size_t)count, sizeof(*world));
	for (int rank = 0; world && rank < group->member.size; rank++)
		if (color_of(all, rank) == color_of(all, group->member.rank))
			world[find_place(all, group->member.size, rank).rank] =
				dtrain__world_rank(&group->member, rank);
	return world;
}

/* Lists the machines of the part's ranks: see group_streams. NULL: out of memory, or the group has no list. */
static int *list_machines(const dtrain_group *group, const int64_t *all, int count)
{
	const int *of_group = group->streams ? group->streams->machines : NULL;
	int *machines = of_group ? calloc((size_t)count, sizeof(*machines)) : NULL;
	for (int rank = 0; machines && rank < group->member.size; rank++)
		if (color_of(all, rank) == color_of(all, group->member.rank))
			machines[find_place(all, group->member.size, rank).rank] = of_group[rank];
	return machines;
}

static int join_part(dtrain_group *group, const int64_t *all, const dtrain_group_split_options *split,
		     dtrain_group **out, beton_error *err)
{
	part_place place = find_place(all, group->member.size, group->member.rank);
	int *world = list_part(group, all, place.size), *machines = list_machines(group, all, place.size);
	group_origin origin = {.color = (int)color_of(all, group->member.rank),
			       .world = world,
			       .machines = machines,
			       .own_lane = split->own_lane,
			       .copy_engines = split->copy_engines};
	char *name = bt_format("%s.%d.%d", group->name, group->splits, origin.color);
	dtrain_group_options options;
	dtrain_group_options_init(&options);
	options.name = name;
	options.interface = group->interface;
	options.timeout_ms = group->member.timeout_ms;
	options.join_timeout_ms = group->member.join_timeout_ms;
	options.backend = place.size == 1  ? NULL
			  : group->streams ? group->streams->backend->name
					   : group->backend->name;
	options.device = group->device;
	if (place.size > 1 && group->streams)
		origin.parent = group;
	bool failed = !name || !world || (origin.parent && !machines);
	int status = !failed ? dtrain__group_create_within(group->member.store, place.rank, place.size, &options,
							   &origin, out, err)
			     : bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", group->name);
	free(machines);
	free(world);
	free(name);
	return status;
}

void dtrain_group_split_options_init_sized(dtrain_group_split_options *options, size_t size)
{
	const dtrain_group_split_options defaults = {.struct_size = sizeof(defaults)};
	bt_sized_init(options, size, &defaults);
}

int dtrain_group_split(dtrain_group *group, int color, int key, const dtrain_group_split_options *given,
		       dtrain_group **out, beton_error *err)
{
	if (BT_MISSING(err, group, out))
		return BETON_INVALID_ARGUMENT;
	int64_t mine[2] = {color, key};
	void *nothing = NULL;
	*out = NULL;
	dtrain_group_split_options options;
	dtrain_group_split_options_init(&options);
	int status = given ? bt_sized_take(&options, given, "group split options", err) : BETON_OK;
	if (status != BETON_OK)
		return status;
	int64_t *all = calloc((size_t)group->member.size * 2, sizeof(*all));
	if (!all)
		return bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", group->name);
	status = dtrain__group_gather_host(group, mine, sizeof(mine), all, err);
	if (status == BETON_OK)
		group->splits++;
	if (status == BETON_OK && makes_communicators(group, all) &&
	    (color < 0 || find_place(all, group->member.size, group->member.rank).size == 1))
		status = dtrain__streams_split(group->streams, -1, NULL, &nothing, err);
	if (status == BETON_OK && color >= 0)
		status = join_part(group, all, &options, out, err);
	free(all);
	return status;
}
