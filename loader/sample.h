/* SPDX-License-Identifier: Apache-2.0
 *
 * One sample, from its number to its place in the batch, in two steps: looking it up and asking for its data, and then,
 * when others have been asked for, making its outputs. */
#ifndef BT_LOADER_SAMPLE_H
#define BT_LOADER_SAMPLE_H

#include <beton/loader.h>

#include "arena.h"
#include "buffer.h"
#include "decode.h"
#include "engine.h"
#include "operations.h"
#include "slot.h"
#include "transform.h"

/* A blob that a sample's outputs are made from. */
typedef struct bt_blob_read {
	bt_read read;
	size_t footprint; /* bytes of the arena that it holds */
	bool pending;     /* asked for, and not waited for yet */
} bt_blob_read;

/* A sample that a worker has claimed. */
typedef struct bt_ticket {
	bt_slot *slot;
	uint32_t index; /* its row */
	uint32_t file;
	uint64_t sample; /* its id */
	uint64_t number; /* in its file */
	int result;      /* of the first step */
	beton_error err;
	beton_value *values; /* [num_fields] */
	bt_blob_read *reads; /* [outputs.num_reads] */
} bt_ticket;

/* A value that is to stand behind others of its batch. */
typedef struct bt_ragged_value {
	const uint8_t *bytes; /* checked */
	bt_buffer unpacked;   /* of a compressed one */
} bt_ragged_value;

/* What one worker needs besides the loader's constants. Zero-initialise. */
typedef struct bt_tools {
	const beton_loader *loader;
	bt_decoder *decoder;
	bt_budget budget; /* of all buffers here */
	bt_lane **lanes;  /* to each file */
	bt_transformer transformer;
	bt_operator operator;     /* of the operations on pictures */
	bt_ragged_value *ragged;  /* [outputs.count], of the sample at hand; NULL without ragged outputs */
	beton_loader_stats stats; /* since the last time they were added to the loader's */

	/* The tickets, oldest first: number i is at [i % capacity], for first <= i < end. Their blobs are submitted in
	 * order as far as there is room for them; next_ticket and next_read are the first that is not. */
	bt_ticket *tickets;
	uint32_t capacity; /* a power of 2 */
	uint32_t first;
	uint32_t end;
	uint32_t next_ticket;
	uint32_t next_read;
	bt_arena arena;
	bt_ticket substitute;      /* of a bad sample, with a buffer of its own */
	bt_buffer substitute_blob; /* outside the budget: see resources.c */

	uint32_t ahead;     /* samples to read ahead */
	uint32_t ahead_max; /* up to which that is automatic; 0: it is not */
	uint32_t at_hand;   /* reads in a row that found their data in memory */
} bt_tools;

/* What the loader's resources say. The tools stay where they are until they are closed. Errors: NO_MEMORY. */
int bt_tools_open(bt_tools *tools, const beton_loader *loader, beton_error *err);

/* After the lanes were closed. Tools that were not opened, or only in part, are allowed. */
void bt_tools_close(bt_tools *tools);

/* Adds a ticket for a row of a slot that is FILLING, and asks for its data and that of earlier ones as far as there is
 * room; fewer than `capacity` are there. */
void bt_sample_begin(bt_tools *tools, bt_slot *slot, uint32_t index);

/* Takes the oldest ticket and fills its row, or that of an abandoned slot not. On failure the row's content is
 * undefined, and its id BT_NO_SAMPLE if the option on_error has it left out. *bad: it, or the one in its place, was. */
int bt_sample_finish(bt_tools *tools, bool *bad, beton_error *err);

#endif
