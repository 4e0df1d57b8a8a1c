/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "group.h"
#include "work.h"

struct membership {
	int rank; /* in the new group */
	int size;
};

static int64_t color_of(const int64_t *all, int rank)
{
	return all[2 * rank];
}

static int64_t key_of(const int64_t *all, int rank)
{
	return all[2 * rank + 1];
}

static struct membership find_place(const int64_t *all, int size, int self)
{
	struct membership place = {0};

	for (int rank = 0; rank < size; rank++) {
		if (color_of(all, rank) != color_of(all, self))
			continue;
		place.size++;
		if (key_of(all, rank) < key_of(all, self) || (key_of(all, rank) == key_of(all, self) && rank < self))
			place.rank++;
	}
	return place;
}

int dtrain_group_split(dtrain_group *group, int color, int key, dtrain_group **out, beton_error *err)
{
	int64_t mine[2] = {color, key}, *all = calloc((size_t)group->member.size * 2, sizeof(*all));
	dtrain_group_options options;
	struct membership place;
	dtrain_work *work = NULL;
	char *name = NULL;
	int status;

	*out = NULL;
	if (!all)
		return bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", group->name);
	status = dtrain__work_finish(dtrain_all_gather(group, all, mine, 2, DTRAIN_I64, NULL, &work, err), &work, err);
	group->splits++;
	if (!status && color >= 0) {
		place = find_place(all, group->member.size, group->member.rank);
		name = bt_format("%s.%d.%d", group->name, group->splits, color);
		dtrain_group_options_init(&options);
		options.name = name;
		options.interface = group->interface;
		options.timeout_ms = group->member.timeout_ms;
		options.backend = place.size > 1 ? group->backend->name : NULL;
		options.device = group->device;
		status = name ? dtrain_group_create(group->member.store, place.rank, place.size, &options, out, err)
			      : bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", group->name);
	}
	free(name);
	free(all);
	return status;
}
