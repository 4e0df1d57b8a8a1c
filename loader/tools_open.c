/* SPDX-License-Identifier: Apache-2.0 */
#include "tools.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "common/error.h"
#include "state.h"

static bool open_ticket(bt_ticket *ticket, uint32_t num_values, uint32_t num_reads)
{
	ticket->values = calloc(num_values, sizeof(*ticket->values));
	/* One more, because calloc of 0 bytes may return NULL. */
	ticket->reads = calloc((size_t)num_reads + 1, sizeof(*ticket->reads));
	return ticket->values && ticket->reads;
}

static void close_ticket(bt_ticket *ticket)
{
	free(ticket->values);
	free(ticket->reads);
	*ticket = (bt_ticket){0};
}

/* A mapping, so that unused pages take no memory. */
static bool open_arena(bt_arena *arena, size_t bytes)
{
	if (bytes == 0)
		return true;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	/* The kernel may write into the arena while the process forks, and the child does not need it. Where this is
	 * not supported, a fork copies it. */
	madvise(memory, bytes, MADV_DONTFORK);
	*arena = (bt_arena){.memory = memory, .size = bytes};
	return true;
}

static void share_budget(bt_tools *tools)
{
	bt_transformer_limit(&tools->transformer, &tools->budget);
	bt_raster_limit(&tools->rasters, &tools->budget);
	bt_canvas_limit(&tools->canvas, &tools->budget);
	tools->chunk.budget = tools->array.budget = tools->unpacked.budget = &tools->budget;
	for (uint32_t i = 0; i < BETON_VIEWS_MAX; i++)
		tools->moves[i].memory.budget = &tools->budget;
	for (uint32_t i = 0; tools->ragged && i < tools->loader->outputs->count; i++)
		tools->ragged[i].unpacked.budget = &tools->budget;
}

int bt_tools_open(bt_tools *tools, const beton_loader *loader, beton_error *err)
{
	uint32_t capacity = loader->resources.tickets;
	size_t arena_bytes = loader->resources.arena_bytes;
	const char *path = bt_dataset_name(&loader->dataset);
	uint32_t values = loader->outputs->num_values;
	*tools = (bt_tools){.loader = loader,
			    .capacity = capacity,
			    .ahead = loader->resources.ahead,
			    .ahead_max = loader->resources.ahead_max,
			    .budget = {.limit = loader->resources.scratch_bytes}};
	if (loader->outputs->ragged) {
		tools->ragged = calloc(loader->outputs->count, sizeof(*tools->ragged));
		if (!tools->ragged)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for a batch's outputs", path);
	}
	share_budget(tools);
	int result = bt_decoder_open(&tools->decoder, loader->options.max_pixels, &tools->budget, err);
	if (result)
		return result;
	tools->tickets = calloc(capacity, sizeof(*tools->tickets));
	tools->jpeg_index = malloc(BETON_JPEG_INDEX_MAX);
	bool ok = tools->tickets && tools->jpeg_index &&
		  open_ticket(&tools->substitute, values, loader->outputs->num_reads);
	for (uint32_t i = 0; ok && i < capacity; i++)
		ok = open_ticket(&tools->tickets[i], values, loader->outputs->num_reads);
	if (ok && open_arena(&tools->arena, arena_bytes))
		return BETON_OK;
	bt_tools_close(tools);
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %u samples and %zu bytes of read-ahead", path,
		       capacity, arena_bytes);
}

void bt_tools_close(bt_tools *tools)
{
	bt_decoder_close(&tools->decoder);
	bt_transformer_free(&tools->transformer);
	bt_raster_free(&tools->rasters);
	bt_canvas_free(&tools->canvas);
	bt_buffer_free(&tools->substitute_blob);
	bt_buffer_free(&tools->chunk);
	bt_buffer_free(&tools->array);
	bt_buffer_free(&tools->unpacked);
	for (uint32_t i = 0; i < BETON_VIEWS_MAX; i++)
		bt_buffer_free(&tools->moves[i].memory);
	free(tools->jpeg_index);
	for (uint32_t i = 0; tools->ragged && i < tools->loader->outputs->count; i++)
		bt_buffer_free(&tools->ragged[i].unpacked);
	free(tools->ragged);
	for (uint32_t i = 0; tools->tickets && i < tools->capacity; i++)
		close_ticket(&tools->tickets[i]);
	close_ticket(&tools->substitute);
	free(tools->tickets);
	/* Fails only for a range without a mapping. */
	if (tools->arena.memory)
		munmap(tools->arena.memory, tools->arena.size);
	*tools = (bt_tools){0};
}
