/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills the row of a batch with a window of tokens.
 */
#ifndef BT_LOADER_WINDOW_FILL_H
#define BT_LOADER_WINDOW_FILL_H

#include "tools.h"

/* Fills the row of a ticket whose reads were submitted. Errors: SAMPLE_CORRUPT (checksum, token out of range), and
 * the errors of bt_reads_wait and beton_reader_unpack. */
int bt_window_fill(bt_tools *tools, bt_ticket *ticket, beton_error *err);

#endif
