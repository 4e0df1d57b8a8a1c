/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the blobs of a worker's tickets ahead of their use, in order, as far as the arena has room.
 */
#ifndef BT_LOADER_READS_H
#define BT_LOADER_READS_H

#include "tools.h"

/* Prepares a ticket's reads; none if its look-up failed. */
void bt_reads_plan(const beton_loader *loader, bt_ticket *ticket);

/* Whether the stored values that a sample's outputs need can be read: they lie in one page, and compression did not
 * make them larger. Errors: SAMPLE_CORRUPT. */
int bt_reads_check(const beton_loader *loader, const bt_ticket *ticket, beton_error *err);

/* Submits the reads of the tickets that were not submitted yet, as far as they fit. */
void bt_reads_submit(bt_tools *tools);

/* Waits for read `number` of the oldest ticket, or of one that bt_reads_now has read. The bytes are valid until
 * bt_reads_end. Errors: bt_engine_api.wait's. */
int bt_reads_wait(bt_tools *tools, bt_ticket *ticket, uint32_t number, const uint8_t **bytes, beton_error *err);

/* Reads all blobs of a ticket that is not in the tools' queue, into a buffer of its own. Errors:
 * bt_engine_api.wait's. */
int bt_reads_now(bt_tools *tools, bt_ticket *ticket, beton_error *err);

/* Ends the oldest ticket: waits for its reads that are still in flight, gives its room back, and submits what fits
 * then. */
void bt_reads_end(bt_tools *tools);

#endif
