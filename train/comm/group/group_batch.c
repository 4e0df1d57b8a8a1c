/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects the operations between dtrain_group_begin and dtrain_group_end.
 */
#include <stdlib.h>

#include "common/error.h"
#include "group.h"

int dtrain_group_begin(dtrain_group *group, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	group_batch *batch = &group->batch;
	if (batch->open)
		return bt_fail(err, BETON_STATE, "group \"%s\": a batch is open already", group->name);
	batch->open = true;
	batch->count = 0;
	batch->refused = (beton_error){0};
	return BETON_OK;
}

static int grow(dtrain_group *group, beton_error *err)
{
	group_batch *batch = &group->batch;
	int capacity = batch->capacity ? 2 * batch->capacity : 16;
	work_item *items = realloc(batch->items, (size_t)capacity * sizeof(*items));
	if (!items)
		return bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory for a batch of %d operations",
			       group->name, capacity);
	batch->items = items;
	batch->capacity = capacity;
	return BETON_OK;
}

int dtrain__batch_add(dtrain_group *group, const dtrain_group_call *call, dtrain_event *after, beton_error *err)
{
	group_batch *batch = &group->batch;
	int status = batch->count == batch->capacity ? grow(group, err) : BETON_OK;
	if (status == BETON_OK)
		batch->items[batch->count++] = (work_item){*call, after, NULL};
	return status;
}

int dtrain_group_end(dtrain_group *group, dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, group, work))
		return BETON_INVALID_ARGUMENT;
	group_batch *batch = &group->batch;
	*work = NULL;
	if (!batch->open)
		return bt_fail(err, BETON_STATE, "group \"%s\": no batch is open", group->name);
	batch->open = false;
	if (batch->refused.code) {
		if (err)
			*err = batch->refused;
		return batch->refused.code;
	}
	return dtrain__group_submit(group, batch->items, batch->count, true, NULL, work, err);
}
