/* SPDX-License-Identifier: Apache-2.0 */
#include "reads.h"

#include "common/error.h"
#include "common/system.h"
#include "state.h"

/* After this many reads in a row from memory, read-ahead is halved: a first epoch from disk should not leave later
 * epochs with buffers that exceed the processor's cache. */
enum { AT_HAND_MAX = 4096 };

static uint32_t num_reads(const bt_tools *tools)
{
	return tools->loader->outputs->num_reads;
}

void bt_reads_plan(const beton_loader *loader, bt_ticket *ticket)
{
	for (uint32_t i = 0; i < loader->outputs->num_reads; i++) {
		bt_blob_read *blob = &ticket->reads[i];
		*blob = (bt_blob_read){0};
		if (ticket->result != BETON_OK)
			continue;
		const beton_value *value = &ticket->values[loader->outputs->read_value[i]];
		blob->read.offset = value->blob.offset;
		/* A larger value is not read; the output that cannot take it refuses it by its size. */
		blob->read.size = value->blob.size <= loader->outputs->read_most[i] ? value->blob.size : 0;
	}
}

int bt_reads_check(const beton_loader *loader, const bt_ticket *ticket, beton_error *err)
{
	const bt_outputs *outputs = loader->outputs;
	const bt_file *file = &loader->dataset.files->list[ticket->file];
	uint64_t all = 0;
	for (uint32_t i = 0; i < outputs->num_reads; i++) {
		const beton_value *value = &ticket->values[outputs->read_value[i]];
		uint64_t size = value->blob.size;
		if (size > outputs->read_most[i] && value->size < size)
			return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)ticket->sample,
					      "%s: sample %llu, field '%s': %llu bytes of %llu compressed ones",
					      file->path, (unsigned long long)ticket->number,
					      loader->dataset.schema.fields[value->field].name,
					      (unsigned long long)value->size, (unsigned long long)size);
		all += size <= outputs->read_most[i] ? size : 0;
		if (all > file->largest)
			return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)ticket->sample,
					      "%s: sample %llu: its values do not lie in one page of %llu bytes",
					      file->path, (unsigned long long)ticket->number,
					      (unsigned long long)file->largest);
	}
	return BETON_OK;
}

static void submit(bt_tools *tools, const bt_ticket *ticket, bt_blob_read *blob, void *buffer)
{
	blob->read.file = &tools->loader->dataset.files->list[ticket->file];
	tools->loader->api->submit(tools->lane, &blob->read, buffer);
	blob->pending = true;
}

static size_t footprint(const bt_tools *tools, const bt_blob_read *blob)
{
	const beton_loader *loader = tools->loader;
	return blob->read.size ? loader->api->footprint(loader->engine, blob->read.offset, blob->read.size) : 0;
}

/* Submits the read of a queued blob; false if it does not fit now. */
static bool try_submit(bt_tools *tools, const bt_ticket *ticket, bt_blob_read *blob)
{
	size_t bytes = footprint(tools, blob);
	uint8_t *buffer = NULL;
	if (bytes > 0 && !bt_arena_take(&tools->arena, bytes, &buffer))
		return false;
	blob->footprint = bytes;
	submit(tools, ticket, blob, buffer);
	return true;
}

void bt_reads_submit(bt_tools *tools)
{
	for (; tools->next_ticket != tools->end; tools->next_ticket++, tools->next_read = 0) {
		const bt_ticket *ticket = &tools->tickets[tools->next_ticket % tools->capacity];
		uint32_t count = ticket->result == BETON_OK ? num_reads(tools) : 0;
		for (; tools->next_read < count; tools->next_read++)
			if (!try_submit(tools, ticket, &ticket->reads[tools->next_read]))
				return;
	}
}

/* Reads further ahead while data is late. So read-ahead grows fast to what the disk needs, and stays small elsewhere.
 */
static void adapt(bt_tools *tools, const bt_read *read)
{
	if (tools->ahead_max == 0)
		return;
	tools->at_hand = read->missed ? 0 : tools->at_hand + 1;
	if (read->waited) {
		uint32_t more = 2 * tools->ahead + 1;
		tools->ahead = more < tools->ahead_max ? more : tools->ahead_max;
	} else if (tools->at_hand == AT_HAND_MAX) {
		tools->ahead /= 2;
		tools->at_hand = 0;
	}
}

static int wait(bt_tools *tools, bt_blob_read *blob, beton_error *err)
{
	uint64_t begin = bt_now_ns();
	int result = tools->loader->api->wait(tools->lane, &blob->read, err);
	blob->pending = false;
	tools->stats.read_ns += bt_now_ns() - begin;
	tools->stats.bytes_read += blob->read.size;
	return result;
}

int bt_reads_wait(bt_tools *tools, bt_ticket *ticket, uint32_t number, const uint8_t **bytes, beton_error *err)
{
	bt_blob_read *blob = &ticket->reads[number];
	int result = BETON_OK;
	if (blob->pending) {
		result = wait(tools, blob, err);
		adapt(tools, &blob->read);
	}
	*bytes = blob->read.bytes;
	return result;
}

int bt_reads_now(bt_tools *tools, bt_ticket *ticket, beton_error *err)
{
	uint32_t count = num_reads(tools);
	size_t bytes = BT_ARENA_ALIGNMENT;
	bt_reads_plan(tools->loader, ticket);
	for (uint32_t i = 0; i < count; i++)
		bytes += footprint(tools, &ticket->reads[i]);
	char *buffer = bt_buffer_reserve(&tools->substitute_blob, bytes);
	if (!buffer)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %zu bytes",
			       tools->loader->dataset.files->list[ticket->file].path, bytes);
	buffer += -(uintptr_t)buffer % BT_ARENA_ALIGNMENT;
	int result = BETON_OK;
	for (uint32_t i = 0; i < count && result == BETON_OK; i++) {
		submit(tools, ticket, &ticket->reads[i], buffer);
		buffer += footprint(tools, &ticket->reads[i]);
		result = wait(tools, &ticket->reads[i], err);
	}
	return result;
}

void bt_reads_end(bt_tools *tools)
{
	bt_ticket *ticket = &tools->tickets[tools->first % tools->capacity];
	/* A ticket whose look-up failed has no reads; an abandoned one's may not be submitted yet. */
	if (tools->next_ticket == tools->first) {
		tools->next_ticket++;
		tools->next_read = 0;
	}
	for (uint32_t i = 0; i < num_reads(tools); i++) {
		bt_blob_read *blob = &ticket->reads[i];
		if (blob->pending)
			wait(tools, blob, NULL);
		if (blob->footprint)
			bt_arena_give(&tools->arena, blob->footprint);
		blob->footprint = 0;
	}
	tools->first++;
	bt_reads_submit(tools);
}
