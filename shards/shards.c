/* SPDX-License-Identifier: Apache-2.0 */
#include "shards.h"

#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"

bool bt_is_set(const char *path)
{
	return bt_ends_with(path, BETON_SET_ENDING);
}

static int no_memory(const char *path, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
}

static int add_set(bt_shard_inputs *self, const char *path, const beton_set **out, beton_error *err)
{
	beton_set **sets = reallocarray(self->sets, self->num_sets + 1, sizeof(*sets));
	if (!sets)
		return no_memory(path, err);
	self->sets = sets;
	int result = beton_set_open(&sets[self->num_sets], path, err);
	if (result == BETON_OK)
		*out = sets[self->num_sets++];
	return result;
}

int bt_shard_inputs_add(bt_shard_inputs *self, const char *path, beton_error *err)
{
	const beton_set *set = NULL;
	int result = bt_is_set(path) ? add_set(self, path, &set, err) : BETON_OK;
	if (result != BETON_OK)
		return result;
	uint32_t count = set ? beton_set_get_info(set)->num_shards : 1;
	bt_shard_input *list = reallocarray(self->list, self->count + count, sizeof(*list));
	if (!list)
		return no_memory(path, err);
	self->list = list;
	for (uint32_t i = 0; i < count; i++)
		list[self->count++] = (bt_shard_input){set ? beton_set_shard(set, i)->path : path, set, i};
	return BETON_OK;
}

void bt_shard_inputs_free(bt_shard_inputs *self)
{
	for (size_t i = 0; i < self->num_sets; i++)
		beton_set_close(&self->sets[i]);
	free(self->sets);
	free(self->list);
	*self = (bt_shard_inputs){0};
}

int bt_shard_input_open(const bt_shard_input *input, beton_reader **out, beton_error *err)
{
	int result = beton_reader_open(out, input->path, err);
	if (result == BETON_OK && input->set)
		result = beton_set_check(input->set, input->shard, *out, err);
	if (result != BETON_OK)
		beton_reader_close(out);
	return result;
}
