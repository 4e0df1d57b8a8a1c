/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_DIAGNOSE_H
#define BT_LOADER_DIAGNOSE_H

#include <beton/loader.h>

/* beton_loader_diagnose of these totals: options tell the number of threads and of batches in advance. */
beton_bottleneck bt_diagnose(const beton_loader_stats *stats, const beton_loader_options *options, char *text,
			     size_t size);

/* What was done since `before`; read_ahead stays what it is now. */
void bt_stats_subtract(beton_loader_stats *stats, const beton_loader_stats *before);

#endif
