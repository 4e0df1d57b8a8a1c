/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_DIAGNOSE_H
#define BT_LOADER_DIAGNOSE_H

#include <beton/loader.h>

/* beton_loader_diagnose of these totals. options give the numbers of threads and of batches in advance. */
beton_bottleneck bt_diagnose(const beton_loader_stats *stats, const beton_loader_options *options, char *text,
			     size_t size);

/* Subtracts `before` from the totals; read_ahead keeps its present value. */
void bt_stats_subtract(beton_loader_stats *stats, const beton_loader_stats *before);

#endif
