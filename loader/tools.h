/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker's tickets, arena, decoder and buffers.
 */
#ifndef BT_LOADER_TOOLS_H
#define BT_LOADER_TOOLS_H

#include <beton/loader.h>

#include "io/arena.h"
#include "common/buffer.h"
#include "pixels/decode.h"
#include "io/engine.h"
#include "operations/operations.h"
#include "batch/slot.h"
#include "pixels/raster.h"
#include "pixels/transform.h"

/* A blob that a sample's outputs need. */
typedef struct bt_blob_read {
	bt_read read;
	size_t footprint; /* bytes of the arena that it holds */
	bool pending;     /* submitted, and not waited for yet */
} bt_blob_read;

/* A sample that a worker has claimed. */
typedef struct bt_ticket {
	bt_slot *slot;
	uint32_t index; /* its row in the batch */
	uint32_t file;
	uint64_t sample; /* its id */
	uint64_t number; /* index in its file */
	int result;      /* status of the first step */
	beton_error err;
	beton_value *values; /* [outputs.num_values] */
	bt_blob_read *reads; /* [outputs.num_reads] */
} bt_ticket;

/* A value of a RAGGED output. */
typedef struct bt_ragged_value {
	const uint8_t *bytes; /* checked */
	bt_buffer unpacked;   /* memory of a decompressed value */
} bt_ragged_value;

/* One worker's state besides the loader's constants. Zero-initialise. */
typedef struct bt_tools {
	const beton_loader *loader;
	bt_decoder *decoder;
	uint8_t *jpeg_index; /* room for the index of a JPEG */
	bt_budget budget;    /* of all buffers below */
	bt_lane *lane;       /* NULL: it is not open */
	bt_transformer transformer;
	bt_raster_transformer rasters;
	bt_buffer unpacked;              /* a decompressed raster */
	bt_canvas canvas;                /* applies operations to pictures */
	bt_moves moves[BETON_VIEWS_MAX]; /* of the present sample's pictures, where an output asks for them */
	bt_buffer array;                 /* the numbers of a GEOMETRY output, as the file has them */
	bt_buffer chunk;                 /* a decompressed chunk of tokens */
	bt_ragged_value *ragged;         /* [outputs.count], of the present sample; NULL without ragged outputs */
	beton_loader_stats stats;        /* not yet added to the loader's */

	/* Tickets first <= i < end, oldest first; number i is at [i % capacity]. Their blobs are submitted in order as
	 * far as there is room; next_ticket and next_read are the first that was not. */
	bt_ticket *tickets;
	uint32_t capacity; /* a power of 2 */
	uint32_t first;
	uint32_t end;
	uint32_t next_ticket;
	uint32_t next_read;
	bt_arena arena;
	bt_ticket substitute;      /* replaces a bad sample, and has a buffer of its own */
	bt_buffer substitute_blob; /* outside the budget: see resources.c */

	uint32_t ahead;     /* samples to read ahead */
	uint32_t ahead_max; /* most that adaptation may raise it to; 0: no adaptation */
	uint32_t at_hand;   /* reads in a row whose data was in memory */
} bt_tools;

/* As the loader's resources say. The tools must not move until they are closed. Errors: NO_MEMORY. */
int bt_tools_open(bt_tools *tools, const beton_loader *loader, beton_error *err);

/* After the lanes were closed. Also for tools that were not opened, or only in part. */
void bt_tools_close(bt_tools *tools);

#endif
