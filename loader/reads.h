/* SPDX-License-Identifier: Apache-2.0
 *
 * The blobs of a worker's tickets: asked for ahead of their use, in order, as far as its arena has room. */
#ifndef BT_LOADER_READS_H
#define BT_LOADER_READS_H

#include "sample.h"

/* Readies a ticket's reads; none, if its look-up failed. */
void bt_reads_plan(const beton_loader *loader, bt_ticket *ticket);

/* Asks for what fits of the tickets' blobs that were not asked for yet. */
void bt_reads_submit(bt_tools *tools);

/* Waits for read `number` of a ticket; the bytes are valid until bt_reads_end. Of the oldest ticket, or of one that
 * bt_reads_now has read. Errors: those of bt_engine_api.wait. */
int bt_reads_wait(bt_tools *tools, bt_ticket *ticket, uint32_t number, const uint8_t **bytes, beton_error *err);

/* Reads all blobs of a ticket that is not one of the tools' queue, into a buffer of its own. Errors: those of
 * bt_engine_api.wait. */
int bt_reads_now(bt_tools *tools, bt_ticket *ticket, beton_error *err);

/* Ends the oldest ticket: waits for reads that nobody waited for, gives its room back, and asks for what fits then. */
void bt_reads_end(bt_tools *tools);

#endif
