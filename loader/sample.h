/* SPDX-License-Identifier: Apache-2.0
 *
 * One sample, from its number to its place in the batch. */
#ifndef BT_LOADER_SAMPLE_H
#define BT_LOADER_SAMPLE_H

#include <beton/loader.h>

#include "slot.h"
#include "buffer.h"
#include "decode.h"
#include "operations.h"
#include "engine.h"
#include "transform.h"

/* What one worker needs besides the loader's constants. Zero-initialise. */
typedef struct bt_tools {
	bt_decoder *decoder;
	beton_value *values; /* of one sample, [num_fields] */
	bt_buffer blob;
	bt_lane **lanes; /* to each file */
	bt_read read;
	bt_transformer transformer;
	bt_operator operator;     /* of the operations on pictures */
	beton_loader_stats stats; /* since the last time they were added to the loader's */
} bt_tools;

int bt_tools_open(bt_tools *tools, const beton_reader *reader, beton_error *err);
void bt_tools_close(bt_tools *tools);

/* Fills row `index` of a slot that is FILLING. On failure the row's content is undefined. */
int bt_sample_fill(const beton_loader *loader, bt_tools *tools, const bt_slot *slot, uint32_t index, beton_error *err);

#endif
