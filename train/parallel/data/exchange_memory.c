/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of what the ranks exchange. Allocating it is local. The start of the sync registers it, because the group of
 * gathers begins there, and the ranks have waited for each other.
 */
#include <stdlib.h>

#include <xxhash.h>

#include "comm/group/work.h"
#include "common/error.h"
#include "core/params.h"
#include "core/program.h"
#include "sync.h"

struct sync_memory {
	dtrain__memory_owner owner;
	sync_memory *next;
	dtrain_sync *sync; /* NULL: it is destroyed */
	dtrain__memory_use use;
	const dtrain_program *program; /* of an arena */
	dtrain_group_memory *memory;
};

static void free_memory(dtrain__memory_owner *owner)
{
	sync_memory *self = (sync_memory *)owner;
	sync_memory **link = self->sync ? &self->sync->memories : NULL;
	while (link && *link != self)
		link = &(*link)->next;
	if (link)
		*link = self->next;
	dtrain_group_memory_destroy(&self->memory);
	free(self);
}

/* The ranks that add up gradients. */
static dtrain_group *adding(const dtrain_sync *sync)
{
	return sync->shards ? sync->shards : sync->group;
}

/* Without shards nothing is gathered. */
static int allocate(void *context, dtrain__memory_use use, const dtrain_program *program, size_t bytes, void **memory,
		    dtrain__memory_owner **owner, beton_error *err)
{
	dtrain_sync *sync = context;
	if (!sync->shards && use == DTRAIN__MEMORY_VALUES)
		return sync->api->alloc(sync->device, bytes, memory, err);
	sync_memory *made = calloc(1, sizeof(*made));
	if (!made)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	*made = (sync_memory){.owner = {free_memory}, .use = use, .program = program};
	int status = dtrain_group_memory_create(adding(sync), bytes, sync->options.registration, &made->memory, err);
	if (status != BETON_OK) {
		free(made);
		return status;
	}
	made->sync = sync;
	made->next = sync->memories;
	sync->memories = made;
	*memory = dtrain_group_memory_data(made->memory);
	*owner = &made->owner;
	return BETON_OK;
}

void dtrain__sync_supply_memory(dtrain_sync *sync)
{
	const dtrain__memory_source source = {.context = sync, .alloc = allocate};
	if (sync->group)
		dtrain__params_set_source(sync->params, &source);
}

void dtrain__sync_leave_memory(dtrain_sync *sync)
{
	dtrain__params_set_source(sync->params, NULL);
	for (sync_memory *memory = sync->memories; memory; memory = memory->next)
		memory->sync = NULL;
	sync->memories = NULL;
}

/* Where everything is in the arenas. */
static uint64_t hash_arenas(const dtrain_sync *sync)
{
	uint64_t hash = 0;
	for (const sync_memory *memory = sync->memories; memory; memory = memory->next) {
		const dtrain_program *program = memory->program;
		for (int32_t i = 0; program && i < program->num_spans; i++)
			hash = XXH3_64bits_withSeed(&program->spans[i].offset, sizeof(size_t), hash);
		if (program)
			hash = XXH3_64bits_withSeed(&program->info.arena_bytes, sizeof(size_t), hash);
	}
	return hash;
}

/* A rank's device may have planned ops with other memory, so that arenas differ. In a window everything must have the
 * same place on all ranks. */
static int compare_arenas(dtrain_sync *sync, bool *alike, beton_error *err)
{
	int size = dtrain_group_size(adding(sync));
	uint64_t mine = hash_arenas(sync), *all = calloc((size_t)size, sizeof(*all));
	*alike = true;
	if (!all)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	int status = dtrain__group_gather_host(adding(sync), &mine, sizeof(mine), all, err);
	for (int rank = 0; rank < size && status == BETON_OK; rank++)
		*alike = *alike && all[rank] == mine;
	free(all);
	return status;
}

/* Gathers read values and copies, and write those or an arena; gradients go from the arena to their shards. */
static int register_one(dtrain_sync *sync, const sync_memory *memory, beton_error *err)
{
	int status = BETON_OK;
	if (memory->use != DTRAIN__MEMORY_VALUES)
		status = dtrain_group_memory_register(memory->memory, adding(sync), err);
	if (status == BETON_OK && memory->use != DTRAIN__MEMORY_GRADS && sync->gathers)
		status = dtrain_group_memory_register(memory->memory, sync->gathers, err);
	return status;
}

int dtrain__sync_register_memory(dtrain_sync *sync, beton_error *err)
{
	bool alike;
	int status = compare_arenas(sync, &alike, err);
	for (const sync_memory *memory = sync->memories; memory && status == BETON_OK; memory = memory->next)
		if (memory->use != DTRAIN__MEMORY_ARENA || alike)
			status = register_one(sync, memory, err);
	return status;
}
